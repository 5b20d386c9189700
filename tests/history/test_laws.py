"""The seven laws of `langgraph_patch.history.patch`, each over generated histories and damage."""

import copy
import json
from functools import partial
from itertools import takewhile

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from langchain_core.messages import AIMessageChunk, FunctionMessage, ToolMessage

from langgraph_patch import is_placeholder, patch_messages, validate_messages
from langgraph_patch.history.fast_check import is_valid
from langgraph_patch.history.findings import Finding
from langgraph_patch.history.forms.plain import portable_messages
from langgraph_patch.history.reading import Reading, read_history
from langgraph_patch.history.repair import patch_reading
from langgraph_patch.testing import check_request
from support.histories import H, ai, check_portable, patched, result, work
from support.strategies import DAMAGES, SIGNATURES, damaged_histories, fewer, valid_histories


def found_the_long_way(history, *, leaves_open=False):
    """What the repair changes without the fast check."""
    return patch_reading(read_history(history, leaves_open=leaves_open)).changes


def beside(history):
    """Each call in `tool_calls` with its result: of one id, they are in the order of the calls."""
    pairs = []
    for index, message in enumerate(history):
        results = [*takewhile(lambda m: isinstance(m, ToolMessage), history[index + 1 :])]
        for call in getattr(message, "tool_calls", ()):
            found = next(m for m in results if m.tool_call_id == (call["id"] or ""))
            results.remove(found)
            pairs.append((call, found))
    return pairs


@given(damaged_histories())
def test_valid(history):
    """A repaired history has no defect, by any check, and one result behind each call.

    What `validate_messages` finds is what the repair changes; the fast check misses nothing.
    """
    messages, changes = (patch := patch_messages(history)).messages, patch.changes
    assert repr(validate_messages(history)) == repr([*changes])
    assert repr(found_the_long_way(history)) == repr(changes)
    assert found_the_long_way(messages) == ()
    check_request(messages)


@given(damaged_histories())
def test_valid_in_the_portable_form(history):
    """Every provider reads it: unique ids, names, and one result behind each call."""
    messages = portable_messages(history).messages
    check_portable(messages)
    results = [message for message in messages if isinstance(message, ToolMessage)]
    assert len(results) == len(beside(messages))
    assert [*portable_messages(messages).changes] == []


@given(valid_histories())
def test_quiet(history):
    """A valid history comes back as the same object; no check finds anything in it."""
    patch = patch_messages(history)
    assert patch.messages is history
    assert patch.changes == found_the_long_way(history) == ()
    assert is_valid(history) or any(isinstance(message, AIMessageChunk) for message in history)


ODD = ["block_only", "raw_only", "refused_id", "bad_id", "bad_name", "reuse_id"]
"""What is no damage: one provider refuses it, and another one wrote it."""


@given(damaged_histories([*ODD, "reuse_id_in_message"]))
def test_quiet_about_what_another_provider_refuses(history):
    """Odd ids, names and places of calls are those of the model that reads them."""
    assert patch_messages(history).messages is history
    assert found_the_long_way(history) == ()


@given(damaged_histories(), st.booleans())
def test_idempotent_and_deterministic(history, leaves_open):
    """A second pass returns the same object; equal histories give equal bytes and changes."""
    patch = partial(patched, leaves_open=leaves_open)
    first = patch(history)
    again = patch(copy.deepcopy(history))
    portable = portable_messages(history).messages
    assert patch(first.messages).messages is first.messages
    assert portable_messages(portable).messages is portable
    assert found_the_long_way(first.messages, leaves_open=leaves_open) == ()
    assert repr(again.to_dict()) == repr(first.to_dict())


@given(damaged_histories())
def test_pure(history):
    """Neither the list nor any message in it is changed, nor what was read of it."""
    before, objects = copy.deepcopy(history), list(map(id, history))
    patch_messages(history)
    portable_messages(history)
    assert (history, list(map(id, history))) == (before, objects)
    read = repr(reading := read_history(history))
    patch_reading(reading)
    assert repr(reading) == read


