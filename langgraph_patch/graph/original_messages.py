"""Keep a repair out of a node's output, for `with_patching(persist=False)`.

The node reads a repaired history that is not written to the state. A node that returns messages
of its input, edited or not, would write the repair. So its output gets back the messages of the
state, as if the node had read those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage
from langgraph.types import Command, Overwrite

from langgraph_patch.graph.message_equality import is_same
from langgraph_patch.graph.state_values import get_value, is_root_output, replace_values
from langgraph_patch.history.field_check import id_of
from langgraph_patch.history.patch import Patch

Originals: TypeAlias = Mapping[object, tuple[BaseMessage, BaseMessage | None]]
"""For each message that a repair changed or added: the repaired message and the original.

The key is the message's id, or its identity if it has none. An added message has no original.
"""


def _original_messages(patches: Iterable[Patch]) -> Originals:
    """The messages that `patches` changed or added, with their originals."""
    originals: dict[object, tuple[BaseMessage, BaseMessage | None]] = {}
    for patch in patches:
        before = {_key_of(message): message for message in patch.before}
        for repaired in patch.messages:
            original = before.get(_key_of(repaired))
            if original is not repaired:
                originals[_key_of(repaired)] = repaired, original
    return originals


def restore_output(output: Any, messages_key: str, patches: Sequence[Patch]) -> Any:
    """The output of a node, of any form that LangGraph accepts, without repaired messages.

    Args:
        output: The output.
        messages_key: The state key of the history.
        patches: How the histories that the node read were repaired.
    """
    if is_root_output(output, messages_key):
        return _restore_value(output, patches)
    if isinstance(output, Command):
        return replace(output, update=restore_output(output.update, messages_key, patches))
    if isinstance(output, tuple) and output and isinstance(output[0], str):  # (key, value)
        is_own = output[0] == messages_key
        return (output[0], *(_restore_value(v, patches) if is_own else v for v in output[1:]))
    if isinstance(output, list | tuple):
        return [restore_output(part, messages_key, patches) for part in output]
    value = get_value(output, messages_key)
    if value is None:
        return output
    return replace_values(output, {messages_key: _restore_value(value, patches)})


def _restore_value(value: Any, patches: Sequence[Patch]) -> Any:
    if isinstance(value, Overwrite):
        return Overwrite(_restore_value(value.value, patches))
    if not isinstance(value, list):
        return value
    originals = _original_messages(patches)
    restored = (_restore_message(message, originals) for message in _unmoved(value, patches))
    return [message for message in restored if message is not None]


def _unmoved(messages: Sequence[Any], patches: Iterable[Patch]) -> list[Any]:
    """The messages, where a whole repaired history is replaced by the one before the repair.

    So a node that returns its whole history returns it in the order of the state, with the
    messages that the repair removed.
    """
    for patch in patches:
        count, repaired = len(patch.messages), patch.messages
        for start in range(len(messages) - count + 1 if count else 0):
            part = messages[start : start + count]
            if all(one is other for one, other in zip(part, repaired, strict=True)):
                return [*messages[:start], *patch.before, *messages[start + count :]]
    return list(messages)


def _restore_message(message: Any, originals: Originals) -> Any:
    """The original of `message`; None if the repair added it, as the state does not have it.

    A repaired message that the node has edited stays as the node returns it.
    """
    if (pair := originals.get(_key_of(message))) is None:
        return message
    repaired, original = pair
    return original if original is None or is_same(message, repaired) else message


def _key_of(message: Any) -> object:
    message_id = id_of(message) if isinstance(message, BaseMessage) else None
    return id(message) if message_id is None else message_id
