"""The record of a call that runs once: who began it, and how that ended. `claiming` writes it.

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

- A row in which the claims do not follow each other, and a result of another call, prove nothing.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from itertools import count, groupby
from operator import attrgetter
from typing import Any, Literal

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.types import Command, Interrupt
from pydantic import BaseModel

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.address import Address
from langgraph_patch._sansio import IOGenerator
from langgraph_patch.evidence.superstep import WITNESS, written_messages
from langgraph_patch.evidence.window import Reader
from langgraph_patch.history.calls import Call, read_calls
from langgraph_patch.history.fields import digest_of
from langgraph_patch.history.findings import Finding

Word = Literal["paused", "ended", "failed", "lost", "untold", "overwritten"]
"""How a claim ended. Three are of no run: the record is gone; whose claim it is cannot be told; the
checkpointer does not keep it."""

_WORDS: tuple[Word, ...] = ("paused", "ended", "failed")
_PREFIX = "langgraph_patch."
OLD_ROW = "00000000-0000-6000-8000-000000000000"
"""The id of a row of the version before, or of one whose checkpoint has no id of LangGraph's."""

FIELDS = ("run", "what", "got", "answers", "place", "asked", "tool")
_FIRST_FIELDS = {"run", "what"}  # of the version before: `what` is as the tool got it

UNWRITTEN: dict[str, tuple[str, Any]] = {}
"""How claims ended whose end is not stored yet, by their runs: this process alone knows it."""


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
    return thread.at(f"{_PREFIX}{digest[:32]}", row or OLD_ROW)


@dataclass(frozen=True, slots=True)
class Claim:
    """One begin of a call.

    Attributes:
        run: Names the run that made it.
        what: The digest of the tool and its arguments, as the model wrote them (`Claim.digest`).
        got: The same as the tool gets them.
        answers: The digest of each answer that the run has (`Claim.digests`).
        place: The checkpoint of each graph from the root to that of the call, as JSON.
        asked: The digest of what the task had asked before; empty if more than the tool may ask.
        tool: The name of the tool; empty in the version before.
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
    asked: str = ""
    tool: str = ""
    word: Word | None = None
    value: Mapping[str, Any] = field(default_factory=dict)
    row: str = field(default="", compare=False)
    number: int = field(default=1, compare=False)
    refused: str | None = field(default=None, compare=False)

    @staticmethod
    def digest(name: object, args: object) -> str:
        """The same for the same tool and equal arguments, in each process."""
        try:
            return digest_of(name, json.dumps(_plain(args), sort_keys=True))
        except Exception:  # noqa: BLE001 - of any value of an application
            return digest_of(name, type(args).__qualname__)

    @staticmethod
    def digests(answers: Iterable[object]) -> str:
        """The same for equal answers."""
        return " ".join(Claim.digest("", each)[:16] for each in answers)

    def is_of(self, tool: str) -> bool:
        """Whether it may be of this tool: an agent in a tool may make another call with the id."""
        return self.tool in ("", tool)

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


def _plain(value: Any) -> Any:
    """A value as JSON, in an order of its own: the same before and after it was stored."""
    value = value.value if isinstance(value, Enum) else value
    if is_dataclass(value) and not isinstance(value, type):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Mapping | BaseModel):
        pairs = [(_plain(key), _plain(each)) for key, each in dict(value).items()]
        return {key if isinstance(key, str) else json.dumps(key): each for key, each in pairs}
    if isinstance(value, set | frozenset):
        return sorted(map(_plain, value), key=repr)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [*map(_plain, value)]
    if value is None or isinstance(value, int | float):
        return value
    if not isinstance(value, str):
        text = str(value.isoformat() if hasattr(value, "isoformat") else value)
        value = re.sub(" at 0x[0-9a-f]+", "", text)
    return value.encode(errors="replace").decode()  # as LangGraph stores half a character


def _is_result(message: object, call_id: str) -> bool:
    return isinstance(message, ToolMessage) and message.tool_call_id == call_id


def id_of(saved: CheckpointTuple) -> str:
    """The id of a checkpoint."""
    return str(saved.checkpoint["id"])


def task_of(claim: int | str) -> str:
    """The task id under which a claim begins, by its number, or ends, by its run."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, str(claim)))


def witnesses_in(namespace: str, writes: Iterable[tuple[str, str, Any]]) -> list[str]:
    """The ids of the rows of a namespace that witnesses among pending writes name."""
    own = task_of(namespace), WITNESS
    return [str(row) for task, channel, row in writes if (task, channel) == own]


# --- read ---------------------------------------------------------------------------------------


