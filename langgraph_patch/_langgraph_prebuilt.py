"""The private details of `create_agent`, `create_react_agent` and `ToolNode`.

If LangGraph or LangChain changes one, `tool_messages_key` returns the default key and the other
functions return None or False; the caller then does without.

`tests/graph/test_langgraph_prebuilt.py` tests each function and constant. It fails if
LangGraph changes the detail.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any, Final

# --- the nodes of prebuilt agents ---------------------------------------------------------

AFTER_MODEL: Final = ("post_model_hook", ".after_model")
"""The nodes that `create_react_agent` and `create_agent` run between the model and the tools: a
name, and the end of the names of middleware nodes."""

_TO_MODEL = ("agent", "model", "pre_model_hook", ".before_model", ".before_agent")
"""The model node and the nodes that run before it: names, and ends of names."""


def runs_after_model(node: str) -> bool:
    """Whether a prebuilt agent runs this node between the model and the tools.

    Examples:
        >>> from langgraph_patch._langgraph_prebuilt import runs_after_model
        >>> runs_after_model("HumanInTheLoopMiddleware.after_model"), runs_after_model("tools")
        (True, False)
    """
    return node == AFTER_MODEL[0] or node.endswith(AFTER_MODEL[1])


def leads_to_model(node: str) -> bool:
    """Whether a prebuilt agent goes to this node after its tools."""
    return node in _TO_MODEL[:-2] or node.endswith(_TO_MODEL[-2:])


def sent_call(send: object) -> dict[str, Any] | None:
    """The one tool call that a `Send` carries, or None.

    `create_agent` sends `[call]`, `create_react_agent` sends `{"tool_call": call, ...}`.
    """
    payload = getattr(send, "arg", None)
    call = payload.get("tool_call") if isinstance(payload, dict) else payload
    if isinstance(call, list) and len(call) == 1:
        call = call[0]
    return call if isinstance(call, dict) and call.get("id") else None


# --- tool nodes ----------------------------------------------------------------------------


def tool_messages_key(tool_node: Any) -> str:
    """The state key of the history that a `ToolNode` reads."""
    for attribute in ("_messages_key", "messages_key"):  # the second one in old versions
        if isinstance(key := getattr(tool_node, attribute, None), str):
            return key
    return "messages"


_WRAPPERS = ("_wrap_tool_call", "_awrap_tool_call")
"""The attributes of a `ToolNode` with its wrappers; `create_agent` offers no way to set them."""


def tool_call_wrappers(node: Any) -> tuple[Any, Any] | None:
    """The synchronous and the asynchronous wrapper of a `ToolNode`; None for anything else."""
    attributes = getattr(node, "__dict__", {})
    if not hasattr(type(node), "tools_by_name") or not attributes.keys() >= set(_WRAPPERS):
        return None
    return attributes[_WRAPPERS[0]], attributes[_WRAPPERS[1]]


_RUNNERS = ("_run_one", "_arun_one")
"""The methods of a `ToolNode` that run one call and return its result."""


def with_tool_call_wrappers(
    node: Any, wrap: Any, awrap: Any, *, unpack: Callable[[Any], Any]
) -> Any:
    """A copy of a `ToolNode` with other wrappers.

    The node holds its own methods as `func` and `afunc`. The copy must run its own.

    Args:
        node: The node.
        wrap: The synchronous wrapper.
        awrap: The asynchronous wrapper.
        unpack: Called with what a wrapper returned for a call. The node continues with what it
            returns or raises. Without the methods of `_RUNNERS` it is not called.
    """
    copied = copy.copy(node)
    for attribute, value in vars(node).items():
        if getattr(value, "__self__", None) is node:
            setattr(copied, attribute, types.MethodType(value.__func__, copied))
    for attribute, wrapper in zip(_WRAPPERS, (wrap, awrap), strict=True):
        setattr(copied, attribute, wrapper)
    run: Any = getattr(copied, _RUNNERS[0], None)
    arun: Any = getattr(copied, _RUNNERS[1], None)

    def run_one(*args: Any, **kwargs: Any) -> Any:
        return unpack(run(*args, **kwargs))

    async def arun_one(*args: Any, **kwargs: Any) -> Any:
        return unpack(await arun(*args, **kwargs))

    if run is not None and arun is not None:
        for attribute, runner in zip(_RUNNERS, (run_one, arun_one), strict=True):
            setattr(copied, attribute, runner)
    return copied
