"""Stored checkpoints, read without the graph that wrote them."""

import pytest
from langchain_core.messages import AIMessage

from langgraph_patch.errors import MessagesError, ThreadError
from langgraph_patch.threads import scan_threads
from langgraph_patch.threads.read import StoredHistory
from support.stored_threads import stored, thread


def test_what_is_no_history_is_not_guessed(saver):
    """A later format, a class that was not loaded, another kind of state, and a lost value."""
    stored("healthy", saver=saver)
    saved = saver.get_tuple(thread())
    for values, error, expected in (
        ({"v": 99}, ThreadError, "format 99, which is newer than this version of langgraph-patch"),
        ({"channel_values": {"messages": ["x"]}}, ThreadError, "a str where a message was"),
        ({"channel_values": {"messages": "x"}}, MessagesError, "x"),
        ({"channel_values": {}}, ThreadError, "not stored any more: an older one is no substitute"),
    ):
        odd = saved._replace(checkpoint={**saved.checkpoint, **values})
        with pytest.raises(error, match=expected):
            StoredHistory(saver, odd, "messages").messages()
    first = {key: value for key, value in saved.checkpoint.items() if key != "v"}
    old = StoredHistory(saver, saved._replace(checkpoint=first), "messages")
    assert len(old.messages()) == 4


@pytest.mark.needs(langgraph="1.2.14")  # whose `get_state` agrees
def test_a_task_that_was_answered_does_not_wait(saver):
    """It has an interrupt and a result among the pending writes, beside another that waits."""
    made = stored("paused", saver=saver)
    saved = saver.get_tuple(thread())
    null = "00000000-0000-0000-0000-000000000000"  # what LangGraph writes for no task is no pause
    saver.put_writes(saved.config, [("__interrupt__", ())], null)
    [task] = {task for task, channel, _ in saved.pending_writes if channel == "__interrupt__"}
    for channel, owner in (("__error__", task), ("__resume__", null)):
        saver.put_writes(saved.config, [(channel, "x")], owner)
        assert [r.status for r in scan_threads(saver)] == ["paused"]
    saver.put_writes(saved.config, [("__resume__", "x")], task)
    saver.put_writes(saved.config, [("messages", [AIMessage("x")])], task)
    assert [r.status for r in scan_threads(saver)] == ["damaged"]
    assert made.graph.get_state(thread()).interrupts == ()
