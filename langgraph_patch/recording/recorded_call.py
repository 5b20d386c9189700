"""One tool call of a `ToolNode`, run as a LangGraph task.

This module identifies a call, starts its task and recovers its earlier result. How threads and
event loops wait for each other is in `wrappers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolCall
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.config import get_config
from langgraph.func import task
from langgraph.runtime import ExecutionInfo, get_runtime

from langgraph_patch._langgraph import (
    can_start_tasks,
    checkpointer_of,
    is_resuming,
    parent_namespace,
    task_kind,
)
from langgraph_patch._sansio import IOGenerator, IORequest, call_method
from langgraph_patch.errors import RecordingError
from langgraph_patch.recording.node_runs import NodeRun, ToolNodeRun
from langgraph_patch.recording.records import (
    MARK,
    Record,
    Start,
    find_result,
    hash_request,
    make_record,
    task_name,
)

if TYPE_CHECKING:  # the import costs as much time as all other imports together
    from langgraph.prebuilt.tool_node import ToolCallRequest

START_SECONDS = 30.0
"""How long a call waits for a worker while no other call of its message runs."""

_NOT_STARTED = Start("", 0, 0)


@dataclass(eq=False)
class RecordedCall:
    """One call of a message, in one attempt of its node.

    Attributes:
        request: The request of the `ToolNode`.
        info: What LangGraph tells the node about its run.
        configurable: The node's own `config["configurable"]`.
        saver: The checkpointer, or None.
        siblings: All calls of the message.
        index: The index of the call among them, or None if it is not among them.
        node_run: The run of the node.
        run: The run of the `ToolNode`.
        start: Which start of the call this is.
        owner: Who has taken the call: a `worker`, an `earlier attempt`, or `nobody` after
            `START_SECONDS`.
    """

    request: ToolCallRequest
    info: ExecutionInfo
    configurable: dict[str, Any]
    saver: BaseCheckpointSaver[Any] | None
    siblings: list[ToolCall]
    index: int | None
    node_run: NodeRun
    run: ToolNodeRun
    start: Start = _NOT_STARTED
    owner: str = ""

    @classmethod
    def from_request(cls, request: ToolCallRequest) -> RecordedCall | None:
        """Read a request; None if a task is impossible (no graph) or unnecessary (`Send`)."""
        config = request.runtime.config if request.runtime else RunnableConfig()
        info = request.runtime.execution_info if request.runtime else None
        kind = task_kind(config)
        if not can_start_tasks(config) or info is None or kind == "send":
            return None
        # The namespace of a @task does not lead to its checkpoint, so nothing is read or marked.
        saver = None if kind == "task" else checkpointer_of(config)
        siblings = _siblings(request.state, request.tool_call)
        index = _index_in(siblings, request.tool_call)
        node_run = NodeRun.of(config)
        # A retry may begin while calls of the attempt before it still run.
        key = info.node_attempt, tuple(call["id"] for call in siblings)
        run = node_run.tool_node_run(key, index, request.runtime)
        configurable = config.get("configurable", {})
        return cls(request, info, configurable, saver, siblings, index, node_run, run)

    @property
    def id(self) -> str | None:
        """The id that the model gave the call."""
        return self.request.tool_call["id"]

    # --- start ----------------------------------------------------------------------------

    def start_task(self, body: Callable[[], Any]) -> Any:
        """Start the task, or find that of an earlier attempt. Then let the next call start.

        Returns:
            The future of the task.
        """
        request_hash = _hash_of(self.siblings, self.index, self.request.tool_call)
        key = self.info.node_attempt, self.id, request_hash
        self.start = Start(request_hash, *self.node_run.count_start(key, self.request.runtime))
        future = self.node_run.earlier_future(self.id, self.start)
        if future is not None:
            self.owner = "earlier attempt"
        else:
            begin = cast("Any", task)(name=task_name(self.id, self.start))(body)
            future = self.node_run.task_future(self.id, self.start, begin)
        self.run.has_started(self.index)
        return future

    def waits_for_worker(self, future: Any) -> bool:
        """Whether no worker has taken the call yet.

        Raises:
            RecordingError: If no worker took it within `START_SECONDS`. It is never run then.
        """
        if self.owner or future.done():
            return False
        idle = 0.0 if self.run.active else time.monotonic() - self.run.last_finished
        if idle < START_SECONDS or not self._take("nobody"):
            return True
        future.cancel()
        raise RecordingError(
            f"Tool call {self.id!r} was not run: no worker took it within {START_SECONDS:g} s. "
            f"It needs a worker in addition to those that nodes and streams use. Raise "
            f"max_concurrency (now {self.request.runtime.config.get('max_concurrency')!r})."
        )

    def _take(self, owner: str) -> bool:
        with self.run.condition:
            self.owner = self.owner or owner
            return self.owner == owner

    # --- run ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Give the tool the interrupts and the namespace of its own task while it runs.

        `execute` uses the very dict `request.runtime.config`. With the node's `configurable`, all
        calls share one interrupt counter, and an answer that one call no longer needs goes to
        the next call.
        """
        if not self._take("worker"):
            raise RecordingError(f"Tool call {self.id!r} was not run: it has timed out.")
        config, run = self.request.runtime.config, self.run
        with run.condition:
            run.active += 1
        config["configurable"] = get_config()["configurable"]
        try:
            yield
        finally:
            config["configurable"] = self.configurable
            with run.condition:
                run.active, run.last_finished = run.active - 1, time.monotonic()

    def run_tool(self, execute: Callable[[ToolCallRequest], Any]) -> IOGenerator[Record]:
        """Return the record of an earlier run, or run the tool and record its result.

        Args:
            execute: Runs the tool: a function, or a coroutine function in an event loop.
        """
        if self.saver is not None and is_resuming({"configurable": self.configurable}):
            # LangGraph finds a result only if the task has the same index in its node again.
            saved = yield from self._read_checkpoint(self.saver)
            record = find_result(saved, self.id, self.info.task_id, self.start)
            if record is not None:
                return record
        try:
            run = IORequest(lambda: execute(self.request), lambda: execute(self.request))
            result = yield run
        except Exception as error:
            yield from self._mark(error)
            raise
        return make_record(self.id, self.info.task_id, self.start, result=result)

    def _read_checkpoint(self, saver: BaseCheckpointSaver[Any]) -> IOGenerator[Any]:
        """Read the checkpoint of the node once for all calls of the message."""
        run, thread = self.run, self._thread()

        def read() -> CheckpointTuple | None:
            with run.condition:
                run.reads = run.reads or [saver.get_tuple(thread)]
                return cast("CheckpointTuple | None", run.reads[0])

        async def aread() -> CheckpointTuple | None:
            run.reads = run.reads or [asyncio.ensure_future(saver.aget_tuple(thread))]
            return cast("CheckpointTuple | None", await asyncio.shield(run.reads[0]))

        try:
            return (yield IORequest(read, aread))
        except Exception as error:
            run.reads = []  # a retry reads again
            raise RecordingError(
                f"Tool call {self.id!r} was not run: the checkpointer raised {error!r} while "
                "the record of an earlier run was read, so the tool may have run already. "
                "Fix the checkpointer, then resume."
            ) from error

    def _mark(self, error: Exception) -> IOGenerator[None]:
        """Record that the running task belongs to this call. The tool's error takes precedence."""
        if self.saver is None:
            return
        own = (get_runtime().execution_info or self.info).task_id
        attempt = self.info.node_attempt
        mark = make_record(
            self.id, self.info.task_id, self.start, node_attempt=attempt, task_id=own
        )
        # Under an id of its own: after a write of the task itself, LangGraph takes it as finished.
        mark_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{MARK}:{own}"))
        config = self._thread(checkpoint_id=self.info.checkpoint_id)
        try:
            yield from call_method(self.saver, "put_writes", config, [(MARK, mark)], mark_id)
        except Exception as failure:  # noqa: BLE001 - the caller must get the tool's error
            error.add_note(f"langgraph-patch could not record the call of this task: {failure!r}")

    def _thread(self, **checkpoint: str) -> RunnableConfig:
        """The thread and the namespace of the graph that the node is in."""
        namespace = parent_namespace(self.info.checkpoint_ns)
        thread = {"thread_id": self.info.thread_id, "checkpoint_ns": namespace}
        return {"configurable": {**thread, **checkpoint}}


