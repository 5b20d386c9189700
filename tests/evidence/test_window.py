"""In which supersteps a call may have run: of edited, renamed, removed and repeated calls."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState
from langgraph.graph.message import REMOVE_ALL_MESSAGES, _messages_delta_reducer
from langgraph.types import Command, Overwrite
from typing_extensions import TypedDict

from kit import Agent, DeltaState, calls, loop, send_each
from langgraph_patch import patch_messages, with_patching
from langgraph_patch._langgraph_storage import RETURN
from langgraph_patch._sansio import run_sync
from langgraph_patch.evidence.recover import recover_evidence
from langgraph_patch.history.calls import Call, read_calls
from support.supersteps import (
    ASKS,
    GO,
    MORE,
    Thread,
    findings,
    made,
    ran,
    result,
    sent,
    short,
)

BOTH = made("mail:c1", "wire:c2")
MAIL = made("mail:c1")
AGAIN = made("mail:c1", id="m2")
FOUND = ["sent", "awaiting_input"]
UPDATE = "f" * 32
"""The id of a task that is no task of the superstep, as `update_state` writes it."""


def asks(*more: Any, message: AIMessage = MAIL, **fields: Any) -> dict[str, Any]:
    """The next input, after which the model asks again."""
    return ran("agent", source="input", history=[GO, message, *more], **fields)


# --- where the message is -----------------------------------

SAYS = AIMessage("hm", id="a9")

PLACES: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "the last message": ([sent("sent", ASKS), asks(MORE, message=BOTH)], FOUND),
    "a message beside it": (
        [sent("sent", ASKS, history=[GO, BOTH, SAYS])],
        ["sent", "awaiting_input | paused"],
    ),
    "a node behind a message beside it": (
        [ran("tools", wrote=[result("x", "c9")], history=[GO, BOTH, SAYS])],
        ["unknown", "unknown"],
    ),
    "it was written again": (
        [sent("sent", ASKS), ran("again", wrote=[[RemoveMessage("m1"), BOTH]]), asks(message=BOTH)],
        ["sent", "awaiting_input"],
    ),
    "another message had its id": (
        [sent("sent", ASKS, history=[GO, HumanMessage("x", id="m1")])],
        ["unknown", "unknown"],
    ),
    "only results were left": (
        [sent("x", ASKS), ran("y", history=[result("x", "c9")])],
        ["unknown", "unknown"],
    ),
    "it was gone for a while": (
        [sent("sent", ASKS), ran("x", history=[GO]), ran("y"), asks(message=BOTH)],
        ["unknown", "unknown"],  # whether it is the same message is not recorded
    ),
    "only this call was not edited": (
        [
            sent("sent", ASKS),
            asks(message=made("mail:c1", "wire:c2:Rome")),
            ran("agent", history=[GO, made("mail:c1", "wire:c2:Rome")]),
        ],
        ["sent", "unknown"],
    ),
}


@pytest.mark.parametrize("case", PLACES)
def test_where_the_message_is(case: str):
    """A superstep counts if the message was the last one, or if a task names one of its calls."""
    steps, expected = PLACES[case]
    assert findings(BOTH, *steps) == expected


@pytest.mark.parametrize(
    "edited", [made("mail:c1:Oslo"), made("wire:c1:Rome"), made("mail:c9:Rome")]
)
def test_an_edited_call_has_not_run(edited: AIMessage):
    """The result of a call does not belong to an edited copy of it."""
    message = made("mail:c1:Rome")
    thread = Thread(message)
    thread.add(**sent("sent"))
    before = thread.config
    thread.add(**asks(message=edited))
    assert thread.findings(GO, edited) == ["unknown"]
    thread.config = before
    assert thread.findings(GO, message) == ["sent"]


def test_a_call_before_it_was_removed():
    """A call is found at another place of the message, too."""
    thread = Thread(BOTH)
    thread.add(**sent("sent", ASKS))
    thread.add(**asks(message=made("wire:c2")))
    assert thread.findings(GO, made("wire:c2")) == ["awaiting_input"]


def test_a_call_without_an_id():
    """It cannot be identified."""
    call = {"name": "wire", "args": {}, "id": None, "type": "tool_call"}
    message = AIMessage("", id="m1", tool_calls=[call])
    assert findings(message, ran("tools", wrote=[ASKS])) == ["unknown"]


@pytest.mark.parametrize("named", [True, False])
def test_messages_without_ids(*, named: bool):
    """They are known by what they are; a write may be older than the id of its message."""
    bare = MAIL.model_copy(update={"id": None})
    thread = Thread(bare, first={"history": [HumanMessage("go")]})
    thread.add(**sent("sent", history=[HumanMessage("go"), MAIL if named else bare]))
    thread.add(**ran("tools", wrote=[RuntimeError("x")], history=[HumanMessage("go"), bare, SAYS]))
    assert thread.findings(HumanMessage("go"), bare) == ["sent"]
    other = thread.findings(HumanMessage("go"), made("mail:c1", id="m5"))
    assert other == (["unknown"] if named else ["sent"])
    assert thread.findings(HumanMessage("go"), made("mail:c1:Oslo", id="m5")) == ["unknown"]


@pytest.mark.parametrize("also", ["no id", "the same id"])
def test_other_messages_without_an_id_of_their_own(also: str):
    """The message is found beside them all the same."""
    other = HumanMessage("x", id=None if also == "no id" else "h1")
    thread = Thread(MAIL, first={"history": [GO, other]})
    thread.add(**sent("sent", history=[GO, other, MAIL]))
    assert thread.findings(GO, other, MAIL) == ["sent"]


def test_an_abandoned_branch_is_not_read():
    """What happened on a branch that was left says nothing of this one, however long each is."""
    thread = Thread(MAIL)
    thread.add(**ran("agent"))
    fork = thread.config
    for number in range(9):
        thread.add(**ran(f"n{number}"))
    here = thread.config
    thread.config = fork
    thread.add(**sent("sent"))
    there = thread.config
    for config in (here, there):
        thread.config = config
        for number in range(9):
            thread.add(**asks(MORE, wrote=[HumanMessage(str(number))]))
        assert thread.findings() == (["unknown"] if config is here else ["sent"])


def test_calls_of_many_messages():
    """One walk serves all: each call has what its own turn recorded."""
    messages: list[Any] = [GO]
    thread = Thread(MAIL, first={"wrote": []})
    for number in range(45):
        turn = made(f"mail:a{number}", f"wire:b{number}", id=f"m{number}")
        thread.add(**ran("agent", wrote=[turn], history=messages, source="input"))
        messages = [*messages, turn]
        thread.add(**sent(f"sent {number}", ASKS, calls=turn.tool_calls, history=messages))
        messages = [*messages, HumanMessage("more", id=f"h{number}")]
    thread.add(**ran("agent", history=messages, source="input"))
    wanted = [call for i, message in enumerate(messages) for call in called(message, i)]
    search = recover_evidence(thread.saver, thread.config, messages, wanted)
    found = [short(each) for each in run_sync(search).evidence.values()]
    assert found == [text for n in range(45) for text in (f"sent {n}", "awaiting_input")]


def called(message: Any, index: int) -> list[Call]:
    """The calls of a message of any type."""
    return read_calls(message, index) if isinstance(message, AIMessage) else []


# --- an id that is used again -----------------------------------


def test_an_id_that_a_later_turn_uses_again():
    """A result belongs to the call that was the last one with its id when it was written."""
    first = result("first", "c1")
    thread = Thread(MAIL)
    thread.add(**sent("first"))
    for length in (3, 4):
        thread.add(**ran("agent", wrote=[AGAIN], history=[GO, MAIL, first, MORE][:length]))
    thread.add(**ran("agent", history=[GO, MAIL, first, MORE, AGAIN]))
    thread.add(**ran("agent", source="input", history=[GO, MAIL, first, MORE, AGAIN, SAYS]))
    assert thread.findings(GO, MAIL, first, MORE, AGAIN) == ["unknown"]
    assert thread.findings(GO, MAIL) == ["first"]


def test_two_turns_with_the_same_ids():
    """Each gets its own results."""
    later = made("wire:c1", "mail:c2", id="m2")
    thread = Thread(BOTH)
    thread.add(**sent("sent", ASKS))
    thread.add(**asks(MORE, message=BOTH, wrote=[later]))
    thread.add(**sent(ASKS, "again", calls=later.tool_calls, history=[GO, BOTH, MORE, later]))
    assert thread.findings(GO, BOTH) == FOUND
    assert thread.findings(GO, BOTH, MORE, later) == ["awaiting_input | paused", "again"]


TWINS = made("mail:c1", "wire:c1", "mail:c2")


def test_calls_that_a_repair_renamed():
    """A later search finds what is recorded under the ids that the model gave the calls."""
    thread = Thread(TWINS)
    thread.add(**sent("one", ASKS, "two"))
    older = made("wire:c1", "mail:c2", id="m0")
    for renamed in (
        patch_messages([GO, TWINS]).messages[1],
        patch_messages([older, TWINS]).messages[3],
    ):
        assert len({call["id"] for call in renamed.tool_calls}) == 3
        thread.add(**asks(MORE, message=renamed))
        assert thread.findings(GO, renamed) == ["one", "awaiting_input", "two"]


def test_a_renamed_call_whose_old_id_is_used_again():
    """What a newer message's call of the old id did is not the renamed call's."""
    renamed = patch_messages([GO, TWINS]).messages[1]
    newer = made("mail:c1", id="m2")
    thread = Thread(TWINS)
    thread.add(**ran("agent"))
    thread.add(**asks(MORE, message=renamed, wrote=[newer]))
    thread.add(**sent("new", calls=newer.tool_calls, history=[GO, renamed, MORE, newer]))
    assert thread.findings(GO, renamed) == ["unknown"] * 3


# --- a history that is not stored (`DeltaChannel`) -----------------------------------

BEFORE = ran("agent", wrote=[BOTH], history=None)
HIDDEN = sent("sent", ASKS, history=None)
STORED = ran("agent", source="input", history=[GO, BOTH, MORE])
OLD_RESULT = result("old", "c1", "mail")
TALKS = ran("x", wrote=[SAYS], history=None)
EDITS = ran("x", others=[(UPDATE, "messages", [SAYS])], history=None)


def returns(source: str) -> dict[str, Any]:
    """A superstep in which a `@task` returns a result of the last message."""
    returned = (UPDATE, RETURN, result("sent", "c1", "mail"))
    return ran("y", source=source, others=[returned], history=None)


DELTA: dict[str, tuple[dict[str, Any], list[dict[str, Any]], list[str]]] = {
    "nothing is stored": (BEFORE, [HIDDEN], ["sent", "awaiting_input | paused"]),
    "an input": (BEFORE, [HIDDEN, ran("agent", source="input", history=None)], FOUND),
    "a snapshot after it": (BEFORE, [HIDDEN, STORED], FOUND),
    "a snapshot before it": ({"history": [GO]}, [HIDDEN, STORED], FOUND),
    "a snapshot between": (BEFORE, [ran("x"), HIDDEN, STORED], FOUND),
    "a result that is stored": (
        BEFORE,
        [sent("sent", None, history=None), ran("x", history=None), STORED],
        ["sent", "unknown"],
    ),
    "another message behind it": (
        BEFORE,
        [
            ran("x", wrote=[SAYS], history=None),
            ran("tools", wrote=[result("x", "c9")], history=None),
        ],
        ["unknown", "unknown"],
    ),
    "an update drops what tasks wrote": (BEFORE, [TALKS, returns("update")], ["sent", "unknown"]),
    "an input drops what tasks wrote": (BEFORE, [TALKS, returns("input")], ["sent", "unknown"]),
    "the next superstep has what tasks wrote": (BEFORE, [TALKS, returns("loop")], ["unknown"] * 2),
    "the next superstep has an update": (BEFORE, [EDITS, returns("update")], ["unknown"] * 2),
    "another branch has the update": (BEFORE, [EDITS, returns("input")], ["sent", "unknown"]),
    "nobody wrote it": ({**BEFORE, "wrote": []}, [HIDDEN], ["unknown", "unknown"]),
    "an update wrote it": (
        {**BEFORE, "wrote": [], "others": [(UPDATE, "messages", [BOTH])]},
        [{**HIDDEN, "source": "update"}],
        ["unknown", "unknown"],  # an edit of it, perhaps
    ),
    "an update removed it": (
        BEFORE,
        [
            ran("x", history=None, others=[(UPDATE, "messages", [RemoveMessage("m1")])]),
            {**HIDDEN, "source": "update"},
        ],
        ["unknown", "unknown"],
    ),
    "an overwrite is not its origin": (
        BEFORE,
        [
            HIDDEN,
            ran("y", wrote=[("messages", Overwrite([GO, BOTH]))], history=None),
            ran("z", history=None),
        ],
        FOUND,
    ),
    "a new history is not its origin": (
        BEFORE,
        [
            HIDDEN,
            ran("y", wrote=[[RemoveMessage(REMOVE_ALL_MESSAGES), GO, BOTH]], history=None),
            ran("z", history=None),
        ],
        FOUND,
    ),
    "a repair is not its origin": (
        BEFORE,
        [
            HIDDEN,
            ran(
                "p", wrote=[[("messages", [BOTH, OLD_RESULT]), (RETURN, OLD_RESULT)]], history=None
            ),
            ran("z", history=None),
        ],
        FOUND,
    ),
    "a rewrite is not its origin": (
        BEFORE,
        [
            HIDDEN,
            ran("y", wrote=[[RemoveMessage("m1"), BOTH]], history=None),
            ran("z", history=None),
        ],
        FOUND,
    ),
    "durability exit": (
        ran(
            "agent",
            history=None,
            others=[
                ("ffffffff-0000-0002-0000-000000000000", "messages", [result("x", "c1", "mail")]),
                ("ffffffff-0000-0001-0000-000000000000", "messages", [BOTH]),
            ],
            wrote=[],
        ),
        [ran("tools", wrote=[ASKS], history=None)],
        ["x", "unknown"],
    ),
}


@pytest.mark.parametrize("case", DELTA)
def test_a_history_that_is_not_stored(case: str):
    """It is computed from the supersteps since the message was written."""
    first, steps, expected = DELTA[case]
    assert findings(BOTH, *steps, first=first) == expected


def test_a_snapshot_without_the_writes_before_it():
    """Nothing shows when the message was new: an older result of its id and tool is another's."""
    older = made("mail:c1", id="m0")
    thread = Thread(AGAIN, first=ran("agent", history=[GO, older]))
    thread.add(**ran("x", history=None, others=[(UPDATE, "messages", [OLD_RESULT])]))
    thread.add(**ran("agent", history=[GO, older, OLD_RESULT, MORE, AGAIN]))
    assert thread.findings(GO, older, OLD_RESULT, MORE, AGAIN) == ["unknown"]


