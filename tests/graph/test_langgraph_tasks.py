"""The details of LangGraph in `_langgraph_tasks.py`: what clients see of a task, and its loop.

Each test compares details with the LangGraph that is installed, and fails if one has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.managed import RemainingSteps
from langgraph.types import Command
from langgraph_patch._langgraph_tasks import (
    allow_one_more_superstep,
    is_node_of_task,
    show_in_updates,
    shown_keys,
    written_pairs,
)
from pydantic import BaseModel

from support.agents import thread
from support.bare_graphs import QUESTION, State, build, checkpoints, nothing
from support.running import sync_and_async


class Probe(RunnableLambda[Any, Any]):
    """A runnable that notes whether it is the node of the task that runs it."""

    def __init__(self, found: list[bool]) -> None:
        super().__init__(nothing)
        self.found = found

    def invoke(self, input: Any, config: Any = None, **_: Any) -> Any:
        self.found.append(is_node_of_task(config, self))

    async def ainvoke(self, input: Any, config: Any = None, **_: Any) -> Any:
        self.invoke(input, config)


@sync_and_async
async def test_is_node_of_task(*, asynchronous: bool):
    """A runnable is the node of its task; one that a function of the node calls is not."""
    found: list[bool] = []
    probe = Probe(found)

    def calls(state: Any, config: RunnableConfig) -> None:
        probe.invoke(state, config)
        found.append(is_node_of_task(config, calls))

    graph = build(probe, calls).compile()
    if asynchronous:
        await graph.ainvoke(QUESTION)
    else:
        graph.invoke(QUESTION)
    assert found == [True, False, True]
    assert is_node_of_task({}, probe) is False


@sync_and_async
async def test_shown_keys(*, asynchronous: bool):
    """Those of the state, or those that the caller of `stream` asks for."""
    found: list[Any] = []

    def node(state: State, config: RunnableConfig) -> None:
        found.append(shown_keys(config))

    graph = build(node).compile()
    for keys in (None, ["note"], "note"):
        if asynchronous:
            _ = [chunk async for chunk in graph.astream(QUESTION, output_keys=keys)]
        else:
            _ = list(graph.stream(QUESTION, output_keys=keys))
    assert found == [["messages", "note"], ["note"], "note"]
    assert shown_keys({}) is None


@sync_and_async
async def test_show_in_updates(*, asynchronous: bool):
    """The value is the chunk of the node; the state has what the node returned."""

    def node(state: State, config: RunnableConfig) -> Command[Any]:
        show_in_updates(config, {"note": "shown"})
        return Command(update=[("note", "a"), ("messages", HumanMessage("x", id="h2"))])

    graph = build(node).compile(checkpointer=InMemorySaver())
    if asynchronous:
        chunks = [c async for c in graph.astream(QUESTION, thread(), stream_mode="updates")]
    else:
        chunks = list(graph.stream(QUESTION, thread(), stream_mode="updates"))
    assert chunks == [{"n1": {"note": "shown"}}]
    values = graph.get_state(thread()).values
    assert (values["note"], len(values["messages"])) == ("a", 2)
    show_in_updates({}, {})  # outside of a graph it does nothing


def test_a_task_that_showed_something_is_finished():
    """That is why nothing is shown before the node has returned: it would not run again."""
    saver, runs = InMemorySaver(), []

    def node(state: State, config: RunnableConfig) -> None:
        runs.append("run")
        show_in_updates(config, {})
        raise ConnectionError

    graph = build(node).compile(checkpointer=saver)
    with pytest.raises(ConnectionError):
        graph.invoke(QUESTION, thread())
    graph.invoke(None, thread())
    assert runs == ["run"]


@dataclass
class Note:
    """An output that is a dataclass."""

    note: str
    messages: list[Any] = field(default_factory=list)


class NoteModel(BaseModel):
    """An output that is a pydantic model: a default that is None and was not set is not written."""

    note: str
    messages: Any = None


@pytest.mark.parametrize(
    "output",
    [
        None,
        {"note": "a"},
        Command(update={"note": "a"}, goto="n2"),
        Command(update=[("note", "a"), ("messages", [])]),
        Command(update=NoteModel(note="a")),
        Note("a"),
        NoteModel(note="a"),
        [Command(update={"note": "a"}), {"messages": []}],
        Command(goto="n2"),
    ],
)
def test_written_pairs(output: Any):
    """The pairs are those that LangGraph writes to the channels of the state."""
    saver = InMemorySaver()
    build(lambda _: output, nothing).compile(checkpointer=saver, interrupt_after=["n1"]).invoke(
        QUESTION, thread()
    )
    [written] = [
        saved.pending_writes
        for saved in checkpoints(saver)
        if saved.metadata["step"] == 0 and saved.pending_writes is not None
    ]
    stored = [(key, value) for _, key, value in written if key in State.__annotations__]
    pairs = written_pairs(output)
    assert pairs is not None
    assert sorted(pairs, key=lambda pair: pair[0]) == sorted(stored, key=lambda pair: pair[0])


def test_outputs_without_pairs():
    """What LangGraph refuses has none, and what goes to another graph writes nothing here."""
    assert written_pairs(7) is None
    assert written_pairs([{"note": "a"}, 7]) is None
    assert written_pairs(Command(graph=Command.PARENT, update={"note": "a"})) == []


@sync_and_async
async def test_allow_one_more_superstep(*, asynchronous: bool):
    """The limit of the run is one higher, and so is what a managed value says of it."""

    class Counted(State):
        remaining: RemainingSteps

    remaining: list[int] = []

    def node(state: Any, config: RunnableConfig) -> None:
        remaining.append(state["remaining"])
        allow_one_more_superstep(config)

    def last(state: Any) -> None:
        remaining.append(state["remaining"])

    graph = build(node, last, schema=Counted).compile()
    value: Any = QUESTION
    if asynchronous:
        await graph.ainvoke(value, {"recursion_limit": 2})
    else:
        graph.invoke(value, {"recursion_limit": 2})
    assert remaining[0] == remaining[1]
    allow_one_more_superstep({})  # outside of a graph it does nothing
