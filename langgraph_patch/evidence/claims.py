"""The record of a call that runs once: who began it, and how that ended.

Each call has a namespace of its own, which derives from the message and the call: forks, replays
and answers from other checkpoints find the same record.

| what                            | where                           | written by     | read by     |
|---------------------------------|---------------------------------|----------------|-------------|
| a *row* for each checkpoint     | a checkpoint without values in  | who begins the | who comes   |
| from which the call is begun    | the namespace                   | call there     | next        |
| a *claim*: run, tool, arguments | `began` of the row, under its   | who begins the | the same; a |
| answers, place in the thread    | number, from 1                  | call           | repair      |
| how it ended: `paused` (asks,   | that word, under the run        | the run of the | the same    |
| the claim is given back),       |                                 | claim          |             |
| `ended` or `failed`             |                                 |                |             |
| `refused`: a later run was told | that word, under the run        | that later run | who comes   |
| that it failed                  |                                 |                | next        |
| the *witness*: it was begun     | a pending write of the thread's | who makes      | who comes   |
|                                 | checkpoint, with the row's id   | claim 1        | next        |

- A checkpointer keeps the first of two writes with the same task id and index: of two runs at one
  checkpoint one makes the claim. Two runs at two checkpoints have two rows. Each makes its claim
  and then reads all rows: at least one of them sees the other, and gives its claim back.
- The id of a row is just before that of its checkpoint. So no job that deletes old checkpoints
  deletes it first, and it is not the newest of its thread. If it is gone all the same, the witness
  says so: the call is not run.
- A message may be made again in a later turn, with its id: that is another call (`places`).
- A row in which the claims do not follow each other, and a result of another call, prove nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, groupby
from operator import attrgetter
from typing import Any, Literal

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, Interrupt

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.address import Address
from langgraph_patch._langgraph.run import Run
from langgraph_patch._sansio import IOGenerator, IORequest, method_request
from langgraph_patch.errors import EvidenceError
from langgraph_patch.evidence.places import is_earlier, place_of
from langgraph_patch.evidence.superstep import WITNESS, written_messages
from langgraph_patch.evidence.window import Reader, all_of
from langgraph_patch.history.calls import Call, read_calls
from langgraph_patch.history.fields import digest_of
from langgraph_patch.history.findings import Finding

logger: logging.Logger = logging.getLogger("langgraph_patch")

Word = Literal["paused", "ended", "failed", "lost", "untold"]
"""How a claim ended. Two are of no run: the record is gone; whose claim it is cannot be told."""

_WORDS: tuple[Word, ...] = ("paused", "ended", "failed")
_PREFIX = "langgraph_patch."
_ID = "00000000-0000-6000-8000-000000000000"  # of the version before, or if no id is LangGraph's
_FIELDS = ("run", "what", "got", "answers", "place")
_FIRST_FIELDS = {"run", "what"}  # of the version before: `what` is as the tool got it


def is_record(namespace: str) -> bool:
    """Whether a namespace has a record of this module, and no graph."""
    return namespace.startswith(_PREFIX)


def row_of(thread: Address, message: BaseMessage, call_id: str, place: int) -> Address:
    """The address of the row of a call.

    Args:
        thread: The checkpoint from which the call runs.
        message: The message that makes the call; it has an id.
        call_id: The id of the call.
        place: How many calls of the message before it have the same id.
    """
    digest = digest_of(message.id, call_id, place)
    before = storage.later_checkpoint_id(thread.checkpoint_id or "", -1)
    row = before and f"{before[:18]}-8{digest[-3:]}-{digest[-15:-3]}"
    return thread.at(f"{_PREFIX}{digest[:32]}", row or _ID)


@dataclass(frozen=True, slots=True)
class Claim:
    """One begin of a call.

    Attributes:
        run: Names the run that made it.
        what: The digest of the tool and its arguments, as the model wrote them (`Claim.digest`).
        got: The same as the tool gets them.
        answers: The digest of each answer that the run has (`Claim.digests`).
        place: The checkpoint of each graph from the root to that of the call, as JSON.
        word: How it ended; None if that is not recorded.
        value: What belongs to the word: the result, the error, the questions.
        row: The id of its row.
        number: Its number in the row.
        refused: The answers of the run that was told first that it failed; None if none was.
    """

    run: str
    what: str
    got: str = ""
    answers: str = ""
    place: str = ""
    word: Word | None = None
    value: Mapping[str, Any] = field(default_factory=dict)
    row: str = field(default="", compare=False)
    number: int = field(default=1, compare=False)
    refused: str | None = field(default=None, compare=False)

    @staticmethod
    def digest(name: object, args: object) -> str:
        """The same for the same tool and equal arguments."""
        return digest_of(name, json.dumps(args, sort_keys=True, default=str))

    @staticmethod
    def digests(answers: Iterable[object]) -> str:
        """The same for equal answers."""
        return " ".join(Claim.digest("", each)[:16] for each in answers)

    def result(self, call_id: str) -> Any:
        """What a `ToolNode` returns for the call, as it is recorded; None if it is not."""
        result = self.value.get("result")
        parts = result if isinstance(result, list) else [result]
        is_own = all(isinstance(p, Command) or _is_result(p, call_id) for p in parts)
        return result if self.word == "ended" and parts and is_own else None

    @property
    def questions(self) -> list[Interrupt]:
        """The questions for which the call waits."""
        asked = self.value.get("questions") if self.word == "paused" else None
        is_own = isinstance(asked, list) and all(isinstance(each, Interrupt) for each in asked)
        return asked if isinstance(asked, list) and is_own else []

    @property
    def rows(self) -> list[str]:
        """The rows whose claims were in the way of this one, which was given back."""
        rows = self.value.get("rows") if self.word == "paused" else None
        return [*map(str, rows)] if isinstance(rows, list) else []

    @property
    def taken(self) -> str:
        """The answers that the call had taken when it ended or paused."""
        return str(self.value.get("answers", self.answers))

    def took(self, answers: str) -> bool:
        """Whether its result is that of a run with these answers; more of them are of no use."""
        taken = self.taken.split()
        return answers.split()[: len(taken)] == taken


def _is_result(message: object, call_id: str) -> bool:
    return isinstance(message, ToolMessage) and message.tool_call_id == call_id


# --- the record of a run that begins a call -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """The record of a call, as a run that begins it sees it.

    Attributes:
        reader: The checkpointer.
        thread: The checkpoint from which the call is begun.
        message: The message that makes the call; it has an id.
        row: The row of that checkpoint.
    """

    reader: Reader
    thread: Address
    message: BaseMessage
    row: Address

    @classmethod
    def of(
        cls, reader: Reader, thread: Address, message: BaseMessage, call_id: str, place: int
    ) -> Record:
        """The record of a call; the arguments are those of `row_of`."""
        return cls(reader, thread, message, row_of(thread, message, call_id, place))

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
            last, others = yield from self._begin_row(claim, needed, has_witness=run is not None)
            is_made = last.run == claim.run
            for each in others if is_made else ():
                is_other = (yield from self._is_earlier(each, run)) if run else False
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

    def _is_earlier(self, claim: Claim, run: Run) -> IOGenerator[bool | None]:
        """Whether a claim in another row is that of an earlier call; None if it cannot be told."""
        return is_earlier(self.reader, self.thread, self.message.id, run.place, claim.place)

    def _begin_row(
        self, claim: Claim, witnessed: Collection[str], *, has_witness: bool
    ) -> IOGenerator[tuple[Claim, list[Claim]]]:
        """Make a claim in the row.

        Returns the last claim there, and that of each other row, if it was not given back.
        """
        saver, row = self.reader.saver, self.row
        number = 0 if witnessed else 1  # nothing is written where a row is gone
        began = {name: getattr(claim, name) for name in _FIELDS}
        while True:
            if number:
                yield _put_first(saver, row, "began", began, _task_of(number))
            if number == 1:  # after the claim: a row without one was cut off
                empty: Any = {**empty_checkpoint(), "id": row.checkpoint_id}
                metadata = {
                    "source": "update",
                    "step": -1,
                    "parents": {},
                    "langgraph_patch": "once",
                }
                yield method_request(saver, "put", row.newest.config, empty, metadata, {})
            if number == 1 and has_witness:
                task = _task_of(row.namespace)
                yield _put_first(saver, self.thread, WITNESS, row.checkpoint_id, task)
            found = {_id_of(saved): claims_in(saved) for saved in (yield all_of(saver, row))}
            rows = {each: claims for each, claims in found.items() if claims is not None}
            if len(rows) < len(found):
                raise _unreadable(row)
            own = rows.get(str(row.checkpoint_id), [])
            is_cut_off = any(not claims and each != _ID for each, claims in rows.items())
            needed = [*witnessed, *(each for claim in own for each in claim.rows)]
            if is_cut_off or not all(map(rows.get, needed)):
                if number:
                    yield from self.end(replace(claim, word="paused", value={"rows": [""]}))
                return replace(claim, run="", word="lost"), []
            if number and not own:
                raise _unreadable(row)
            is_asked = own and own[-1].questions and own[-1].taken == claim.answers
            if own and (own[-1].run == claim.run or own[-1].word != "paused" or is_asked):
                last = [claims[-1] for claims in rows.values() if claims and claims is not own]
                return own[-1], [each for each in last if each.word != "paused"]
            number = len(own) + 1

    def _witnessed(self, run: Run) -> IOGenerator[Collection[str]]:
        """The rows that there must be: witnesses name them.

        They are in the checkpoint, and in those that it was forked from.
        """
        saver, row = self.reader.saver, self.row
        found = _named(row, run.loaded_writes)
        address: Address | None = self.thread if run.may_be_begun else None
        while address is not None and not found:
            saved = yield method_request(saver, "get_tuple", address.config)
            if saved is None:
                return [""]  # a job has deleted it, and perhaps its witness: no row has that id
            found = _named(row, saved.pending_writes or ())
            is_fork = saved.metadata.get("source") in ("update", "fork") and saved.parent_config
            address = Address.of(saved.parent_config) if is_fork else None
        if run.may_be_begun and not found:
            rows = [_id_of(saved) for saved in (yield all_of(saver, row))]
            return [each for each in rows if each == row.checkpoint_id]
        return found

    def refuse(self, claim: Claim, answers: str) -> IOGenerator[None]:
        """Record that a run with these answers is told that a call failed."""
        row, task = self.row.at(self.row.namespace, claim.row), _task_of(f"refused {claim.run}")
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
        try:
            yield _put_first(saver, self.row, str(claim.word), value, _task_of(claim.run))
        except Exception:  # of any checkpointer: the tool has run, and its result must not be lost
            logger.warning(_NOT_RECORDED, thread_id, claim.word, exc_info=True)


_NOT_WHOLE = "thread %r: a result cannot be stored as it is, so the record of its call has no %s"
_NOT_RECORDED = "thread %r: that a call %s could not be recorded"


def _id_of(saved: CheckpointTuple) -> str:
    return str(saved.checkpoint["id"])


def _unreadable(row: Address) -> EvidenceError:
    place = f"Thread {row.thread_id!r}: the record of a call, in namespace {row.namespace!r},"
    return EvidenceError(f"{place} cannot be read back, so the call is not run.")


def _named(row: Address, writes: Iterable[tuple[str, str, Any]]) -> list[str]:
    own = _task_of(row.namespace)
    return [str(each) for task, channel, each in writes if (channel, task) == (WITNESS, own)]


def _is_storable(saver: BaseCheckpointSaver[Any], value: object) -> bool:
    try:
        return bool(saver.serde.dumps_typed(value))
    except Exception:  # noqa: BLE001 - of any value of an application
        return False


def _task_of(claim: int | str) -> str:
    """The task id under which a claim begins, by its number, or ends, by its run."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, str(claim)))


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


