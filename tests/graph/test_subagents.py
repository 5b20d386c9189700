"""deepagents' subagents: what they finished is listed, and how they are covered.

The tool `task` runs agents that are no nodes of the graph. `with_patching` cannot reach them; the
middleware in each of them does.
"""

from __future__ import annotations

from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch import with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from langgraph_patch.threads import repair_thread
from support.agents import Tools, history, human, thread
from support.running import run, sync_and_async
from support.strict import RefusedError, StrictModel, ai

TASK = ai(("task", {"description": "pay the bill", "subagent_type": "clerk"}, "t1"), id="a1")
MAIL = ("send_email", {"to": "bob"}, "c1")
WIRE = ("wire_money", {"amount": 5}, "c2")
SENT = 'send_email({"to": "bob"}): sent to bob'


def deep_agent(
    *script: AIMessage, clerk: list[Any], tools: Tools, middleware: Any = ()
) -> tuple[Any, StrictModel]:
    """A deep agent with a clerk, and the model of the main agent."""
    model = StrictModel(script=[TASK, *script])
    spec: Any = {
        "name": "clerk",
        "description": "a clerk",
        "system_prompt": "",
        "model": StrictModel(script=clerk),
        "tools": tools.tools(),
        "middleware": list(middleware),
    }
    return create_deep_agent(model, [], subagents=[spec], checkpointer=InMemorySaver()), model


def read_about_the_task(model: StrictModel) -> str:
    """What the main agent's model read last as the result of `task`."""
    return next(str(m.content) for m in model.seen[-1] if isinstance(m, ToolMessage))


@sync_and_async
async def test_the_model_reads_that_the_subagent_sent_the_mail(*, asynchronous: bool):
    """The subagent waits for a human beside a mail that was sent; the user moves on."""
    tools = Tools(asynchronous=asynchronous)
    bare, model = deep_agent(AIMessage("fine"), clerk=[ai(MAIL, WIRE)], tools=tools)
    graph = with_patching(bare)
    await run(graph, "go", asynchronous=asynchronous)
    await run(graph, "never mind", asynchronous=asynchronous)
    assert tools.done == ["mail to bob"]
    assert read_about_the_task(model) == (
        "Tool call task with id t1 was waiting for human input when another message came in; "
        f"no answer and no result were recorded. Recorded inside it: {SENT}"
    )


def test_a_repaired_thread_has_it_too():
    """`repair_thread` writes the same text."""
    bare, _ = deep_agent(clerk=[ai(MAIL, WIRE)], tools=Tools())
    bare.invoke({"messages": [human("go")]}, thread())
    repaired = repair_thread(bare, thread(), on_pause="abandon", min_age=0)
    assert repaired.outcome == "repaired"
    (result,) = [m for m in history(bare, thread()) if isinstance(m, ToolMessage)]
    assert str(result.content).endswith(f" Recorded inside it: {SENT}")


def test_an_id_that_the_subagent_uses_again():
    """Each message of the subagent begins with the same id; no result hides another."""
    clerk = [ai(MAIL), ai(("send_email", {"to": "mia"}, "c1"), WIRE)]
    patching = [PatchToolCallsMiddleware()]
    bare, model = deep_agent(AIMessage("fine"), clerk=clerk, tools=Tools(), middleware=patching)
    graph = with_patching(bare)
    graph.invoke({"messages": [human("go")]}, thread())
    graph.invoke({"messages": [human("never mind")]}, thread())
    later = 'send_email({"to": "mia"}): sent to mia'
    assert read_about_the_task(model).endswith(f" Recorded inside it: {later}; {SENT}")


def test_more_results_than_are_listed():
    """The newest eight are listed, and the number of the others."""
    mails = [("send_email", {"to": f"p{n}"}, f"c{n}") for n in range(10)]
    bare, model = deep_agent(AIMessage("fine"), clerk=[ai(*mails, (*WIRE[:2], "w"))], tools=Tools())
    graph = with_patching(bare)
    graph.invoke({"messages": [human("go")]}, thread())
    graph.invoke({"messages": [human("never mind")]}, thread())
    text = read_about_the_task(model)
    assert text.count("send_email(") == 8
    assert text.endswith("; (+2)")


@pytest.mark.parametrize("middleware", [[], [PatchToolCallsMiddleware()]], ids=["bare", "covered"])
def test_a_subagent_needs_the_middleware(middleware: list[Any]):
    """A subagent that reads damage of its own dies without it, also in a patched graph."""
    again = [ai(MAIL), ai(("send_email", {"to": "mia"}, "c1")), AIMessage("mailed")]
    bare, _ = deep_agent(AIMessage("fine"), clerk=again, tools=Tools(), middleware=middleware)
    graph = with_patching(bare)
    if middleware:
        graph.invoke({"messages": [human("go")]}, thread())
        assert history(graph, thread())[-1].text == "fine"
    else:
        with pytest.raises(RefusedError, match="c1"):
            graph.invoke({"messages": [human("go")]}, thread())
