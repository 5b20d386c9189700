"""What was found and what was done, as values: frozen, printable, `to_dict()`-able.

The same values are handed out by the pure functions, the nodes, the threads and the
command line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from langchain_core.messages import BaseMessage, ToolMessage
from pydantic import BaseModel

from langgraph_patch.history.placeholders import Cause
from langgraph_patch.render.html import patch_html

DefectKind = Literal[
    "dangling",
    "malformed",
    "unlisted",
    "misplaced",
    "orphan",
    "duplicate",
    "bad_id",
    "bad_name",
    "wrong_role",
    "superseded",
]
ChangeKind = Literal[
    "inserted", "recovered", "moved", "dropped", "converted", "promoted", "renamed"
]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a checkpoint recorded of a call that left no result.

    Attributes:
        cause: Why there is no result.
        error: The recorded error, for the cause `failed`.
    """

    cause: Cause
    error: str | None = None


Evidence: TypeAlias = Mapping[tuple[str | None, str], "ToolMessage | Finding"]
"""(id of the `AIMessage`, id of the call as stored) -> its real result, or what is known."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One way in which a history is broken.

    Attributes:
        kind: `dangling` (no result), `malformed` (arguments are no complete JSON object),
            `unlisted` (a call that does not stand in `tool_calls`), `misplaced`, `orphan`
            (no call), `duplicate` (a second result), `bad_id` (none, too long, or used
            before), `bad_name`, `wrong_role` (a result that is no `ToolMessage`), or
            `superseded` (a placeholder for which there is something better).
        index: Where the message in question stands in the history.
        tool_call_id: The id of the call, as it is stored.
        name: The name of the tool, or None where nobody says it.
    """

    kind: DefectKind
    index: int
    tool_call_id: str
    name: str | None

    def to_dict(self) -> dict[str, Any]:
        """The defect as JSON values."""
        return {
            "kind": self.kind,
            "index": self.index,
            "tool_call_id": self.tool_call_id,
            "name": self.name,
        }


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that a repair did.

    Attributes:
        kind: `inserted` (a placeholder), `recovered` (a real result from a checkpoint),
            `moved`, `dropped`, `converted` (into a `ToolMessage`), `promoted` (into
            `tool_calls`) or `renamed` (an id or a name).
        index: Where the message in question stood in the history that was repaired; for an
            inserted or recovered result, where the message of its call stood.
        tool_call_id: The id of the call in the repaired history.
        name: The name of the tool in the repaired history, or None.
        cause: Why there is no result, where a placeholder stands.
        before: The whole message as it was, or None.
        after: The whole message as it is, or None.
    """

    kind: ChangeKind
    index: int
    tool_call_id: str
    name: str | None
    cause: Cause | None
    before: BaseMessage | None
    after: BaseMessage | None

    def to_dict(self) -> dict[str, Any]:
        """The change as JSON values, with whole messages."""
        return {
            "kind": self.kind,
            "index": self.index,
            "tool_call_id": self.tool_call_id,
            "name": self.name,
            "cause": self.cause,
            "before": _dumped(self.before),
            "after": _dumped(self.after),
        }

    def __str__(self) -> str:
        cause = f" ({self.cause})" if self.cause else ""
        return f"{self.kind} {self.name or 'result'!r} {self.tool_call_id!r}{cause}"


@dataclass(frozen=True, slots=True)
class Patch:
    """A repaired history, and what was done to it.

    `bool(patch)` tells whether anything was done.

    Attributes:
        messages: The history. The same object as the input if nothing was done.
        changes: What was done, in the order of the history.
        before: The history as it was.
    """

    messages: list[BaseMessage]
    changes: tuple[Change, ...]
    before: list[BaseMessage]

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __str__(self) -> str:
        return "; ".join(map(str, self.changes)) or "nothing to repair"

    def _repr_html_(self) -> str:
        """The history before and after, as notebooks show it."""
        return patch_html(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The patch as JSON values."""
        return {
            "before": [_dumped(m) for m in self.before],
            "messages": [_dumped(m) for m in self.messages],
            "changes": [change.to_dict() for change in self.changes],
        }


_DEEPEST = 100
"""How deep a value is followed: further down, its type has to do."""

_LONGEST = 10_000
"""How many bits a number may have: Python refuses to write much longer ones as a text."""


def _dumped(value: Any) -> Any:
    """A message, or what LangGraph accepts as one, as JSON values. Never raises."""
    return json.loads(json.dumps(_plain(value, ())))


def _plain(value: Any, above: tuple[int, ...]) -> Any:
    """`value` in types that JSON knows; what it knows no form of becomes a text.

    Artifacts may be anything: keys of any type, and lists that hold themselves.
    """
    try:
        return value if _is_scalar(value) else _opened(value, above)
    except Exception:  # noqa: BLE001 - the class of an artifact may raise anything
        return f"<{type(value).__name__}>"


def _opened(value: Any, above: tuple[int, ...]) -> Any:
    if not isinstance(value, BaseModel | dict | list | tuple):
        return repr(value)
    if id(value) in above or len(above) == _DEEPEST:
        return f"<{type(value).__name__}>"
    above = (*above, id(value))
    if isinstance(value, BaseModel):
        return _plain(_fields(value), above)
    if isinstance(value, dict):
        return {_key(key): _plain(item, above) for key, item in value.items()}
    return [_plain(item, above) for item in value]


def _key(key: Any) -> Any:
    return key if _is_scalar(key) else repr(key)


def _is_scalar(value: Any) -> bool:
    """Whether the value can stand in JSON as it is."""
    if isinstance(value, int):
        return value.bit_length() < _LONGEST
    return value is None or isinstance(value, str | float)


def _fields(model: BaseModel) -> dict[str, Any]:
    try:
        return model.model_dump(warnings=False)  # what an application changed is shown as it is
    except Exception:  # noqa: BLE001 - a cycle, or a class of others that cannot be dumped
        return {**model.__dict__, **(getattr(model, "__pydantic_extra__", None) or {})}