# --- graphs that use an id again -----------------------------------


class Snapshots(TypedDict):
    """A state that stores its history every third superstep."""

    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer, snapshot_frequency=3)]


WAYS = {
    "plain": (MessagesState, "sync"),
    "plain-exit": (MessagesState, "exit"),
    "delta": (DeltaState, "sync"),
    "delta-exit": (DeltaState, "exit"),
    "snapshots": (Snapshots, "async"),
}
ways = pytest.mark.parametrize("way", WAYS)


def reusing(way: str, *script: AIMessage, saver: Any = None) -> tuple[Agent, dict[str, Any]]:
    """An agent with a task for each call, and the options of its runs."""
    state, durability = WAYS[way]

    def build(model: Any, tools: Any, saver: Any) -> Any:
        graph = loop(model, tools, state=state, router=send_each)
        return with_patching(graph.compile(checkpointer=saver))

    return Agent(build, *script, saver=saver), {"durability": durability}


def read(agent: Agent) -> list[str]:
    """The results that the model read last, in order; `waits` for a call that waited."""
    texts = [m.text for m in agent.model.seen[-1] if isinstance(m, ToolMessage)]
    return ["waits" if "was waiting for human input" in text else text for text in texts]


def mail(to: str) -> tuple[str, dict[str, Any]]:
    """A call."""
    return "mail", {"to": to}


