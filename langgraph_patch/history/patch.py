"""Check and repair the tool calls and results of a history. No checkpointer, no I/O.

The laws of the repair (`tests/history/test_laws.py` has a property test for each):

1. **Valid**: a repaired history has no defects: each call has one result, behind its message, and
   the model that wrote it accepts it. What `portable_messages` returns, every provider accepts.
2. **Quiet**: a valid history is returned as the same object, whatever its ids and names are.
3. **Idempotent and deterministic**: repairing twice returns the same object the second time.
   There is no clock and no randomness: the same history gives the same bytes.
4. **Pure**: the input messages are never changed.
5. **Nothing lost**: every message that is not a result is kept, in order, with its id and
   content. A result is placed after its call, if it is certain which call
   that is (`reading`). A result that is dropped is kept whole in `Patch.changes`. The raw copy
   of a call, which integrations read in place of `tool_calls`, goes when that is written.
6. **Real beats synthetic**: a real result replaces a placeholder of the same call. The marker
   decides what is a placeholder of this package, not the text.
7. **Linear**: twice the messages take twice the time.

What is damage? Of each state it was asked who is hurt if it stays until a provider refuses it, and
who is hurt if it is changed before:

| state | hurts if it stays | hurts if it is changed | so |
|---|---|---|---|
| a call without a result; a result misplaced, twice, without a call | all | nobody | repaired |
| a call that the model did not finish | all | nobody | repaired |
| a result in a human message, or in a `ChatMessage` | all but one | nobody | repaired |
| content that is a number, a result whose call id is no text | all | nobody | repaired |
| characters and length of ids and names; an empty one | others | approvals, tools | refused |
| an id that an earlier call has | others | tools, late results | refused |
| a finished call in a block or raw, with its result behind it | others | signatures | refused |
| a `FunctionMessage` behind a raw `function_call` | others | its own model | refused |
| results in another order, or under names of their own | nobody | who reads them | stays |
| the result of a custom call as a text | OpenAI | others | refused |
| no content, or no list of calls, in a message of a model | some | OpenAI's form | refused |
| a message that says nothing, thinking, blocks, roles, media | others | its own model | refused |

*others* are the providers whose models did not write it. *refused*: it is changed only after a
provider has refused it, by `refused` (what can be stored) or by `plain_form` (for one request).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from langgraph_patch._text import short
from langgraph_patch.errors import OptionError
from langgraph_patch.history.changes import Change, Patch
from langgraph_patch.history.comparing import are_identical
from langgraph_patch.history.fast_check import is_valid
from langgraph_patch.history.findings import Evidence, Finding
from langgraph_patch.history.messages import as_messages
from langgraph_patch.history.placeholders import (
    Placeholder,
    check_placeholder,
    differ_in_marker_only,
)
from langgraph_patch.history.reading import Reading, read_history
from langgraph_patch.history.repair import patch_reading


def patch_messages(
    messages: Sequence[Any],
    *,
    placeholder: Placeholder | None = None,
    evidence: Evidence | None = None,
) -> Patch:
    """Repair the tool calls and results of a history, so that a chat model accepts them.

    Damage is what is wrong for every model; it is repaired. A form that one provider wrote and
    another one refuses, such as a tool called `bank.wire`, stays as it is (`portable_messages`).

    Args:
        messages: The history: LangChain messages, or dicts, tuples and strings that LangGraph
            accepts as messages. It is not changed.
        placeholder: The text of the tool message for a call without a result: one text for all
            calls, a mapping from cause to text, or a callable that takes a `DanglingCall` and
            returns a text or a `ToolMessage`. `{name}` and `{id}` in a text are replaced. Default:
            a text that names the cause.
        evidence: What is recorded about calls without a result: a mapping from (index of the
            `AIMessage`, position of the call among all its calls) to a `Finding`. A result is
            written after its call; a cause decides the text of the placeholder. Default: none,
            so the cause is `unknown`, or `malformed` for arguments
            that are not a complete JSON object and for a call without a name. A placeholder
            that deepagents or langgraph-checkpoint-aws wrote gives way to a result only, and so
            does what assistant-ui may have invented: a tool may return it too. Results that
            agent-chat-ui invents for open calls are always replaced.

    Returns:
        The patch. If there was nothing to repair, `patch.messages` is `messages` itself, or
        the converted messages if it is not a list of LangChain messages.

    Raises:
        MessagesError: If `messages` is not a list of messages.
        OptionError: If an option has an invalid value, or a `placeholder` callable returns
            neither a text nor a `ToolMessage`.
        Exception: Any exception that a `placeholder` callable raises.

    Examples:
        >>> from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
        >>> from langgraph_patch import patch_messages
        >>> call = {"name": "send_email", "args": {}, "id": "c1"}
        >>> history = [HumanMessage("go"), AIMessage("", tool_calls=[call]), HumanMessage("hm")]
        >>> patch = patch_messages(history)
        >>> print(patch)
        inserted 'send_email' 'c1' (unknown)
        >>> patch.messages[2].content
        'No result of tool call send_email with id c1 is known; it may or may not have run.'
        >>> patch_messages(patch.messages).messages is patch.messages
        True
        >>> odd = {"name": "bank.wire", "args": {}, "id": "c1"}
        >>> history = [AIMessage("", tool_calls=[odd]), ToolMessage("done", tool_call_id="c1")]
        >>> patch_messages(history).messages is history
        True
    """
    check_placeholder(placeholder)
    _check_evidence(evidence)
    if not evidence and is_valid(messages):
        return Patch.of(messages, [], ())
    reading = read_history(as_messages(messages))
    return patch_reading(reading, placeholder=placeholder, evidence=evidence)


def validate_messages(messages: Sequence[Any]) -> list[Change]:
    """List what is wrong with a history: the changes that `patch_messages` would make.

    A placeholder of another package is no defect, unless the call has a real result too.

    Args:
        messages: The history: LangChain messages, or dicts, tuples and strings that LangGraph
            accepts as messages. It is not changed.

    Returns:
        The changes, each with the defect that it repairs, in the order of the history; an empty
        list if the history is valid.

    Raises:
        MessagesError: If `messages` is not a list of messages.

    Examples:
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch import validate_messages
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> [found] = validate_messages([AIMessage("", tool_calls=[call])])
        >>> found.defect, found.index, found.name
        ('dangling', 0, 'wire')
    """
    return list(patch_messages(messages).changes)


# --- for the packages that search for evidence ---------------------------------------------


def read_if_damaged(
    messages: Sequence[BaseMessage],
    *,
    known: Sequence[BaseMessage] = (),
    leaves_open: bool = False,
    look_again: bool = False,
) -> Reading | None:
    """Read a history once, for the damage check, the search for evidence and the patch.

    Args:
        messages: The history; it is not changed.
        known: What `settled` has returned for a valid history. Its messages are not checked again
            where this history begins with the same objects. Default: none.
        leaves_open: Whether calls at the end of the history stay without a result, because
            something that answers them runs next. Default: False.
        look_again: Whether to search again for calls with a placeholder that asks for it. A turn
            needs that once. Default: False.

    Returns:
        The reading, for `patch_reading`; None if there is nothing to repair and to search for.

    Raises:
        MessagesError: If `messages` is not a list of messages.
    """
    rest = messages[len(known) :] if are_identical(messages[: len(known)], known) else messages
    if is_valid(rest, leaves_open=leaves_open, look_again=look_again):
        return None
    reading = read_history(as_messages(messages), leaves_open=leaves_open, look_again=look_again)
    return reading if reading.looked_for_again or patch_reading(reading) else None


def settled(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """The part of a valid history before its last message of a model: no call is open there."""
    places = (n for n in reversed(range(len(messages))) if isinstance(messages[n], AIMessage))
    return messages[: next(places, 0)]


def changes_history(patch: Patch) -> bool:
    """Whether a patch changes what a model reads. Another search may change only a marker."""
    return any(
        change.kind != "inserted" or not differ_in_marker_only(change.before, change.after)
        for change in patch.changes
    )


def _check_evidence(evidence: object) -> None:
    """Check the option `evidence`.

    Raises:
        OptionError: If it has not the form of `Evidence`.
    """
    items = evidence.items() if isinstance(evidence, Mapping) else [(None, evidence)]
    if evidence is not None and not all(_is_finding(key, found) for key, found in items):
        raise OptionError(
            f"evidence={short(evidence)}: expected a mapping (index of the message, position of "
            f"the call in it) -> Finding."
        )


def _is_finding(key: Any, found: Any) -> bool:
    is_key = isinstance(key, tuple) and list(map(type, key)) == [int, int]
    return is_key and isinstance(found, Finding) and found.is_valid()
