"""What the record of deepagents shows of its subagents."""

from typing import Any

from deepagents import create_deep_agent

from kit import Agent, StrictModel, calls
from langgraph_patch import with_patching
from support.placeholder_texts import WAITED

MAIL, WIRE = ("mail", {"to": "bob"}), ("wire", {"amount": 5})
TASK = calls(("task", {"description": "pay the bill", "subagent_type": "clerk"}), first=9)


def deep(model: Any, tools: Any, saver: Any) -> Any:
    """A deep agent with a clerk, who sends a mail and asks a human."""
    clerk: Any = {"name": "clerk", "description": "a clerk", "system_prompt": "", "tools": tools}
    clerk["model"] = StrictModel(script=[calls(MAIL, WIRE)])
    return with_patching(create_deep_agent(model, [], subagents=[clerk], checkpointer=saver))


def test_the_model_reads_that_the_subagent_sent_the_mail():
    """The subagent waits for a human beside a mail that was sent; the user moves on."""
    agent = Agent(deep, TASK, asynchronous=True)
    agent.say("go")
    agent.say("never mind")
    assert agent.desk.did == {"mail bob": 1}
    inside = 'Recorded inside it: mail({"to": "bob"}): sent to bob'
    assert agent.read["c9"] == f"{WAITED.format('task', 'c9')} {inside}"
