"""One agent of each kind, and what happens to it: run, pause, abandon, resume, kill.

`Desk` has the tools and counts what they did. The model is that of `langgraph_patch.testing`.
`Agent` is a graph of one of `KINDS` with one thread:

    agent = Agent("recorded", calls(("mail", {"to": "bob"}), ("wire", {"amount": 5})))
    agent.say("pay bob")        # the mail is sent, `wire` waits for an answer
    agent.say("never mind")     # the pause is abandoned
    agent.results               # {"c1": "sent to bob", "c2": "Tool call wire ..."}
"""

from __future__ import annotations

import asyncio
import copy
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from langgraph.types import Command, Send, interrupt
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_swarm
from pydantic import BaseModel
from typing_extensions import TypedDict

from langgraph_patch import testing, with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from langgraph_patch.testing import calls  # noqa: F401 - tests find it here
from support.databases import sqlite_saver
from support.versions import newer

DeltaChannel = newer("langgraph.channels", "DeltaChannel")
_messages_delta_reducer = newer("langgraph.graph.message", "_messages_delta_reducer")  # not public

# --- what a model says ---------------------------------------------------------------------


def refuses(messages: list[BaseMessage]) -> None:
    """As providers; with no status where a repair before the request makes it valid."""
    try:
        testing.check_request(messages)
    except testing.RefusedError as error:
        is_late = str(error).endswith(("have no result", "or tool_calls", "arguments"))
        error.status_code = 400 if is_late else None
        raise


class StrictModel(testing.StrictModel):
    """Says its script as it is written, with ids that are used again; see `refuses`."""

    refuses: Callable[[list[BaseMessage]], None] = refuses

    def _numbered(self, message: AIMessage, *_: Any) -> AIMessage:
        return message


def streamed(*named: tuple[str, str], reason: str = "", first: int = 1) -> list[AIMessageChunk]:
    """The chunks of a message with calls. Each has the text of its arguments, cut or not."""
    chunks = []
    for index, (name, raw) in enumerate(named):
        pieces = [raw[place : place + 4] for place in range(0, len(raw), 4)] or [""]
        for place, piece in enumerate(pieces):
            call = {
                "name": name if place == 0 else None,
                "args": piece,
                "id": f"c{first + index}" if place == 0 else None,
                "index": index,
            }
            chunks.append(AIMessageChunk("", tool_call_chunks=[call]))
    if reason:
        chunks.append(AIMessageChunk("", response_metadata={"finish_reason": reason}))
    return chunks


# --- what tools do --------------------------------------------------------------------------


_TOOLS: dict[Any, StructuredTool] = {}


def tool_of(function: Any, name: str | None = None) -> StructuredTool:
    """A tool made of a function. Functions with the same code share the schema of the arguments."""
    key = function.__code__, name
    if key not in _TOOLS:
        _TOOLS[key] = StructuredTool.from_function(function, name=name)
    return _TOOLS[key].model_copy(update={"func": function})


@dataclass
class Desk:
    """The tools of an agent.

    Attributes:
        did: How often each tool did its work, with which arguments: `"mail bob"`.
        log: A file that `did` is also written to, for processes that are killed.
    """

    did: Counter[str] = field(default_factory=Counter)
    log: Path | None = None

    def note(self, work: str) -> None:
        """Count a piece of work."""
        self.did[work] += 1
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(f"{work}\n")

    def mail(self, to: str) -> str:
        """Send a mail."""
        self.note(f"mail {to}")
        return f"sent to {to}"

    def wire(self, amount: int = 0) -> str:
        """Wire money, if a human agrees."""
        answer = interrupt(f"wire {amount}?")
        self.note(f"wire {amount}")
        return f"wired {amount}: {answer}"

    def boom(self, text: str) -> str:
        """Raise an error, when the results of the calls beside this one are stored."""
        time.sleep(0.1)
        raise RuntimeError(f"kaput {text}")

    def tools(self) -> list[BaseTool]:
        """The tools: `mail` works, `wire` asks a human, `boom` raises."""
        return [tool_of(each) for each in (self.mail, self.wire, self.boom)]


# --- kinds of agents ------------------------------------------------------------------------


class PydanticState(BaseModel):
    """A state that is a pydantic model."""

    messages: Annotated[list[AnyMessage], add_messages] = []
    tone: str = "calm"


@dataclass
class DataclassState:
    """A state that is a dataclass."""

    messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)
    tone: str = "calm"


STATES = {"dict": MessagesState, "pydantic": PydanticState, "dataclass": DataclassState}


def history_of(state: Any, key: str = "messages") -> list[Any]:
    """The history of a state of any form."""
    return state[key] if isinstance(state, dict) else getattr(state, key)


def model_node(model: Any, key: str = "messages") -> RunnableLambda[Any, Any]:
    """A node that calls a model, in both ways."""

    def call(state: Any) -> dict[str, Any]:
        return {key: [model.invoke(history_of(state, key))]}

    async def acall(state: Any) -> dict[str, Any]:
        return {key: [await model.ainvoke(history_of(state, key))]}

    return RunnableLambda(call, acall, name="agent")