# --- read ---------------------------------------------------------------------------------------


def claims_in(saved: CheckpointTuple | None) -> list[Claim] | None:
    """The claims of a row; None if they do not follow each other."""
    writes = {task: (word, value) for task, word, value in (saved and saved.pending_writes) or ()}
    claims: list[Claim] = []
    for number in count(1):
        _, began = writes.get(_task_of(number), ("", None))
        if began is None:
            is_whole = sum(word == "began" for word, _ in writes.values()) == len(claims)
            return claims if is_whole else None
        is_text = isinstance(began, Mapping) and all(isinstance(v, str) for v in began.values())
        if not is_text or not _FIRST_FIELDS <= began.keys() <= {*_FIELDS}:
            return None
        if claims and claims[-1].word != "paused":
            return None
        named, value = writes.get(_task_of(began["run"]), ("", {}))
        _, refused = writes.get(_task_of(f"refused {began['run']}"), ("", None))
        claim = Claim(
            **{"got": began["what"], **began},
            word=next((each for each in _WORDS if each == named), None),
            value=value if isinstance(value, Mapping) else {},
            row=_id_of(saved) if saved else "",
            number=number,
            refused=None if refused is None else str(refused),
        )
        claims.append(claim)
    return None


def read_claims(
    reader: Reader,
    thread: Address,
    messages: Sequence[BaseMessage],
    calls: Sequence[Call],
    tools: Collection[str] | None,
) -> IOGenerator[Mapping[tuple[int, int], Finding]]:
    """What the records of calls show, by the keys of the calls. No record proves nothing.

    Args:
        reader: The checkpointer.
        thread: Any address in the thread, with the namespace of the history.
        messages: The history.
        calls: Calls without a result.
        tools: The tools whose calls may have a record; None if that is not known.
    """
    found = {}
    named = [each for each in calls if each.id and (tools is None or each.name in tools)]
    for index, own in groupby(named, attrgetter("index")):
        message = messages[index]
        ids = [each.id for each in read_calls(message)] if isinstance(message, AIMessage) else []
        for call in own if ids and message.id else ():
            place = ids[: call.ordinal].count(call.id)
            row = row_of(thread, message, call.id, place)
            rows = [claims_in(saved) for saved in (yield from reader.read_all(row))]
            last = [claims[-1] for claims in rows if claims and claims[-1].word != "paused"]
            if len(last) > 1:
                found[call.key] = Finding()
            elif last and (yield from _is_of(reader, thread, messages, message.id, last[0])):
                found[call.key] = _finding(last[0], call, reader.messages_key)
    return found


