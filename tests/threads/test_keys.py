"""The keys of histories: each once, in Python's order."""

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from langgraph_patch._sansio import run_async, run_sync
from langgraph_patch.errors import ThreadError
from langgraph_patch.threads.keys import Key, delete_checkpoint, list_keys
from support.stored_threads import Foreign
from support.thread_laws import fill


@pytest.mark.parametrize("make", [InMemorySaver, None, Foreign], ids=["memory", "sqlite", "other"])
def test_keys_are_listed_once_and_sorted(make, saver):
    """Of all threads and of one; the empty id and ids of any script are keys like others."""
    own = make() if make else saver
    wanted = fill(own)
    if make is not Foreign:
        assert run_sync(list_keys(own)) == wanted
    for name in ("", "線程", "'; DROP TABLE checkpoints; --"):
        assert run_sync(list_keys(own, name)) == [key for key in wanted if key.thread_id == name]
    assert run_sync(list_keys(own, "no such thread")) == []


async def test_keys_are_listed_asynchronously(path, saver):
    """The same, in an event loop."""
    wanted = fill(saver)
    async with AsyncSqliteSaver.from_conn_string(path) as own:
        assert await run_async(list_keys(own)) == wanted
        assert len(await run_async(list_keys(own, "a"))) == 5
    assert await run_async(list_keys(InMemorySaver())) == []


def test_a_checkpointer_of_the_same_name_is_not_taken_for_langgraphs():
    """Other packages have such savers too, over other tables."""
    for name in ("SqliteSaver", "PostgresSaver"):
        other = type(name, (BaseCheckpointSaver,), {})()
        with pytest.raises(ThreadError, match=rf"{name} cannot list its threads .*thread_ids="):
            run_sync(list_keys(other))
        with pytest.raises(ThreadError, match=f"{name} cannot delete single checkpoints"):
            run_sync(delete_checkpoint(other, Key("1", ""), "a"))
