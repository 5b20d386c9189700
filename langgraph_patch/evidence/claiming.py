"""Make a claim: of all runs that begin a call, one gets it.

- A checkpointer keeps the first of two writes with the same task id and index: of two runs at one
  checkpoint one makes the claim. Two runs at two checkpoints have two rows. Each makes its claim
  and then reads all rows: at least one of them sees the other, and gives its claim back.
- The id of a row is just before that of its checkpoint. So no job that deletes old checkpoints
  deletes it first, and it is not the newest of its thread. If it is gone all the same, the witness
  says so: the call is not run.
- A message may be made again in a later turn, with its id: that is another call (`is_earlier`).
- A claim without an end is in the way for good. So an end that a checkpointer did not take is
  written by whoever comes next in this process. In another one the question that LangGraph stored
  of the task shows that its tool asks.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch._langgraph.address import Address
from langgraph_patch._langgraph.run import Run
from langgraph_patch._sansio import IOGenerator, IORequest, method_request
from langgraph_patch.errors import EvidenceError, logger
from langgraph_patch.evidence import claims
from langgraph_patch.evidence.claims import UNWRITTEN, Claim, claims_in, row_of, task_of
from langgraph_patch.evidence.superstep import WITNESS
from langgraph_patch.evidence.window import Reader, all_of


class Record:
    """The record of a call, as a run that begins it sees it.

    Args:
        reader: The checkpointer.
        thread: The checkpoint from which the call is begun.
        message: The message that makes the call; it has an id.
        call_id: The id of the call.
        place: How many calls of the message before it have the same id.
        is_probed: Whether each claim is a probe, too: a second write must not take its place. It
            sees no race. Default: False.

    Attributes:
        row: The row of that checkpoint.
    """

    def __init__(
        self,
        reader: Reader,
        thread: Address,
        message: BaseMessage,
        call_id: str,
        place: int,
        *,
        is_probed: bool = False,
    ) -> None:
        self.reader, self.thread, self.message = reader, thread, message
        self.row, self.is_probed = row_of(thread, message, call_id, place), is_probed

    def read(self) -> IOGenerator[list[Claim]]:
        """The claims of its row; none if there is no row."""
        saved = yield method_request(self.reader.saver, "get_tuple", self.row.config)
        return claims_in(saved) or []

    def begin(self, claim: Claim, run: Run | None = None) -> IOGenerator[Claim]:
        """Make a claim, if no other one is in the way.

        Args:
            claim: The claim.
            run: The run that begins the call: its checkpoint gets a witness, and says which rows
                there must be. Default: none, for a claim that no job deletes while it holds.

        Returns:
            The claim, if it was made, or the one that is in the way: also one whose questions wait.

        Raises:
            EvidenceError: If the record cannot be read back.
        """
        needed = (yield from self._witnessed(run)) if run else ()
        try:
            last, others = yield from self._begin_row(claim, needed, run)
            is_made = last.run == claim.run
            mine = self.reader, self.thread, self.message.id, run.place if run else {}
            for each in others if is_made else ():
                is_other = yield from claims.is_earlier(*mine, each.place)
                if not is_other:
                    is_told = is_other is False and last.run == claim.run
                    last = each if is_told else replace(each, word="untold")
        except (Exception, asyncio.CancelledError, KeyboardInterrupt):
            # It may have been made: nothing runs under it.
            yield from self.end(replace(claim, word="paused"))
            raise
        if is_made and last.run != claim.run:
            rows = [each.row for each in others]
            yield from self.end(replace(claim, word="paused", value={"rows": rows}))
        return last

    def _begin_row(
        self, claim: Claim, witnessed: Collection[str], run: Run | None
    ) -> IOGenerator[tuple[Claim, list[Claim]]]:
        """Make a claim in the row.

        Returns the last claim there, and that of each other row, if it was not given back.
        """
        number = 0 if witnessed else 1  # nothing is written where a row is gone
        is_ended = False
        while True:
            if number:
                yield from self._put(claim, number, has_witness=run is not None)
            rows = yield from self._rows()
            own = rows.get(str(self.row.checkpoint_id), [])
            last = own[-1] if own else None
            if last and last.run != claim.run and not is_ended:
                if last.run == _probe_of(claim):
                    yield from self.end(replace(last, word="paused"))
                    return replace(last, word="overwritten"), []
                if (yield from self._end_last(own, run)):
                    number, is_ended = 0, True  # once: a checkpointer may lose it again
                    continue
            is_cut_off = any(not made and each != claims.OLD_ROW for each, made in rows.items())
            needed = [*witnessed, *(each for claim in own for each in claim.rows)]
            if is_cut_off or not all(map(rows.get, needed)):
                if number:
                    yield from self.end(replace(claim, word="paused", value={"rows": [""]}))
                return replace(claim, run="", word="lost"), []
            if number and not own:
                raise self._unreadable
            is_asked = last and last.questions and last.taken == claim.answers
            if last and (last.run == claim.run or last.word != "paused" or is_asked):
                ends = [made[-1] for made in rows.values() if made and made is not own]
                same = [each for each in ends if each.is_of(claim.tool)]
                return last, [each for each in same if each.word != "paused"]
            number = len(own) + 1

    def _rows(self) -> IOGenerator[dict[str, list[Claim]]]:
        """The claims of each row, by its id."""
        saved = yield all_of(self.reader.saver, self.row)
        found = {claims.id_of(each): claims_in(each) for each in saved}
        rows = {each: made for each, made in found.items() if made is not None}
        if len(rows) < len(found):
            raise self._unreadable
        return rows

    def _put(self, claim: Claim, number: int, *, has_witness: bool) -> IOGenerator[None]:
        """Write a claim; after the first one the row, since a row without one was cut off."""
        saver, row = self.reader.saver, self.row
        began = {name: getattr(claim, name) for name in claims.FIELDS}
        yield _put_first(saver, row, "began", began, task_of(number))
        if self.is_probed:
            probe = {**began, "run": _probe_of(claim)}
            yield _put_first(saver, row, "began", probe, task_of(number))
        if number == 1:
            empty: Any = {**empty_checkpoint(), "id": row.checkpoint_id}
            metadata = {"source": "update", "step": -1, "parents": {}, "langgraph_patch": "once"}
            yield method_request(saver, "put", row.newest.config, empty, metadata, {})
            if has_witness:
                task = task_of(row.namespace)
                yield _put_first(saver, self.thread, WITNESS, row.checkpoint_id, task)

    @property
    def _unreadable(self) -> EvidenceError:
        return EvidenceError(
            f"Thread {self.row.thread_id!r}: the record of a call, in namespace "
            f"{self.row.namespace!r}, cannot be read back, so the call is not run."
        )

    def _end_last(self, own: Sequence[Claim], run: Run | None) -> IOGenerator[bool]:
        """Write how the last claim ended, if that is known and was not stored."""
        last = own[-1]
        if last.run not in UNWRITTEN and last.word is None and last.asked and run:
            saved = yield method_request(self.reader.saver, "get_tuple", self.thread.config)
            asked = run.asked_in((saved and saved.pending_writes) or ())
            known = {last.asked, *(Claim.digest("", each.questions) for each in own)}
            if asked and Claim.digest("", asked) not in known:
                UNWRITTEN[last.run] = "paused", {"questions": asked}
        if last.run not in UNWRITTEN:
            return False
        yield _put_first(self.reader.saver, self.row, *UNWRITTEN[last.run], task_of(last.run))
        UNWRITTEN.pop(last.run, None)
        return True

    def _witnessed(self, run: Run) -> IOGenerator[Collection[str]]:
        """The rows that there must be: witnesses name them.

        They are in the checkpoint, and in those that it was forked from.
        """
        saver, row = self.reader.saver, self.row
        found = claims.witnesses_in(row.namespace, run.loaded_writes)
        address: Address | None = self.thread if run.may_be_begun else None
        while address is not None and not found:
            saved = yield method_request(saver, "get_tuple", address.config)
            if saved is None:
                return [""]  # a job has deleted it, and perhaps its witness: no row has that id
            found = claims.witnesses_in(row.namespace, saved.pending_writes or ())
            is_fork = saved.metadata.get("source") in ("update", "fork") and saved.parent_config
            address = Address.of(saved.parent_config) if is_fork else None
        if run.may_be_begun and not found:
            rows = [claims.id_of(saved) for saved in (yield all_of(saver, row))]
            return [each for each in rows if each == row.checkpoint_id]
        return found

    def refuse(self, claim: Claim, answers: str) -> IOGenerator[None]:
        """Record that a run with these answers is told that a call failed."""
        row, task = self.row.at(self.row.namespace, claim.row), task_of(f"refused {claim.run}")
        yield _put_first(self.reader.saver, row, "refused", answers, task)

    def end(self, claim: Claim) -> IOGenerator[None]:
        """Write how a claim ended: without the artifact, or the result, if they cannot be stored.

        It raises no error: the tool has run, and the run goes on.
        """
        saver, thread_id = self.reader.saver, self.row.thread_id
        forms: list[Mapping[str, Any]] = [claim.value, _without_artifact(claim.value), {}]
        value = next(form for form in forms if not form or _is_storable(saver, form))
        if value is not claim.value:
            logger.warning(_NOT_WHOLE, thread_id, "artifact" if value else "result")
        UNWRITTEN[claim.run] = str(claim.word), value
        for is_last in (False, True):
            try:
                yield _put_first(saver, self.row, str(claim.word), value, task_of(claim.run))
            except Exception:  # of any checkpointer: the result of the tool must not be lost
                if is_last:
                    logger.warning(_NOT_RECORDED, thread_id, claim.word, exc_info=True)
            else:
                UNWRITTEN.pop(claim.run, None)
                return


_NOT_WHOLE = "thread %r: a result cannot be stored as it is, so the record of its call has no %s"
_NOT_RECORDED = "thread %r: that a call %s could not be recorded"


def _probe_of(claim: Claim) -> str:
    """The run of a claim that is written behind one, and must not take its place."""
    return f"{claim.run}?"


def _is_storable(saver: BaseCheckpointSaver[Any], value: object) -> bool:
    try:
        return bool(saver.serde.dumps_typed(value))
    except Exception:  # noqa: BLE001 - of any value of an application
        return False


def _put_first(
    saver: BaseCheckpointSaver[Any], record: Address, word: str, value: Any, task: str
) -> IORequest:
    """Write a value, unless there is one: the checkpointer keeps the first."""
    request = method_request(saver, "put_writes", record.config, [(word, value)], task)
    if not isinstance(saver, InMemorySaver):
        return request

    def put() -> None:
        with _LOCK:  # it looks, and then writes
            request.sync()

    async def aput() -> None:
        put()

    return IORequest(put, aput)


_LOCK = threading.Lock()


def _without_artifact(value: Mapping[str, Any]) -> Mapping[str, Any]:
    result = value.get("result")
    if not isinstance(result, ToolMessage):
        return value
    return {**value, "result": result.model_copy(update={"artifact": None})}


_READ = {
    *("InMemorySaver", "SqliteSaver", "AsyncSqliteSaver", "PostgresSaver", "AsyncPostgresSaver"),
    *("MongoDBSaver", "BaseSyncMySQLSaver", "BaseAsyncMySQLSaver"),
}
"""The classes whose sources were read: these write with `INSERT OR IGNORE`, `ON CONFLICT DO
NOTHING`, `$setOnInsert` and a unique index, `INSERT IGNORE`; the one in memory needs a lock."""


def keeps_first_write(saver: BaseCheckpointSaver[Any]) -> bool:
    """Whether a checkpointer keeps the first of two writes with the same task id and index.

    It is known of classes that were read. An application says it: `saver.keeps_first_write = True`.
    """
    stated = getattr(saver, "keeps_first_write", None)
    if isinstance(stated, bool):
        return stated
    methods, classes = ("put_writes", "aput_writes"), type(saver).__mro__
    writers = {next(cls for cls in classes if method in vars(cls)) for method in methods}
    return all(
        cls.__module__.startswith("langgraph.checkpoint.") and cls.__name__ in _READ
        for cls in writers - {BaseCheckpointSaver}
    )
