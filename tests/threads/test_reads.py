"""A history is read once: by a scan, and by each repair for each distinct history."""

import sys

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch.threads import repair_thread, scan_threads
from support.agents import thread
from support.broken_threads import silent, ways_of

KINDS = ["hand_built", "react_v1", "react_v2", "create_agent", "create_deep_agent"]
WAYS = ["killed", "failed_at_the_tail", "cancelled"]


def damaged(kind, way):
    """A checkpointer with one damaged thread."""
    saver = InMemorySaver()
    dict(ways_of(kind))[way](kind, saver, thread())
    return saver


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_scan_reads_a_damaged_history_once(kind, way, reads):
    """One fast check, and one full read for the defects, the evidence and the patch."""
    saver = damaged(kind, way)
    reads.clear()
    assert [report.status for report in scan_threads(saver)] == ["damaged"]
    assert reads == {"is_valid": 1, "read_history": 1}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_repair_reads_each_distinct_history_once(kind, way, reads):
    """The stored history, and the history with the results that finished tasks wrote."""
    saver = damaged(kind, way)
    graph = silent(kind, saver)
    stored = graph.get_state(saver.get_tuple(thread()).config).values["messages"]
    live = graph.get_state(thread()).values["messages"]
    reads.clear()
    assert repair_thread(graph, thread(), min_age=0).outcome == "repaired"
    assert sum(reads.values()) == (1 if len(stored) == len(live) else 2)


def test_a_repair_that_commits_nothing_searches_the_checkpoints_once(monkeypatch):
    """The patch of the stored history is used again."""
    saver = damaged("react_v1", "failed_at_the_tail")
    searched = []
    module = sys.modules["langgraph_patch.threads.recorded"]
    search = module.recover_evidence

    def recover(*args, **kwargs):
        searched.append(args)
        return search(*args, **kwargs)

    monkeypatch.setattr(module, "recover_evidence", recover)
    assert repair_thread(silent("react_v1", saver), thread(), min_age=0).outcome == "repaired"
    assert len(searched) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_healthy_thread_is_read_once(kind, reads):
    """By the fast check of a scan, and by the full read of a repair."""
    saver = damaged(kind, "healthy")
    reads.clear()
    assert [report.status for report in scan_threads(saver)] == ["healthy"]
    assert reads == {"is_valid": 1}
    reads.clear()
    assert repair_thread(silent(kind, saver), thread(), min_age=0).outcome == "healthy"
    assert sum(reads.values()) == 1
