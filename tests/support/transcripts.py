"""Histories, pending writes and log files in a form that tests compare."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_patch.history.placeholders import PLACEHOLDER_KEY


def cause_of(message: ToolMessage) -> str:
    """The cause in the marker of a placeholder; "real" for any other tool message."""
    return message.additional_kwargs.get(PLACEHOLDER_KEY, {}).get("cause", "real")


def statements(messages: Iterable[BaseMessage]) -> list[tuple[str, ...]]:
    """All messages but system messages: results with their causes, calls by their ids."""
    found: list[tuple[str, ...]] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            found.append((message.tool_call_id, message.text, cause_of(message)))
        elif isinstance(message, AIMessage) and message.tool_calls:
            found.append(("calls", *(str(call["id"]) for call in message.tool_calls)))
        elif message.type != "system":
            found.append((message.type, message.text))
    return found


def results_by_call(messages: Iterable[BaseMessage]) -> dict[str, tuple[str, str]]:
    """The text and the cause of each tool message, by its call id."""
    return {m.tool_call_id: (m.text, cause_of(m)) for m in messages if isinstance(m, ToolMessage)}


def logged_lines(folder: Path) -> list[str]:
    """The lines that the tools of `kill_agent` wrote to their log file."""
    log = folder / "log"
    return log.read_text().split() if log.exists() else []


def call_ids_in(value: Any) -> set[str]:
    """The ids of the calls that have a result in a pending write."""
    if isinstance(value, ToolMessage):
        return {value.tool_call_id}
    if isinstance(value, list):
        return {call_id for part in value for call_id in call_ids_in(part)}
    return set()
