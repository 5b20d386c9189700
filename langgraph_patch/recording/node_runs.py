"""What the tool calls of one node share in memory while the node runs.

LangGraph runs a node again from its beginning after an interrupt, and in the same process after
an error with a `RetryPolicy`. A `NodeRun` lasts over all those attempts. A node may run its
`ToolNode` several times, over one message each: a `ToolNodeRun` is one of these.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp

from langgraph_patch._langgraph import task_notes
from langgraph_patch.recording.records import MARK, Start


@dataclass(eq=False)
class ToolNodeRun:
    """One run of a `ToolNode` over one message.

    Attributes:
        condition: Guards the other attributes. It is notified of each change.
        next_index: The index of the call that may start next.
        interrupted_index: The lowest index of a call that was interrupted.
        active: How many tools run now.
        last_finished: When the last tool finished, or the run began (monotonic clock).
        runtimes: The index of each call -> its `ToolRuntime`, an object of its own in each run.
        reads: The checkpoints with earlier records, once they were read: empty, or one list. In
            an event loop, the element is the future of the list.
        waiters: The futures of calls that wait in an event loop until they may start.
    """

    condition: threading.Condition = field(default_factory=threading.Condition)
    next_index: int = 0
    interrupted_index: float = math.inf
    active: int = 0
    last_finished: float = field(default_factory=time.monotonic)
    runtimes: dict[int | None, Any] = field(default_factory=dict)
    reads: list[Any] = field(default_factory=list)
    waiters: list[asyncio.Future[None]] = field(default_factory=list)

    def may_start(self, index: int | None) -> bool:
        """Whether the calls before `index` have started."""
        return index is None or self.next_index >= index

    def has_started(self, index: int | None) -> None:
        """Let the call after `index` start."""
        with self.condition:
            if index is not None:
                self.next_index = max(self.next_index, index + 1)
            self.condition.notify_all()
        while self.waiters:
            waiter = self.waiters.pop()
            if not waiter.done():
                waiter.set_result(None)

    def wait_for_siblings(self, index: int, count: int, timeout: float) -> None:
        """Wait until all calls have started, if `index` is the first call that was interrupted.

        Args:
            index: The index of the call.
            count: How many calls the message makes.
            timeout: How many seconds to wait at most.
        """
        with self.condition:
            self.interrupted_index = min(self.interrupted_index, index)
            self.condition.notify_all()
            self.condition.wait_for(
                lambda: self.next_index >= count or self.interrupted_index != index, timeout
            )


@dataclass(eq=False)
class NodeRun:
    """One run of a node, over all its attempts."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _runs: dict[Hashable, ToolNodeRun] = field(default_factory=dict)
    _starts: dict[Hashable, list[tuple[Any, itertools.count[int]]]] = field(default_factory=dict)
    _futures: dict[tuple[str | None, Start], Any] = field(default_factory=dict)

    @classmethod
    def of(cls, config: RunnableConfig) -> NodeRun:
        """The run of the node that runs with `config`."""
        return cast("NodeRun", task_notes(config).setdefault(MARK, cls()))

    def tool_node_run(self, key: Hashable, index: int | None, runtime: Any) -> ToolNodeRun:
        """The run that a call belongs to: the last with `key`, or a new one if it has the call.

        Args:
            key: The attempt of the node, and the ids of all calls of the message.
            index: The index of the call in the message.
            runtime: The `ToolRuntime` of the call.
        """
        with self._lock:
            run = self._runs.get(key)
            if run is None or run.runtimes.get(index, runtime) is not runtime:
                run = self._runs[key] = ToolNodeRun()
            run.runtimes[index] = runtime
            return run

    def count_start(self, key: Hashable, runtime: Any) -> tuple[int, int]:
        """Count a start of a request.

        Args:
            key: The request.
            runtime: The `ToolRuntime` of the call. A call that a wrapper starts again keeps it.

        Returns:
            The index of the `ToolNode` run that makes the request, and of the start in it, each
            from 1.
        """
        with self._lock:
            runs = self._starts.setdefault(key, [])
            seen = [i for i, (other, _) in enumerate(runs) if other is runtime]
            if not seen:
                runs.append((runtime, itertools.count(1)))
            index = seen[0] if seen else len(runs) - 1
            return index + 1, next(runs[index][1])

    def earlier_future(self, call_id: str | None, start: Start) -> Any:
        """The future of an earlier attempt for the same start, or for a later try; else None.

        A failed start is made again, unless a later try of a wrapper did its work.
        """
        for try_index in itertools.count(start.try_index):
            future = self._futures.get((call_id, start._replace(try_index=try_index)))
            if future is None or not _has_failed(future):
                return future
        return None

    def task_future(self, call_id: str | None, start: Start, begin: Callable[[], Any]) -> Any:
        """The future of a new task, kept for later attempts."""
        future = self._futures[call_id, start] = begin()
        return future


def _has_failed(future: Any) -> bool:
    if future.cancelled():
        return True
    return future.done() and not isinstance(future.exception(), GraphBubbleUp | None)
