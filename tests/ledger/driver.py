"""Savers that can be made to fail once, and runs of a graph, synchronous or not, as futures."""

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


class _Fault:
    fail_in = 0  # after how many calls this saver fails once; 0 for never

    def tick(self):
        if self.fail_in:
            self.fail_in -= 1
            if not self.fail_in:
                raise SaverFaultError("the saver failed once")


def _failing(base):
    """A subclass that counts calls.

    With a lock: in memory a thread that outlived its run may write while another one reads.
    """
    lock = threading.RLock()

    def counted(name):
        method = getattr(base, name)

        def call(self, *args, **options):
            self.tick()
            with lock:
                found = method(self, *args, **options)
                return iter([*found]) if name == "list" else found

        async def acall(self, *args, **options):
            self.tick()
            return await method(self, *args, **options)

        return acall if iscoroutinefunction(method) else call

    names = ("get_tuple", "put", "put_writes", "list", "aget_tuple", "aput", "aput_writes")
    return type(base.__name__, (_Fault, base), {name: counted(name) for name in names})


Memory, Sqlite, AsyncSqlite = map(_failing, (InMemorySaver, SqliteSaver, AsyncSqliteSaver))


class Driver:
    """Opens a saver (in memory if there is no path) and runs graphs with it."""

    def __init__(self, path, durability, *, asynchronous):
        self.path, self.durability = path, durability
        self.loop = asyncio.new_event_loop() if asynchronous else None
        self.open()

    def open(self):
        """Open the saver."""
        self.pool = ThreadPoolExecutor(4)
        if self.loop is not None:
            self.pool.submit(self.loop.run_forever)

        async def connect():
            return AsyncSqlite(await aiosqlite.connect(self.path))

        if self.path is None:
            self.saver = Memory()
        elif self.loop is None:
            self.saver = Sqlite(sqlite3.connect(self.path, check_same_thread=False))
        else:
            self.saver = self.wait(connect())

    def wait(self, work):
        """Run a coroutine in the loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def begin(self, graph, value, config):
        """Start a run of the graph."""
        if self.loop is None:
            return self.pool.submit(graph.invoke, value, config, durability=self.durability)
        work = graph.ainvoke(value, config, durability=self.durability)
        return asyncio.run_coroutine_threadsafe(work, self.loop)

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
                self.wait(end())
            self.loop.call_soon_threadsafe(self.loop.stop)
        self.pool.shutdown()
        if self.loop is not None:
            self.loop.close()
        elif self.path is not None:
            self.saver.conn.close()
