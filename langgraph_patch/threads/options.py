"""The options of scans and repairs; an invalid one is an error before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_patch.errors import OptionError
from langgraph_patch.evidence.reconcile import Lookup
from langgraph_patch.history.placeholders import Placeholder, checked_placeholder

OnPause = Literal["keep", "abandon"]

MIN_AGE = 60.0
"""The default age in seconds of a thread's newest checkpoint from which it is repaired."""


def check_kind(name: str, value: Any, kind: Any, expected: str) -> None:
    """Check that the value of an option is of the right type.

    Args:
        name: The name of the option.
        value: Its value.
        kind: What `isinstance` takes: a class, or `Callable`, which is none to a type checker.
        expected: The type in words.

    Raises:
        OptionError: If it is not.

    Examples:
        >>> from langgraph_patch.threads.options import check_kind
        >>> check_kind("after", 7, str, "the id of a thread")
        Traceback (most recent call last):
        langgraph_patch.errors.OptionError: after=7: expected the id of a thread.
    """
    if not isinstance(value, kind):
        raise OptionError(f"{name}={value!r:.200}: expected {expected}.")


def is_age(value: Any) -> bool:
    """Whether it is a number of seconds: finite and not negative."""
    return isinstance(value, int | float) and 0 <= value < float("inf")


def sorted_ids(thread_ids: Iterable[str]) -> list[str]:
    """The ids of the chosen threads, each once, in the order of a scan.

    Raises:
        OptionError: If they are not strings.
    """
    expected = "the ids of threads, for one thread a list of one"
    check_kind("thread_ids", thread_ids, Iterable, expected)
    ids = None if isinstance(thread_ids, str | bytes) else list(thread_ids)
    if ids is None or not all(isinstance(each, str) for each in ids):
        raise OptionError(f"thread_ids={thread_ids!r:.200}: expected {expected}.")
    return sorted(set(ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOptions:
    """The options of `repair_thread`, which documents them."""

    on_pause: OnPause
    min_age: float
    force: bool
    dry_run: bool
    placeholder: Placeholder | None
    messages_key: str
    recover: bool
    reconcile: Mapping[str, Lookup]
    replace_foreign: bool
    checkpointer: BaseCheckpointSaver[Any] | None
    confirm: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        check_kind("messages_key", self.messages_key, str, "a state key")
        if self.on_pause not in ("keep", "abandon"):
            raise OptionError(f"on_pause={self.on_pause!r}: expected 'keep' or 'abandon'.")
        if not is_age(self.min_age):
            raise OptionError(f"min_age={self.min_age!r:.200}: expected seconds, 0 or more.")
        if self.confirm is not None and not callable(self.confirm):
            raise OptionError(f"confirm={self.confirm!r:.200}: expected a function or None.")
        checked_placeholder(self.placeholder)
