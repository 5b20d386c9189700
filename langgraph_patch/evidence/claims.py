"""The record of a call that runs once: who began it, and how that ended.

It is stored in the thread of the call, in a namespace of its own for each call, with one checkpoint
without values. Its pending writes are *claims*, numbered from 1. Whoever begins the call writes the
claim with the next number, and reads back whose it is: a checkpointer keeps the first of two writes
with the same task id and index. A claim ends with one word, which only its own run can write:

- `paused`: the tool asks a human. The claim is given back, and the next one can be made.
- `ended`: with what the model would have read, if that can be stored.
- `failed`: the tool raised, or was cancelled.

The namespace derives from the message and the call, and not from a checkpoint: forks, replays and
answers from other checkpoints find the same record. Its rows are as hostile as all others: a record
in which the claims do not follow each other, and a result of another call, prove nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, groupby
from operator import attrgetter
from typing import Any, Literal, get_args

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langgraph_patch._sansio import IOGenerator, IORequest, call_method, method_request
from langgraph_patch.address import Address
from langgraph_patch.errors import EvidenceError
from langgraph_patch.evidence.superstep import written_messages
from langgraph_patch.evidence.window import Reader
from langgraph_patch.history.calls import Call, read_calls
from langgraph_patch.history.fields import digest_of
from langgraph_patch.history.findings import Finding

logger: logging.Logger = logging.getLogger("langgraph_patch")

Word = Literal["paused", "ended", "failed"]

_WORDS: tuple[Word, ...] = get_args(Word)

_PREFIX = "langgraph_patch."
_ID = "00000000-0000-6000-8000-000000000000"
"""The id of the checkpoint: a UUID of version 6, older than every other."""


def is_record(namespace: str) -> bool:
    """Whether a namespace has a record of this module, and no graph."""
    return namespace.startswith(_PREFIX)


def record_of(thread: Address, message: BaseMessage, call_id: str, place: int) -> Address:
    """The address of the record of a call.

    Args:
        thread: Any address in the thread.
        message: The message that makes the call; it has an id.
        call_id: The id of the call.
        place: How many calls of the message before it have the same id.
    """
    return thread.at(f"{_PREFIX}{digest_of(message.id, call_id, place)[:32]}", _ID)


@dataclass(frozen=True, slots=True)
class Claim:
    """One begin of a call.

    Attributes:
        run: Names the run that made it.
        what: The digest of the tool and its arguments (`Claim.digest`).
        word: How it ended; None if that is not recorded.
        value: What belongs to the word: the result, or the error.
    """

    run: str
    what: str
    word: Word | None = None
    value: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def digest(name: object, args: object) -> str:
        """The same for the same tool and equal arguments."""
        return digest_of(name, json.dumps(args, sort_keys=True, default=str))

    def result(self, call_id: str) -> Any:
        """What a `ToolNode` returns for the call, as it is recorded; None if it is not."""
        result = self.value.get("result")
        parts = result if isinstance(result, list) else [result]
        is_own = all(isinstance(p, Command) or _is_result(p, call_id) for p in parts)
        return result if self.word == "ended" and parts and is_own else None


def _is_result(message: object, call_id: str) -> bool:
    return isinstance(message, ToolMessage) and message.tool_call_id == call_id


# --- write --------------------------------------------------------------------------------------


def begin(saver: BaseCheckpointSaver[Any], record: Address, claim: Claim) -> IOGenerator[Claim]:
    """Make a claim, if no other one is in the way.

    Args:
        saver: The checkpointer.
        record: The record of the call.
        claim: The claim.

    Returns:
        The claim, if it was made, or the one that is in the way.

    Raises:
        EvidenceError: If the record cannot be read back.
        Exception: What the checkpointer raises.
    """
    checkpoint: Any = {**empty_checkpoint(), "id": _ID}
    metadata = {"source": "update", "step": -1, "parents": {}, "langgraph_patch": "once"}
    yield from call_method(saver, "put", record.newest.config, checkpoint, metadata, {})
    number, began = 1, {"run": claim.run, "what": claim.what}
    try:
        while True:
            yield _put_first(saver, record, "began", began, _task_of(number))
            claims = yield from _read_back(saver, record)
            if claims[-1].run == claim.run or claims[-1].word != "paused":
                return claims[-1]
            number = len(claims) + 1
    except (Exception, asyncio.CancelledError, KeyboardInterrupt):
        # It may have been made: nothing runs under it.
        yield from end(saver, record, replace(claim, word="paused"))
        raise


def _read_back(saver: BaseCheckpointSaver[Any], record: Address) -> IOGenerator[list[Claim]]:
    claims = claims_in((yield from call_method(saver, "get_tuple", record.config)))
    if claims:
        return claims
    raise EvidenceError(
        f"Thread {record.thread_id!r}: the record of a call, in namespace {record.namespace!r}, "
        f"cannot be read back, so the call is not run."
    )


def end(saver: BaseCheckpointSaver[Any], record: Address, claim: Claim) -> IOGenerator[None]:
    """Write how a claim ended. It raises no error: the tool has run, and the run goes on.

    A result that cannot be stored is stored without its artifact, or not at all.
    """
    forms: list[Mapping[str, Any]] = [claim.value, _without_artifact(claim.value), {}]
    value = next(form for form in forms if not form or _is_storable(saver, form))
    if value is not claim.value:
        logger.warning(
            "thread %r: a result cannot be stored as it is, so the record of its call has %s",
            record.thread_id,
            "no artifact" if value else "no result",
        )
    try:
        yield _put_first(saver, record, str(claim.word), value, _task_of(claim.run))
    except Exception:  # of any checkpointer: the tool has run, and its result must not be lost
        logger.warning(
            "thread %r: that a call %s could not be recorded",
            record.thread_id,
            claim.word,
            exc_info=True,
        )


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

    No test can show that, so it is known of classes that were read. An application says it of its
    own: `saver.keeps_first_write = True`.
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
    """The claims of a record; None if they do not follow each other."""
    writes = {task: (word, value) for task, word, value in (saved and saved.pending_writes) or ()}
    claims: list[Claim] = []
    for number in count(1):
        _, began = writes.get(_task_of(number), ("", None))
        if began is None:
            return claims
        is_text = isinstance(began, Mapping) and all(isinstance(v, str) for v in began.values())
        if not is_text or began.keys() != {"run", "what"}:
            return None
        if claims and claims[-1].word != "paused":
            return None
        named, value = writes.get(_task_of(began["run"]), ("", {}))
        word = next((each for each in _WORDS if each == named), None)
        claims.append(Claim(**began, word=word, value=value if isinstance(value, Mapping) else {}))
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
        thread: Any address in the thread.
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
            record = record_of(thread, message, call.id, place)
            claims = claims_in((yield from reader.read_saved(record)))
            if claims and claims[-1].word != "paused":
                found[call.key] = _finding(claims[-1], call, reader.messages_key)
    return found


def _finding(claim: Claim, call: Call, messages_key: str) -> Finding:
    """What the last claim shows of a call."""
    if claim.what != Claim.digest(call.name, call.args):
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
