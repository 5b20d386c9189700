"""`PatchedNode` around nodes that are graphs, stream, or rewrite the history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, RemoveMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import CachePolicy, Command, Overwrite, Send, interrupt

from kit import Agent, RunNames, StrictModel, above, calls, lines, loop, model_node, patched
from langgraph_patch import with_patching
from langgraph_patch.graph.node import PatchedNode
from langgraph_patch.graph.repairer import Repairer
from support.placeholder_texts import UNKNOWN
from support.strict import refuse

CALL = calls(("mail", {"to": "bob"}), id="a1")
GO, NEVER, HELLO = (HumanMessage(text, id=text) for text in ("go", "never mind", "hello"))
DAMAGED = [GO, CALL, NEVER]
UNKNOWN_RESULT = f"tool c1: {UNKNOWN.format('mail', 'c1')}"
REPAIRED = ["human: go", "ai c1: ", UNKNOWN_RESULT, "human: never mind"]


# --- a history of its own ---------------------------------------------------------------


def test_a_history_of_a_send_does_not_replace_the_stored_one():
    """Its repair is not written, also where both have as many messages."""

    def model(state: Any) -> Any:
        refuse(state["messages"])
        return {"messages": [AIMessage("ok", id="ok")]}

    builder = StateGraph(MessagesState).add_node("model", model).add_edge(START, "model")
    graph = with_patching(builder, model_node="model").compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.update_state(config, {"messages": [GO, AIMessage("a", id="a"), HELLO]}, as_node="model")
    graph.invoke(Command(goto=Send("model", {"messages": DAMAGED})), config)
    assert [m.id for m in graph.get_state(config).values["messages"]] == ["go", "a", "hello", "ok"]


# --- a graph that runs the tools ---------------------------------------------------------


def tools_if_approved(tools: Any) -> Any:
    """A node reads the calls, asks a human, and goes on."""

    def approve(state: Any) -> Any:
        assert interrupt(state["messages"][-1].tool_calls)
        return Command(goto="run")

    builder = StateGraph(MessagesState).add_node("run", ToolNode(tools))
    return builder.add_node("approve", approve, destinations=("run",)).add_edge(
        START, "approve"
    ).compile()  # fmt: skip


def test_a_graph_that_runs_the_tools():
    """Calls at the end of the history are its to run: nothing is repaired."""
    patches: list[Any] = []

    def build(model: Any, tools: Any, saver: Any) -> Any:
        builder = loop(model, tools)
        builder.nodes.pop("tools")
        return builder.add_node("tools", tools_if_approved(tools)).compile(checkpointer=saver)

    bare = Agent(build, CALL, asynchronous=True)
    it = patched(bare, on_patch=lambda *each: patches.append(each))
    it.say("go")
    it.resume()
    assert lines(it.history) == ["human: go", "ai c1: ", "tool c1: sent to bob", "ai: done"]
    assert it.desk.did == {"mail bob": 1}
    assert not patches


# --- what a node returns -------------------------------------------------------------------


def echoing(state: Any) -> Any:
    """Return the whole history and an answer."""
    refuse(state["messages"])
    return {"messages": [*state["messages"], AIMessage("ok", id="ok")]}


def overwriting(state: Any) -> Any:
    """Overwrite the history."""
    return {"messages": Overwrite(echoing(state)["messages"])}


def trimming(state: Any) -> Any:
    """Remove all that the node read but the last message."""
    gone = [RemoveMessage(id=message.id) for message in state["messages"][:-1]]
    return {"messages": [*gone, AIMessage("ok", id="ok")]}


@pytest.mark.parametrize("node", [echoing, overwriting, trimming])
def test_a_node_that_rewrites_the_history(node: Any):
    """It may have read placeholders that the state lacks; the thread goes on, and is valid."""
    it = Agent(lambda _, __, saver: above(node).compile(saver))
    it.graph.update_state(it.config, {"messages": DAMAGED}, as_node=START)
    it = patched(it, model_node="node1", recover=False)
    it.run(None)
    it.run({"messages": [HELLO]})
    refuse(it.history)
    after = [line for line in lines(it.history) if line != "ai: ok"]
    assert after == [*([] if node is trimming else REPAIRED), "human: hello"]


def test_a_model_node_that_goes_to_its_parent():
    """The parent has a history of its own: all of it stays."""

    def breaking(state: Any) -> Any:
        gone = [RemoveMessage(id=message.id) for message in state["messages"]]
        return {"messages": [*gone, CALL, HumanMessage("sub question")]}

    def handing(state: Any) -> Any:
        refuse(state["messages"])
        update = {"messages": [AIMessage("bye")]}
        return Command(goto="end", graph=Command.PARENT, update=update)

    inner = above(breaking, handing).compile()
    builder = StateGraph(MessagesState).add_node("sub", inner, destinations=("end",))
    builder.add_node("end", lambda _: None).add_edge(START, "sub")
    graph = with_patching(builder.compile(), model_node="sub.node2")
    after = graph.invoke({"messages": [GO, AIMessage("ok"), NEVER]})["messages"]
    assert lines(after) == ["human: go", "ai: ok", "human: never mind", "ai: bye"]


def test_a_node_whose_outputs_are_cached():
    """It repairs its input only: a cached output must not hold the history of one thread."""

    def build(model: Any, _: Any, saver: Any) -> Any:
        policy = CachePolicy(key_func=lambda _: b"same")
        builder = StateGraph(MessagesState).add_edge(START, "model")
        builder.add_node("model", model_node(model), cache_policy=policy)
        return builder.compile(checkpointer=saver, cache=InMemoryCache())

    it = patched(Agent(build), model_node="model", recover=False)
    for thread_id in ("1", "2"):
        it.config = {"configurable": {"thread_id": thread_id}}
        value = {"messages": DAMAGED if thread_id == "1" else [HELLO]}
        it.graph.update_state(it.config, value, as_node=START)
        it.run(None)
    assert lines(it.history) == ["human: hello", "ai: done"]
    assert len(it.model.seen) == 1


# --- what LangGraph knows a node by, and streams -----------------------------------------


async def test_a_chain_that_streams():
    """It streams as the bare node does, in a damaged turn too."""

    async def streamed(graph: Any, messages: Any) -> list[Any]:
        events = graph.astream_events({"messages": messages}, version="v2")
        kind = "on_parser_stream"
        return [event["data"]["chunk"] async for event in events if event["event"] == kind]

    model = StrictModel(script=[[AIMessageChunk("a "), AIMessageChunk("b")]] * 3)
    chain = RunnableLambda(lambda state: state["messages"]) | model | StrOutputParser()
    bare = above(chain | RunnableLambda(lambda text: {"messages": [AIMessage(text)]})).compile()
    for graph, messages in (
        (bare, [GO]),
        (with_patching(bare), [GO]),
        (with_patching(bare), DAMAGED),
    ):
        assert [part for part in await streamed(graph, messages) if part] == ["a ", "b"]


async def test_it_is_a_runnable_like_any():
    """However it is run, it repairs, and it adds no run of its own."""
    model, handler = StrictModel(), RunNames()
    inner = RunnableLambda(lambda state: {"messages": [model.invoke(state["messages"])]})
    wrapper = PatchedNode(inner, {"messages": Repairer()}, written=(), shown=())
    state, config = {"messages": DAMAGED}, {"callbacks": [handler]}

    async def parts() -> AsyncIterator[Any]:
        yield state

    outputs = [
        wrapper.invoke(state, config),
        *wrapper.stream(state, config),
        *wrapper.transform(iter([state]), config),
        await wrapper.ainvoke(state, config),
        *[part async for part in wrapper.astream(state, config)],
        *[part async for part in wrapper.atransform(parts(), config)],
    ]
    assert [lines(part["messages"]) for part in outputs] == [["ai: done"]] * 6
    assert [lines(seen) for seen in model.seen] == [REPAIRED] * 6
    assert handler.names == ["RunnableLambda"] * 6
