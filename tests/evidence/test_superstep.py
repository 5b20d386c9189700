"""The tasks of a superstep, derived from the checkpoint before it: LangGraph's own ids."""

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, Interrupt, Overwrite, Send, interrupt

from langgraph_patch import patch_messages
from langgraph_patch._langgraph.storage import NO_TASK, RETURN
from langgraph_patch.evidence.superstep import Superstep, Task, fold, is_real, superstep_of

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


def test_edges_joins_and_sends():
    """A task for each node that an edge or a join triggers, then for each `Send`, in order.

    The same in the namespace of a subgraph.
    """
    saver, above = InMemorySaver(), InMemorySaver()
    graph_of(saver).invoke({"log": ["go"]}, THREAD)
    assert check(saver) == RAN
    outer = StateGraph(State).add_node("inner", graph_of()).add_edge(START, "inner")
    outer.compile(checkpointer=above).invoke({"log": ["go"]}, THREAD)
    assert sorted(check(above)) == sorted([*RAN, ("inner", 1)])


def test_a_client_s_goto_and_update():
    """The node that a client starts is not known; `update_state` writes under an id of its own."""
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
    assert {each.node for each in at.tasks} == {"left", "right"}
    assert NO_TASK in {each.id for each in at.others}
    assert (at.is_idle, at.is_over) == (False, False)


def test_an_answer():
    """An answer without an id may be of any task; one with an id leaves no trace before the end."""
    for by_id in (True, False):
        saver = InMemorySaver()
        graph = graph_of(saver)
        graph.invoke({"log": ["go"]}, THREAD)
        (asked,) = graph.get_state(THREAD).interrupts
        paused = steps(saver)[-1]
        assert not paused.is_answered
        graph.invoke(Command(resume={asked.id: "ok"} if by_id else "ok"), THREAD)
        again = next(step for step in steps(saver) if step.id == paused.id)
        assert again.is_answered is not by_id


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


def test_the_messages_that_a_task_wrote():
    """A text is a message, and so is a pair of a role and a text, which is stored as a list."""
    table: Any = [
        ("no", ["no"]),
        (["yes", "no"], ["yes", "no"]),
        (("human", "no"), ["no"]),
        (["human", "no"], ["no"]),
        ([["user", "no"]], ["no"]),
        ([AS_DICT], ["sent"]),
        (AS_DICT, ["sent"]),
        (Overwrite(["no"]), ["no"]),
        ([{"role": "nobody", "content": "x"}], []),
    ]
    for value, texts in table:
        assert [message.text for message in task_with(("messages", value)).messages] == texts


ONE, TWO = HumanMessage("1", id="1"), HumanMessage("2", id="2")
UNNAMED = HumanMessage("?")


def test_the_history_after_writes():
    """As the reducers of a `DeltaChannel` make it."""
    table: Any = [
        ([TWO], [ONE, TWO]),
        ([HumanMessage("new", id="1"), TWO], [HumanMessage("new", id="1"), TWO]),
        ([UNNAMED, TWO], [ONE, UNNAMED, TWO]),
        ([TWO, RemoveMessage("1")], [TWO]),
        ([RemoveMessage(REMOVE_ALL_MESSAGES), TWO], [TWO]),
        (Overwrite([TWO]), [TWO]),
        (Overwrite(None), []),
    ]
    for written, expected in table:
        assert fold([ONE], [written]) == expected


def test_what_a_tool_returned():
    """No placeholder, of whomever, and nothing that a client made up."""
    ours = patch_messages([AIMessage("", tool_calls=[CALL]), ONE]).messages[1]
    fake = ToolMessage("Successfully handled tool call.", tool_call_id="c", id="do-not-render-1")
    theirs = "Tool call t with id c1 was cancelled - another message came in before it could be "
    foreign = ToolMessage(f"{theirs}completed.", tool_call_id="c1")
    found = [is_real(message) for message in (SENT, HumanMessage("x"), ours, fake, foreign)]
    assert found == [True, False, False, False, False]


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


def test_the_interrupts_of_a_task():
    """Stored as a list or as one; of another object the id is unknown."""
    writes = [("__interrupt__", [Interrupt(1, id="a")]), ("__interrupt__", Interrupt(2, id="b"))]
    task = task_with(*writes, ("__interrupt__", ["?"]), ("x", 1))
    assert task.interrupt_ids == ["a", "b", None]
