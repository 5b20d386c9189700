"""The record of a call that runs once: what is stored, who wins, what the repair reads of it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command
from pydantic import BaseModel

from kit import calls
from langgraph_patch._langgraph.address import Address
from langgraph_patch._sansio import run_sync
from langgraph_patch.evidence.claiming import Record
from langgraph_patch.evidence.claims import Claim, claims_in, is_record, read_claims, row_of
from langgraph_patch.evidence.window import Reader
from langgraph_patch.history.calls import read_calls
from langgraph_patch.history.findings import Finding
from langgraph_patch.threads import scan_threads
from support.bank import THREAD, Bank, Memory, Talk
from support.databases import sqlite_saver

MESSAGE = calls(("pay", {"amount": 5}), id="m1")
CHECKPOINT = Address("1", "", "1f1eb141-1ed6-6e50-8000-d72bd9b48c36")
ROW = row_of(CHECKPOINT, MESSAGE, "c1", 0)
WHAT = Claim.digest("pay", {"amount": 5})


def record(saver: Any, call_id: str = "c1") -> Record:
    """The record of a call of the message."""
    return Record(Reader(saver, "messages"), CHECKPOINT, MESSAGE, call_id, 0)


def claim(**fields: Any) -> Claim:
    """A new claim of a call of `pay`."""
    return Claim(**{"run": uuid.uuid4().hex, "what": WHAT, **fields})


def made(saver: Any, *words: Any) -> list[Claim]:
    """Make a claim for each word, and end it with that word and value; None ends nothing."""
    for each in words:
        word, value = each if isinstance(each, tuple) else (each, {})
        own = claim()
        assert run_sync(record(saver).begin(own)) == own
        if word is not None:
            run_sync(record(saver).end(claim(run=own.run, word=word, value=value)))
    return claims_in(saver.get_tuple(ROW.config)) or []


def found_by(saver: Any, message: AIMessage = MESSAGE, tools: Any = None) -> Finding | None:
    """What the record shows of the first call of a message."""
    reader = Reader(saver, "messages", required=True)
    own = read_calls(message)[:1]
    found = run_sync(read_claims(reader, Address("1"), [message], own, tools))
    return found[0, 0].finding if found else None


@pytest.mark.parametrize("make", [InMemorySaver, sqlite_saver], ids=["memory", "sqlite"])
def test_of_two_claims_one_is_made(make):
    """Of many at once, again after each that was given back."""
    saver = make()
    for _ in range(20):
        own = [claim() for _ in range(4)]
        last: list[Any] = []
        barrier = threading.Barrier(4)

        def run(each, barrier=barrier, last=last):
            barrier.wait()
            last.append(run_sync(record(saver).begin(each)).run)

        threads = [threading.Thread(target=run, args=(each,)) for each in own]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = set(last)
        run_sync(record(saver).end(claim(run=winner, word="paused")))
    assert len(claims_in(saver.get_tuple(ROW.config)) or []) == 20


RESULT = ToolMessage("paid", tool_call_id="c1")


# --- who wins -----------------------------------------------------------------------------------


def test_a_record_that_cannot_be_read_back():
    """No claim is made of it, and what was written is given back."""

    class Forgets(InMemorySaver):
        def list(self, *_, **__):
            return iter(())

    saver = Forgets()
    with pytest.raises(Exception, match="cannot be read back, so the call is not run"):
        run_sync(record(saver).begin(claim()))
    (given_back,) = claims_in(InMemorySaver.get_tuple(saver, ROW.config)) or []
    assert given_back.word == "paused"


# --- what is stored -----------------------------------------------------------------------------


def test_a_thousand_calls_are_linear():
    """Each has a record of its own: what is read of one does not grow."""
    saver, sizes = sqlite_saver(), set()
    for number in range(1000):
        each, own = record(saver, f"c{number}"), claim()
        run_sync(each.begin(own))
        run_sync(each.end(claim(run=own.run, word="ended", value={"result": RESULT})))
        sizes.add(len(saver.get_tuple(each.row.config).pending_writes))
    assert sizes == {2}


# --- what the repair reads ----------------------------------------------------------------------

STARTED = Finding(detail="started")


@pytest.mark.parametrize(
    ("words", "finding"),
    [
        ([], None),
        (["paused"], None),
        ([None], STARTED),
        (["paused", None], STARTED),
        (["ended"], STARTED),
        ([("ended", {"result": RESULT})], Finding(result=RESULT)),
        ([("ended", {"result": [RESULT]})], Finding(result=RESULT)),
        (
            [("ended", {"result": Command(update={"messages": [RESULT], "a": 1}, goto="b")})],
            Finding(result=RESULT, not_kept=("a", "goto"), may_be_kept=True),
        ),
        ([("ended", {"result": Command(update={"a": 1})})], STARTED),
        ([("failed", {"error": "E('x')", "cancelled": False})], Finding("failed", error="E('x')")),
        ([("failed", {"error": "C()", "cancelled": True})], Finding("cancelled")),
    ],
)
def test_what_a_record_shows(words, finding):
    """The last claim counts; one that was given back proves nothing, and so does none.

    Only then another one can be made.
    """
    saver = InMemorySaver()
    made(saver, *words)
    assert found_by(saver) == finding
    assert found_by(saver, tools=["other"]) is None
    assert found_by(saver, tools=["pay"]) == finding
    own, is_free = claim(), words in ([], ["paused"])
    assert (run_sync(record(saver).begin(own)) == own) is is_free


def began(number: int, value: Any = None) -> tuple[str, Any]:
    """The row of a begin, as another one would write it: its task, and what it says."""
    task = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{number}"))
    return task, value or {"run": uuid.uuid4().hex, "what": WHAT}


OTHERS = ToolMessage("forged", tool_call_id="c9")
FORGED: dict[str, tuple[Any, ...]] = {
    "the result of another call": ([("ended", {"result": OTHERS})], [], STARTED),
    "a result that is none": ([("ended", {"result": "forged"})], [], STARTED),
    "a word that is none": ([("paid", {"result": RESULT})], [], STARTED),
    "a begin that is none": ([], [began(1, {"run": 1})], None),
    "a begin that is a text": ([], [began(1, "forged")], None),
    "a thousand begins, none of them given back": ([], [*map(began, range(1, 1001))], None),
    "a second claim without a first": ([], [began(2)], None),
}
"""Claims as they are made, rows past this package, and what a repair reads of them."""


@pytest.mark.parametrize("name", FORGED)
def test_forged_rows(name: str):
    """They are no result. A repair reads a record without sense as none; no tool runs by it."""
    words, rows, finding = FORGED[name]
    saver, other = Memory(), InMemorySaver()
    made(other, "paused")
    saver.put(ROW.newest.config, other.get_tuple(ROW.config).checkpoint, {}, {})
    made(saver, *words)
    for task, value in rows:
        saver.put_writes(ROW.config, [("began", value)], task)
    assert found_by(saver) == finding
    talk = Talk("create_agent", saver=saver, bank=Bank(asks=False), script=[MESSAGE])
    assert talk.say("pay") == ("StartedError" if finding else "EvidenceError")
    assert talk.bank.paid == []


class Kind(Enum):
    """An answer of an application."""

    A = 1


@dataclass
class Day:
    """Another one."""

    day: date
    tags: set[str]


class Answer(BaseModel):
    """Another one."""

    days: list[Day]


KEYS: list[Any] = [date(2026, 1, 2), datetime(2026, 1, 2, 3, tzinfo=UTC), uuid.UUID(int=7), 1, None]
ANSWERS: list[Any] = [{key: "yes", "b": 2.5} for key in (*KEYS, (1, "a"), b"x")]
ANSWERS += [{"a", "b", "c"}, Day(KEYS[0], {"x", "y", "z"}), Answer(days=[Day(KEYS[0], {"x"})])]
ANSWERS += [[math.nan, Kind.A, KEYS], "\ud83d", object()]


def test_the_digest_of_an_answer():
    """It is the same in each process, and after the answer was stored; and it raises nothing."""
    digests = [Claim.digest("", each) for each in ANSWERS]
    serde = JsonPlusSerializer()
    stored = [serde.loads_typed(serde.dumps_typed(each)) for each in ANSWERS[:-1]]
    assert [Claim.digest("", each) for each in stored] == digests[:-1]
    assert len({*digests}) == len(digests)
    code = f"import {__name__} as m; print(*(m.Claim.digest('', each) for each in m.ANSWERS))"
    for seed in "12":
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", code]
        assert subprocess.check_output(command, env=env, text=True).split() == digests  # noqa: S603
    looped: list[Any] = []
    looped.append(looped)
    assert Claim.digest("", looped)


# --- stored threads -----------------------------------------------------------------------------


def test_what_a_record_costs():
    """It is asked for once for each open call; a healthy thread costs one query."""
    asked = []

    class Asked(Memory):
        def get_tuple(self, config):
            asked.append(False)
            return super().get_tuple(config)

        def list(self, config, **options):
            if config and is_record(config["configurable"].get("checkpoint_ns", "")):
                asked.append(True)
            return super().list(config, **options)

    saver = Asked()
    healthy = Talk("create_agent", saver=saver, bank=Bank(asks=False))
    healthy.say("pay")
    asked.clear()
    assert [report.status for report in scan_threads(saver)] == ["healthy"]
    assert asked == [False]
    saver.delete_thread("1")
    two = [("pay", {"amount": 5}), ("pay", {"amount": 6})]
    damaged = Talk("create_agent", saver=saver, script=[calls(*two)], once=[])
    damaged.say("pay")
    damaged.graph.update_state(THREAD, {"messages": [("user", "no")]}, as_node="__start__")
    asked.clear()
    assert [report.status for report in scan_threads(saver)] == ["paused"]
    assert sum(asked) == 2
    asked.clear()
    damaged.say()
    assert sum(asked) == 0


def test_only_its_own_run_ends_a_claim():
    """Another run that ends it changes nothing."""
    saver = InMemorySaver()
    (own,) = made(saver, None)
    run_sync(record(saver).end(claim(word="paused")))
    assert claims_in(saver.get_tuple(ROW.config)) == [own]


@pytest.mark.parametrize(
    "other",
    [calls(("pay", {"amount": 6}), id="m1"), calls(("wire", {"amount": 5}), id="m1")],
)
def test_another_call_in_its_place(other):
    """The record is of the call as it was: nothing is known of this one."""
    saver = InMemorySaver()
    made(saver, ("ended", {"result": RESULT}))
    assert found_by(saver, other) == Finding()
    assert found_by(saver, calls(("pay", {"amount": 5}), id="m2")) is None
    assert found_by(saver, calls(("pay", {"amount": 5}))) is None
