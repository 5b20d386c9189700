"""What a scan found and what a repair did, as values that print, and go into JSON."""

import json

import pytest

from langgraph_patch.threads import ThreadRepair, repair_thread, scan_threads
from support.stored_threads import stored, thread


def test_a_report_and_a_repair_are_json(saver):
    """With whole messages, the defects, and what a pause asks."""
    stored("abandoned", saver=saver)
    stored("paused", saver=saver, thread_id="2")
    damaged, paused = (report.to_dict() for report in scan_threads(saver))
    repair = repair_thread(saver, thread(), min_age=0)
    assert json.loads(json.dumps([damaged, paused, repair.to_dict()]))[1]["asks"] == ["wire 5?"]
    assert [*damaged] == [
        "thread_id", "namespace", "status", "checkpoint_id", "age", "messages", "defects",
        "patch", "reason", "asks", "repaired",
    ]  # fmt: skip
    assert damaged["defects"] == [
        {"kind": "dangling", "index": 1, "tool_call_id": "c1", "name": "mail"},
        {"kind": "dangling", "index": 1, "tool_call_id": "c2", "name": "wire"},
    ]
    assert (paused["patch"], paused["defects"], damaged["asks"]) == (None, [], [])
    assert repair.to_dict()["patch"] == repair.patch.to_dict()
    assert [*repair.to_dict()] == [
        "thread_id", "namespace", "outcome", "reason", "patch", "before", "after",
    ]  # fmt: skip


def test_in_a_notebook_they_are_tables(saver):
    """With the messages of the patch."""
    stored("abandoned", saver=saver)
    [report] = scan_threads(saver)
    repair = repair_thread(saver, thread(), min_age=0)
    for each in (report, repair):
        assert "sent to bob" in each._repr_html_()


@pytest.mark.parametrize(
    ("outcome", "reason", "skipped", "text"),
    [
        ("repaired", None, False, "'1' in 'a': repaired"),
        ("planned", None, False, "'1' in 'a': planned"),
        ("healthy", None, False, "'1' in 'a': healthy"),
        ("paused", "it waits", True, "'1' in 'a': paused - it waits"),
        ("young", "wait", True, "'1' in 'a': young - wait"),
        ("busy", "a run", True, "'1' in 'a': busy - a run"),
        ("moved", "other", True, "'1' in 'a': moved - other"),
        ("refused", "no", True, "'1' in 'a': refused - no"),
    ],
)
def test_what_was_not_done_is_skipped(outcome, reason, skipped, text):
    """The thread may still be damaged then; the text has the reason."""
    repair = ThreadRepair("1", "a", outcome, reason)
    assert (repair.skipped, str(repair)) == (skipped, text)
