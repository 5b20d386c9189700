"""The private details of `create_agent`, `create_react_agent` and `ToolNode`.

If LangGraph or LangChain changes one, `tool_messages_key` returns the default key and the other
functions return None or False; the caller then does without.

`tests/graph/test_langgraph_prebuilt.py` tests each function and constant. It fails if
LangGraph changes the detail.
"""

from __future__ import annotations

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
