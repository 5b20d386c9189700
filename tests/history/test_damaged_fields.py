"""Messages with fields that LangChain's constructor refuses: they are corrected, without an error.

`model_construct`, `model_copy(update=...)`, assignment and old checkpoints make such messages.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langgraph_patch import is_placeholder, patch_messages, validate_messages
from langgraph_patch.history.damaged_fields import corrected, id_of
from support.strict import ai, refuse

GO = HumanMessage("go", id="h1")
NEXT = HumanMessage("and?", id="h2")


def with_field(message: BaseMessage, **fields: Any) -> Any:
    """A copy whose fields are not validated."""
    return message.model_copy(update=fields)


def call(*ids: str, **fields: Any) -> Any:
    """A message that calls `look` under these ids."""
    return with_field(ai(*(("look", {}, i) for i in ids), id="a1"), **fields)


def result(content: Any = "r", **fields: Any) -> Any:
    """A result of `c1`."""
    return with_field(ToolMessage("r", tool_call_id="c1", id="t1"), content=content, **fields)


def missing(message: BaseMessage, name: str) -> Any:
    """A copy that lacks a field, as `model_construct` makes it."""
    copied = message.model_copy()
    del copied.__dict__[name]
    return copied


# --- one message ---------------------------------------------------------------------------


class Unspeakable:
    """It has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


CORRECTED: dict[str, tuple[Any, Any]] = {
    "human content None": (with_field(GO, content=None), GO.model_copy(update={"content": ""})),
    "human content missing": (missing(GO, "content"), GO.model_copy(update={"content": ""})),
    "system content None": (
        with_field(SystemMessage("x", id="s"), content=None), SystemMessage("", id="s"),
    ),
    "content with None among the blocks": (
        with_field(GO, content=["a", None]), GO.model_copy(update={"content": ["a"]}),
    ),
    "content as a tuple": (with_field(GO, content=("a",)), with_field(GO, content=["a"])),
    "kwargs None": (with_field(GO, additional_kwargs=None), GO),
    "kwargs a list": (with_field(GO, additional_kwargs=[]), GO),
    "metadata None": (with_field(GO, response_metadata=None), GO),
    "metadata missing": (missing(GO, "response_metadata"), GO),
    "name a number": (with_field(GO, name=7), GO),
    "id a dict": (with_field(GO, id={}), with_field(GO, id=None)),
    "id missing": (missing(GO, "id"), with_field(GO, id=None)),
    "calls None": (with_field(AIMessage("hi", id="a"), tool_calls=None), AIMessage("hi", id="a")),
    "calls missing": (missing(AIMessage("hi", id="a"), "tool_calls"), AIMessage("hi", id="a")),
    "invalid calls None": (
        with_field(AIMessage("hi", id="a"), invalid_tool_calls=None), AIMessage("hi", id="a"),
    ),
    "chunks a number": (
        with_field(AIMessageChunk("hi", id="a"), tool_call_chunks=7), AIMessageChunk("hi", id="a"),
    ),
    "result content None": (result(None), result("")),
    "result content a number": (result(7), result("7")),
    "result content a dict": (result({"a": 1}), result("{'a': 1}")),
    "result content with numbers": (result([7, None, "x"]), result(["7", "x"])),
    "result id a number": (
        result(tool_call_id=7), result(tool_call_id="7"),
    ),
    "result id a UUID": (
        result(tool_call_id=uuid.UUID(int=7)), result(tool_call_id=str(uuid.UUID(int=7))),
    ),
    "result id None": (result(tool_call_id=None), result(tool_call_id="")),
    "result id a list": (result(tool_call_id=[]), result(tool_call_id="")),
    "result id missing": (missing(result(), "tool_call_id"), result(tool_call_id="")),
    "human content a number": (with_field(GO, content=7), with_field(GO, content="7")),
    "human content a dict": (
        with_field(GO, content={"type": "text"}), with_field(GO, content="{'type': 'text'}"),
    ),
    "human content without a text": (
        with_field(GO, content=Unspeakable()), with_field(GO, content="<Unspeakable>"),
    ),
    "human blocks with a number": (
        with_field(GO, content=["x", 7]), with_field(GO, content=["x", "7"]),
    ),
    "model content bytes": (
        with_field(AIMessage("hi", id="a"), content=b"hi"), AIMessage("b'hi'", id="a"),
    ),
    "calls of texts": (
        with_field(AIMessage("hi", id="a"), tool_calls=["c1"]), AIMessage("hi", id="a"),
    ),
    "calls a text": (
        with_field(AIMessage("hi", id="a"), tool_calls="c1"), AIMessage("hi", id="a"),
    ),
    "invalid calls a number": (
        with_field(AIMessage("hi", id="a"), invalid_tool_calls=7), AIMessage("hi", id="a"),
    ),
    "role None": (
        with_field(ChatMessage("hi", role="user"), role=None), ChatMessage("hi", role="user"),
    ),
}  # fmt: skip


