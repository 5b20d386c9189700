"""Results that come with the input of a run are compared with the record of their calls."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch import with_patching
from support.agents import CREATE_AGENT, REACT_V2, history, human, thread
from support.paused_agents import paused_agent
from support.running import run, sync_and_async
from support.savers import each_saver
from support.strict import StrictModel, ai


def results(messages: Any) -> dict[str, str]:
    """The text of each result."""
    return {m.tool_call_id: str(m.content) for m in messages if isinstance(m, ToolMessage)}


def invented() -> list[Any]:
    """An unknown client answers both calls by itself, before its new message."""
    return [ToolMessage("done by the client", tool_call_id=call) for call in ("c1", "c2")]


@each_saver
@pytest.mark.parametrize("kind", [REACT_V2, CREATE_AGENT], ids=lambda kind: kind.name)
async def test_a_recorded_result_replaces_an_invention(kind: Any, open_saver: Any):
    """The mail was sent, and the model reads so; nothing is recorded about the other call."""
    with open_saver() as saver:
        bench = await paused_agent(kind, AIMessage("fine"), saver=saver, durability="sync")
        graph = with_patching(bench.graph)
        await run(graph, [*invented(), human("never mind")])
        assert results(bench.model.seen[-1]) == {"c1": "sent to bob", "c2": "done by the client"}
        assert bench.tools.done == ["mail to bob"]


@sync_and_async
async def test_dicts_with_ids(*, asynchronous: bool):
    """Clients send JSON."""
    bench = await paused_agent(CREATE_AGENT, AIMessage("fine"), asynchronous=asynchronous)
    patches = []
    graph = with_patching(bench.graph, on_patch=lambda patch, _: patches.append(patch))
    sent = [
        {"role": "tool", "content": "done by the client", "tool_call_id": call, "id": call * 2}
        for call in ("c1", "c2")
    ]
    await run(
        graph,
        {"messages": [*sent, {"role": "user", "content": "hm"}]},
        asynchronous=asynchronous,
    )
    assert results(history(graph, thread()))["c1"] == "sent to bob"
    replaced = [change.before.content for change in patches[0].changes if change.before]
    assert replaced == ["done by the client"]


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


async def test_turns_without_results_pay_nothing():
    """A valid history and an input without results: the checkpointer is not searched."""
    saver = InMemorySaver()
    model = StrictModel(script=[AIMessage("one"), AIMessage("two")])
    graph = with_patching(CREATE_AGENT.build(model, [], checkpointer=saver))
    await run(graph, "hi")
    steps = len(list(saver.list(thread())))
    await run(graph, "hi again")
    assert len(list(saver.list(thread()))) == 2 * steps
    nodes = [step.next for step in graph.get_state_history(thread())]
    assert ("patch_tool_calls",) not in nodes


async def test_an_edited_result_is_left_alone():
    """An edit by `update_state` is no input, so the record does not replace it."""
    bench = await paused_agent(CREATE_AGENT, AIMessage("fine"))
    edited = [ToolMessage("edited", tool_call_id=call) for call in ("c1", "c2")]
    bench.graph.update_state(thread(), {"messages": edited}, as_node="tools")
    graph = with_patching(bench.graph)
    await run(graph, "and now?")
    assert results(bench.model.seen[-1]) == {"c1": "edited", "c2": "edited"}


async def test_two_routers_of_start():
    """The repair runs once, whatever leads away from START."""
    bench = await paused_agent(REACT_V2, AIMessage("fine"))
    saver = bench.graph.checkpointer
    builder = bench.graph.builder
    for number in (1, 2):
        builder.add_conditional_edges("__start__", _router(number), {"agent": REACT_V2.model_node})
    patches = []
    graph = with_patching(
        builder.compile(checkpointer=saver), on_patch=lambda patch, _: patches.append(patch)
    )
    await run(graph, [*invented(), human("never mind")])
    assert len(patches) == 1
    assert results(bench.model.seen[-1])["c1"] == "sent to bob"


def _router(number: int) -> Any:
    def router(_: Any) -> str:
        return "agent"

    router.__name__ = f"router_{number}"
    return router
