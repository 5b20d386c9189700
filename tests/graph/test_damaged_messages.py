"""Messages with damaged fields in a thread: the bare graph dies of them, the patched one answers.

The model refuses what LangChain's constructor refuses. Each field is corrected in the state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from langgraph_patch import validate_messages, with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from langgraph_patch.threads import repair_thread, scan_threads
from support.agents import Graph, history, human, lines, thread
from support.placeholder_texts import UNKNOWN
from support.running import pairs, run
from support.strict import StrictModel, ai

# Pydantic warns when LangGraph stores a damaged message.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")


class FieldModel(StrictModel):
    """Refuses messages that LangChain's constructor refuses, too."""

    def _next(self, messages: list[BaseMessage]) -> AIMessage:
        for message in messages:
            type(message).model_validate(message.__dict__)
        return super()._next(messages)


def with_field(message: BaseMessage, **fields: Any) -> Any:
    """A copy whose fields are not validated."""
    return message.model_copy(update=fields)


CALL = ai(("look", {}, "c1"), id="a1")
RESULT = ToolMessage("r", tool_call_id="c1", id="t1", name="look")
GO = human("go")


@dataclass(frozen=True)
class Case:
    """A damaged history.

    Attributes:
        messages: The messages.
        read: What the model reads of them.
        defects: What is wrong with it.
    """

    messages: tuple[Any, ...]
    read: tuple[str, ...]
    defects: tuple[str, ...] = ("bad_field",)


ANSWERED = ("human: go", "ai c1: ", "tool c1: r")

CASES: dict[str, Case] = {
    "human content None": Case((with_field(GO, content=None),), ("human: ",)),
    "model content None": Case((GO, with_field(CALL, content=None), RESULT), ANSWERED),
    "model calls None": Case(
        (GO, with_field(AIMessage("hi", id="a"), tool_calls=None)), ("human: go", "ai: hi"),
    ),
    "invalid calls None": Case((GO, with_field(CALL, invalid_tool_calls=None), RESULT), ANSWERED),
    "kwargs None": Case((GO, CALL, with_field(RESULT, additional_kwargs=None)), ANSWERED),
    "metadata None": Case((GO, with_field(CALL, response_metadata=None), RESULT), ANSWERED),
    "name a number": Case((GO, CALL, with_field(RESULT, name=7)), ANSWERED),
    "result id None": Case(
        (GO, CALL, with_field(RESULT, tool_call_id=None)),
        (*ANSWERED[:2], f"tool c1: {UNKNOWN.format('look', 'c1')}"), ("dangling", "orphan"),
    ),
    "human content a number": Case(
        (GO, with_field(GO, content=7, id="x")), ("human: go", "human: 7"),
    ),
    "model content a number": Case(
        (GO, with_field(CALL, content=7), RESULT), ("human: go", "ai c1: 7", "tool c1: r"),
    ),
    "calls of texts": Case(
        (GO, with_field(AIMessage("hi", id="a"), tool_calls=["c1"])), ("human: go", "ai: hi"),
    ),
    "an answered call and a result without an id": Case(
        (GO, CALL, RESULT, with_field(RESULT, tool_call_id=None, id="t2")), ANSWERED, ("orphan",),
    ),
}  # fmt: skip


each_case = pytest.mark.parametrize("name", CASES)


def bare_graph(model: FieldModel, saver: Any) -> Any:
    """A model node."""
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    return builder.add_edge(START, "model").compile(checkpointer=saver)


BEFORE_THE_MIDDLEWARE = ("middleware", "invalid calls None")
"""A limit: `create_agent` reads this field before any middleware sees the request."""

GRAPHS: dict[str, Callable[[FieldModel, Any], Graph]] = {
    "with_patching": lambda model, saver: with_patching(
        bare_graph(model, saver), model_node="model"
    ),
    "middleware": lambda model, saver: create_agent(
        model, middleware=[PatchToolCallsMiddleware()], checkpointer=saver
    ),
}


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_field_that_create_agent_reads_before_the_middleware(*, wrapped: bool):
    """The middleware alone cannot correct it; `with_patching` does."""
    graph, name = BEFORE_THE_MIDDLEWARE
    agent = GRAPHS[graph](FieldModel(script=answers()), InMemorySaver())
    agent.update_state(thread(), {"messages": list(CASES[name].messages)}, as_node="model")
    if wrapped:
        with_patching(agent).invoke({"messages": [human("and?")]}, thread())
        return
    with pytest.raises(TypeError, match="not iterable"):
        agent.invoke({"messages": [human("and?")]}, thread())


def answers() -> list[AIMessage]:
    """The answers to two turns."""
    return [AIMessage("fine", id="fine"), AIMessage("bye", id="bye")]


def started(name: str, saver: Any) -> None:
    """A thread with the damaged history."""
    bare = bare_graph(FieldModel(script=answers()), saver)
    bare.update_state(thread(), {"messages": list(CASES[name].messages)}, as_node="model")


@pytest.mark.parametrize(
    ("name", "graph", "asynchronous"),
    [
        row
        for row in pairs(CASES, ["with_patching", "middleware"], [False, True])
        if row.values[1::-1] != BEFORE_THE_MIDDLEWARE
    ],
)
async def test_the_thread_goes_on(name: str, graph: str, *, asynchronous: bool):
    """Two turns are answered, and the model reads a valid history in both."""
    saver, case = InMemorySaver(), CASES[name]
    model = FieldModel(script=answers())
    started(name, saver)
    patched = GRAPHS[graph](model, saver)
    await run(patched, "and?", asynchronous=asynchronous)
    await run(patched, "bye", asynchronous=asynchronous)
    first, second = model.seen
    assert lines(first) == [*case.read, "human: and?"]
    assert lines(second) == [*lines(first), "ai: fine", "human: bye"]
    stored = history(patched, thread())
    assert {m.id for m in case.messages if m.type != "tool"} <= {m.id for m in stored}
    assert validate_messages(stored) == []


# --- stored threads --------------------------------------------------------------------------


@each_case
def test_a_stored_thread(name: str, tmp_path: Any):
    """A scan reports the damage, and a repair corrects it."""
    case = CASES[name]
    with SqliteSaver.from_conn_string(str(tmp_path / "db")) as saver:
        started(name, saver)
        [report] = scan_threads(saver)
        assert report.status == "damaged"
        assert {change.defect for change in report.defects} == set(case.defects)
        graph = bare_graph(FieldModel(script=answers()), saver)
        repair = repair_thread(graph, thread(), min_age=0)
        [after] = scan_threads(saver)
        assert (repair.outcome, after.status) == ("repaired", "healthy")
        assert lines(history(graph, thread())) == list(case.read)
