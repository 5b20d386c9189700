"""What a recovered result wrote to other state keys is restored, or the model reads that it is not.

A tool that writes `files` or `todos` finishes beside one that waits for a human. The user moves on.
"""

from __future__ import annotations

import operator
import threading
from contextlib import nullcontext
from dataclasses import replace
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import TodoListMiddleware
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.channels import LastValue
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph, add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from langgraph_patch import PatchNode, with_patching
from langgraph_patch.evidence.effects import Effects, settle
from langgraph_patch.history.texts import Finding
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.agents import human, thread
from support.running import run, sync_and_async
from support.savers import sqlite
from support.strict import StrictModel, ai

TODOS = [{"content": "sleep", "status": "pending"}]
NOT_KEPT = "These effects of the tool call were not kept: "


def merge(old: dict[str, str] | None, new: dict[str, str]) -> dict[str, str]:
    """The reducer of the files."""
    return {**(old or {}), **new}


class State(TypedDict, total=False):
    """A state with two keys that the tools write."""

    messages: Annotated[list[AnyMessage], add_messages]
    files: Annotated[dict[str, str], merge]
    note: str


class Agent:
    """An agent by hand, with one task for each call: it writes a file, a note, and asks."""

    def __init__(self, *script: Any, goto: str | None = None, model_note: str | None = None):
        self.model = StrictModel(script=[calls(), *script])
        self.goto = goto
        self.model_note = model_note
        self.read: list[Any] = []

    def builder(self, state: Any = State) -> Any:
        """The bare graph."""
        builder = StateGraph(state)
        builder.add_node("agent", self.agent)
        builder.add_node("tools", self.tools)
        builder.add_node("other", lambda _: {"messages": [AIMessage("other")]})
        builder.add_edge(START, "agent")
        builder.add_conditional_edges("agent", self.to_tools, ["tools", "__end__"])
        builder.add_edge("tools", "agent")
        return builder

    def agent(self, state: Any) -> Any:
        """Call the model."""
        self.read.append((state.get("files"), state.get("note")))
        answer = self.model.invoke(state["messages"])
        note = {"note": self.model_note} if self.model_note and len(self.read) > 1 else {}
        return {"messages": [answer], **note}

    def to_tools(self, state: Any) -> Any:
        """A task for each call."""
        made = getattr(state["messages"][-1], "tool_calls", [])
        return [Send("tools", call) for call in made] or "__end__"

    def tools(self, call: Any) -> Any:
        """Run a call."""
        if call["name"] == "wire_money":
            interrupt("1000 EUR?")
        done = ToolMessage("Updated file", tool_call_id=call["id"], name=call["name"], id="r1")
        update = {"messages": [done], "files": {"a.txt": "hello"}, "note": "written"}
        return Command(update=update, goto=self.goto or ())


def calls() -> AIMessage:
    """The turn that breaks."""
    return ai(("write_file", {}, "c1"), ("wire_money", {}, "c2"), id="a1")


def values(graph: Any) -> Any:
    """The state of the thread."""
    return graph.get_state(thread()).values


def text_of(messages: Any, call_id: str = "c1") -> str:
    """The text of the result of a call."""
    return next(str(m.content) for m in messages if getattr(m, "tool_call_id", None) == call_id)


async def broken(agent: Agent, saver: Any) -> Any:
    """The bare graph, paused beside a finished call."""
    bare = agent.builder().compile(checkpointer=saver)
    bare.invoke({"messages": [human("go")]}, thread())
    assert bare.get_state(thread()).next == ("tools",)
    return bare


# --- the entry check and the patch node -----------------------------------------------------


@sync_and_async
async def test_the_files_come_back_with_the_message(*, asynchronous: bool):
    """Entry check: both keys have what the recorded task wrote, before the model reads."""
    agent = Agent(AIMessage("fine"))
    with nullcontext(InMemorySaver()) if asynchronous else sqlite() as saver:
        graph = with_patching(await broken(agent, saver))
        await run(graph, "never mind", asynchronous=asynchronous)
        assert values(graph)["files"] == {"a.txt": "hello"}
        assert values(graph)["note"] == "written"
        assert text_of(values(graph)["messages"]) == "Updated file"
        assert agent.read[-1] == ({"a.txt": "hello"}, "written")


class Rival(InMemorySaver):
    """Lets another run of the thread finish before the first search is answered."""

    other: Any = None

    def list(self, *args: Any, **options: Any) -> Any:
        """Run the other one once, as another client would."""
        run_other, self.other = self.other, None
        if run_other is not None:
            client = threading.Thread(target=run_other)
            client.start()
            client.join()
        return super().list(*args, **options)


