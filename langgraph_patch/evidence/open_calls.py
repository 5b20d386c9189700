"""A call without a result, and what belongs to it in messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_patch.history.calls import Call, read_calls
from langgraph_patch.history.pairing import read_history
from langgraph_patch.history.placeholders import (
    is_client_fake,
    is_foreign_placeholder,
    is_placeholder,
)


class OpenCall(NamedTuple):
    """A call without a result.

    Attributes:
        message: The message that makes the call.
        id: The id of the call.
        ordinal: The position of the call among all calls of the message.
    """

    message: AIMessage
    id: str
    ordinal: int

    @property
    def twins(self) -> list[int]:
        """The positions of all calls of the message with this id, its own among them."""
        return [i for i, made in enumerate(read_calls(self.message)) if made.id == self.id]


def original_message(message: AIMessage) -> AIMessage:
    """A message with the ids that the model gave its calls; the same one if none was changed.

    A repair gives a new id to a call with an id that an earlier call has. Older checkpoints, and
    what the tool wrote, have the id of the model.
    """
    made = read_calls(message)
    if not any(call.earlier_ids for call in made):
        return message
    calls = [
        {"name": call.name, "args": dict(call.args), "id": [*call.earlier_ids, call.id][0]}
        for call in made
    ]
    return AIMessage("", id=message.id, tool_calls=calls)


# --- messages that may be of the call -----------------------------------------------------


def is_version_of(stored: BaseMessage, message: AIMessage) -> bool:
    """Whether a stored message is `message`, as it is now or as it was before an edit."""
    if stored.id is not None and message.id is not None:
        return stored.id == message.id
    # A write may be older than the id that the reducer gave its message.
    return stored.model_copy(update={"id": None}) == message.model_copy(update={"id": None})


def index_of(messages: Sequence[BaseMessage], message: AIMessage) -> int | None:
    """The last index of `message`, or None."""
    indexes = [i for i, stored in enumerate(messages) if is_version_of(stored, message)]
    return indexes[-1] if indexes else None


def index_of_call(messages: Sequence[BaseMessage], call_id: str) -> int | None:
    """The index of the last message that makes a call with this id, or None."""
    for index in range(len(messages) - 1, -1, -1):
        stored = messages[index]
        if not isinstance(stored, AIMessage) or _is_text_only(stored):
            continue
        if any(call.id == call_id for call in read_calls(stored)):
            return index
    return None


def _is_text_only(message: AIMessage) -> bool:
    calls = message.tool_calls or message.invalid_tool_calls or message.additional_kwargs
    return isinstance(message.content, str) and not calls


def call_in(stored: BaseMessage, call: OpenCall) -> OpenCall | None:
    """A call as a stored version of its message makes it; None if that makes another call.

    An edit gives a call other arguments: earlier results belong to the call before the edit. A
    repair may give it another id.
    """
    if stored is call.message:
        return call
    if not isinstance(stored, AIMessage):
        return None
    made = read_calls(stored)
    found = [i for i, other in enumerate(made) if other.id == call.id]
    if not (len(found) == len(call.twins) == 1):
        found = [i for i, other in enumerate(made) if i == call.ordinal and _is_same(other, call)]
    request = _request(read_calls(call.message)[call.ordinal])
    if not found or _request(made[found[0]]) != request:
        return None
    return OpenCall(stored, made[found[0]].id, found[0])


def _is_same(stored: Call, call: OpenCall) -> bool:
    """Whether a call of the same position has, or had before a repair, an id of `call`."""
    own = read_calls(call.message)[call.ordinal]
    return not {stored.id, *stored.earlier_ids}.isdisjoint({own.id, *own.earlier_ids})


def _request(call: Call) -> tuple[str, str]:
    return call.name, repr(sorted(map(repr, call.args.items())))


def has_earlier_open_call(earlier: Sequence[BaseMessage], call_id: str) -> bool:
    """Whether an earlier message of the same turn makes an open call with the same id.

    Nothing runs what is listed in `invalid_tool_calls`, so no result is of such a call.
    """
    for stored in reversed(earlier):
        is_result = isinstance(stored, ToolMessage) and stored.tool_call_id == call_id
        if is_result or stored.type == "human":
            return False
        if isinstance(stored, AIMessage) and any(
            call.id == call_id and call.source != "invalid_tool_calls"
            for call in read_calls(stored)
        ):
            return True
    return False


def is_subsequence(part: Sequence[BaseMessage], whole: Sequence[BaseMessage]) -> bool:
    """Whether `whole` contains all messages of `part`, in their order."""
    rest = iter([stored.id or stored.text for stored in whole])
    return all((stored.id or stored.text) in rest for stored in part)


def first_result(
    messages: Sequence[BaseMessage], call: OpenCall, *, is_own: bool = False
) -> ToolMessage | None:
    """The first tool message for a call that is not a placeholder and does not name another tool.

    A missing name agrees with any. If several calls of the message have the id, results belong to
    them as in a history.

    Args:
        messages: Messages that were written after the call.
        call: The call.
        is_own: Whether results with its id belong to this very call. Default: False.
    """
    calls, twins = read_calls(call.message), call.twins
    results = [
        stored
        for stored in messages
        if isinstance(stored, ToolMessage)
        and stored.tool_call_id == call.id
        # Not a placeholder: the real result may have been written later.
        and not (is_placeholder(stored) or is_foreign_placeholder(stored) or is_client_fake(stored))
    ]
    names = {calls[i].name for i in ([call.ordinal] if is_own else twins)}
    results = [stored for stored in results if not stored.name or names & {stored.name, ""}]
    if not is_own and len(twins) > 1:
        # LangGraph runs the calls in `tool_calls` only.
        twins = [i for i in twins if calls[i].source == "tool_calls"] or twins
        if call.ordinal not in twins:
            return None
        made = [{"name": calls[i].name, "args": {}, "id": call.id} for i in twins]
        reading = read_history([AIMessage("", tool_calls=made), *results])
        real = reading.calling_messages[0].calls[twins.index(call.ordinal)].real
        return None if real is None else real.message
    return next(iter(results), None)


def result_of_call(
    messages: Sequence[BaseMessage], call: OpenCall, *, is_own: bool = False
) -> ToolMessage | None:
    """The real result of a call in written messages, which may be a whole history.

    Args:
        messages: The messages.
        call: The call.
        is_own: Whether results with its id belong to this very call. Default: False.
    """
    index = index_of(messages, call.message)
    version = call if index is None else call_in(messages[index], call)
    if version is None or index_of_call(messages, version.id) != index:
        return None
    return first_result(messages[0 if index is None else index + 1 :], version, is_own=is_own)


def calls_elsewhere(messages: Sequence[BaseMessage], call: OpenCall) -> bool:
    """Whether the last call with the id of `call` is made by another message."""
    index = index_of_call(messages, call.id)
    return index is not None and not is_version_of(messages[index], call.message)


def requested_elsewhere(messages: Sequence[BaseMessage], call: OpenCall) -> bool:
    """Whether another message makes, or made, a call with the id, name and arguments of `call`."""
    own = read_calls(call.message)[call.ordinal]
    made = _made_elsewhere(messages, call)
    return any((other.name, other.args) == (own.name, own.args) for other in made)


def renamed_elsewhere(messages: Sequence[BaseMessage], call: OpenCall) -> bool:
    """Whether another message makes a call that a repair renamed from the id of `call`."""
    return any(made.id != call.id for made in _made_elsewhere(messages, call))


def _made_elsewhere(messages: Sequence[BaseMessage], call: OpenCall) -> Iterator[Call]:
    for stored in messages:
        if isinstance(stored, AIMessage) and not is_version_of(stored, call.message):
            for made in read_calls(stored):
                if call.id in (made.id, *made.earlier_ids):
                    yield made
