"""The seven laws of `langgraph_patch.history.patch`, each over generated histories and damage."""

from __future__ import annotations

import copy
import json
import re
from functools import partial

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    ToolMessage,
)

from langgraph_patch import is_placeholder, patch_messages, validate_messages
from langgraph_patch.history.fast_check import is_valid
from langgraph_patch.history.pairing import read_history
from langgraph_patch.history.patch import Finding, as_messages, patch_reading
from support import hostile
from support.generated import fewer, work
from support.open_ends import patched
from support.strategies import (
    CARRIED_SHAPES,
    DAMAGES,
    HONEST,
    SIGNATURES,
    WITHOUT_WORDS,
    Broken,
    broken_histories,
    result_of,
    told_answers,
    told_calls,
    valid_histories,
)
from support.wires import assert_accepted

NAMED = tuple(name for name in DAMAGES if name not in WITHOUT_WORDS)


def repaired_the_long_way(history, *, leaves_open=False):
    """What the repair finds without the fast check."""
    patch = patch_reading(read_history(as_messages(history), leaves_open=leaves_open))
    return patch.messages, [*patch.changes]


def results_beside(history):
    """Each call as (place among the AI messages, ordinal), with the results beside it."""
    place = -1
    beside = {}
    for index, message in enumerate(history):
        if not isinstance(message, AIMessage):
            continue
        place += 1
        run = []
        for following in history[index + 1 :]:
            if not isinstance(following, ToolMessage):
                break
            run.append(following)
        for ordinal, call in enumerate(message.tool_calls):
            beside[place, ordinal] = [m for m in run if m.tool_call_id == call["id"]]
    return beside


def told_places(history, calls):
    """Each marked call by its (index among the AI messages, ordinal)."""
    models = [index for index, message in enumerate(history) if isinstance(message, AIMessage)]
    return {(models.index(call.index), call.ordinal): call for call in calls}


# --- 1 ---------------------------------------------------------------------------------


@given(broken_histories(), st.booleans())
def test_valid(broken, leaves_open):
    """A repaired history has no defect, also without the fast check."""
    patch = patched(broken.messages, leaves_open=leaves_open)
    assert not patched(patch.messages, leaves_open=leaves_open)
    assert repaired_the_long_way(patch.messages, leaves_open=leaves_open)[1] == []


@fewer(5)
@given(broken_histories(shapes=CARRIED_SHAPES))
@pytest.mark.needs(langchain_google_genai="4")
def test_valid_on_every_wire(broken):
    """The payload that each integration builds of a repaired history obeys the provider's rules."""
    assert_accepted(patch_messages(broken.messages).messages)


@fewer(2)
@given(broken_histories())
def test_valid_answers_every_call_once(broken):
    """Behind each repaired AI message stand as many results as it has calls, one for each."""
    repaired = patch_messages(broken.messages).messages
    beside = results_beside(repaired)
    assert {key: len(found) for key, found in beside.items()} == dict.fromkeys(beside, 1)
    assert sum(isinstance(m, ToolMessage) for m in repaired) == len(beside)


# --- 2 ---------------------------------------------------------------------------------


@given(valid_histories())
def test_quiet(history):
    """A valid history comes back as the same object, and the long way finds nothing in it."""
    assert patch_messages(history).messages is history
    assert patch_messages(history).changes == ()
    assert repaired_the_long_way(history) == (history, [])


@fewer(2)
@given(valid_histories())
def test_quiet_at_a_glance(history):
    """The fast check accepts valid histories of every shape: the repair does not begin."""
    assert is_valid(history, leaves_open=False)


# --- 3 ---------------------------------------------------------------------------------


UNFINISHED_BESIDE_OPEN = Broken(
    [
        HumanMessage("ask", id="human"),
        AIMessage(
            "",
            id="ai",
            tool_calls=[{"name": "search", "args": {}, "id": "call-1", "type": "tool_call"}],
            invalid_tool_calls=[
                {
                    "name": "search",
                    "args": '{"a": ',
                    "id": "call-0",
                    "error": None,
                    "type": "invalid_tool_call",
                }
            ],
        ),
    ],
    damages=("invalid_call", "cut_tail"),
)


@example(broken=UNFINISHED_BESIDE_OPEN, leaves_open=True)
@given(broken=broken_histories(), leaves_open=st.booleans())
def test_idempotent_and_deterministic(broken, leaves_open):
    """A second pass returns the same object; equal histories give equal bytes and changes."""
    patch = partial(patched, leaves_open=leaves_open)
    first = patch(broken.messages)
    again = patch(copy.deepcopy(broken.messages))
    assert patch(first.messages).messages is first.messages
    assert repr(again.to_dict()) == repr(first.to_dict())