# --- the message of a call ----------------------------------------------------------------


def _siblings(state: Any, call: ToolCall) -> list[ToolCall]:
    """All calls of the message that a call belongs to, whatever the shape of the state."""
    channels = {"": state} if isinstance(state, list) else state
    channels = channels if isinstance(channels, Mapping) else vars(channels)
    for messages in channels.values():
        if isinstance(messages, list) and messages and isinstance(messages[-1], BaseMessage):
            last = next((m for m in reversed(messages) if isinstance(m, AIMessage)), None)
            if last is not None and _index_in(last.tool_calls, call) is not None:
                return last.tool_calls
    return []


def _index_in(siblings: list[ToolCall], call: ToolCall) -> int | None:
    """The index of a call: by id, because a wrapper may have changed its name or arguments.

    If several calls have the id, by identity, or else by name and arguments.
    """
    found = [i for i, sibling in enumerate(siblings) if sibling["id"] == call["id"]]
    if len(found) > 1:
        same = [i for i in found if siblings[i] is call]
        found = same or [i for i in found if _is_same(siblings[i], call)] or found
    return found[0] if found else None


def _is_same(one: ToolCall, other: ToolCall) -> bool:
    return hash_request(one) == hash_request(other)


def _hash_of(siblings: list[ToolCall], index: int | None, call: ToolCall) -> str:
    """The hash of a call as the model wrote it: a wrapper may change arguments in each run."""
    is_unique = sum(sibling["id"] == call["id"] for sibling in siblings) == 1
    if index is not None and is_unique:
        return hash_request(siblings[index])
    return hash_request(call, index)
