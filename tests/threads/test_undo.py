"""The repair of a stored thread is taken back, and nothing else ever is."""

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch._langgraph.address import Address
from langgraph_patch.errors import ThreadError
from langgraph_patch.threads import repair_thread, scan_threads, undo_repair
from langgraph_patch.threads.stores import store_of
from support.databases import rows_of
from support.stored_threads import Foreign, lines, scanned, stored, thread

NOT_REPAIRED = "Thread '1' has no repair to undo: no repair wrote its newest checkpoint"


def test_only_what_has_the_mark_of_a_repair_is_deleted(path, saver):
    """Before a repair, after its undo, for another checkpoint id, and for a thread that is gone."""
    stored("abandoned", saver=saver)
    before = rows_of(path)
    with pytest.raises(ThreadError, match=NOT_REPAIRED):
        undo_repair(saver, thread())
    repair = repair_thread(saver, thread(), min_age=0)
    assert [report.repaired for report in scan_threads(saver)] == [True]
    other = f"its newest checkpoint is {repair.after}, not {repair.before}"
    with pytest.raises(ThreadError, match=other):
        undo_repair(saver, thread(checkpoint_id=repair.before))
    assert undo_repair(saver, thread(checkpoint_id=repair.after)) == repair.before
    with pytest.raises(ThreadError, match=NOT_REPAIRED):
        undo_repair(saver, thread())
    assert rows_of(path) == before
    with pytest.raises(ThreadError, match=r"There is no thread '2'\."):
        undo_repair(saver, thread("2"))


def test_a_thread_that_has_moved_on_keeps_its_repair(path, saver):
    """A message behind it is worth more, and so are pending writes; its mark may be copied."""
    made = stored("abandoned", saver=saver)
    repair_thread(saver, thread(), min_age=0)
    saver.put_writes(saver.get_tuple(thread()).config, [("messages", [])], "task")
    before = rows_of(path)
    with pytest.raises(ThreadError, match="it has moved on from checkpoint"):
        undo_repair(saver, thread())
    assert rows_of(path) == before
    made.say("next")
    with pytest.raises(ThreadError, match=NOT_REPAIRED):
        undo_repair(saver, thread())
    assert lines(made.history)[-2:] == ["human: next", "ai: done"]
    copied = {**thread(), "metadata": {"langgraph_patch": "repair"}}
    made.graph.update_state(copied, {"messages": [HumanMessage("more")]})
    assert saver.get_tuple(thread()).metadata["langgraph_patch"] == "repair"
    with pytest.raises(ThreadError, match=NOT_REPAIRED):
        undo_repair(saver, thread())


@pytest.mark.parametrize("make", [Foreign, InMemorySaver])
def test_a_checkpointer_that_cannot_delete_one_checkpoint_names_the_alternative(make):
    """The repair stays, and the error says how to continue from the checkpoint before."""
    saver = make()
    stored("abandoned", saver=saver)
    repair_thread(saver, thread(), min_age=0)
    name = make.__name__
    with pytest.raises(ThreadError, match=f"{name} cannot delete .* thread '1' .* checkpoint_id"):
        undo_repair(saver, thread())
    assert scanned(saver, thread_ids=["1"]) == [("1", "healthy")]


def test_only_the_newest_checkpoint_is_deleted(saver):
    """Nothing is deleted if the thread has moved on, or is gone; pending writes aside."""
    stored("healthy", saver=saver)
    saver.conn.execute("DELETE FROM writes")
    delete = store_of(saver).delete_checkpoint
    ids = [saved.checkpoint["id"] for saved in saver.list(thread())]
    for namespace, name, left in (("", ids[1], ids), ("x", ids[0], ids), ("", ids[0], ids[1:])):
        assert delete(saver, Address("1", namespace, name)) == (left != ids)
        assert [saved.checkpoint["id"] for saved in saver.list(thread())] == left
    saver.delete_thread("1")
    assert not delete(saver, Address("1", "", ids[1]))
