"""A `ToolNode` that records its calls, with everything that it had before.

**Order.** The record is outermost: it holds what the `ToolNode` receives, after every wrapper of
the application. If such a wrapper pauses for an approval, the pause is that of the call's own task,
so that the answer reaches this call (an interrupt outside of the record would be one of the node,
which counts those of all calls together). If it changes or replaces a result, the changed result
is kept, and the wrapper does not run again. If it answers a call itself, the call counts as
started.
In `create_agent`, `PatchToolCallsMiddleware(record=True)` records at its place in the list of
middleware; with both, a call is recorded here only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_core.runnables.config import run_in_executor
from langgraph.errors import GraphBubbleUp

from langgraph_patch._langgraph_prebuilt import tool_call_wrappers, with_tool_call_wrappers
from langgraph_patch.errors import GraphError
from langgraph_patch.recording.wrappers import arecord_tool_calls, record_tool_calls

if TYPE_CHECKING:  # the import costs as much time as all other imports together
    from langgraph.prebuilt import ToolNode
    from langgraph.prebuilt.tool_node import ToolCallRequest

_Wrapper = Callable[["ToolCallRequest", Callable[["ToolCallRequest"], Any]], Any]

NodeT = TypeVar("NodeT", bound="ToolNode")


def recorded_tool_node(node: NodeT) -> NodeT:
    """Make a `ToolNode` that records its calls, as `record_tool_calls` does.

    Args:
        node: The node, of `ToolNode` or a subclass. It is not changed.

    Returns:
        A copy with the same class, tools, name, tags, error handling and wrappers; `node` itself
        if it records its calls already.

    Raises:
        GraphError: If `node` is no `ToolNode` with `wrap_tool_call`.

    Examples:
        >>> from langgraph.prebuilt import ToolNode
        >>> from langgraph_patch.graph.recorded_tool_nodes import recorded_tool_node
        >>> def send_email(to: str) -> str:
        ...     "Send an email."
        ...     return f"sent to {to}"
        >>> node = recorded_tool_node(ToolNode([send_email], name="mails"))
        >>> node.name, list(node.tools_by_name), recorded_tool_node(node) is node
        ('mails', ['send_email'], True)
    """
    wrappers = tool_call_wrappers(node)
    if wrappers is None:
        raise GraphError(
            f"{node!r:.200} is a {type(node).__name__}: expected a ToolNode of langgraph.prebuilt "
            f"that accepts wrap_tool_call."
        )
    wrap, awrap = wrappers
    if _is_recording(wrap) and _is_recording(awrap):
        return node
    copied: NodeT = with_tool_call_wrappers(
        node, _recording(wrap), _arecording(wrap, awrap), unpack=_raise_again
    )
    return copied


def _is_recording(wrapper: _Wrapper | None) -> bool:
    return wrapper in (record_tool_calls, arecord_tool_calls) or hasattr(wrapper, _MARK)


_MARK = "__langgraph_patch_recording__"
"""The attribute of a wrapper that records."""


@dataclass
class _Raised:
    """An error that a `ToolNode` raises again: of a tool, if it does not handle it, or a pause.

    A `ToolNode` gives every error that comes out of a wrapper to `handle_tool_errors`, also an
    error of another type than those it handles. Without a wrapper, it raises that. Before
    langgraph-prebuilt 1.1 it handles even an interrupt so.
    """

    error: Exception


def _raise_again(result: Any) -> Any:
    if isinstance(result, _Raised):
        raise result.error
    return result


def _recording(wrap: _Wrapper | None) -> _Wrapper:
    """The synchronous wrapper, inside of the record."""
    if wrap is not None and _is_recording(wrap):
        return wrap

    def recording(request: ToolCallRequest, execute: Callable[[ToolCallRequest], Any]) -> Any:
        inner = execute if wrap is None else lambda made: wrap(made, execute)
        try:
            return record_tool_calls(request, inner)
        except GraphBubbleUp as error:
            return _Raised(error)
        except Exception as error:  # a tool may raise anything
            if wrap is not None:
                raise
            return _Raised(error)

    setattr(recording, _MARK, True)
    return recording


def _arecording(wrap: _Wrapper | None, awrap: _Wrapper | None) -> _Wrapper:
    """The asynchronous wrapper, or else the synchronous one, inside of the record."""
    if awrap is not None and _is_recording(awrap):
        return awrap
    inner = awrap
    if awrap is None and wrap is not None and not _is_recording(wrap):
        inner = _in_worker(wrap)

    async def arecording(
        request: ToolCallRequest, execute: Callable[[ToolCallRequest], Any]
    ) -> Any:
        run = execute if inner is None else lambda made: inner(made, execute)
        try:
            return await arecord_tool_calls(request, run)
        except GraphBubbleUp as error:
            return _Raised(error)
        except Exception as error:  # a tool may raise anything
            if inner is not None:
                raise
            return _Raised(error)

    setattr(arecording, _MARK, True)
    return arecording


def _in_worker(wrap: _Wrapper) -> _Wrapper:
    """An asynchronous wrapper that runs a synchronous one in a thread, and its tool in the loop.

    A `ToolNode` without an asynchronous wrapper calls the synchronous one, which would block the
    event loop while the tool runs.
    """

    async def call(
        request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        loop = asyncio.get_running_loop()

        def execute_in_loop(made: ToolCallRequest) -> Any:
            return asyncio.run_coroutine_threadsafe(_await(execute(made)), loop).result()

        return await run_in_executor(request.runtime.config, wrap, request, execute_in_loop)

    return call


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
