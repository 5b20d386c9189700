"""Write a history as the text of a refusal asks for it, for one request.

It is for a history that was refused in the plain form, too, and it is never stored. Nothing is
done of which the provider's own sentence does not speak (`refusal_phrases`).

| the refusal speaks of | what is done |
|---|---|
| a picture, a sound, a file | those that are taken (`Take`) become a text |
| a message of a model at the beginning | a human message before it, which says that it is none |
| a human message behind a result | a message of a model, `[no text]`, between them |
| roles that do not alternate | both, and neighbours of one role become one message |
| a message of a model at the end | a human message behind it, which says that it is none |

What stands in the newest human message is never taken: the model would answer without having seen
what it is asked about. The message after the next one heals the thread.

The laws (`tests/history/forms/test_asked.py`): texts of humans, calls and results stay word for
word; it is pure and linear, and idempotent where all media are taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count, groupby, pairwise, product
from typing import Any, Final, Literal, NamedTuple

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langgraph_patch.history.changes import Change, Patch
from langgraph_patch.history.fields import Block, blocks_of, text_of
from langgraph_patch.history.forms.phrases import OF_MEDIA, matters_in
from langgraph_patch.history.forms.whole import NO_TEXT, as_one, is_blank

Take = Literal["named", "newest", "all"]
"""Which media are taken, as one after the other is tried.

- `named`: the one that the refusal names (`messages.3.content.1`, `image at index 2`).
- `newest`: all before the newest human message, and the newest of the results behind it: an agent
  that looks at screenshots sees the others. If the refusal speaks of a picture, only pictures; if
  it speaks of a document, no picture.
- `all`: all before the newest human message, and of all results behind it.

If the refusal says that the model reads none, all are taken at once.
"""

TAKES: Final[tuple[Take, ...]] = ("named", "newest", "all")

NOT_OF_USER: Final = (
    "[This is no message of the user. What follows begins with a message of the assistant.]"
)
"""The text before a message of a model at the beginning of a history.

It asks for nothing, and is true of a history whose beginning was left out, too.
"""

NOTHING_NEW: Final = "[There is no new message of the user. The conversation goes on.]"
"""The text behind a message of a model at the end of a history."""

_NOT_SENT = "[{what}: not sent, because the provider refused the request.]"


def asked_form(
    messages: Sequence[BaseMessage], refusal: str, take: Take = "newest", among: int | None = None
) -> Patch:
    """Write a history as the text of a refusal asks for it, for one request.

    Args:
        messages: The history, in the plain form if a provider reads that; it is not changed.
        refusal: The texts of the refusals, the newest one last.
        take: Which media are taken. Default: those before the newest human message, and the newest
            of the results behind it.
        among: How many of the first media may be taken, if the model reads any. Default: all.

    Returns:
        The patch. If the refusal asks for nothing that can be done, `patch.messages` is `messages`
        itself.

    Examples:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph_patch.history.forms.asked import asked_form
        >>> image = {"type": "image", "base64": "aGk=", "mime_type": "image/png"}
        >>> history = [HumanMessage([image]), AIMessage("hm", id="a1"), HumanMessage("well?")]
        >>> patch = asked_form(history, "messages.0.content.0: Could not process image")
        >>> patch.messages[0].content.partition(": ")[0]
        '[image/png (2 bytes) of an earlier message'
        >>> print(asked_form(history[:2], "does not support assistant message prefill"))
        inserted message 2 (role_order)
    """
    matters = matters_in(refusal)
    patch = unchanged = Patch.of(messages, [], ())
    if matters & {"start", "alternation"}:
        patch = _with_start(messages)  # first: a later refusal counts this message, too
    if matters & OF_MEDIA:
        reads_none = "no_media" in matters
        places = media_in(patch.messages)[: None if reads_none else among]
        taken = _taken(patch.messages, places, refusal, "all" if reads_none else take)
        if not taken and take == "named":
            return unchanged
        patch = Patch.joined(patch, _without_media(patch.messages, taken))
    if matters & {"user_after_tool", "alternation"}:
        patch = Patch.joined(patch, _with_texts_between(patch.messages))
    if "alternation" in matters:
        patch = Patch.joined(patch, _merged(patch.messages))
    if "end" in matters:
        patch = Patch.joined(patch, _with_end(patch.messages))
    return patch


# --- media ----------------------------------------------------------------------------------------

_MEDIA = (
    *("image", "audio", "video", "file", "text-plain"),  # LangChain's
    *("image_url", "input_image", "input_audio", "input_file"),  # OpenAI's
    *("document", "media"),  # Anthropic's and Gemini's
)
"""The types of blocks that are media, in LangChain's form and in those of the providers."""

