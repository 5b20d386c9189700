"""In which supersteps a call may have run: of edited, renamed, removed and repeated calls.

And what one search reads of a checkpointer, and what it does on errors.
"""

from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import MessagesState
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, Overwrite
from typing_extensions import TypedDict

from kit import Agent, DeltaChannel, DeltaState, _messages_delta_reducer, calls, loop, send_each
from langgraph_patch import with_patching
from langgraph_patch._langgraph.address import Address
from langgraph_patch._langgraph.storage import RETURN
from langgraph_patch._sansio import run_sync
from langgraph_patch.evidence.recover import recover_evidence
from langgraph_patch.evidence.superstep import superstep_of
from langgraph_patch.evidence.window import Reader
from langgraph_patch.history.calls import read_calls
from support.placeholder_texts import UNKNOWN
from support.supersteps import (
    ASKS,
    CLIENT,
    GO,
    MORE,
    Thread,
    found_of,
    made,
    news,
    ran,
    result,
    sent,
    shortly,
    wrong_in,
)

BOTH, MAIL, AGAIN = made("mail:c1", "wire:c2"), made("mail:c1"), made("mail:c1", id="m2")
SAYS = AIMessage("hm", id="a9")
WAITS = "awaiting_input | paused"
NONE = "unknown, unknown"
FOUND = "sent, awaiting_input"


ROME = made("mail:c1", "wire:c2:Rome")

PLACES: dict[str, tuple[Any, ...]] = {
    "last": (FOUND, sent("sent", ASKS), news(BOTH)),
    "beside another": (f"sent, {WAITS}", sent("sent", ASKS, history=[GO, BOTH, SAYS])),
    "before a node": (NONE, ran("t", result("x", "c9"), history=[GO, BOTH, SAYS])),
    "written again": (FOUND, sent("sent", ASKS), ran("x", RemoveMessage("m1"), BOTH), news(BOTH)),
    "for a while nowhere": (NONE, sent("sent", ASKS), ran("x", history=[GO]), ran(), news(BOTH)),
    "a call was edited": ("sent, unknown", sent("sent", ASKS), news(ROME), ran(history=[GO, ROME])),
    "another had its id": (NONE, sent("sent", ASKS, history=[GO, HumanMessage("x", id="m1")])),
    "only results were left": (NONE, sent("x", ASKS), ran("y", history=[result("x", "c9")])),
}  # fmt: skip


def test_where_the_message_is():
    """A superstep counts if the message was the last one, or if a task names one of its calls."""
    assert wrong_in(PLACES, BOTH) == {}


def test_a_call_that_has_moved_in_its_message():
    """It is found, also if the calls before it were removed; one without an id never is."""
    wire = made("wire:c2")
    assert Thread(BOTH, sent("sent", ASKS), news(wire)).found(GO, wire) == "awaiting_input"
    call = {"name": "wire", "args": {}, "id": None, "type": "tool_call"}
    assert found_of(AIMessage("", id="m1", tool_calls=[call]), ran("tools", ASKS)) == "unknown"


def test_messages_without_ids():
    """They are known by what they are; a write may be older than the id of its message."""
    go, bare = HumanMessage("go"), MAIL.model_copy(update={"id": None})
    for stored in (MAIL, bare):
        failed = ran("tools", RuntimeError("x"), history=[go, bare, SAYS])
        thread = Thread(bare, sent("sent", history=[go, stored]), failed, history=[go])
        assert thread.found(go, bare) == "sent"
        assert thread.found(go, made("mail:c1:Oslo", id="m5")) == "unknown"
    for other in (HumanMessage("x"), HumanMessage("x", id="h1")):  # an id that `GO` has too
        thread = Thread(MAIL, sent("sent", history=[GO, other, MAIL]), history=[GO, other])
        assert thread.found(GO, other, MAIL) == "sent"


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


def test_calls_of_many_messages():
    """One walk serves all, of 45 turns too: each call has what its own turn recorded (B2)."""
    messages: list[BaseMessage] = [GO]
    thread = Thread(MAIL, wrote=[])
    for number in range(45):
        turn = made(f"mail:a{number}", f"wire:b{number}", id=f"m{number}")
        thread.add(**ran("agent", turn, history=messages, source="input"))
        messages = [*messages, turn]
        thread.add(**sent(f"sent {number}", ASKS, by=turn, history=messages))
        messages = [*messages, HumanMessage("more", id=f"h{number}")]
    thread.add(**ran("agent", history=messages, source="input"))
    made_calls = ((i, m) for i, m in enumerate(messages) if isinstance(m, AIMessage))
    wanted = [call for index, message in made_calls for call in read_calls(message, index)]
    found = shortly(run_sync(recover_evidence(thread.saver, thread.config, messages, wanted)))
    assert found == ", ".join(f"sent {n}, awaiting_input" for n in range(45))


TWINS = made("mail:c1", "wire:c1", "mail:c2")


