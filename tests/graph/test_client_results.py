"""Results that come with the input of a run: a client's own stay, known inventions give way."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch import with_patching
from langgraph_patch.history.placeholders import ASSISTANT_UI_TEXT
from support.agents import CREATE_AGENT, human, thread
from support.paused_agents import paused_agent
from support.running import run
from support.strict import StrictModel, ai


def results(messages: Any) -> dict[str, str]:
    """The text of each result."""
    return {m.tool_call_id: str(m.content) for m in messages if isinstance(m, ToolMessage)}


async def test_a_genuine_result_of_a_frontend_stays():
    """No task of the graph ran the call: the client's result is the only one."""
    call = ai(("ask_user", {}, "c1"), id="a1")
    model = StrictModel(script=[AIMessage("fine"), AIMessage("again")])
    saver = InMemorySaver()
    graph = with_patching(CREATE_AGENT.build(model, [], checkpointer=saver))
    graph.update_state(thread(), {"messages": [human("go"), call]}, as_node="__start__")
    answer = [ToolMessage("blue", tool_call_id="c1", id="r1")]
    await run(graph, [*answer, human("so?")])
    assert results(model.seen[-1]) == {"c1": "blue"}
    await run(graph, [*answer, human("and?")])  # a client that sends the history again
    assert results(model.seen[-1]) == {"c1": "blue"}


async def test_a_known_invention_gives_way():
    """What a client is known to invent is replaced by what the checkpoints recorded."""
    bench = await paused_agent(CREATE_AGENT, AIMessage("fine"))
    graph = with_patching(bench.graph)
    invented = [ToolMessage(ASSISTANT_UI_TEXT, tool_call_id=call) for call in ("c1", "c2")]
    await run(graph, [*invented, human("never mind")])
    assert results(bench.model.seen[-1])["c1"] == "sent to bob"


async def test_an_edited_result_is_left_alone():
    """An edit by `update_state` is no input, so the record does not replace it."""
    bench = await paused_agent(CREATE_AGENT, AIMessage("fine"))
    edited = [ToolMessage("edited", tool_call_id=call) for call in ("c1", "c2")]
    bench.graph.update_state(thread(), {"messages": edited}, as_node="tools")
    graph = with_patching(bench.graph)
    await run(graph, "and now?")
    assert results(bench.model.seen[-1]) == {"c1": "edited", "c2": "edited"}
