"""Read the messages from the events of a run: those of `astream_events`, or a server's.

A model's chunks are events. What a node wrote without a model is in the event of the node's end, as
LangGraph's own message stream has it: each message once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langgraph.constants import TAG_HIDDEN, TAG_NOSTREAM
from langgraph.types import Command

from langgraph_patch.errors import StreamError
from langgraph_patch.streaming.tool_results import Token

_MESSAGE_TYPES: Final[Mapping[str, type[BaseMessage]]] = {
    "ai": AIMessage,
    "AIMessageChunk": AIMessageChunk,
    "tool": ToolMessage,
}

_OF_MODEL = ("on_chat_model_stream", "on_chat_model_end")
_OF_NODE = "on_chain_end"


class RunEvents:
    """Reads the events of one run."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._without_id: dict[int, BaseMessage] = {}
        """The messages that came without an id, by identity. A reducer gives them one in place."""

    def read(self, event: Mapping[str, Any]) -> list[Token] | None:
        """The messages of an event with their metadata; None for an event without any."""
        metadata, data = event.get("metadata") or {}, event["data"]
        tags = event.get("tags") or ()
        if event["event"] in _OF_MODEL and TAG_NOSTREAM not in tags:
            if isinstance(chunk := data.get("chunk"), BaseMessage):
                self._note(chunk)
                return [(chunk, metadata)]
            return self._unseen([data.get("output")], metadata)
        node = metadata.get("langgraph_node")
        is_node = node is not None and node == event.get("name")
        if event["event"] == _OF_NODE and is_node and TAG_HIDDEN not in tags:
            for message in messages_in(data.get("input")):
                self._note(message)
            return self._unseen(messages_in(data.get("output")), metadata)
        return None

    def read_json(self, event: Mapping[str, Any]) -> list[Token] | None:
        """The same for an event of a server, in which messages are dicts."""
        if event.get("event") not in (*_OF_MODEL, _OF_NODE):
            return None
        return self.read({**event, "data": _with_messages(event.get("data") or {})})

    def _unseen(self, messages: Iterable[Any], metadata: dict[str, Any]) -> list[Token]:
        return [(m, metadata) for m in messages if isinstance(m, BaseMessage) and self._note(m)]

    def _note(self, message: BaseMessage) -> bool:
        """Note a message; return whether it is new."""
        if message.id in self._seen or id(message) in self._without_id:
            return False
        if message.id is None:
            self._without_id[id(message)] = message
        else:
            self._seen.add(message.id)
        return True


def messages_in(value: object) -> list[BaseMessage]:
    """The messages in the input or the output of a node, at the places where LangGraph looks."""
    if isinstance(value, Command):
        value = value.update
    if isinstance(value, BaseMessage):
        return [value]
    if isinstance(value, Mapping):
        nested = [v if isinstance(v, list | tuple) else [v] for v in value.values()]
        return [message for values in nested for message in values if _is_message(message)]
    if isinstance(value, list | tuple):
        if any(isinstance(each, Command) for each in value):
            return [message for each in value for message in messages_in(each)]
        return [message for message in value if _is_message(message)]
    if hasattr(value, "__dict__"):
        return messages_in(vars(value))
    return []


def _is_message(value: object) -> bool:
    return isinstance(value, BaseMessage)


# --- messages as JSON --------------------------------------------------------------------


def message_of(fields: dict[str, Any]) -> BaseMessage:
    """The message of a dict, as a server sends it.

    Raises:
        StreamError: If the dict has other fields than a message.
    """
    cls = _MESSAGE_TYPES.get(str(fields["type"]), BaseMessage)
    try:
        return cls.model_validate(fields)
    except (ValueError, KeyError) as error:  # KeyError: a ToolMessage without the id of its call
        raise StreamError(
            f"{fields!r:.500} is no message: {error}. Expected the fields of a LangChain message."
        ) from error


def _with_messages(value: Any) -> Any:
    """A value of an event, in which messages of models and tools, and commands, are objects."""
    if isinstance(value, list):
        return [_with_messages(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") in [*_MESSAGE_TYPES] and value.keys() >= {"content", "id"}:
        try:
            return message_of(value)
        except StreamError:  # a value of the application that only looks like a message
            return value
    if value.keys() >= {"graph", "update", "resume", "goto"}:
        return Command(update=_with_messages(value["update"]))
    return {key: _with_messages(each) for key, each in value.items()}
