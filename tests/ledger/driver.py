"""Runs a graph synchronously or asynchronously, with savers that can be made to fail once.

Everything is started in the background and gives a `concurrent.futures.Future`, so that events
are written once for both ways.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiosqlite
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver


class SaverFaultError(Exception):
    """What a saver raises that is made to fail."""


class Fault:
    """Counts the saver's calls down and fails one of them."""

    fail_in = 0

    def tick(self) -> None:
        """Count a call; raise if it is the one."""
        if self.fail_in:
            self.fail_in -= 1
            if not self.fail_in:
                raise SaverFaultError("the saver failed once")


class FailingMemory(Fault, InMemorySaver):
    """Keeps checkpoints in memory.

    With a lock: LangGraph's own raises "dictionary changed size during iteration" when a thread
    that outlived its run writes while another one reads.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()

    def list(self, *args: Any, **options: Any) -> Any:
        with self.lock:
            return iter([*super().list(*args, **options)])

    def get_tuple(self, config: Any) -> Any:
        self.tick()
        with self.lock:
            return super().get_tuple(config)

    def put(self, *args: Any) -> Any:
        self.tick()
        with self.lock:
            return super().put(*args)

    def put_writes(self, *args: Any) -> None:
        self.tick()
        with self.lock:
            super().put_writes(*args)


class FailingSqlite(Fault, SqliteSaver):
    """Keeps checkpoints in a file."""

    def get_tuple(self, config: Any) -> Any:
        self.tick()
        return super().get_tuple(config)

    def put(self, *args: Any) -> Any:
        self.tick()
        return super().put(*args)

    def put_writes(self, *args: Any) -> None:
        self.tick()
        super().put_writes(*args)


class FailingAsyncSqlite(Fault, AsyncSqliteSaver):
    """Keeps checkpoints in a file, for graphs that run in an event loop."""

    async def aget_tuple(self, config: Any) -> Any:
        self.tick()
        return await super().aget_tuple(config)

    async def aput(self, *args: Any) -> Any:
        self.tick()
        return await super().aput(*args)

    async def aput_writes(self, *args: Any) -> None:
        self.tick()
        await super().aput_writes(*args)


class Driver:
    """Opens a saver and runs graphs with it.

    Args:
        asynchronous: Whether graphs run in an event loop of this driver.
        path: The file of the database, or None for a saver in memory.
        durability: The durability of each run.
    """

    def __init__(self, *, asynchronous: bool, path: Path | None, durability: str) -> None:
        self.asynchronous, self.path, self.durability = asynchronous, path, durability
        self.loop: asyncio.AbstractEventLoop | None = None
        self.pool: ThreadPoolExecutor | None = None
        if asynchronous:
            self.loop = asyncio.new_event_loop()
            self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
            self.thread.start()
        self.saver: Any = self.open()

    def open(self) -> Any:
        """Open the saver."""
        if self.path is None:
            return FailingMemory()
        if not self.asynchronous:
            saver = FailingSqlite(sqlite3.connect(self.path, check_same_thread=False))
            saver.setup()
            return saver

        async def connect() -> Any:
            saver = FailingAsyncSqlite(await aiosqlite.connect(str(self.path)))
            await saver.setup()
            return saver

        return self.wait(connect())

    def wait(self, work: Coroutine[Any, Any, Any], timeout: float = 30) -> Any:
        """Run a coroutine in the loop and return its result."""
        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)

    def begin(self, graph: Any, value: Any, config: Any) -> Future[Any]:
        """Start a run of the graph."""
        options = {"durability": self.durability}
        if self.loop is not None:
            work = graph.ainvoke(value, config, **options)
            return asyncio.run_coroutine_threadsafe(work, self.loop)
        self.pool = self.pool or ThreadPoolExecutor(4)
        return self.pool.submit(graph.invoke, value, config, **options)

    def here(self, graph: Any, value: Any, config: Any) -> None:
        """Run the graph in this thread (for a process that will be killed)."""
        graph.invoke(value, config, durability=self.durability)

    def rows(self, config: Any) -> list[Any]:
        """All checkpoints of the thread, in all namespaces."""
        config = {"configurable": {"thread_id": config["configurable"]["thread_id"]}}
        if self.loop is None or isinstance(self.saver, InMemorySaver):
            return list(self.saver.list(config))

        async def read() -> list[Any]:
            return [row async for row in self.saver.alist(config)]

        return list(self.wait(read()))

    def close(self) -> None:
        """Close the saver, and end threads and tasks that are left."""
        if self.pool is not None:
            self.pool.shutdown(wait=True)
            self.pool = None
        if self.loop is None:
            if self.path is not None:
                self.saver.conn.close()
            return

        async def end() -> None:
            others = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await asyncio.get_running_loop().shutdown_default_executor()
            if self.path is not None:
                await self.saver.conn.close()

        with suppress(TimeoutError):
            self.wait(end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        self.loop.close()
