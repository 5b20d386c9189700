"""The fast check: what it accepts, and that it accepts nothing that the repair would change."""

import copy
from functools import reduce
from itertools import product
from operator import getitem
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
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
from support import strategies as hostile
from support.histories import ai, chunk, marked, result, with_field
from support.strategies import fewer

TEXT = {"type": "text", "text": "a"}
TOOL_USE = {"type": "tool_use", "id": "c1", "name": "t", "input": {}}
CUSTOM = {"type": "custom_tool_call", "call_id": "c1", "name": "t", "input": "ls"}
ANSWERED = [
    SystemMessage([TEXT, "b"], name="s"),
    HumanMessage("q", id="h", name="bob"),
    HumanMessage([TEXT, {"cachePoint": {}}]),
    AIMessage([TOOL_USE, TEXT], tool_calls=ai("c1", "c2").tool_calls),
    result([TEXT], "c2", name="t"),
    result("r"),
    AIMessage("done"),
]
A, R = ai("c1"), result("r")


def finds_nothing(history, **options):
    """Whether the repair finds nothing to change."""
    return not patch_reading(read_history(as_messages(history), **options))


MARKED, AGAIN = [A, marked({"cause": "failed", "look_again": True})], {"look_again": True}
ACCEPTED: list[Any] = [
    (ANSWERED, {}),
    ([ai("c1", "c2"), R], {"leaves_open": True}),
    ([with_field(A, additional_kwargs={"tool_calls": [1]}), R], {}),
    ([ai(("n" * 64, "A" * 40)), result("r", "A" * 40)], {}),
    (MARKED, {}),
    ([A, result('{"cancelled":true}', name="t")], {}),
]
REFUSED: list[Any] = [
    [ai("A" * 41), result("r", "A" * 41)],
    [ai("ä"), result("r", "ä")],
    [ai(("n" * 65, "c1")), R],
    [with_field(A, tool_calls=[{**A.tool_calls[0], "name": None}]), R],
    [A, result("r", name="a b")],
    [with_field(AIMessage(""), invalid_tool_calls=[{}])],
    [with_field(A, content=[TOOL_USE, TOOL_USE]), R],
    [with_field(A, content=[CUSTOM]), R],
    [AIMessage("", additional_kwargs={"function_call": {}})],
    [A, result('{"cancelled":true}')],
    [ChatMessage("x", role="user")],
    [HumanMessage([{"type": "tool_result", "tool_use_id": "c1"}])],
    [with_field(A, content=[{"type": "tool_use", "name": "t", "input": {}}]), R],
    [chunk("{}"), R],
]


def test_what_is_accepted_and_what_is_refused():
    """The long way is taken for what only it can judge, and would find nothing elsewhere."""
    for history, options in ACCEPTED:
        assert is_valid(history, **options), history
        assert finds_nothing(history, **options), history
    for history in REFUSED:
        assert not is_valid(history), history
    assert not is_valid(MARKED, **AGAIN)


MISSING = object()
WRONG = (MISSING, None, 7, ("a",), [], ["a"], [7], {}, {"type": "tool_use"}, "x")


def paths_in(message):
    """Each field that is corrected, each item of a list in it, and each key of these items."""
    for name, value in message.__dict__.items():
        if name in hostile.UNCORRECTED:
            continue
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
    for history in damaged_anywhere():
        if is_valid(history):
            assert finds_nothing(history)
        else:
            repaired = patch_messages(history).messages
            assert finds_nothing(repaired)
            kept = [type(m) for m in repaired if not isinstance(m, ToolMessage)]
            assert kept == [type(m) for m in ANSWERED if not isinstance(m, ToolMessage)]


@fewer(2)
@given(
    hostile.histories(hostile.UNCORRECTED) | hostile.anything(hostile.UNCORRECTED), st.booleans()
)
def test_f47_hostile_histories_are_repaired_or_refused(history, leaves_open):
    """Whatever their fields hold: a valid history, and nothing is missed, or our own error."""
    valid = is_valid(history, leaves_open=leaves_open)
    assert not valid or finds_nothing(history, leaves_open=leaves_open)
    try:
        patch = patch_messages(history)
    except MessagesError:
        assert not all(isinstance(message, BaseMessage) for message in history)
        return
    assert validate_messages(patch.messages) == []
    assert patch_messages(patch.messages).messages is patch.messages
    assert len(patch.to_dict()["before"]) == len(history)
