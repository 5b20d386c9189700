"""Any checkpointer: what works with it, and what is said to be missing."""

import asyncio
from contextlib import asynccontextmanager, nullcontext

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from langgraph_patch.errors import ThreadError
from langgraph_patch.threads import scan_threads
from support.agents import thread
from support.checkpointer_checks import CAPABILITIES, acheck_checkpointer, check_checkpointer
from support.databases import POSTGRES, open_async_saver, open_saver
from support.stored_threads import abandoned_thread

PAGE = 2


# --- checkpointers -----------------------------------------------------------------------


class Foreign(BaseCheckpointSaver):
    """A checkpointer of another package: it keeps to the interface, and lists no threads."""

    def __init__(self):
        self.kept = InMemorySaver()
        super().__init__(serde=self.kept.serde)

    def get_tuple(self, config):
        """The checkpoint."""
        return self.kept.get_tuple(config)

    def list(self, config, **options):
        """The checkpoints of one thread."""
        if config is None:
            raise ValueError("Runnable config must contain thread_id")
        yield from self.kept.list(config, **options)

    def put(self, *args):
        """Store a checkpoint."""
        return self.kept.put(*args)

    def put_writes(self, *args):
        """Store pending writes."""
        self.kept.put_writes(*args)

    def get_next_version(self, current, channel):
        """The next version of a channel."""
        return self.kept.get_next_version(current, channel)


class AsyncForeign(Foreign):
    """Is used in an event loop only."""

    async def aget_tuple(self, config):
        """The checkpoint."""
        return self.kept.get_tuple(config)

    async def alist(self, config, **options):
        """The checkpoints of one thread."""
        for saved in Foreign.list(self, config, **options):
            yield saved

    async def aput(self, *args):
        """Store a checkpoint."""
        return self.kept.put(*args)

    async def aput_writes(self, *args):
        """Store pending writes."""
        self.kept.put_writes(*args)

    def get_tuple(self, config):
        """Refuse."""
        raise NotImplementedError

    list = put = put_writes = get_tuple


def opens(kind):
    """A function that opens a new checkpointer of that kind."""
    return lambda: nullcontext(kind())


# --- the checks --------------------------------------------------------------------------


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_checkpointers_that_have_all_capabilities(capability):
    """Memory and SQLite."""
    check_checkpointer(capability, opens(InMemorySaver))
    check_checkpointer(capability, lambda: SqliteSaver.from_conn_string(":memory:"))


@pytest.mark.parametrize("capability", CAPABILITIES)
async def test_asynchronous_checkpointers_that_have_all_capabilities(capability):
    """SQLite."""
    await acheck_checkpointer(capability, lambda: AsyncSqliteSaver.from_conn_string(":memory:"))


async def test_what_an_asynchronous_checkpointer_lacks_is_named():
    """One that is used in an event loop only, and lists no threads."""

    @asynccontextmanager
    async def foreign():
        yield AsyncForeign()

    await acheck_checkpointer("recover", foreign)
    await acheck_checkpointer("repair", foreign)
    for capability, lacks in (("scan", "list its threads"), ("undo", "delete single checkpoints")):
        with pytest.raises(ThreadError, match=f"AsyncForeign cannot {lacks}"):
            await acheck_checkpointer(capability, foreign)


@pytest.mark.parametrize("path", [POSTGRES], indirect=True)
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_postgresql_has_all_capabilities(capability, path):
    """In its synchronous and in its asynchronous form; the database need not be empty."""
    check_checkpointer(capability, lambda: open_saver(path))
    asyncio.run(acheck_checkpointer(capability, lambda: open_async_saver(path)))


def test_what_a_checkpointer_lacks_is_named():
    """A thread is repaired, and the two other errors say what is missing."""
    check_checkpointer("recover", opens(Foreign))
    check_checkpointer("repair", opens(Foreign))
    with pytest.raises(ThreadError, match=r"Foreign cannot list its threads .* thread_ids=\[") as e:
        check_checkpointer("scan", opens(Foreign))
    assert "Runnable config must contain thread_id" in str(e.value)
    with pytest.raises(ThreadError, match="Foreign cannot delete single checkpoints"):
        check_checkpointer("undo", opens(Foreign))


def test_a_checkpointer_that_lists_nothing_is_not_called_empty():
    """`list(None)` of some checkpointers yields nothing, whatever they hold."""

    class Silent(Foreign):
        def list(self, config, **options):
            return super().list(config, **options) if config else iter(())

    with pytest.raises(ThreadError, match="Silent lists no thread: it is empty, or it cannot"):
        check_checkpointer("scan", opens(Silent))


def test_a_root_namespace_that_is_stored_under_another_name():
    """Shallow checkpointers for Redis list it as it is stored, and find nothing under that name."""

    class Shallow(Foreign):
        def list(self, config, **options):
            for thread_id in self.kept.storage:
                named = {"configurable": {"thread_id": thread_id, "checkpoint_ns": "__empty__"}}
                if config is None or config["configurable"]["thread_id"] == thread_id:
                    yield self.get_tuple(thread(thread_id))._replace(config=named)

    saver = Shallow()
    abandoned_thread("react_v2", saver)
    assert [report.status for report in scan_threads(saver)] == ["damaged"]
    assert [report.status for report in scan_threads(saver, thread_ids=["1"])] == ["damaged"]
