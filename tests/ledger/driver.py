"""Savers that can be made to fail once, and calls of a graph, synchronous or not."""

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from inspect import iscoroutinefunction

import aiosqlite
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver


class SaverFaultError(Exception):
    """What a saver raises that is made to fail."""


def _failing(base):
    """A saver whose call number `fail_in` fails.

    With a lock: in memory a thread that outlived its run may write while another one reads.
    """
    lock = threading.RLock()

    def tick(self):
        self.fail_in -= 1
        if not self.fail_in:
            raise SaverFaultError("the saver failed once")

    def counted(method):
        def call(self, *args, **options):
            tick(self)
            with lock:
                found = method(self, *args, **options)
                return iter([*found]) if method.__name__ == "list" else found

        async def acall(self, *args, **options):
            tick(self)
            return await method(self, *args, **options)

        return acall if iscoroutinefunction(method) else call

    names = ("get_tuple", "put", "put_writes", "list", "aget_tuple", "aput", "aput_writes")
    methods = {name: counted(getattr(base, name)) for name in names}
    return type(base.__name__, (base,), {"fail_in": 0, **methods})


Memory, Sqlite, AsyncSqlite = map(_failing, (InMemorySaver, SqliteSaver, AsyncSqliteSaver))


class Driver:
    """Opens a saver (in memory if there is no path) and calls graphs with it."""

    def __init__(self, path, durability, *, asynchronous):
        self.path, self.durability = path, durability
        self.loop = asyncio.new_event_loop() if asynchronous else None
        self.open()

    def open(self):
        """Open the saver."""

        async def connect():
            return AsyncSqlite(await aiosqlite.connect(self.path))

        self.pool = ThreadPoolExecutor(4)
        if self.loop is not None:
            self.pool.submit(self.loop.run_forever)
        if self.path is None:
            self.saver = Memory()
        elif self.loop is None:
            self.saver = Sqlite(sqlite3.connect(self.path, check_same_thread=False))
        else:
            self.saver = asyncio.run_coroutine_threadsafe(connect(), self.loop).result()

    def begin(self, function, twin, *args, **options):
        """Call a function, or its asynchronous twin, and return a future. Iterators give lists."""

        def call():
            found = function(*args, **options)
            return list(found) if hasattr(found, "__next__") else found

        async def acall():
            found = twin(*args, **options)
            return [each async for each in found] if hasattr(found, "__aiter__") else await found

        if self.loop is None:
            return self.pool.submit(call)
        return asyncio.run_coroutine_threadsafe(acall(), self.loop)

    def call(self, *args, **options):
        """The same, and wait for the result."""
        return self.begin(*args, **options).result(30)

    def close(self):
        """End threads and tasks that are left, and close the saver."""

        async def end():
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await asyncio.get_running_loop().shutdown_default_executor()
            if self.path is not None:
                await self.saver.conn.close()

        if self.loop is not None:
            with suppress(TimeoutError):
                self.call(None, end)
            self.loop.call_soon_threadsafe(self.loop.stop)
        self.pool.shutdown()
        if self.loop is not None:
            self.loop.close()
        elif self.path is not None:
            self.saver.conn.close()
