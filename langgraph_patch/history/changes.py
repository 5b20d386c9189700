"""A repair as a value: the history before and after, and each change with its defect."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from langchain_core.messages import BaseMessage
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from langgraph_patch._text import labelled
from langgraph_patch.history.findings import Cause

_OfMessages = Literal["empty", "unfinished", "refused_thinking", "foreign", "media", "role_order"]
"""The defects of a message, and not of a call or a result."""

DefectKind = Literal[
    "dangling",
    "malformed",
    "unlisted",
    "misplaced",
    "orphan",
    "duplicate",
    "wrong_role",
    "superseded",
    "bad_field",
    "abandoned",
    _OfMessages,
]
ChangeKind = Literal[
    "inserted",
    "recovered",
    "restored",
    "moved",
    "dropped",
    "converted",
    "joined",
    "promoted",
    "corrected",
]


@dataclass(frozen=True, slots=True)
class Change:
    """One change that a repair makes, and the defect that it repairs.

    Attributes:
        kind: What is done. One of:

            - `inserted`: a placeholder is added.
            - `recovered`: a real result from a checkpoint is added.
            - `restored`: a message from the checkpoints of an agent that is a node is added.
            - `moved`: a result is moved to its call.
            - `dropped`: a result is removed.
            - `converted`: a result becomes a `ToolMessage`.
            - `joined`: a result is told in one message with other results of its call.
            - `promoted`: a call is written into `tool_calls`.
            - `corrected`: a field that bypassed LangChain's validation is given a valid value.
        defect: What is wrong. One of:

            - `dangling`: a call has no result.
            - `malformed`: the arguments of a call are not a complete JSON object.
            - `unlisted`: a call is not in `tool_calls`, only in another part of the message.
            - `misplaced`: a result does not directly follow the message of its call.
            - `orphan`: a result has no call.
            - `duplicate`: a call has several results.
            - `wrong_role`: a result is not a `ToolMessage`.
            - `superseded`: there is something better than a stored placeholder.
            - `bad_field`: a field of the message has a value that LangChain's constructor
              refuses, such as a number as the content.
            - `abandoned`: the run of an agent that is a node did not end, so that LangGraph
              dropped its messages.
            - `empty`: the message says nothing. This and the following are repaired only after a
              provider has refused the history.
            - `unfinished`: the message stops halfway, or has the id of an earlier item.
            - `refused_thinking`: the provider does not accept earlier thinking any more.
            - `foreign`: the message has a form of another provider. Only a request is repaired.
            - `media`: the provider has refused a picture, a sound or a file of the message. Only a
              request is repaired.
            - `role_order`: the provider has refused the order of roles. Only a request is repaired.
        index: The index of the message in the damaged history. For `inserted` and
            `recovered`: the index of the message that made the call. For `abandoned`: the index
            at which the messages are added.
        tool_call_id: The id of the call; `""` if there is none.
        name: The name of the tool, or None if none is stored.
        cause: For `inserted`, why there is no result (see `DanglingCall`). Else None.
        before: The message before the change, or None if there was none.
        after: The message after the change, or None if it was dropped.
    """

    kind: ChangeKind
    defect: DefectKind
    index: int
    tool_call_id: str
    name: str | None
    cause: Cause | None
    before: BaseMessage | None
    after: BaseMessage | None

    @classmethod
    def of(
        cls, defect: DefectKind, index: int, before: BaseMessage | None, after: BaseMessage | None
    ) -> Change:
        """The change of a whole message, which names no call."""
        found: ChangeKind = "inserted" if before is None else "corrected"
        kind = "dropped" if after is None else found
        return cls(kind, defect, index, "", None, None, before, after)

    def to_dict(self) -> dict[str, Any]:
        """Return the change as JSON values, with complete messages."""
        return {name: json_value(getattr(self, name)) for name in self.__slots__}

    def __repr__(self) -> str:
        return labelled(self)

    def __str__(self) -> str:
        if self.defect in get_args(_OfMessages):
            return f"{self.kind} message {self.index} ({self.defect})"
        if self.kind == "corrected":
            return f"corrected message {self.index} ({type(self.before).__name__})"
        if self.kind == "restored":
            return f"restored {type(self.after).__name__} {getattr(self.after, 'id', None)!r}"
        cause = f" ({self.cause})" if self.cause else ""
        return f"{self.kind} {self.name or 'result'!r} {self.tool_call_id!r}{cause}"


@dataclass(frozen=True, slots=True)
class Patch:
    """A repaired history and the changes that were made.

    `bool(patch)` is True if there were changes. `str(patch)` names them. A notebook and
    `rich.print` show a table of the history before and after.

    Attributes:
        messages: The repaired history. If nothing was changed: the very list that was passed in.
        changes: The changes, in the order of the history.
        before: The history before the repair.
    """

    messages: list[BaseMessage]
    changes: tuple[Change, ...]
    before: list[BaseMessage]

    @classmethod
    def of(
        cls, messages: Sequence[BaseMessage], written: list[BaseMessage], changes: Sequence[Change]
    ) -> Patch:
        """The patch of a history; with the very list that was read if there are no changes."""
        before = messages if isinstance(messages, list) else list(messages)
        return cls(written if changes else before, tuple(changes), before)

    @classmethod
    def joined(cls, first: Patch, second: Patch) -> Patch:
        """Two repairs of one history, the second of what the first one left, as one."""
        if not first or not second:
            return second or first
        places = {id(message): index for index, message in enumerate(first.before)}
        later = (replace(c, index=places.get(id(c.before), c.index)) for c in second.changes)
        return cls(second.messages, (*first.changes, *later), first.before)

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __repr__(self) -> str:
        return labelled(self)

    def __str__(self) -> str:
        return "; ".join(map(str, self.changes)) or "nothing to repair"

    def __rich__(self) -> Any:
        """The history before and after as a table of rich."""
        from langgraph_patch.view import patch_view  # noqa: PLC0415 - imports rich

        return patch_view(self.to_dict())

    def _repr_html_(self) -> str:
        """The same as HTML, for notebooks."""
        from langgraph_patch.view import notebook_html  # noqa: PLC0415 - imports rich

        return notebook_html(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the patch as JSON values, with complete messages.

        Artifacts may be anything: bytes become base64, and what has no JSON form becomes a
        string. NaN and infinity stay floats.
        """
        return {
            "before": [json_value(message) for message in self.before],
            "messages": [json_value(message) for message in self.messages],
            "changes": [change.to_dict() for change in self.changes],
        }


# --- messages as JSON values -----------------------------------------------------------------

_MAX_SPLITS = 3
"""How many levels of a value are converted separately if it cannot be converted as a whole.

Three reach one key in the arguments of a call: message, `tool_calls`, call.
"""


def json_value(value: Any, splits: int = _MAX_SPLITS) -> Any:
    """A message, or any other value, as JSON values.

    A value cannot be converted if it contains itself, is nested too deep, contains an integer
    that is too long to write, or has a class that raises. Its parts are then converted
    separately, so that most of a message is kept; the rest becomes the name of its type.
    """
    try:
        dumped = value.model_dump(warnings=False) if isinstance(value, BaseModel) else value
        jsonable = to_jsonable_python(dumped, bytes_mode="base64", serialize_unknown=True)
        return json.loads(json.dumps(jsonable))
    except Exception:  # noqa: BLE001 - the class of an artifact may raise anything
        parts = value.__dict__ if isinstance(value, BaseModel) else value
        if splits and isinstance(parts, dict):
            return {str(key): json_value(part, splits - 1) for key, part in parts.items()}
        if splits and isinstance(parts, list | tuple):
            return [json_value(part, splits - 1) for part in parts]
        return f"<{type(value).__name__}>"
