"""Messages with fields that LangChain's constructor refuses: they are corrected, without an error.

`model_construct`, `model_copy(update=...)`, assignment and old checkpoints make such messages.
"""

from typing import Any
from uuid import UUID

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    HumanMessage,
    ToolMessage,
)

from langgraph_patch import Change, patch_messages, validate_messages
from langgraph_patch.history.damaged_fields import corrected, id_of
from support.histories import H, ai, call_of, result, with_field
from support.strict import refuse

MISSING = object()
HUMAN = HumanMessage("hi", id="m")
MODEL = AIMessage("hi", id="m")
RESULT = result("hi", id="m")


class Unspeakable:
    """It has no text and no hash."""

    __hash__ = None

    def __str__(self) -> str:
        raise RuntimeError("no text")


BLOCK = {"type": "text", "text": "a"}
ITEM = {"name": "t", "args": {}, "id": "c1"}
CORRECTED: list[tuple[Any, str, Any, Any]] = [
    (HUMAN, "content", None, ""),
    (HUMAN, "content", MISSING, ""),
    (HUMAN, "content", BLOCK, str(BLOCK)),
    (HUMAN, "content", Unspeakable(), "<Unspeakable>"),
    (HUMAN, "content", ["a", None, 7, BLOCK], ["a", "7", BLOCK]),
    (HUMAN, "additional_kwargs", None, {}),
    (HUMAN, "response_metadata", MISSING, {}),
    (HUMAN, "name", 7, None),
    (HUMAN, "id", Unspeakable(), None),
    (MODEL, "tool_calls", MISSING, []),
    (MODEL, "tool_calls", ["c1", ITEM], [ITEM]),
    (MODEL, "tool_calls", [{**ITEM, "id": 7}], [{**ITEM, "id": "7"}]),
    (MODEL, "invalid_tool_calls", 7, []),
    (AIMessageChunk("hi", id="m"), "tool_call_chunks", [7], []),
    (RESULT, "tool_call_id", UUID(int=7), str(UUID(int=7))),
    (RESULT, "tool_call_id", [], ""),
    (ChatMessage("hi", role="user", id="m"), "role", None, "user"),
]


@pytest.mark.parametrize(("valid", "field", "value", "expected"), CORRECTED)
def test_f47_each_field_gets_a_valid_value(valid, field, value, expected):
    """Whatever it holds; the message itself is not changed, and the change is reported."""
    message = valid.model_copy()
    message.__dict__[field] = value
    if value is MISSING:
        del message.__dict__[field]
    before = dict(message.__dict__)
    found = corrected(message)
    assert type(found) is type(message)
    assert found.__dict__ == {**valid.__dict__, field: expected}
    assert message.__dict__ == before
    assert corrected(found) is found
    patch = patch_messages([message, H("x")])
    assert validate_messages([message, H("x")])
    assert validate_messages(patch.messages) == []
    assert message.__dict__ == before
    refuse(patch.messages)


def test_f47_a_correction_in_a_history():
    """It is reported with the message before and after, which stays in its place."""
    message = with_field(HUMAN, content=None)
    patch = patch_messages([message, H("x")])
    assert patch.messages == [HumanMessage("", id="m"), H("x")]
    [change] = patch.changes
    assert change == Change("corrected", "bad_field", 0, "", None, None, message, patch.messages[0])
    assert str(change) == "corrected message 0 (HumanMessage)"
    patch = patch_messages([ai("c1"), with_field(RESULT, content=7), H("x")])
    assert patch.changes[0].after is patch.messages[1]


def test_f47_valid_fields_stay():
    """Also an id of another type that can be compared."""
    for message in (HUMAN, ai("c1"), RESULT, with_field(HUMAN, id=UUID(int=7))):
        assert corrected(message) is message
    assert (id_of(with_field(HUMAN, id=[])), id_of(with_field(HUMAN, id=7))) == (None, 7)


def test_f47_a_result_that_names_no_call_is_an_orphan():
    """Its call is not guessed, unless that has no id either; it is kept whole in the change."""
    damaged = with_field(RESULT, tool_call_id=None)
    for orphan in (damaged, ToolMessage.model_construct(content="r", id="m")):
        patch = patch_messages([ai("c1"), orphan, H("x")])
        assert str(patch) == "inserted 't' 'c1' (unknown); dropped 'result' ''"
        assert patch.changes[1].before is orphan
    found = patch_messages([ai(None), damaged, H("x")]).messages
    assert [message.text for message in found] == ["", "hi", "x"]


@pytest.mark.parametrize(
    ("field", "value", "expected"), [("name", None, "unknown_tool"), ("id", 7, "7")]
)
def test_f47_a_call_with_an_id_or_a_name_that_is_no_text(field, value, expected):
    """It becomes its text, in the result too."""
    listed = {**call_of("t", "c1"), field: value}
    answer = result("r", str(listed["id"]), id="t1")
    messages = patch_messages([with_field(ai("c1"), tool_calls=[listed]), answer, H("x")]).messages
    assert messages[0].tool_calls[0][field] == expected
    assert messages[1].text == "r"
    assert messages[1].tool_call_id == messages[0].tool_calls[0]["id"]