async def test_a_run_at_the_same_time_restored_the_files():
    """Durability "exit": the newest checkpoint is not the one that this run has begun at."""
    agent, saver = Agent(AIMessage("other answer"), AIMessage("fine")), Rival()
    graph = with_patching(await broken(agent, saver))
    other = {"messages": [human("never mind")]}
    saver.other = lambda: graph.invoke(other, thread(), durability="exit")
    final = graph.invoke({"messages": [human("and now?")]}, thread(), durability="exit")
    assert [m.text for m in final["messages"] if m.type == "human"] == ["go", "and now?"]
    assert text_of(final["messages"]).startswith(NOT_KEPT)
    assert final["files"] == {}


async def test_a_newer_write_is_not_overwritten():
    """A key that has changed since stays, and the message names both keys of the task."""
    agent = Agent(AIMessage("fine"))
    graph = with_patching(await broken(agent, InMemorySaver()))
    await run(graph, {"messages": [human("never mind")], "note": "mine"})
    assert values(graph)["note"] == "mine"
    assert not values(graph).get("files")
    text = text_of(values(graph)["messages"])
    assert text.startswith(NOT_KEPT)
    assert "files" in text
    assert "note" in text
    assert text.endswith("Updated file")


async def test_a_lost_goto_is_named():
    """Nothing of a task is restored if it also led to another node."""
    agent = Agent(AIMessage("fine"), goto="other")
    graph = with_patching(await broken(agent, InMemorySaver()))
    await run(graph, "never mind")
    assert not values(graph).get("files")
    assert "goto" in text_of(values(graph)["messages"])


@sync_and_async
async def test_the_patch_node_restores(*, asynchronous: bool):
    """`PatchNode`, placed by hand."""
    agent, saver = Agent(AIMessage("fine")), InMemorySaver()
    await broken(agent, saver)
    builder = agent.builder()
    builder.add_node("patch", PatchNode())
    builder.edges.discard((START, "agent"))
    graph = builder.add_edge(START, "patch").add_edge("patch", "agent").compile(checkpointer=saver)
    await run(graph, "never mind", asynchronous=asynchronous)
    assert values(graph)["files"] == {"a.txt": "hello"}


# --- the node wrapper -----------------------------------------------------------------------


async def at_the_model(agent: Agent, saver: Any) -> Any:
    """The bare graph has taken the new message, and its model is next."""
    bare = await broken(agent, saver)
    bare.update_state(thread(), {"messages": [human("never mind")]}, as_node=START)
    assert bare.get_state(thread()).next == ("agent",)
    return with_patching(bare)


@sync_and_async
async def test_a_model_node_names_what_it_does_not_restore(*, asynchronous: bool):
    """It writes the repair with its own output; the model reads that the effects are not kept."""
    agent = Agent(AIMessage("fine"), model_note="of the model")
    graph = await at_the_model(agent, InMemorySaver())
    await run(graph, None, asynchronous=asynchronous)
    assert text_of(agent.model.seen[-1]).startswith(f"{NOT_KEPT}files, note. ")
    assert text_of(values(graph)["messages"]) == text_of(agent.model.seen[-1])
    assert not values(graph).get("files")
    assert values(graph)["note"] == "of the model"


# --- more about the record ------------------------------------------------------------------


class FailingMemory(InMemorySaver):
    """Loses the checkpoint of one superstep."""

    lost_step: int | None = None

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        """Store a checkpoint, unless it is the one to lose."""
        if metadata["step"] == self.lost_step:
            raise ConnectionError("the database is away")
        return super().put(config, checkpoint, metadata, new_versions)


async def test_a_repair_that_was_itself_abandoned():
    """The repair's own writes contain the result, but the tool's task has the effects."""
    agent, saver = Agent(AIMessage("fine"), AIMessage("fine")), FailingMemory()
    graph = with_patching(await broken(agent, saver))
    saver.lost_step = graph.get_state(thread()).metadata["step"] + 3  # after the repair
    with pytest.raises(ConnectionError):
        graph.invoke({"messages": [human("never mind")]}, thread(), durability="sync")
    saver.lost_step = None
    await run(graph, "are you there?")
    assert text_of(values(graph)["messages"]) == "Updated file"
    assert values(graph)["files"] == {"a.txt": "hello"}


