"""Placeholders: the `ToolMessage`s of calls without a result, and how they are recognised.

A placeholder states what the records support and nothing more (`texts`). It has a public
marker, so that a real result can replace it later, and an id that is derived from its call, so
that the same history always gives the same placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from langchain_core.messages import BaseMessage, ToolMessage

from langgraph_patch.errors import OptionError
from langgraph_patch.history.ids import digest_of
from langgraph_patch.history.texts import (
    CAUSES,
    LANGUAGES,
    MAX_TEXT,
    Cause,
    DanglingCall,
    Language,
    checked_language,
    default_text,
    not_kept_text,
    set_language,
)

__all__ = [
    "CAUSES",
    "LANGUAGES",
    "MAX_TEXT",
    "PLACEHOLDER_KEY",
    "Cause",
    "DanglingCall",
    "Language",
    "Placeholder",
    "cause_of",
    "checked_language",
    "checked_placeholder",
    "inner_count",
    "is_client_fake",
    "is_foreign_placeholder",
    "is_placeholder",
    "is_settled",
    "make_placeholder",
    "marked_result",
    "needs_recheck",
    "set_language",
]

PLACEHOLDER_KEY: Final = "langgraph_patch"
"""The key in `additional_kwargs` that marks what this package wrote. Its value is a dict.

Of a placeholder:

- `cause`: one of the causes (`DanglingCall.cause`).
- `arguments`: for a malformed call the text of its incomplete arguments.
- `searched`: the id of the newest checkpoint that was searched, if no later write can change
  the finding. Such a placeholder is settled: its call is not searched again.
- `recheck`: True if a task may have been running when the checkpoints were searched. The next
  turn searches again.
- `inner`: how many results of calls inside the call it lists, if any.

Of a recovered result, which is no placeholder:

- `not_kept`: the names of effects of its call that were not restored.
- `cause`: `"reconciled"` if the application's own lookup settled the call.
"""

Placeholder: TypeAlias = str | Mapping[Cause, str] | Callable[[DanglingCall], "str | ToolMessage"]
"""An application's own content of placeholders: one text, a text per cause, or a callable."""


def checked_placeholder(placeholder: Placeholder | None) -> Placeholder | None:
    """Return `placeholder`.

    Raises:
        OptionError: If it has none of the forms of `Placeholder`, or names an unknown cause.
    """
    if placeholder is None or isinstance(placeholder, str) or callable(placeholder):
        return placeholder
    if not isinstance(placeholder, Mapping):
        raise OptionError(
            f"placeholder={placeholder!r}: expected a text, a mapping from cause to text, "
            f"or a callable that takes a DanglingCall."
        )
    for cause, text in placeholder.items():
        if cause not in CAUSES or not isinstance(text, str):
            raise OptionError(
                f"placeholder={{{cause!r}: {text!r}}}: expected a text for one of the causes "
                f"{', '.join(CAUSES)}."
            )
    return placeholder


def make_placeholder(
    call: DanglingCall,
    ordinal: int,
    *,
    placeholder: Placeholder | None,
    language: Language | None,
    human_follows: bool,
    searched: str | None = None,
    recheck: bool = False,
) -> ToolMessage:
    """The placeholder for `call`.

    Args:
        call: The call without a result.
        ordinal: The position of the call in its message; part of the placeholder's id.
        placeholder: The application's own content. None: the default text of the cause.
        language: The language of the default texts. None: that of the process.
        human_follows: Whether a human message comes before the next message of the model.
        searched: The checkpoint up to which the finding is final, for the marker.
        recheck: Whether the marker asks for another search on the next turn.

    Raises:
        OptionError: If the application's callable returns neither a str nor a `ToolMessage`.
    """
    content = _own_content(call, placeholder)
    if content is None:
        content = default_text(call, language, human_follows=human_follows)
    marker: dict[str, Any] = {"cause": call.cause}
    if call.cause == "malformed" and call.error is not None:
        marker["arguments"] = call.error
    if call.inner:
        marker["inner"] = len(call.inner)
    marker |= search_marker(searched, recheck=recheck)
    ids = {
        "id": f"patch-{digest_of('placeholder', call.message.id, call.tool_call_id, ordinal)[:32]}",
        "tool_call_id": call.tool_call_id,
    }
    if isinstance(content, ToolMessage):
        return _marked(content, marker).model_copy(update=ids)
    return ToolMessage(
        content=content,
        name=call.name,
        status="error",
        additional_kwargs={PLACEHOLDER_KEY: marker},
        **ids,
    )


def search_marker(searched: str | None, *, recheck: bool) -> dict[str, Any]:
    """What the marker of a placeholder holds of the search for evidence."""
    if recheck:
        return {"recheck": True}
    return {} if searched is None else {"searched": searched}


def with_search_marker(message: ToolMessage, searched: str | None, *, recheck: bool) -> ToolMessage:
    """A placeholder that asked for another search, after that search."""
    marker = dict(message.additional_kwargs[PLACEHOLDER_KEY])
    marker.pop("recheck", None)
    return _marked(message, {**marker, **search_marker(searched, recheck=recheck)})


