"""What a refusal names, by phrases of the providers' own sentences.

A phrase is part of a sentence that a provider, or a server, answers with, and never a word alone:
*image*, *role* or *user* stand in names of tools, in schemas, and in refusals of other matters.
They stand in `phrases.toml`, each with a place where it was seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final, Literal

from langgraph_patch._text import read_table

_OfMedia = Literal["image", "file", "media", "no_media"]
_OfOrder = Literal["start", "user_after_tool", "alternation", "end"]
Matter = _OfMedia | _OfOrder | Literal["refused", "no_history"]

OF_MEDIA: Final = frozenset[Matter]({"image", "file", "media", "no_media"})

PHRASES: Mapping[Matter, Mapping[str, str]] = read_table(__package__, "phrases.toml")
"""Matter -> phrase -> where it was seen, on GitHub."""


def matters_in(refusal: str) -> set[Matter]:
    r"""The matters that the text of a refusal names.

    Args:
        refusal: The text, in whatever way its quotes, blanks and capitals are written.

    Examples:
        >>> from langgraph_patch.history.forms.phrases import matters_in
        >>> matters_in('{"message": "Unexpected role \"user\" after role \"tool\""}')
        {'user_after_tool'}
        >>> matters_in("tools.0.image: Input should be a valid dictionary")
        set()
    """
    text = _plain(refusal)
    return {matter for matter, phrases in _patterns().items() if phrases.search(text)}


def speaks_of_calls(refusal: str) -> bool:
    r"""Whether a refusal speaks of a call without a result.

    A history that ends with a call ends with a message of a model, too.

    Args:
        refusal: The text.

    Examples:
        >>> from langgraph_patch.history.forms.phrases import speaks_of_calls
        >>> speaks_of_calls("messages.2: `tool_use` ids were found without `tool_result` blocks")
        True
        >>> speaks_of_calls("messages.0.content.0: Could not process image")
        False
    """
    return bool(_OF_CALLS.search(_plain(refusal))) or "end" in matters_in(refusal)


_OF_CALLS = re.compile(
    r"tool_result|tool messages|toolresult|function response|response messages|tool output"
    r"|corresponding toolmessage|calls and responses|call and result"
    r"|tool_?calls?.{0,60}(?:followed|result)|no result"
)
"""Words of the sentences about a call without its result (the page *Find your error* has them)."""


@cache
def _patterns() -> Mapping[Matter, re.Pattern[str]]:
    """For each matter a pattern of its phrases."""
    return {
        matter: re.compile("|".join(map(_pattern, phrases))) for matter, phrases in PHRASES.items()
    }


def _pattern(phrase: str) -> str:
    return re.escape(_plain(phrase)).replace(r"\*", ".{0,80}?")


def _plain(text: str) -> str:
    """A text with one kind of quotes, single blanks and no capitals."""
    quoted = re.sub(r"\\*[\"'`\u2018\u2019]", "'", text)
    return re.sub(r"(?:\s|\\n)+", " ", quoted).lower()
