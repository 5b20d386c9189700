"""Check and repair the tool calls and results of a history. No checkpointer, no I/O.

The laws of the repair (`tests/history/test_laws.py` has a property test for each):

1. **Valid**: a repaired history has no defects. The request that a chat model integration
   builds from it meets the provider's rules for ids, names, pairing and order.
2. **Quiet**: a valid history is returned as the same object.
3. **Idempotent and deterministic**: repairing twice returns the same object the second time.
   There is no clock and no randomness: the same history gives the same bytes.
4. **Pure**: the input messages are never changed.
5. **Nothing lost**: every message that is not a result is kept, in order, with its id and
   content. A message that no model can read (`field_check`) is left out of `Patch.messages` and
   kept in `Patch.for_state()`. A result is placed after its call, if it is certain which call
   that is (`matching`). A result that is dropped is kept whole in `Patch.changes`. An id or a
   name is replaced in all places at once.
6. **Real beats synthetic**: a real result replaces a placeholder of the same call. The marker
   decides what is a placeholder of this package, not the text.
7. **Linear**: twice the messages take twice the time.

Not repaired, because it does not concern calls and results: the order of human, system and
AI messages among each other, empty contents, text after a `tool_use` block, blocks that a
provider does not know, reasoning items, calls of server-side tools, and OpenAI's computer
calls, which no other provider accepts, with or without their results.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, cast

from langchain_core.messages import BaseMessage, convert_to_messages

from langgraph_patch.errors import MessagesError
from langgraph_patch.history.answers import dangling_calls
from langgraph_patch.history.call_results import RepairOptions
from langgraph_patch.history.fast_check import is_valid
from langgraph_patch.history.pairing import Reading, read_history
from langgraph_patch.history.patch import Change, Defect, Evidence, Finding, Patch, RecordedResult
from langgraph_patch.history.placeholders import (
    DanglingCall,
    Language,
    Placeholder,
    checked_language,
    checked_placeholder,
    make_placeholder,
)
from langgraph_patch.history.repair import repair_history

__all__ = [
    "Change",
    "DanglingCall",
    "Defect",
    "Evidence",
    "Finding",
    "Patch",
    "RecordedResult",
    "as_messages",
    "dangling_calls",
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
    """Repair the tool calls and results of a history, so that every chat model accepts it.

    Args:
        messages: The history: LangChain messages, or dicts, tuples and strings that LangGraph
            accepts as messages. It is not changed.
        placeholder: The content of the placeholders: one text for all, a mapping from causes
            to texts (other causes get the default text), or a callable that takes a
            `DanglingCall` and returns a text or a `ToolMessage`. Default: a text for each
            cause, which states what the records support and nothing more.
        language: The language of the default texts, `"en"` or `"zh"`. Default: the language of
            the process, which is English unless `set_language` changed it.
        evidence: What checkpoints recorded about calls without a result: a mapping from (id of
            the `AIMessage`, stored id of the call) to the real result (a `ToolMessage`) or to
            a `Finding`. A result is written after its call; a finding sets the cause of the
            placeholder. Default: none, so the cause is `unknown`, or `malformed` for arguments
            that are not a complete JSON object and for a call without a name.
        replace_foreign: Whether placeholders that deepagents or langgraph-checkpoint-aws
            wrote are replaced as well. Default: False, they count as real results, unless the
            call has another real result. Results that agent-chat-ui and assistant-ui invent
            for open calls are always replaced.
        allow_pending: Whether calls at the end of the history may stay without a result,
            because something that answers them runs next. Calls with incomplete arguments
            never stay. Default: False, they get placeholders, as is right before a model call.

    Returns:
        The patch. If there was nothing to repair, `patch.messages` is `messages` itself, or
        the converted messages if it is not a list of LangChain messages.

    Raises:
        MessagesError: If `messages` is not a list of messages.
        OptionError: If an option has an invalid value, or a `placeholder` callable returns
            neither a text nor a `ToolMessage`.
        Exception: Any exception that a `placeholder` callable raises.

    Examples:
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
    is_usual = not evidence and not replace_foreign
    if is_usual and _passes_fast_check(messages, allow_pending=allow_pending):
        return untouched(messages)
    history = as_messages(messages)
    reading = read_history(history, replace_foreign=replace_foreign)
    patch = patch_reading(
        reading,
        placeholder=placeholder,
        language=language,
        evidence=evidence,
        allow_pending=allow_pending,
    )
    return patch or untouched(history)


