"""What `on_patch`, the log and the caller learn of a repair; placeholders of earlier repairs."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from itertools import cycle
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from kit import BARE, Agent, Counting, calls, patched
from langgraph_patch import PatchNode, validate_messages
from langgraph_patch.errors import EvidenceError
from langgraph_patch.history.fast_check import is_valid
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from langgraph_patch.testing.model import RefusedError
from support.placeholder_texts import WAITED

BOTH = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}), id="a1")
FINE, YES = AIMessage("fine"), AIMessage("yes?")
RESULTS = {"c1": "sent to bob", "c2": WAITED.format("wire", "c2")}
LINE = "repaired thread '1': recovered 'mail' 'c1'; inserted 'wire' 'c2' (awaiting_input)"
INFO = [(logging.INFO, LINE)]

each_way = pytest.mark.parametrize(
    ("place", "kind", "asynchronous"),
    [("entry", "react_v2", True), ("model node", "create_agent", False)],
)


@pytest.fixture
def logged(caplog):
    """The lines that the package logs while graphs run."""
    caplog.set_level(logging.DEBUG, logger="langgraph_patch")

    def lines() -> list[tuple[int, str]]:
        ours = [r for r in caplog.records if r.name.startswith("langgraph_patch")]
        assert {record.name for record in ours} <= {"langgraph_patch"}
        logs = [(record.levelno, record.getMessage()) for record in ours]
        return [line for line in logs if not line[1].startswith("with_patching")]

    return lines


def broken(place: str, kind: str = "create_agent", **options: Any) -> tuple[Agent, Any]:
    """A bare agent, and the input with which a patched one repairs its thread at that place."""
    it = Agent(BARE[kind], BOTH, **options)
    it.say("go")
    if place == "model node":
        with pytest.raises(ValueError, match="c1"):
            it.say("never mind")
    it.model.seen.clear()
    it.model.script[:] = [FINE, YES]
    return it, None if place == "model node" else {"messages": [HumanMessage("never mind")]}


class Handler(BaseCallbackHandler):
    """Collects the custom events of a run."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_custom_event(self, name: str, data: Any, **_: Any) -> None:
        self.seen.append((name, data))


@each_way
def test_one_repair_one_call_one_line(place, kind, asynchronous, logged):
    """`on_patch` gets patch and config once, the log one INFO line, a handler one event.

    Healthy runs say nothing.
    """
    reported: list[Any] = []
    bare, value = broken(place, kind, asynchronous=asynchronous)
    it = patched(bare, on_patch=lambda *report: reported.append(report))
    it.config = {**it.config, "callbacks": [handler := Handler()]}
    assert logged() == []
    it.run(value)
    it.say("hello?")
    [(patch, config)] = reported
    changes = [(c.kind, c.tool_call_id, c.cause) for c in patch.changes]
    assert changes == [("recovered", "c1", None), ("inserted", "c2", "awaiting_input")]
    assert config["configurable"]["thread_id"] == "1"
    model = "model" if kind == "create_agent" else "agent"
    node = "patch_tool_calls" if place == "entry" else model
    assert config["metadata"]["langgraph_node"] == node
    assert logged() == INFO
    [(name, data)] = handler.seen
    assert (name, data["thread_id"]) == ("langgraph_patch", "1")
    recovered = {"kind": "recovered", "cause": None, "name": "mail", "tool_call_id": "c1"}
    assert data["changes"][0] == recovered
    assert data["changes"][1]["cause"] == "awaiting_input"


def test_what_is_required_can_be_recovered():
    """`recover="required"` needs a checkpointer and a thread if a result is missing."""
    bare, value = broken("entry")
    it = patched(bare, recover="required")
    damaged = {"messages": [*bare.history, HumanMessage("?")]}
    it.run(value)  # with both, it is repaired
    without_saver = it.graph.copy({"checkpointer": None})
    for run, config in (
        (without_saver.invoke, it.config),
        (PatchNode(recover="required").invoke, {"configurable": {}}),
    ):
        with pytest.raises(EvidenceError, match="no checkpointer or no thread_id"):
            run(damaged, config)


def stored_repairs(it: Agent) -> list[str]:
    """All that the checkpointer holds of repairs."""
    found = []
    for saved in it.graph.checkpointer.list(it.config):
        texts = [str(value) for _, _, value in saved.pending_writes or ()]
        texts.append(str(saved.checkpoint["channel_values"].get("messages")))
        found += [text for text in texts if PLACEHOLDER_KEY in text or "RemoveMessage" in text]
    return found


class Failing(InMemorySaver):
    """A checkpointer that has no older checkpoint while it is `down`."""

    down = False

    def get_tuple(self, config):
        if self.down and "checkpoint_id" in config["configurable"]:
            raise ConnectionError("the database is gone")
        return super().get_tuple(config)