_KEYS = ("image", "document", "video", "audio")
"""The keys of media in Bedrock's form, in which blocks have no type."""


class Place(NamedTuple):
    """Where a block is: the index of its message, and in that of the block."""

    message: int
    block: int


def media_in(messages: Sequence[BaseMessage]) -> list[Place]:
    """The media in human messages and results: the plain form has none elsewhere."""
    return [
        Place(index, number)
        for index, message in enumerate(messages)
        if isinstance(message, HumanMessage | ToolMessage) and isinstance(message.content, list)
        for number, block in enumerate(blocks_of(message))
        if _is_media(block)
    ]


def newest_human(messages: Sequence[BaseMessage]) -> int:
    """The index of the newest human message; -1 if there is none."""
    return max((i for i, m in enumerate(messages) if isinstance(m, HumanMessage)), default=-1)


def _is_media(block: Block) -> bool:
    return block.kind in _MEDIA or (not block.kind and any(key in block.fields for key in _KEYS))


def _is_image(block: Block) -> bool:
    return "image" in block.kind or "image" in block.fields or _type_of(block).startswith("image/")


def _taken(
    messages: Sequence[BaseMessage], places: Sequence[Place], refusal: str, take: Take
) -> set[Place]:
    """The media that become a text."""
    newest = newest_human(messages)
    images = {p for p in places if _is_image(blocks_of(messages[p.message])[p.block])}
    named = _named(messages, places, images, refusal)
    if any(place.message == newest for place in named):
        return set()
    if take == "named":
        return named
    matters = matters_in(refusal) & OF_MEDIA
    if take == "newest" and matters in ({"image"}, {"file"}):
        places = [place for place in places if (place in images) == ("image" in matters)]
    before = [place for place in places if place.message < newest]
    behind = [place for place in places if place.message > newest]
    if take == "newest":
        behind = [place for place in behind if place in named] or behind[-1:]
    return {*before, *behind}


_PATH = re.compile(
    r"(?:messages?|contents)(?P<dots>[.\[]+)(\d{1,9})\]?\.(?:content|parts)[.\[]+(\d{1,9})"
    r"(?:\]?(?:\.tool_result)?\.content[.\[]+(\d{1,9}))?",
    re.IGNORECASE,
)
"""Where a block is in a request: `messages.3.content.1`, `contents[3].parts[1]`; and in that of a
result, `messages.3.content.1.tool_result.content.0`."""

_NUMBER = re.compile(r"(image|file|document) at index (\d{1,9})", re.IGNORECASE)


