"""Read from one chunk of a stream what checkers decide on: calls, reasoning, phase, model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from langchain_core.messages import AIMessage

from langgraph_patch.history.calls import type_of, unwrapped

REASONING_BLOCKS: Final = frozenset(
    {"reasoning", "reasoning_content", "redacted_thinking", "thinking"}
)

_CALLS_OUTSIDE_TOOL_CALLS: Final = frozenset(
    {"apply_patch_call", "computer_call", "local_shell_call", "mcp_approval_request", "shell_call"}
)
"""OpenAI's blocks that the client must answer, and that LangChain does not list as tool calls."""


def has_call(chunk: AIMessage) -> bool:
    """Whether a chunk contains a tool call or a piece of one.

    OpenAI's older `function_call`, and its calls of a computer or a shell, count too.
    """
    if chunk.tool_calls or chunk.invalid_tool_calls:
        return True
    if (extra := chunk.additional_kwargs) and _has_call_beside(extra):
        return True
    if isinstance(chunk.content, str):
        return False
    return any(
        type_of(unwrapped(block)) in _CALLS_OUTSIDE_TOOL_CALLS
        for block in chunk.content
        if isinstance(block, dict)
    )


def _has_call_beside(extra: Mapping[str, Any]) -> bool:
    outputs = extra.get("tool_outputs")
    blocks = [o for o in outputs if isinstance(o, dict)] if isinstance(outputs, list) else []
    is_call = any(type_of(block) in _CALLS_OUTSIDE_TOOL_CALLS for block in blocks)
    return is_call or bool(extra.get("function_call"))


def has_reasoning(chunk: AIMessage) -> bool:
    """Whether a chunk contains reasoning."""
    if chunk.additional_kwargs.get("reasoning_content"):
        return True
    return any(type_of(block) in REASONING_BLOCKS for block in _blocks(chunk))


def phase_of(chunk: AIMessage) -> str | None:
    """The phase that OpenAI names for the text that begins in a chunk, or None.

    It is `"commentary"` for text before tool calls and `"final_answer"` for an answer.
    """
    for block in chunk.content:
        if isinstance(block, dict) and ("phase" in block or "extras" in block):
            extras = block.get("extras")
            phase = block.get("phase") or (isinstance(extras, dict) and extras.get("phase"))
            if isinstance(phase, str):
                return phase
    return None


def model_key(provider: str | None, name: str | None) -> str | None:
    """The model as `"provider:name"`; None if either is missing."""
    return f"{provider}:{name}" if provider and name else None


def _blocks(chunk: AIMessage) -> Iterator[Mapping[str, Any]]:
    content = chunk.content
    if content and isinstance(content, list):
        for block in content:
            if isinstance(block, dict):
                yield unwrapped(block)