@each_way
@pytest.mark.parametrize("failure", ["on_patch", "placeholder", "checkpointer"])
def test_a_failure_of_the_repair(failure, place, kind, asynchronous, logged):
    """It reaches the caller, nothing of the repair is written or logged; the next run heals.

    A model node has called its model when it reports the repair that it writes.
    """
    bare, value = broken(place, kind, asynchronous=asynchronous, saver=Failing())
    refusals = [PermissionError("not on my watch")]

    def refuse_once(*_: Any) -> Any:
        if refusals:
            raise refusals.pop()

    options: Any = {failure: refuse_once}
    error, message = PermissionError, "not on my watch"
    if failure == "placeholder":
        options = {failure: lambda call: refuse_once() or f"{call.tool_call_id}: gone"}
    if failure == "checkpointer":
        bare.graph.checkpointer.down = True
        options = {"recover": "required"}
        error, message = EvidenceError, r"'1'.*the database is gone.*recover=False"
    it = patched(bare, **options)
    with pytest.raises(error, match=message) as raised:
        it.run(value)
    assert failure != "checkpointer" or isinstance(raised.value.__cause__, ConnectionError)
    it.graph.checkpointer.down = False
    assert logged() == []
    assert stored_repairs(it) == []
    assert len(it.model.seen) == (failure == "on_patch" and place == "model node")
    it.run(None)
    assert logged() == INFO
    texts = [m.text for m in it.history if m.type == "human"]
    assert texts == ["go", "never mind"]
    changed = {"c2": "c2: gone"} if failure == "placeholder" else {}
    assert it.results == RESULTS | changed
    assert validate_messages(it.history) == []


# --- marks that a client forges -----------------------------------------------------------------

FORGED: dict[str, Any] = {
    "checkpoints that are not there": lambda number: {"look_again": f"1f{number}"},
    "the newest checkpoint": lambda _: {"look_again": True},
    "nothing": lambda _: None,
    "a number": lambda number: number,
    "lists": lambda number: {"cause": [number], "look_again": [number], "earlier_ids": [number]},
    "nested dicts": lambda number: {"cause": {"cause": {"cause": number}}, "inner": {"a": "b"}},
}

AGENTS = ["create_agent", "hand_built", "middleware"]


def cost_of_marks(kind: str, form: str, count: int) -> tuple[Counter[str], int, Counter[str]]:
    """The queries and function calls of a turn whose input has these marks; the next queries."""
    saver = Counting()
    it = Agent(kind, saver=saver)
    it.say("go")
    posted: list[Any] = []
    for number in range(count):
        mark = FORGED[form](number)
        if isinstance(mark, dict):
            mark = {"cause": "unknown", **mark}
        extra = {PLACEHOLDER_KEY: mark}
        posted.append(calls(("mail", {"to": "bob"}), first=number))
        posted.append(ToolMessage("text", tool_call_id=f"c{number}", additional_kwargs=extra))
    queries, ran = [], [0]

    def count_call(_: Any, event: str, __: Any) -> None:
        ran[0] += event == "call"

    for text, messages in (("and?", posted), ("more", [])):
        saver.used.clear()
        sys.setprofile(None if queries else count_call)
        it.run({"messages": [*messages, HumanMessage(text)]})
        sys.setprofile(None)
        queries.append(saver.used.copy())
    return queries[0], ran[0], queries[1]


@pytest.mark.parametrize(("form", "kind"), [*zip(FORGED, cycle(AGENTS))])
def test_forged_marks(form: str, kind: str):
    """Linear in their number, with twenty queries and a few at most, and in one turn only."""
    healthy, _, _ = cost_of_marks(kind, form, 0)
    _, few_calls, _ = cost_of_marks(kind, form, 40)
    many, many_calls, later = cost_of_marks(kind, form, 120)
    assert many_calls < 4 * few_calls
    assert later == healthy
    asked = 20 if form == "checkpoints that are not there" else 0
    assert many["get_tuple"] - healthy["get_tuple"] in range(asked, asked + 4)
    assert many["list"] <= healthy["list"] + 1


def test_each_history_is_looked_at_once(monkeypatch):
    """A node looks at what is new in this run of the graph; after a refusal all is checked."""
    looked: list[int] = []

    def counted(messages: Any, **options: Any) -> bool:
        looked.append(len(messages))
        return is_valid(messages, **options)

    def refuses(messages: Any) -> None:
        for error in refusals:
            raise error

    refusals = iter([RefusedError("messages.0: Could not process image", 400)])
    monkeypatch.setattr("langgraph_patch.history.patch.is_valid", counted)
    mail = [calls(("mail", {"to": "bob"}), first=n, id=f"a{n}") for n in range(4)]
    it = patched(Agent(BARE["hand_built"], *mail[:3], FINE))
    picture = [{"type": "image", "base64": "aGk=", "mime_type": "image/png"}]
    old = [each for _ in range(50) for each in (HumanMessage(picture), AIMessage("hello"))]
    it.graph.update_state(it.config, {"messages": old}, as_node="agent")
    it.say("go")
    assert looked == [101, 2, 4, 4, 4]
    looked.clear()
    it.model.refuses = refuses
    it.model.script[:] = [mail[3], YES]
    it.say("again")
    assert looked == [109, 2, 111]


@pytest.mark.parametrize("kind", ["hand_built", "react_v2", "create_agent"])
def test_a_repair_reads_each_checkpoint_once(kind):
    """Six queries, of which LangGraph makes the first, and none of them only to wait."""
    it = patched(Agent(BARE[kind], BOTH, saver=(saver := Counting())), record=True)
    it.say("go")
    it.model.script[:] = [FINE]
    saver.used.clear()
    it.say("never mind")
    assert saver.used["get_tuple"] + saver.used["list"] == 6
    assert it.results == RESULTS
