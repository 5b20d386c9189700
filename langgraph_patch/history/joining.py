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
from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import chain, groupby
from operator import itemgetter
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
    parts: dict[Hashable, dict[str, Any]] = {}
    known, told, newest = Counter[str](), [first], first.id
    for message in (first, *others):
        for name, own in _parts_of(message).items():
            old = parts.get(name, {})
            is_old_copy = own and own.keys() <= old.keys()
            known.subtract(_told(old))
            new = {key: piece for key, piece in own.items() if not known[key]}
            if not is_old_copy and (new or _told(old)):
                if message is not first:
                    told.append(message)
                    newest = name if name not in parts and isinstance(name, str) else newest
                parts[name] = dict.fromkeys([*old][-MOST_TOLD:]) | new
            known.update(_told(parts.get(name, {})))
    if len(told) == 1:
        return first
    full = [name for name, own in parts.items() if _told(own)]
    for name in full[1 : 1 - MOST_TOLD]:
        parts[name] = dict.fromkeys(parts[name])
    ids = (name if isinstance(name, str) else None for name in parts)
    results = [[each, [*own]] for each, own in zip(ids, parts.values(), strict=True)]
    return marked(
        first,
        {**marker_of(first), "results": results},
        id=newest,
        content=_content_of(parts.values()),
        status="error" if all(each.status == "error" for each in told) else "success",
        artifact=next((m.artifact for m in reversed(told) if m.artifact is not None), None),
    )


def _told(own: Mapping[str, Any]) -> list[str]:
    """The digests of what is told of a result."""
    return [key for key, piece in own.items() if piece is not None]


def _parts_of(message: ToolMessage) -> dict[Hashable, dict[str, Any]]:
    """The results that a message tells, by their ids: each piece, or None, by its digest."""
    pieces = {_digest_of(piece): piece for piece in _pieces_of(message)}
    parts: dict[Hashable, dict[str, Any]] = {}
    stored = marker_of(message).get("results")
    for each in stored if isinstance(stored, list) else ():
        match each:
            case [name, list(keys)] if (name := _name_of(name)) not in parts:
                own = dict.fromkeys(key for key in keys if isinstance(key, str))
                parts[name] = {key: pieces.pop(key, None) for key in own}
    name = _name_of(message.id)
    return parts | {name: parts.get(name, {}) | pieces}


def _name_of(message_id: object) -> Hashable:
    """The id of a message; if it has none, a name that no other message has."""
    return message_id if isinstance(message_id, str) and message_id else object()


# --- content ---------------------------------------------------------------------------------


def _pieces_of(message: ToolMessage) -> list[Any]:
    """What is between the lines of this package: texts, or blocks; nothing of a blank content."""
    blocks = blocks_of(message)
    is_custom = bool(blocks) and blocks[0].is_custom_output
    content = blocks[0].fields.get("output") if is_custom else message.content
    if isinstance(content, str):
        return [piece for piece in _BETWEEN.split(content) if piece.strip()]
    groups = groupby((block.stored for block in blocks), _is_between)
    pieces = [[*blocks] for is_between, blocks in groups if not is_between]
    return [piece for piece in pieces if (text := _text_of(piece)) is None or text.strip()]


def _is_between(block: Any) -> bool:
    return _BETWEEN.fullmatch(_text_of([block]) or "") is not None


def _text_of(piece: Any) -> str | None:
    """The text of a piece; None if it is more than a text."""
    blocks = [*map(Block, [piece] if isinstance(piece, str) else piece)]
    texts = [b.fields.get("text") if b.kind == "text" else b.stored for b in blocks]
    is_text = all(isinstance(text, str) for text in texts)
    return "".join(map(str, texts)) if is_text else None


def _digest_of(piece: Any) -> str:
    """The same for equal texts, equal JSON and equal blocks."""
    if (text := _text_of(piece)) is None:
        text = json.dumps(json_value(piece))
    try:
        # An object becomes what no list is, with all of its keys; a number with a point, its text.
        value = json.loads(text, object_pairs_hook=_in_order, parse_float=tuple)
    except (ValueError, RecursionError):
        value = text.strip()
    return digest_of(repr(value))[:32]


def _in_order(pairs: list[tuple[str, Any]]) -> Any:
    return (sorted(pairs, key=itemgetter(0)),)


def _content_of(parts: Collection[Mapping[str, Any]]) -> Any:
    """The content that tells these results: a text if all of them are texts."""
    told = [piece for own in parts for piece in own.values() if piece is not None]
    pieces = [*chain.from_iterable((line_between(), piece) for piece in told)][1:]
    is_full = sum(map(bool, map(_told, parts))) == MOST_TOLD
    pieces += [line_between(are_left_out=True)] * (is_full and not all(map(_told, parts)))
    if all(isinstance(piece, str) for piece in pieces):
        return "\n".join(pieces)
    blocks = ([Block.of_text(p).stored] if isinstance(p, str) else p for p in pieces)
    return [*chain.from_iterable(blocks)]
