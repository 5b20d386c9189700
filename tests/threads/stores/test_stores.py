"""The histories of a database: each is listed once, in Python's order."""

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch._langgraph.address import Address
from langgraph_patch.errors import ThreadError
from langgraph_patch.threads.read import Selection, selected_addresses
from langgraph_patch.threads.stores import store_of
from support.databases import execute
from support.stored_threads import stored, thread
from support.thread_laws import fill


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_histories_are_listed_once_and_sorted(kind, saver):
    """Of all threads and of one; the empty id and ids of any script are ids like others."""
    own = InMemorySaver() if kind == "memory" else saver
    wanted = fill(own)
    assert [*selected_addresses(own, Selection())] == wanted
    for name in ("", "線程", "'; DROP TABLE checkpoints; --"):
        listed = [*selected_addresses(own, Selection([name]))]
        assert listed == [each for each in wanted if each.thread_id == name]
    with pytest.raises(ThreadError, match="There is no thread 'no such thread'"):
        [*selected_addresses(own, Selection(["no such thread"]))]


def test_ids_that_no_thread_can_have_stop_no_listing(path, saver):
    """A row without an id is none of LangGraph's; an id may be very long."""
    stored("abandoned", saver=saver)
    execute(path, "ALTER TABLE checkpoints RENAME TO kept")
    execute(path, "CREATE TABLE checkpoints AS SELECT * FROM kept")  # without its constraints
    columns = "checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata"
    for value in ("NULL", f"'{'x' * 100_000}'"):
        into = f"INSERT INTO checkpoints (thread_id, {columns})"
        execute(path, f"{into} SELECT {value}, {columns} FROM checkpoints WHERE thread_id = '1'")  # noqa: S608 - our names
    assert [len(a.thread_id) for a in selected_addresses(saver, Selection())] == [1, 100_000]


def test_a_checkpointer_of_the_same_name_is_not_taken_for_langgraphs():
    """Other packages have such savers too, over other tables."""
    for name in ("SqliteSaver", "PostgresSaver"):
        other = type(name, (BaseCheckpointSaver,), {})()
        with pytest.raises(ThreadError, match=f"{name} cannot list its threads .*thread_ids="):
            [*selected_addresses(other, Selection())]
        with pytest.raises(ThreadError, match=f"{name} cannot delete single checkpoints"):
            store_of(other).delete_checkpoint(other, Address("1", "", "a"))


def test_only_the_newest_checkpoint_is_deleted(saver):
    """Nothing is deleted if the thread has moved on, or is gone."""
    stored("healthy", saver=saver)
    delete = store_of(saver).delete_checkpoint
    ids = [saved.checkpoint["id"] for saved in saver.list(thread())]
    for namespace, name, left in (("", ids[1], ids), ("x", ids[0], ids), ("", ids[0], ids[1:])):
        assert delete(saver, Address("1", namespace, name)) == (left != ids)
        assert [saved.checkpoint["id"] for saved in saver.list(thread())] == left
    saver.delete_thread("1")
    assert not delete(saver, Address("1", "", ids[1]))
