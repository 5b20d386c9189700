"""Placeholders: the `ToolMessage`s of calls without a result, and how they are recognised.

A placeholder has a public marker (`PLACEHOLDER_KEY`), so that a real result can replace it later.
`repair` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage, ToolMessage

from langgraph_patch._text import short
from langgraph_patch.errors import OptionError
from langgraph_patch.history.comparing import is_equal
from langgraph_patch.history.fields import PLACEHOLDER_KEY
from langgraph_patch.history.findings import CAUSES, Cause, DanglingCall, Finding

Placeholder: TypeAlias = (
    str | Mapping[Cause, str] | Mapping[str, str] | Callable[[DanglingCall], "str | ToolMessage"]
)
"""An application's own content of placeholders: one text, a text per cause, or a callable."""

# --- the option ----------------------------------------------------------------------------

_FIELD = re.compile(r"\{[a-z_]+\}")
"""A field in the text of an application."""


def checked_placeholder(placeholder: Placeholder | None) -> Placeholder | None:
    """Return `placeholder`.

    Raises:
        OptionError: If it has none of the forms of `Placeholder`, or names an unknown cause.
    """
    texts = placeholder if isinstance(placeholder, Mapping) else {}
    is_form = placeholder is None or isinstance(placeholder, str | Mapping) or callable(placeholder)
    if not is_form or not all(c in CAUSES and isinstance(t, str) for c, t in texts.items()):
        raise OptionError(
            f"placeholder={short(placeholder)}: expected a text, a callable that takes a "
            f"DanglingCall, or a mapping from causes ({', '.join(CAUSES)}) to texts."
        )
    for text in [placeholder] if isinstance(placeholder, str) else texts.values():
        if unknown := {*_FIELD.findall(text)} - {"{name}", "{id}"}:
            raise OptionError(
                f"placeholder={short(text)}: there is no field {min(unknown)}: expected {{name}} "
                f"of the tool and {{id}} of the call, or a callable that takes a DanglingCall."
            )
    return placeholder


# --- those of this package -----------------------------------------------------------------


def is_placeholder(message: BaseMessage) -> bool:
    """Whether `message` is a placeholder that this package wrote.

    Args:
        message: Any message.

    Returns:
        True if it is a `ToolMessage` whose marker (`langgraph_patch` in its `additional_kwargs`)
        has the cause of a placeholder. The text does not matter. False for
        placeholders of other packages, and for recovered results, which may have a marker too.

    Examples:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph_patch import is_placeholder, patch_messages
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> history = [AIMessage("", tool_calls=[call]), HumanMessage("never mind")]
        >>> [is_placeholder(m) for m in patch_messages(history).messages]
        [False, True, False]
    """
    return isinstance(message, ToolMessage) and marker_of(message).get("cause") in CAUSES


def marker_of(message: BaseMessage) -> Mapping[str, Any]:
    """The marker of this package; an empty one if the message has none."""
    marker = message.additional_kwargs.get(PLACEHOLDER_KEY)
    return marker if isinstance(marker, dict) else {}


def look_again_from(message: BaseMessage) -> str | None:
    """The checkpoint from which the next turn searches once more for the call of a placeholder.

    None if it does not search; `""` for the newest checkpoint.
    """
    mark = marker_of(message).get("look_again") if is_placeholder(message) else None
    return mark if isinstance(mark, str) else "" if mark is True else None


def is_better(finding: Finding, stored: ToolMessage, *, looked_again: bool) -> bool:
    """Whether a finding replaces a stored placeholder.

    It does if it states more, and if it is what the search found that the placeholder asked for.
    A placeholder of another package gives way to a result only.
    """
    if not is_placeholder(stored):
        return finding.result is not None
    marker = marker_of(stored)
    count = marker.get("inner")
    return (
        finding.result is not None
        or (looked_again and not finding.look_again)
        or len(finding.inner) > (count if isinstance(count, int) else 0)
        or (finding.cause != "unknown" and marker.get("cause") == "unknown")
    )


