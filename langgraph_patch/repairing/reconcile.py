"""Ask the application about calls for which the checkpoints do not show what happened.

A service that a tool calls may know more than the checkpoints: whether a payment was made, for
example. A lookup asks it. Its answer becomes the result of the call.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from langchain_core.messages import ToolMessage

from langgraph_patch._sansio import IOGenerator, IORequest
from langgraph_patch._text import short
from langgraph_patch.errors import OptionError, logger
from langgraph_patch.history.fields import digest_of
from langgraph_patch.history.findings import DanglingCall, Evidence, Finding

Answer: TypeAlias = "ToolMessage | str | None"

Lookup: TypeAlias = Callable[[DanglingCall], "Answer | Awaitable[Answer]"]
"""Returns the result of a call, or None if it does not know more. It may be asynchronous."""

INDETERMINATE: Final = frozenset({"unknown", "cancelled", "awaiting_input"})
"""The causes of calls that may have run."""


def check_reconcile(reconcile: Mapping[str, Lookup] | None) -> None:
    """Check the option `reconcile`.

    Raises:
        OptionError: If `reconcile` is no mapping from the name of a tool to a callable.
    """
    lookups = {} if reconcile is None else reconcile
    if not isinstance(lookups, Mapping) or not all(
        isinstance(name, str) and callable(lookup) for name, lookup in lookups.items()
    ):
        raise OptionError(
            f"reconcile={short(reconcile)}: expected a mapping from the name of a tool to a "
            f"callable that takes a DanglingCall."
        )


def reconcile_calls(
    calls: Iterable[tuple[tuple[int, int], DanglingCall]], reconcile: Mapping[str, Lookup]
) -> IOGenerator[Evidence]:
    """Ask the lookups about calls that may have run.

    A lookup that raises leaves its call as it was found; a WARNING reports it.

    Args:
        calls: Each open call, with its key in the evidence.
        reconcile: The lookup for each tool.

    Returns:
        The answers, as evidence.

    Raises:
        OptionError: If a lookup returns something else than a `ToolMessage`, a text or None, or
            if it is asynchronous in a synchronous run.

    Examples:
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch import DanglingCall
        >>> from langgraph_patch._sansio import run_sync
        >>> call = DanglingCall("c1", "wire", {}, "unknown", None, AIMessage("", id="a1"), 0)
        >>> lookups = {"wire": lambda call: f"the bank has booked {call.tool_call_id}"}
        >>> found = run_sync(reconcile_calls([((0, 0), call)], lookups))
        >>> found[0, 0].result.content
        'the bank has booked c1'
    """
    evidence: dict[tuple[int, int], Finding] = {}
    for key, call in calls:
        lookup = reconcile.get(call.name)
        if lookup is None or call.cause not in INDETERMINATE:
            continue
        try:
            answer = yield IORequest(partial(_ask, lookup, call), partial(_aask, lookup, call))
        except OptionError:
            raise
        except Exception as error:  # noqa: BLE001 - the application's code may raise anything
            logger.warning("the lookup for tool call %r raised %r", call.tool_call_id, error)
            continue
        if answer is not None:
            result = _as_message(answer, key, call)
            evidence[key] = Finding(result=result, is_reconciled=True)
    return evidence


def _ask(lookup: Lookup, call: DanglingCall) -> Any:
    answer = lookup(call)
    if not inspect.isawaitable(answer):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()
    raise OptionError(
        f"The lookup for {call.name!r} is asynchronous, and the run is not: "
        f"use ainvoke or astream, or pass a synchronous function."
    )


async def _aask(lookup: Lookup, call: DanglingCall) -> Any:
    answer = lookup(call)
    return await answer if inspect.isawaitable(answer) else answer


def _as_message(answer: object, key: tuple[int, int], call: DanglingCall) -> ToolMessage:
    """The answer as a result of the call, with an id that is the same for every attempt."""
    if isinstance(answer, str):
        answer = ToolMessage(answer, tool_call_id=call.tool_call_id, name=call.name)
    if not isinstance(answer, ToolMessage):
        raise OptionError(
            f"The lookup for {call.name!r} returned {short(answer)}: "
            f"expected a ToolMessage, a str or None."
        )
    digest = digest_of("reconciled", call.message.id, call.tool_call_id, key[1])[:32]
    fields = {"id": answer.id or f"patch-{digest}", "tool_call_id": call.tool_call_id}
    return answer.model_copy(update=fields)
