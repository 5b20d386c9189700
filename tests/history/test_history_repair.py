"""What a repair writes: placeholders, moved and recovered results, and their changes."""

from functools import partial
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import AIMessage, SystemMessage

from kit import StrictModel
from langgraph_patch import Change, patch_messages, with_patching
from langgraph_patch.history.fields import PLACEHOLDER_KEY
from langgraph_patch.history.findings import Finding
from langgraph_patch.history.patch import changes_history, read_if_damaged
from langgraph_patch.history.repair import patch_reading
from support.histories import (
    H,
    ai,
    comparable,
    invalid_of,
    is_quiet,
    made,
    marked,
    repaired,
    result,
    with_field,
)
from support.placeholder_texts import DEEPAGENTS_CANCELLED, WAITED, WAITED_UNTIL_ENDED

A = ai("c1", id="a1")
X = H("x")
REAL = result("REAL", id="r1")


def with_finding(finding, history=None, **options):
    """The repair of a history with this finding about its first call."""
    return patch_messages(history or [A, X], evidence={(0, 0): finding}, **options)


ABC = ai(("a", "c1"), ("b", "c2"), ("d", "c3"), id="a1")
OLD = comparable(patch_messages([ABC]).messages)[1:]
TWICE = ai("c1", "c2", ("u", "c3"))
R1, R2, R3 = (result(f"r{n}", f"c{n}") for n in (1, 2, 3))


def test_results_keep_their_order_and_come_before_new_placeholders():
    """If the tools differ. If not, they are in call order: Gemini gets names and no ids."""
    for history, results in (
        ([ABC, R3, R2], [R3, R2, OLD[0]]),
        ([R1, ABC, R3, R2], [R3, R2, R1]),
        ([ABC, OLD[1], R3], [OLD[1], R3, OLD[0]]),
        ([TWICE, R2], [made("c1"), R2, made("c3", name="u")]),
    ):
        assert repaired(history) == [TWICE if TWICE in history else ABC, *results]


def test_a_message_between_call_and_result():
    """The real result is moved to its call; the message stays, behind it; the report is full."""
    stored = result("r", "c 1", id="x")
    patch = patch_messages([ai("c 1", id="a1"), X, stored])
    assert patch.messages == [ai("c 1", id="a1"), stored, X]
    assert patch.changes == (Change("moved", "misplaced", 2, "c 1", "t", None, stored, stored),)
    assert str(patch) == "moved 't' 'c 1'"


def test_an_agent_that_summarises_goes_on():
    """The summary is made of the repaired history, so it keeps a call with its result."""
    history = [H("q"), ai("c1"), H("steer"), result("r"), X]
    model, talked = (StrictModel(script=[AIMessage(text)]) for text in ("fine", "they talked"))
    middleware = SummarizationMiddleware(talked, trigger=("messages", 4), keep=("messages", 3))
    with_patching(create_agent(model, [], middleware=[middleware])).invoke({"messages": history})
    assert [message.text for message in model.seen[0][1:]] == ["", "r", "steer", "x"]


def test_a_recorded_result_without_an_id_of_its_own_gets_one():
    """Under the id of another message it would replace that one; the same call, the same id."""
    history = [H("q", id="x"), ai("c1", ("u", "c1"), id="a1")]
    evidence = {(1, n): Finding(result=result("r", id=(None, "x")[n])) for n in (0, 1)}
    found = patch_messages(history, evidence=evidence).messages[2:]
    expected = [
        "result-a94edda4db03e632d1eb0f4de9774861",
        "result-32602ba0228b5cac4fdd82a37a4cfaed",
    ]
    assert [message.id for message in found] == expected
    assert [message.tool_call_id for message in found] == ["c1", "c1"]


def test_placeholders_of_equal_calls_have_ids_of_their_own():
    """Messages without ids that call one id: with one id a reducer would keep one of them."""
    history = [ai("call_0"), X] * 3
    messages = patch_messages(history).messages
    ids = [message.id for message in messages if message.type == "tool"]
    assert len(set(ids)) == 3
    assert patch_messages(history).messages == messages
    late = Finding(result=REAL)
    again = patch_messages(messages, evidence={(0, 0): late, (3, 0): late, (6, 0): late})
    assert len({message.id for message in again.messages if message.type == "tool"}) == 3


def test_a_message_came_in_only_if_one_follows():
    """What follows the call, before the model's next turn, decides on the text."""
    for text, *behind in (
        (WAITED_UNTIL_ENDED, AIMessage("a"), X),
        (WAITED, SystemMessage("s"), X, AIMessage("a")),
    ):
        patch = with_finding(Finding("awaiting_input"), [A, *behind])
        assert comparable(patch.messages[1:2]) == [made("c1", text, "awaiting_input")]


FAILURE = Finding("failed", error="e")
PLACEHOLDER = patch_messages([A]).messages[1]
ONE_INNER = marked({"cause": "failed", "inner": 1})


