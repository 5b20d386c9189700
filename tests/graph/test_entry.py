"""The entry check and `PatchNode`: what they read, what they write, what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import CachePolicy, Overwrite

from kit import BARE, Agent, above, calls, lines
from langgraph_patch import PatchNode, patch_node, validate_messages, with_patching
from langgraph_patch.errors import GraphError, MessagesError, OptionError
from support.placeholder_texts import UNKNOWN
from support.strict import refuse

BOTH = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}), id="a1")
GO, NEVER, HELLO = (HumanMessage(text, id=text) for text in ("go", "never mind", "hello"))
OPEN = [GO, BOTH, NEVER]
RESULTS = [f"tool c{n}: {UNKNOWN.format(t, f'c{n}')}" for n, t in ((1, "mail"), (2, "wire"))]
REPAIRED = ["human: go", "ai c1 c2: ", *RESULTS, "human: never mind"]


def ok(state: Any) -> dict[str, Any]:
    """A model node that refuses what a provider would refuse."""
    refuse(state["messages"])
    return {"messages": [AIMessage("ok")]}


# --- the entry check -----------------------------------------------------------------------


class Phased(MessagesState):
    """A state with a key that the input does not have."""

    phase: str


def test_a_router_of_start_reads_the_whole_state():
    """Also what the input schema does not have, in a damaged turn as in a valid one."""
    builder = StateGraph(Phased, input_schema=MessagesState)
    builder.add_node("model", lambda state: {**ok(state), "phase": "other"}).add_node("other", ok)
    builder.add_conditional_edges(START, lambda s: s.get("phase", "model"), ["model", "other"])
    graph = with_patching(builder, model_node=["model", "other"])
    graph = graph.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke({"messages": [GO]}, config)
    chunks = list(graph.stream({"messages": OPEN[1:]}, config))
    assert [node for chunk in chunks for node in chunk] == ["patch_tool_calls", "other"]


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


@pytest.mark.parametrize("limit", [2, 3])
def test_the_repair_does_not_count_against_the_recursion_limit(limit: int):
    """A damaged turn ends where a healthy turn of the bare graph does, at every limit."""
    bare = above(lambda _: None, ok).compile()
    for graph, messages in ((bare, [GO]), (with_patching(bare, model_node="node2"), OPEN)):
        config: Any = {"recursion_limit": limit}
        if limit < 3:
            with pytest.raises(GraphRecursionError):
                graph.invoke({"messages": messages}, config)
        else:
            assert graph.invoke({"messages": messages}, config)["messages"][-1].text == "ok"


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
    update = patch_node.invoke({"messages": OPEN})
    assert list(update) == ["messages"]
    assert isinstance(update["messages"], Overwrite)
    assert lines(update["messages"].value) == REPAIRED
    assert await patch_node.ainvoke({"messages": OPEN}) == update
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
        it.run({"messages": OPEN})
    assert it.history == OPEN
    with pytest.raises(OptionError, match="messages_key=3: expected the name of a state key"):
        PatchNode(messages_key=3)
