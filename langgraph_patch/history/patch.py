"""The values that describe damage and repair: `Defect`, `Change`, `Patch`, `Finding`.

They are frozen, have a short `str()`, and `to_dict()` gives JSON values. The pure functions,
the nodes, the thread functions and the command line all return these values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from langchain_core.messages import BaseMessage, ToolMessage
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from langgraph_patch.history.placeholders import Cause

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
    "bad_field",
]
ChangeKind = Literal[
    "inserted",
    "recovered",
    "moved",
    "dropped",
    "converted",
    "promoted",
    "renamed",
    "corrected",
    "omitted",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """What checkpoints recorded about a call without a result.

    Attributes:
        cause: Why there is no result: `"failed"`, `"awaiting_input"`, `"not_started"`,
            `"cancelled"`, `"malformed"` or `"unknown"`. See `DanglingCall`.
        error: The recorded error for `failed`, the text of the arguments for `malformed`.
            Default: None.
        detail: A variant of the cause: `"timeout"`, `"approval"` or `"tools_ran"`. See
            `DanglingCall`. Default: None.
        inner: Short texts about recorded results of calls inside this call (of a subagent),
            the newest first. The placeholder lists them. Default: none.
        searched: The id of the newest checkpoint that was searched, if no later write can
            change the finding. The call is then not searched again. Default: None.
        recheck: Whether a task may have been running when the checkpoints were searched, so
            that the next turn must search again. With `searched`, it must do so once.
            Default: False.

    Examples:
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch import patch_messages
        >>> from langgraph_patch.history.patch import Finding
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> found = {("a1", "c1"): Finding("failed", "ValueError('no')")}
        >>> patch = patch_messages([AIMessage("", tool_calls=[call], id="a1")], evidence=found)
        >>> patch.messages[1].content
        "Tool call wire with id c1 failed in its last recorded attempt: ValueError('no')"
    """

    cause: Cause
    error: str | None = None
    detail: str | None = None
    inner: tuple[str, ...] = ()
    searched: str | None = None
    recheck: bool = False


@dataclass(frozen=True, slots=True)
class RecordedResult:
    """A recorded result of a call, and what was not restored with it.

    Attributes:
        message: The recorded result.
        not_kept: The names of effects of the call that were not restored: state keys, `goto`.
            A sentence before the text of the result names them, and its marker holds them.
            Default: none.
        cause: `"reconciled"` if the application's own lookup settled the call; its marker
            holds it. Default: None.

    Examples:
        >>> from langchain_core.messages import AIMessage, ToolMessage
        >>> from langgraph_patch import is_placeholder, patch_messages
        >>> from langgraph_patch.history.patch import RecordedResult
        >>> call = {"name": "write_file", "args": {}, "id": "c1"}
        >>> result = RecordedResult(ToolMessage("Updated file", tool_call_id="c1"), ("files",))
        >>> history = [AIMessage("", tool_calls=[call], id="a1")]
        >>> recovered = patch_messages(history, evidence={("a1", "c1"): result}).messages[1]
        >>> print(recovered.content)
        These effects of the tool call were not kept: files. Its recorded result:
        Updated file
        >>> is_placeholder(recovered)
        False
    """

    message: ToolMessage
    not_kept: tuple[str, ...] = ()
    cause: str | None = None


EvidenceKey: TypeAlias = tuple[str | None, str] | tuple[str | None, str, int]
"""The id of an `AIMessage` and the stored id of one of its calls.

If several calls of the message have the id: also the position of the call among all its calls.
"""

Evidence: TypeAlias = Mapping[EvidenceKey, "ToolMessage | Finding | RecordedResult"]
"""(id of the `AIMessage`, stored id of the call) -> its real result, or why there is none.

If several calls of the message have the id, the key has a third part: the position of the call,
from 0, among all calls of the message (`tool_calls`, then `invalid_tool_calls`).
"""


@dataclass(frozen=True, slots=True)
class Defect:
    """One defect of a history, as `validate_messages` reports it.

    Attributes:
        kind: What is wrong. One of:

            - `dangling`: a call has no result.
            - `malformed`: the arguments of a call are not a complete JSON object.
            - `unlisted`: a call is not in `tool_calls`, only in another part of the message.
            - `misplaced`: a result does not directly follow the message of its call.
            - `orphan`: a result has no call.
            - `duplicate`: a call has a second result.
            - `bad_id`: the id of a call is missing, invalid, or that of an earlier call.
            - `bad_name`: the name of a tool is missing or invalid.
            - `wrong_role`: a result is not a `ToolMessage`, or not in the form of its call.
            - `superseded`: there is something better than a stored placeholder.
            - `bad_field`: a field of the message has a value that LangChain's constructor
              refuses, such as `content=None`.
        index: The index of the message in the history.
        tool_call_id: The stored id of the call; `""` if there is none.
        name: The stored name of the tool, or None if none is stored.
    """

    kind: DefectKind
    index: int
    tool_call_id: str
    name: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the defect as JSON values."""
        return {
            "kind": self.kind,
            "index": self.index,
            "tool_call_id": self.tool_call_id,
            "name": self.name,
        }


