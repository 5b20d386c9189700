"""A thread moves from a local model to each provider and back: it lives, and stays as it was."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from kit import Agent
from support.wires import WIRES, refusals

IDS = {"again": "call_0", "long": "chatcmpl-tool-{:032}", "odd": "functions/mail {}"}
NAMES = ("mail", "bank.mail")


class RefusedError(ValueError):
    """What a provider answers."""

    status_code = 400


def refuse(wire: str, messages: list[Any]) -> None:
    """Raise as the provider behind a wire does."""
    if found := refusals(wire, messages, ours_only=False):
        raise RefusedError(found[0])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("ids", "name", "kind", "asynchronous"),
    [
        (ids, NAMES[(row + column) % 2], kind, column % 2 == 1)
        for row, ids in enumerate(IDS)
        for column, kind in enumerate(("create_agent", "hand_built", "middleware"))
    ],
)
def test_a_thread_that_moves(ids: str, name: str, kind: str, *, asynchronous: bool):
    """Each provider answers, at the second or third request; what is stored is not changed.

    The turns of the local model need one request for each message; so do those after the way back.
    """
    agent = Agent(kind, asynchronous=asynchronous)
    local = agent.model.refuses

    def turn(number: int) -> int:
        """The local model calls the tool and answers."""
        call = {
            "name": name,
            "args": {"to": "bob"},
            "id": IDS[ids].format(number),
            "type": "tool_call",
        }
        agent.model.script = [AIMessage("", tool_calls=[call]), AIMessage("sent")]
        return requests(f"mail {number}")

    def requests(text: str) -> int:
        before, stored = len(agent.model.seen), [json.dumps(m.model_dump()) for m in history()]
        agent.say(text)
        assert [json.dumps(m.model_dump()) for m in history()][: len(stored)] == stored
        return len(agent.model.seen) - before

    def history() -> list[Any]:
        state = agent.graph.get_state(agent.config).values
        return state.get("messages", [])

    assert [turn(number) for number in range(2)] == [2, 2]
    for wire in WIRES:
        agent.model.refuses = partial(refuse, wire)
        assert requests(f"hello {wire}") <= 3
        assert history()[-1] == AIMessage("done", id=history()[-1].id)
    agent.model.refuses = local
    assert turn(9) == 2
    assert isinstance(history()[0], HumanMessage)
