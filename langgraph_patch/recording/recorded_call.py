"""One tool call of a `ToolNode`: as a LangGraph task, or in the task of a `Send` with marks.

This module identifies a call, starts its task, runs the tool and recovers its earlier result.
What is marked in the checkpoint is in `marks`, how threads and event loops wait for each other in
`wrappers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from langchain_core.messages import ToolCall
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.config import get_config
from langgraph.func import task
from langgraph.runtime import get_runtime

from langgraph_patch._langgraph import (
    can_start_tasks,
    checkpointer_of,
    graph_namespace,
    is_resuming,
    node_of,
    state_of,
    task_kind,
    writes_at_exit,
)
from langgraph_patch._langgraph_tasks import UNKNOWN_ATTEMPT, TaskInfo, task_info
from langgraph_patch._langgraph_versions import needs
from langgraph_patch._sansio import IOGenerator, IORequest, run_async, run_sync
from langgraph_patch.errors import RecordingError
from langgraph_patch.recording.call_messages import find_index, find_message
from langgraph_patch.recording.marks import MarkedStart, mark_end, mark_start
from langgraph_patch.recording.node_runs import NodeRun, ToolNodeRun
from langgraph_patch.recording.records import (
    CallKey,
    Record,
    Start,
    find_result,
    hash_of_call,
    hash_request,
    make_record,
    task_name,
)
from langgraph_patch.recording.sent_results import find_sent_result
from langgraph_patch.recording.supersteps import continued_supersteps

if TYPE_CHECKING:  # the import costs as much time as all other imports together
    from langgraph.prebuilt.tool_node import ToolCallRequest

START_SECONDS = 30.0
"""How long a call waits for a worker while no other call of its message runs."""

_NOT_STARTED: Final = Start("", 0, 0)


@dataclass(eq=False)
class RecordedCall:
    """One call of a message, in one attempt of its node.

    Attributes:
        request: The request of the `ToolNode`.
        info: What identifies the attempt of the node.
        configurable: The node's own `config["configurable"]`.
        saver: The checkpointer, or None.
        has_own_task: Whether a `Send` made a task for this call alone.
        key: Which call of which node this is.
        siblings: All calls of the message.
        index: The index of the call among them, or None if it is not among them.
        node_run: The run of the node.
        run: The run of the `ToolNode`.
        is_in_loop: Whether a loop of the application makes the call, and no `ToolNode`.
        start: Which start of the call this is.
        owner: Who has taken the call: a `worker`, an `earlier attempt`, or `nobody` after
            `START_SECONDS`.
    """

    request: ToolCallRequest
    info: TaskInfo
    configurable: dict[str, Any]
    saver: BaseCheckpointSaver[Any] | None
    has_own_task: bool
    key: CallKey
    siblings: list[ToolCall]
    index: int | None
    node_run: NodeRun
    run: ToolNodeRun
    is_in_loop: bool = False
    start: Start = _NOT_STARTED
    owner: str = ""

    @classmethod
    def from_request(cls, request: ToolCallRequest) -> RecordedCall | None:
        """Read a request; None if nothing can be recorded: no graph, or a `Send` and no saver."""
        config = request.runtime.config if request.runtime else RunnableConfig()
        info = task_info(config, request.runtime)
        if not can_start_tasks(config) or info is None:
            return None
        kind = task_kind(config)
        # The namespace of a @task does not lead to its checkpoint, so nothing is read or marked.
        saver = None if kind == "task" else checkpointer_of(config)
        if kind == "send" and saver is None:
            return None
        call = request.tool_call
        refuse_uncounted_attempts(info, call["id"])
        message_id, siblings = find_message(request.state, call)
        if message_id is None and kind == "send":  # old versions pass the call as the state
            message_id, siblings = find_message(state_of(config), call)
        index = find_index(siblings, call)
        name = call["name"] if index is None else siblings[index]["name"]
        key = CallKey(message_id, call["id"], name, node_of(config) or "", info.task_id)
        node_run = NodeRun.of(config)
        # A retry may begin while calls of the attempt before it still run.
        run_key = info.node_attempt, tuple(call["id"] for call in siblings)
        return cls(
            request=request,
            info=info,
            configurable=config.get("configurable", {}),
            saver=saver,
            has_own_task=kind == "send",
            key=key,
            siblings=siblings,
            index=index,
            node_run=node_run,
            run=node_run.tool_node_run(run_key, index, request.runtime),
        )

    @property
    def id(self) -> str | None:
        """The id that the model gave the call."""
        return self.request.tool_call["id"]

    @property
    def order(self) -> int | None:
        """How many calls of the message start before this one; None in a loop, which may skip."""
        return None if self.is_in_loop else self.index

    # --- start ----------------------------------------------------------------------------

    def start_task(self, body: Callable[[], Any]) -> Any:
        """Start the task, or find that of an earlier attempt. Then let the next call start.

        Returns:
            The future of the task.
        """
        self._count_start()
        future = self.node_run.earlier_future(self.id, self.start)
        if future is not None:
            self.owner = "earlier attempt"
        else:
            begin = cast("Any", task)(name=task_name(self.id, self.start))(body)
            future = self.node_run.task_future(self.id, self.start, begin)
        self.run.has_started(self.order)
        return future

    def _count_start(self) -> None:
        request_hash = _hash_of(self.siblings, self.index, self.request.tool_call)
        key = self.info.node_attempt, self.id, request_hash
        # All starts of a call in a loop are tries: a later one may have done the work of the first.
        runtime = self.node_run if self.is_in_loop else self.request.runtime
        self.start = Start(request_hash, *self.node_run.count_start(key, runtime))

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
            supersteps = yield from self._read_supersteps(self.saver)
            record = find_result(supersteps, self.key, self.start)
            if record is not None:
                return record
        own = (task_info(get_config(), get_runtime()) or self.info).task_id
        started, result = yield from self._run_between_marks(execute, own)
        return make_record(self.key, self.start, started=started, result=result)

    def run_in_task_of_send(self, execute: Callable[[ToolCallRequest], Any]) -> IOGenerator[Any]:
        """Run the tool as it is, between marks. LangGraph stores the result of the task itself.

        If `update_state` was called since the call finished, LangGraph makes another task, and
        the result of the earlier task is returned.

        Args:
            execute: As in `run_tool`.
        """
        self._count_start()
        if self.saver is not None and is_resuming({"configurable": self.configurable}):
            supersteps = yield from self._read_supersteps(self.saver)
            result = find_sent_result(supersteps, self.key, self.start.request_hash)
            if result is not None:
                return result
        _, result = yield from self._run_between_marks(execute, self.info.task_id)
        return result

    def _run_between_marks(
        self, execute: Callable[[ToolCallRequest], Any], own_task: str
    ) -> IOGenerator[tuple[int | None, Any]]:
        """Run the tool. Durability "exit" has no checkpoint yet in which its start can be marked.

        Returns:
            When it started, or None if that was not marked; and its result.
        """
        marked, started = self._marked_start(own_task), None
        if marked is not None and not writes_at_exit({"configurable": self.configurable}):
            started = yield from mark_start(marked)
        try:
            run = IORequest(lambda: execute(self.request), lambda: execute(self.request))
            return started, (yield run)
        except Exception as error:  # raised again: a tool may raise anything
            if marked is not None:
                yield from mark_end(marked, started, error)
            raise

    def _marked_start(self, own_task: str) -> MarkedStart | None:
        """What is marked of a start in the task `own_task`; None without a checkpointer."""
        if self.saver is None:
            return None
        return MarkedStart(
            saver=self.saver,
            checkpoint=self._thread(checkpoint_id=self.info.checkpoint_id),
            key=self.key,
            start=self.start,
            task_id=own_task,
            node_attempt=self.info.node_attempt,
            is_in_loop=self.is_in_loop,
        )

    def _read_supersteps(self, saver: BaseCheckpointSaver[Any]) -> IOGenerator[Any]:
        """Read the checkpoints with earlier records once for all calls of the message."""
        run = self.run

        def reading() -> IOGenerator[list[CheckpointTuple]]:
            return continued_supersteps(saver, self._thread(), self.info.checkpoint_id)

        def read() -> list[CheckpointTuple]:
            with run.condition:
                run.reads = run.reads or [run_sync(reading())]
                return cast("list[CheckpointTuple]", run.reads[0])

        async def aread() -> list[CheckpointTuple]:
            run.reads = run.reads or [asyncio.ensure_future(run_async(reading()))]
            return cast("list[CheckpointTuple]", await asyncio.shield(run.reads[0]))

        try:
            return (yield IORequest(read, aread))
        except Exception as error:  # a checkpointer may raise anything
            run.reads = []  # a retry reads again
            raise RecordingError(
                f"Tool call {self.id!r} was not run: the checkpointer raised {error!r} while "
                "the record of an earlier run was read, so the tool may have run already. "
                "Run the graph again when the checkpointer works."
            ) from error

    def _thread(self, **checkpoint: str) -> RunnableConfig:
        """The thread and the namespace of the graph that the node is in."""
        metadata = self.request.runtime.config.get("metadata", {})
        namespace = graph_namespace({"configurable": self.configurable, "metadata": metadata})
        thread = {"thread_id": self.info.thread_id, "checkpoint_ns": namespace}
        return {"configurable": {**thread, **checkpoint}}


def refuse_uncounted_attempts(info: TaskInfo, call_id: str | None) -> None:
    """Raise an error if a call may be the same call of an earlier attempt, and nothing shows it.

    Raises:
        RecordingError: Before langgraph 1.1.3, in a node with a `RetryPolicy`. A retry would run
            finished calls again.
    """
    if info.node_attempt == UNKNOWN_ATTEMPT:
        needed = needs("a recorded call in a node with a RetryPolicy", "langgraph", "1.1.3")
        raise RecordingError(
            f"Tool call {call_id!r} was not run: {needed}. Upgrade langgraph, remove the "
            f"RetryPolicy from the node and the graph, or do not record the calls of this node."
        )


def _hash_of(siblings: list[ToolCall], index: int | None, call: ToolCall) -> str:
    """The hash of a call as the model wrote it: a wrapper may change the arguments."""
    is_unique = sum(sibling["id"] == call["id"] for sibling in siblings) == 1
    if index is not None and is_unique:
        return hash_of_call(siblings, index)
    return hash_request(call, index)