def states_nothing(finding: Finding) -> bool:
    """Whether a finding names neither a result, nor a cause, nor results inside the call."""
    return finding.result is None and finding.cause == "unknown" and not finding.inner


def without_look_again(stored: ToolMessage) -> ToolMessage:
    """A placeholder of this package that asks for no other search."""
    marker = {key: value for key, value in marker_of(stored).items() if key != "look_again"}
    return marked(stored, marker)


def marked(message: ToolMessage, marker: Mapping[str, Any], **update: Any) -> ToolMessage:
    """A copy of a message with this marker, and with other values of some fields."""
    extra = {**message.additional_kwargs, PLACEHOLDER_KEY: dict(marker)}
    return message.model_copy(update={**update, "additional_kwargs": extra})


def differ_in_marker_only(before: BaseMessage | None, after: BaseMessage | None) -> bool:
    """Whether two tool messages are equal but for their markers."""
    if not (isinstance(before, ToolMessage) and isinstance(after, ToolMessage)):
        return False
    without_marker = [dict(each.__dict__, additional_kwargs=None) for each in (before, after)]
    return is_equal(*without_marker)


# --- those of others -----------------------------------------------------------

AGENT_CHAT_UI_TEXT = "Successfully handled tool call."
HIDDEN_ID = "do-not-render-"
"""How the id of a message begins that agent-chat-ui does not show."""
ASSISTANT_UI_TEXT = '{"cancelled":true}'


def is_client_fake(message: BaseMessage, *, human_follows: bool = True) -> bool:
    """Whether `message` is a result that a known client invents for calls without a result.

    agent-chat-ui marks its messages by their ids. assistant-ui gives its own the status "error"
    (`createToolCallCancellationStub` in `@assistant-ui/core` 0.3), and gave them no name before. It
    sends them in front of the message of a human: elsewhere a tool has returned this text.

    Args:
        message: The message.
        human_follows: Whether a human message comes before the next message of a model. Default:
            True.
    """
    if not isinstance(message, ToolMessage):
        return False
    if message.content == AGENT_CHAT_UI_TEXT:
        return str(message.id).startswith(HIDDEN_ID)
    if message.content != ASSISTANT_UI_TEXT or not human_follows:
        return False
    return message.status == "error" or message.name is None


_AWS_MARK = "orphan_tool_call_placeholder"  # langgraph-checkpoint-aws
_FOREIGN_TEXTS = re.compile(  # deepagents, older and newer
    r"Tool call \S{1,200} with id \S{1,200} (?:"
    r"was cancelled - another message came in before it could be completed\."
    r"|could not be executed - arguments were malformed or truncated\."
    r"|did not complete - no result was recorded\. It may have been cancelled or interrupted\."
    r")\Z"
)


def is_synthetic(message: BaseMessage, *, human_follows: bool = False) -> bool:
    """Whether `message` is a placeholder and no result, whoever wrote it.

    Those of other packages are recognised by a mark (langgraph-checkpoint-aws) or by their whole
    text (deepagents).

    Args:
        message: The message.
        human_follows: Whether a human message comes before the next message of a model. Default:
            False, as for what a task of a graph wrote.
    """
    if not isinstance(message, ToolMessage):
        return False
    if is_placeholder(message) or message.additional_kwargs.get(_AWS_MARK) is True:
        return True
    is_foreign = isinstance(message.content, str) and _FOREIGN_TEXTS.match(message.content)
    return bool(is_foreign) or is_client_fake(message, human_follows=human_follows)


def is_searched(message: BaseMessage) -> bool:
    """Whether a repair searches for the result in whose place a placeholder is.

    Not if it is of this package, states a cause that is known, and asks for no search. What a
    search without records leaves (`recover=False`, a checkpointer that fails) is unknown.
    """
    # `isinstance` of a message takes longer than its `type`.
    if message.type != "tool" or not is_synthetic(message, human_follows=True):
        return False
    is_known = is_placeholder(message) and marker_of(message)["cause"] != "unknown"
    return not is_known or look_again_from(message) is not None