EVIDENCE = st.sampled_from(
    [
        None,
        Finding(result=ToolMessage("recorded", tool_call_id="whatever")),
        Finding(result=ToolMessage("recorded", tool_call_id="whatever", id="recorded")),
        Finding("awaiting_input"),
        Finding("failed", error="RuntimeError('kaput')"),
        Finding("unknown"),
        Finding("unknown", look_again=True),
    ]
)


def moved(evidence, before, after):
    """The evidence about the same calls in the repaired history: every AI message is in it."""
    models = [[k for k, m in enumerate(h) if isinstance(m, AIMessage)] for h in (before, after)]
    places = dict(zip(*models, strict=True))
    return {(places[index], ordinal): found for (index, ordinal), found in evidence.items()}


@fewer(2)
@given(broken_histories(), st.booleans(), st.data())
def test_idempotent_with_evidence(broken, replace_foreign, data):
    """Also with evidence of any kind, and with placeholders of others: a text never changes."""
    history = as_messages(broken.messages)
    drawn = {(c.index, c.ordinal): data.draw(EVIDENCE) for c in told_calls(history)}
    evidence = {key: recorded for key, recorded in drawn.items() if recorded is not None}
    patch = partial(patch_messages, replace_foreign=replace_foreign)
    first = patch(history, evidence=evidence)
    later = moved(evidence, history, first.messages)
    assert validate_messages(first.messages) == []
    assert patch(first.messages, evidence=later).messages is first.messages
    again = patch(copy.deepcopy(history), evidence=evidence)
    assert repr(again.to_dict()) == repr(first.to_dict())


@fewer(2)
@given(broken_histories(), st.data())
def test_idempotent_in_two_steps(broken, data):
    """A thread that was repaired too early ends with each real result beside its call."""
    history = as_messages(broken.messages)
    cut = data.draw(st.integers(0, len(history)))
    early = patch_messages(history[:cut]).messages
    late = patch_messages([*early, *history[cut:]])
    assert validate_messages(late.messages) == []
    assert patch_messages(late.messages).messages is late.messages


# --- 4 ---------------------------------------------------------------------------------


@given(broken_histories(), st.booleans())
def test_pure(broken, replace_foreign):
    """Neither the list nor any message in it is changed."""
    before = copy.deepcopy(broken.messages)
    objects = list(map(id, broken.messages))
    patch_messages(broken.messages, replace_foreign=replace_foreign)
    validate_messages(broken.messages)
    assert broken.messages == before
    assert list(map(id, broken.messages)) == objects


# --- 5 ---------------------------------------------------------------------------------


def remains(message):
    """What must be left of a message when results are taken out; None if nothing must."""
    kind, content = type(message), message.content
    if issubclass(kind, ToolMessage | FunctionMessage | ChatMessage):
        return None
    if "tool_call_id" in message.additional_kwargs:
        return None  # a human message that is a result if there is no other
    if isinstance(content, list):
        content = [block for block in content if block["type"] != "tool_result"]
        if not content:
            return None
    if isinstance(message, AIMessage) and isinstance(content, list):
        content = [without_id_and_name(block) for block in content]
    return kind, message.id, content


def without_id_and_name(block):
    """A content block without what may change if it calls a tool."""
    if block["type"] not in {"tool_use", "tool_call", "function_call"}:
        return block
    mutable = {"call_id" if block["type"] == "function_call" else "id", "name"}
    if block["type"] == "tool_use":
        mutable.add("input")  # `{}` if it was malformed
    return {key: value for key, value in block.items() if key not in mutable}


def remaining(history):
    """What must be left of a history when its results are taken out."""
    return [found for message in history if (found := remains(message)) is not None]


@given(broken_histories())
def test_nothing_lost(broken):
    """Every message that is no result stays, in order, with its id and content."""
    history = as_messages(broken.messages)
    assert remaining(patch_messages(history).messages) == remaining(history)


@fewer(2)
@given(broken_histories([name for name in DAMAGES if name not in {"invalid_call", "bad_name"}]))
def test_nothing_lost_in_the_blocks(broken):
    """Content is byte-identical, but for the ids of calls: no thought, no argument differs."""
    history = as_messages(broken.messages)

    def texts_by_call(messages):
        found = json.dumps([m.content for m in messages if isinstance(m, AIMessage)])
        return re.sub(r'"(id|call_id)": ("[^"]*"|null)', "", found)

    assert texts_by_call(patch_messages(history).messages) == texts_by_call(history)