def _named(
    messages: Sequence[BaseMessage], places: Sequence[Place], images: set[Place], refusal: str
) -> set[Place]:
    """The media that the newest text about media names; none if it is not certain which these are.

    OpenAI counts the messages of the history. Anthropic, Bedrock and Gemini count turns: results
    and human messages behind one another are one, in which a result is one block. Their
    integrations differ in what else they join, and in the texts that they leave out.
    """
    lines = [line for line in refusal.splitlines() if matters_in(line) & OF_MEDIA]
    refusal = next((each for each in reversed(lines) if _PATH.search(each)), refusal)
    if paths := _PATH.findall(refusal):
        dots, turn, block, inner = paths[-1][0], *(int(part or -1) for part in paths[-1][1:])
        stored = {frozenset({Place(turn, block)} & {*places} if inner < 0 else ())}
        counted = {  # a block inside of a result, or all of a block
            frozenset({*(own[inner : inner + 1] or own)} & {*places})
            for joins, blanks in product((True, False), repeat=2)
            for sent in [_sent(messages, joins_models=joins, has_blanks=blanks)]
            for own in [sent.get((turn, block), [])]
        }
        for ways in [stored, counted] if "[" in dots else [counted, stored]:
            if found := ways - {frozenset()}:
                return {*found.pop()} if len(found) == 1 else set()
    elif numbers := _NUMBER.findall(refusal):
        kind, index = numbers[-1][0].lower(), int(numbers[-1][1])
        of_kind = [place for place in places if (place in images) == (kind == "image")]
        # It is not known whether others are counted.
        counts = {each[index] for each in (places, of_kind) if index < len(each)}
        return counts if len(counts) == 1 else set()
    return set()


def _sent(
    messages: Sequence[BaseMessage], *, joins_models: bool, has_blanks: bool
) -> dict[tuple[int, int], list[Place]]:
    """The blocks of a request, by their turn and their number in it: a result is one block.

    Args:
        messages: The history.
        joins_models: Whether messages of a model behind one another are one turn.
        has_blanks: Whether texts that say nothing are sent.

    Returns:
        For each block its place; for a result the places of all its blocks.
    """
    found = dict[tuple[int, int], list[Place]]()
    speakers = [(i, m) for i, m in enumerate(messages) if m.type != "system"]

    def speaker(each: tuple[int, BaseMessage]) -> object:
        is_model = isinstance(each[1], AIMessage)
        return (is_model, is_model and not joins_models and each[0])

    for turn, (_, group) in enumerate(groupby(speakers, speaker)):
        number = count()
        for index, message in group:
            blocks = enumerate(blocks_of(message))
            own = [Place(index, i) for i, block in blocks if has_blanks or not is_blank(block)]
            sent = [own] if isinstance(message, ToolMessage) else [[place] for place in own]
            found |= {(turn, next(number)): places for places in sent}
    return found


def _without_media(messages: Sequence[BaseMessage], taken: set[Place]) -> Patch:
    """The history with a text in the place of each of these blocks."""
    tools, written, changes = dict[str, str](), [*messages], list[Change]()
    indexes = {place.message for place in taken}
    for index, stored in enumerate(messages):
        if isinstance(stored, AIMessage):
            tools |= {text_of(call["id"]): call["name"] for call in stored.tool_calls}
        if index not in indexes:
            continue
        whose = "of an earlier message"
        if isinstance(stored, ToolMessage):
            tool = stored.name or tools.get(stored.tool_call_id) or "a tool"
            whose = f"that {tool} returned"
        blocks = [
            Block.of_text(_NOT_SENT.format(what=f"{_described(block)} {whose}"))
            if Place(index, number) in taken
            else block
            for number, block in enumerate(blocks_of(stored))
        ]
        written[index] = stored.model_copy(update={"content": _content(blocks)})
        changes.append(Change.of("media", index, stored, written[index]))
    return Patch.of(messages, written, changes)


def _content(blocks: Sequence[Block]) -> Any:
    """The content of these blocks: one text if all are texts, which every provider reads."""
    texts = [block.fields.get("text", block.stored) for block in blocks]
    is_text = all(isinstance(text, str) for text in texts)
    return "\n".join(texts) if is_text else [block.stored for block in blocks]


