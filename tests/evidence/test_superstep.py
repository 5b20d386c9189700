"""The tasks of a superstep, derived from the checkpoint before it: LangGraph's own ids."""

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt

from langgraph_patch._langgraph.storage import RETURN
from langgraph_patch.evidence.superstep import Superstep, Task, superstep_of

CALL = {"name": "t", "args": {}, "id": "c1", "type": "tool_call"}
THREAD: Any = {"configurable": {"thread_id": "1"}}


class State(TypedDict, total=False):
    """A state without messages: how tasks are derived does not depend on them."""

    log: Annotated[list[str], operator.add]


def graph_of(saver: Any = None) -> Any:
    """Edges, two nodes at once, a join, `Send`s beside a node, a node that asks."""
    builder = StateGraph(State)
    for name in ("first", "left", "right", "joined", "each"):
        builder.add_node(name, lambda _, name=name: {"log": [name]})
    builder.add_node("asks", lambda _: {"log": [interrupt("well?")]})
    builder.add_edge(START, "first").add_edge("first", "left").add_edge("first", "right")
    builder.add_edge(["left", "right"], "joined")
    sends = [Send("each", {"log": []}), Send("each", {"log": ["x"]}), "asks"]
    builder.add_conditional_edges("joined", lambda _: sends, ["each", "asks"])
    return builder.compile(checkpointer=saver)


def steps(saver: InMemorySaver) -> list[Superstep]:
    """All supersteps of all graphs of the thread, oldest first."""
    found = [superstep_of(saved, "log") for saved in saver.list(THREAD)]
    return sorted(found, key=lambda step: step.id)


def check(saver: InMemorySaver) -> list[tuple[str, int]]:
    """The node and the number of writes of each task; every writer but START is one of them."""
    found = []
    for step in steps(saver):
        found += [(each.node, len(each.writes)) for each in step.tasks]
        if step.source_before != "input":
            assert step.others == []
    return found


RAN = [
    *(("first", 3), ("left", 2), ("right", 2), ("joined", 4)),
    *(("asks", 1), ("each", 1), ("each", 1)),
]


SENT = ToolMessage("sent", tool_call_id="c1")
AS_DICT = {"role": "tool", "content": "sent", "tool_call_id": "c1"}


def task_with(*writes: Any) -> Task:
    """A task that wrote this."""
    saved = CheckpointTuple({"configurable": {}}, empty_checkpoint(), {}, None, [])
    return Task(Superstep(saved, "messages"), "t1", writes, "tools")


def test_the_messages_that_a_task_returned():
    """Whatever the form in which a `@task` returned them; a text is none."""
    table: Any = [
        ({"messages": [SENT], "notes": [HumanMessage("x")]}, ["sent"]),
        (Command(update={"messages": [SENT]}, goto="x"), ["sent"]),
        (Command(update=[("messages", [SENT])]), ["sent"]),
        (Command(update=[SENT]), ["sent"]),
        (AS_DICT, ["sent"]),
        ([AS_DICT, {"content": "x"}], ["sent"]),
        ({"type": "human", "content": "x"}, ["x"]),
        ({"role": "nobody", "content": "x"}, []),
        (["a text", ("human", "x")], []),
        (None, []),
    ]
    for value, texts in table:
        assert [message.text for message in task_with((RETURN, value)).returned] == texts


ONE, TWO = HumanMessage("1", id="1"), HumanMessage("2", id="2")
UNNAMED = HumanMessage("?")


def test_whether_a_task_is_finished():
    """Only a return is an end: after an error, a question or an answer it has not returned."""
    table: Any = [
        ([], False),
        ([("messages", [SENT])], True),
        ([("__interrupt__", [])], False),
        ([("__error__", ValueError("x"))], False),
        ([("__error__", "ValueError('x')"), ("__error_source_node__", "t")], False),
        ([("__resume__", ["yes"]), ("__return__", 1)], False),
        ([("__no_writes__", None)], True),
    ]
    for writes, finished in table:
        assert task_with(*writes).is_finished == finished