@fewer(2)
@given(broken_histories())
def test_nothing_lost_is_unaccounted_for(broken):
    """A dropped message is whole in the changes, or its text is under another call's id."""
    history = as_messages(broken.messages)
    patch = patch_messages(history)
    left = set(map(id, patch.messages))
    accounted = {id(change.before) for change in patch.changes}
    there = [(message.id, message.content) for message in patch.messages]
    assert [
        message
        for message in history
        if id(message) not in left | accounted and (message.id, message.content) not in there
    ] == []


@fewer(2)
@given(broken_histories())
def test_nothing_lost_in_the_signatures(broken):
    """A thought signature stays with its call, whatever the call's id becomes."""
    repaired = patch_messages(broken.messages).messages
    for message in repaired:
        if isinstance(message, AIMessage) and SIGNATURES in message.additional_kwargs:
            signatures = message.additional_kwargs[SIGNATURES]
            ids = [call["id"] for call in message.tool_calls]
            assert [key for key in signatures if key not in ids] in ([], [""], [None])


@given(broken_histories(NAMED))
def test_each_result_is_beside_its_own_call(broken):
    """By document order: the slow oracle and the repair give each call the same content."""
    history = as_messages(broken.messages)
    reported = told_places(history, told_answers(history))
    beside = results_beside(patch_messages(history).messages)
    assert set(beside) == set(reported)
    for key, call in reported.items():
        (found,) = beside[key]
        texts = None if is_placeholder(found) else str(found.content)
        assert texts == call.answer


@fewer(2)
@given(broken_histories())
def test_each_named_result_is_beside_its_own_call(broken):
    """Results that do not name their call take nothing from those that do."""
    history = as_messages(broken.messages)
    reported = told_places(history, told_answers(history))
    beside = results_beside(patch_messages(history).messages)
    assert {
        key: [str(found.content) for found in beside[key]]
        for key, call in reported.items()
        if call.answer is not None
    } == {key: [call.answer] for key, call in reported.items() if call.answer is not None}


@given(broken_histories(HONEST))
def test_each_result_is_of_its_own_call(broken):
    """With distinct ids each call gets its own result, unless that is stored far before it."""
    history = as_messages(broken.messages)
    answered = {call.uid for call in told_answers(history) if call.answer is not None}
    repaired = patch_messages(history).messages
    beside = results_beside(repaired)
    for key, call in told_places(repaired, told_calls(repaired)).items():
        (found,) = beside[key]
        if call.uid is not None:
            assert not (is_placeholder(found) and call.uid in answered)
            assert is_placeholder(found) or result_of(call.uid) in str(found.content)


# --- 6 ---------------------------------------------------------------------------------


@fewer(2)
@given(broken_histories(("drop_result", "drop_result", "refused_id")), st.data())
def test_real_beats_synthetic(broken, data):
    """A real result that comes late under the call's old or new id replaces the placeholder."""
    history = as_messages(broken.messages)
    repaired = patch_messages(history).messages
    made = [message for message in repaired if is_placeholder(message)]
    assume(made)
    chosen = data.draw(st.sampled_from(made))
    place = data.draw(st.integers(repaired.index(chosen) + 1, len(repaired)))
    late = ToolMessage("the real result", tool_call_id=chosen.tool_call_id, id="late")
    patch = patch_messages([*repaired[:place], late, *repaired[place:]])
    assert [m for m in patch.messages if m.type == "tool" and not is_placeholder(m)].count(
        late
    ) == 1
    assert chosen not in patch.messages
    assert len(patch.messages) == len(repaired)


@fewer(2)
@given(broken_histories(("late_real_result", "late_real_result", "steer", "move_result_later")))
def test_real_beats_synthetic_wherever_it_is(broken):
    """No placeholder is left where the real result comes later in the history."""
    repaired = patch_messages(broken.messages).messages
    assert [message for message in repaired if is_placeholder(message)] == []


# --- 7 ---------------------------------------------------------------------------------


def numbered(history, copy_number):
    """The history with ids of its own, as the same thread would go on."""
    renamed = []
    for message in history:
        update = {"id": message.id and f"{message.id}-{copy_number}"}
        if isinstance(message, ToolMessage) and message.tool_call_id:
            update["tool_call_id"] = f"{message.tool_call_id}-{copy_number}"
        if isinstance(message, AIMessage):
            update["tool_calls"] = [
                {**call, "id": call["id"] and f"{call['id']}-{copy_number}"}
                for call in message.tool_calls
            ]
        renamed.append(message.model_copy(update=update))
    return renamed


