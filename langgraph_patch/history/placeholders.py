"""Placeholders: the `ToolMessage`s of calls without a result, their causes and their texts.

A placeholder states what the records support and nothing more. It has a public mark, so that a
real result can replace it later, and an id that is derived from its call, so that the same
history always gives the same placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_patch.errors import OptionError
from langgraph_patch.history.ids import MAX_ID, MAX_NAME, digest_of

PLACEHOLDER_KEY: Final = "langgraph_patch"
"""The key in `additional_kwargs` that marks a placeholder of this package.

Its value is a dict: `cause`, and for some malformed calls `arguments`, their text.
"""

MAX_TEXT = 500
"""The maximum length of a default text. Recorded errors in it are shortened; real results never."""

Cause = Literal["awaiting_input", "failed", "malformed", "unknown"]
Language = Literal["en", "zh"]

CAUSES: tuple[Cause, ...] = get_args(Cause)
LANGUAGES: tuple[Language, ...] = get_args(Language)


@dataclass(frozen=True, slots=True)
class DanglingCall:
    """A tool call without a result: the argument of a `placeholder` callable.

    Attributes:
        tool_call_id: The id of the call in the repaired history.
        name: The name of the tool in the repaired history.
        args: The arguments of the call; `{}` if they are not a complete JSON object.
        cause: Why there is no result: `"failed"` (its task recorded an error),
            `"awaiting_input"` (its task was interrupted and waits for an answer),
            `"malformed"` (its arguments are not a complete JSON object) or `"unknown"`.
        error: For `failed` the recorded error, for `malformed` the text of the arguments,
            else None.
        message: The `AIMessage` that made the call, as it is stored.
        index: The index of that message in the history.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph_patch import DanglingCall, patch_messages
        >>> def text(call: DanglingCall) -> str:
        ...     return f"{call.name}{dict(call.args)}: {call.cause}"
        >>> call = {"name": "wire", "args": {"to": "bob"}, "id": "c1"}
        >>> history = [AIMessage("", tool_calls=[call]), HumanMessage("never mind")]
        >>> patch_messages(history, placeholder=text).messages[1].content
        "wire{'to': 'bob'}: unknown"
    """

    tool_call_id: str
    name: str
    args: Mapping[str, Any]
    cause: Cause
    error: str | None
    message: AIMessage
    index: int


Placeholder: TypeAlias = str | Mapping[Cause, str] | Callable[[DanglingCall], "str | ToolMessage"]
"""An application's own content of placeholders: one text, a text per cause, or a callable."""

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
    """Set the language of the default placeholder texts for the whole process.

    Args:
        language: `"en"` (English, used until this function is called) or `"zh"` (Chinese). An
            option `language=` of a function or node takes precedence.

    Raises:
        OptionError: If `language` is neither of them.

    Example:
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch import patch_messages, set_language
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> set_language("zh")
        >>> patch_messages([AIMessage("", tool_calls=[call])]).messages[1].content
        '没有记录到工具调用 wire(ID 为 c1)的结果;它可能已经执行,也可能没有执行。'
        >>> set_language("en")
    """
    global _process_language  # noqa: PLW0603 - the setting is for the whole process
    _process_language = checked_language(language)


def checked_language(language: Language) -> Language:
    """Return `language`.

    Raises:
        OptionError: If there are no texts in that language.
    """
    if language not in LANGUAGES:
        raise OptionError(f"language={language!r}: expected one of {', '.join(LANGUAGES)}.")
    return language


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


def cancelled_text(call: DanglingCall) -> str:
    """The sentence that older systems write for every call without a result.

    Use it as `placeholder=cancelled_text`. It is true only for a call that waited while another
    message came in; the default texts are true for every call.

    Args:
        call: The call without a result.

    Returns:
        The sentence, in the language of the process (`set_language`).

    Example:
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch import DanglingCall, cancelled_text
        >>> call = DanglingCall("c1", "wire", {}, "unknown", None, AIMessage(""), 0)
        >>> cancelled_text(call)
        'Tool call wire with id c1 was cancelled - another message came in before it could be completed.'
    """  # noqa: E501 - the sentence is shown in full
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
        call: The call without a result.
        ordinal: The position of the call in its message; part of the placeholder's id.
        placeholder: The application's own content. None: the default text of the cause.
        language: The language of the default texts. None: that of the process.
        human_follows: Whether a human message comes before the next message of the model.

    Raises:
        OptionError: If the application's callable returns neither a str nor a `ToolMessage`.
    """
    content = _own_content(call, placeholder)
    if content is None:
        waited = call.cause == "awaiting_input" and human_follows
        content = _default_text("cancelled" if waited else call.cause, call, language)
    mark: dict[str, Any] = {"cause": call.cause}
    if call.cause == "malformed" and call.error is not None:
        mark["arguments"] = call.error
    ids = {
        "id": f"patch-{digest_of('placeholder', call.message.id, call.tool_call_id, ordinal)[:32]}",
        "tool_call_id": call.tool_call_id,
    }
    if isinstance(content, ToolMessage):
        extra = {**content.additional_kwargs, PLACEHOLDER_KEY: mark}
        return content.model_copy(update={**ids, "additional_kwargs": extra})
    return ToolMessage(
        content=content,
        name=call.name,
        status="error",
        additional_kwargs={PLACEHOLDER_KEY: mark},
        **ids,
    )


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


def _default_text(key: str, call: DanglingCall, language: Language | None) -> str:
    template = _TEXTS[language or _process_language][key]
    names = {"name": call.name[:MAX_NAME], "id": call.tool_call_id[:MAX_ID]}
    max_error = MAX_TEXT - len(template.format(**names, error=""))
    error = call.error or ""
    error = error if len(error) <= max_error else error[: max_error - 1] + "…"
    return template.format(**names, error=error)


def is_placeholder(message: BaseMessage) -> bool:
    """Whether `message` is a placeholder that this package wrote.

    Args:
        message: Any message.

    Returns:
        True if it is a `ToolMessage` with `PLACEHOLDER_KEY` in its `additional_kwargs`. The
        text does not matter. False for placeholders of other packages.

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
    """The cause in the mark of a placeholder of this package; None for any other message."""
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
    """Whether `message` is a placeholder that another package wrote.

    It is recognised by its mark (langgraph-checkpoint-aws) or by its whole text (deepagents).
    """
    if not isinstance(message, ToolMessage) or is_placeholder(message):
        return False
    if any(message.additional_kwargs.get(mark) is True for mark in _FOREIGN_MARKS):
        return True
    return isinstance(message.content, str) and bool(_FOREIGN_TEXTS.match(message.content))


def placeholder_test(replace_foreign: bool) -> Callable[[BaseMessage], bool]:  # noqa: FBT001
    """A function that returns whether a message counts as a placeholder."""
    if not replace_foreign:
        return is_placeholder
    return lambda message: is_placeholder(message) or is_foreign_placeholder(message)
