"""Messages with fields that LangChain's constructor refuses: they are corrected, without an error.

`model_construct`, `model_copy(update=...)`, assignment and old checkpoints make such messages.
"""

from typing import Any
from uuid import UUID

from langchain_core.messages import AIMessage, ToolMessage

from langgraph_patch import Change, patch_messages, validate_messages
from langgraph_patch.history.fields import corrected
from langgraph_patch.history.forms.plain import portable_messages
from langgraph_patch.history.forms.whole import repair_refused
from support.histories import H, ai, result, with_field
from support.portable import check_portable

MISSING = object()
HUMAN = H("hi", id="m")
MODEL = AIMessage("hi", id="m")
RESULT = result("hi", id="m")


BLOCK = {"type": "text", "text": "a"}
CORRECTED: list[tuple[Any, str, Any, Any]] = [
    (HUMAN, "content", None, ""),
    (HUMAN, "content", MISSING, ""),
    (HUMAN, "content", BLOCK, str(BLOCK)),
    (MODEL, "tool_calls", None, []),
    (MODEL, "tool_calls", MISSING, []),
    (MODEL, "invalid_tool_calls", None, []),
    (RESULT, "tool_call_id", UUID(int=7), str(UUID(int=7))),
    (RESULT, "tool_call_id", None, ""),
]


def test_each_field_gets_a_valid_value():
    """Whatever it holds; the message itself is not changed, and a valid one stays."""
    for valid, field, value, expected in CORRECTED:
        message = valid.model_copy()
        message.__dict__[field] = value
        if value is MISSING:
            del message.__dict__[field]
        before = dict(message.__dict__)
        found = corrected(message)
        assert type(found) is type(message)
        assert found.__dict__ == {**valid.__dict__, field: expected}
        assert corrected(found) is found
        assert bool(validate_messages([message, H("x")])) is (valid is not MODEL)
        assert portable_messages([message, H("x")])
        check_portable(portable_messages([message, H("x")]).messages)
        assert message.__dict__ == before
    assert corrected(same := with_field(HUMAN, id=UUID(int=7))) is same


def test_a_correction_in_a_history():
    """It is reported with the message before and after, which stays in its place."""
    message = with_field(HUMAN, content=7)
    patch = patch_messages([message, H("x")])
    assert patch.messages == [H("7", id="m"), H("x")]
    [change] = patch.changes
    assert change == Change("corrected", "bad_field", 0, "", None, None, message, patch.messages[0])
    assert str(change) == "corrected message 0 (HumanMessage)"


def test_no_content_is_a_form_of_openai():
    """A message that only calls tools has none there: it is corrected after a refusal alone."""
    message = with_field(ai("c1"), content=None, invalid_tool_calls=None)
    history = [message, result("r"), H("x")]
    assert patch_messages(history).messages is history
    patch = repair_refused(history)
    assert patch.messages == [ai("c1"), *history[1:]]
    assert [change.defect for change in patch.changes] == ["bad_field"]


def test_a_result_that_names_no_call_is_an_orphan():
    """Its call is not guessed, unless that has no id either; it is kept whole in the change."""
    damaged = with_field(RESULT, tool_call_id=None)
    for orphan in (damaged, ToolMessage.model_construct(content="r", id="m")):
        patch = patch_messages([ai("c1"), orphan, H("x")])
        inserted, corrected_too, dropped = map(str, patch.changes)
        assert inserted == "inserted 't' 'c1' (unknown)"
        assert corrected_too == "corrected message 1 (ToolMessage)"
        assert dropped == "dropped 'result' ''"
        assert patch.changes[2].before is orphan
    found = patch_messages([ai(None), damaged, H("x")]).messages
    assert [message.text for message in found] == ["", "hi", "x"]
