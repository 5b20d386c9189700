"""Several results of one call in one message: a provider reads one for each call.

A human rejects a call and another hook runs it; a job "is running", and later it "ended: 42". No
text tells which one is true. So all are told, in their order, under the id of the last: an old copy
of the first, which a client may send again, replaces nothing. A mark has the id of each, with the
digests of what it has said. What comes later is compared with that:

- A result with a known id replaces its own part (a redaction, progress), but for an old copy of it.
- What is told already, as a text or as JSON, is not told again: a client sends all that it has.
- A blank result is not told.
- At most `MOST_TOLD` are told, the first and the newest.

A piece of the content that no digest fits to is what the message itself says: it was edited. A
text that imitates the line between two results is split there, and nothing of it is lost.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from langchain_core.messages import ToolMessage

from langgraph_patch.history.changes import json_value
from langgraph_patch.history.fields import Block, blocks_of, digest_of
from langgraph_patch.history.placeholders import marked, marker_of
from langgraph_patch.history.texts import LINES_BETWEEN, line_between

MOST_TOLD = 20
"""How many results of one call a message tells at most."""

_LINES = "|".join(map(re.escape, LINES_BETWEEN))
_BETWEEN = re.compile(rf"(?:\A|\n)(?:(?:{_LINES})(?:\n|\Z))+")


def joined(first: ToolMessage, others: Sequence[ToolMessage]) -> ToolMessage:
    """One message that tells these results of one call; the first if that tells them all.

    Args:
        first: The first result; it may tell several.
        others: The others, in the order of the history.
    """
    if not others:
        return first
    parts, told, own_id = _parts_of(first), [first], first.id
    known = Counter(key for own in parts.values() for key in _told(own))
    for other in others:
        name, own = other.id or object(), _pieces_of(other)  # no mark of another one is read
        old = parts.get(name, {})
        if own and own.keys() <= old.keys():
            continue
        known.subtract(_told(old))
        new = {key: piece for key, piece in own.items() if not known[key]}
        known.update(new.keys())
        if new.keys() != {*_told(old)}:
            own_id = other.id if name not in parts and other.id else own_id
            parts[name] = dict.fromkeys([*old][-MOST_TOLD:]) | new
            told.append(other)
    if len(told) == 1:
        return first
    full = [name for name, own in parts.items() if _told(own)]
    for name in full[1 : 1 - MOST_TOLD]:
        parts[name] = dict.fromkeys(parts[name])
    results = {name: [*own] for name, own in parts.items() if isinstance(name, str)}
    return marked(
        first,
        {**marker_of(first), "results": results},
        id=own_id,
        content=_content_of([*parts.values()]),
        status="error" if all(each.status == "error" for each in told) else "success",
        artifact=next((m.artifact for m in reversed(told) if m.artifact is not None), None),
    )


def _told(own: Mapping[str, Any]) -> list[str]:
    """The digests of what is told of a result."""
    return [key for key, piece in own.items() if piece is not None]


def _parts_of(message: ToolMessage) -> dict[Hashable, dict[str, Any]]:
    """The results that a message tells, by their ids: each piece, or None, by its digest."""
    pieces, stored = _pieces_of(message), marker_of(message).get("results")
    parts = dict[Hashable, dict[str, Any]]()
    for name, keys in stored.items() if isinstance(stored, dict) else ():
        own = [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []
        parts[name] = {key: pieces.pop(key, None) for key in dict.fromkeys(own)}
    name = message.id or object()
    return parts | {name: pieces | parts.get(name, {})}


# --- content ---------------------------------------------------------------------------------


def _pieces_of(message: ToolMessage) -> dict[str, Any]:
    """What a content has between the lines of this package, by digests: texts, or blocks."""
    found = blocks_of(message)
    blocks = [each.fields.get("output") if each.is_custom_output else each.stored for each in found]
    pieces: list[Any] = [[*own] for is_line, own in groupby(blocks, _is_line) if not is_line]
    if len(blocks) == 1 and isinstance(blocks[0], str):
        pieces = _BETWEEN.split(blocks[0])
    return {_digest_of(piece): piece for piece in pieces if _text_of(piece).strip()}


def _is_line(block: Any) -> bool:
    return _BETWEEN.fullmatch(_text_of([block])) is not None


def _text_of(piece: Any) -> str:
    """The text of a piece; if it is more than a text, the text of its JSON."""
    blocks = map(Block, [piece] if isinstance(piece, str) else piece)
    texts = [block.fields.get("text") if block.kind == "text" else block.stored for block in blocks]
    if all(isinstance(text, str) for text in texts):
        return "".join(map(str, texts))
    return json.dumps(json_value(piece))


def _digest_of(piece: Any) -> str:
    """The same for equal texts, equal JSON and equal blocks."""
    text = _text_of(piece).strip()
    with suppress(ValueError, RecursionError):
        text = json.dumps(json.loads(text), sort_keys=True)
    return digest_of(text)[:32]


def _content_of(parts: Sequence[Mapping[str, Any]]) -> Any:
    """The content that tells these results: a text if all of them are texts."""
    told = [piece for own in parts for piece in own.values() if piece is not None]
    lines = [line_between()] * len(told)
    is_full = len(told) >= MOST_TOLD and not all(map(_told, parts))
    lines[1:2] = [line_between(are_left_out=is_full)]
    pieces = [each for pair in zip(lines, told, strict=False) for each in pair][1:]
    if all(isinstance(piece, str) for piece in pieces):
        return "\n".join(pieces)
    return [b for p in pieces for b in ([Block.of_text(p).stored] if isinstance(p, str) else p)]
