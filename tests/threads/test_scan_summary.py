"""A whole scan as one value that shows itself."""

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langgraph_patch.threads import ScanSummary, scan_threads
from support.strict import ai

COUNTS = {"damaged": 1, "paused": 0, "unreadable": 0, "healthy": 1}


@pytest.fixture
def summary():
    """The summary of a scan of a damaged thread and a healthy one."""

    def agent(state):
        return {}

    builder = StateGraph(MessagesState).add_node("agent", agent).add_edge(START, "agent")
    graph = builder.compile(checkpointer=InMemorySaver())
    threads = {"<b>": [ai(("wire", {}, "c1")), ("human", "hi")], "fine": [("human", "hi")]}
    for name, messages in threads.items():
        graph.invoke({"messages": messages}, {"configurable": {"thread_id": name}})
    return ScanSummary(scan_threads(graph.checkpointer))


def test_it_is_the_reports_and_their_counts(summary):
    """It is a tuple, so that each report is at hand; every status has a count."""
    assert {report.thread_id: report.status for report in summary} == {
        "<b>": "damaged",
        "fine": "healthy",
    }
    assert summary.counts == COUNTS
    assert len(summary) == 2


def test_it_is_a_table_of_what_needs_a_look(summary):
    """Healthy threads are counted, the others are listed, and an id is shown as text."""
    page = summary._repr_html_()
    assert "1 call without a result" in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert "1 damaged" in page
    assert "1 healthy" in page
    assert "fine" not in page


def test_it_is_text_too(summary):
    """A shell shows one line for each of these threads; the representation is short."""
    assert str(summary).splitlines() == [
        "1 damaged, 0 paused, 0 unreadable, 1 healthy",
        "'<b>': damaged - inserted 'wire' 'c1' (unknown)",
    ]
    assert repr(summary) == "<ScanSummary: 1 damaged, 0 paused, 0 unreadable, 1 healthy>"
