"""Compare messages. Two may be the same in several ways, and each of them is asked for.

- The very same objects (`are_identical`): a repair of one history may be written for another one.
  It costs nothing, so the model nodes of healthy runs may ask.
- The same message at two times (`evidence.window.is_version`): checkpoints have it before and after
  an edit, and before and after a reducer gave it an id.
- Equal contents, as a checkpoint stores them (`threads.read.are_equal`): what a database returned
  is what was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any


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
