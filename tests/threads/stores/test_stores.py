"""The histories of a database: each is listed once, in Python's order."""

from langgraph_patch._langgraph.address import Address
from langgraph_patch.threads.stores import store_of
from support.stored_threads import stored, thread


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
