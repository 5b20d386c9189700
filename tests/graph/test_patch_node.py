"""`PatchNode`, placed by hand: what it reads, what it writes, what it refuses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Overwrite
from typing_extensions import TypedDict

from langgraph_patch import (
    DanglingCall,
    Patch,
    PatchNode,
    is_placeholder,
    patch_messages,
    patch_node,
    validate_messages,
)
from langgraph_patch.errors import GraphError, MessagesError, OptionError
from support.agents import Tools, both_calls, history, human, lines, react_v1, react_v2, thread
from support.open_calls import OPEN, REPAIRED, UNKNOWN_RESULTS, messages_in, model_saying
from support.placeholder_texts import UNKNOWN, WAITED
from support.schemas import Data, FrozenData, Model
from support.strict import StrictModel, ai


class Typed(TypedDict):
    """A state as a `TypedDict`."""

    messages: Annotated[list[AnyMessage], add_messages]


STATES = (Typed, Data, FrozenData, Model)
each_state = pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)


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


@each_state
@pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream", "astream"])
async def test_interrupt_then_a_new_message(state: Any, how: str):
    """A hand-placed node heals the thread, over every kind of state and every way to run it."""
    model = StrictModel(script=[both_calls(), AIMessage("fine"), AIMessage("yes?")])
    graph = build(model, state=state, tools=Tools(asynchronous=how.startswith("a")))

    async def run(text: str) -> None:
        value = {"messages": [human(text)]}
        if how == "ainvoke":
            await graph.ainvoke(value, thread())
        elif how == "astream":
            assert [chunk async for chunk in graph.astream(value, thread())]
        elif how == "stream":
            assert list(graph.stream(value, thread()))
        else:
            graph.invoke(value, thread())

    await run("book it")
    assert graph.get_state(thread()).next == ("tools",)
    await run("never mind")
    assert lines(history(graph, thread())) == [*REPAIRED, "ai: fine"]
    await run("hello")
    assert lines(history(graph, thread())) == [*REPAIRED, "ai: fine", "human: hello", "ai: yes?"]


def test_a_healthy_history_is_no_news():
    """No update, no message, no call of `on_patch`."""
    reported = []
    node = PatchNode(on_patch=lambda *seen: reported.append(seen))
    healthy = patch_messages(OPEN).messages
    graph = build(model_saying("fine"), node)
    chunks = list(graph.stream({"messages": healthy}, thread(), stream_mode="updates"))
    assert chunks[0] == {"patch_tool_calls": None}
    assert reported == []


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


def test_another_key():
    """The history may stand under any key."""

    class Chat(TypedDict):
        chat_history: Annotated[list[AnyMessage], add_messages]

    builder = StateGraph(Chat)
    builder.add_node("patch", PatchNode(messages_key="chat_history"))
    builder.add_edge(START, "patch")
    out = builder.compile().invoke({"chat_history": OPEN})
    assert lines(out["chat_history"]) == REPAIRED


def test_a_key_not_written_yet_is_an_empty_history():
    """A state that has the key but no value yet: nothing is done."""

    class Noted(MessagesState):
        note: str

    builder = StateGraph(Noted)
    builder.add_node("patch", patch_node)
    builder.add_edge(START, "patch")
    assert builder.compile().invoke({"note": "x"}) == {"note": "x", "messages": []}
    assert patch_node.invoke({"note": "x"}) is None


async def test_outside_of_a_graph():
    """As a plain runnable it returns the update that it would write."""
    update = patch_node.invoke({"messages": OPEN})
    assert list(update) == ["messages"]
    assert isinstance(update["messages"], Overwrite)
    assert lines(update["messages"].value) == REPAIRED
    assert await patch_node.ainvoke({"messages": OPEN}) == update
    assert await patch_node.ainvoke({"messages": OPEN[:1]}) is None


def test_the_same_history_gives_the_same_bytes():
    """Two threads with the same damage get the same placeholders: same ids, same texts."""
    graph = build(model_saying("fine", "fine"))
    for name in ("1", "2"):
        graph.invoke({"messages": OPEN}, thread(name))
    first, second = (history(graph, thread(name))[:5] for name in ("1", "2"))
    assert [(m.id, m.text) for m in first] == [(m.id, m.text) for m in second]
    assert [is_placeholder(m) for m in first] == [False, False, True, True, False]


# --- the prebuilt hook and the functional API --------------------------------------------


@pytest.mark.parametrize("make", [react_v1, react_v2])
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_pre_model_hook(make: Callable[..., Any], *, asynchronous: bool):
    """`create_react_agent(..., pre_model_hook=patch_node)`: the thread goes on, and on."""
    model = StrictModel(script=[both_calls(), AIMessage("fine"), AIMessage("yes?")])
    tools = Tools(asynchronous=asynchronous)
    graph = make(model, tools.tools(), pre_model_hook=patch_node, checkpointer=InMemorySaver())
    for text in ("book it", "never mind", "hello"):
        value = {"messages": [human(text)]}
        if asynchronous:
            await graph.ainvoke(value, thread())
        else:
            graph.invoke(value, thread())
    messages = history(graph, thread())
    results = [m.text for m in messages if isinstance(m, ToolMessage)]
    if make is react_v2:
        assert results == ["sent to bob", WAITED.format("wire_money", "c2")]
    else:
        assert [f"tool c{n}: {text}" for n, text in enumerate(results, 1)] == UNKNOWN_RESULTS
    assert validate_messages(messages) == []
    assert lines(messages)[4:] == ["human: never mind", "ai: fine", "human: hello", "ai: yes?"]


def test_pre_model_hook_sees_no_damage_in_parallel_calls():
    """Parallel tool calls meet before the hook runs: it finds nothing to do."""
    reported = []
    model = StrictModel(
        script=[
            ai(("send_email", {"to": "a"}, "c1"), ("send_email", {"to": "b"}, "c2")),
            AIMessage("done"),
        ]
    )
    hook = PatchNode(on_patch=lambda *seen: reported.append(seen))
    graph = react_v2(model, Tools().tools(), pre_model_hook=hook)
    out = graph.invoke({"messages": [human("go")]})
    assert lines(out["messages"])[2:] == ["tool c1: sent to a", "tool c2: sent to b", "ai: done"]
    assert reported == []


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


def test_on_patch_and_the_log_once_per_repair(caplog: pytest.LogCaptureFixture):
    """One call of `on_patch` with the patch and the config, and one line of log, per repair."""
    reported: list[tuple[Patch, RunnableConfig]] = []
    node = PatchNode(on_patch=lambda patch, config: reported.append((patch, config)))
    graph = build(model_saying("fine", "yes?"), node)
    with caplog.at_level(logging.INFO, logger="langgraph_patch"):
        graph.invoke({"messages": OPEN}, thread("t7"))
        graph.invoke({"messages": [human("hello")]}, thread("t7"))
    ((patch, config),) = reported
    assert [(c.kind, c.tool_call_id, c.cause) for c in patch.changes] == [
        ("inserted", "c1", "unknown"),
        ("inserted", "c2", "unknown"),
    ]
    assert config["configurable"]["thread_id"] == "t7"
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("langgraph_patch", "INFO")
    assert record.getMessage() == (
        "repaired thread 't7': inserted 'send_email' 'c1' (unknown); "
        "inserted 'wire_money' 'c2' (unknown)"
    )


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
