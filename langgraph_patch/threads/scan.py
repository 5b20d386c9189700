"""How one stored thread is looked at, and which threads there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_patch._sansio import IOGenerator, call_method
from langgraph_patch.errors import EvidenceError, ThreadError, brief
from langgraph_patch.evidence.recover import recover_evidence
from langgraph_patch.history.pairing import Reading
from langgraph_patch.history.patch import Evidence
from langgraph_patch.history.patcher import defects_of, patch_reading, read_if_damaged
from langgraph_patch.threads.checkpoint_state import (
    age_of,
    history_of,
    id_of,
    is_ephemeral,
    pauses_of,
)
from langgraph_patch.threads.options import check_kind, sorted_ids
from langgraph_patch.threads.reports import ThreadReport
from langgraph_patch.threads.stores.select import (
    Key,
    Shard,
    ask_source,
    behind,
    has_failed,
    source_of,
)


class Scan:
    """One pass over the threads of a checkpointer.

    Args:
        saver: The checkpointer.
        messages_key: The state key of the history.
        thread_ids: The threads to look at; None for all.
        after: Begin with the threads that sort after this one.
        shard: Which part of these threads to look at; None for all.

    Raises:
        OptionError: If an option cannot be meant.
    """

    def __init__(
        self,
        saver: BaseCheckpointSaver[Any],
        *,
        messages_key: str,
        thread_ids: Iterable[str] | None,
        after: str,
        shard: Shard | None,
    ) -> None:
        check_kind("messages_key", messages_key, str, "a state key")
        check_kind("after", after, str, "the id of a thread")
        if shard is not None:
            check_kind("shard", shard, Shard, "a Shard, such as Shard(1, 8)")
        self._saver = saver
        self._source = source_of(saver)
        self._key = messages_key
        self._last = behind(after) if after else None
        self._shard = shard
        self._named = None
        if thread_ids is not None:
            self._named = [each for each in sorted_ids(thread_ids) if not after or each > after]
        self._at_end = False
        self._thread_id: str | None = None
        self._tasks: set[str] = set()  # of the thread at hand: those that wait,
        self._questions: set[str] = set()  # and the interrupts of its root graph

    # --- which ---------------------------------------------------------------------------

    def pages(self) -> Iterator[IOGenerator[Sequence[Key]]]:
        """The keys to look at, page by page; each is read when it is run."""
        if self._named is not None:
            yield from map(self._namespaces, filter(self._is_ours, self._named))
            return
        while not self._at_end:
            yield self._page()

    def _page(self) -> IOGenerator[Sequence[Key]]:
        page = yield from ask_source(self._source, "page", self._last)
        self._at_end = not page
        if page:
            self._last = page[-1]
        return [key for key in page if self._is_ours(key.thread_id)]

    def _is_ours(self, thread_id: str) -> bool:
        return self._shard is None or self._shard.has(thread_id)

    def _namespaces(self, thread_id: str) -> IOGenerator[Sequence[Key]]:
        keys: Sequence[Key] = ()
        with suppress(UnicodeEncodeError):  # an id that no database can hold
            keys = yield from ask_source(self._source, "namespaces", thread_id)
        if not keys:
            raise ThreadError(f"There is no thread {thread_id!r}.")
        return keys

    # --- what ----------------------------------------------------------------------------

    def look(self, key: Key) -> IOGenerator[ThreadReport | None]:
        """The report on one history; None if no later run can ever read it."""
        if key.thread_id != self._thread_id:
            self._thread_id = key.thread_id
            self._tasks, self._questions = set(), set()
        try:
            if is_ephemeral(key.namespace) and key.namespace.rpartition(":")[2] not in self._tasks:
                return None
            return (yield from self._read(key))
        except Exception as error:
            if has_failed(error):
                raise  # a locked or lost database is no matter of this thread
            return ThreadReport(*key, "unreadable", reason=_one_line(error))

    def _read(self, key: Key) -> IOGenerator[ThreadReport]:
        place = {"configurable": {"thread_id": key.thread_id, "checkpoint_ns": key.namespace}}
        saved: CheckpointTuple | None = yield from call_method(self._saver, "get_tuple", place)
        if saved is None:
            raise ThreadError("it has been deleted meanwhile")
        waits = self._waits(key, saved)
        history = yield from history_of(self._saver, saved, self._key)
        known: dict[str, Any] = {
            "checkpoint_id": id_of(saved),
            "age": age_of(saved),
            "messages": None if history is None else len(history),
        }
        reading = read_if_damaged(history or [], allow_pending=waits)
        defects = tuple(defects_of(reading, allow_pending=waits)) if reading else ()
        if waits or reading is None:
            return ThreadReport(*key, "paused" if waits else "healthy", defects=defects, **known)
        evidence, reason = yield from self._evidence(saved, reading)
        patch = patch_reading(reading, evidence=evidence)
        return ThreadReport(*key, "damaged", defects=defects, patch=patch, reason=reason, **known)

    def _waits(self, key: Key, saved: CheckpointTuple) -> bool:
        """Whether a human may still answer: only through the root graph can an answer come."""
        pauses = pauses_of(saved)
        questions = {question for asked in pauses.values() for question in asked}
        if not key.namespace:
            self._questions = questions
        if not questions & self._questions:
            return False
        self._tasks.update(pauses)
        return True

    def _evidence(
        self, saved: CheckpointTuple, reading: Reading
    ) -> IOGenerator[tuple[Evidence, str | None]]:
        """The evidence, or why there is none."""
        try:
            evidence = yield from recover_evidence(
                self._saver, saved.config, reading.unanswered, messages_key=self._key
            )
        except EvidenceError as error:
            cause = _one_line(error.__cause__ or error)
            return {}, f"its older checkpoints cannot be read: {cause}"
        return evidence, None


def _one_line(error: BaseException) -> str:
    if isinstance(error, ThreadError):
        return str(error)
    if isinstance(error, NotImplementedError) and "pickle" in str(error):
        return "a row of it is a pickle, which is never loaded: it could run any code"
    return brief(error)
