"""What a repair writes: placeholders, moved and recovered results, and their changes."""

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import AIMessage, ToolMessage

from kit import StrictModel
from langgraph_patch import patch_messages, with_patching
from langgraph_patch.history.fields import PLACEHOLDER_KEY
from langgraph_patch.history.findings import Finding
from langgraph_patch.history.patch import changes_history, read_if_damaged
from langgraph_patch.history.reading import read_history
from langgraph_patch.history.repair import patch_reading
from support.histories import H, ai, is_quiet, marked, result

A = ai("c1", id="a1")
X = H("x")
REAL = result("REAL", id="r1")


def with_finding(finding, history=None, **options):
    """The repair of a history with this finding about its first call."""
    return patch_messages(history or [A, X], evidence={(0, 0): finding}, **options)


def test_an_agent_that_summarises_goes_on():
    """The summary is made of the repaired history, so it keeps a call with its result."""
    history = [H("q"), ai("c1"), H("steer"), result("r"), X]
    model, talked = (StrictModel(script=[AIMessage(text)]) for text in ("fine", "they talked"))
    middleware = SummarizationMiddleware(talked, trigger=("messages", 4), keep=("messages", 3))
    with_patching(create_agent(model, [], middleware=[middleware])).invoke({"messages": history})
    assert [message.text for message in model.seen[0][1:]] == ["", "r", "steer", "x"]


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


def test_no_message_gets_the_id_of_another_one():
    """Not of one that is far away, either: a reducer would put one in the place of the other."""
    taken = H("x", id=PLACEHOLDER.id)
    for history in ([A, taken], [taken, A]):
        ids = [message.id for message in patch_messages(history).messages]
        assert len({*ids}) == 3


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


def test_a_dropped_result_is_told_under_its_name():
    """Also where a handoff wrote its name into the results of its id (rule 2 of `pairing`)."""
    calls = ai(("t", "c1"), ("handoff", "c1"))
    results = [result(text, name="handoff") for text in "ab"]
    late = result("late", name="handoff")
    history = [calls, *results, H("z"), late, ai(("handoff", "c1")), result("c", name="handoff")]
    [dropped] = patch_messages(history).changes
    assert (dropped.before, dropped.name) == (late, "handoff")


@pytest.mark.parametrize("ids", [["c1", "c2"], ["c1", "c1"]])
def test_a_recorded_result_ends_a_call_at_the_end_if_the_id_is_its_own(ids: list[str]):
    """A model would read the one result of two calls with its id as that of the other call."""
    made = [{"name": f"t{n}", "args": {}, "id": each} for n, each in enumerate(ids)]
    history = [AIMessage("", id="a", tool_calls=made)]
    recorded = {(0, 1): Finding(result=ToolMessage("sent", tool_call_id=ids[1], name="t1"))}
    patch = patch_reading(read_history(history, leaves_open=True), evidence=recorded)
    is_own = ids[0] != ids[1]
    assert [m.text for m in patch.messages[1:]] == (["sent"] if is_own else [])
