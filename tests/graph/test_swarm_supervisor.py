"""Agents that hand over to each other: `langgraph-swarm` and `langgraph-supervisor`."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START
from langgraph_swarm import create_handoff_tool, create_swarm

from kit import BARE, Agent, StrictModel, calls, lines, patched
from langgraph_patch import validate_messages
from support.placeholder_texts import UNKNOWN

MAIL = ("mail", {"to": "bob"})
TO_BOB = ("transfer_to_bob", {})
SENT = "tool c1: sent to bob"
LOST = f"tool c1: {UNKNOWN.format('mail', 'c1')}"
HANDOVER = "tool c2: Successfully transferred to bob"


def swarm(kind: str, alice: Any, bob: Any, **options: Any) -> Agent:
    """Alice, who is active first, and Bob, with all tools and a handoff to the other."""

    def build(_: Any, tools: Any, saver: Any) -> Any:
        agents = [
            BARE[kind](
                model, [*tools, create_handoff_tool(agent_name=other)], None, name=name, **made
            )
            for model, name, other in ((alice, "alice", "bob"), (bob, "bob", "alice"))
        ]
        builder = create_swarm(agents, default_active_agent="alice")
        return builder.compile(checkpointer=saver)

    made = {"middleware": options.pop("middleware")} if "middleware" in options else {}
    return Agent(build, **options)


@pytest.mark.parametrize(
    ("kind", "expected", "made", "asynchronous"),
    [
        ("create_agent", SENT.replace("c1", "c2"), (TO_BOB, MAIL), False),
        ("react_v2", SENT, (MAIL, TO_BOB), False),
        ("react_v1", LOST, (MAIL, TO_BOB), True),
    ],
)
def test_f08_a_call_beside_a_handoff(kind: str, expected: str, made: Any, *, asynchronous: bool):
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
    assert sorted(lines(it.history)[2:4]) == sorted([expected, handed])
    assert lines(it.history)[4:] == ["ai: bob here"]
    assert validate_messages(it.history) == []
    assert it.desk.did == {"mail bob": 1}
    it.say("hello")
    assert lines(it.history)[5:] == ["human: hello", "ai: done"]
    assert it.graph.get_state(it.config).values["active_agent"] == "bob"


def test_handoffs_with_the_same_ids():
    """Each result stays below its own call, when Bob uses Alice's ids for what he hands over."""
    back = calls(("mail", {"to": "eve"}), ("transfer_to_alice", {}), id="b1")
    alice = StrictModel(script=[calls(MAIL, TO_BOB, id="a1")])
    it = patched(swarm("react_v2", alice, StrictModel(script=[back]), asynchronous=True))
    it.say("go")
    assert validate_messages(it.history) == []
    texts, ids = [m.text for m in it.history], [m.id for m in it.history]
    assert ids.index("a1") < texts.index("sent to bob") < ids.index("b1")
    assert ids.index("b1") < texts.index("sent to eve")
    assert it.desk.did == {"mail bob": 1, "mail eve": 1}


def test_the_updates_of_a_nested_agent_that_is_repaired():
    """A damaged history, and an agent that is a node is next: its chunk has nothing twice."""
    bob = StrictModel()
    it = swarm("create_agent", StrictModel(), bob)
    damage = [HumanMessage("go"), calls(MAIL, TO_BOB), HumanMessage("hello?")]
    it.graph.update_state(it.config, {"messages": damage, "active_agent": "bob"}, as_node=START)
    it = patched(it, recover=False)
    chunks = it.stream(None)
    shown = [message.id for chunk in chunks for message in chunk["bob"]["messages"]]
    assert sorted(shown) == sorted(message.id for message in it.history)
    assert validate_messages(it.history) == []
