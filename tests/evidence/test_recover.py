"""What models read of calls without a result: what the checkpoints recorded, or nothing."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from kit import Agent, Counting, calls
from support.placeholder_texts import UNKNOWN, WAITED
from support.supersteps import ASKS, Thread, made, news, sent

NOTHING = {"c1": UNKNOWN.format("mail", "c1"), "c2": UNKNOWN.format("wire", "c2")}


def test_recovery_switched_off():
    """With `recover=False` nothing is claimed, and nothing is read."""
    saver = Counting()
    agent = Agent("create_agent", TURN, saver=saver, recover=False)
    agent.say("pay bob")
    agent.say("never mind")
    assert agent.read == NOTHING
    assert saver.used["list"] == 0


MAIL, WIRE = ("mail", {"to": "bob"}), ("wire", {"amount": 5})
TURN = calls(MAIL, WIRE)
CANCELLED = '{"cancelled":true}'
FOUND = {"c1": "sent to bob", "c2": WAITED.format("wire", "c2")}


def from_client(content: str, prefix: str) -> list[Any]:
    """What a frontend sends before the next message: a result for each open call."""
    return [ToolMessage(content, tool_call_id=c, id=f"{prefix}{c}") for c in ("c1", "c2")]


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        (from_client("Successfully handled tool call.", "do-not-render-"), FOUND),
        (from_client(CANCELLED, "aui-"), {**FOUND, "c2": CANCELLED}),
        (from_client("by hand", "r"), {"c1": "by hand", "c2": "by hand"}),
    ],
)
def test_what_clients_send(results: list[Any], expected: dict[str, str]):
    """What was recorded replaces what known clients invent, and of one what they may have."""
    agent = Agent("create_agent", TURN)
    agent.say("go")
    agent.run({"messages": [*results, HumanMessage("never mind")]})
    assert agent.read == expected


def test_an_edited_result_is_left_alone():
    """An edit by `update_state` is no input, so the record does not replace it."""
    agent = Agent("create_agent", TURN)
    agent.say("go")
    edit = {"messages": from_client("edited", "r")}
    agent.graph.update_state(agent.config, edit, as_node="tools")
    agent.say("and now?")
    assert agent.read == {"c1": "edited", "c2": "edited"}


def ago(**duration: float) -> str:
    """A time in the past, as a checkpoint stores it."""
    return (datetime.now(UTC) - timedelta(**duration)).isoformat()


BOTH = made("mail:c1", "wire:c2")


def test_the_next_turn_looks_again_once():
    """However old the superstep is; not for a result, and not for what was searched for before."""
    for written, ending in ((None, "unknown"), (ASKS, "awaiting_input"), ("sent", "sent")):
        for age in ({"days": 400}, {"seconds": 7}):
            thread = Thread(BOTH, sent("sent", written, ts=ago(**age)), news(BOTH))
            assert thread.found() == f"sent, {ending}"
            searched = thread.found(searched_at={(1, 0): "", (1, 1): ""})
            assert searched == f"sent, {ending}{' | final' * (written != 'sent')}"


class Failing(InMemorySaver):
    """Fails after some queries."""

    left = 0

    def get_tuple(self, config: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise OSError
        return super().get_tuple(config)


def test_where_the_record_cannot_be_read_no_cause_is_stated():
    """A result is one whatever came before it; another record could tell another cause."""
    thread = Thread(BOTH, sent("sent", ASKS))
    thread.saver.__class__ = Failing
    found = []
    for left in range(9):
        thread.saver.left = left
        found.append(thread.found())
    assert {*found} == {"unknown, unknown", "sent, unknown", "sent, awaiting_input | paused"}


class Searched(InMemorySaver):
    """Counts how often the current checkpoint is read."""

    current: Any = None
    searches = 0

    def get_tuple(self, config: Any) -> Any:
        self.searches += config == self.current
        return super().get_tuple(config)


def test_the_wait_for_what_is_never_stored(monkeypatch: pytest.MonkeyPatch):
    """A message right after a stop: a few looks at one checkpoint, and a twentieth of a second."""
    waits, looks = [], [0.0]
    monkeypatch.setattr(time, "sleep", waits.append)
    monkeypatch.setattr(time, "monotonic", lambda: sum(waits) + sum(looks))
    thread = Thread(made("mail:c1"), sent(None, ts=ago(seconds=0)))
    thread.saver.__class__ = Searched
    thread.saver.current = thread.config
    assert thread.found() == "unknown"
    assert (thread.saver.searches, sum(waits)) == (1 + len(waits), pytest.approx(0.048))
    waits.clear()
    monkeypatch.setattr(time, "monotonic", lambda: looks.append(0.03) or sum(looks))
    assert thread.found() == "unknown"
    assert waits == [pytest.approx(0.003), pytest.approx(0.03)]  # a look takes time, too