def validate_messages(messages: Sequence[Any], *, allow_pending: bool = False) -> list[Defect]:
    """List the defects of a history: what `patch_messages` would repair.

    Placeholders of other packages count as real results, unless the call has another one.

    Args:
        messages: The history: LangChain messages, or dicts, tuples and strings that LangGraph
            accepts as messages. It is not changed.
        allow_pending: Whether calls at the end of the history may be without a result. Calls
            with incomplete arguments are defects all the same. Default: False.

    Returns:
        The defects, in the order of the history; an empty list if it is valid.

    Raises:
        MessagesError: If `messages` is not a list of messages.

    Examples:
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch import validate_messages
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> validate_messages([AIMessage("", tool_calls=[call])])
        [Defect(kind='dangling', index=0, tool_call_id='c1', name='wire')]
        >>> validate_messages([AIMessage("", tool_calls=[call])], allow_pending=True)
        []
    """
    if _passes_fast_check(messages, allow_pending=allow_pending):
        return []
    reading = read_history(as_messages(messages))
    return defects_of(reading, allow_pending=allow_pending)


def read_if_damaged(
    messages: Sequence[BaseMessage],
    *,
    replace_foreign: bool = False,
    allow_pending: bool = False,
    client_results: AbstractSet[str | None] = frozenset(),
    recheck: bool = True,
    in_state: bool = False,
) -> Reading | None:
    """Read a history once, for the damage check, the search for evidence and the patch.

    Args:
        messages: The history; it is not changed.
        replace_foreign: Whether placeholders of other packages count as placeholders.
        allow_pending: Whether calls at the end of the history may be without a result.
        client_results: The ids of `ToolMessage`s that came with the input of the run. The calls
            that they answer are searched for (`Reading.doubted`): a recorded result replaces
            what a client invented.
        recheck: Whether placeholders that ask for another search count: they make a valid history
            one to be read, and their calls are searched for. A turn needs that once.
        in_state: Whether messages do not count that stay in the state and that no model reads.

    Returns:
        The reading, for `patch_reading`; None if there is nothing to repair and to search for.

    Raises:
        MessagesError: If `messages` is not a list of messages.
    """
    is_usual = not (replace_foreign or client_results)
    if is_usual and _passes_fast_check(messages, allow_pending=allow_pending, recheck=recheck):
        return None
    reading = read_history(
        as_messages(messages),
        replace_foreign=replace_foreign,
        client_results=client_results,
        recheck=recheck,
    )
    damaged = reading.needs_search or defects_of(
        reading, allow_pending=allow_pending, in_state=in_state
    )
    return reading if damaged else None


def patch_reading(
    reading: Reading,
    *,
    placeholder: Placeholder | None = None,
    language: Language | None = None,
    evidence: Evidence | None = None,
    allow_pending: bool = False,
) -> Patch:
    """Repair a history that has been read.

    Args:
        reading: The history with its calls and results paired.
        placeholder: The content of the placeholders; None for the default texts.
        language: The language of the default texts; None for that of the process.
        evidence: What checkpoints recorded about calls without a result.
        allow_pending: Whether calls at the end of the history may stay without a result.
    """
    history = cast("list[BaseMessage]", reading.messages)
    make = partial(make_placeholder, placeholder=placeholder, language=language)
    options = RepairOptions(make, evidence or {}, allow_pending, language)
    written = repair_history(reading, options)
    if not written.notes:
        return untouched(history)
    changes = tuple(change for _, change in written.notes)
    return Patch(written.messages, changes, history, tuple(written.omitted))


def defects_of(
    reading: Reading, *, allow_pending: bool = False, in_state: bool = False
) -> list[Defect]:
    """The defects of a history that has been read, in the order of the history.

    Args:
        reading: The history with its calls and results paired.
        allow_pending: Whether calls at the end of the history may be without a result.
        in_state: Whether messages do not count that stay in the state and that no model reads.
    """
    make = partial(make_placeholder, placeholder=None, language=None)
    notes = repair_history(reading, RepairOptions(make, {}, allow_pending)).notes
    return [defect for defect, change in notes if not (in_state and change.kind == "omitted")]


def untouched(messages: Sequence[Any]) -> Patch:
    """A patch without changes. Its messages are the very object that was passed in."""
    history = cast("list[BaseMessage]", messages)
    return Patch(history, (), history)


def _passes_fast_check(value: object, *, allow_pending: bool, recheck: bool = True) -> bool:
    return isinstance(value, list) and is_valid(value, allow_pending=allow_pending, recheck=recheck)


def as_messages(value: object) -> list[BaseMessage]:
    """`value` as a list of messages; the same object if it is one already.

    Raises:
        MessagesError: If it is not a list of messages.
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
    except Exception as error:  # the converter may raise anything
        raise MessagesError(
            f"{value!r:.200} holds something that is no message: expected LangChain messages, "
            f"or dicts and tuples that LangGraph accepts as messages."
        ) from error
