"""One call of a ToolNode as a LangGraph task: its name, its turn, its place in a checkpoint.

What `recording` does for threads and again for an event loop is there; the rest is here.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import math
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolCall
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.func import task
from langgraph.runtime import ExecutionInfo, get_runtime

from langgraph_patch._langgraph import (
    PUSH,
    RETURN,
    can_start_tasks,
    checkpointer_of,
    is_resuming,
    memory_of,
)
from langgraph_patch.errors import RecordingError

if TYPE_CHECKING:  # for annotations only: the import would cost what all of ours cost together
    from langgraph.prebuilt.tool_node import ToolCallRequest

MARK: Final = "langgraph_patch:recorded"
"""Channel of the write that says which call an unfinished task belongs to."""

START_SECONDS = 30.0
"""How long a call waits for a worker, while no call of its message runs, until it is given up."""

POLL_SECONDS = 0.5  # how often it looks

Record: TypeAlias = dict[str, Any]


class Start(NamedTuple):
    """Which start of which call of a node's run: the same when the node is run again.

    A node is always run again from its beginning, so counting finds the same numbers. What is
    counted is one and the same request only: however the order changes, none is taken for another.
    """

    said: str
    """A hash of the name and the arguments that the model gave."""
    round: int
    """The how-manieth ToolNode run that makes this call: a node may loop, and ids come again."""
    trial: int
    """The how-manieth start in that round: a wrapper may repeat it."""


NOT_STARTED: Final = Start("", 0, 0)


def task_name(call_id: str | None, start: Start) -> str:
    """Name the task that runs a call.

    LangGraph knows a node's tasks by name and order. With all of the call in the name, a changed
    order is a miss and never another call's result or approval. A hash: `|` and `:` have a
    meaning in namespaces.

    >>> task_name("call_1", Start("4f1c", 1, 1))
    'recorded_bdc917c67fe8'
    """
    return "recorded_" + hashlib.sha256(repr((call_id, *start)).encode()).hexdigest()[:12]


@dataclass(eq=False)
class _Round:
    """One run of a ToolNode over one message: what its calls share."""

    next: int = 0
    paused: float = math.inf
    busy: int = 0
    moved: float = field(default_factory=time.monotonic)
    callers: dict[int | None, Any] = field(default_factory=dict)
    saved: list[Any] = field(default_factory=list)
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    turn: threading.Condition = field(default_factory=threading.Condition)


@dataclass(eq=False)
class _Node:
    """One run of a node: what its rounds and its attempts share."""

    rounds: dict[Any, _Round] = field(default_factory=dict)
    starts: dict[Any, list[list[Any]]] = field(default_factory=dict)
    futures: dict[tuple[str | None, Start], Any] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, config: RunnableConfig) -> _Node:
        """Find the node's run."""
        return cast("_Node", memory_of(config).setdefault(MARK, cls()))

    def round_of(self, key: Any, place: int | None, caller: Any) -> _Round:
        """Find the round that a call belongs to. `caller` is its alone, also where ids recur."""
        with self.lock:
            found = self.rounds.get(key)
            if found is None or found.callers.get(place, caller) is not caller:
                found = self.rounds[key] = _Round()
            found.callers[place] = caller
            return found

    def count(self, key: Any, caller: Any) -> tuple[int, int]:
        """Count a start: the number of the round and of the start in it."""
        with self.lock:
            rounds = self.starts.setdefault(key, [])
            mine = next((i for i, (known, _) in enumerate(rounds) if known is caller), len(rounds))
            if mine == len(rounds):
                rounds.append([caller, 0])
            rounds[mine][1] += 1
            return mine + 1, rounds[mine][1]


