"""List what the calls inside a call recorded: those of a subagent that the call ran."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_patch._langgraph import may_run_in_task
from langgraph_patch.evidence.checkpoint_messages import Checkpoint
from langgraph_patch.history.placeholders import (
    is_client_fake,
    is_foreign_placeholder,
    is_placeholder,
)
from langgraph_patch.history.tool_calls import Call, read_calls

_MAX_RESULTS = 8
_MAX_ARGUMENTS = 60
_MAX_TEXT = 120


def inner_results(subgraphs: Sequence[Checkpoint], namespace: str, task_id: str) -> tuple[str, ...]:
    """Short texts about the recorded results in the subgraphs of a task, newest first.

    Args:
        subgraphs: The checkpoints of the subgraphs of a superstep, newest first.
        namespace: The namespace of the graph that ran the task.
        task_id: The id of the task.
    """
    own = [c for c in subgraphs if may_run_in_task(c.namespace, namespace, task_id)]
    calls: dict[str, Call] = {}
    results: dict[str, ToolMessage] = {}
    for checkpoint in sorted(own, key=lambda c: c.id, reverse=True):
        for messages in _messages_of(checkpoint):
            for message in reversed(messages):
                if isinstance(message, AIMessage):
                    calls |= {call.id: call for call in read_calls(message)} | calls
                elif isinstance(message, ToolMessage) and _is_real(message):
                    results.setdefault(message.tool_call_id, message)
    texts = [_text(calls.get(call_id), result) for call_id, result in results.items()]
    return tuple(texts[:_MAX_RESULTS])


def _messages_of(checkpoint: Checkpoint) -> Iterator[Sequence[BaseMessage]]:
    """The pending writes, the newest first, then the history."""
    for _, written in reversed(checkpoint.written()):
        yield written
    yield checkpoint.history or ()


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
