"""What is said of a call that has no result: causes, texts, and the mark by which we know it.

A placeholder says what is known and nothing more. It carries a public mark, so that a
real result can replace it later, and an id made of what it stands for, so that the same
history gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_patch.errors import OptionError
from langgraph_patch.history.rewrite import MAX_ID, MAX_NAME, digest_of

PLACEHOLDER_KEY: Final = "langgraph_patch"
"""The key in `additional_kwargs` that marks a placeholder of ours."""

MAX_TEXT = 500
"""The longest text of a placeholder (real results are never cut)."""

Cause = Literal["awaiting_input", "failed", "malformed", "unknown"]
Language = Literal["en", "zh"]

CAUSES: tuple[Cause, ...] = get_args(Cause)
LANGUAGES: tuple[Language, ...] = get_args(Language)


@dataclass(frozen=True, slots=True)
class DanglingCall:
    """A tool call that has no result, as a `placeholder` callable receives it.

    Attributes:
        tool_call_id: The id under which the call is answered.
        name: The tool's name, as every wire accepts it.
        args: The arguments of the call; `{}` if they were malformed.
        cause: Why there is no result.
        error: The recorded error (`failed`) or the raw arguments (`malformed`), else None.
        message: The `AIMessage` that made the call, as it was stored.
        index: Where that message stands in the history.
    """

    tool_call_id: str
    name: str
    args: Mapping[str, Any]
    cause: Cause
    error: str | None
    message: AIMessage
    index: int


Placeholder: TypeAlias = str | Mapping[Cause, str] | Callable[[DanglingCall], "str | ToolMessage"]
"""What an application may say instead: one text, a text for some causes, or a callable."""

_TEXTS: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "cancelled": (
            "Tool call {name} with id {id} was cancelled - another message came in "
            "before it could be completed."
        ),
        "awaiting_input": (
            "Tool call {name} with id {id} was waiting for human input; "
            "no answer came and it did not finish."
        ),
        "failed": "Tool call {name} with id {id} failed: {error}",
        "malformed": (
            "Tool call {name} with id {id} was not run: "
            "its arguments are not a complete JSON object."
        ),
        "unknown": (
            "No result of tool call {name} with id {id} was recorded; it may or may not have run."
        ),
    },
    "zh": {
        "cancelled": "工具调用 {name}(ID 为 {id})已被取消——在其完成之前收到了另一条消息。",
        "awaiting_input": "工具调用 {name}(ID 为 {id})正在等待人工输入;没有收到答复,它没有完成。",
        "failed": "工具调用 {name}(ID 为 {id})失败:{error}",
        "malformed": "工具调用 {name}(ID 为 {id})没有执行:其参数不是完整的 JSON 对象。",
        "unknown": "没有记录到工具调用 {name}(ID 为 {id})的结果;它可能已经执行,也可能没有执行。",
    },
}

_process_language: Language = "en"


def set_language(language: Language) -> None:
    """Choose the language of placeholders for the whole process.

    Args:
        language: `"en"` (the default) or `"zh"`. An option `language=` wins over it.

    Raises:
        OptionError: If there are no texts in that language.

    Example:
        >>> from langgraph_patch import set_language
        >>> set_language("zh")
        >>> set_language("en")
    """
    global _process_language  # noqa: PLW0603 - process-wide is what the function promises
    _process_language = checked_language(language)


def checked_language(language: Language) -> Language:
    """`language`, or an error that lists the languages."""
    if language not in LANGUAGES:
        raise OptionError(f"language={language!r}: expected one of {', '.join(LANGUAGES)}.")
    return language


def checked_placeholder(placeholder: Placeholder | None) -> Placeholder | None:
    """`placeholder`, or an error that says which forms it may have."""
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


def cancelled_text(call: DanglingCall) -> str:
    """The sentence that older systems say of every call without a result.

    Use it as `placeholder=cancelled_text`. It is the truth only of a call that waited
    while another message came in; for the rest prefer the default texts.

    Args:
        call: The call.

    Returns:
        The sentence in the language of the process, at most 500 characters.

    Example:
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch import DanglingCall, cancelled_text
        >>> call = DanglingCall("c1", "wire", {}, "unknown", None, AIMessage(""), 0)
        >>> cancelled_text(call)
        'Tool call wire with id c1 was cancelled - another message came in before it could be completed.'
    """  # noqa: E501 - the sentence is shown whole
    return _default_text("cancelled", call, None)


def make_placeholder(
    call: DanglingCall,
    ordinal: int,
    *,
    placeholder: Placeholder | None,
    language: Language | None,
    human_follows: bool,
) -> ToolMessage:
    """The placeholder for `call`.

    Args:
        call: The call that has no result.
        ordinal: Which call of its message it is; part of the placeholder's id.
        placeholder: What the application wants to be said.
        language: The language of the default texts; None for that of the process.
        human_follows: Whether a human wrote after the call and before the model's next turn.

    Raises:
        OptionError: If the application's callable returns neither a text nor a `ToolMessage`.
    """
    said = _said(call, placeholder)
    if said is None:
        waited = call.cause == "awaiting_input" and human_follows
        said = _default_text("cancelled" if waited else call.cause, call, language)
    mark: dict[str, Any] = {"cause": call.cause}
    if call.cause == "malformed" and call.error is not None:
        mark["arguments"] = call.error
    own = {
        "id": f"patch-{digest_of('placeholder', call.message.id, call.tool_call_id, ordinal)[:32]}",
        "tool_call_id": call.tool_call_id,
    }
    if isinstance(said, ToolMessage):
        extra = {**said.additional_kwargs, PLACEHOLDER_KEY: mark}
        return said.model_copy(update={**own, "additional_kwargs": extra})
    return ToolMessage(
        content=said,
        name=call.name,
        status="error",
        additional_kwargs={PLACEHOLDER_KEY: mark},
        **own,
    )


def _said(call: DanglingCall, placeholder: Placeholder | None) -> str | ToolMessage | None:
    if placeholder is None or isinstance(placeholder, str):
        return placeholder
    if isinstance(placeholder, Mapping):
        return placeholder.get(call.cause)
    said = placeholder(call)
    if not isinstance(said, str | ToolMessage):
        raise OptionError(
            f"placeholder callable returned {said!r} for tool call {call.tool_call_id!r}: "
            f"expected a str or a ToolMessage."
        )
    return said


def _default_text(key: str, call: DanglingCall, language: Language | None) -> str:
    """Names, ids and errors are values of a format, never the format itself."""
    template = _TEXTS[language or _process_language][key]
    named = {"name": call.name[:MAX_NAME], "id": call.tool_call_id[:MAX_ID]}
    room = MAX_TEXT - len(template.format(**named, error=""))
    error = call.error or ""
    error = error if len(error) <= room else error[: room - 1] + "…"
    return template.format(**named, error=error)


def is_placeholder(message: BaseMessage) -> bool:
    """Whether `message` is a placeholder of ours (by its mark, not by its words).

    Args:
        message: Any message.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph_patch import is_placeholder, patch_messages
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> history = [AIMessage("", tool_calls=[call]), HumanMessage("never mind")]
        >>> [is_placeholder(m) for m in patch_messages(history).messages]
        [False, True, False]
    """
    return isinstance(message, ToolMessage) and PLACEHOLDER_KEY in message.additional_kwargs


def cause_of(message: BaseMessage) -> str | None:
    """The cause that a placeholder of ours gives; None for any other message."""
    mark = message.additional_kwargs.get(PLACEHOLDER_KEY)
    return mark.get("cause") if isinstance(mark, dict) else None


_FOREIGN_MARKS = ("orphan_tool_call_placeholder",)  # langgraph-checkpoint-aws
_FOREIGN_TEXTS = re.compile(  # deepagents, older and newer
    r"Tool call \S{1,200} with id \S{1,200} (?:"
    r"was cancelled - another message came in before it could be completed\."
    r"|could not be executed - arguments were malformed or truncated\."
    r"|did not complete - no result was recorded\. It may have been cancelled or interrupted\."
    r")\Z"
)


def is_foreign_placeholder(message: BaseMessage) -> bool:
    """Whether `message` is what another repair wrote where it knew no result.

    Known by its mark (langgraph-checkpoint-aws) or its whole text (deepagents).
    """
    if not isinstance(message, ToolMessage) or is_placeholder(message):
        return False
    if any(message.additional_kwargs.get(mark) is True for mark in _FOREIGN_MARKS):
        return True
    return isinstance(message.content, str) and bool(_FOREIGN_TEXTS.match(message.content))


def synthetic_test(replace_foreign: bool) -> Callable[[BaseMessage], bool]:  # noqa: FBT001
    """The test that tells placeholders from real results."""
    if not replace_foreign:
        return is_placeholder
    return lambda message: is_placeholder(message) or is_foreign_placeholder(message)
