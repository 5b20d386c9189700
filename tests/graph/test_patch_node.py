"""`PatchNode`, placed by hand: what it reads, what it writes, what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Overwrite
from typing_extensions import TypedDict

from langgraph_patch import (
    DanglingCall,
    PatchNode,
    patch_messages,
    patch_node,
    validate_messages,
)
from langgraph_patch.errors import GraphError, MessagesError, OptionError
from support.agents import Tools, both_calls, history, human, lines, react_v1, react_v2, thread
from support.open_calls import OPEN, REPAIRED, UNKNOWN_RESULTS, messages_in, model_saying
from support.placeholder_texts import UNKNOWN, WAITED
from support.running import in_turn, run, run_by
from support.schemas import Data, FrozenData, Model
from support.strict import StrictModel


class Typed(TypedDict):
    """A state as a `TypedDict`."""

    messages: Annotated[list[AnyMessage], add_messages]


STATES = (Typed, Data, FrozenData, Model)


def build(
    model: StrictModel, node: Any = patch_node, state: Any = Typed, tools: Tools | None = None
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """START -> patch_tool_calls -> model <-> tools."""
    builder = StateGraph(state)
    builder.add_node("patch_tool_calls", node)
    builder.add_node("model", lambda s: {"messages": [model.invoke(messages_in(s))]})
    builder.add_node("tools", ToolNode((tools or Tools()).tools()))
    builder.add_edge(START, "patch_tool_calls")
    builder.add_edge("patch_tool_calls", "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "patch_tool_calls")
    return builder.compile(checkpointer=InMemorySaver())


# --- in a graph --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "how"), in_turn(STATES, ["invoke", "ainvoke", "stream", "astream"])
)
async def test_interrupt_then_a_new_message(state: Any, how: str):
    """A hand-placed node heals the thread, over every kind of state and every way to run it."""
    model = StrictModel(script=[both_calls(), AIMessage("fine"), AIMessage("yes?")])
    graph = build(model, state=state, tools=Tools(asynchronous=how.startswith("a")))

    await run_by(graph, "book it", how)
    assert graph.get_state(thread()).next == ("tools",)
    await run_by(graph, "never mind", how)
    assert lines(history(graph, thread())) == [*REPAIRED, "ai: fine"]
    await run_by(graph, "hello", how)
    assert lines(history(graph, thread())) == [*REPAIRED, "ai: fine", "human: hello", "ai: yes?"]


def test_the_node_answers_calls_at_the_tail():
    """Directly before the model, no other node will answer them."""
    graph = build(model_saying("fine"))
    graph.invoke({"messages": OPEN[:2]}, thread())
    assert lines(history(graph, thread())) == [
        "human: book it",
        "ai c1 c2: ",
        *UNKNOWN_RESULTS,
        "ai: fine",
    ]


async def test_outside_of_a_graph():
    """As a plain runnable it returns the update that it would write."""
    update = patch_node.invoke({"messages": OPEN})
    assert list(update) == ["messages"]
    assert isinstance(update["messages"], Overwrite)
    assert lines(update["messages"].value) == REPAIRED
    assert await patch_node.ainvoke({"messages": OPEN}) == update
    assert await patch_node.ainvoke({"messages": OPEN[:1]}) is None


# --- the prebuilt hook and the functional API --------------------------------------------


@pytest.mark.parametrize(("make", "asynchronous"), in_turn([react_v1, react_v2], [False, True]))
async def test_pre_model_hook(make: Callable[..., Any], *, asynchronous: bool):
    """`create_react_agent(..., pre_model_hook=patch_node)`: the thread goes on, and on."""
    model = StrictModel(script=[both_calls(), AIMessage("fine"), AIMessage("yes?")])
    tools = Tools(asynchronous=asynchronous)
    graph = make(model, tools.tools(), pre_model_hook=patch_node, checkpointer=InMemorySaver())
    for text in ("book it", "never mind", "hello"):
        await run(graph, text, asynchronous=asynchronous)
    messages = history(graph, thread())
    results = [m.text for m in messages if isinstance(m, ToolMessage)]
    if make is react_v2:
        assert results == ["sent to bob", WAITED.format("wire_money", "c2")]
    else:
        assert [f"tool c{n}: {text}" for n, text in enumerate(results, 1)] == UNKNOWN_RESULTS
    assert validate_messages(messages) == []
    assert lines(messages)[4:] == ["human: never mind", "ai: fine", "human: hello", "ai: yes?"]


def test_in_an_entrypoint():
    """Inside an `@entrypoint` the pure function does it."""
    model = StrictModel(script=[both_calls(), AIMessage("fine")])

    @entrypoint(checkpointer=InMemorySaver())
    def chat(output: HumanMessage, *, previous: Any = None) -> Any:
        messages = patch_messages([*(previous or []), output]).messages
        messages = [*messages, model.invoke(messages)]
        return entrypoint.final(value=lines(messages), save=messages)

    assert chat.invoke(human("book it"), thread()) == ["human: book it", "ai c1 c2: "]
    assert chat.invoke(human("never mind"), thread()) == [*REPAIRED, "ai: fine"]


# --- options -----------------------------------------------------------------------------


def texts(node: PatchNode, graph: Any = None) -> list[str]:
    """What the node says of the two open calls."""
    out = build(model_saying("fine"), node).invoke({"messages": OPEN}, thread())
    return [m.text for m in out["messages"] if isinstance(m, ToolMessage)]


def test_placeholder_texts():
    """One text, a text for some causes, or a callable; the rest is as by default."""
    unknown = [UNKNOWN.format("send_email", "c1"), UNKNOWN.format("wire_money", "c2")]
    assert texts(PatchNode(placeholder="gone")) == ["gone", "gone"]
    assert texts(PatchNode(placeholder={"unknown": "who knows"})) == ["who knows"] * 2
    assert texts(PatchNode(placeholder={"failed": "no"})) == unknown

    def say(call: DanglingCall) -> str:
        return f"{call.name} {dict(call.args)} {call.cause}"

    assert texts(PatchNode(placeholder=say)) == [
        "send_email {'to': 'bob'} unknown",
        "wire_money {'amount': 3} unknown",
    ]


# --- bad input ---------------------------------------------------------------------------


def test_bad_options():
    """Each option names its value and what it may be, when the node is made."""
    cases: dict[str, Any] = {
        "recover": "yes",
        "placeholder": 3,
        "messages_key": "",
        "on_patch": "print",
    }
    for option, value in cases.items():
        with pytest.raises(OptionError, match=f"{option}={value!r}: expected"):
            PatchNode(**{option: value})
    with pytest.raises(OptionError, match="expected a text for one of the causes"):
        PatchNode(placeholder={"lost": "x"})


@pytest.mark.parametrize("value", ["hello", 3, {"role": "user"}])
def test_a_value_that_is_no_list_of_messages(value: Any):
    """The error names the key and the value."""
    with pytest.raises(MessagesError, match=r"'messages'.*no list of messages") as caught:
        patch_node.invoke({"messages": value})
    assert repr(value) in str(caught.value)


async def test_a_key_that_the_state_does_not_have():
    """A hand-placed node with a wrong key says which keys there are, before it writes."""
    builder = StateGraph(MessagesState)
    builder.add_node("patch", PatchNode(messages_key="chat"))
    builder.add_edge(START, "patch")
    graph = builder.compile(checkpointer=InMemorySaver())
    with pytest.raises(GraphError, match=r"messages_key='chat'.*expected one of 'messages'"):
        graph.invoke({"messages": OPEN}, thread())
    with pytest.raises(GraphError, match="messages_key='chat'"):
        await graph.ainvoke({"messages": OPEN}, thread("2"))
    assert history(graph, thread()) == OPEN
