"""The tasks of a superstep, derived from the checkpoint before it: LangGraph's own ids."""

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from langgraph_patch._langgraph_storage import NO_TASK
from langgraph_patch.evidence.tasks import Step, read_step

THREAD: Any = {"configurable": {"thread_id": "1"}}


class State(TypedDict, total=False):
    """A state without messages: how tasks are derived does not depend on them."""

    log: Annotated[list[str], operator.add]


def logs(name: str) -> Any:
    """A node that writes its name."""
    return lambda _: {"log": [name]}


def graph_of(saver: Any = None) -> Any:
    """Edges, two nodes at once, a join, `Send`s beside a node, a node that asks."""
    builder = StateGraph(State)
    for name in ("first", "left", "right", "joined", "each"):
        builder.add_node(name, logs(name))
    builder.add_node("asks", lambda _: {"log": [interrupt("well?")]})
    builder.add_edge(START, "first").add_edge("first", "left").add_edge("first", "right")
    builder.add_edge(["left", "right"], "joined")
    sends = [Send("each", {"log": []}), Send("each", {"log": ["x"]}), "asks"]
    builder.add_conditional_edges("joined", lambda _: sends, ["each", "asks"])
    return builder.compile(checkpointer=saver)


def steps(saver: InMemorySaver) -> list[Step]:
    """All supersteps of all graphs of the thread, oldest first."""
    found = [read_step(saved, "log", None)[0] for saved in saver.list(THREAD)]
    return sorted(found, key=lambda step: step.id)


def check(saver: InMemorySaver) -> list[tuple[str, int]]:
    """The node and the number of writes of each task; every writer but START is one of them."""
    found = []
    for step in steps(saver):
        found += [(each.node, len(each.writes)) for each in step.tasks]
        if step.source != "input":
            assert step.others == []
    return found


RAN = [
    ("first", 3),
    ("left", 2),
    ("right", 2),
    ("joined", 4),
    ("asks", 1),
    ("each", 1),
    ("each", 1),
]


def test_edges_joins_and_sends():
    """A task for each node that an edge or a join triggers, then for each `Send`, in order."""
    saver = InMemorySaver()
    graph_of(saver).invoke({"log": ["go"]}, THREAD)
    assert check(saver) == RAN


def test_a_graph_that_is_a_node():
    """The same in the namespace of a subgraph."""
    saver = InMemorySaver()
    outer = StateGraph(State).add_node("inner", graph_of()).add_edge(START, "inner")
    outer.compile(checkpointer=saver).invoke({"log": ["go"]}, THREAD)
    assert sorted(check(saver)) == sorted([*RAN, ("inner", 1)])


def test_a_task_that_has_written_nothing():
    """A node that is running, or was killed, is listed without writes."""
    saver = InMemorySaver()
    graph = graph_of(saver)
    graph.interrupt_before_nodes = ["joined"]
    graph.invoke({"log": ["go"]}, THREAD)
    assert [(each.node, each.has_ended) for each in steps(saver)[-1].tasks] == [("joined", False)]


def test_a_client_s_goto_and_update():
    """A node that a client starts is a task; `update_state` writes under an id that is none."""
    saver = InMemorySaver()
    graph = graph_of(saver)
    graph.invoke({"log": ["go"]}, THREAD)
    graph.update_state(THREAD, {"log": ["edited"]}, as_node="first")
    paused, edited = steps(saver)[-2:]
    assert [dict(each.writes).get("log") for each in paused.others] == [["edited"]]
    assert {each.node for each in edited.tasks} == {"left", "right"}
    graph.interrupt_after_nodes = ["joined"]
    graph.invoke(Command(goto="joined"), THREAD)
    (at,) = [step for step in steps(saver) if step.is_goto]
    assert {each.node for each in at.tasks} == {"left", "right", "joined"}
    assert {each.id for each in at.others} == {NO_TASK}


def test_a_functional_task():
    """What a `@task` returned stands under an id of its own, beside that of its node."""
    double = task(lambda text: text * 2)

    def node(_: Any) -> None:
        double("x").result()
        interrupt("well?")

    saver = InMemorySaver()
    builder = StateGraph(State).add_node("node", node).add_edge(START, "node")
    builder.add_edge("node", END).compile(checkpointer=saver).invoke({"log": []}, THREAD)
    last = steps(saver)[-1]
    assert [each.node for each in last.tasks] == ["node"]
    assert [each.writes for each in last.others] == [[("__return__", "xx")]]


@pytest.mark.parametrize("answer", ["by id", "plain"])
def test_an_answer(answer: str):
    """An answer without an id may be of any task; one with an id leaves no trace before the end."""
    saver = InMemorySaver()
    graph = graph_of(saver)
    graph.invoke({"log": ["go"]}, THREAD)
    (asked,) = graph.get_state(THREAD).interrupts
    paused = steps(saver)[-1]
    assert not paused.is_answered
    graph.invoke(Command(resume={asked.id: "ok"} if answer == "by id" else "ok"), THREAD)
    again = next(step for step in steps(saver) if step.id == paused.id)
    assert again.is_answered is (answer == "plain")
