"""Read and write the fields and the content blocks of messages, whatever is stored.

LangChain validates a message when it is constructed. `model_construct`, `model_copy(update=...)`,
plain assignment and old checkpoints bypass that. `corrected` gives a valid value to the fields that
decide about calls and results:

- A content that is neither a text nor a list becomes its text; None becomes `""`.
- A list of calls that is None becomes empty.
- A `tool_call_id` becomes the text that LangChain's constructor makes of it, or `""`.

No integration, reducer or serializer of a checkpoint damages any other field, or what is in a
list: such a message is an error, as in the graph without this package.

LangChain's v1 content wraps content blocks that it does not know (`non_standard`): a `Block` has
the fields of the block inside.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import UUID

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

_Item = TypeVar("_Item")

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
    fields, update = message.__dict__, dict[str, Any]()
    content, call_id = fields.get("content"), fields.get("tool_call_id")
    if not isinstance(content, str | list):
        update["content"] = text_of(content)
    if isinstance(message, AIMessage):
        names = ("tool_calls", "invalid_tool_calls")
        update |= {name: [] for name in names if fields.get(name) is None}
    if isinstance(message, ToolMessage) and not isinstance(call_id, str):
        update["tool_call_id"] = str(call_id) if isinstance(call_id, UUID | int | float) else ""
    return message.model_copy(update=update) if update else message


def is_refused_by_all(message: BaseMessage) -> bool:
    """Whether a field has a value that no provider reads.

    In a message of a model neither a content of None counts, which is OpenAI's own form of one that
    only calls tools, nor lists of calls that are None.
    """
    if isinstance(message, AIMessage):
        return not isinstance(message.__dict__.get("content"), str | list | None)
    return corrected(message) is not message


def text_of(value: object) -> str:
    """An id or a name as a string; `""` for None."""
    return "" if value is None else str(value)


def dicts(values: object) -> list[Mapping[str, Any]]:
    """The dicts among the items of a list; nothing if it is not a list."""
    return [v for v in values if isinstance(v, dict)] if isinstance(values, list) else []


def grouped(items: Iterable[tuple[str | None, _Item]]) -> defaultdict[str | None, list[_Item]]:
    """Items by the ids of calls, or by the names of tools."""
    found: defaultdict[str | None, list[_Item]] = defaultdict(list)
    for key, item in items:
        found[key].append(item)
    return found


# --- what this package wrote -------------------------------------------------------------

PLACEHOLDER_KEY: Final = "langgraph_patch"
"""The key in `additional_kwargs` of what this package wrote. Its value is a dict.

Of a placeholder:

- `cause`: one of the causes (`DanglingCall.cause`).
- `arguments`: for a malformed call the text of its incomplete arguments.
- `look_again`: The checkpoint from which the next turn searches once more, if it does: a task may
  still have been running. True for the newest one.
- `inner`: how many results of calls inside the call it lists, if any.

Of what a client may have invented:

- `look_again`: as above; False once it was searched for.

Of a recovered result, which is no placeholder:

- `not_kept`: the names of effects of its call that were not restored.
- `cause`: `"reconciled"` if the application's own lookup settled the call.

Of a message that tells several results of its call:

- `results`: for each the id of its message, and digests of what it has said.
"""


UNKNOWN_TOOL: Final = "unknown_tool"
"""How a tool is called whose call names none."""


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

_REASONING_BLOCKS = frozenset({"reasoning", "reasoning_content", "redacted_thinking", "thinking"})


@dataclass(frozen=True, slots=True)
class Block:
    """A content block.

    Attributes:
        stored: The block as it is stored: a dict, or a text.
    """

    stored: Any

    @property
    def fields(self) -> Mapping[str, Any]:
        """Its fields, or those of the block inside; none of a text."""
        if not isinstance(self.stored, dict):
            return {}
        inner = self.stored.get("value") if self.stored.get("type") == "non_standard" else None
        return inner if isinstance(inner, Mapping) else self.stored

    @property
    def kind(self) -> str:
        """Its type; `""` for a text, and if it is missing or not a string."""
        kind = self.fields.get("type")
        return kind if isinstance(kind, str) else ""

    def v1_extra(self, key: str) -> Any:
        """What LangChain's v1 form has beside the standard fields; None if it has not."""
        extras = self.fields.get("extras")
        return extras.get(key) if isinstance(extras, dict) else None

    @property
    def is_call(self) -> bool:
        """Whether it is a client-side call."""
        return self.kind in CALL_BLOCKS

    @property
    def args(self) -> Any:
        """The arguments of the call in it, as they are stored; None if there are none."""
        return self.fields.get(CALL_BLOCKS[self.kind][1])

    @property
    def is_custom_output(self) -> bool:
        """Whether it is the result of a custom tool call, in OpenAI's form."""
        return self.kind == CUSTOM_OUTPUT

    @property
    def has_id_of_call(self) -> bool:
        """Whether its `id` is that of a call, and not of an item of the Responses API."""
        return self.kind == "server_tool_call" or CALL_BLOCKS.get(self.kind, ("",))[0] == "id"

    @property
    def is_reasoning(self) -> bool:
        """Whether a model thinks in it. It says nothing to a reader."""
        return self.kind in _REASONING_BLOCKS

    @property
    def call_id(self) -> str:
        """The id of the call in it: of a client's tool, or of the provider's."""
        if self.is_call:
            return text_of(self.fields.get(CALL_BLOCKS[self.kind][0]))
        return text_of(self.fields.get("call_id") or self.fields.get("id"))

    @property
    def result_id(self) -> str:
        """The id of the call that it is the result of; `""` if it is no result."""
        return text_of(self.fields.get("tool_use_id") or self.fields.get("tool_call_id"))

    @classmethod
    def of_text(cls, text: str) -> Block:
        """The block of a text, in the form that every integration reads."""
        return cls({"type": "text", "text": text})

    def with_fields(self, fields: Mapping[str, Any]) -> Block:
        """The block with other fields; a wrapped one stays wrapped."""
        is_wrapped = self.fields is not self.stored
        return Block({**self.stored, "value": fields} if is_wrapped else fields)

    def with_args(self, args: Mapping[str, Any]) -> Block:
        """A call in the form of a complete one with these arguments."""
        kind = self.kind
        fields = {key: value for key, value in self.fields.items() if key != "partial_json"}
        fields["type"] = "tool_call" if kind == "tool_call_chunk" else kind
        fields[CALL_BLOCKS[kind][1]] = json.dumps(args) if kind == "function_call" else dict(args)
        return self.with_fields(fields)


def blocks_of(message: BaseMessage) -> list[Block]:
    """The content blocks of a message; its text, if it has none."""
    content: Any = message.content
    return [*map(Block, content if isinstance(content, list) else [content])]


def blocks_beside(message: BaseMessage) -> list[Block]:
    """The blocks that OpenAI's integration puts beside the content (`output_version="v0"`)."""
    return [*map(Block, dicts(message.additional_kwargs.get("tool_outputs")))]


def is_v1(message: BaseMessage) -> bool:
    """Whether integrations read the content as LangChain's v1 blocks: a text would be an error."""
    return message.response_metadata.get("output_version") == "v1"


def with_text(message: BaseMessage, content: Any, text: str) -> Any:
    """A content with a text at its end, in the form in which integrations read a message.

    Args:
        message: The message whose content it will be.
        content: The content: blocks, or a text, which the new one replaces.
        text: The text to add.
    """
    if isinstance(content, list) or is_v1(message):
        blocks = content if isinstance(content, list) else []
        return [*blocks, Block.of_text(text).stored]
    return text
