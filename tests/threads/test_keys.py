"""The keys of histories: each once, in Python's order."""

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from langgraph_patch._sansio import run_async, run_sync
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.threads.keys import Key, delete_checkpoint, list_keys
from support.stored_threads import Foreign, thread

IDS = ["", " ", "'; DROP TABLE checkpoints; --", "線程", "\U0010ffff", "a\nb", "a", "B", "_", "%s"]
EMPTY = {"v": 4, "ts": "", "channel_values": {}, "channel_versions": {}, "versions_seen": {}}
WANTED = sorted(Key(name, namespace) for name in IDS for namespace in ("", "a", "B", "a|b", "a:1"))


def fill(saver):
    """Two checkpoints for each key."""
    for key in reversed(WANTED):
        for number in range(2):
            checkpoint = {**EMPTY, "id": f"{number}"}
            saver.put(thread(key.thread_id, checkpoint_ns=key.namespace), checkpoint, {}, {})
    return saver


@pytest.mark.parametrize("make", [InMemorySaver, None, Foreign], ids=["memory", "sqlite", "other"])
def test_keys_are_listed_once_and_sorted(make, saver):
    """Of all threads and of one; the empty id and ids of any script are keys like others."""
    own = fill(make() if make else saver)
    if make is not Foreign:
        assert run_sync(list_keys(own)) == WANTED
    for name in ("", "線程", "'; DROP TABLE checkpoints; --"):
        of_one = [key for key in WANTED if key.thread_id == name]
        assert run_sync(list_keys(own, name)) == of_one
    assert run_sync(list_keys(own, "no such thread")) == []


async def test_keys_are_listed_asynchronously(path, saver):
    """The same, in an event loop."""
    fill(saver)
    async with AsyncSqliteSaver.from_conn_string(path) as own:
        assert await run_async(list_keys(own)) == WANTED
        assert len(await run_async(list_keys(own, "a"))) == 5
    assert await run_async(list_keys(fill(InMemorySaver()))) == WANTED


def test_a_checkpointer_of_the_same_name_is_not_taken_for_langgraphs():
    """Other packages have a `SqliteSaver` too, over other tables."""
    other = type("SqliteSaver", (BaseCheckpointSaver,), {})()
    with pytest.raises(ThreadError, match=r"SqliteSaver cannot list its threads .*thread_ids="):
        run_sync(list_keys(other))
    with pytest.raises(ThreadError, match="SqliteSaver cannot delete single checkpoints"):
        run_sync(delete_checkpoint(other, Key("1", ""), "a"))


def test_what_is_no_checkpointer_is_named():
    """Before anything is done with it."""
    for act in (list_keys("x"), delete_checkpoint("x", Key("1", ""), "a")):
        with pytest.raises(
            OptionError, match="'x' is a str: expected a checkpointer, such as a Sq"
        ):
            run_sync(act)