async def test_several_commands_of_one_task():
    """A `ToolNode` that runs all calls of a message writes the history several times."""

    @tool
    def write_file(name: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Write a file."""
        done = ToolMessage("Updated file", tool_call_id=tool_call_id)
        return Command(update={"files": {name: "hello"}, "messages": [done]})

    first = ai(("write_file", {"name": "a"}, "c1"), ("write_file", {"name": "b"}, "c3"), id="a1")
    model = StrictModel(script=[first, AIMessage("fine")])
    builder = StateGraph(State)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([write_file]))
    builder.add_node("asks", lambda _: {"messages": [AIMessage(str(interrupt("?")))]})
    builder.add_edge(START, "agent").add_edge("tools", "agent")
    builder.add_conditional_edges(
        "agent", lambda state: ["tools", "asks"] if state["messages"][-1].tool_calls else "__end__"
    )
    bare = builder.compile(checkpointer=InMemorySaver())
    await run(bare, "go")
    graph = with_patching(bare)
    await run(graph, "never mind")
    assert values(graph)["files"] == {"a": "hello", "b": "hello"}


@pytest.mark.parametrize("newer", [{}, {"files": {"b.txt": "mine"}}], ids=["same", "newer"])
async def test_with_durability_exit_effects_are_named(newer: Any):
    """The live values may be newer than all checkpoints: nothing is restored over them."""
    agent, saver = Agent(AIMessage("fine")), InMemorySaver()
    bare = agent.builder().compile(checkpointer=saver)
    bare.invoke({"messages": [human("go")]}, thread(), durability="exit")
    graph = with_patching(bare)
    value = {"messages": [human("never mind")], **newer}
    graph.invoke(value, thread(), durability="exit")
    assert values(graph)["files"] == newer.get("files", {})
    assert text_of(values(graph)["messages"]).startswith(NOT_KEPT)


# --- the middleware --------------------------------------------------------------------------


@tool
def save(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
    """Save."""
    done = ToolMessage("Updated todo list", tool_call_id=tool_call_id)
    return Command(update={"todos": TODOS, "messages": [done]})


@tool
def wire_money() -> str:
    """Wait for a human."""
    return str(interrupt("1000 EUR?"))


@sync_and_async
async def test_the_middleware_restores(*, asynchronous: bool):
    """`write_todos` of another middleware is in the state after the repair."""
    first = ai(("save", {"text": "x"}, "c1"), ("wire_money", {}, "c2"), id="a1")
    model = StrictModel(script=[first, AIMessage("fine")])
    stack = [TodoListMiddleware(), PatchToolCallsMiddleware()]
    graph = create_agent(model, [save, wire_money], middleware=stack, checkpointer=InMemorySaver())
    await run(graph, "go", asynchronous=asynchronous)
    await run(graph, "never mind", asynchronous=asynchronous)
    assert values(graph)["todos"] == TODOS
    assert text_of(values(graph)["messages"]) == "Updated todo list"


# --- settle ----------------------------------------------------------------------------------

RESULT = ToolMessage("done", tool_call_id="c1")
FILES = Effects((("files", {"a": "b"}),), frozenset({"files"}), goes_elsewhere=False, task="t1")
CHANNELS = {"files": LastValue(dict)}


def decide(*effects: Effects, restore: bool = True, channels: Any = CHANNELS) -> Any:
    """What is not kept of each result, and what is written."""
    keys = [(0, ordinal) for ordinal in range(len(effects))]
    evidence, writes = settle(
        dict.fromkeys(keys, Finding(result=RESULT)),
        dict(zip(keys, effects, strict=True)),
        restore=restore,
        own_keys={"messages"},
        channels=channels,
    )
    return [found.not_kept for found in evidence.values()], writes


def test_two_calls_of_one_task_share_its_writes():
    """They are written once."""
    assert decide(FILES, FILES) == ([(), ()], FILES.writes)


def test_two_tasks_that_write_one_key():
    """Both are restored through a reducer; otherwise only the first, and the other is named."""
    other = replace(FILES, writes=(("files", {"c": "d"}),), task="t2")
    reducer = {"files": BinaryOperatorAggregate(list, operator.add)}
    assert decide(FILES, other, channels=reducer) == ([(), ()], (*FILES.writes, *other.writes))
    assert decide(FILES, other) == ([(), ("files",)], FILES.writes)


def test_what_cannot_be_restored_is_named():
    """A changed key, a key that the graph lacks, a `goto`, and a repair that is not written."""
    assert decide(replace(FILES, unchanged=frozenset())) == ([("files",)], ())
    assert decide(FILES, channels={"messages": None}) == ([("files",)], ())
    assert decide(replace(FILES, writes=(), goes_elsewhere=True)) == ([("goto",)], ())
    assert decide(FILES, restore=False) == ([("files",)], ())


def test_own_keys_are_left_out():
    """Messages are neither restored nor named."""
    assert decide(replace(FILES, writes=(("messages", [RESULT]),))) == ([()], ())
