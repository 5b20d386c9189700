"""What a caller may ask of a scan or a repair; what cannot be meant is said before any I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_patch.errors import OptionError
from langgraph_patch.history.placeholders import Language, Placeholder

OnPause = Literal["keep", "abandon"]


def check_kind(name: str, value: Any, kind: type, expected: str) -> None:
    """See that an option is of its kind.

    Raises:
        OptionError: If not.

    Example:
        >>> from langgraph_patch.threads.options import check_kind
        >>> check_kind("after", 7, str, "a thread's id")
        Traceback (most recent call last):
        langgraph_patch.errors.OptionError: after=7: expected a thread's id.
    """
    if not isinstance(value, kind):
        raise OptionError(f"{name}={value!r:.200}: expected {expected}.")


def is_age(value: Any) -> bool:
    """Whether it is a number of seconds: finite, and not below 0."""
    return isinstance(value, int | float) and 0 <= value < float("inf")


def sorted_ids(thread_ids: Iterable[str]) -> list[str]:
    """The named threads, each once, in the order of a scan.

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
    """The options of `repair_thread`."""

    on_pause: OnPause
    min_age: float
    force: bool
    dry_run: bool
    messages_key: str
    placeholder: Placeholder | None
    language: Language | None
    recover: bool
    replace_foreign: bool
    checkpointer: BaseCheckpointSaver[Any] | None

    def __post_init__(self) -> None:
        check_kind("messages_key", self.messages_key, str, "a state key")
        if self.on_pause not in ("keep", "abandon"):
            raise OptionError(f"on_pause={self.on_pause!r}: expected 'keep' or 'abandon'.")
        if not is_age(self.min_age):
            raise OptionError(f"min_age={self.min_age!r:.200}: expected seconds, 0 or more.")