def _described(block: Block) -> str:
    """The type of a block, its name and its size, as far as they are known."""
    parts = _parts_of(block)
    kind = _type_of(block) or block.kind
    kind = kind or next((key for key in _KEYS if key in block.fields), "file")
    name = _first(parts, "filename", "file_name", "name", "title", "file_id")
    size = max(map(_size, parts))
    told = [kind, repr(name) if name else "", f"({size} bytes)" if size else ""]
    return " ".join(filter(None, told))


def _parts_of(block: Block) -> list[Mapping[str, Any]]:
    """The fields of a block, and those of what is in it."""
    parts = [block.fields, *(v for v in block.fields.values() if isinstance(v, Mapping))]
    return parts + [v for part in parts[1:] for v in part.values() if isinstance(v, Mapping)]


def _type_of(block: Block) -> str:
    """The type of what a block holds, as far as it is known."""
    parts = _parts_of(block)
    url = _first(parts, "url", "image_url", "file_data")
    of_url = url[5:].partition(";")[0] if url.startswith("data:") else ""
    return _first(parts, "mime_type", "media_type", "format") or of_url


def _size(part: Mapping[str, Any]) -> int:
    """How many bytes a part has; 0 if that is not known."""
    is_base64 = part.get("type") == "base64"
    text = part.get("data") if is_base64 else part.get("base64")
    if isinstance(text, str):
        return len("".join(text.split()).rstrip("=")) * 3 // 4
    return max((len(value) for value in part.values() if isinstance(value, bytes)), default=0)


def _first(parts: Sequence[Mapping[str, Any]], *keys: str) -> str:
    """The first text under one of the keys; `""` if there is none."""
    found = (part.get(key) for part in parts for key in keys)
    return next((text for text in found if isinstance(text, str) and text), "")


# --- the order of roles ---------------------------------------------------------------------------


def _with_start(messages: Sequence[BaseMessage]) -> Patch:
    """The history with a human message before a message of a model that is its beginning."""
    first = next((i for i, m in enumerate(messages) if not isinstance(m, SystemMessage)), None)
    if first is None or not isinstance(messages[first], AIMessage):
        return Patch.of(messages, [], ())
    added = HumanMessage(NOT_OF_USER)
    written = [*messages[:first], added, *messages[first:]]
    return Patch.of(messages, written, [Change.of("role_order", first, None, added)])


def _with_texts_between(messages: Sequence[BaseMessage]) -> Patch:
    """The history with a message of a model between each result and a human message behind it."""
    written, changes = list[BaseMessage](messages[:1]), list[Change]()
    for index, (before, after) in enumerate(pairwise(messages), 1):
        if isinstance(before, ToolMessage) and isinstance(after, HumanMessage):
            written.append(AIMessage(NO_TEXT))
            changes.append(Change.of("role_order", index, None, written[-1]))
        written.append(after)
    return Patch.of(messages, written, changes)


def _merged(messages: Sequence[BaseMessage]) -> Patch:
    """The history with neighbours of one role as one message; results stay as they are.

    LangChain's `merge_message_runs` does the same, in a time that is quadratic in their number.
    """
    written, changes = list[BaseMessage](), list[Change]()
    for kind, group in groupby(enumerate(messages), lambda each: each[1].type):
        numbered = [*group]
        run = [message for _, message in numbered]
        if kind in ("human", "ai"):
            run = [as_one(run)]
            changes += [Change.of("role_order", i, message, None) for i, message in numbered[1:]]
        written += run
    return Patch.of(messages, written, changes)


def _with_end(messages: Sequence[BaseMessage]) -> Patch:
    """The history with a human message behind a message of a model that is its end.

    A message that an application begins for the model (a prefill) has no id, and is its own.
    """
    last = messages[-1] if messages else None
    if not (isinstance(last, AIMessage) and last.id is not None and not last.tool_calls):
        return Patch.of(messages, [], ())
    added = HumanMessage(NOTHING_NEW)
    change = Change.of("role_order", len(messages), None, added)
    return Patch.of(messages, [*messages, added], [change])