@dataclass(frozen=True, slots=True)
class Change:
    """One change that a repair made.

    Attributes:
        kind: What was done. One of:

            - `inserted`: a placeholder was added.
            - `recovered`: a real result from a checkpoint was added.
            - `moved`: a result was moved to its call.
            - `dropped`: a result was removed.
            - `converted`: a result became a `ToolMessage`, or got the form of its call.
            - `promoted`: a call was written into `tool_calls`.
            - `renamed`: an id or a name was replaced everywhere.
            - `corrected`: a field that bypassed LangChain's validation was given the value that
              it was meant to have.
            - `omitted`: the message has such a field and its intention is not certain. No model
              reads the message. It stays in the state.
        index: The index of the message in the damaged history. For `inserted` and
            `recovered`: the index of the message that made the call.
        tool_call_id: The id of the call in the repaired history.
        name: The name of the tool in the repaired history, or None if none is stored.
        cause: For `inserted`, why there is no result (see `DanglingCall`). Else None.
        before: The message before the change, or None if there was none.
        after: The message after the change, or None if it was dropped.
    """

    kind: ChangeKind
    index: int
    tool_call_id: str
    name: str | None
    cause: Cause | None
    before: BaseMessage | None
    after: BaseMessage | None

    def to_dict(self) -> dict[str, Any]:
        """Return the change as JSON values, with complete messages."""
        return {
            "kind": self.kind,
            "index": self.index,
            "tool_call_id": self.tool_call_id,
            "name": self.name,
            "cause": self.cause,
            "before": json_value(self.before),
            "after": json_value(self.after),
        }

    def __str__(self) -> str:
        if self.kind in {"corrected", "omitted"} and self.before is not None:
            return f"{self.kind} message {self.index} ({type(self.before).__name__})"
        cause = f" ({self.cause})" if self.cause else ""
        return f"{self.kind} {self.name or 'result'!r} {self.tool_call_id!r}{cause}"


@dataclass(frozen=True, slots=True)
class Patch:
    """A repaired history and the changes that were made.

    `bool(patch)` is True if there were changes. `str(patch)` names them. In a notebook a patch
    is shown as a table of the history before and after.

    Attributes:
        messages: The repaired history. If nothing was changed: the very list that was passed in.
        changes: The changes, in the order of the history.
        before: The history before the repair.
        omitted: The messages that no model can read, which stay in the state. Each with the
            number of repaired messages before it. Default: none.
    """

    messages: list[BaseMessage]
    changes: tuple[Change, ...]
    before: list[BaseMessage]
    omitted: tuple[tuple[int, BaseMessage], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)

    def for_state(self) -> Patch:
        """The repair to write to a state: its messages include the omitted ones.

        Returns:
            A patch without `omitted` changes. It is false if there is nothing to write.

        Examples:
            >>> from langchain_core.messages import HumanMessage
            >>> from langgraph_patch import patch_messages
            >>> patch = patch_messages([HumanMessage.model_construct(content=7)])
            >>> print(patch)
            omitted message 0 (HumanMessage)
            >>> len(patch.messages), len(patch.for_state().messages), bool(patch.for_state())
            (0, 1, False)
        """
        if not self.omitted:
            return self
        changes = tuple(change for change in self.changes if change.kind != "omitted")
        if not changes:
            return Patch(self.before, (), self.before)
        messages = list(self.messages)
        for place, message in reversed(self.omitted):
            messages.insert(place, message)
        return Patch(messages, changes, self.before)

    def __str__(self) -> str:
        return "; ".join(map(str, self.changes)) or "nothing to repair"

    def _repr_html_(self) -> str:
        """The history before and after as HTML, for notebooks."""
        from langgraph_patch.render.html import patch_html  # noqa: PLC0415 - for notebooks only

        return patch_html(self.to_dict())

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


_MAX_SPLITS = 3
"""How many levels of a value are converted separately if it cannot be converted as a whole.

Three reach one key in the arguments of a call: message, `tool_calls`, call.
"""


def json_value(value: Any, splits: int = _MAX_SPLITS) -> Any:
    """A message, or any other value, as JSON values. Never raises.

    A value cannot be converted if it contains itself, is nested too deep, contains an integer
    that is too long to write, or has a class that raises. Its parts are then converted
    separately, so that most of a message is kept; the rest becomes the name of its type.
    """
    with suppress(Exception):  # the class of an artifact may raise anything
        return _wholejson_value(value)
    with suppress(Exception):
        if splits:
            return _partsjson_value(value, splits - 1)
    return f"<{type(value).__name__}>"


def _wholejson_value(value: Any) -> Any:
    dumped = value.model_dump(warnings=False) if isinstance(value, BaseModel) else value
    jsonable = to_jsonable_python(dumped, bytes_mode="base64", serialize_unknown=True)
    return json.loads(json.dumps(jsonable))


def _partsjson_value(value: Any, splits: int) -> Any:
    if isinstance(value, BaseModel):
        value = {**value.__dict__, **(value.__pydantic_extra__ or {})}
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else str(json_value(key, 0)): json_value(item, splits)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [json_value(item, splits) for item in value]
    return json_value(value, 0)


def changes_history(patch: Patch) -> bool:
    """Whether a patch changes what a model reads. A search alone may change only a marker."""
    return any(
        change.kind != "inserted" or not is_marked_again(change.before, change.after)
        for change in patch.changes
    )


def is_marked_again(before: BaseMessage | None, after: BaseMessage | None) -> bool:
    """Whether two tool messages differ in their marker only."""
    if not (isinstance(before, ToolMessage) and isinstance(after, ToolMessage)):
        return False
    without_marker = [dict(each.__dict__, additional_kwargs=None) for each in (before, after)]
    return without_marker[0] == without_marker[1]
