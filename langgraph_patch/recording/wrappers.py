"""Finished tool work is neither lost nor done twice.

With a plain `ToolNode`, one call that waits for a human makes LangGraph run *all* calls of the
message again on resume, and a crash in the third tool forgets the first two. Hand these two
functions to the node, and each call becomes a LangGraph task whose result is a write of its own:

>>> from langchain_core.messages import AIMessage
>>> from langgraph.graph import MessagesState, StateGraph
>>> from langgraph.prebuilt import ToolNode
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

Promised, with a checkpointer and durability "sync" or "async":

- A recorded call is not run again by a resume, a retry or a restart: its result is read back.
- An answer to an `interrupt()` reaches the call that asked. So, as always with parallel tasks,
  two calls that wait at once must be resumed by interrupt id.
- State, order of results and the `messages` stream are those of the plain node. `updates` and
  `tasks` show one more chunk for each call, under a name that begins with `recorded_`.

Not promised:

- Durability "exit" writes nothing before a run ends, so a crash loses all.
- A task made by `Send` is one call's own already (`create_agent`, `create_react_agent` v2) and is
  left alone: a task inside it could wait for ever for the worker that it holds itself.
- Each recorded call needs a worker besides the node's. If `max_concurrency` leaves none, then
  after `START_SECONDS` a `RecordingError` is raised instead of running the tool.
- A wrapper of yours may answer some calls itself. The next recorded call of the message then waits
  up to a second for its turn.
- A result belongs to what the model asked for: the same id, name and arguments, counted from the
  node's beginning. If the node asks for something else when it is run again, that is run.

For whoever reads a checkpoint's pending writes:

- `{"recorded": {"call", "node", *START, "result"}}` in `__return__`: the call finished. The result
  is what the ToolNode got: a ToolMessage, a Command, or a list of them. `node` is the node's task
  id. `START` is "said", "round" and "trial" of `recorded_call.Start`, where one id is there often.
- `{"recorded": {"call", "node", *START, "attempt", "task"}}` in `MARK`: that task ran the call to
  no result, in this attempt of the node (1, 2 ...). What happened is in the task's own writes:
  `__interrupt__` or `__error__`. Killed: no mark.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from langchain_core.messages import ToolMessage
from langgraph.errors import GraphInterrupt
from langgraph.types import Command

from langgraph_patch.errors import RecordingError
from langgraph_patch.recording.recorded_call import POLL_SECONDS, Record, RecordedCall

if TYPE_CHECKING:  # as in recorded_call
    from langgraph.prebuilt.tool_node import ToolCallRequest

TURN_SECONDS = 1.0
"""How long a call waits for those before it, which may never come: a wrapper may answer them."""

Result: TypeAlias = ToolMessage | Command[Any]


def record_tool_calls(
    request: ToolCallRequest, execute: Callable[[ToolCallRequest], Result]
) -> Result:
    """Run a tool call as a task whose result outlives a pause, a retry and a crash.

    Args:
        request: The call, as `ToolNode` hands it to its `wrap_tool_call`.
        execute: Runs the tool.

    Returns:
        What the tool returns, or returned when it ran before. Outside a graph it just runs.

    Raises:
        RecordingError: The call could not be recorded. Its tool was not run.
    """
    if (call := RecordedCall.of(request)) is None:
        return execute(request)
    _refuse_event_loop(call)

    def body() -> Record:
        with call.working():
            if (saver := call.reads_from()) is not None:
                with call.run.turn, _reading(call):
                    call.run.saved = call.run.saved or [saver.get_tuple(call.thread())]
                if (found := call.found(call.run.saved[0])) is not None:
                    return found
            try:
                return call.record(execute(request))
            except Exception as error:
                if call.saver is not None:
                    with _second_to(error):
                        call.saver.put_writes(*call.mark())
                raise

    future: concurrent.futures.Future[Record] = _start_in_turn(call, body)
    while call.waits_for_worker(future):
        concurrent.futures.wait([future], timeout=POLL_SECONDS)
    try:
        return cast("Result", future.result()["recorded"]["result"])
    except GraphInterrupt:
        _let_siblings_start(call)
        raise


async def arecord_tool_calls(
    request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[Result]]
) -> Result:
    """Do what `record_tool_calls` does, as the `awrap_tool_call` of a `ToolNode`."""
    if (call := RecordedCall.of(request)) is None:
        return await execute(request)

    async def body() -> Record:
        with call.working():
            if (saver := call.reads_from()) is not None:
                if not call.run.saved:
                    call.run.saved = [asyncio.ensure_future(saver.aget_tuple(call.thread()))]
                with _reading(call):
                    saved = await asyncio.shield(call.run.saved[0])
                if (found := call.found(saved)) is not None:
                    return found
            try:
                return call.record(await execute(request))
            except Exception as error:
                if call.saver is not None:
                    with _second_to(error):
                        await call.saver.aput_writes(*call.mark())
                raise

    future: asyncio.Future[Record] = await _astart_in_turn(call, body)
    while call.waits_for_worker(future):
        await asyncio.wait([future], timeout=POLL_SECONDS)
    return cast("Result", (await future)["recorded"]["result"])


def _start_in_turn(call: RecordedCall, body: Callable[[], Record]) -> Any:
    """Start the task when the calls before this one have started theirs.

    LangGraph counts a node's tasks, and an interrupt gets its answer under the same count
    only. ToolNode's threads race for it. To be late is safe: a call is then asked again.
    """
    with call.run.turn:
        call.run.turn.wait_for(call.is_next, TURN_SECONDS)
        return call.begin(body)


async def _astart_in_turn(call: RecordedCall, body: Callable[[], Awaitable[Record]]) -> Any:
    """Do what `_start_in_turn` does. Who comes in turn does not await."""
    end = time.monotonic() + TURN_SECONDS
    while not call.is_next() and (left := end - time.monotonic()) > 0:
        call.run.waiters.append(waiter := asyncio.get_running_loop().create_future())
        await asyncio.wait([waiter], timeout=left)
    return call.begin(body)


def _let_siblings_start(call: RecordedCall) -> None:
    """Hold back the pause until the calls after this one have started.

    ToolNode's threads end with the first call that pauses. One not yet started would never be,
    and the answer that this run may have brought it would be lost. Only the first call in
    order has to wait; it holds a thread, so it cannot where there is but one.
    """
    if call.place is None or call.request.runtime.config.get("max_concurrency") == 1:
        return
    run, place, last = call.run, call.place, len(call.siblings)
    with run.turn:
        run.paused = min(run.paused, place)
        run.turn.notify_all()
        run.turn.wait_for(lambda: run.next >= last or run.paused != place, TURN_SECONDS)


@contextlib.contextmanager
def _reading(call: RecordedCall) -> Iterator[None]:
    # Without an answer nobody knows whether the tool has run: it is not run again.
    try:
        yield
    except Exception as error:
        call.run.saved = []  # a retry shall ask again
        raise RecordingError(
            f"Tool call {call.id!r} was not run now: the checkpointer raised {error!r} when it was "
            "asked what an earlier run had recorded. See to the checkpointer, then resume."
        ) from error


@contextlib.contextmanager
def _second_to(error: Exception) -> Iterator[None]:
    # Whatever fails in here, the tool's own error is what the caller must get.
    try:
        yield
    except Exception as failed:  # noqa: BLE001
        error.add_note(f"langgraph-patch could not mark the call: {failed!r}")


def _refuse_event_loop(call: RecordedCall) -> None:
    # ToolNode falls back to the sync wrapper in an async run: it would wait for a task that only
    # the event loop it blocks can run.
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RecordingError(
        f"Tool call {call.id!r} was not run: record_tool_calls would block "
        "the event loop. Give the ToolNode awrap_tool_call=arecord_tool_calls too."
    )
