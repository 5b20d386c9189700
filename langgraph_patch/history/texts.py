"""The texts that state what is known of a call without a result.

They stand in `texts.toml`. A text speaks of the record, which may lag behind the world: LangGraph
does not wait until an answer is written. "Was not run" is said of a call that nothing can run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from langgraph_patch._text import cut, one_line, read_table, short
from langgraph_patch.errors import OptionError
from langgraph_patch.history.findings import DanglingCall

MAX_TEXT = 500
"""The maximum length of a default text.

Recorded errors and the list of inner results are shortened to it; real results never.
"""

Language = Literal["en", "zh"]

LANGUAGES: tuple[Language, ...] = get_args(Language)


_TEXTS: Mapping[str, Mapping[str, str]] = read_table(__package__, "texts.toml")
"""The texts of each language, by cause and detail."""

_NONE = "(none)"
_MAX_NAME = 100
"""The maximum length of a name and of an id in a text."""

_language: Language = "en"


def set_language(language: Language) -> None:
    """Set the language of the default placeholder texts for the whole process.

    Args:
        language: `"en"` (English, used until this function is called) or `"zh"` (Chinese).

    Raises:
        OptionError: If `language` is neither of them.

    Examples:
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch import patch_messages, set_language
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> set_language("zh")
        >>> patch_messages([AIMessage("", tool_calls=[call])]).messages[1].content
        '工具调用 wire(ID 为 c1)的结果未知;它可能已经执行,也可能没有执行。'
        >>> set_language("en")
    """
    global _language  # noqa: PLW0603 - the setting is for the whole process
    if language not in LANGUAGES:
        raise OptionError(f"language={short(language)}: expected one of {', '.join(LANGUAGES)}.")
    _language = language


def default_text(call: DanglingCall) -> str:
    """The default text of a placeholder, at most `MAX_TEXT` characters long."""
    texts = _TEXTS[_language]
    detail = f"{call.cause}, {call.detail}"
    key = detail if detail in texts else call.cause
    stored = {"name": call.name, "id": call.tool_call_id}
    names = {key: one_line(cut(each or _NONE, _MAX_NAME)) for key, each in stored.items()}
    available = MAX_TEXT - len(texts[key].format(**names, error=""))
    error = cut(call.error or "", available // 2 if call.inner else available)
    text = texts[key].format(**names, error=error)
    if not call.inner:
        return text
    text += "" if text.endswith(texts["stop"]) else texts["stop"]
    return text + _fit(texts["inner"], "; ".join(call.inner), MAX_TEXT - len(text))


_BETWEEN = ("between results", "between results, left out")
LINES_BETWEEN: Sequence[str] = [texts[key] for texts in _TEXTS.values() for key in _BETWEEN]
"""The lines between two results of one call, in each language."""


def line_between(*, are_left_out: bool = False) -> str:
    """The line between two results of one call, with others between them if some are left out."""
    return _TEXTS[_language][_BETWEEN[are_left_out]]


def not_kept_text(not_kept: Sequence[str], *, may_be_kept: bool = False) -> str:
    """The sentence before a recovered result that names its effects that were not kept.

    Args:
        not_kept: The names of the effects: state keys, `goto`.
        may_be_kept: Whether the state may have them. Default: False.
    """
    template = _TEXTS[_language]["may be kept" if may_be_kept else "not kept"]
    return _fit(template, ", ".join(not_kept), MAX_TEXT)


def turn_texts(name: str, not_kept: Sequence[str]) -> list[str]:
    """The first lines of the human message that tells what was recorded of a turn.

    Args:
        name: The name of the node.
        not_kept: The state keys that it changed and that are not restored.
    """
    texts = _TEXTS[_language]
    lost = [_fit(texts["turn, not kept"], ", ".join(not_kept), MAX_TEXT)] if not_kept else []
    return [texts["turn, written by"], *lost, texts["turn"].format(name=name)]


def _fit(template: str, items: str, length: int) -> str:
    """The template with the items, which are shortened so that the whole has at most `length`."""
    return template.format(items=cut(items, length - len(template.format(items=""))))