def claims_in(saved: CheckpointTuple | None) -> list[Claim] | None:
    """The claims of a row; None if they do not follow each other."""
    writes = {task: (word, value) for task, word, value in (saved and saved.pending_writes) or ()}
    claims: list[Claim] = []
    for number in count(1):
        _, began = writes.get(task_of(number), ("", None))
        if began is None:
            is_whole = sum(word == "began" for word, _ in writes.values()) == len(claims)
            return claims if is_whole else None
        is_text = isinstance(began, Mapping) and all(isinstance(v, str) for v in began.values())
        if not is_text or not _FIRST_FIELDS <= began.keys() <= {*FIELDS}:
            return None
        if claims and claims[-1].word != "paused":
            return None
        run = began["run"]
        named, value = writes.get(task_of(run)) or UNWRITTEN.get(run) or ("", {})
        _, refused = writes.get(task_of(f"refused {run}"), ("", None))
        claim = Claim(
            **{"got": began["what"], **began},
            word=next((each for each in _WORDS if each == named), None),
            value=value if isinstance(value, Mapping) else {},
            row=id_of(saved) if saved else "",
            number=number,
            refused=None if refused is None else str(refused),
        )
        claims.append(claim)
    return None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the rows of a call show.

    Attributes:
        namespace: That of the rows.
        rows: The ids of those that have claims.
        finding: What the last claim shows; None if it proves nothing.
    """

    namespace: str
    rows: Collection[str]
    finding: Finding | None

    def shown_beside(self, writes: Iterable[tuple[str, str, Any]]) -> Finding | None:
        """The same; unknown if a witness among pending writes names a row that is gone."""
        is_gone = any(each not in self.rows for each in witnesses_in(self.namespace, writes))
        return self.finding or (Finding() if is_gone else None)


def read_claims(
    reader: Reader,
    thread: Address,
    messages: Sequence[BaseMessage],
    calls: Sequence[Call],
    tools: Collection[str] | None,
) -> IOGenerator[Mapping[tuple[int, int], Recorded]]:
    """What the records of calls show, by the keys of the calls.

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
            ends = [claims[-1] for claims in rows if claims]
            last = [each for each in ends if each.word != "paused" and each.is_of(call.name)]
            finding = Finding() if len(last) > 1 else None
            if len(last) == 1 and (yield from _is_of(reader, thread, messages, message.id, *last)):
                finding = _finding(last[0], call, reader.messages_key)
            found[call.key] = Recorded(row.namespace, {each.row for each in ends}, finding)
    return found


def _is_of(
    reader: Reader, thread: Address, messages: Sequence[BaseMessage], message_id: str, claim: Claim
) -> IOGenerator[bool]:
    """Whether a claim is of this message, and not of an earlier one with the same id."""
    theirs, own = _place_of(claim.place), thread.namespace
    if sum(message.id == message_id for message in messages) > 1:
        return False
    if own != max(theirs, key=len, default=None) or thread.checkpoint_id is None:
        return True
    step = yield from reader.read(thread.at(own, theirs[own]))
    if step is None or not (yield from reader.has_gone_on(step)):
        return step is not None
    return (yield from _was_before(reader, thread, step.address, message_id, is_own=True)) is False


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


# --- the place in a thread at which a call was begun ----------------------------------------------

# A message of a model may be made again with its id, by a cache of answers: its calls are others.
# It is the same message in a replay, in a fork and in another branch.


def is_earlier(
    reader: Reader, thread: Address, message_id: object, mine: Mapping[str, str], other: str
) -> IOGenerator[bool | None]:
    """Whether a claim is that of an earlier call, whose message had the same id.

    Args:
        reader: The checkpointer.
        thread: Any address in the thread.
        message_id: The id of the message.
        mine: The current checkpoint of each graph, by its namespace.
        other: The place of a claim (`Claim.place`) of a call of a message with this id.

    Returns:
        None if that cannot be told: checkpoints are gone, or two tasks of one superstep have it.
    """
    theirs = _place_of(other)
    if not theirs:
        return False  # of the version before
    for namespace in sorted(mine, key=len):
        if namespace not in theirs:
            return None
        if mine[namespace] == theirs[namespace]:
            continue
        current, before = (thread.at(namespace, each[namespace]) for each in (mine, theirs))
        is_own = namespace == max(mine, key=len)
        return (yield from _was_before(reader, current, before, message_id, is_own=is_own))
    return False


def _was_before(
    reader: Reader,
    current: Address,
    before: Address,
    message_id: object,
    *,
    is_own: bool,
) -> IOGenerator[bool | None]:
    """The same, for two checkpoints of the first graph in which the places differ.

    Args:
        reader: The checkpointer.
        current: The checkpoint of one call.
        before: That of the other call.
        message_id: The id of their message.
        is_own: Whether it is the graph that has the message; else one above it.
    """
    now, then = (yield from reader.read(current)), (yield from reader.read(before))
    step, sources = now, list[str | None]()  # of the checkpoints after it, the newest first
    while then and step and step.number > then.number:
        sources.append(step.source_before)
        step = yield from reader.read_older(step)
    if now is None or then is None or step is None:
        return None
    if step.id != then.id or {"update", "fork"}.issuperset(sources):
        return False  # another branch, or a fork of the same checkpoint
    is_new = _is_made_again(now.history, message_id, is_own=is_own)
    if sources[-1] == "loop":
        return is_new or None
    return None if is_new else False


def _place_of(text: str) -> Mapping[str, str]:
    """The place that a claim names; empty if it names none."""
    try:
        place = json.loads(text)
    except ValueError:
        return {}
    return place if isinstance(place, dict) else {}


def _is_made_again(history: Sequence[BaseMessage], message_id: object, *, is_own: bool) -> bool:
    """Whether the message with an id was made again: its graph has it in its history twice.

    A graph above has it not at all, or with the results of its calls.
    """
    found = [index for index, message in enumerate(history) if message.id == message_id]
    if is_own or not found:
        return not is_own or len(found) > 1
    made = {each["id"] for each in getattr(history[found[-1]], "tool_calls", ())}
    return made <= {m.tool_call_id for m in history[found[-1] :] if isinstance(m, ToolMessage)}
