"""What the record of deepagents shows: old turns of its middleware, and its subagents."""

from __future__ import annotations

from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain_core.messages import AIMessage

from kit import Agent, StrictModel, calls
from langgraph_patch import with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.placeholder_texts import WAITED
from support.strict import RefusedError

MAIL, WIRE = ("mail", {"to": "bob"}), ("wire", {"amount": 5})
TASK = calls(("task", {"description": "pay the bill", "subagent_type": "clerk"}), first=9)


def deep(*clerk: AIMessage, middleware: Any = ()) -> Any:
    """A builder of a deep agent with a clerk."""

    def build(model: Any, tools: Any, saver: Any) -> Any:
        spec: Any = {
            "name": "clerk",
            "description": "a clerk",
            "system_prompt": "",
            "model": StrictModel(script=list(clerk)),
            "tools": tools,
            "middleware": list(middleware),
        }
        return with_patching(create_deep_agent(model, [], subagents=[spec], checkpointer=saver))

    return build


def test_the_model_reads_that_the_subagent_sent_the_mail():
    """The subagent waits for a human beside a mail that was sent; the user moves on."""
    agent = Agent(deep(calls(MAIL, WIRE)), TASK, asynchronous=True)
    agent.say("go")
    agent.say("never mind")
    assert agent.desk.did == {"mail bob": 1}
    inside = 'Recorded inside it: mail({"to": "bob"}): sent to bob'
    assert agent.read["c9"] == f"{WAITED.format('task', 'c9')} {inside}"


@pytest.mark.parametrize("middleware", [[], [PatchToolCallsMiddleware()]], ids=["bare", "covered"])
def test_a_subagent_needs_the_middleware(middleware: list[Any]):
    """A subagent that reads damage of its own dies without it, also in a patched graph."""
    again = [calls(MAIL), calls(("mail", {"to": "mia"})), AIMessage("mailed")]
    agent = Agent(deep(*again, middleware=middleware), TASK)
    if middleware:
        agent.say("go")
        assert agent.history[-1].text == "done"
    else:
        with pytest.raises(RefusedError, match="c1"):
            agent.say("go")
