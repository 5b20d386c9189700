"""What one search reads of a checkpointer, and what it does on errors."""

from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langgraph_patch._sansio import run_sync
from langgraph_patch.evidence.address import Address
from langgraph_patch.evidence.reader import Reader
from support.supersteps import GO, Thread, made, ran, sent

WIRE = made("wire:c1")


def thread_of(count: int) -> Thread:
    """A thread with this number of checkpoints; every third one is an input."""
    sources = ["loop" if number % 3 else "input" for number in range(count)]
    return Thread(WIRE, *(ran(f"node{n}", source=sources[n]) for n in range(1, count)))


def walked(reader: Reader, config: Any) -> list[int]:
    """The numbers of the checkpoints that are read."""
    numbers: list[int] = []
    step = run_sync(reader.read(Address.of(config)))
    while step is not None:
        numbers.append(step.number)
        step = run_sync(reader.read_older(step))
    return numbers


def test_one_search_reads_100_000_messages():
    """The checkpoint that exhausts it is read; each costs 100 messages beside its own, here two."""
    thread = thread_of(3)
    assert Reader(thread.saver, "messages").budget == 100_000
    for budget, read in ((102, 1), (103, 2), (204, 2), (205, 3)):
        reader = Reader(thread.saver, "messages", budget=budget)
        assert len(walked(reader, thread.config)) == read


def test_a_stored_history():
    """Its messages; none if there are none, or if it is something else."""
    thread = thread_of(1)
    table: Any = [
        ([GO, {"role": "tool", "content": "sent", "tool_call_id": "c1"}], ["go", "sent"]),
        (_DeltaSnapshot([GO]), ["go"]),
        ([{"role": "nobody", "content": "x"}], []),
        (7, []),
        (None, []),
    ]
    for value, texts in table:
        thread.add(history=None, values={"messages": value})
        step = run_sync(Reader(thread.saver, "messages").read(Address.of(thread.config)))
        assert step is not None
        assert [message.text for message in step.history] == texts


class Late(InMemorySaver):
    """Stores a checkpoint only after it was asked for it a few times."""

    asked, until = 0, 0

    def get_tuple(self, config: Any) -> Any:
        self.asked += 1
        return None if self.asked < self.until else super().get_tuple(config)


@pytest.mark.parametrize(("until", "found"), [(4, "wired"), (99, "unknown")])
def test_a_checkpoint_that_is_being_written(until: int, found: str):
    """A search waits for the current one; if that takes long, the next turn searches again."""
    thread = Thread(WIRE, sent("wired"))
    thread.saver.__class__, thread.saver.until = Late, until
    assert thread.found() == found


class Broken(InMemorySaver):
    """A checkpointer that loses its database after some queries."""

    left = 0

    def get_tuple(self, config: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise ConnectionError("gone")
        return super().get_tuple(config)


TEXT = (
    "Thread '1': the checkpointer raised ConnectionError('gone') while the checkpoints of "
    "namespace '' were read. Fix the checkpointer, or set recover=False to repair without it."
)


def test_what_was_recorded_before_an_error_counts(caplog: pytest.LogCaptureFixture):
    """The rest is unknown until the next turn, and one WARNING reports it."""
    thread = Thread(made("mail:c1", "wire:c2"), sent("sent", None))
    thread.saver.__class__, thread.saver.left = Broken, 1
    assert thread.found() == "sent, unknown"
    (record,) = caplog.records
    text = f"{TEXT} The calls are unknown until the next turn searches again."
    assert (record.levelname, record.getMessage()) == ("WARNING", text)
    assert thread.found() == "unknown, unknown"
