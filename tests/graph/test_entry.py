"""The entry check and `PatchNode`: what they read, what they write, what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.cache.memory import InMemoryCache
from langgraph.channels import EphemeralValue, Topic
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.func import entrypoint
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.managed import RemainingSteps
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import CachePolicy, Command, Overwrite
from typing_extensions import TypedDict

from langgraph_patch import (
    DanglingCall,
    PatchNode,
    patch_messages,
    patch_node,
    validate_messages,
    with_patching,
)
from langgraph_patch.errors import GraphError, MessagesError, OptionError
from support.agents import Tools, both_calls, history, human, lines, react_v1, react_v2, thread
from support.open_calls import (
    OPEN,
    REPAIRED,
    UNKNOWN_RESULTS,
    Data,
    FrozenData,
    Model,
    messages_in,
    model_saying,
)
from support.placeholder_texts import UNKNOWN, WAITED
from support.running import in_turn, run, run_by, sync_and_async
from support.strict import StrictModel, ai, refuse

DAMAGED = [human("go"), ai(("send_email", {"to": "b"}, "c1"), id="a1"), human("never mind")]


class Hinted(TypedDict):
    """A history, and what the input says of this run alone."""

    messages: Annotated[list[AnyMessage], add_messages]
    hint: Annotated[str, EphemeralValue(str)]
    papers: Annotated[list[str], Topic(str)]


def answer(state: Any) -> dict[str, Any]:
    """A model node that answers with the hints in its input."""
    refuse(state["messages"])
    return {"messages": [AIMessage(f"{state.get('hint')} {state.get('papers')}")]}


@pytest.mark.parametrize(
    ("value", "routed"),
    in_turn([{"hint": "H"}, {"papers": ["p"]}, {"hint": ""}, {}], [False, True]),
)
def test_what_lives_for_one_step_reaches_the_first_node(value: dict[str, Any], *, routed: bool):
    """In a damaged turn the first node sees what it sees in a valid one, and repairs the turn."""
    builder = StateGraph(Hinted).add_node("model", answer)
    if routed:
        builder.add_conditional_edges(START, lambda _: "model", ["model"])
    else:
        builder.add_edge(START, "model")
    graph = with_patching(builder.compile(checkpointer=InMemorySaver()), model_node="model")
    texts = []
    for place, messages in ("valid", [human("go")]), ("damaged", DAMAGED):
        graph.invoke({"messages": messages, **value}, thread(place))
        assert validate_messages(history(graph, thread(place))) == []
        texts.append(lines(history(graph, thread(place)))[-1])
    assert texts[0] == texts[1] == f"ai: {value.get('hint')} {value.get('papers')}"
    steps = [state.metadata["step"] for state in graph.get_state_history(thread("damaged"))]
    assert len(steps) == (3 if value else 4)


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_router_that_reads_what_no_channel_holds(*, asynchronous: bool):
    """LangGraph passes such a key to the routers of START, and to no node after them."""

    def model(state: Any) -> dict[str, Any]:
        refuse(state["messages"])
        return {"messages": [AIMessage("ok")]}

    builder = StateGraph(MessagesState).add_node("model", model).add_node("agent", model)
    builder.add_conditional_edges(START, lambda state: state["mode"], ["model", "agent"])
    graph = with_patching(
        builder.compile(checkpointer=InMemorySaver()), model_node=["model", "agent"]
    )
    graph.update_state(thread(), {"messages": DAMAGED}, as_node="model")
    value: Any = {"messages": [human("hello")], "mode": "agent"}
    update = await graph.ainvoke(value, thread()) if asynchronous else graph.invoke(value, thread())
    assert update["messages"][-1].content == "ok"
    assert validate_messages(history(graph, thread())) == []


def ok(state: Any) -> dict[str, Any]:
    """A model node that refuses what a provider would refuse."""
    refuse(state["messages"])
    return {"messages": [AIMessage("ok")]}


def test_all_ways_out_of_start_agree():
    """One branch bypasses the entry node while another goes there, which would start all again."""
    runs: list[str] = []
    builder = StateGraph(MessagesState)
    builder.add_node("log", lambda _: runs.append("log"))
    builder.add_node("model", lambda state: runs.append("model") or ok(state))
    builder.add_conditional_edges(START, lambda _: "model", ["model"]).add_edge(START, "log")
    value: Any = {"messages": DAMAGED, "extra": 1}
    graph = with_patching(builder.compile(checkpointer=InMemorySaver()), model_node="model")
    graph.invoke(value, thread())
    assert sorted(runs) == ["log", "model"]
    graph.invoke({"messages": [human("hello")]}, thread())
    assert validate_messages(history(graph, thread())) == []


class Managed(MessagesState):
    """A history, and what LangGraph itself fills in."""

    remaining_steps: RemainingSteps


class Question(MessagesState):
    """An input with a key that the state does not have."""

    question: str


def test_a_managed_value_is_no_input():
    """A node before the model sees the history already repaired."""
    builder = StateGraph(Managed).add_node("before", ok).add_node("model", ok)
    builder.add_conditional_edges(START, lambda _: "before", ["before"])
    builder.add_edge("before", "model")
    after = with_patching(builder.compile()).invoke({"messages": DAMAGED})["messages"]
    assert validate_messages(after) == []


def test_a_router_that_reads_a_key_of_the_input_alone():
    """After the entry node it would find the state alone."""
    builder = StateGraph(MessagesState, input_schema=Question).add_node("model", ok)
    builder.add_conditional_edges(START, lambda state: state["question"], ["model"])
    value: Any = {"messages": DAMAGED, "question": "model"}
    after = with_patching(builder.compile(), model_node="model").invoke(value)["messages"]
    assert lines(after)[-1] == "ai: ok"
    assert validate_messages(after) == []


def test_the_entry_check_is_never_answered_from_a_cache():
    """A result that one thread recorded is not used in another thread with the same messages."""
    model = StrictModel(script=[both_calls(), AIMessage("ok"), AIMessage("ok")])
    saver = InMemorySaver()
    bare = react_v2(model, Tools().tools()).builder
    bare.set_node_defaults(cache_policy=CachePolicy())
    bare.nodes.pop("__default_error_handler__", None)
    graph = with_patching(bare).compile(checkpointer=saver, cache=InMemoryCache())
    graph.invoke({"messages": [human("go")]}, thread("1"))
    old = history(graph, thread("1"))[:2]
    graph.invoke({"messages": [human("never mind")]}, thread("1"))
    graph.invoke({"messages": [*old, human("never mind")]}, thread("2"))
    reported = [lines(history(graph, thread(name)))[2] for name in ("1", "2")]
    assert reported == ["tool c1: sent to bob", f"tool c1: {UNKNOWN.format('send_email', 'c1')}"]


@pytest.mark.parametrize(("limit", "asynchronous"), in_turn([2, 3, 4], [False, True]))
async def test_the_repair_does_not_count_against_the_recursion_limit(
    limit: int, *, asynchronous: bool
):
    """A damaged turn ends where a healthy turn of the bare graph does, at every limit."""
    builder = StateGraph(MessagesState).add_node("first", lambda _: None).add_node("model", ok)
    builder.add_edge(START, "first").add_edge("first", "model").add_edge("model", END)
    bare = builder.compile()

    async def outcome(graph: Any, messages: list[Any]) -> str:
        config: Any = {"recursion_limit": limit}
        try:
            await run(graph, messages, asynchronous=asynchronous, config=config)
        except GraphRecursionError:
            return "limit"
        return "answered"

    healthy = await outcome(bare, [human("go")])
    assert await outcome(with_patching(bare, model_node="model"), [*DAMAGED]) == healthy
    assert (healthy == "answered") is (limit >= 3)


@sync_and_async
async def test_a_goto_that_runs_the_model_beside_the_repair(*, asynchronous: bool):
    """A run failed before its repair, and a client goes to the model: messages keep their order."""
    model = StrictModel(script=[AIMessage("first", id="a2"), AIMessage("second", id="a3")])
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_edge(START, "model")
    graph = with_patching(builder.compile(checkpointer=InMemorySaver()), model_node="model")
    stop = {"interrupt_before": ["patch_tool_calls"]}
    await run(graph, DAMAGED, asynchronous=asynchronous, **stop)
    await run(graph, Command(goto="model"), asynchronous=asynchronous)
    stored = graph.get_state(thread()).values["messages"]
    assert [message.type for message in stored] == ["human", "ai", "tool", "human", "ai", "ai"]
    assert [message.id for message in stored[-2:]] == ["a2", "a3"]
    assert validate_messages(stored) == []


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


def test_a_key_not_written_yet_is_an_empty_history():
    """A state that has the key but no value yet: nothing is done."""

    class Noted(MessagesState):
        note: str

    builder = StateGraph(Noted)
    builder.add_node("patch", patch_node)
    builder.add_edge(START, "patch")
    assert builder.compile().invoke({"note": "x"}) == {"note": "x", "messages": []}
    assert patch_node.invoke({"note": "x"}) is None


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
