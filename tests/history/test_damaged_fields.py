"""Messages with fields that LangChain's constructor refuses: corrected or left out, no error.

`model_construct`, `model_copy(update=...)`, assignment and old checkpoints make such messages.
"""

from __future__ import annotations

import uuid
import warnings
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
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_patch import is_placeholder, patch_messages, validate_messages
from langgraph_patch.history.field_check import corrected, id_of, names_call, usable
from langgraph_patch.history.patch import Defect
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
}  # fmt: skip

UNUSABLE: dict[str, Any] = {
    "human content a number": with_field(GO, content=7),
    "human content an object": with_field(GO, content=object()),
    "human content a dict": with_field(GO, content={"type": "text", "text": "x"}),
    "human blocks with a number": with_field(GO, content=["x", 7]),
    "model content bytes": with_field(AIMessage("hi", id="a"), content=b"hi"),
    "calls of texts": with_field(AIMessage("hi", id="a"), tool_calls=["c1"]),
    "calls a text": with_field(AIMessage("hi", id="a"), tool_calls="c1"),
    "invalid calls a number": with_field(AIMessage("hi", id="a"), invalid_tool_calls=7),
    "role None": with_field(ChatMessage("hi", role="user"), role=None),
}


def same(one: Any, other: Any) -> bool:
    """Whether two messages have the same class and fields."""
    return type(one) is type(other) and one.__dict__ == other.__dict__


@pytest.mark.parametrize("name", CORRECTED)
def test_a_certain_intention_is_restored(name: str):
    """The field gets the value that it was meant to have; the message itself is not changed."""
    message, expected = CORRECTED[name]
    before = dict(message.__dict__)
    found = corrected(message)
    assert found is not message
    assert same(found, expected)
    assert message.__dict__ == before
    assert corrected(expected) is expected


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_uncertain_intention_is_not_guessed(name: str):
    """There is no corrected message."""
    assert corrected(UNUSABLE[name]) is None
    assert usable([GO, UNUSABLE[name]]) == [GO]


def test_valid_fields_stay():
    """Also an id of another type that can be compared."""
    for message in (GO, call("c1"), result(), with_field(GO, id=uuid.UUID(int=7))):
        assert corrected(message) is message
    assert id_of(with_field(GO, id=[])) is None
    assert id_of(with_field(GO, id=7)) == 7
    assert names_call(result())
    assert not names_call(result(tool_call_id=None))
    assert not names_call(result(tool_call_id=[]))


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
    state = patch.for_state()
    assert patch_messages(state.messages).for_state().messages is state.messages
    assert not patch_messages(state.messages).for_state()
    assert [message.__dict__ for message in history] == before
    assert patch.to_dict()["before"]
    return patch.messages


@pytest.mark.parametrize("name", CORRECTED)
def test_a_corrected_message_in_a_history(name: str):
    """It is reported as a defect and as a change, and stays in its place."""
    message, expected = CORRECTED[name]
    if isinstance(message, ToolMessage):
        repaired = check([GO, call(expected.tool_call_id), message, NEXT],
                         "corrected message 2 (ToolMessage)")  # fmt: skip
        assert same(repaired[2], expected)
    else:
        kind = type(message).__name__
        repaired = check([message, NEXT], f"corrected message 0 ({kind})")
        assert same(repaired[0], expected)


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_message_in_a_history(name: str):
    """No model reads it. It stays in the state, and the state needs no repair."""
    message = UNUSABLE[name]
    history = [GO, message, NEXT]
    repaired = check(history, f"omitted message 1 ({type(message).__name__})")
    assert repaired == [GO, NEXT]
    patch = patch_messages(history)
    assert patch.for_state().messages is history
    assert not patch.for_state()
    assert validate_messages(history) == [Defect("bad_field", 1, "", None)]


def test_an_unusable_message_beside_a_repair():
    """The state keeps it in its place, in the repaired history too."""
    unusable = with_field(GO, content=7, id="u")
    history = [call("c1"), unusable, NEXT]
    patch = patch_messages(history)
    check(history, *map(str, patch.changes))
    assert [m.type for m in patch.messages] == ["ai", "tool", "human"]
    assert [m.id for m in patch.for_state().messages][2:] == ["u", "h2"]
    assert {c.kind for c in patch.for_state().changes} == {"inserted"}


def test_an_unusable_message_between_a_call_and_its_result():
    """No model reads it, so the result directly follows its call."""
    history = [call("c1"), with_field(GO, content=7), result(), NEXT]
    assert check(history, "omitted message 1 (HumanMessage)") == [call("c1"), result(), NEXT]


