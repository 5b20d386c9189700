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


def check_placeholder(placeholder: Placeholder | None) -> None:
    """Check the option `placeholder`.

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

    None if it does not search; `""` for the newest checkpoint. What a client may have invented has
    a mark once it was searched for.
    """
    is_own = is_placeholder(message)
    if not (is_own or may_be_invented(message)):
        return None
    mark = marker_of(message).get("look_again", not is_own)
    return mark if isinstance(mark, str) else "" if mark is True else None


def is_better(finding: Finding, stored: ToolMessage, *, looked_again: bool) -> bool:
    """Whether a finding replaces a stored placeholder.

    It does if it states more, and if it is what the search found that the placeholder asked for.
    What others wrote gives way to a result only, or gets the mark of a search.
    """
    marker = marker_of(stored)
    if not is_placeholder(stored):
        is_news = looked_again and marker.get("look_again") != finding.look_again
        return is_news or finding.result is not None
    count = marker.get("inner")
    return (
        finding.result is not None
        or (looked_again and not finding.look_again)
        or len(finding.inner) > (count if isinstance(count, int) else 0)
        or (finding.cause != "unknown" and marker.get("cause") == "unknown")
    )


def after_search(stored: ToolMessage | None, finding: Finding) -> ToolMessage | None:
    """A stored placeholder after a search that found no more than it states; None if it did.

    One of this package asks for no other search. What others wrote states whatever it says.
    """
    is_own = stored is not None and is_placeholder(stored)
    if stored is None or (is_own and (finding.cause != "unknown" or finding.inner)):
        return None
    marker = {key: value for key, value in marker_of(stored).items() if key != "look_again"}
    return marked(stored, marker if is_own else {**marker, "look_again": finding.look_again})


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


def is_invented(message: BaseMessage) -> bool:
    """Whether a message is a result that agent-chat-ui invents, which it marks by the id."""
    is_text = isinstance(message, ToolMessage) and message.content == AGENT_CHAT_UI_TEXT
    return is_text and str(message.id).startswith(HIDDEN_ID)


def may_be_invented(message: BaseMessage) -> bool:
    """Whether a message may be what assistant-ui invents for a call without a result.

    It has no mark, and a tool may return the same text. assistant-ui gives it the status "error"
    (`createToolCallCancellationStub` in `@assistant-ui/core` 0.3), and gave it no name before. It
    sends it in front of the message of a human: elsewhere a tool has returned this text.
    """
    if not isinstance(message, ToolMessage) or message.content != ASSISTANT_UI_TEXT:
        return False
    return message.status == "error" or message.name is None


_AWS_MARK = "orphan_tool_call_placeholder"  # langgraph-checkpoint-aws
_FOREIGN_ENDS = (
    "was cancelled - another message came in before it could be completed.",  # deepagents
    "could not be executed - arguments were malformed or truncated.",
    "did not complete - no result was recorded. It may have been cancelled or interrupted.",
    "was interrupted before completion.",  # langgraph-checkpoint-aws 1.0.5 to 1.1.0
)


def _is_foreign(message: ToolMessage) -> bool:
    """Whether it has the whole text of a known writer, with the name and the id of its own call."""
    text = message.content if isinstance(message.content, str) else ""
    if not text.endswith(_FOREIGN_ENDS):
        return False
    name = message.name or text.removeprefix("Tool call ").partition(" with id ")[0].strip("'")
    starts = (f"Tool call {q}{name}{q} with id {q}{message.tool_call_id}{q} " for q in ("", "'"))
    return text in {start + end for start in starts for end in _FOREIGN_ENDS}


def is_synthetic(message: BaseMessage, *, human_follows: bool = False) -> bool:
    """Whether `message` is a placeholder and no result, whoever wrote it.

    Those of others are recognised by a mark, or by their whole text with the name and the id of the
    call. What may be invented is one too: it gives way to a result, and to nothing else.

    Args:
        message: The message.
        human_follows: Whether a human message comes before the next message of a model. Default:
            False, as for what a task of a graph wrote.
    """
    if not isinstance(message, ToolMessage):
        return False
    if is_placeholder(message) or message.additional_kwargs.get(_AWS_MARK) is True:
        return True
    is_of_client = is_invented(message) or (human_follows and may_be_invented(message))
    return is_of_client or _is_foreign(message)


def is_searched(message: BaseMessage) -> bool:
    """Whether a repair searches for the result in whose place a placeholder is.

    Not if it is of this package, states a cause that is known, and asks for no search. What a
    search without records leaves (`recover=False`, a checkpointer that fails) is unknown. Not if it
    has the mark of a search.
    """
    # `isinstance` of a message takes longer than its `type`.
    if message.type != "tool" or not is_synthetic(message, human_follows=True):
        return False
    is_known = marker_of(message).get("cause", "unknown") != "unknown"
    is_final = is_known if is_placeholder(message) else may_be_invented(message)
    return not is_final or look_again_from(message) is not None