def send_each(state: Any) -> Any:
    """A router with a task for each call of the last message."""
    return [Send("tools", [call]) for call in history_of(state)[-1].tool_calls] or END


def loop(
    model: Any,
    tools: Sequence[Any] | ToolNode,
    *,
    state: Any = MessagesState,
    router: Callable[..., Any] = tools_condition,
    key: str = "messages",
) -> StateGraph[Any]:
    """The builder of a loop with a model node and a `ToolNode`, as LangGraph's tutorial has it."""
    builder = StateGraph(state)
    builder.add_node("agent", model_node(model, key))
    node = tools if isinstance(tools, ToolNode) else ToolNode(tools, messages_key=key)
    builder.add_node("tools", node)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", router, ["tools", END])
    builder.add_edge("tools", "agent")
    return builder


def _loop(model: Any, tools: Any, saver: Any, **options: Any) -> Any:
    return loop(model, tools, **options).compile(checkpointer=saver)


def _react(version: Any) -> Callable[..., Any]:
    def build(model: Any, tools: Any, saver: Any, **options: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="create_react_agent has been moved")
            return create_react_agent(model, tools, version=version, checkpointer=saver, **options)

    return build


def _create_agent(model: Any, tools: Any, saver: Any, **options: Any) -> Any:
    return create_agent(model, tools, checkpointer=saver, **options)


BARE: dict[str, Callable[..., Any]] = {
    "hand_built": _loop,
    "react_v1": _react("v1"),
    "react_v2": _react("v2"),
    "create_agent": _create_agent,
}
"""Each makes a graph of a model, tools, a checkpointer and options of `loop` or of the agent."""


def _patched(build: Callable[..., Any], **always: Any) -> Callable[..., Any]:
    """What is built, patched; with options of `with_patching`, of which some are given always."""
    return lambda *parts, **options: with_patching(build(*parts), **always, **options)


def _middleware(model: Any, tools: Any, saver: Any, **options: Any) -> Any:
    return _create_agent(model, tools, saver, middleware=[PatchToolCallsMiddleware(**options)])


KINDS: dict[str, Callable[..., Any]] = {
    **{kind: _patched(build) for kind, build in BARE.items()},
    "recorded": _patched(_loop, record=True),
    "send": _patched(partial(_loop, router=send_each)),
    "middleware": _middleware,
}
"""The same and others, patched, with options of `with_patching`."""


# --- agents that are nodes ------------------------------------------------------------------


class DeltaState(TypedDict):
    """A state whose history is spread over checkpoints."""

    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


def above(*nodes: Any, state: Any = MessagesState) -> StateGraph[Any]:
    """A graph with these nodes, one after the other: `node1`, `node2`, and so on."""
    builder = StateGraph(state)
    builder.add_sequence([(f"node{number}", node) for number, node in enumerate(nodes, 1)])
    builder.add_edge(START, "node1")
    return builder


def _as_node(*, levels: int = 1) -> Callable[..., Any]:
    def build(model: Any, tools: Any, saver: Any) -> Any:
        graph: Any = create_agent(model, tools)
        for _ in range(levels - 1):
            graph = above(graph).compile()
        return above(graph).compile(checkpointer=saver)

    return _patched(build)


def _delta_loop(model: Any, tools: Any, saver: Any) -> Any:
    agent = loop(model, tools, state=DeltaState).compile()
    return above(agent, state=DeltaState).compile(checkpointer=saver)


_delta_as_node = _patched(_delta_loop, record=True)


def swarm(model: Any, tools: Any, saver: Any) -> Any:
    """An agent that may hand over to another one."""
    alice = create_agent(model, tools, name="alice")
    bob = create_agent(StrictModel(), [], name="bob")
    return create_swarm([alice, bob], default_active_agent="alice").compile(checkpointer=saver)


def calling(agent: Any) -> RunnableLambda[Any, Any]:
    """A function that calls an agent with the history and returns its last message."""

    def call(state: Any) -> dict[str, Any]:
        return {"messages": agent.invoke(state)["messages"][-1:]}

    async def acall(state: Any) -> dict[str, Any]:
        return {"messages": (await agent.ainvoke(state))["messages"][-1:]}

    return RunnableLambda(call, acall, name="calling")


@_patched
def _called(model: Any, tools: Any, saver: Any) -> Any:
    agent = with_patching(create_agent(model, tools))
    return above(calling(agent), model_node(model)).compile(checkpointer=saver)


