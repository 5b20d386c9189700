"""The tasks of a superstep, derived from the checkpoint before it: LangGraph's own ids."""

from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.types import Command

from langgraph_patch._langgraph.storage import RETURN
from langgraph_patch.evidence.superstep import Superstep, Task, superstep_of

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


def test_the_tasks_of_a_clients_goto():
    """A node to which a client sends the run is a task of the superstep, as a triggered one is."""
    builder = StateGraph(MessagesState).add_node("a", lambda _: {"messages": [SENT]})
    builder.add_node("b", lambda _: {"messages": [HumanMessage("x")]}).add_edge("__start__", "b")
    saver, config = InMemorySaver(), {"configurable": {"thread_id": "1"}}
    graph = builder.compile(checkpointer=saver, interrupt_before=["b"])
    graph.invoke({"messages": []}, config)
    graph.invoke(Command(goto="a"), config)
    steps = [superstep_of(saved, "messages") for saved in saver.list(config)]
    step = next(step for step in steps if step.is_goto)
    assert [(task.node, len(task.messages)) for task in step.tasks] == [("a", 1), ("b", 1)]
    assert step.others[0].node is None
