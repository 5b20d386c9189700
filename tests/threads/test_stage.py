"""What finished tasks wrote is applied as LangGraph applies it."""

from __future__ import annotations

import copy

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END

from langgraph_patch.evidence.address import Address
from langgraph_patch.threads.read import StoredHistory
from langgraph_patch.threads.stage import committed, new_checkpoint
from support.stored_threads import stored, thread


@pytest.mark.parametrize("kind", ["agent", "hand_built"])
@pytest.mark.parametrize("way", ["paused", "failed", "killed", "abandoned", "limited", "healthy"])
def test_langgraph_applies_what_finished_tasks_wrote_in_the_same_way(kind, way):
    """A canary: `update_state(None, as_node=END)` of the application's graph, on a copy."""
    saver = InMemorySaver()
    graph = stored(way, kind, saver=saver).graph
    base = StoredHistory.newest(saver, Address.of(thread()))
    messages = committed(base, base.messages())
    new = new_checkpoint(base, messages)
    graph.checkpointer = copy.deepcopy(saver)
    graph.update_state(thread(), None, as_node=END)
    expected = graph.checkpointer.get_tuple(thread()).checkpoint
    assert messages == expected["channel_values"]["messages"]
    saver.put(thread(checkpoint_ns=""), new.checkpoint, new.metadata, {})
    graph.checkpointer = saver
    assert graph.get_state(thread()).next == ()
