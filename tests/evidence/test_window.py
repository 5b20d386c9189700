"""In which supersteps a call may have run: of edited, renamed, removed and repeated calls.

And what one search reads of a checkpointer, and what it does on errors.
"""

from typing import Any

from langchain_core.messages import AIMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Overwrite

from langgraph_patch._langgraph.address import Address
from langgraph_patch._langgraph.storage import RETURN
from langgraph_patch._sansio import run_sync
from langgraph_patch.evidence.window import Reader, read_windows, windows_of
from langgraph_patch.history.calls import read_calls
from support.supersteps import (
    ASKS,
    CLIENT,
    GO,
    MORE,
    Thread,
    made,
    news,
    ran,
    result,
    sent,
    wrong_in,
)


def test_an_abandoned_branch_is_not_read():
    """What happened on a branch that was left says nothing of this one, however long each is."""
    thread = Thread(MAIL, ran("agent"))
    fork = thread.config
    for number in range(9):
        thread.add(**ran(f"n{number}"))
    here, thread.config = thread.config, fork
    thread.add(**sent("sent"))
    for config, expected in ((thread.config, "sent"), (here, "unknown")):
        thread.config = config
        for _ in range(9):
            thread.add(**news(MAIL))
        assert thread.found() == expected
    rootless = Thread(MAIL, sent("sent"))
    rootless.config = rootless.place
    rootless.add(**ran("agent"))  # older checkpoints are those of another branch
    assert rootless.found() == "unknown"


BOTH, MAIL = made("mail:c1", "wire:c2"), made("mail:c1")
SAYS = AIMessage("hm", id="a9")
WAITS = "awaiting_input | paused"
NONE = "unknown, unknown"
FOUND = "sent, awaiting_input"


def hidden(nodes: Any = (), *wrote: Any, **fields: Any) -> dict[str, Any]:
    """A superstep whose checkpoint does not store the history."""
    return ran(nodes, *wrote, history=None, **fields)


SENT = sent("sent", ASKS, history=None)
STORED = ran("agent", source="input", history=[GO, BOTH, MORE])
TALKS = hidden("x", SAYS)
EDITS = hidden("x", others=[(CLIENT, "messages", [SAYS])])
REMOVES = hidden("x", others=[(CLIENT, "messages", [RemoveMessage("m1")])])
NAMED = result("sent", name="mail")
PART = [(CLIENT, RETURN, NAMED)]
"""What a `@task` returned: a result of the last message."""

DELTA: dict[str, tuple[Any, ...]] = {
    "nothing is stored": (f"sent, {WAITS}", SENT),
    "an input": (FOUND, SENT, hidden("agent", source="input")),
    "a snapshot after it": (FOUND, SENT, STORED),
    "a snapshot between": (FOUND, ran("x"), SENT, STORED),
    "a result that is stored": ("sent, unknown", sent("sent", history=None), hidden("x"), STORED),
    "another message behind it": (NONE, TALKS, hidden("tools", result("x", "c9"))),
    "a superstep has what tasks wrote": (NONE, TALKS, hidden("y", others=PART)),
    "a superstep has an update": (NONE, EDITS, hidden("y", source="update", others=PART)),
    "an update removed it": (NONE, REMOVES, {**SENT, "source": "update"}),
    "an `Overwrite`": (FOUND, SENT, hidden("y", ("messages", Overwrite([GO, BOTH]))), hidden("z")),
    "a new history": (
        FOUND, SENT, hidden("y", RemoveMessage(REMOVE_ALL_MESSAGES), GO, BOTH), hidden("z")
    ),
    "a repair": (FOUND, SENT, hidden("p", BOTH, NAMED, (RETURN, NAMED)), hidden("z")),
    "a rewrite": (FOUND, SENT, hidden("y", RemoveMessage("m1"), BOTH), hidden("z")),
}  # fmt: skip


def test_a_history_that_is_not_stored():
    """It is what LangGraph makes of the writes since it was stored."""
    assert wrong_in(DELTA, BOTH, history=None) == {}


# --- what one search reads of a checkpointer ----------------------------------------------------

ONE_CALL = made("wire:c1")


def count_of(reader: Reader, config: Any) -> int:
    """How many checkpoints are read, from the current one to the oldest."""
    count = 0
    step = run_sync(reader.read(Address.of(config)))
    while step is not None:
        count += 1
        step = run_sync(reader.read_older(step))
    return count


def test_one_search_reads_100_000_messages():
    """The checkpoint that exhausts it is read; each costs 100 messages beside its own, here two."""
    thread = Thread(ONE_CALL, ran("node1"), ran("node2"))
    assert Reader(thread.saver, "messages").budget == 100_000
    for budget, read in ((102, 1), (103, 2), (204, 2), (205, 3)):
        reader = Reader(thread.saver, "messages", budget=budget)
        assert count_of(reader, thread.config) == read


def test_twenty_of_the_checkpoints_that_placeholders_name_are_read():
    """A client may post any number of them. The other calls are searched from the newest one."""
    thread, asked = Thread(ONE_CALL), list[Any]()

    class Asked(InMemorySaver):
        def get_tuple(self, config: Any) -> Any:
            asked.append(config)
            return super().get_tuple(config)

    thread.saver.__class__ = Asked
    messages = [made("wire:c1", id=f"m{number}") for number in range(30)]
    calls = [call for index, message in enumerate(messages) for call in read_calls(message, index)]
    windows = windows_of(messages, calls, {call.key: f"old{call.index}" for call in calls})
    run_sync(read_windows(Reader(thread.saver, "messages"), Address.of(thread.config), windows))
    assert len(asked) == 1 + 20


def test_a_stored_history():
    """Its messages; none if there are none, or if it is something else."""
    thread = Thread(ONE_CALL)
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


def test_only_a_delta_channel_is_asked_for_its_history():
    """A history that is stored as it is costs no query more."""
    thread = Thread(ONE_CALL)
    thread.saver.get_delta_channel_history = None  # type: ignore[method-assign, assignment]
    step = run_sync(Reader(thread.saver, "messages").read(Address.of(thread.config)))
    assert step is not None
    assert step.history == [GO]
