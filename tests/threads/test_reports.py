"""What a scan found and what a repair did, as values that print, and go into JSON."""

import json

from langgraph_patch.threads import ThreadRepair, repair_thread, scan_threads
from support.stored_threads import stored, thread


def test_a_report_and_a_repair_are_json(saver):
    """With whole messages, the defects, and what a pause asks."""
    stored("abandoned", saver=saver)
    stored("paused", saver=saver, thread_id="2")
    reports = [*scan_threads(saver)]
    damaged, paused = (report.to_dict() for report in reports)
    repair = repair_thread(saver, thread(), min_age=0)
    assert json.loads(json.dumps([damaged, paused, repair.to_dict()]))[1]["asks"] == ["wire 5?"]
    assert [*damaged] == [
        "thread_id", "namespace", "status", "checkpoint_id", "age", "written", "messages",
        "defects", "patch", "reason", "asks", "repaired",
    ]  # fmt: skip
    assert damaged["defects"] == [
        {"kind": "dangling", "index": 1, "tool_call_id": "c1", "name": "mail"},
        {"kind": "dangling", "index": 1, "tool_call_id": "c2", "name": "wire"},
    ]
    assert (paused["patch"], paused["defects"], damaged["asks"]) == (None, [], [])
    assert "sent to bob" in repair._repr_html_()
    assert "sent to bob" in reports[0]._repr_html_()
    assert repair.to_dict()["patch"] == repair.patch.to_dict()
    assert [*repair.to_dict()] == [
        "thread_id", "namespace", "outcome", "reason", "patch", "before", "after",
    ]  # fmt: skip


def test_what_was_not_done_is_skipped():
    """The thread may still be damaged then; the text has the reason."""
    for outcome in ("repaired", "planned", "healthy"):
        repair = ThreadRepair("1", "a", outcome, None)
        assert (repair.skipped, str(repair)) == (False, f"'1' in 'a': {outcome}")
    for outcome in ("paused", "young", "moved", "refused"):
        repair = ThreadRepair("1", "a", outcome, "wait")
        assert (repair.skipped, str(repair)) == (True, f"'1' in 'a': {outcome} - wait")
