"""Each failure mode on a real graph: the bare graph fails or misleads, the patched does not.

`tests/CLAIMS.md` lists the failure modes and their tests.
"""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.errors import GraphRecursionError
from langgraph_swarm import create_handoff_tool, create_swarm

from kit import BARE, Agent, StrictModel, calls, lines, patched
from langgraph_patch import validate_messages
from langgraph_patch.testing import RefusedError
from support.placeholder_texts import UNKNOWN

MAIL = ("mail", {"to": "bob"})
WIRE = ("wire", {"amount": 5})
BOTH = calls(MAIL, WIRE, id="a1")
SENT = "tool c1: sent to bob"
NOTHING_KNOWN = [f"tool c{n}: {UNKNOWN.format(t, f'c{n}')}" for n, t in ((1, "mail"), (2, "wire"))]


def test_the_recursion_limit():
    """Cut short before its tools, a thread goes on with the next message."""
    bare = Agent(BARE["create_agent"], BOTH)
    bare.config["recursion_limit"] = 1
    with pytest.raises(GraphRecursionError):
        bare.say("go")
    bare.config.pop("recursion_limit")
    with pytest.raises(RefusedError, match="c1"):
        bare.say("hello?")
    it = patched(bare, recover=False)
    it.say("hello!")
    assert validate_messages(it.history) == []
    assert lines(it.history)[2:4] == NOTHING_KNOWN
    assert lines(it.history)[-2:] == ["human: hello!", "ai: done"]
    assert not it.desk.did


# --- agents that hand over to each other: swarms ---------------------------------------------

TO_BOB = ("transfer_to_bob", {})
LOST = NOTHING_KNOWN[0]
HANDOVER = "tool c2: Successfully transferred to bob"


def swarm(kind: str, alice: Any, bob: Any, **options: Any) -> Agent:
    """Alice, who is active first, and Bob, with all tools and a handoff to the other."""

    def build(_: Any, tools: Any, saver: Any) -> Any:
        agents = [
            BARE[kind](model, [*tools, create_handoff_tool(agent_name=other)], None, name=name)
            for model, name, other in ((alice, "alice", "bob"), (bob, "bob", "alice"))
        ]
        builder = create_swarm(agents, default_active_agent="alice")
        return builder.compile(checkpointer=saver)

    return Agent(build, **options)


@pytest.mark.parametrize(
    ("kind", "expected", "made", "asynchronous"),
    [
        ("create_agent", SENT.replace("c1", "c2"), (TO_BOB, MAIL), False),
        ("react_v2", SENT, (MAIL, TO_BOB), False),
        ("react_v1", LOST, (MAIL, TO_BOB), True),
    ],
)
def test_a_call_beside_a_handoff(kind: str, expected: str, made: Any, *, asynchronous: bool):
    """Bare, Bob's model refuses Alice's open call; patched it reads the mail's real result.

    A plain v1 tool node records nothing, so there nothing is claimed.
    """
    bare = swarm(kind, StrictModel(script=[calls(*made)]), StrictModel())
    with pytest.raises(ValueError, match=expected[5:7]):
        bare.say("go")
    bob = StrictModel(script=[AIMessage("bob here")])
    it = swarm(kind, StrictModel(script=[calls(*made)]), bob, asynchronous=asynchronous)
    it = patched(it, recover=kind != "react_v1")
    it.say("go")
    handed = HANDOVER if made[0] == MAIL else HANDOVER.replace("c2", "c1")
    # The handoff ends the superstep: on a busy machine before the mail's result is recorded.
    known = [expected, LOST.replace("c1", expected[5:7])]
    assert sorted(lines(it.history)[2:4]) in [sorted([text, handed]) for text in known]
    assert lines(it.history)[4:] == ["ai: bob here"]
    assert validate_messages(it.history) == []
    assert it.desk.did == {"mail bob": 1}
    it.say("hello")
    assert lines(it.history)[5:] == ["human: hello", "ai: done"]
    assert it.graph.get_state(it.config).values["active_agent"] == "bob"