def same(one: Any, other: Any) -> bool:
    """Whether two messages have the same class and fields."""
    return type(one) is type(other) and one.__dict__ == other.__dict__


@pytest.mark.parametrize("name", CORRECTED)
def test_each_field_gets_a_valid_value(name: str):
    """Whatever it holds; the message itself is not changed."""
    message, expected = CORRECTED[name]
    before = dict(message.__dict__)
    found = corrected(message)
    assert found is not message
    assert same(found, expected)
    assert message.__dict__ == before
    assert corrected(expected) is expected


def test_valid_fields_stay():
    """Also an id of another type that can be compared."""
    for message in (GO, call("c1"), result(), with_field(GO, id=uuid.UUID(int=7))):
        assert corrected(message) is message
    assert id_of(with_field(GO, id=[])) is None
    assert id_of(with_field(GO, id=7)) == 7


# --- in a history --------------------------------------------------------------------------


def check(history: list[Any], *changes: str) -> list[BaseMessage]:
    """The repaired history: valid, stable, reported; the input is not changed."""
    before = [dict(message.__dict__) for message in history]
    patch = patch_messages(history)
    assert [str(change) for change in patch.changes] == list(changes)
    assert validate_messages(patch.messages) == []
    assert patch_messages(patch.messages).messages is patch.messages
    assert len(validate_messages(history)) == len(patch.changes)
    refuse(patch.messages)
    assert [message.__dict__ for message in history] == before
    assert patch.to_dict()["before"]
    return patch.messages


@pytest.mark.parametrize("name", CORRECTED)
def test_a_corrected_message_in_a_history(name: str):
    """It is reported as a defect and as a change, and stays in its place."""
    message, expected = CORRECTED[name]
    if isinstance(message, ToolMessage) and expected.tool_call_id:
        repaired = check([GO, call(expected.tool_call_id), message, NEXT],
                         "corrected message 2 (ToolMessage)")  # fmt: skip
        assert same(repaired[2], expected)
    elif not isinstance(message, ToolMessage):
        kind = type(message).__name__
        repaired = check([message, NEXT], f"corrected message 0 ({kind})")
        assert same(repaired[0], expected)


def test_what_calls_no_tool_has_no_results():
    """A call that is no dict is none, and its result is an orphan, kept whole in the change."""
    answer = result()
    history = [with_field(AIMessage("hi", id="a"), tool_calls=["c1"]), answer, NEXT]
    messages = check(history, "corrected message 0 (AIMessage)", "dropped 'result' 'c1'")
    assert messages == [AIMessage("hi", id="a"), NEXT]
    assert patch_messages(history).changes[1].before is answer


@pytest.mark.parametrize("damaged", [
    result(tool_call_id=None),
    result(tool_call_id=[]),
    missing(result(), "tool_call_id"),
    ToolMessage.model_construct(content="r", id="t1"),
])  # fmt: skip
def test_a_result_that_names_no_call_is_an_orphan(damaged: Any):
    """Its call is not guessed; the message is kept whole in the change."""
    history = [GO, call("c1"), damaged, NEXT]
    messages = check(history, "inserted 'look' 'c1' (unknown)", "dropped 'result' ''")
    assert is_placeholder(messages[2])
    assert patch_messages(history).changes[1].before is damaged


def test_a_result_without_an_id_of_a_call_without_an_id():
    """Both have the empty id, and nothing else has."""
    nameless = with_field(call("c1"), tool_calls=[{"name": "look", "args": {}, "id": None}])
    patch = patch_messages([GO, nameless, result(tool_call_id=None), NEXT])
    assert [m.content for m in patch.messages if isinstance(m, ToolMessage)] == ["r"]


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [("name", None, "unknown_tool"), ("name", 7, "7"), ("id", 7, "7")],
    ids=["name None", "name 7", "id 7"],
)
def test_a_listed_call_with_an_id_or_a_name_that_is_no_text(field, value, expected):
    """It becomes its text, and a name that is missing one that providers accept."""
    listed = {"name": "look", "args": {}, "id": "c1", "type": "tool_call", field: value}
    answer = ToolMessage("r", tool_call_id=str(listed["id"]), id="t1")
    history = [GO, with_field(call("c1"), tool_calls=[listed]), answer, NEXT]
    assert validate_messages(history)
    repaired = patch_messages(history).messages
    assert repaired[1].tool_calls[0][field] == expected
    assert repaired[2].tool_call_id == repaired[1].tool_calls[0]["id"]
    assert patch_messages(repaired).messages is repaired