@given(damaged_histories([name for name in DAMAGES if name != "invalid_call"]))
def test_nothing_lost_in_blocks_and_signatures(history):
    """Content, the ids of calls and what is stored by them are byte-identical."""
    before, after = (
        [(m.content, m.additional_kwargs.get(SIGNATURES)) for m in each if m.type == "ai"]
        for each in (history, patch_messages(history).messages)
    )
    assert json.dumps(after) == json.dumps(before)


@fewer(5)
@given(damaged_histories())
def test_linear(history):
    """Twice the messages, at most twice the work (and a little)."""
    for form in (patch_messages, portable_messages):
        small, large = (work(form, history * count) for count in (5, 10))
        assert large <= 2.2 * small


PLACEHOLDER = patch_messages([ai("c", id="a")]).messages[1]
RESULTS = [result("r", "c", name=f"t{k}") for k in range(200)]
NAMELESS = [FunctionMessage("r", name="t") for _ in range(200)]
COMPUTER = {"type": "computer_call", "call_id": "k"}
CROWDS = {
    "open calls": lambda n: [*(ai(f"c{k}", id=f"a{k}") for k in range(n)), H("x")],
    "results at the end": lambda n: [*(ai("c", id=f"a{k}") for k in range(n)), *RESULTS[:n]],
    "many tools under one id": lambda n: [ai(*((f"t{k}", "c") for k in range(n))), *RESULTS[:n]],
    "results before calls": lambda n: [*RESULTS[:n], *(ai("c") for _ in range(n))],
    "nameless results": lambda n: [*(ai(f"c{k}") for k in range(n)), *NAMELESS[:n]],
    "placeholders for one id": lambda n: [ai(*["c"] * n), *[PLACEHOLDER.model_copy()] * n],
    "beside computer calls": lambda n: [
        *(ai(*(f"k{k}" for k in range(n)), content=[COMPUTER]), *[result("r", "k")] * n),
    ],
}


class Touched(set):
    """A set that counts the items that a copy of it touches: `work` sees calls only."""

    items = 0

    def __sub__(self, other):
        Touched.items += len(self)
        return set(self) - other


def test_linear_with_recovered_results(monkeypatch):
    """C1: as many calls as the checkpoints have results for, and their ids are not copied."""
    ids = property(lambda reading: Touched(message.id for message in reading.messages))
    monkeypatch.setattr(Reading, "message_ids", ids)
    touched = []
    for count in (100, 200):
        history = CROWDS["open calls"](count)
        found = {(k, 0): Finding(result=result("r", f"c{k}", id=f"r{k}")) for k in range(count)}
        before = Touched.items
        assert len(patch_messages(history, evidence=found).changes) == count
        touched.append(Touched.items - before + count)
    assert touched[1] <= 2.2 * touched[0]


@pytest.mark.parametrize("crowd", CROWDS)
def test_linear_in_a_crowd(crowd):
    """Also where many of one kind stand together, twice as many make twice the work."""
    small, large = (work(patch_messages, CROWDS[crowd](count)) for count in (100, 200))
    assert large <= 2.2 * small


@given(damaged_histories(("drop_result", "refused_id")), st.data())
def test_real_beats_synthetic(history, data):
    """A real result that comes late under its call's id replaces the placeholder."""
    messages = patch_messages(history).messages
    made = [message for message in messages if is_placeholder(message)]
    assume(made)
    chosen = data.draw(st.sampled_from(made))
    place = data.draw(st.integers(messages.index(chosen) + 1, len(messages)))
    late = ToolMessage("the real result", tool_call_id=chosen.tool_call_id, id="late")
    after = patch_messages([*messages[:place], late, *messages[place:]]).messages
    assert after.count(late) == 1
    assert chosen not in after
    assert len(after) == len(messages)
