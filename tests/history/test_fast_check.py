"""The fast check: what it accepts, and that it accepts nothing that the repair would change."""

from __future__ import annotations

import copy
from functools import reduce
from itertools import product
from operator import getitem
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langgraph_patch import patch_messages, validate_messages
from langgraph_patch.errors import MessagesError
from langgraph_patch.history.fast_check import is_valid
from langgraph_patch.history.pairing import read_history
from langgraph_patch.history.patch import as_messages, patch_reading
from support import hostile
from support.generated import fewer
from support.histories import H, ai, chunk, marked, result, with_field

TEXT = {"type": "text", "text": "a"}
TOOL_USE = {"type": "tool_use", "id": "c1", "name": "t", "input": {}}
CUSTOM = {"type": "custom_tool_call", "call_id": "c1", "name": "t", "input": "ls"}
ANSWERED = [
    SystemMessage([TEXT, "b"], name="s"),
    HumanMessage("q", id="h", name="bob"),
    AIMessage([TOOL_USE, "and", TEXT], tool_calls=ai("c1", "c2").tool_calls),
    result([TEXT], "c2", name="t"),
    result("r"),
    chunk('{"a": 1}', call_id="c3"),
    result("r", "c3"),
    AIMessageChunk("done"),
]
A, R = ai("c1"), result("r")


def finds_nothing(history, **options):
    """Whether the repair finds nothing to change."""
    return not patch_reading(read_history(as_messages(history), **options))


ACCEPTED: dict[str, Any] = {
    "all kinds of messages": (ANSWERED, {}),
    "nothing": ([], {}),
    "open calls": ([ai("c1", "c2"), R], {"leaves_open": True}),
    "raw calls beside a list": ([with_field(A, additional_kwargs={"tool_calls": [1]}), R], {}),
    "longest id and name": ([ai(("n" * 64, "A" * 40)), result("r", "A" * 40)], {}),
    "all characters": ([ai(("aZ09_-", "aZ09_.:-")), result("r", "aZ09_.:-")], {}),
    "a final placeholder": ([A, marked({"cause": "failed"})], {"look_again": True}),
    "a marked placeholder": ([A, marked({"cause": "failed", "look_again": True})], {}),
    "a text like a client's": ([A, result('{"cancelled":true}', name="t")], {}),
    "server tools": ([AIMessage([{"type": "server_tool_use", "id": "s"}])], {}),
}

REFUSED: dict[str, Any] = {
    "a tuple": ((H("x"),), {}),
    "an open call": ([A], {}),
    "an open call before a message": ([A, H("x"), R], {"leaves_open": True}),
    "a result without a call": ([R], {}),
    "two results": ([A, R, R], {}),
    "an id used again": ([A, R, A, R], {}),
    "one id twice": ([ai("c1", "c1"), R], {"leaves_open": True}),
    "an empty id": ([ai(""), result("r", "")], {}),
    "an id that is too long": ([ai("A" * 41), result("r", "A" * 41)], {}),
    "an id with a slash": ([ai("a/b"), result("r", "a/b")], {}),
    "an id that is not ASCII": ([ai("ä"), result("r", "ä")], {}),
    "a name that is too long": ([ai(("n" * 65, "c1")), R], {}),
    "a name that is missing": ([with_field(A, tool_calls=[{**A.tool_calls[0], "name": None}])], {}),
    "a result with an unknown bad name": ([A, result("r", name="a b")], {}),
    "invalid calls": ([with_field(AIMessage(""), invalid_tool_calls=[{}])], {}),
    "an unlisted block": ([AIMessage([TOOL_USE])], {}),
    "two blocks of a call": ([with_field(A, content=[TOOL_USE, TOOL_USE]), R], {}),
    "a custom call": ([with_field(A, content=[CUSTOM]), R], {}),
    "raw calls": ([AIMessage("", additional_kwargs={"function_call": {}})], {}),
    "a raw list": ([AIMessage("", additional_kwargs={"tool_calls": [1]})], {}),
    "a cut chunk": ([chunk('{"a'), R], {}),
    "a result block": ([H([{"type": "tool_result"}])], {}),
    "a client's text": ([A, result('{"cancelled":true}')], {}),
    "another class": ([ChatMessage("x", role="user")], {}),
    "a marked placeholder": (
        [A, marked({"cause": "failed", "look_again": True})], {"look_again": True},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_accepted(name):
    """The long way is not taken for ordinary histories, and would find nothing."""
    history, options = ACCEPTED[name]
    assert is_valid(history, **options)
    assert finds_nothing(history, **options)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    """Each kind of damage, and what only the long way can judge."""
    history, options = REFUSED[name]
    assert not is_valid(history, **options)


MISSING = object()
WRONG = (MISSING, None, 7, ("a",), [], ["a"], [7], {}, {"type": "tool_use"}, "x")


def paths_in(message):
    """Each field, each item of a list in it, and each key of these items."""
    for name, value in message.__dict__.items():
        yield (name,)
        for place, item in enumerate(value) if isinstance(value, list) else ():
            yield name, place
            yield from ((name, place, key) for key in item if isinstance(item, dict))


def damaged_anywhere():
    """`ANSWERED` with each field, item and key missing or of another type."""
    for index, message in enumerate(ANSWERED):
        for (*above, last), wrong in product(paths_in(message), WRONG):
            copied = copy.deepcopy(message)
            holder = reduce(getitem, above, copied.__dict__)
            if wrong is MISSING:
                del holder[last]
            else:
                holder[last] = wrong
            yield [*ANSWERED[:index], copied, *ANSWERED[index + 1 :]]


def test_f47_no_damaged_field_is_missed():
    """What the fast check accepts the repair does not change; nothing raises; the rest is valid."""
    count = 0
    for history in damaged_anywhere():
        count += 1
        if is_valid(history):
            assert finds_nothing(history)
        else:
            repaired = patch_messages(history).messages
            assert finds_nothing(repaired)
            assert [type(m) for m in repaired if not isinstance(m, ToolMessage)] == [
                type(m) for m in ANSWERED if not isinstance(m, ToolMessage)
            ]
    assert count > 1_000


@example(history=[AIMessage("", additional_kwargs={"function_call": {}})], leaves_open=False)
@fewer(2)
@given(hostile.histories(), st.booleans())
def test_f47_hostile_histories_are_repaired(history, leaves_open):
    """Whatever their fields hold: no error, a valid history, and nothing is missed."""
    valid = is_valid(history, leaves_open=leaves_open)
    assert not valid or finds_nothing(history, leaves_open=leaves_open)
    patch = patch_messages(history)
    assert finds_nothing(patch.messages)
    assert patch_messages(patch.messages).messages is patch.messages
    assert len(patch.to_dict()["before"]) == len(history)


@given(hostile.anything())
def test_f47_what_is_no_message_is_refused(history):
    """Anything in a list is a valid history afterwards, or an error of the package."""
    try:
        patch = patch_messages(history)
    except MessagesError:
        return
    assert validate_messages(patch.messages) == []