def _is_of(
    reader: Reader, thread: Address, messages: Sequence[BaseMessage], message_id: str, claim: Claim
) -> IOGenerator[bool]:
    """Whether a claim is of this message, and not of an earlier one with the same id."""
    theirs, own = place_of(claim.place), thread.namespace
    if sum(message.id == message_id for message in messages) > 1:
        return False
    if own != max(theirs, key=len, default=None) or thread.checkpoint_id is None:
        return True
    step = yield from reader.read(thread.at(own, theirs[own]))
    if step is None or not (yield from reader.has_gone_on(step)):
        return step is not None
    place = json.dumps({own: theirs[own]})
    mine = {own: thread.checkpoint_id}
    return (yield from is_earlier(reader, thread, message_id, mine, place)) is False


def _finding(claim: Claim, call: Call, messages_key: str) -> Finding:
    """What the last claim shows of a call."""
    if Claim.digest(call.name, call.args) not in (claim.what, claim.got):
        return Finding()  # an edit put the call in the place of the one that began
    if claim.word == "failed":
        is_cancelled = claim.value.get("cancelled") is True
        error = str(claim.value.get("error"))
        return Finding("cancelled") if is_cancelled else Finding("failed", error=error)
    result, others = claim.result(call.id), set[str]()
    messages: list[BaseMessage] = []
    for part in result if isinstance(result, list) else [result]:
        update: Any = part.update if isinstance(part, Command) else part
        if isinstance(update, dict):
            others |= {*map(str, update.keys() - {messages_key})}
            update = update.get(messages_key)
        others |= {"goto"} if isinstance(part, Command) and part.goto else set()
        messages += written_messages(update)
    own = [m for m in messages if isinstance(m, ToolMessage) and _is_result(m, call.id)]
    if len(own) != 1:
        return Finding(detail="started")
    return Finding(result=own[0], not_kept=(*sorted(others),), may_be_kept=bool(others))
