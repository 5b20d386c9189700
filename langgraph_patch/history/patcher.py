"""The pure core: is a tool-call history valid, and if not, what does it look like repaired?

Laws (each is a property test of the same name):

1. **Valid**: a repaired history has no defect, and the payload that a chat model
   integration builds from it obeys the provider's rules on the ids, names, pairing and
   order of calls and results.
2. **Quiet**: a valid history comes back as the same object.
3. **Idempotent and deterministic**: no clock, no randomness; a second pass returns the
   same object; the same history gives the same bytes.
4. **Pure**: the input messages are never changed.
5. **Nothing lost**: every message that is not a result stays, in order, with its id and
   content; every real result whose call stands ends up beside it; what is dropped is
   whole in `Patch.changes`. An id or name that must change changes everywhere at once.
6. **Real beats synthetic**: a real result replaces a placeholder for the same call, by
   its mark and not by its words.
7. **Linear**: twice the messages, twice the time.

Left alone, because it is no matter of calls and results: the order of human, system and
AI messages among themselves, empty contents, text behind a `tool_use` block, blocks that
a provider does not know, reasoning items, calls of server-side tools, and OpenAI's
computer calls with or without their results, which no wire but its own carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from langchain_core.messages import BaseMessage, convert_to_messages

from langgraph_patch.errors import MessagesError
from langgraph_patch.history.fast_check import is_valid
from langgraph_patch.history.pairing import Reading, read_history
from langgraph_patch.history.patch import Change, Defect, Evidence, Finding, Patch
from langgraph_patch.history.placeholders import (
    DanglingCall,
    Language,
    Placeholder,
    checked_language,
    checked_placeholder,
    make_placeholder,
)
from langgraph_patch.history.repair import Repair

__all__ = [
    "Change",
    "DanglingCall",
    "Defect",
    "Evidence",
    "Finding",
    "Patch",
    "as_messages",
    "defects_of",
    "patch_messages",
    "patch_reading",
    "read_if_damaged",
    "untouched",
    "validate_messages",
]


def patch_messages(
    messages: Sequence[Any],
    *,
    placeholder: Placeholder | None = None,
    language: Language | None = None,
    evidence: Evidence | None = None,
    replace_foreign: bool = False,
    allow_pending: bool = False,
) -> Patch:
    """Repair a history, so that every chat model accepts it.

    Args:
        messages: The history: messages, or what LangGraph accepts as messages. Not changed.
        placeholder: What to say of a call without a result: one text, a mapping from cause
            to text, or a callable that takes a `DanglingCall` and returns a text or a
            `ToolMessage`. Default: a text for each cause.
        language: `"en"` or `"zh"`. Default: the language of the process (`set_language`).
        evidence: What is known of calls without a result. Default: nothing, so that their
            cause is `unknown`.
        replace_foreign: Whether placeholders that deepagents or langgraph-checkpoint-aws
            wrote count as placeholders too. Default: they count as results.
        allow_pending: Whether calls at the tail are left to whoever runs next. Default: they
            are answered, since a model is about to be called.

    Returns:
        The patch. `patch.messages` is `messages` itself if there was nothing to do.

    Raises:
        MessagesError: If `messages` is no list of messages.
        OptionError: If an option is none of the values that it may have.
        Exception: Whatever a `placeholder` callable raises.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph_patch import patch_messages
        >>> call = {"name": "send_email", "args": {}, "id": "c1"}
        >>> history = [HumanMessage("go"), AIMessage("", tool_calls=[call]), HumanMessage("hm")]
        >>> patch = patch_messages(history)
        >>> print(patch)
        inserted 'send_email' 'c1' (unknown)
        >>> patch.messages[2].content
        'No result of tool call send_email with id c1 was recorded; it may or may not have run.'
        >>> patch_messages(patch.messages).messages is patch.messages
        True
    """
    checked_placeholder(placeholder)
    if language is not None:
        checked_language(language)
    if not evidence and not replace_foreign and _passes_fast_check(messages, allow_pending):
        return untouched(messages)
    reading = read_history(as_messages(messages), replace_foreign=replace_foreign)
    patch = patch_reading(
        reading,
        placeholder=placeholder,
        language=language,
        evidence=evidence,
        allow_pending=allow_pending,
    )
    return patch or untouched(messages)


def validate_messages(messages: Sequence[Any], *, allow_pending: bool = False) -> list[Defect]:
    """Say how a history is broken.

    Args:
        messages: The history: messages, or what LangGraph accepts as messages. Not changed.
        allow_pending: Whether calls at the tail may be without results. Default: False.

    Returns:
        The defects in the order of the history; an empty list if it is valid.

    Raises:
        MessagesError: If `messages` is no list of messages.

    Example:
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch import validate_messages
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> validate_messages([AIMessage("", tool_calls=[call])])
        [Defect(kind='dangling', index=0, tool_call_id='c1', name='wire')]
        >>> validate_messages([AIMessage("", tool_calls=[call])], allow_pending=True)
        []
    """
    if _passes_fast_check(messages, allow_pending):
        return []
    reading = read_history(as_messages(messages))
    return defects_of(reading, allow_pending=allow_pending)


def read_if_damaged(
    messages: Sequence[BaseMessage], *, replace_foreign: bool = False, allow_pending: bool = False
) -> Reading | None:
    """Read a history once, for the damage check, the evidence and the patch.

    Args:
        messages: The history; it is not changed.
        replace_foreign: As in `patch_messages`.
        allow_pending: As in `patch_messages`.

    Returns:
        The reading to hand to `patch_reading`, or None if there is nothing to repair.

    Raises:
        MessagesError: If `messages` is no list of messages.
    """
    if not replace_foreign and _passes_fast_check(messages, allow_pending):
        return None
    reading = read_history(as_messages(messages), replace_foreign=replace_foreign)
    return reading if defects_of(reading, allow_pending=allow_pending) else None


def patch_reading(
    reading: Reading,
    *,
    placeholder: Placeholder | None = None,
    language: Language | None = None,
    evidence: Evidence | None = None,
    allow_pending: bool = False,
) -> Patch:
    """Repair a history that has been read; the options are those of `patch_messages`."""
    history = cast("list[BaseMessage]", reading.messages)
    repair = Repair(
        reading,
        make=partial(make_placeholder, placeholder=placeholder, language=language),
        evidence=evidence or {},
        allow_pending=allow_pending,
    )
    repaired = repair.run()
    if not repair.done:
        return untouched(history)
    return Patch(repaired, tuple(change for _, change in repair.done), history)


def defects_of(reading: Reading, *, allow_pending: bool = False) -> list[Defect]:
    """The defects of a history that has been read, in the order of the history."""
    make = partial(make_placeholder, placeholder=None, language=None)
    repair = Repair(reading, make=make, evidence={}, allow_pending=allow_pending)
    repair.run()
    return [defect for defect, _ in repair.done]


def untouched(messages: Sequence[Any]) -> Patch:
    """The patch that does nothing: its messages are the very object that was given."""
    history = cast("list[BaseMessage]", messages)
    return Patch(history, (), history)


def _passes_fast_check(value: object, allow_pending: bool) -> bool:  # noqa: FBT001
    return isinstance(value, list) and is_valid(value, allow_pending=allow_pending)


def as_messages(value: object) -> list[BaseMessage]:
    """`value` as a list of messages: itself if it is one.

    Raises:
        MessagesError: If it is no list of messages.
    """
    if isinstance(value, list) and all(
        issubclass(kind, BaseMessage) for kind in set(map(type, value))
    ):
        return value
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise MessagesError(
            f"{value!r:.200} is no list of messages: expected a list of LangChain messages "
            f"(or of dicts and tuples that LangGraph accepts as messages)."
        )
    try:
        return convert_to_messages(value)
    except Exception as error:  # the converter raises whatever the value makes it raise
        raise MessagesError(
            f"{value!r:.200} holds something that is no message: expected LangChain messages, "
            f"or dicts and tuples that LangGraph accepts as messages."
        ) from error
