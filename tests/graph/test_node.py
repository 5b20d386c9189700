"""The entry check, `PatchNode` and `PatchedNode`: what they read, write and refuse.

Around nodes that are graphs, that stream, or that rewrite the history.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableLambda
from langgraph.cache.memory import InMemoryCache
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import CachePolicy, Command, Overwrite, Send

from kit import BARE, Agent, RunNames, StrictModel, above, calls, lines, loop, model_node, patched
from langgraph_patch import PatchNode, patch_node, validate_messages, with_patching
from langgraph_patch.errors import GraphError, MessagesError, OptionError
from langgraph_patch.graph.node import PatchedNode
from langgraph_patch.graph.repairer import Repairer
from support.placeholder_texts import UNKNOWN
from support.strict import refuse

MAIL = calls(("mail", {"to": "bob"}), id="a1")
BOTH = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}), id="a1")
GO, NEVER, HELLO = (HumanMessage(text, id=text) for text in ("go", "never mind", "hello"))
DAMAGED = [GO, BOTH, NEVER]
RESULTS = [f"tool c{n}: {UNKNOWN.format(t, f'c{n}')}" for n, t in ((1, "mail"), (2, "wire"))]
REPAIRED = ["human: go", "ai c1 c2: ", *RESULTS, "human: never mind"]


def ok(state: Any) -> dict[str, Any]:
    """A model node that refuses what a provider would refuse."""
    refuse(state["messages"])
    return {"messages": [AIMessage("ok")]}


# --- a key that only the input has ---------------------------------------------------------


class Question(MessagesState):
    """An input with a key that the state does not have."""

    question: str


@pytest.mark.parametrize("schema", [MessagesState, Question])
def test_a_router_that_reads_a_key_of_the_input_alone(schema: Any):
    """LangGraph passes it to the routers of START, and to no node after them."""
    builder = StateGraph(MessagesState, input_schema=schema)
    builder.add_node("model", ok).add_node("other", ok)
    builder.add_conditional_edges(START, lambda s: s["question"], ["model", "other"])
    graph = with_patching(builder.compile(), model_node=["model", "other"])
    after = graph.invoke({"messages": DAMAGED, "question": "other"})["messages"]
    assert lines(after) == [*REPAIRED, "ai: ok"]


# --- the superstep of the repair -----------------------------------------------------------


def test_the_entry_check_is_never_answered_from_a_cache():
    """A result that one thread recorded is not used in another thread with the same messages."""

    def build(model: Any, tools: Any, saver: Any) -> Any:
        bare = BARE["react_v2"](model, tools, None).builder
        bare.set_node_defaults(cache_policy=CachePolicy())
        bare.nodes.pop("__default_error_handler__", None)
        return with_patching(bare).compile(checkpointer=saver, cache=InMemoryCache())

    it = Agent(build, BOTH)
    it.say("go")
    old = it.history[:2]
    it.run({"messages": [NEVER]})
    assert it.results["c1"] == "sent to bob"
    it.config = {"configurable": {"thread_id": "2"}}
    it.run({"messages": [*old, NEVER]})
    assert it.results["c1"] == UNKNOWN.format("mail", "c1")


# --- a patch node that was placed by hand --------------------------------------------------


@pytest.mark.parametrize("kind", ["react_v1", "react_v2"])
def test_as_a_pre_model_hook(kind: str):
    """`create_react_agent(..., pre_model_hook=patch_node)`: the thread goes on, and on."""
    it = Agent(lambda *parts: BARE[kind](*parts, pre_model_hook=patch_node), BOTH)
    for text in ("go", "never mind", "hello"):
        it.say(text)
    recorded = kind == "react_v2"
    assert it.results["c1"] == ("sent to bob" if recorded else UNKNOWN.format("mail", "c1"))
    assert lines(it.history)[-4:] == ["human: never mind", "ai: done", "human: hello", "ai: done"]
    assert validate_messages(it.history) == []


async def test_outside_of_a_graph():
    """As a plain runnable it returns the update that it would write."""
    update = patch_node.invoke({"messages": DAMAGED})
    assert list(update) == ["messages"]
    assert isinstance(update["messages"], Overwrite)
    assert lines(update["messages"].value) == REPAIRED
    assert await patch_node.ainvoke({"messages": DAMAGED}) == update
    assert await patch_node.ainvoke({"messages": [GO]}) is None
    assert patch_node.invoke({"note": "no history yet"}) is None


# --- options and bad input -----------------------------------------------------------------


def test_a_value_that_is_no_list_of_messages():
    """The error names the key and the value."""
    with pytest.raises(MessagesError, match=r"State key 'messages': 'hello' is no list of mess"):
        patch_node.invoke({"messages": "hello"})


def test_a_key_that_the_state_does_not_have():
    """A hand-placed node with a wrong key says which keys there are, before it writes."""
    build = lambda _, __, saver: above(PatchNode(messages_key="chat")).compile(saver)
    it = Agent(build)
    with pytest.raises(GraphError, match=r"messages_key='chat'.*expected one of 'messages'"):
        it.run({"messages": DAMAGED})
    assert it.history == DAMAGED
    with pytest.raises(OptionError, match="messages_key=3: expected the name of a state key"):
        PatchNode(messages_key=3)


def beside(_: Any, __: Any, saver: Any) -> Any:
    """A patch node that starts together with another node."""
    builder = StateGraph(MessagesState).add_node("patch", PatchNode()).add_node("model", ok)
    builder.add_node("other", lambda _: None).add_edge(START, "other").add_edge(START, "patch")
    return builder.add_edge("patch", "model").compile(checkpointer=saver)


def in_a_function(_: Any, __: Any, saver: Any) -> Any:
    """A function that calls the patch node."""
    return above(RunnableLambda(patch_node.invoke), ok).compile(checkpointer=saver)


@pytest.mark.parametrize("build", [beside, in_a_function])
def test_a_patch_node_in_a_place_where_messages_would_be_lost(build: Any):
    """The first run says what to do, also of a valid history; nothing is written."""
    it = Agent(build)
    with pytest.raises(GraphError, match="add it as a node of its own that runs alone"):
        it.say("go")
    assert lines(it.history) == ["human: go"]
    assert patch_node.invoke({"messages": DAMAGED})["messages"].value != DAMAGED


def enrichment(model: Any, tools: Any, saver: Any) -> Any:
    """An answer tool that no `ToolNode` has, and a node behind it that may fail."""

    class Research(MessagesState):
        topic: str

    def check(state: Any) -> Any:
        if state["topic"] == "bad":
            raise RuntimeError("no such topic")
        call = state["messages"][-1].tool_calls[0]
        return {"messages": [ToolMessage("ok", tool_call_id=call["id"])]}

    def where(state: Any) -> Any:
        names = [call["name"] for call in state["messages"][-1].tool_calls]
        return "check" if names == ["Info"] else "tools" if "mail" in names else END

    builder = StateGraph(Research).add_node("agent", model_node(model)).add_node("check", check)
    builder.add_node("tools", ToolNode(tools)).add_edge(START, "agent").add_edge("tools", "agent")
    builder.add_conditional_edges("agent", where, ["check", "tools", END])
    return with_patching(builder.compile(checkpointer=saver))


def test_b3_a_call_that_no_tool_node_has_and_whose_node_failed():
    """An input ended the task that would have answered it: it is answered, and no frontend's."""
    it = Agent(enrichment, calls(("Info", {"text": "x"})), "ok", calls(("Info", {}), first=2))
    it.model.script[1] = AIMessage("again")
    with pytest.raises(RuntimeError, match="no such topic"):
        it.run({"topic": "bad"})
    it.run({"topic": "good"})
    assert it.model.seen[-1][-1].type == "tool"
    assert it.history[-1].text == "again"


# --- a history of its own ---------------------------------------------------------------


def test_a_history_of_a_send_does_not_replace_the_stored_one():
    """Its repair is not written, also where both have as many messages."""
    it = patched(Agent(lambda _, __, saver: above(ok).compile(saver)), model_node="node1")
    it.graph.update_state(it.config, {"messages": [GO, AIMessage("a"), HELLO]}, as_node="node1")
    it.run(Command(goto=Send("node1", {"messages": DAMAGED})))
    assert lines(it.history) == ["human: go", "ai: a", "human: hello", "ai: ok"]


# --- a graph that runs the tools ---------------------------------------------------------


def test_a_graph_that_runs_the_tools():
    """Calls at the end of the history are its to run: nothing is repaired."""
    patches: list[Any] = []

    def build(model: Any, tools: Any, saver: Any) -> Any:
        builder = loop(model, tools)
        builder.nodes.pop("tools")
        graph = above(ToolNode(tools)).compile()
        return builder.add_node("tools", graph).compile(checkpointer=saver)

    it = Agent(build, MAIL, asynchronous=True)
    it = patched(it, on_patch=lambda *each: patches.append(each))
    it.say("go")
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
        return {"messages": [*gone, MAIL, HumanMessage("sub question")]}

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
