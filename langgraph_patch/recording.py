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
  `tasks` show one more chunk for each call, under the name `task_name(call id)`.

Not promised:

- Durability "exit" writes nothing before a run ends, so a crash loses all.
- A task made by `Send` is one call's own already (`create_agent`, `create_react_agent` v2) and is
  left alone: a task inside it could wait for ever for the worker that it holds itself.
- Each recorded call needs a worker besides the node's. If `max_concurrency` leaves none, then
  after `START_SECONDS` a `RecordingError` is raised instead of running the tool.
- A wrapper of yours may answer some calls itself. The next recorded call of the message then waits
  up to a second for its turn.
- Two calls of one message with one id keep their own results, but run again rather than be
  confused when a `RetryPolicy` and then a pause or a crash has changed their order.

For whoever reads a checkpoint's pending writes:

- `{"recorded": {"call", "node", "result"}}` in `__return__`: the call finished. The result is what
  the ToolNode got: a ToolMessage, a Command, or a list of them. `node` is the node's task id.
- `{"recorded": {"call", "node", "task"}}` in `MARK`: that task ran the call to no result. What
  happened is in the task's own writes: `__interrupt__` or `__error__`. Killed: no mark.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from langchain_core.messages import ToolMessage
from langgraph.errors import GraphInterrupt
from langgraph.types import Command

from langgraph_patch.errors import RecordingError
from langgraph_patch.recorded_call import POLL_SECONDS, Record, RecordedCall

if TYPE_CHECKING:  # as in recorded_call
    from langgraph.prebuilt.tool_node import ToolCallRequest

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

    with call.closing():
        future: concurrent.futures.Future[Record] = call.start_in_turn(body)
        while call.waits_for_worker(future):
            concurrent.futures.wait([future], timeout=POLL_SECONDS)
        try:
            return cast("Result", future.result()["recorded"]["result"])
        except GraphInterrupt:
            call.let_siblings_start()
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

    with call.closing():
        future: asyncio.Future[Record] = await call.astart_in_turn(body)
        while call.waits_for_worker(future):
            await asyncio.wait([future], timeout=POLL_SECONDS)
        return cast("Result", (await future)["recorded"]["result"])


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
