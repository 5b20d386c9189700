"""The fast check: what it accepts, and that it accepts nothing that the repair would change."""

import copy
from functools import reduce
from itertools import product
from operator import getitem

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langgraph_patch import patch_messages, validate_messages
from langgraph_patch.errors import MessagesError
from langgraph_patch.history.fast_check import is_valid
from langgraph_patch.history.messages import as_messages
from langgraph_patch.history.patch import read_if_damaged, settled
from langgraph_patch.history.reading import read_history
from langgraph_patch.history.repair import patch_reading
from support.histories import ai, result
from support.strategies import UNCORRECTED, fewer, hostile_histories, valid_histories
from support.words import ALPHABET, history_of, words

TEXT = {"type": "text", "text": "a"}
TOOL_USE = {"type": "tool_use", "id": "c1", "name": "t", "input": {}}
ANSWERED = [
    SystemMessage([TEXT, "b"], name="s"),
    HumanMessage("q", id="h", name="bob"),
    HumanMessage([TEXT, {"cachePoint": {}}]),
    AIMessage([TOOL_USE, TEXT], tool_calls=ai("c1", "c2").tool_calls),
    result([TEXT], "c2", name="t"),
    result("r"),
    AIMessage("done"),
]


def finds_nothing(history, **options):
    """Whether the repair finds nothing to change."""
    return not patch_reading(read_history(as_messages(history), **options))


MISSING = object()
WRONG = (MISSING, None, 7, ("a",), [], ["a"], [7], {}, {"type": "tool_use"}, "x")


def paths_in(message):
    """Each field that is corrected, each item of a list in it, and each key of these items."""
    for name, value in message.__dict__.items():
        if name in UNCORRECTED:
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


def test_no_damaged_field_is_missed():
    """What the fast check accepts the repair does not change; nothing raises; the rest is valid."""
    assert is_valid(ANSWERED)
    for history in damaged_anywhere():
        if is_valid(history):
            assert finds_nothing(history)
        else:
            repaired = patch_messages(history).messages
            assert finds_nothing(repaired)
            kept = [type(m) for m in repaired if not isinstance(m, ToolMessage)]
            assert kept == [type(m) for m in ANSWERED if not isinstance(m, ToolMessage)]


def test_every_history_that_it_accepts_is_left_as_it_is():
    """Of up to three messages over the alphabet of the laws."""
    every = (word for length in (1, 2, 3) for word in words(length, ALPHABET))
    accepted = [word for word in every if is_valid(history_of(word))]
    assert len(accepted) == 40
    assert [word for word in accepted if not finds_nothing(history_of(word))] == []


@fewer(2)
@given(hostile_histories(), st.booleans())
def test_hostile_histories_are_repaired_or_refused(history, leaves_open):
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


@fewer(2)
@given(valid_histories(), hostile_histories(), st.booleans())
def test_what_was_found_valid_is_not_checked_again(begun, added, leaves_open):
    """What is added to a settled history is as valid as it is alone; other objects are checked."""
    known = settled(begun)
    history = [*known, *added]
    assert is_valid(history, leaves_open=leaves_open) == is_valid(added, leaves_open=leaves_open)
    dangling = [*known[:-1], ai("lost"), HumanMessage("x")]
    assert read_if_damaged(dangling, known=known) is not None