def assert_linear(function, make):
    """Twice the history, at most twice the work (and a little)."""
    small, large = (work(function, make(count)) for count in (10, 20))
    assert large <= 2.2 * small


@fewer(10)
@given(broken_histories(), st.booleans())
def test_linear(broken, unlike):
    """Twice the messages, at most twice the work: with new ids, and with ids used again."""
    history = as_messages(broken.messages)

    def make(count):
        if not unlike:
            return history * count
        return [message for number in range(count) for message in numbered(history, number)]

    assert_linear(patch_messages, make)
    assert_linear(validate_messages, make)


def ai(*ids, name="t", **fields):
    """A model's message that calls a tool under these ids."""
    calls = [{"name": name, "args": {}, "id": call_id} for call_id in ids]
    return AIMessage("", tool_calls=calls, **fields)


CROWDS = {
    "open calls, no human": lambda n: [ai(f"c{k}", id=f"a{k}") for k in range(n)],
    "open calls, humans far behind": lambda n: [
        *(ai(f"c{k}", id=f"a{k}") for k in range(n)),
        HumanMessage("x"),
    ],
    "open calls, system messages behind": lambda n: [
        *(ai(f"c{k}", id=f"a{k}") for k in range(n)),
        *(BaseMessage(content="", type="system") for _ in range(n)),
    ],
    "one id, all open": lambda n: [ai("c") for _ in range(n)],
    "one id, results at the end": lambda n: [
        *(ai("c", id=f"a{k}") for k in range(n)),
        *(ToolMessage("r", tool_call_id="c") for _ in range(n)),
    ],
    "one id in one message": lambda n: [ai(*["c"] * n)],
    "results without calls": lambda n: [ToolMessage("r", tool_call_id="c") for _ in range(n)],
    "results before calls": lambda n: [
        *(ToolMessage("r", tool_call_id="c") for _ in range(n)),
        *(ai("c") for _ in range(n)),
    ],
    "a family of ids": lambda n: [
        *(ai(f"call_{k:08x}", id=f"a{k}") for k in range(n)),
        *(ToolMessage("r", tool_call_id="call") for _ in range(n)),
    ],
    "no ids": lambda n: [ai(None) for _ in range(n)],
    "nameless results": lambda n: [
        *(ai(f"c{k}") for k in range(n)),
        *(FunctionMessage(name="t", content="r") for _ in range(n)),
    ],
    "placeholders for one id": lambda n: [
        ai(*["c"] * n),
        *(patch_messages([ai("c", id="a")]).messages[1].model_copy() for _ in range(n)),
    ],
    "many calls, one result": lambda n: [
        ai(*(f"c{k}" for k in range(n))),
        ToolMessage("r", tool_call_id="c0"),
    ],
}


@pytest.mark.parametrize("crowd", CROWDS)
def test_linear_in_a_crowd(crowd):
    """Also where many of one kind stand together, twice as many make twice the work."""
    small, large = (work(patch_messages, CROWDS[crowd](count)) for count in (200, 400))
    assert large <= 2.2 * small


# --- the fast check, and the two functions ---------------------------------------------


@example(history=[AIMessage("", additional_kwargs={"function_call": {}})], leaves_open=False)
@given(
    broken_histories().map(lambda broken: as_messages(broken.messages)) | hostile.histories(),
    st.booleans(),
)
def test_the_fast_check_never_misses(history, leaves_open):
    """In a history that the fast check calls valid, the repair finds nothing."""
    valid = is_valid(history, leaves_open=leaves_open)
    _, defects = repaired_the_long_way(history, leaves_open=leaves_open)
    assert not (valid and defects)


@given(broken_histories())
def test_validate_and_patch_agree(broken):
    """What is wrong is what the repair changes."""
    changes = validate_messages(broken.messages)
    patch = patch_messages(broken.messages)
    assert repr(list(patch.changes)) == repr(changes)
    if as_messages(broken.messages) is broken.messages:
        assert (patch.messages is broken.messages) is not bool(changes)


@fewer(2)
@given(broken_histories())
def test_pending_calls_are_all_that_is_left(broken):
    """Where they are left open, only calls of the last turn are, and nothing else differs."""
    stored = patched(broken.messages).messages
    whole = patch_messages(stored).messages
    models = [place for place, message in enumerate(stored) if isinstance(message, AIMessage)]
    settled = models[-1] if models else len(stored)
    assert all(new is old for new, old in zip(whole[:settled], stored[:settled], strict=True))
    assert (
        all(isinstance(message, ToolMessage) for message in stored[settled + 1 :])
        or whole is stored
    )
    assert not patched(stored)
