"""One call of a ToolNode as a LangGraph task: its name, its turn, its place in a checkpoint.

What `recording` does for threads and again for an event loop is there; the rest is here.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolCall
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.func import task
from langgraph.runtime import ExecutionInfo, get_runtime

from langgraph_patch.errors import RecordingError
from langgraph_patch.host import PUSH, RETURN, can_start_tasks, checkpointer_of, is_resuming

if TYPE_CHECKING:  # for annotations only: the import would cost what all of ours cost together
    from langgraph.prebuilt.tool_node import ToolCallRequest

MARK: Final = "langgraph_patch:recorded"
"""Channel of the write that says which call an unfinished task belongs to."""

START_SECONDS = 30.0
"""How long a call waits for a worker, while no call of its message runs, until it is given up."""

POLL_SECONDS = 0.5  # how often it looks

TURN_SECONDS = 1.0
"""How long a call waits for those before it, which may never come: a wrapper may answer them."""

RUNS_KEPT = 64  # failed runs remembered, in case a retry policy starts them again

Record: TypeAlias = dict[str, dict[str, Any]]


def task_name(call_id: str | None) -> str:
    """Name the task that runs a call.

    LangGraph knows a node's tasks by name and order. With the call in the name, a changed order is
    a miss and never another call's result. A hash: `|` and `:` have a meaning in namespaces.

    >>> task_name("call_1")
    'recorded_7afba15195af'
    """
    return "recorded_" + hashlib.sha256(repr(call_id).encode()).hexdigest()[:12]


@dataclass(eq=False)
class _Run:
    """One run of a ToolNode over one message: what its calls and its attempts share."""

    attempt: int = 0
    next: int = 0
    paused: float = math.inf
    open: int = 0
    busy: int = 0
    moved: float = field(default_factory=time.monotonic)
    futures: dict[Any, tuple[int, Any]] = field(default_factory=dict)
    closed: set[Any] = field(default_factory=set)
    saved: list[Any] = field(default_factory=list)
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    turn: threading.Condition = field(default_factory=threading.Condition)


runs: OrderedDict[tuple[str, float | None], _Run] = OrderedDict()
runs_lock: threading.Lock = threading.Lock()


@dataclass(eq=False)
class RecordedCall:
    """One call of one attempt."""

    request: ToolCallRequest
    info: ExecutionInfo
    configurable: dict[str, Any]
    saver: BaseCheckpointSaver[Any] | None
    siblings: list[ToolCall]
    place: int | None
    key: tuple[str, float | None]
    run: _Run
    owner: str = ""

    @classmethod
    def of(cls, request: ToolCallRequest) -> RecordedCall | None:
        """Read a request; None where a task is impossible (no graph) or needless (`Send`)."""
        config = request.runtime.config if request.runtime else RunnableConfig()
        configurable = config.get("configurable", {})
        info = request.runtime.execution_info if request.runtime else None
        path = tuple(config.get("metadata", {}).get("langgraph_path", ()))
        pushed = path[:1] == (PUSH,)
        if not can_start_tasks(config) or info is None or (pushed and path[-1] is not True):
            return None
        # In a @task, its namespace cannot be told from the checkpoint's.
        saver = None if pushed else checkpointer_of(config)
        siblings = _siblings(request.state, request.tool_call)
        place = _place(siblings, request.tool_call)
        # A resumed run has the same task id, and the paused one left turns that nobody will take.
        key = (info.task_id, info.node_first_attempt_time)
        with runs_lock:
            run = runs.setdefault(key, _Run())
            if info.node_attempt > run.attempt:
                run.attempt, run.next = info.node_attempt, 0
                run.closed, run.paused = set(), math.inf
            if len(runs) > RUNS_KEPT:
                for stale in [k for k, r in runs.items() if not r.open and k != key][:1]:
                    del runs[stale]
        return cls(request, info, configurable, saver, siblings, place, key, run)

    @property
    def id(self) -> str | None:
        """What the model called it."""
        return self.request.tool_call["id"]

    def start_in_turn(self, body: Callable[[], Any]) -> Any:
        """Start the task when the calls before this one have started theirs.

        LangGraph counts a node's tasks, and an interrupt gets its answer under the same count
        only. ToolNode's threads race for it. To be late is safe: a call is then asked again.
        """
        with self.run.turn:
            self.run.turn.wait_for(self._is_next, TURN_SECONDS)
            return self._start(body)

    async def astart_in_turn(self, body: Callable[[], Any]) -> Any:
        """Do what `start_in_turn` does. Who comes in turn does not await."""
        end = time.monotonic() + TURN_SECONDS
        while not self._is_next() and (left := end - time.monotonic()) > 0:
            self.run.waiters.append(waiter := asyncio.get_running_loop().create_future())
            await asyncio.wait([waiter], timeout=left)
        return self._start(body)

    def _is_next(self) -> bool:
        return self.place is None or self.run.next >= self.place

    def _start(self, body: Callable[[], Any]) -> Any:
        key = self.place, self.id
        attempt, future = self.run.futures.get(key, (0, None))
        # An earlier attempt may have left it done, waiting or, in an event loop, running.
        if future is not None and attempt < self.info.node_attempt and not _failed(future):
            self.owner = "earlier attempt"
        else:
            future = cast("Any", task)(name=task_name(self.id))(body)()
            if self.place is not None:
                self.run.futures[key] = (self.info.node_attempt, future)
        with self.run.turn:
            self.run.next = max(self.run.next, 0 if self.place is None else self.place + 1)
            self.run.turn.notify_all()
        while self.run.waiters:
            waiter = self.run.waiters.pop()
            if not waiter.done():
                waiter.set_result(None)
        return future

    def let_siblings_start(self) -> None:
        """Hold back the pause until the calls after this one have started.

        ToolNode's threads end with the first call that pauses. One not yet started would never be,
        and the answer that this run may have brought it would be lost. Only the first call in
        order has to wait; it holds a thread, so it cannot where there is but one.
        """
        if self.place is None or self.request.runtime.config.get("max_concurrency") == 1:
            return
        run, last = self.run, len(self.siblings)
        with run.turn:
            run.paused = min(run.paused, self.place)
            run.turn.notify_all()
            run.turn.wait_for(lambda: run.next >= last or run.paused != self.place, TURN_SECONDS)

    def waits_for_worker(self, future: Any) -> bool:
        """Tell whether nobody has taken the call up yet; give up where nobody ever will."""
        if self.owner or future.done():
            return False
        idle = 0.0 if self.run.busy else time.monotonic() - self.run.moved
        if idle < START_SECONDS or not self._take("nobody"):
            return True
        future.cancel()
        raise RecordingError(
            f"Tool call {self.id!r} was not run: no worker took it up within "
            f"{START_SECONDS:g} s. It needs one besides those that nodes and streams hold. "
            f"Raise max_concurrency (now {self.request.runtime.config.get('max_concurrency')!r})."
        )

    def _take(self, owner: str) -> bool:
        with self.run.turn:
            self.owner = self.owner or owner
            return self.owner == owner

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Give the tool the task's own interrupts and namespace while it runs.

        `execute` uses the very dict that `request.runtime.config` is. With the node's, all calls
        share one interrupt counter, and an answer that one call no longer needs goes to the next.
        """
        if not self._take("worker"):
            raise RecordingError(f"Tool call {self.id!r} was given up.")
        config, run = self.request.runtime.config, self.run
        with run.turn:
            run.busy += 1
        config["configurable"] = get_config()["configurable"]
        try:
            yield
        finally:
            config["configurable"] = self.configurable
            with run.turn:
                run.busy, run.moved = run.busy - 1, time.monotonic()

    def record(self, result: Any) -> Record:
        """Make the task's value: two dicts deep, else `messages` shows it under the task's name."""
        return {"recorded": {"call": self.id, "node": self.info.task_id, "result": result}}

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Forget the run when none of its calls can be wanted by a retry any more."""
        with runs_lock:
            self.run.open += 1
        wanted = False
        try:
            yield
        except Exception as error:
            wanted = not isinstance(error, GraphBubbleUp)
            raise
        finally:
            with runs_lock:
                self.run.open -= 1
                if not wanted and self.info.node_attempt == self.run.attempt:
                    self.run.closed.add(self.place)
                if len(self.run.closed) >= len(self.siblings):
                    runs.pop(self.key, None)

    def reads_from(self) -> BaseCheckpointSaver[Any] | None:
        """Return the saver if a result may stand under another count than this task's."""
        once = [call["id"] for call in self.siblings].count(self.id) == 1
        resuming = is_resuming({"configurable": self.configurable})
        return self.saver if once and resuming else None

    def found(self, saved: CheckpointTuple | None) -> Record | None:
        """Find what an earlier run recorded for this call, by its id."""
        # The node's task id stands for the checkpoint too: where an older one than the newest is
        # replayed, LangGraph runs tasks again on purpose, and nothing here is theirs.
        mine = (self.id, self.info.task_id)
        for _, channel, value in (saved and saved.pending_writes) or ():
            ours = channel == RETURN and isinstance(value, dict)
            record = value.get("recorded") if ours else None
            if isinstance(record, dict) and (record.get("call"), record.get("node")) == mine:
                return {"recorded": record}
        return None

    def thread(self, **more: str) -> RunnableConfig:
        """Address the checkpoints of the graph that the node is in."""
        ns = self.info.checkpoint_ns.rpartition("|")[0]
        return {"configurable": {"thread_id": self.info.thread_id, "checkpoint_ns": ns, **more}}

    def mark(self) -> tuple[RunnableConfig, list[tuple[str, Any]], str]:
        """Make the write that says whose the running task is."""
        own = (get_runtime().execution_info or self.info).task_id
        mark = {"call": self.id, "node": self.info.task_id, "task": own}
        # Under an id of its own: with a write like this one, LangGraph would take a task as done.
        mark_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{MARK}:{own}"))
        where = self.thread(checkpoint_id=self.info.checkpoint_id)
        return where, [(MARK, {"recorded": mark})], mark_id


def _failed(future: Any) -> bool:
    cut = future.cancelled()
    return cut or (future.done() and not isinstance(future.exception(), GraphBubbleUp | None))


def _siblings(state: Any, call: ToolCall) -> list[ToolCall]:
    """Return all calls of the message that the call belongs to, whatever the state's shape."""
    channels = {"": state} if isinstance(state, list) else state
    channels = channels if isinstance(channels, Mapping) else vars(channels)
    for messages in channels.values():
        if isinstance(messages, list) and messages and isinstance(messages[-1], BaseMessage):
            last = next((m for m in reversed(messages) if isinstance(m, AIMessage)), None)
            if last is not None and _place(last.tool_calls, call) is not None:
                return last.tool_calls
    return []


def _place(siblings: list[ToolCall], call: ToolCall) -> int | None:
    # By identity first: an id may be there twice. By id too: a wrapper may have copied the call.
    same = (i for i, sibling in enumerate(siblings) if sibling is call)
    alike = (i for i, sibling in enumerate(siblings) if sibling["id"] == call["id"])
    return next(same, next(alike, None))
