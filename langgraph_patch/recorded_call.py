"""One call of a ToolNode as a LangGraph task: its name, its turn, its place in a checkpoint.

What `recording` does with a call is written there once for threads and once for an event loop.
All that needs no waiting, and all that LangGraph keeps to itself, is here.
"""

import contextlib
import hashlib
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolCall
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.func import task
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import ExecutionInfo, get_runtime

from langgraph_patch.errors import RecordingError

MARK: Final = "langgraph_patch:recorded"
"""Channel of the write that says which call an unfinished task belongs to."""

START_SECONDS = 30.0
"""How long a call waits for a worker, while no call of its message runs, until it is given up."""

POLL_SECONDS = 0.5
"""How often a call that nobody has taken up looks whether it should give up."""

# LangGraph's own names. They are only looked up: without one, a call loses only what it would give.
_CALL: Final = "__pregel_call"  # there is a graph that starts tasks
_SAVER: Final = "__pregel_checkpointer"  # the saver in use, also one that a server injects
_RESUMING: Final = "__pregel_resuming"  # earlier results may exist; spares all other runs a read
_PUSH: Final = "__pregel_push"  # begins metadata["langgraph_path"] of a Send or a task
_RETURN: Final = "__return__"  # channel of a task's result

_TURN_SECONDS = 1.0
_RUNS_KEPT = 64

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
    busy: int = 0
    moved: float = field(default_factory=time.monotonic)
    futures: dict[Any, tuple[int, Any]] = field(default_factory=dict)
    closed: set[Any] = field(default_factory=set)
    saved: list[Any] = field(default_factory=list)
    turn: threading.Condition = field(default_factory=threading.Condition)


_runs: OrderedDict[tuple[str, float | None], _Run] = OrderedDict()
_runs_lock = threading.Lock()


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
    def of(cls, request: ToolCallRequest) -> "RecordedCall | None":
        """Read a request; None where a task is impossible (no graph) or needless (`Send`)."""
        config: Mapping[str, Any] = request.runtime.config if request.runtime else {}
        configurable = config.get("configurable", {})
        info = request.runtime.execution_info if request.runtime else None
        path = tuple(config.get("metadata", {}).get("langgraph_path", ()))
        pushed = path[:1] == (_PUSH,)
        if _CALL not in configurable or info is None or (pushed and path[-1] is not True):
            return None
        saver = configurable.get(_SAVER)
        # In a @task, the checkpoint's namespace cannot be told from that of the task.
        known = isinstance(saver, BaseCheckpointSaver) and info.thread_id and not pushed
        siblings = _siblings(request.state, request.tool_call)
        place = _place(siblings, request.tool_call)
        # A resumed run has the same task id, and the paused one left turns that nobody will take.
        key = (info.task_id, info.node_first_attempt_time)
        with _runs_lock:
            run = _runs.setdefault(key, _Run())
            if info.node_attempt > run.attempt:
                run.attempt, run.next = info.node_attempt, 0
            if len(_runs) > _RUNS_KEPT:
                _runs.popitem(last=False)
        saver = saver if known else None
        return cls(request, info, configurable, saver, siblings, place, key, run)

    def start(self, body: Callable[[], Any]) -> Any:
        """Start the task, unless an earlier attempt left it done, waiting or still running."""
        key = (self.place, self.request.tool_call["id"])
        attempt, earlier = self.run.futures.get(key, (0, None))
        if earlier is not None and attempt < self.info.node_attempt and not _failed(earlier):
            self.owner = "earlier attempt"
            return earlier
        future = cast("Any", task)(name=task_name(self.request.tool_call["id"]))(body)()
        if self.place is not None:
            self.run.futures[key] = (self.info.node_attempt, future)
        return future

    def start_in_turn(self, body: Callable[[], Any]) -> Any:
        """Start the task when the calls before this one have started theirs.

        LangGraph counts a node's tasks, and an interrupt gets its answer under the same count
        only. ToolNode's threads race for it. To be late is safe: a call is then asked again.
        """
        place = -1 if self.place is None else self.place
        with self.run.turn:
            self.run.turn.wait_for(lambda: self.run.next >= place, _TURN_SECONDS)
            try:
                return self.start(body)
            finally:
                self.run.next = max(self.run.next, place + 1)
                self.run.turn.notify_all()

    def waits_for_worker(self, future: Any) -> bool:
        """Tell whether nobody has taken the call up yet; give up where nobody ever will."""
        if self.owner or future.done():
            return False
        idle = 0.0 if self.run.busy else time.monotonic() - self.run.moved
        if idle < START_SECONDS or not self._take("nobody"):
            return True
        future.cancel()
        raise RecordingError(
            f"Tool call {self.request.tool_call['id']!r} was not run: no worker took it up within "
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
        config, run = self.request.runtime.config, self.run
        if not self._take("worker"):
            raise RecordingError(f"Tool call {self.request.tool_call['id']!r} was given up.")
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
        call_id = self.request.tool_call["id"]
        return {"recorded": {"call": call_id, "node": self.info.task_id, "result": result}}

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Forget the run when none of its calls can be wanted by a retry any more."""
        try:
            yield
        except GraphBubbleUp:
            self._close()
            raise
        self._close()

    def _close(self) -> None:
        self.run.closed.add(self.place)
        if len(self.run.closed) >= len(self.siblings):
            with _runs_lock:
                _runs.pop(self.key, None)

    def reads_from(self) -> BaseCheckpointSaver[Any] | None:
        """Return the saver if a result may stand under another count than this task's."""
        once = sum(call["id"] == self.request.tool_call["id"] for call in self.siblings) == 1
        return self.saver if once and self.configurable.get(_RESUMING) else None

    def found(self, saved: CheckpointTuple | None) -> Record | None:
        """Find what an earlier run recorded for this call, by its id."""
        # Not the newest checkpoint: a replay, where LangGraph runs tasks again on purpose.
        if saved is None or saved.checkpoint["id"] != self.info.checkpoint_id:
            return None
        mine = self.record(None)["recorded"]
        for _, channel, value in saved.pending_writes or ():
            if channel == _RETURN and isinstance(value, dict) and "recorded" in value:
                record = value["recorded"]
                if (record["call"], record["node"]) == (mine["call"], mine["node"]):
                    return cast("Record", value)
        return None

    def thread(self, **more: str) -> RunnableConfig:
        """Address the checkpoints of the graph that the node is in."""
        ns = self.info.checkpoint_ns.rpartition("|")[0]
        return {"configurable": {"thread_id": self.info.thread_id, "checkpoint_ns": ns, **more}}

    def mark(self) -> tuple[RunnableConfig, list[tuple[str, Any]], str]:
        """Make the write that says whose the running task is."""
        own = get_runtime().execution_info or self.info
        mark = {"call": self.request.tool_call["id"], "node": self.info.task_id}
        # Under an id of its own: with a write like this one, LangGraph would take a task as done.
        mark_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{MARK}:{own.task_id}"))
        where = self.thread(checkpoint_id=self.info.checkpoint_id)
        return where, [(MARK, {"recorded": {**mark, "task": own.task_id}})], mark_id


def _failed(future: Any) -> bool:
    if not future.done():
        return False
    return future.cancelled() or not isinstance(future.exception(), GraphBubbleUp | None)


def _siblings(state: Any, call: ToolCall) -> list[ToolCall]:
    """Return all calls of the message that the call belongs to, whatever the state's shape."""
    mapping = {"": state} if isinstance(state, list) else state
    channels = mapping if isinstance(mapping, Mapping) else vars(mapping)
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
