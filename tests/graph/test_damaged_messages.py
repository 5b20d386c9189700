"""Messages with damaged fields in a thread: the bare graph dies of them, the patched one answers.

The model refuses what LangChain's constructor refuses. These fields are corrected in the state.
"""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START

from kit import BARE, Agent, StrictModel, calls, lines, patched
from langgraph_patch import validate_messages
from langgraph_patch.middleware import PatchToolCallsMiddleware
from langgraph_patch.threads import repair_thread, scan_threads
from support.placeholder_texts import UNKNOWN

# Pydantic warns when LangGraph stores a damaged message.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")


class FieldModel(StrictModel):
    """Refuses messages that LangChain's constructor refuses, too."""

    def _line(self, messages: Any) -> Any:
        for message in messages:
            type(message).model_validate(message.__dict__)
        return super()._line(messages)


def field(message: Any, **fields: Any) -> Any:
    """A copy with fields that are not validated."""
    return message.model_copy(update=fields)


GO = HumanMessage("go", id="h1")
CALL = calls(("mail", {"to": "bob"}), id="a1")
RESULT = ToolMessage("r", tool_call_id="c1", id="t1", name="mail")
HI = AIMessage("hi", id="a")
ANSWERED = ["human: go", "ai c1: ", "tool c1: r"]

CASES: dict[str, tuple[list[Any], list[str]]] = {
    "human content None": ([field(GO, content=None)], ["human: "]),
    "model content a number": (
        [GO, field(CALL, content=7), RESULT], ["human: go", "ai c1: 7", "tool c1: r"],
    ),
    "calls None": ([GO, field(HI, tool_calls=None)], ["human: go", "ai: hi"]),
    "invalid calls None": ([GO, field(CALL, invalid_tool_calls=None), RESULT], ANSWERED),
    "result id None": (
        [GO, CALL, field(RESULT, tool_call_id=None)],
        [*ANSWERED[:2], f"tool c1: {UNKNOWN.format('mail', 'c1')}"],
    ),
}  # fmt: skip
"""Histories, and what the model reads of them."""


BEFORE_THE_MIDDLEWARE = "invalid calls None"
"""A limit: `create_agent` reads this field before any middleware sees the request."""


def agent(name: str, kind: str, **options: Any) -> Agent:
    """A graph of that kind and a thread with that history."""
    middleware = [PatchToolCallsMiddleware(recover=False)] if kind == "middleware" else []
    maker = "hand_built" if kind == "hand_built" else "create_agent"
    made = {"middleware": middleware} if middleware else {}
    model = FieldModel()
    it = Agent(lambda _, tools, saver: BARE[maker](model, tools, saver, **made), **options)
    it.model = model
    it.graph.update_state(it.config, {"messages": CASES[name][0]}, as_node=START)
    it.graph.update_state(it.config, None, as_node=END)
    return it


@pytest.mark.parametrize(
    ("name", "kind", "asynchronous"),
    [
        (
            name,
            "middleware" if n % 2 and name != BEFORE_THE_MIDDLEWARE else "hand_built",
            bool(n % 3),
        )
        for n, name in enumerate(CASES)
    ],
)
def test_f47_the_thread_goes_on(name: str, kind: str, *, asynchronous: bool):
    """Two turns are answered, and the model reads a valid history in both."""
    it = agent(name, kind, asynchronous=asynchronous)
    it = it if kind == "middleware" else patched(it, recover=False)
    it.say("and?")
    it.say("bye")
    messages, read = CASES[name]
    first, second = it.model.seen
    assert lines(first) == [*read, "human: and?"]
    assert lines(second) == [*lines(first), "ai: done", "human: bye"]
    assert {m.id for m in messages if m.type != "tool"} <= {m.id for m in it.history}
    assert validate_messages(it.history) == []


def test_a_field_that_create_agent_reads_before_the_middleware():
    """The middleware alone cannot correct it; `with_patching` does."""
    it = agent(BEFORE_THE_MIDDLEWARE, "middleware")
    with pytest.raises(TypeError, match="not iterable"):
        it.say("and?")
    patched(it).say("well?")
    assert lines(it.history) == [*ANSWERED, "human: and?", "human: well?", "ai: done"]


@pytest.mark.parametrize(
    ("name", "defects"),
    [
        ("model content a number", {"bad_field"}),
        ("result id None", {"bad_field", "dangling", "orphan"}),
    ],
)
def test_f47_a_stored_thread(name: str, defects: set[str]):
    """A scan reports the damage, and a repair corrects it."""
    it = agent(name, "hand_built")
    [report] = scan_threads(it.graph.checkpointer)
    assert {change.defect for change in report.defects} == defects
    assert repair_thread(it.graph.checkpointer, it.config, min_age=0).outcome == "repaired"
    assert [each.status for each in scan_threads(it.graph.checkpointer)] == ["healthy"]
    assert lines(it.history) == CASES[name][1]
