"""Read the messages from one item of a graph's stream, whatever shape the stream has.

| stream | shape of an item |
|---|---|
| `stream_mode="messages"` | `(message, metadata)` |
| a list of modes | `(mode, data)` |
| `subgraphs=True` | `(namespace, data)` or `(namespace, mode, data)` |
| `version="v2"` | `{"type": mode, "ns": namespace, "data": data}` |
| `RemoteGraph` | as above, with dicts as messages |
| the SDK's `runs.stream` | `StreamPart(event, data)`, the mode as event, perhaps `mode|namespace` |
| `astream_events` | `{"event": ..., "run_id": ..., "data": ..., "metadata": ...}` |
| the SDK's mode `events` | the same as data, with dicts as messages |
| `stream_events(version="v3")` | `{"method": mode, "params": {"namespace": ..., "data": ...}}` |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.checkpoint.serde.types import INTERRUPT

from langgraph_patch.errors import StreamError
from langgraph_patch.streaming.block_events import BlockEvents
from langgraph_patch.streaming.run_events import RunEvents, message_of, messages_in
from langgraph_patch.streaming.tool_results import Token

_MODES: Final = frozenset(
    {
        *("checkpoints", "custom", "debug", "lifecycle", "messages", "messages-tuple", "tasks"),
        *("tools", "updates", "values", "events", "input"),
        *("messages/complete", "messages/metadata", "messages/partial"),
    }
)
_EXPECTED = (
    "Expected what a graph streams with stream_mode='messages' (alone or in a list of modes), "
    "or its events"
)


class StreamReader:
    """Reads the items of one stream.

    Attributes:
        is_interrupted: Whether an item showed that the run has paused for a human.
        is_error: Whether the newest item is the report of a server that the run failed.
    """

    def __init__(self) -> None:
        self.is_interrupted = False
        self.is_error = False
        self._blocks = BlockEvents()
        self._events = RunEvents()
        self._source: str | None = None

    def read(self, item: Any) -> list[Token] | None:
        """The messages of an item with their metadata; None for an item of another mode.

        Raises:
            StreamError: If it is no item of a graph's stream.
        """
        if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], BaseMessage):  # noqa: PLR2004
            return [item] if isinstance(item[1], dict) else [_token(item, item)]
        match item:
            case {"event": str(), "run_id": _, "data": dict()}:
                return self._events.read(item)
            case tuple() if hasattr(item, "event") and hasattr(item, "data"):
                return self._read_part(str(item.event), item.data, item)
        if isinstance(item, dict):
            self._note_interrupts(item.get("interrupts"))
        mode, data = _mode_and_data(item)
        return self._read_mode(mode, data, item)

    def _read_part(self, event: str, data: object, item: object) -> list[Token] | None:
        mode = event.partition("|")[0]
        self.is_error = mode == "error"
        return self._read_mode(mode, data, item) if mode in _MODES else None

    def _read_mode(self, mode: str, data: Any, item: object) -> list[Token] | None:
        if mode in ("messages/partial", "messages/complete"):
            raise StreamError(
                f"The server's stream mode 'messages' repeats the whole text in each item; got "
                f"{mode!r}. Ask for stream_mode='messages-tuple'."
            )
        if mode in ("updates", "values") and isinstance(data, dict):
            self._note_interrupts(data.get(INTERRUPT))
        if mode == "events" and isinstance(data, dict):
            tokens = self._events.read_json(data)
            return tokens if tokens and self._is_source("events") else None
        if mode not in ("messages", "messages-tuple"):
            if mode in _MODES or isinstance(item, dict):
                self.is_error = mode == "error"
                return None
            raise StreamError(f"{_EXPECTED}; got {item!r:.500}.")
        if not self._is_source("messages"):
            return None
        match data:
            case ({"event": str()} as payload, dict() as metadata):
                return self._blocks.read(payload, metadata)
        return [_token(data, item)]

    def _is_source(self, mode: str) -> bool:
        """Whether this mode has brought the first message: another one repeats each message."""
        self._source = self._source or mode
        return mode == self._source

    def _note_interrupts(self, interrupts: object) -> None:
        self.is_interrupted = self.is_interrupted or bool(interrupts)


def final_results(update: object, namespace: tuple[str, ...]) -> Iterator[Token]:
    """The tool messages with which the output of a node ends, in an item of the mode `updates`.

    Args:
        update: The item: the outputs by node.
        namespace: The namespace of the graph.
    """
    if isinstance(update, dict):
        for node, output in update.items():
            messages = messages_in(output)
            models = [place for place, m in enumerate(messages) if isinstance(m, AIMessage)]
            for message in messages[models[-1] + 1 if models else 0 :]:
                if isinstance(message, ToolMessage):
                    place = "|".join((*namespace, node))
                    yield message, {"langgraph_node": node, "langgraph_checkpoint_ns": place}


# --- items and pairs -------------------------------------------------------------------


def _mode_and_data(item: object) -> tuple[str, Any]:
    match item:
        case {"type": "event", "method": str() as mode, "params": {"data": data}}:
            return mode, data
        case {"type": str() as mode, "ns": _, "data": data}:
            return mode, data
        case (tuple(), str() as mode, data) | (str() as mode, data):
            return mode, data
        case (tuple(), data):
            return "messages", data
    return "messages", item


def _is_pair(value: object) -> bool:
    """Whether a value is a message (or a dict of one) with its metadata."""
    if not isinstance(value, list | tuple) or len(value) != 2 or not isinstance(value[1], dict):  # noqa: PLR2004
        return False
    message = value[0]
    return isinstance(message, BaseMessage) or (isinstance(message, dict) and "type" in message)


def _token(pair: Any, item: object) -> Token:
    if not _is_pair(pair):
        raise StreamError(f"{_EXPECTED}; got {item!r:.500}.")
    message, metadata = pair
    return message if isinstance(message, BaseMessage) else message_of(message), metadata