@_patched
def _supervisor(model: Any, tools: Any, saver: Any) -> Any:
    """The boss and its worker have one model: it hands over first."""
    handover = {"name": "transfer_to_node1", "args": {}, "id": "h1", "type": "tool_call"}
    model.script.insert(0, AIMessage("", tool_calls=[handover]))
    worker = with_patching(create_agent(model, tools, name="node1"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="create_react_agent has been moved")
        return create_supervisor([worker], model=model).compile(checkpointer=saver)


NESTED: dict[str, Callable[..., Any]] = {
    "node": _as_node(),
    "three_levels": _as_node(levels=3),
    "delta_as_node": _delta_as_node,
    "swarm": _patched(swarm),
}
"""Agents that are nodes: with `KINDS`, all have a task for each call."""

TOLD: dict[str, Callable[..., Any]] = {"called": _called, "supervisor": _supervisor}
"""Agents that a function of a node calls."""


class Agent:
    """An agent with one thread.

    Args:
        kind: One of `KINDS`, `NESTED`, `TOLD`, or a function with the signature of one.
        *script: What its model says.
        saver: The checkpointer, or the file of a SQLite database. Default: one in memory.
        asynchronous: Whether it runs asynchronously. Default: False.
        desk: Its tools. Default: new ones.
        options: Options of `with_patching`.
    """

    def __init__(
        self,
        kind: str | Callable[..., Any],
        *script: Any,
        saver: BaseCheckpointSaver[Any] | Path | None = None,
        asynchronous: bool = False,
        desk: Desk | None = None,
        **options: Any,
    ) -> None:
        self.desk = desk or Desk()
        self.model = StrictModel(script=list(script))
        self.asynchronous = asynchronous
        if isinstance(saver, Path):
            saver = sqlite_saver(saver)
        build = {**KINDS, **NESTED, **TOLD}[kind] if isinstance(kind, str) else kind
        self.graph = build(self.model, self.desk.tools(), saver or InMemorySaver(), **options)
        self.config: Any = {"configurable": {"thread_id": "1"}}

    def run(self, value: Any, **options: Any) -> Any:
        """Run the graph with an input, `None` or a `Command`."""
        if self.asynchronous:
            return asyncio.run(self.graph.ainvoke(value, self.config, **options))
        return self.graph.invoke(value, self.config, **options)

    def stream(self, value: Any, mode: Any = "updates", **options: Any) -> list[Any]:
        """Run the graph and return all chunks."""

        async def collect() -> list[Any]:
            stream = self.graph.astream(value, self.config, stream_mode=mode, **options)
            return [chunk async for chunk in stream]

        if self.asynchronous:
            return asyncio.run(collect())
        return list(self.graph.stream(value, self.config, stream_mode=mode, **options))

    def say(self, text: str, **options: Any) -> Any:
        """Send a message of the user. If the thread waits for an answer, the pause is abandoned."""
        return self.run({"messages": [HumanMessage(text)]}, **options)

    def resume(self, answer: Any = "yes") -> Any:
        """Answer every question that waits, by the id of its interrupt."""
        return self.run(Command(resume={each.id: answer for each in self.interrupts}))

    @property
    def interrupts(self) -> Sequence[Any]:
        """The questions that wait."""
        return self.graph.get_state(self.config).interrupts

    @property
    def history(self) -> list[BaseMessage]:
        """The stored history."""
        return history_of(self.graph.get_state(self.config).values)

    @property
    def results(self) -> dict[str, str]:
        """The stored result of each call."""
        return results_in(self.history)

    @property
    def read(self) -> dict[str, str]:
        """The result of each call that the model read last."""
        return results_in(self.model.seen[-1])


def results_in(messages: Sequence[BaseMessage]) -> dict[str, str]:
    """The text of each tool message, by the id of its call."""
    return {m.tool_call_id: m.text for m in messages if isinstance(m, ToolMessage)}


def patched(agent: Agent, **options: Any) -> Agent:
    """An agent with the same thread, model and tools whose graph is patched."""
    other = copy.copy(agent)
    other.graph = with_patching(agent.graph, **options)
    return other


def lines(messages: Sequence[BaseMessage]) -> list[str]:
    """Each message on a line: its type, the ids of the calls that it makes or answers, its text."""
    found = []
    for message in messages:
        ids = [str(call["id"]) for call in getattr(message, "tool_calls", [])]
        if isinstance(message, ToolMessage):
            ids = [message.tool_call_id]
        found.append(f"{' '.join([message.type, *ids])}: {message.text}")
    return found


class Counting(InMemorySaver):
    """Counts its queries and its checkpoints, by method."""

    def __init__(self) -> None:
        super().__init__()
        self.used: Counter[str] = Counter()

    def get_tuple(self, config: Any) -> Any:
        self.used["get_tuple"] += 1
        return super().get_tuple(config)

    def list(self, *args: Any, **options: Any) -> Iterator[Any]:
        self.used["list"] += 1
        yield from super().list(*args, **options)

    def put(self, *args: Any) -> Any:
        self.used["put"] += 1
        return super().put(*args)

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    async def alist(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        for saved in self.list(*args, **options):
            yield saved


class RunNames(BaseCallbackHandler):
    """The name of each chain that starts, as a tracer sees it."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_chain_start(self, *_: Any, **kwargs: Any) -> None:
        self.names.append(kwargs["name"])
