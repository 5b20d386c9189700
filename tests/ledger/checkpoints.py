"""What a checkpointer has recorded: read raw, with the saver, and without the library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import ToolMessage

from ledger.world import ANSWER, RECEIPT

LIBRARY_MARK = "langgraph_patch"


@dataclass
class Evidence:
    """What the checkpoints before a run have recorded.

    Attributes:
        results: The tool messages in pending writes (placeholders excepted).
        executions: The receipts in those, of results and of handled errors.
        errors: The receipts in recorded errors.
        error_texts: The recorded errors.
        asked: The interrupt values.
        answers: The labels of recorded answers to interrupts.
        approved: The ids of messages after which an interrupt and an answer are recorded.
    """

    results: list[ToolMessage] = field(default_factory=list)
    executions: set[int] = field(default_factory=set)
    errors: set[int] = field(default_factory=set)
    error_texts: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    answers: set[str] = field(default_factory=set)
    approved: set[str] = field(default_factory=set)

    @property
    def cancelled(self) -> bool:
        """Whether a cancellation is recorded."""
        return any("CancelledError" in text for text in self.error_texts)


def lineage(rows: Iterable[Any], start: str | None) -> set[str]:
    """The ids of a root checkpoint and its ancestors."""
    parents = {}
    for row in rows:
        own = row.config["configurable"]
        if not own.get("checkpoint_ns"):
            parent = (row.parent_config or {}).get("configurable", {}).get("checkpoint_id")
            parents[own["checkpoint_id"]] = parent
    found: set[str] = set()
    while start is not None and start not in found:
        found.add(start)
        start = parents.get(start)
    return found


def evidence_in(rows: list[Any], start: str | None) -> Evidence:
    """What is recorded in a root checkpoint, in its ancestors, and in subgraphs under them.

    A subgraph that keeps its state between runs has one line of checkpoints, whichever of the
    root's checkpoints a run begins at.

    Args:
        rows: All rows of the thread, of every namespace.
        start: The id of the root checkpoint.
    """
    found = Evidence()
    line = lineage(rows, start)
    for row in rows:
        own = row.config["configurable"]
        root, namespace = own["checkpoint_id"], own.get("checkpoint_ns")
        if namespace:
            root = (row.metadata.get("parents") or {}).get("", None)
        if root in line or (namespace and ":" not in namespace):
            for _, channel, value in row.pending_writes or ():
                _add(found, channel, value)
            if {"__interrupt__", "__resume__"} <= {w[1] for w in row.pending_writes or ()}:
                found.approved |= _last_message(row)
    return found


def _last_message(row: Any) -> set[str]:
    """The id of the last message of a model, if the row stores the history."""
    messages = row.checkpoint["channel_values"].get("messages")
    ids = [m.id for m in messages if m.type == "ai"] if isinstance(messages, list) else []
    return {str(ids[-1])} if ids else set()


def _add(found: Evidence, channel: str, value: Any) -> None:
    match channel:
        case "__error__":
            text = value if isinstance(value, str) else repr(value)
            found.error_texts.append(text)
            found.errors.update(map(int, RECEIPT.findall(text)))
        case "__interrupt__":
            found.asked.append(repr(value))
        case "__resume__":
            found.answers.update(ANSWER.findall(repr(value)))
        case _:
            for message in tool_messages(value):
                if LIBRARY_MARK not in message.additional_kwargs:
                    found.results.append(message)
                    found.executions.update(map(int, RECEIPT.findall(message.text)))


def tool_messages(value: Any, depth: int = 6) -> Iterator[ToolMessage]:
    """The tool messages anywhere in a written value."""
    if isinstance(value, ToolMessage):
        yield value
    elif depth and isinstance(value, dict):
        for part in value.values():
            yield from tool_messages(part, depth - 1)
    elif depth and isinstance(value, list | tuple):
        for part in value:
            yield from tool_messages(part, depth - 1)
    elif depth and hasattr(value, "update") and hasattr(value, "goto"):
        yield from tool_messages(value.update, depth - 1)