WIRE = ("wire", {"amount": 5})


@ways
def test_an_id_that_is_used_again(way: str):
    """`c1` finished in the first turn and waits in the second; then a replay of that turn."""
    agent, options = reusing(way, calls(mail("bob")), AIMessage("ok"), calls(WIRE, mail("mia")))
    for text in ("mail bob", "wire"):
        agent.say(text, **options)
    paused = agent.graph.get_state(agent.config).config
    for config in (agent.config, paused):
        agent.graph.invoke({"messages": [HumanMessage("never mind")]}, config, **options)
        assert read(agent) == ["sent to bob", "waits", "sent to mia"]


@ways
def test_an_id_that_is_used_again_after_a_repair(way: str):
    """A repair gives `c1` a new id; the next `c1` of the same run keeps its result."""
    script = [calls(mail("bob")), AIMessage("ok"), calls(WIRE), calls(mail("mia"), WIRE)]
    agent, options = reusing(way, *script)
    for text in ("mail bob", "wire", "mail mia, wire", "never mind"):
        agent.say(text, **options)
    assert read(agent) == ["sent to bob", "waits", "sent to mia", "waits"]


@ways
def test_an_id_that_waits_in_two_turns(way: str):
    """The result of the second `c1` is not given to the first one, which still waits."""
    agent, options = reusing(way, calls(WIRE), calls(WIRE))
    for text in ("go", "never mind"):
        agent.say(text, **options)
    agent.run(Command(resume="yes"), **options)
    agent.say("and now?", **options)
    assert read(agent) == ["waits", "wired 5: yes"]


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
    agent, _ = reusing("plain", calls(mail("bob"), WIRE), saver=Shallow())
    for text in ("go", "never mind", "and now?"):
        agent.say(text)
    unknown = "No result of tool call {} with id {} is known; it may or may not have run."
    assert read(agent) == [unknown.format("mail", "c1"), unknown.format("wire", "c2")]
    assert agent.history[-1].text == "done"
