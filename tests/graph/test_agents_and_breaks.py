"""Every kind of graph, broken in every way, goes on; a healthy run is that of the bare graph.

All graphs have the tools of the kit: `mail` works, `wire` waits for a human, `boom` fails. None is
patched with an option. A run that is abandoned inside a graph that shares its parent's history
leaves no trace in that: a patched graph adds the calls before the next message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, Send
from typing_extensions import TypedDict

from kit import (
    BARE,
    Agent,
    PydanticState,
    above,
    calls,
    lines,
    loop,
    model_node,
    patched,
    results_in,
    send_each,
)
from langgraph_patch import validate_messages
from langgraph_patch.testing import check_request

MAIL = ("mail", {"to": "bob"})
SECOND = {
    "paused": ("wire", {"amount": 5}),
    "failed": ("boom", {"text": "x"}),
    "cancelled": ("slow", {}),
}
"""The call beside the mail that breaks a turn."""


# --- the graphs ----------------------------------------------------------------------------


def compiled(build: Callable[..., Any]) -> Callable[..., Any]:
    """A graph of a function that makes a builder of a model and tools."""
    return lambda model, tools, saver: build(model, tools).compile(checkpointer=saver)


def with_approval(model: Any, tools: Any, saver: Any) -> Any:
    """`create_agent` in which a middleware asks the human."""
    asks = HumanInTheLoopMiddleware(interrupt_on={"wire": True, "boom": True, "slow": True})
    return BARE["create_agent"](model, tools, saver, middleware=[asks])


def own_tools(model: Any, tools: Any) -> Any:
    """LangGraph's quickstart: a node of the application's own runs the tools."""
    named = {each.name: each for each in tools}

    def result(call: Any, text: str) -> ToolMessage:
        return ToolMessage(text, tool_call_id=call["id"], name=call["name"])

    def run(state: Any) -> Any:
        made = state["messages"][-1].tool_calls
        return {"messages": [result(c, named[c["name"]].invoke(c["args"])) for c in made]}

    async def arun(state: Any) -> Any:
        made = state["messages"][-1].tool_calls
        return {"messages": [result(c, await named[c["name"]].ainvoke(c["args"])) for c in made]}

    builder = StateGraph(MessagesState).add_node("llm_call", model_node(model))
    builder.add_node("run_tools", RunnableLambda(run, arun)).add_edge(START, "llm_call")
    ends = {"tools": "run_tools", END: END}
    builder.add_conditional_edges("llm_call", tools_condition, ends)
    return builder.add_edge("run_tools", "llm_call")


class Debate(MessagesState):
    """A history, and what a researcher says about it."""

    debate: str


class Question(MessagesState):
    """What a graph takes."""


class Answer(TypedDict):
    """What it gives: no history."""

    debate: str


def schemas(model: Any, tools: Any) -> Any:
    """Another schema for what goes in and for what comes out, and a task for each call."""
    builder = StateGraph(Debate, input_schema=Question, output_schema=Answer)
    builder.add_node("agent", model_node(model)).add_node("tools", ToolNode(tools))
    builder.add_edge(START, "agent").add_edge("tools", "agent")
    return builder.add_conditional_edges("agent", send_each, ["tools", END])


@dataclass(frozen=True)
class Kind:
    """A kind of graph.

    Attributes:
        build: Makes one.
        entry: The node that `goto` names.
        records: Whether each call is a task of its own.
        asks_first: Whether a middleware asks the human before any tool runs.
        writes: Whether the node that `goto` names writes repairs.
    """

    build: Callable[..., Any]
    entry: str = "agent"
    records: bool = False
    asks_first: bool = False
    writes: bool = True


KINDS = {
    "hand_built": Kind(BARE["hand_built"]),
    "pydantic": Kind(compiled(lambda *parts: loop(*parts, state=PydanticState))),
    "react_v2": Kind(BARE["react_v2"], records=True),
    "create_agent": Kind(BARE["create_agent"], "model", records=True),
    "own_tools": Kind(compiled(own_tools), "llm_call", writes=False),
    "with_approval": Kind(with_approval, "model", records=True, asks_first=True),
    "schemas": Kind(compiled(schemas), records=True),
    "as_node": Kind(
        compiled(lambda *parts: above(BARE["create_agent"](*parts, None))),
        "node1", records=True, writes=False,
    ),
}  # fmt: skip


class Play:
    """One thread: the bare graph and the patched one, with options of `with_patching`."""

    def __init__(self, name: str, *script: Any, asynchronous: bool = False, **options: Any) -> None:
        self.kind, self.began = KINDS[name], asyncio.Event()

        @tool
        async def slow() -> str:
            """Run for ever."""
            self.began.set()
            await asyncio.sleep(3600)
            return "never"

        build = lambda model, tools, saver: self.kind.build(model, [*tools, slow], saver)
        self.bare = Agent(build, *script, asynchronous=asynchronous)
        self.patched = patched(self.bare, **options)

    def run(self, value: Any, *, bare: bool = False) -> Any:
        """Run a graph with a text, or with any other input."""
        value = {"messages": [HumanMessage(value)]} if isinstance(value, str) else value
        return (self.bare if bare else self.patched).run(value)

    @property
    def history(self) -> list[Any]:
        """The history that has the calls; it must be valid."""
        saved = self.bare.graph.checkpointer.get_tuple(self.bare.config)
        messages = saved.checkpoint["channel_values"]["messages"]
        assert validate_messages(messages) == []
        check_request(messages)
        return messages

    def results(self) -> dict[str, str]:
        """The results of the two calls."""
        return {k: v for k, v in results_in(self.history).items() if k in {"c1", "c2"}}


# --- the breaks ----------------------------------------------------------------------------


async def cancelled(play: Play, value: Any) -> None:
    """Cancel the run when the result of the mail is recorded."""
    graph, config = play.patched.graph, play.patched.config
    running = asyncio.create_task(graph.ainvoke(value, config))
    async with asyncio.timeout(20):
        await play.began.wait()
        while "sent to bob" not in repr(graph.checkpointer.writes):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def rows(number: int, *hows: str) -> list[Any]:
    """Each kind with that number of the breaks in turn, sync and async in turn."""
    return [
        pytest.param(name, hows[k], bool((n + k) % 2), id=f"{name}-{hows[k]}")
        for n, name in enumerate(KINDS)
        for k in {(n + more) % len(hows) for more in range(number)}
        if hows[k] != "cancelled" or KINDS[name].records
    ]


@pytest.mark.parametrize(
    ("name", "how", "asynchronous"), rows(1, "new_message", "none", "goto", "send", "edited")
)
def test_a_thread_that_is_dead(name: str, how: str, *, asynchronous: bool):
    """A thread that the bare graph broke, or an edit: the patched one goes on from there.

    Where the first run starts without a message and no model node runs alone, the history is valid
    from the next message on.
    """
    play = Play(name, asynchronous=asynchronous, recover=False)
    graph, config = play.patched.graph, play.patched.config
    damage = [HumanMessage("go"), calls(MAIL, SECOND["paused"]), HumanMessage("never mind")]
    messages = damage if how != "edited" else damage[:2]
    graph.update_state(config, {"messages": messages}, as_node=START)
    if how in {"new_message", "edited"}:
        graph.update_state(config, None, as_node=END)
    value: Any = {"messages": [HumanMessage("hello?")]}
    if how == "none":
        value = None
    elif how == "goto":
        value = Command(goto=play.kind.entry)
    elif how == "send":
        graph.update_state(config, None, as_node=END)
        value = Command(goto=Send(play.kind.entry, graph.get_state(config).values))
    play.run(value)
    if how in {"new_message", "edited"} or (play.kind.writes and how != "send"):
        assert {"c1", "c2"} <= results_in(play.history).keys()
    play.run("and now?")
    assert {"c1", "c2"} <= results_in(play.history).keys()
    assert lines(play.history)[-1].startswith("ai: ")
    assert not play.patched.desk.did


# --- a healthy run ---------------------------------------------------------------------------
