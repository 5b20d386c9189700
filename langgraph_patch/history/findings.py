"""What is known of a call without a result: its causes, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from langchain_core.messages import AIMessage, ToolMessage

Cause = Literal["awaiting_input", "failed", "not_started", "cancelled", "malformed", "unknown"]

CAUSES: tuple[Cause, ...] = get_args(Cause)


@dataclass(frozen=True, slots=True)
class Finding:
    """What checkpoints recorded about a call: its result, or why there is none.

    Attributes:
        cause: Why there is no result: `"failed"`, `"awaiting_input"`, `"not_started"`,
            `"cancelled"`, `"malformed"` or `"unknown"`; see `DanglingCall`. It is not used if there
            is a result. Default: `"unknown"`.
        result: The result, if there is one. Default: None.
        error: The recorded error for `failed`, the text of the arguments for `malformed`.
            Default: None.
        detail: A variant of the cause, see `DanglingCall`. Default: None.
        inner: Short texts about recorded results of calls inside this call (of a subagent),
            the newest first. The placeholder lists them. Default: none.
        look_again: Whether the next turn searches once more, because a task may still have been
            running; or the id of the checkpoint from which it does. Default: False, the finding
            is final.
        not_kept: The names of effects of the call that were not restored with its result: state
            keys, `goto`. A sentence before the text of the result names them. Default: none.
        may_be_kept: Whether something has written one of these state keys since, so that the
            effects may be in the state. Default: False.
        is_reconciled: Whether the application's own lookup returned the result; the marker of the
            message says so. Default: False.

    Examples:
        >>> from langchain_core.messages import AIMessage, ToolMessage
        >>> from langgraph_patch import Finding, patch_messages
        >>> wire = {"name": "wire", "args": {}, "id": "c1"}
        >>> mail = {"name": "mail", "args": {}, "id": "c2"}
        >>> evidence = {
        ...     (0, 0): Finding("failed", error="ValueError('no')"),
        ...     (0, 1): Finding(result=ToolMessage("sent", tool_call_id="c2"), not_kept=("files",)),
        ... }
        >>> patch = patch_messages([AIMessage("", tool_calls=[wire, mail])], evidence=evidence)
        >>> patch.messages[1].content
        "Tool call wire with id c1 failed in its last recorded attempt: ValueError('no')"
        >>> print(patch.messages[2].content)
        These effects of the tool call were not kept: files. Its recorded result:
        sent
    """

    cause: Cause = "unknown"
    result: ToolMessage | None = None
    error: str | None = None
    detail: str | None = None
    inner: tuple[str, ...] = ()
    look_again: bool | str = False
    not_kept: tuple[str, ...] = ()
    may_be_kept: bool = False
    is_reconciled: bool = False

    def is_valid(self) -> bool:
        """Whether its cause is known, and its result is one."""
        return self.cause in CAUSES and isinstance(self.result, ToolMessage | None)


Evidence: TypeAlias = Mapping[tuple[int, int], Finding]
"""The index of an `AIMessage` in the history and the position of a call in it -> the finding.

The position is that among all calls of the message, from 0: `tool_calls`, then
`invalid_tool_calls`, then calls that are only in a content block.
"""


@dataclass(frozen=True, slots=True)
class DanglingCall:
    """A tool call without a result: the argument of a `placeholder` callable.

    Attributes:
        tool_call_id: The id of the call; `""` if it has none.
        name: The name of the tool; `""` if the call names none.
        args: The arguments of the call; `{}` if they are not a complete JSON object.
        cause: Why there is no result:

            - `"failed"`: its task recorded an error.
            - `"awaiting_input"`: its task was interrupted, and no answer was recorded.
            - `"not_started"`: the record ends before anything that may have started this call.
            - `"cancelled"`: its task recorded a cancellation.
            - `"malformed"`: its arguments are not a complete JSON object, or it names no tool.
            - `"unknown"`: the records do not show any of these.
        error: For `failed` the recorded error, for `malformed` the text of incomplete
            arguments, else None.
        message: The `AIMessage` that made the call, as it is stored.
        index: The index of that message in the history.
        detail: A variant of the cause, or None:

            - of `failed`: `"timeout"`, the tool may have gone on;
            - of `awaiting_input`: `"paused"`, `get_state` still shows the pause;
            - of `not_started`: `"approval"`, a step before the tools asks for approval;
            - of `malformed`: `"stopped"`, this package kept the call from running; `"tools_ran"`,
              tools may have run with what there was of the arguments; `"no_name"`, the call names
              no tool;
            - of `unknown`: `"started"`, the tool runs each call once, and this one was started.
        inner: Short texts about recorded results of calls inside this call (of a subagent),
            the newest first.

    Examples:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph_patch import DanglingCall, patch_messages
        >>> def text(call: DanglingCall) -> str:
        ...     return f"{call.name}{dict(call.args)}: {call.cause}"
        >>> call = {"name": "wire", "args": {"to": "bob"}, "id": "c1"}
        >>> history = [AIMessage("", tool_calls=[call]), HumanMessage("never mind")]
        >>> patch_messages(history, placeholder=text).messages[1].content
        "wire{'to': 'bob'}: unknown"
    """

    tool_call_id: str
    name: str
    args: Mapping[str, Any]
    cause: Cause
    error: str | None
    message: AIMessage
    index: int
    detail: str | None = None
    inner: tuple[str, ...] = ()
