"""Record tool calls: a finished call keeps its result through a pause, a retry or a crash.

A plain `ToolNode` runs all calls of a message in one task. If one call interrupts, or if one
tool crashes, LangGraph runs all of them again. `record_tool_calls` and
`arecord_tool_calls` run each call as a task of its own, so that LangGraph stores each result as
soon as it is there.

With a checkpointer and durability "sync" or "async":

- A resume, a retry or a restart does not run a finished call again. Its result is read back.
- The answer to an `interrupt()` reaches the call that asked for it. As with all parallel tasks,
  two calls that wait at the same time must be resumed by interrupt id.
- Each start of a tool is marked in the checkpoint before it happens. So a call without a result
  is reported as started or not started, also after a kill. With durability "exit", no start is
  marked.
- A result survives an `update_state` between the pause and the resume. A fork, which is an
  `update_state` on a checkpoint that is not the newest, runs its calls again.
- The state, the order of the results and the `messages` stream are those of a plain `ToolNode`.
  The `updates` and `tasks` streams have one more chunk for each call, under a name that begins
  with `recorded_`.

A call is recorded once, also if a `ToolNode`, a middleware and a `recorded_tool` would each record
it: the outermost of them does. The calls of a graph inside a tool are recorded too.

Limits:

- With durability "exit", nothing is written before a run ends, so a crash loses all results.
- A task that a `Send` made runs one call already (`create_agent`, `create_react_agent` v2), and
  LangGraph keeps its result. There only the starts are marked: a task inside it might wait forever
  for the worker that it uses itself. After an `update_state`, the result is read from that task.
- Pass all calls of a node to `record_tool_calls`, or none. A call without a start mark beside
  calls with one is reported as not run.
- Each recorded call needs a worker in addition to the node's. If `max_concurrency` leaves none,
  a `RecordingError` is raised after `recorded_call.START_SECONDS`, and the tool is not run.
- If a wrapper of your own answers a call itself, the next recorded call of the message starts up
  to `ORDER_SECONDS` later.
- A result belongs to one request: the id, the name and the arguments in the model's message, and
  how often the node has made it before. If the node makes another request when it runs again,
  that request runs.

The format of what is stored is in `records`. A tool that must not do its work twice, even if it
is killed in the middle of it, can pass `idempotency_key` to the service that it calls.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphInterrupt
from langgraph.types import Command

from langgraph_patch._sansio import run_async, run_sync
from langgraph_patch.errors import RecordingError
from langgraph_patch.recording.recorded_call import RecordedCall
from langgraph_patch.recording.records import Record, read_record

if TYPE_CHECKING:  # the import costs as much time as all other imports together
    from langgraph.prebuilt.tool_node import ToolCallRequest

ORDER_SECONDS = 1.0
"""How long a call waits until the calls before it have started."""

POLL_SECONDS = 0.5
"""How often a call checks whether a worker has taken it."""

Result: TypeAlias = ToolMessage | Command[Any]


def record_tool_calls(
    request: ToolCallRequest, execute: Callable[[ToolCallRequest], Result]
) -> Result:
    """Run a tool call as a task that keeps its result through a pause, a retry or a crash.

    Pass this function to a `ToolNode` as `wrap_tool_call`, and `arecord_tool_calls` as
    `awrap_tool_call`. See the module for what this guarantees.

    Args:
        request: The call, as the `ToolNode` passes it to its `wrap_tool_call`.
        execute: Runs the tool. The `ToolNode` passes it too.

    Returns:
        What the tool returned: in this run, or in an earlier run of the same call. Outside a
        graph, `execute(request)` without a record.

    Raises:
        RecordingError: If the tool was not run, because the checkpointer failed, because no
            worker was free (raise `max_concurrency`), or because the graph runs in an event
            loop and the `ToolNode` has no `awrap_tool_call`.

    Examples:
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph.prebuilt import ToolNode
        >>> from langgraph_patch import arecord_tool_calls, record_tool_calls
        >>> def send_email(to: str) -> str:
        ...     "Send an email."
        ...     return f"sent to {to}"
        >>> tools = ToolNode([send_email], wrap_tool_call=record_tool_calls,
        ...                  awrap_tool_call=arecord_tool_calls)
        >>> builder = StateGraph(MessagesState).add_node("tools", tools).set_entry_point("tools")
        >>> call = {"name": "send_email", "args": {"to": "bob"}, "id": "c1"}
        >>> state = builder.compile().invoke({"messages": [AIMessage("", tool_calls=[call])]})
        >>> state["messages"][-1].content
        'sent to bob'
    """
    call = RecordedCall.from_request(request)
    if call is None or _is_repeated(request):
        return execute(request)
    return cast("Result", run_recorded(call, execute))


async def arecord_tool_calls(
    request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[Result]]
) -> Result:
    """Run a tool call as a task that keeps its result; the asynchronous `record_tool_calls`.

    Pass this function to a `ToolNode` as `awrap_tool_call`.

    Args:
        request: The call, as the `ToolNode` passes it to its `awrap_tool_call`.
        execute: Runs the tool. The `ToolNode` passes it too.

    Returns:
        What the tool returned: in this run, or in an earlier run of the same call. Outside a
        graph, `await execute(request)` without a record.

    Raises:
        RecordingError: If the tool was not run, because the checkpointer failed, or because no
            worker was free (raise `max_concurrency`).

    Examples:
        >>> import asyncio
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph.prebuilt import ToolNode
        >>> from langgraph_patch import arecord_tool_calls
        >>> async def send_email(to: str) -> str:
        ...     "Send an email."
        ...     return f"sent to {to}"
        >>> tools = ToolNode([send_email], awrap_tool_call=arecord_tool_calls)
        >>> builder = StateGraph(MessagesState).add_node("tools", tools).set_entry_point("tools")
        >>> call = {"name": "send_email", "args": {"to": "bob"}, "id": "c1"}
        >>> state = {"messages": [AIMessage("", tool_calls=[call])]}
        >>> asyncio.run(builder.compile().ainvoke(state))["messages"][-1].content
        'sent to bob'
    """
    call = RecordedCall.from_request(request)
    if call is None or _is_repeated(request):
        return await execute(request)
    return cast("Result", await arun_recorded(call, execute))


# --- one call at a time ------------------------------------------------------------------------

_recording: ContextVar[tuple[str | None, str] | None] = ContextVar("_recording", default=None)
"""The id of the call that is recorded here, and the namespace of the task that runs it."""


def is_being_recorded(call_id: str | None, config: RunnableConfig) -> bool:
    """Whether this very call is recorded already: by a middleware, a wrapper or a recorded tool.

    Args:
        call_id: The id of the call.
        config: The config that the tool gets. A graph inside a tool has other namespaces, so its
            calls are recorded too, also those with the same id.
    """
    return _recording.get() == (call_id, _namespace_in(config))


def _is_repeated(request: ToolCallRequest) -> bool:
    return is_being_recorded(request.tool_call["id"], request.runtime.config)


def _namespace_in(config: RunnableConfig) -> str:
    return str(config.get("configurable", {}).get("checkpoint_ns", ""))


@contextlib.contextmanager
def _noted(request: Any) -> Iterator[None]:
    call_id, config = request.tool_call["id"], request.runtime.config
    token = _recording.set((call_id, _namespace_in(config)))
    try:
        yield
    finally:
        _recording.reset(token)


def run_recorded(call: RecordedCall, execute: Callable[[Any], Any]) -> Any:
    """Run a tool call as a task and return its result, or that of an earlier run.

    Args:
        call: The call.
        execute: Runs the tool, with the request of the call.

    Raises:
        RecordingError: If the tool was not run.
    """

    def noted(request: Any) -> Any:
        with _noted(request):
            return execute(request)

    if call.has_own_task:
        # An asynchronous checkpointer cannot be called synchronously in an event loop.
        if _is_in_event_loop():
            return execute(call.request)
        return run_sync(call.run_in_task_of_send(noted))
    _refuse_event_loop(call)

    def body() -> Record:
        with call.working():
            return run_sync(call.run_tool(noted))

    future: concurrent.futures.Future[Record] = _start_in_order(call, body)
    while call.waits_for_worker(future):
        concurrent.futures.wait([future], timeout=POLL_SECONDS)
    try:
        return _result_in(future.result())
    except GraphInterrupt:
        _wait_for_siblings(call)
        raise


async def arun_recorded(call: RecordedCall, execute: Callable[[Any], Awaitable[Any]]) -> Any:
    """The asynchronous `run_recorded`."""

    async def noted(request: Any) -> Any:
        with _noted(request):
            return await execute(request)

    if call.has_own_task:
        return await run_async(call.run_in_task_of_send(noted))

    async def body() -> Record:
        with call.working():
            return await run_async(call.run_tool(noted))

    future: asyncio.Future[Record] = await _astart_in_order(call, body)
    while call.waits_for_worker(future):
        await asyncio.wait([future], timeout=POLL_SECONDS)
    try:
        return _result_in(await future)
    except GraphInterrupt:
        if call.order is not None:
            await _await_turn(call, len(call.siblings))
        raise


def _result_in(value: Record) -> Any:
    return cast("Record", read_record(value))["result"]


def _start_in_order(call: RecordedCall, body: Callable[[], Record]) -> Any:
    """Start the task as soon as the calls before this one have started theirs.

    LangGraph counts the tasks of a node, and an answer reaches an interrupt only under the same
    count. The threads of a `ToolNode` start in any order. A call that starts late is safe: it is
    interrupted again.
    """
    with call.run.condition:
        call.run.condition.wait_for(lambda: call.run.may_start(call.order), ORDER_SECONDS)
        return call.start_task(body)


async def _astart_in_order(call: RecordedCall, body: Callable[[], Awaitable[Record]]) -> Any:
    """The asynchronous `_start_in_order`.

    It does not await anything if it is already this call's turn, because another call could
    start in between.
    """
    await _await_turn(call, call.order)
    return call.start_task(body)


async def _await_turn(call: RecordedCall, index: int | None) -> None:
    """Wait until the calls before `index` have started."""
    end = time.monotonic() + ORDER_SECONDS
    while not call.run.may_start(index) and (left := end - time.monotonic()) > 0:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call.run.waiters.append(waiter)
        await asyncio.wait([waiter], timeout=left)


def _wait_for_siblings(call: RecordedCall) -> None:
    """Delay an interrupt until the calls after this one have started.

    A `ToolNode` ends its threads with the first interrupt. A call that has not started by then
    is not started at all, and an answer for it in this run is lost. Only the first interrupted
    call waits. It occupies a thread, so it cannot wait if there is only one.
    """
    if call.order is None or call.request.runtime.config.get("max_concurrency") == 1:
        return
    call.run.wait_for_siblings(call.order, len(call.siblings), ORDER_SECONDS)


def _refuse_event_loop(call: RecordedCall) -> None:
    # A ToolNode without awrap_tool_call uses the synchronous wrapper in an event loop. That
    # would block the loop while it waits for a task that only this loop can run.
    if not _is_in_event_loop():
        return
    advice = "Pass awrap_tool_call=arecord_tool_calls to the ToolNode too."
    if call.is_in_loop:
        advice = "In an asynchronous function, await the ainvoke of the tool."
    raise RecordingError(
        f"Tool call {call.id!r} was not run: its record would block the event loop. {advice}"
    )


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
