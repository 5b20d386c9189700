"""List what the calls inside a call recorded: those of a subagent that the call ran."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_patch.evidence.checkpoint_messages import Checkpoint
from langgraph_patch.history.calls import Call, read_calls
from langgraph_patch.history.placeholders import (
    is_client_fake,
    is_foreign_placeholder,
    is_placeholder,
)

_MAX_RESULTS = 8
_MAX_ARGUMENTS = 60
_MAX_TEXT = 120

_Key: TypeAlias = tuple[str, str | None, str, str]
"""The namespace, the id of the message that makes the call, the id of the call, and the text.

Calls of one message may have one id. The text then tells their results apart.
"""


def inner_results(subgraphs: Sequence[Checkpoint]) -> tuple[str, ...]:
    """Short texts about the recorded results in the subgraphs of a call, newest first.

    Args:
        subgraphs: The checkpoints of the subgraphs of the tasks that ran the call.

    Returns:
        A text for each result. If there are many, the last text is the number of the others.
    """
    makers: dict[tuple[str, str], tuple[str | None, Call]] = {}
    results: dict[_Key, tuple[Call | None, ToolMessage]] = {}
    for checkpoint in sorted(subgraphs, key=lambda c: c.id):
        space = checkpoint.namespace
        for message in _messages_of(checkpoint):
            if isinstance(message, AIMessage):
                makers |= {(space, c.id): (message.id, c) for c in read_calls(message)}
            elif isinstance(message, ToolMessage) and _is_real(message):
                # The next message may use an id again: a result belongs to the nearest call.
                maker, call = makers.get((space, message.tool_call_id), (None, None))
                results[space, maker, message.tool_call_id, message.text] = call, message
    texts = [_text(call, result) for call, result in reversed(results.values())]
    more = len(texts) - _MAX_RESULTS
    return (*texts[:_MAX_RESULTS], *([f"(+{more})"] if more > 0 else []))


def _messages_of(checkpoint: Checkpoint) -> Iterator[BaseMessage]:
    """The history, then the pending writes."""
    yield from checkpoint.history or ()
    for _, written in checkpoint.written():
        yield from written


def _is_real(message: ToolMessage) -> bool:
    return not (
        is_placeholder(message) or is_foreign_placeholder(message) or is_client_fake(message)
    )


def _text(call: Call | None, result: ToolMessage) -> str:
    name = call.name if call else result.name or "tool"
    args = json.dumps(call.args, ensure_ascii=False, default=repr) if call and call.args else ""
    text = " ".join(str(result.text).split())
    return f"{name}({_short(args, _MAX_ARGUMENTS)}): {_short(text, _MAX_TEXT)}"


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
