"""Read the fields and the content blocks of messages, whatever is stored; what is valid in them.

LangChain validates a message when it is constructed. `model_construct`, `model_copy(update=...)`,
plain assignment and old checkpoints bypass that. `corrected` gives a valid value to the fields that
decide about calls and results:

- A content that is neither a text nor a list becomes its text; None becomes `""`.
- A list of calls that is None becomes empty.
- A `tool_call_id` becomes the text that LangChain's constructor makes of it, or `""`.

No integration, reducer or serializer of a checkpoint damages any other field, or what is in a
list: such a message is an error, as in the graph without this package.

An id or a name is valid if every provider accepts it. Derived ids use no clock and no
randomness: the same history always gives the same ids.

A content block is a dict or a text. LangChain's v1 content wraps blocks that it does not know
(`non_standard`): all functions here read the block inside.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from langchain_core.messages import BaseMessage

# --- fields --------------------------------------------------------------------------------


def corrected(message: BaseMessage) -> BaseMessage:
    """A message whose calls and results can be read.

    Args:
        message: The message; it is not changed.

    Returns:
        The same object if its fields are valid, else a corrected copy.

    Examples:
        >>> from langchain_core.messages import HumanMessage
        >>> from langgraph_patch.history.fields import corrected
        >>> corrected(HumanMessage.model_construct(content=7)).content
        '7'
    """
    known, fields, update = type(message).model_fields, message.__dict__, {}
    for name, valid in _VALID.items():
        if name in known and (value := valid(fields.get(name))) is not fields.get(name):
            update[name] = value
    return message.model_copy(update=update) if update else message


def _content(value: Any) -> Any:
    return value if isinstance(value, str | list) else text_of(value)


def _call_id(value: Any) -> str:
    return str(value) if isinstance(value, str | UUID | int | float) else ""


def _calls(value: Any) -> Any:
    return [] if value is None else value


_VALID: Mapping[str, Callable[[Any], Any]] = {
    "content": _content,
    "tool_call_id": _call_id,
    "tool_calls": _calls,
    "invalid_tool_calls": _calls,
}
"""The fields that are corrected -> a function that returns a valid value as it is."""


def text_of(value: object) -> str:
    """An id or a name as a string; `""` for None."""
    return "" if value is None else str(value)


def dicts(values: object) -> list[Mapping[str, Any]]:
    """The dicts among the items of a list; nothing if it is not a list."""
    return [v for v in values if isinstance(v, dict)] if isinstance(values, list) else []


# --- ids and names -----------------------------------------------------------------------

PLACEHOLDER_KEY: Final = "langgraph_patch"
"""The key in `additional_kwargs` of what this package wrote. Its value is a dict.

Of a message with renamed calls:

- `earlier_ids`: for the id of each renamed call the ids that it had before, the oldest first.

Of a placeholder:

- `cause`: one of the causes (`DanglingCall.cause`).
- `arguments`: for a malformed call the text of its incomplete arguments.
- `look_again`: The checkpoint from which the next turn searches once more, if it does: a task may
  still have been running. True for the newest one.
- `inner`: how many results of calls inside the call it lists, if any.

Of a recovered result, which is no placeholder:

- `not_kept`: the names of effects of its call that were not restored.
- `cause`: `"reconciled"` if the application's own lookup settled the call.
"""

MAX_ID = 40
VALID_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,40}\Z")
"""Call ids that every provider accepts: Bedrock's characters and Chat Completions' length."""

MAX_NAME = 64
VALID_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
UNKNOWN_TOOL = "unknown_tool"
"""The name of a call that is stored without one."""

_DIGEST = 8
"""How many characters of a digest a derived id ends with."""


def valid_name(name: str) -> str:
    """`name` with invalid characters replaced; the same string if it is valid already."""
    if VALID_NAME.match(name):
        return name
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name[:MAX_NAME]) or UNKNOWN_TOOL


def derived_id(call_id: str, message_id: str | None, ordinal: int, salt: int = 0) -> str:
    """A new id for a call that has an invalid id, or one that is already in use.

    Args:
        call_id: The stored id. The new id starts like it, for readers.
        message_id: The id of the message that made the call.
        ordinal: The position of the call in its message.
        salt: Another number gives another id, in case the first is already in use.
    """
    start = re.sub(r"[^a-zA-Z0-9_.:-]", "_", call_id[: MAX_ID - _DIGEST - 1]) or "call"
    return f"{start}_{digest_of('call', call_id, message_id, ordinal, salt)[:_DIGEST]}"


def digest_of(*parts: object) -> str:
    """The SHA-256 digest of `parts`; different parts never give the same input to it."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


