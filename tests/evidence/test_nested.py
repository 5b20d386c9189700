"""Whose results are listed as those inside a call."""

from __future__ import annotations

from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send, interrupt

from langgraph_patch import with_patching
from langgraph_patch._sansio import run_sync
from langgraph_patch.evidence.recover import recover_evidence
from langgraph_patch.history.calls import read_calls
from langgraph_patch.middleware import PatchToolCallsMiddleware
from langgraph_patch.threads import repair_thread
from support.agents import Tools, history, human, thread
from support.running import run, sync_and_async
from support.strict import RefusedError, StrictModel, ai


@pytest.mark.parametrize(("city", "listed"), [("Rome", 1), ("Oslo", 0)])
def test_results_inside_a_call_come_from_its_own_send(city: str, listed: int):
    """A `Send` with other arguments is that of another call with the id, of a run at once."""

    def inner(_: MessagesState) -> dict[str, list[AnyMessage]]:
        return {"messages": [ai(("look_up", {}, "i1"), id="inner")]}

    def look_up(_: MessagesState) -> dict[str, list[AnyMessage]]:
        return {"messages": [{"role": "tool", "content": "sunny", "tool_call_id": "i1"}]}

    def wait(_: MessagesState) -> None:
        interrupt("sure?")

    below = StateGraph(MessagesState).add_sequence([inner, look_up, wait]).add_edge(START, "inner")
    subagent = below.compile()

    def tools(_: object) -> dict[str, list[AnyMessage]]:
        return {"messages": subagent.invoke({"messages": [HumanMessage("go")]})["messages"][:0]}

    asked = ai(("task", {"city": "Rome"}, "c1"), id="a1")
    sent = {"name": "task", "args": {"city": city}, "id": "c1", "type": "tool_call"}
    builder = StateGraph(MessagesState).add_node("model", lambda _: {"messages": [asked]})
    builder.add_node("tools", tools).add_edge(START, "model")
    builder.add_conditional_edges("model", lambda _: [Send("tools", [sent])], ["tools"])
    graph = builder.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    graph.invoke({"messages": [HumanMessage("go")]}, config)
    place = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
    found = run_sync(recover_evidence(graph.checkpointer, place, [asked], read_calls(asked)))
    (finding,) = found.evidence.values()
    assert [text.endswith(": sunny") for text in finding.inner] == [True] * listed


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