REPLACED = [
    ([], Finding(result=PLACEHOLDER), "inserted", "dangling"),
    ([PLACEHOLDER], Finding(result=REAL), "recovered", "superseded"),
    ([PLACEHOLDER], FAILURE, "inserted", "superseded"),
    ([marked({"cause": "failed"})], Finding("awaiting_input"), None, None),
    ([ONE_INNER], Finding(inner=("a",)), None, None),
    ([ONE_INNER], Finding(inner=("a", "b")), "inserted", "superseded"),
    ([result("real")], Finding(result=REAL), None, None),
]


def test_what_a_finding_replaces():
    """A stored placeholder gives way to what states more, and to nothing else; once."""
    for answers, finding, kind, defect in REPLACED:
        patch = with_finding(finding, [A, *answers, X])
        assert [change.kind for change in patch.changes] == ([kind] if kind else [])
        for change in patch.changes:
            assert change.before is (answers[0] if answers else None)
            assert (change.index, change.defect) == (0, defect)
            assert finding.result in (None, PLACEHOLDER, change.after)
            assert len(patch.messages) == 3
        assert with_finding(finding, patch.messages).messages is patch.messages


@pytest.mark.parametrize("cause", ["unknown", "awaiting_input"])
def test_a_marked_placeholder_is_searched_for_once_more(cause):
    """What is found then, also the same, is written without the mark, unless the search failed."""
    history = with_finding(Finding(cause, look_again=True)).messages
    assert history[1].additional_kwargs == {PLACEHOLDER_KEY: {"cause": cause, "look_again": True}}
    assert is_quiet(history)
    reading = read_if_damaged(history, look_again=True)
    assert patch_reading(reading).messages is history
    again = patch_reading(reading, evidence={(0, 0): Finding(cause, look_again=True)})
    assert again.messages is history
    for found, marker in ((Finding(result=REAL), None), (Finding("failed"), {"cause": "failed"})):
        late = patch_reading(reading, evidence={(0, 0): found})
        assert changes_history(late)
        assert late.messages[1].additional_kwargs.get(PLACEHOLDER_KEY) == marker
    inner = patch_reading(reading, evidence={(0, 0): Finding(inner=("a",), look_again=True)})
    assert inner.messages[1].additional_kwargs[PLACEHOLDER_KEY]["look_again"] is True
    patch = patch_reading(reading, evidence={(0, 0): Finding(cause)}, placeholder="other text")
    assert patch.messages[1].additional_kwargs == {PLACEHOLDER_KEY: {"cause": cause}}
    assert (patch.messages[1].content == history[1].content) is (cause == "unknown")
    assert changes_history(patch) is (cause != "unknown")
    assert read_if_damaged(patch.messages, look_again=True) is None


@pytest.mark.parametrize("call_id", ["c1", ""])
def test_a_call_without_a_name_is_told_as_it_was_stored(call_id):
    """Also where it gets a name and an id in `tool_calls`, because no provider reads it there."""
    raw = {"id": call_id, "type": "function", "function": {"name": "", "arguments": "{}"}}
    for message in (
        ai(("", call_id), id="a1"),
        ai(id="a1", additional_kwargs={"tool_calls": [raw]}),
        AIMessage("", id="a1", invalid_tool_calls=[invalid_of("{}", call_id, "")]),
    ):
        told = list[Any]()
        patch = patch_messages([message, H("z")], placeholder=partial(_noted, told))
        [call] = told
        assert (call.name, call.tool_call_id, call.detail) == ("", call_id, "no_name")
        assert call.cause == "malformed"
        [listed] = patch.messages[0].tool_calls
        assert listed["id"] == patch.messages[1].tool_call_id


def _noted(told, call):
    told.append(call)
    return "x"


def test_a_dropped_result_is_told_under_its_name():
    """Also where a handoff wrote its name into the results of its id (rule 2 of `pairing`)."""
    calls = ai(("t", "c1"), ("handoff", "c1"))
    results = [result(text, name="handoff") for text in "ab"]
    late = result("late", name="handoff")
    history = [calls, *results, H("z"), late, ai(("handoff", "c1")), result("c", name="handoff")]
    [dropped] = patch_messages(history).changes
    assert (dropped.before, dropped.name) == (late, "handoff")


def test_a_result_with_the_id_of_its_placeholder_keeps_it():
    """It stands in its place; an id that another message has would replace that one."""
    fake = result(DEEPAGENTS_CANCELLED.format("t", "c1"), id="p1")
    for taken, kept in (("p1", True), ("h1", False)):
        found = Finding(result=result("real", id=taken))
        [_, recovered, _] = with_finding(found, [A, fake, H("x", id="h1")]).messages
        assert (recovered.content, recovered.id == taken) == ("real", kept)


def test_a_call_that_was_not_run_is_not_searched_for_again():
    """Its own arguments say that it was not run."""
    invalid = invalid_of("{")
    history = [with_field(AIMessage(""), invalid_tool_calls=[invalid]), X]
    placeholder = with_finding(Finding(look_again=True), history).messages[1]
    marker = {"cause": "malformed", "arguments": "{"}
    assert placeholder.additional_kwargs == {PLACEHOLDER_KEY: marker}