@dataclass(eq=False)
class RecordedCall:
    """One call of one attempt."""

    request: ToolCallRequest
    info: ExecutionInfo
    configurable: dict[str, Any]
    saver: BaseCheckpointSaver[Any] | None
    siblings: list[ToolCall]
    place: int | None
    node: _Node
    run: _Round
    start: Start = NOT_STARTED
    is_first: bool = False
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
        node = _Node.of(config)
        # A retry may begin while calls of the attempt before it are on their way.
        key = info.node_attempt, tuple(call["id"] for call in siblings)
        run = node.round_of(key, place, request.runtime)
        return cls(request, info, configurable, saver, siblings, place, node, run)

    @property
    def id(self) -> str | None:
        """What the model called it."""
        return self.request.tool_call["id"]

    def is_next(self) -> bool:
        """Tell whether the calls before this one have started."""
        return self.place is None or self.run.next >= self.place

    def begin(self, body: Callable[[], Any]) -> Any:
        """Start the task, or take it over from an earlier attempt, and let the next call start."""
        self._count()
        future = self._begun()
        if future is not None:
            self.owner = "earlier attempt"
        else:
            future = cast("Any", task)(name=task_name(self.id, self.start))(body)()
            self.node.futures[self.id, self.start] = future
        with self.run.turn:
            self.run.next = max(self.run.next, 0 if self.place is None else self.place + 1)
            self.run.turn.notify_all()
        while self.run.waiters:
            waiter = self.run.waiters.pop()
            if not waiter.done():
                waiter.set_result(None)
        return future

    def _count(self) -> None:
        attempt, call, caller = self.info.node_attempt, self.request.tool_call, self.request.runtime
        said = _said(self.siblings, self.place, call)
        self.start = Start(said, *self.node.count((attempt, self.id, said), caller))
        first = self.node.count((attempt, self.id), caller) == (1, 1)
        self.is_first = first and _is_alone(self.siblings, call)

    def _begun(self) -> Any:
        """Find what an earlier attempt left done, waiting or, in an event loop, running.

        What failed in it is begun again, unless a wrapper had tried again with more luck.
        """
        for trial in itertools.count(self.start.trial):
            future = self.node.futures.get((self.id, self.start._replace(trial=trial)))
            if future is None or not _failed(future):
                return future
        return None

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
        return {"recorded": {**self._who(), "result": result}}

    def _who(self) -> dict[str, Any]:
        return {"call": self.id, "node": self.info.task_id, **self.start._asdict()}

    def reads_from(self) -> BaseCheckpointSaver[Any] | None:
        """Return the saver if a result may stand under another count than this task's."""
        return self.saver if is_resuming({"configurable": self.configurable}) else None

    def found(self, saved: CheckpointTuple | None) -> Record | None:
        """Find what an earlier run recorded for this start, or for a wrapper's later trial.

        A trial that failed left no record, and the one after it did the work.
        """
        later: dict[int, Any] = {}
        old: list[Any] = []
        for record in self._records_in(saved):
            if "said" not in record:  # written before starts were counted
                old.append(record["result"])
            elif (record["said"], record["round"]) == self.start[:2]:
                later[record["trial"]] = record["result"]
        results = [later[trial] for trial in sorted(later) if trial >= self.start.trial]
        if not results and self.is_first and len(old) == 1:
            results = old
        return self.record(results[0]) if results else None

    def _records_in(self, saved: CheckpointTuple | None) -> Iterator[Record]:
        # The node's task id stands for the checkpoint too: where an older one than the newest is
        # replayed, LangGraph runs tasks again on purpose, and nothing here is theirs.
        mine = (self.id, self.info.task_id)
        for _, channel, value in (saved and saved.pending_writes) or ():
            ours = channel == RETURN and isinstance(value, dict)
            record = value.get("recorded") if ours else None
            if isinstance(record, dict) and (record.get("call"), record.get("node")) == mine:
                yield record

    def thread(self, **more: str) -> RunnableConfig:
        """Address the checkpoints of the graph that the node is in."""
        ns = self.info.checkpoint_ns.rpartition("|")[0]
        return {"configurable": {"thread_id": self.info.thread_id, "checkpoint_ns": ns, **more}}

    def mark(self) -> tuple[RunnableConfig, list[tuple[str, Any]], str]:
        """Make the write that says whose the running task is."""
        own = (get_runtime().execution_info or self.info).task_id
        mark = {**self._who(), "attempt": self.info.node_attempt, "task": own}
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
    # By identity where an id is there twice. Else by id only: a wrapper may have changed the call.
    alike = [i for i, sibling in enumerate(siblings) if sibling["id"] == call["id"]]
    if len(alike) > 1:
        same = [i for i in alike if siblings[i] is call]
        alike = same or [i for i in alike if _hash(siblings[i]) == _hash(call)] or alike
    return alike[0] if alike else None


def _said(siblings: list[ToolCall], place: int | None, call: ToolCall) -> str:
    # A wrapper may give a call arguments that differ in each run. What the model said stays.
    if place is not None and _is_alone(siblings, call):
        return _hash(siblings[place])
    return _hash(call, place)


def _is_alone(siblings: list[ToolCall], call: ToolCall) -> bool:
    return sum(sibling["id"] == call["id"] for sibling in siblings) <= 1


def _hash(call: ToolCall, place: int | None = None) -> str:
    try:
        args = json.dumps(call["args"], sort_keys=True, default=_without_address)
    except (TypeError, ValueError, RecursionError):  # no model says such a thing
        args = ""
    return hashlib.sha256(repr((call["name"], args, place)).encode()).hexdigest()[:16]


def _without_address(value: object) -> str:
    return re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(value))
