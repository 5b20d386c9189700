"""Any checkpointer: what works with it, the protocol, and entry points."""

import asyncio
import sys
from contextlib import asynccontextmanager, contextmanager, nullcontext

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from langgraph_patch._langgraph_storage import delete_from_memory, keys_in_memory
from langgraph_patch.errors import ThreadError
from langgraph_patch.threads import ascan_threads, scan_threads
from langgraph_patch.threads.stores import any as any_module
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


class WithThreads(Foreign):
    """Provides the protocol itself."""

    def list_threads(self, after):
        """One page of threads."""
        keys = sorted(keys_in_memory(self.kept))
        return [key for key in keys if after is None or key > after][:PAGE]

    def delete_checkpoint(self, thread_id, namespace, checkpoint_id):
        """Delete the newest checkpoint."""
        return delete_from_memory(self.kept, thread_id, namespace, checkpoint_id)


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

    async def alist_threads(self, after):
        """One page of threads."""
        return WithThreads.list_threads(self, after)

    async def adelete_checkpoint(self, *key):
        """Delete the newest checkpoint."""
        return WithThreads.delete_checkpoint(self, *key)

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
    """Memory, SQLite, and a checkpointer that provides the protocol."""
    check_checkpointer(capability, opens(InMemorySaver))
    check_checkpointer(capability, lambda: SqliteSaver.from_conn_string(":memory:"))
    check_checkpointer(capability, opens(WithThreads))


@pytest.mark.parametrize("capability", CAPABILITIES)
async def test_asynchronous_checkpointers_that_have_all_capabilities(capability):
    """SQLite, and a checkpointer that provides the asynchronous form of the protocol."""

    @asynccontextmanager
    async def foreign():
        yield AsyncForeign()

    await acheck_checkpointer(capability, lambda: AsyncSqliteSaver.from_conn_string(":memory:"))
    await acheck_checkpointer(capability, foreign)


@pytest.mark.parametrize("path", [POSTGRES], indirect=True)
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_postgresql_has_all_capabilities(capability, path):
    """In its synchronous and in its asynchronous form; the database need not be empty."""
    check_checkpointer(capability, lambda: open_saver(path))
    asyncio.run(acheck_checkpointer(capability, lambda: open_async_saver(path)))


def test_what_a_checkpointer_lacks_is_named():
    """Without the protocol a thread is repaired, and the two other errors say what is missing."""
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


# --- the protocol ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "page",
    [[("b", ""), ("a", "")], [("a", ""), ("a", "")]],
    ids=["unsorted", "twice"],
)
def test_threads_that_are_not_sorted_are_an_error(page):
    """Otherwise a scan would leave threads out, or never end."""
    unsorted = type("Unsorted", (WithThreads,), {"list_threads": lambda *_: page})
    with pytest.raises(ThreadError, match="list_threads returned threads that are not sorted"):
        list(scan_threads(unsorted()))


def test_a_page_that_begins_again_is_an_error():
    """A store that ignores `after` does not make a scan endless."""
    again = type("Again", (WithThreads,), {"list_threads": lambda *_: [("a", "")]})
    with pytest.raises(ThreadError, match=r"do not sort after \('a', ''\)"):
        list(scan_threads(again()))


async def test_a_checkpointer_without_the_asynchronous_form_says_so():
    """The method that is missing is named."""
    with pytest.raises(ThreadError, match="alist_threads"):
        _ = [report async for report in ascan_threads(WithThreads())]


@pytest.mark.parametrize("page", [[("a", "", "b")], [(["a"], "")], 3])
def test_threads_that_are_no_pairs_of_texts_are_an_error(page):
    """It says what the store returned instead."""
    odd = type("Odd", (WithThreads,), {"list_threads": lambda *_: page})
    with pytest.raises(ThreadError, match=r"Odd cannot list its threads \((Type|Value)Error"):
        list(scan_threads(odd()))


def test_a_store_that_cannot_delete_is_not_said_to_list_nothing():
    """It has the asynchronous form only, or it says that it has none; a bug of it stays one."""
    asynchronous = {"delete_checkpoint": property(lambda self: self._absent)}
    for faults in (asynchronous, {"delete_checkpoint": raising(NotImplementedError)}):
        store = type("Halved", (WithThreads,), faults)
        with pytest.raises(ThreadError, match=r"Halved cannot delete single .* be undone"):
            check_checkpointer("undo", opens(store))
    buggy = type("Buggy", (WithThreads,), {"delete_checkpoint": raising(TypeError)})
    with pytest.raises(TypeError):
        check_checkpointer("undo", opens(buggy))


def raising(error):
    """A method that raises."""

    def method(*_):
        raise error

    return method


STORE = """
class Threads:
    def __init__(self, saver):
        self.saver = saver

    def list_threads(self, after):
        keys = sorted({(t, n) for t, spaces in self.saver.kept.storage.items() for n in spaces})
        return [key for key in keys if after is None or key > after]

def store_of(saver):
    return Threads(saver) if type(saver).__name__ == "Foreign" else None

def broken(saver):
    raise RuntimeError("no")
"""


@contextmanager
def installed(folder, function):
    """A package with an entry point for stores, as if it was installed."""
    (folder / "other_package.py").write_text(STORE)
    info = folder / "other_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{any_module.ENTRY_POINTS}]\nother = other_package:{function}\n"
    )
    sys.path.insert(0, str(folder))
    any_module.registered.cache_clear()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("other_package", None)
        any_module.registered.cache_clear()


def test_another_package_provides_the_protocol(tmp_path):
    """Its entry point is asked for a checkpointer that is unknown here, and for no other."""
    with installed(tmp_path, "store_of"):
        check_checkpointer("scan", opens(Foreign))
        with pytest.raises(ThreadError, match="Foreign cannot delete single checkpoints"):
            check_checkpointer("undo", opens(Foreign))
        check_checkpointer("undo", opens(WithThreads))


@pytest.mark.parametrize("function", ["broken", "missing"])
def test_an_entry_point_that_fails_is_named(tmp_path, function):
    """A scan does not go on as if it was not there."""
    with (
        installed(tmp_path, function),
        pytest.raises(ThreadError, match=r"The entry point 'other' of 'langgraph_patch\.stores'"),
    ):
        list(scan_threads(Foreign()))
