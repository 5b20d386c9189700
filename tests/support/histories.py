"""Histories in a short form, what a repair makes of them, and what work that is."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)

from langgraph_patch import patch_messages, validate_messages
from langgraph_patch.history.changes import Patch
from langgraph_patch.history.fields import PLACEHOLDER_KEY
from langgraph_patch.history.messages import as_messages
from langgraph_patch.history.patch import read_if_damaged
from langgraph_patch.history.repair import patch_reading
from langgraph_patch.testing import RefusedError, check_request
from support.placeholder_texts import MALFORMED, UNKNOWN

H = HumanMessage


def call_of(name: str, call_id: Any, args: Any = None) -> Any:
    """An item of `tool_calls`."""
    return {"name": name, "args": args or {}, "id": call_id, "type": "tool_call"}


def invalid_of(args: Any, call_id: str = "c1", name: str = "t", error: str = "no JSON") -> Any:
    """An item of `invalid_tool_calls`."""
    kind = "invalid_tool_call"
    return {"name": name, "args": args, "id": call_id, "error": error, "type": kind}


def ai(*calls: Any, content: Any = "", **fields: Any) -> AIMessage:
    """A message with these calls: each an id (of the tool `t`), or name, id and arguments."""
    named = [call if isinstance(call, tuple) else ("t", call) for call in calls]
    return AIMessage(content, tool_calls=[call_of(*call) for call in named], **fields)


def chunk(args: str, name: str = "t", call_id: str = "c1") -> AIMessageChunk:
    """A stored chunk with one call."""
    piece: Any = {"name": name, "args": args, "id": call_id, "index": 0}
    return AIMessageChunk("", tool_call_chunks=[piece])


def with_field(message: Any, **fields: Any) -> Any:
    """A copy whose fields are not validated."""
    return message.model_copy(update=fields)


def result(content: Any, call_id: str = "c1", **fields: Any) -> ToolMessage:
    """The result of a tool."""
    return ToolMessage(content, tool_call_id=call_id, **fields)


def marked(marker: Any, text: str = "x", call_id: str = "c1", **fields: Any) -> ToolMessage:
    """A result with a marker of this package."""
    return result(text, call_id, additional_kwargs={PLACEHOLDER_KEY: marker}, **fields)


def made(
    call_id: str, text: str = UNKNOWN, cause: str = "unknown", name: str = "t", **marker: Any
) -> ToolMessage:
    """The placeholder that is expected for a call; its id is not compared."""
    content = text.format(name, call_id) if "{}" in text else text
    marker = {"cause": cause, **marker}
    return marked(marker, content, call_id, name=name, status="error", id="patch")


def made_of_malformed(call_id: str, arguments: str, name: str = "t") -> ToolMessage:
    """The placeholder that is expected for a call with incomplete arguments."""
    return made(call_id, MALFORMED, "malformed", name, arguments=arguments)


def comparable(messages: list[Any]) -> list[Any]:
    """The messages without earlier ids of calls; ids made by a repair are `patch` or `result`."""
    found = []
    for message in messages:
        update: dict[str, Any] = {}
        if isinstance(message, AIMessage):
            kept = {k: v for k, v in message.additional_kwargs.items() if k != PLACEHOLDER_KEY}
            update = {"additional_kwargs": kept}
        elif str(message.id).startswith(("patch-", "result-")):
            update = {"id": message.id.partition("-")[0]}
        found.append(message.model_copy(update=update))
    return found


def repaired(history: Any, **options: Any) -> list[Any]:
    """The repaired history, checked to be valid and to stay as it is."""
    patch = patch_messages(history, **options)
    assert validate_messages(patch.messages) == []
    assert patch_messages(patch.messages, **options).messages is patch.messages
    return comparable(patch.messages)


def is_quiet(history: Any, **options: Any) -> bool:
    """Whether a history is returned as it is, also by the long way."""
    changes = patch_messages(tuple(history), **options).changes
    return patch_messages(history, **options).messages is history and not changes


def kinds(history: Any, **options: Any) -> list[str]:
    """What a repair does, in order."""
    return [change.kind for change in patch_messages(history, **options).changes]


def defects(history: Any) -> list[str]:
    """What is wrong with a history, in order."""
    return [change.defect for change in validate_messages(history)]


def patched(history: Any, *, leaves_open: bool = True) -> Patch:
    """The repair of the entry check: calls at the end may stay without a result."""
    messages = as_messages(history)
    reading = read_if_damaged(messages, leaves_open=leaves_open)
    return Patch(messages, (), messages) if reading is None else patch_reading(reading)


class Counted(list[Any]):
    """A list that counts the items that are taken out of it."""

    touched = 0

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            self.touched += 1
            yield item

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.touched += len(found) if isinstance(place, slice) else 1
        return found


def work(function: Callable[[Any], Any], history: list[Any]) -> int:
    """The calls that Python makes and the items of the list that are touched: no clock."""
    counted = Counted(history)
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function(counted)
    finally:
        sys.setprofile(before)
    return calls + counted.touched


_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_ID = re.compile(r"[a-zA-Z0-9]{9}\Z")


def check_portable(messages: Sequence[BaseMessage]) -> None:
    """Raise for a history that is not for every provider: unique ids, valid ids and names."""
    check_request(messages)
    used: set[str] = set()
    for message in messages:
        if message.type == "function":
            raise RefusedError("role 'function' is not accepted")
        for call in message.tool_calls if isinstance(message, AIMessage) else ():
            if not _ID.match(call["id"] or "") or call["id"] in used:
                raise RefusedError(f"call id {call['id']!r} is invalid or used twice")
            if not _NAME.match(call["name"]):
                raise RefusedError(f"tool name {call['name']!r}")
            used.add(call["id"])