# --- content blocks ------------------------------------------------------------------------

CUSTOM_CALL: Final = "custom_tool_call"
CUSTOM_OUTPUT: Final = f"{CUSTOM_CALL}_output"

CALL_BLOCKS: Mapping[str, tuple[str, str]] = {
    "tool_use": ("id", "input"),
    "tool_call": ("id", "args"),
    "tool_call_chunk": ("id", "args"),
    "invalid_tool_call": ("id", "args"),
    "function_call": ("call_id", "arguments"),
    CUSTOM_CALL: ("call_id", "input"),
}
"""The types of content blocks that are client-side calls -> the keys of their id and arguments.

Blocks of server-side tools (`server_tool_use`, `web_search_call`, ...) are not calls: the
provider runs those tools itself.
"""

REASONING_BLOCKS: Final = frozenset(
    {"reasoning", "reasoning_content", "redacted_thinking", "thinking"}
)
"""The types of content blocks in which a model thinks. They say nothing to a reader."""


def blocks_of(message: BaseMessage) -> list[Any]:
    """The blocks of a message; its text, if it has no blocks."""
    return message.content if isinstance(message.content, list) else [message.content]


def fields_of(block: Any) -> Mapping[str, Any]:
    """The fields of a content block, or of the block inside; none of a text."""
    if not isinstance(block, dict):
        return {}
    value = block.get("value") if block.get("type") == "non_standard" else None
    return value if isinstance(value, Mapping) else block


def kind_of(block: Any) -> str:
    """The type of a content block; `""` for a text, and if it is missing or not a string."""
    kind = fields_of(block).get("type")
    return kind if isinstance(kind, str) else ""


def with_fields(block: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """A content block with other fields; a wrapped one stays wrapped."""
    return fields if fields_of(block) is block else {**block, "value": fields}


def call_blocks(message: BaseMessage) -> Iterator[tuple[int, Any]]:
    """The content blocks of `message` that are client-side calls, each with its index."""
    for index, block in enumerate(blocks_of(message)):
        if kind_of(block) in CALL_BLOCKS:
            yield index, block


def call_id_of(block: Any) -> str:
    """The id of the call in a content block: of a client's tool, or of the provider's."""
    fields = fields_of(block)
    if (kind := kind_of(block)) in CALL_BLOCKS:
        return text_of(fields.get(CALL_BLOCKS[kind][0]))
    return text_of(fields.get("call_id") or fields.get("id"))


def result_id_of(block: Any) -> str:
    """The id of the call that a block is the result of; `""` if it is no result."""
    fields = fields_of(block)
    return text_of(fields.get("tool_use_id") or fields.get("tool_call_id"))


def with_args(block: Any, args: Mapping[str, Any]) -> dict[str, Any]:
    """A content block that is a call, in the form of a complete one with these arguments."""
    kind = kind_of(block)
    fields = {key: value for key, value in fields_of(block).items() if key != "partial_json"}
    fields["type"] = "tool_call" if kind == "tool_call_chunk" else kind
    fields[CALL_BLOCKS[kind][1]] = json.dumps(args) if kind == "function_call" else dict(args)
    return with_fields(block, fields)


def text_block(text: str) -> dict[str, Any]:
    """A content block with a text."""
    return {"type": "text", "text": text}
