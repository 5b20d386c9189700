"""Compare messages. Two may be the same in several ways, and each of them is asked for.

- The very same objects (`are_identical`): a repair of one history may be written for another one.
  It costs nothing, so the model nodes of healthy runs may ask.
- The same message at two times (`evidence.window.is_version`): checkpoints have it before and after
  an edit, and before and after a reducer gave it an id.
- Equal contents, as a checkpoint stores them (`are_equal`): what a database returned is what was
  written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from operator import is_
from typing import Any

from langchain_core.messages import BaseMessage


def are_identical(some: Sequence[Any] | None, others: Sequence[Any] | None) -> bool:
    """Whether two histories consist of the same objects in the same order."""
    some, others = some or (), others or ()
    return len(some) == len(others) and all(map(is_, some, others))


def is_equal(some: object, other: object) -> bool:
    """Whether two values are equal. Values that cannot be compared, such as arrays, are not."""
    try:
        return (some == other) is True
    except Exception:  # noqa: BLE001 - of any value of an application
        return False


# --- equal contents -----------------------------------------------------------------------------


def are_equal(some: Sequence[BaseMessage], others: Sequence[BaseMessage]) -> bool:
    """Whether two histories have messages with equal contents, in whatever order their keys are.

    `==` raises an error for arrays and data frames in an artifact, and it is false for NaN.

    Examples:
        >>> from langchain_core.messages import ToolMessage
        >>> from langgraph_patch.history.comparing import are_equal
        >>> one, other = (
        ...     ToolMessage("r", tool_call_id="c", artifact=float("nan")) for _ in range(2)
        ... )
        >>> one == other, are_equal([one], [other])
        (False, True)
    """
    return len(some) == len(others) and all(
        type(one) is type(other) and _contents(one) == _contents(other)
        for one, other in zip(some, others, strict=True)
    )


def _contents(message: BaseMessage) -> Any:
    fields = {**vars(message), **(message.model_extra or {})}
    return _serializer().dumps_typed(_in_order(fields))


@cache
def _serializer() -> Any:
    """LangGraph's own serializer; it is only used to write."""
    from langgraph.checkpoint.serde import jsonplus  # noqa: PLC0415 - the rest needs no LangGraph

    return jsonplus.JsonPlusSerializer(pickle_fallback=True)


def _in_order(value: Any) -> Any:
    """A stored value with the keys of its mappings in order, and lists in place of tuples."""
    if isinstance(value, Mapping):
        return {key: _in_order(value[key]) for key in sorted(value, key=str)}
    return [*map(_in_order, value)] if isinstance(value, list | tuple) else value