def test_calls_of_a_message_with_one_id():
    """Each has what the task that it was sent to recorded, and nothing that a later turn did."""
    thread = Thread(TWINS, sent("one", ASKS, "two"), news(TWINS))
    assert thread.found(GO, TWINS) == "one, awaiting_input, two"
    again = sent("new", by=AGAIN, history=[GO, TWINS, MORE, AGAIN])
    thread = Thread(TWINS, ran("agent"), news(TWINS, AGAIN), again)
    assert thread.found(GO, TWINS) == "unknown, unknown, unknown"


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


def test_a_snapshot_without_the_writes_before_it():
    """Nothing shows when the message was new: an older result of its id and tool is another's."""
    history = [GO, made("mail:c1", id="m0"), NAMED, MORE, AGAIN]
    stored = hidden("x", others=[(CLIENT, "messages", [NAMED])]), ran("agent", history=history)
    assert Thread(AGAIN, *stored, wrote=[], history=history[:2]).found(*history) == "unknown"


class Snapshots(TypedDict):
    """A state that stores its history every third superstep."""

    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer, snapshot_frequency=3)]


WAYS = {
    "plain": (MessagesState, "sync"),
    "delta-exit": (DeltaState, "exit"),
    "snapshots": (Snapshots, "async"),
}
ways = pytest.mark.parametrize(("state", "durability"), WAYS.values(), ids=WAYS)
WIRE, BOB, MIA = ("wire", {"amount": 5}), ("mail", {"to": "bob"}), ("mail", {"to": "mia"})


def reusing(state: Any, *script: AIMessage, saver: Any = None) -> Agent:
    """An agent with a task for each call."""

    def build(model: Any, tools: Any, saver: Any) -> Any:
        graph = loop(model, tools, state=state, router=send_each)
        return with_patching(graph.compile(checkpointer=saver))

    return Agent(build, *script, saver=saver)


def read(agent: Agent, *texts: str, **options: Any) -> list[str]:
    """The results that the model reads after these messages; `waits` for a call that waited."""
    for text in texts:
        agent.say(text, **options)
    found = [m.text for m in agent.model.seen[-1] if isinstance(m, ToolMessage)]
    return ["waits" if "was waiting for human input" in text else text for text in found]


@ways
def test_an_id_that_is_used_again(state: Any, durability: Any):
    """`c1` finished in the first turn and waits in the second; then a replay of that turn."""
    agent = reusing(state, calls(BOB), AIMessage("ok"), calls(WIRE, MIA))
    read(agent, "mail bob", "wire", durability=durability)
    paused = agent.graph.get_state(agent.config).config
    for config in (agent.config, paused):
        agent.graph.invoke({"messages": [HumanMessage("no")]}, config, durability=durability)
        assert read(agent) == ["sent to bob", "waits", "sent to mia"]


@ways
def test_an_id_that_waits_in_two_turns(state: Any, durability: Any):
    """The result of the second `c1` is not given to the first one, which still waits."""
    agent = reusing(state, calls(WIRE), calls(WIRE))
    read(agent, "go", "never mind", durability=durability)
    agent.run(Command(resume="yes"), durability=durability)
    assert read(agent, "and now?", durability=durability) == ["waits", "wired 5: yes"]


class Shallow(InMemorySaver):
    """Keeps the newest checkpoint of each namespace, as shallow PostgreSQL and MySQL savers do."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        own = config["configurable"]
        self.storage[own["thread_id"]][own.get("checkpoint_ns", "")].clear()
        stored = super().put(config, checkpoint, metadata, new_versions)
        stored["configurable"].pop("parent", None)
        return stored


def test_a_shallow_saver_keeps_the_thread_alive():
    """What the pause recorded is gone: the calls are unknown, and the model answers."""
    agent = reusing(MessagesState, calls(BOB, WIRE), saver=Shallow())
    unknown = [UNKNOWN.format("mail", "c1"), UNKNOWN.format("wire", "c2")]
    assert read(agent, "go", "never mind", "and now?") == unknown
    assert agent.history[-1].text == "done"


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


class Late(InMemorySaver):
    """Stores a checkpoint only after it was asked for it a few times."""

    asked, until = 0, 0

    def get_tuple(self, config: Any) -> Any:
        self.asked += 1
        return None if self.asked < self.until else super().get_tuple(config)


@pytest.mark.parametrize(("until", "found"), [(4, "wired"), (99, "unknown")])
def test_a_checkpoint_that_is_being_written(until: int, found: str):
    """A search waits for the current one; if that takes long, the next turn searches again."""
    thread = Thread(ONE_CALL, sent("wired"))
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


def test_a_checkpoint_that_names_itself_as_its_parent():
    """Nothing is older than it: a search ends."""
    thread = Thread(MAIL)
    saved = thread.step.saved
    own = superstep_of(saved._replace(parent_config=saved.config), "messages")
    assert run_sync(Reader(thread.saver, "messages").read_older(own)) is None