def test_the_results_of_an_unusable_message():
    """They stay in the state with it, and no model reads them: nothing else made their calls."""
    history = [with_field(call("c1"), content=7), result(), result(id="t2"), NEXT]
    messages = check(
        history,
        "omitted message 0 (AIMessage)",
        "omitted message 1 (ToolMessage)",
        "omitted message 2 (ToolMessage)",
    )
    assert messages == [NEXT]


def test_a_result_behind_an_unusable_message_of_another_call():
    """It goes to its own call."""
    history = [call("c1"), with_field(AIMessage("x", id="a2"), content=7), result(), NEXT]
    assert check(history, "omitted message 1 (AIMessage)") == [call("c1"), result(), NEXT]


# --- a result without a call id ---------------------------------------------------------------


@pytest.mark.parametrize("damaged", [
    result(tool_call_id=None),
    result(tool_call_id=[]),
    missing(result(), "tool_call_id"),
    ToolMessage.model_construct(content="r", id="t1"),
])  # fmt: skip
def test_the_only_result_of_the_only_open_call(damaged: Any):
    """Its call is certain."""
    messages = check([GO, call("c1"), damaged, NEXT], "corrected message 2 (ToolMessage)")
    assert (messages[2].tool_call_id, messages[2].content) == ("c1", "r")
    assert not is_placeholder(messages[2])


def test_the_open_call_beside_an_answered_one():
    """One of two calls is open, and one result names no call."""
    history = [call("c1", "c2"), result(), result("other", tool_call_id=None, id="t2"), NEXT]
    messages = check(history, "corrected message 2 (ToolMessage)")
    assert [m.tool_call_id for m in messages[1:3]] == ["c1", "c2"]


def test_a_name_says_which_call():
    """Two open calls of different tools, and a result that names its tool."""
    called = ai(("look", {}, "c1"), ("wire", {}, "c2"), id="a1")
    messages = check(
        [called, result("w", tool_call_id=None, name="wire"), NEXT],
        "corrected message 1 (ToolMessage)",
        "inserted 'look' 'c1' (unknown)",
    )
    contents = {m.tool_call_id: m.content for m in messages if isinstance(m, ToolMessage)}
    assert contents["c2"] == "w"


@pytest.mark.parametrize("history", [
    [call("c1", "c2"), result(tool_call_id=None), NEXT],
    [call("c1"), result("a", tool_call_id=None), result("b", tool_call_id=None, id="t2"), NEXT],
    [call("c1"), result(), result("late", tool_call_id=None, id="t2"), NEXT],
    [result(tool_call_id=None), call("c1"), NEXT],
    [GO, result(tool_call_id=None), NEXT],
])  # fmt: skip
def test_an_uncertain_call_gets_no_result(history: list[Any]):
    """The result stays in the state. No model reads it, and the open calls get placeholders."""
    damaged = [m for m in history if isinstance(m, ToolMessage) and m.tool_call_id is None]
    patch = patch_messages(history)
    check(history, *map(str, patch.changes))
    texts = {
        m.content for m in patch.messages if isinstance(m, ToolMessage) and not is_placeholder(m)
    }
    assert texts <= {"r"}
    assert not any(m.content in {"a", "b", "late"} for m in patch.messages)
    kept = patch.for_state().messages
    assert all(any(m is stored for stored in kept) for m in damaged)


# --- what LangGraph stores --------------------------------------------------------------------


@pytest.mark.parametrize("name", [*CORRECTED, *UNUSABLE])
def test_a_damaged_message_of_a_checkpoint(name: str):
    """LangGraph's serializer returns a damaged message as it was stored; it is read the same."""
    message = CORRECTED[name][0] if name in CORRECTED else UNUSABLE[name]
    serde = JsonPlusSerializer()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pydantic's, about the damaged field
            loaded = serde.loads_typed(serde.dumps_typed(message))
    except (TypeError, ValueError):
        loaded = message  # LangGraph cannot store such a value
    history = [
        GO,
        call("c1"),
        result(),
        *([] if isinstance(message, ToolMessage) else [loaded]),
        NEXT,
    ]
    if isinstance(message, ToolMessage):
        history = [GO, call(CORRECTED[name][1].tool_call_id), loaded, NEXT]
    patch = patch_messages(history)
    assert validate_messages(patch.messages) == []
    refuse(patch.messages)
