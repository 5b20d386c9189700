"""What one search reads of a checkpointer, how long it waits, and what it does on errors."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch._sansio import run_async, run_sync
from langgraph_patch.errors import EvidenceError
from langgraph_patch.evidence.checkpointer import Reader, input_before, newest, read_until, walk
from support.supersteps import GO, Thread, made, ran, sent

WIRE = made("wire:c1")


def thread_of(count: int) -> Thread:
    """A thread with this number of checkpoints; every third one is an input."""
    sources = ["loop" if number % 3 else "input" for number in range(count)]
    return Thread(WIRE, *(ran(f"node{n}", source=sources[n]) for n in range(1, count)))


def number_of(saved: CheckpointTuple) -> int:
    """The number of a checkpoint, from 1."""
    return int(saved.metadata["step"])


def walked(reader: Reader, config: Any, last: int = 0) -> list[int]:
    """The numbers of the checkpoints that a walk reads; the last one is enough."""
    numbers: list[int] = []

    def receive(saved: CheckpointTuple) -> bool:
        numbers.append(number_of(saved))
        return numbers[-1] == last

    run_sync(walk(reader, config, receive))
    return numbers


def test_a_walk_reads_every_checkpoint_once():
    """From the current one to the oldest, in however many pages, or until it has enough."""
    for count, last in ((1, 0), (5, 0), (130, 0), (9, 9), (9, 8), (9, 4)):
        thread = thread_of(count)
        found = walked(Reader(thread.saver, "messages"), thread.config, last)
        assert found == list(range(count, max(last, 1) - 1, -1))


def test_one_search_reads_100_000_messages():
    """The checkpoint that exhausts it is read; each costs 30 messages beside its own, here two."""
    thread = thread_of(3)
    assert Reader(thread.saver, "messages").budget == 100_000
    for budget, read in ((32, 1), (33, 2), (64, 2), (65, 3)):
        reader = Reader(thread.saver, "messages", budget=budget)
        assert len(walked(reader, thread.config)) == read


class Late(InMemorySaver):
    """Stores a checkpoint only after it was asked for it a few times."""

    asked, until = 0, 0

    def get_tuple(self, config: Any) -> Any:
        self.asked += 1
        is_named = "checkpoint_id" in config["configurable"]
        return None if is_named and self.asked < self.until else super().get_tuple(config)


def test_a_checkpoint_that_is_being_written():
    """A search waits for the current one; where nothing waits, the newest one is taken."""
    thread = Thread(WIRE, sent("wired"))
    before = thread.config
    thread.add(**ran("agent", source="input", history=[GO, made("wire:c1:Oslo")]))
    thread.config, thread.saver.__class__, thread.saver.until = before, Late, 5
    assert walked(Reader(thread.saver, "messages"), before, last=3) == [3]
    thread.saver.asked = 0
    assert thread.found() == "wired"


def test_a_checkpoint_that_is_never_written():
    """After some time the newest one is taken; an empty thread has none."""
    thread = thread_of(2)
    reader = Reader(thread.saver, "messages")
    names = {**thread.config["configurable"], "checkpoint_id": "f" * 32}
    for found in (
        run_sync(newest(reader, {"configurable": names}, 0.03)),
        asyncio.run(run_async(newest(reader, {"configurable": names}, 0.03))),
    ):
        assert found is not None
        assert number_of(found) == 2
    nothing: Any = {"configurable": {"thread_id": "2", "checkpoint_ns": ""}}
    assert run_sync(newest(reader, nothing, 5.0)) is None
    assert walked(reader, nothing) == []


class Deaf(InMemorySaver):
    """Ignores the arguments of `list`, as some checkpointers do."""

    def list(self, config: Any, **_: Any) -> Iterator[CheckpointTuple]:
        return super().list(config)


def test_the_input_before_a_checkpoint():
    """The newest one that is older; also where the checkpointer does not filter."""
    thread = thread_of(9)
    for kind in (InMemorySaver, Deaf):
        thread.saver.__class__ = kind
        for at, number in ((8, 7), (7, 4), (4, None)):
            given = run_sync(input_before(Reader(thread.saver, "messages"), thread.saved[at]))
            assert (given and number_of(given)) == number


class Broken(InMemorySaver):
    """A checkpointer that loses its database."""

    fails = "get_tuple"

    def get_tuple(self, config: Any) -> Any:
        if self.fails == "get_tuple":
            raise ConnectionError("gone")
        return super().get_tuple(config)

    def list(self, config: Any, **options: Any) -> Any:
        if self.fails == "list":
            raise ConnectionError("gone")
        return super().list(config, **options)


TEXT = (
    "Thread '1': the checkpointer raised ConnectionError('gone') while the checkpoints of "
    "namespace '' were read. Fix the checkpointer, or set recover=False to repair without it."
)


@pytest.mark.parametrize("fails", ["get_tuple", "list"])
def test_an_error_of_the_checkpointer(fails: str):
    """It names the thread and what was read, and keeps its cause; or the search ends there."""
    thread, place = thread_of(3), {"configurable": {"thread_id": "1"}}
    thread.saver.__class__ = Broken
    thread.saver.fails = fails
    with pytest.raises(EvidenceError) as raised:
        walked(Reader(thread.saver, "messages", required=True), place)
    assert str(raised.value) == TEXT
    assert isinstance(raised.value.__cause__, ConnectionError)
    reader = Reader(thread.saver, "messages")
    walked(reader, place)
    first = reader.error
    walked(reader, place)
    assert (str(first), reader.error is first) == (TEXT, True)


def test_what_was_recorded_before_an_error_counts(caplog: pytest.LogCaptureFixture):
    """The rest is unknown until the next turn, and one WARNING reports it."""
    thread = Thread(made("mail:c1", "wire:c2"), sent("sent", None))
    thread.saver.__class__ = Broken
    thread.saver.fails = "list"
    assert thread.found() == "sent, unknown | look again"
    (record,) = caplog.records
    text = f"{TEXT} The calls are unknown until the next turn searches again."
    assert (record.levelname, record.getMessage()) == ("WARNING", text)
    thread.saver.fails = "get_tuple"
    assert thread.found() == "unknown | look again, unknown | look again"


class Listing(InMemorySaver):
    """Says when its listing was closed."""

    closed = 0

    def list(self, *args: Any, **options: Any) -> Iterator[Any]:
        try:
            yield from super().list(*args, **options)
        finally:
            self.closed += 1

    async def alist(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        for saved in self.list(*args, **options):
            yield saved


def test_a_listing_is_closed():
    """As soon as it has what is needed: a database keeps no cursor open."""
    thread = thread_of(4)
    thread.saver.__class__ = Listing

    def reading(enough: int) -> Any:
        return read_until(lambda s: number_of(s) == enough, thread.saver, thread.place, {})

    for enough, found in ((3, True), (9, False)):
        thread.saver.closed = 0
        assert run_sync(reading(enough)) is found
        assert thread.saver.closed == 1
        assert asyncio.run(run_async(reading(enough))) is found
    thread.saver.list = lambda *_, **__: []
    assert run_sync(reading(9)) is False  # a list has no `close`