def marked_result(
    message: ToolMessage,
    not_kept: Sequence[str],
    cause: str | None,
    language: Language | None,
) -> ToolMessage:
    """A recovered result with its marker, and with a sentence that names what was not kept.

    Args:
        message: The recorded result; it is not changed.
        not_kept: The names of effects that were not restored.
        cause: For the marker: `"reconciled"`, or None.
        language: The language of the sentence. None: that of the process.
    """
    marker: dict[str, Any] = {"cause": cause} if cause else {}
    if not not_kept:
        return _marked(message, marker) if marker else message
    sentence = not_kept_text(not_kept, language)
    content: Any = message.content
    if isinstance(content, str):
        content = f"{sentence}\n{content}"
    else:
        content = [{"type": "text", "text": sentence}, *content]
    marked = _marked(message, {**marker, "not_kept": list(not_kept)})
    return marked.model_copy(update={"content": content})


def _marked(message: ToolMessage, marker: Mapping[str, Any]) -> ToolMessage:
    extra = {**message.additional_kwargs, PLACEHOLDER_KEY: dict(marker)}
    return message.model_copy(update={"additional_kwargs": extra})


def _own_content(call: DanglingCall, placeholder: Placeholder | None) -> str | ToolMessage | None:
    if placeholder is None or isinstance(placeholder, str):
        return placeholder
    if isinstance(placeholder, Mapping):
        return placeholder.get(call.cause)
    content = placeholder(call)
    if not isinstance(content, str | ToolMessage):
        raise OptionError(
            f"placeholder callable returned {content!r} for tool call {call.tool_call_id!r}: "
            f"expected a str or a ToolMessage."
        )
    return content


def is_placeholder(message: BaseMessage) -> bool:
    """Whether `message` is a placeholder that this package wrote.

    Args:
        message: Any message.

    Returns:
        True if it is a `ToolMessage` whose marker (`PLACEHOLDER_KEY` in its
        `additional_kwargs`) has the cause of a placeholder. The text does not matter. False for
        placeholders of other packages, and for recovered results, which may have a marker too.

    Examples:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph_patch import is_placeholder, patch_messages
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> history = [AIMessage("", tool_calls=[call]), HumanMessage("never mind")]
        >>> [is_placeholder(m) for m in patch_messages(history).messages]
        [False, True, False]
    """
    return isinstance(message, ToolMessage) and cause_of(message) is not None


def _marker_of(message: BaseMessage) -> Mapping[str, Any]:
    marker = message.additional_kwargs.get(PLACEHOLDER_KEY)
    return marker if isinstance(marker, dict) else {}


def cause_of(message: BaseMessage) -> Cause | None:
    """The cause in the marker of a placeholder of this package; None for any other message."""
    found = _marker_of(message).get("cause")
    return next((cause for cause in CAUSES if cause == found), None)


def inner_count(message: BaseMessage) -> int:
    """How many results of calls inside its call a placeholder of this package lists."""
    count = _marker_of(message).get("inner")
    return count if isinstance(count, int) else 0


def needs_recheck(message: BaseMessage) -> bool:
    """Whether a placeholder of this package asks for another search on the next turn."""
    return is_placeholder(message) and bool(_marker_of(message).get("recheck"))


def names_lost_effects(message: BaseMessage) -> bool:
    """Whether a recovered result names effects of its call that were not restored."""
    return bool(_marker_of(message).get("not_kept"))


def is_settled(message: BaseMessage) -> bool:
    """Whether no search can find more than this placeholder of this package states."""
    marker = _marker_of(message)
    return is_placeholder(message) and "searched" in marker and not marker.get("recheck")


AGENT_CHAT_UI_TEXT = "Successfully handled tool call."
AGENT_CHAT_UI_ID = "do-not-render-"
ASSISTANT_UI_TEXT = '{"cancelled":true}'
CLIENT_FAKE_TEXTS = (AGENT_CHAT_UI_TEXT, ASSISTANT_UI_TEXT)
"""A tuple: comparing is faster than hashing long results."""

_ASSISTANT_UI_SPACED = re.compile(r'\s*\{\s*"cancelled"\s*:\s*true\s*\}\s*\Z')


def is_client_fake(message: BaseMessage, *, from_client: bool = False) -> bool:
    """Whether `message` is a result that a known client invents for calls without a result.

    agent-chat-ui marks its messages by their ids. assistant-ui writes JSON without spaces;
    Python's `json.dumps` writes spaces, so a tool that returns this dict is not mistaken for it.

    Args:
        message: Any message.
        from_client: Whether the message came with the input of the run. Spaces do not matter
            then: no tool of the graph wrote it.
    """
    if not isinstance(message, ToolMessage) or not isinstance(message.content, str):
        return False
    if message.content == AGENT_CHAT_UI_TEXT:
        return str(message.id).startswith(AGENT_CHAT_UI_ID)
    if message.content == ASSISTANT_UI_TEXT:
        return True
    return from_client and bool(_ASSISTANT_UI_SPACED.match(message.content))


_FOREIGN_MARKS = ("orphan_tool_call_placeholder",)  # langgraph-checkpoint-aws
_FOREIGN_TEXTS = re.compile(  # deepagents, older and newer
    r"Tool call \S{1,200} with id \S{1,200} (?:"
    r"was cancelled - another message came in before it could be completed\."
    r"|could not be executed - arguments were malformed or truncated\."
    r"|did not complete - no result was recorded\. It may have been cancelled or interrupted\."
    r")\Z"
)


def is_foreign_placeholder(message: BaseMessage) -> bool:
    """Whether `message` is a placeholder that another package wrote.

    It is recognised by its mark (langgraph-checkpoint-aws) or by its whole text (deepagents).
    """
    if not isinstance(message, ToolMessage) or is_placeholder(message):
        return False
    if any(message.additional_kwargs.get(mark) is True for mark in _FOREIGN_MARKS):
        return True
    return isinstance(message.content, str) and bool(_FOREIGN_TEXTS.match(message.content))
