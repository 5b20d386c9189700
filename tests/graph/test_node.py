"""The entry check, `PatchNode` and `PatchedNode`: what they read, write and refuse.

A repair is written under every reducer and in every form of output. Clients see one dict for each
node: first the new tool messages, then what the node itself wrote, as in a healthy turn. Nobody
sees an `Overwrite` or a `RemoveMessage` of ours, and nothing else is lost.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableGenerator, RunnableLambda, RunnableSequence
from langgraph.cache.memory import InMemoryCache
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import push_message
from langgraph.types import CachePolicy, Command, Overwrite, Send
from typing_extensions import TypedDict

from kit import (
    BARE,
    Agent,
    DeltaChannel,
    DeltaState,
    PydanticState,
    RunNames,
    StrictModel,
    above,
    calls,
    lines,
    patched,
    refuses,
)
from langgraph_patch import PatchNode, patch_model, patch_node, validate_messages, with_patching
from langgraph_patch._langgraph.run import Run
from langgraph_patch.errors import GraphError, MessagesError, OptionError
from langgraph_patch.graph.node import PatchedNode
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from langgraph_patch.repairing.repairer import Repairer
from langgraph_patch.repairing.writing import NodeOutput
from langgraph_patch.state import messages_in, replace_values, values_in
from support.placeholder_texts import UNKNOWN

BOTH = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}), id="a1")
GO, NEVER, HELLO = (HumanMessage(text, id=text) for text in ("go", "never mind", "hello"))
DAMAGED = [GO, BOTH, NEVER]
RESULTS = [f"tool c{n}: {UNKNOWN.format(t, f'c{n}')}" for n, t in ((1, "mail"), (2, "wire"))]
REPAIRED = ["human: go", "ai c1 c2: ", *RESULTS, "human: never mind"]
FINE = AIMessage("fine", id="a2")


def returning(output: Any) -> Callable[[Any], Any]:
    """A model node that refuses a broken history and returns `output`."""
    return lambda state: refuses(state["messages"]) or output


answering = returning({"messages": [FINE]})


def shown(value: Any) -> Any:
    """A chunk with each message as a line."""
    if isinstance(value, dict):
        return {key: shown(part) for key, part in value.items()}
    if isinstance(value, list):
        return [shown(part) for part in value]
    if isinstance(value, Overwrite):
        return ["overwrite", shown(value.value)]
    return lines([value])[0] if hasattr(value, "type") else value


def repairing(place: str, *, recover: bool = False) -> Agent:
    """A graph with a model node, and a node that only repairs."""
    nodes = [PatchNode(recover=False)] if place == "node1" else []
    it = Agent(lambda _, __, saver: above(*nodes, answering).compile(saver))
    return it if nodes else patched(it, recover=recover)


@pytest.mark.parametrize(
    ("place", "model", "asynchronous"),
    [("patch_tool_calls", "node1", False), ("node1", "node2", True)],
)
def test_a_node_that_only_repairs(place: str, model: str, *, asynchronous: bool):
    """Clients see one dict with the new results; `values` has the whole history."""
    it = repairing(place)
    it.asynchronous = asynchronous
    it.graph.update_state(it.config, {"messages": [GO, BOTH]}, as_node=model)
    seen = it.stream({"messages": [NEVER]}, ["updates", "messages", "values", "custom"])
    chunks = {mode: [chunk for of, chunk in seen if of == mode] for mode in dict(seen)}
    updates = [shown(chunk) for chunk in chunks["updates"]]
    assert updates == [{place: {"messages": RESULTS}}, {model: {"messages": ["ai: fine"]}}]
    assert lines([m for m, _ in chunks["messages"]]) == [*RESULTS, "ai: fine"]
    values = [lines(chunk["messages"]) for chunk in chunks["values"][-2:]]
    assert values == [REPAIRED, [*REPAIRED, "ai: fine"]]
    assert "custom" not in chunks


def new_only(left: list[Any], right: list[Any]) -> list[Any]:
    """A reducer that appends what is not there yet, and knows no `RemoveMessage`."""
    return [*left, *(m for m in right if m.id not in {old.id for old in left})]


def appended(left: list[Any], writes: list[Any]) -> list[Any]:
    """The reducer of a `DeltaChannel` that does not know a message again."""
    return [*left, *chain.from_iterable(writes)]


def history_with(reducer: Any) -> Any:
    """A state with a reducer."""
    key: Any = Annotated[list[AnyMessage], reducer] if reducer else list[AnyMessage]
    return TypedDict("History", {"messages": key})  # type: ignore[misc]


REDUCERS: dict[str, Any] = {
    "add_messages": MessagesState,
    "delta": DeltaState,
    "operator_add": history_with(operator.add),
    "new_only": history_with(new_only),
    "none": history_with(None),
    "in_place": history_with(operator.iadd),
    "delta-appended": history_with(DeltaChannel(appended)),
}
"""The state of each graph, by the name of its reducer."""


def reducing(name: str, *beside: str) -> Callable[..., Any]:
    """How to build a model node, and nodes in the same superstep that say their names."""

    def build(model: Any, _: Any, saver: Any) -> Any:
        def call(state: Any) -> Any:
            answer = model.invoke(state["messages"])
            return {"messages": [*state["messages"], answer] if name == "none" else [answer]}

        builder = StateGraph(REDUCERS[name]).add_node("model", call).add_edge(START, "model")
        for each in beside:
            say = lambda s, n=each: {"messages": [HumanMessage(n, id=f"{n}{len(s['messages'])}")]}
            builder.add_node(each, say).add_edge(START, each)
        return builder.compile(checkpointer=saver)

    return build


def message_under(name: str, it: Agent, message: Any) -> dict[str, Any]:
    """An input with one more message; without a reducer the input is the whole history."""
    return {"messages": [*(it.history if name == "none" else []), message]}


@pytest.mark.parametrize("name", REDUCERS)
def test_the_entry_check_under_every_reducer(name: str):
    """The repair has a superstep of its own: no other node's message is lost, nor the answer."""
    beside = () if name == "none" else ("a_note", "z_note")
    it = patched(Agent(reducing(name, *beside), FINE), recover=False)
    it.graph.update_state(it.config, {"messages": [GO, BOTH]}, as_node="model")
    chunks = it.stream(message_under(name, it, NEVER), "messages")
    streamed = [message for message, _ in chunks if message.text]
    assert lines(streamed)[:2] == RESULTS
    assert sum(isinstance(message, ToolMessage) for message in streamed) == 2
    notes = [] if name == "none" else ["human: a_note", "human: z_note"]
    assert lines(it.history) == [*REPAIRED, *notes[:1], "ai: fine", *notes[1:]]
    assert [lines(seen) for seen in it.model.seen] == [REPAIRED]
    assert not any(isinstance(m, RemoveMessage) for m in it.history)


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        *((name, ()) for name in REDUCERS),
        *((name, ("a_note", "z_note")) for name in ("add_messages", "operator_add")),
    ],
)
def test_a_model_node_under_every_reducer(name: str, beside: Any):
    """The model reads a valid history; the node or START writes it, and nothing is lost."""
    it = Agent(reducing(name, *beside), FINE, AIMessage("yes?", id="a3"))
    it.graph.update_state(it.config, {"messages": DAMAGED}, as_node=START)
    it = patched(it, model_node="model", recover=False)
    it.run(None)
    assert [lines(seen) for seen in it.model.seen] == [REPAIRED]
    said = ["human: a_note", "ai: fine", "human: z_note"] if beside else ["ai: fine"]
    written = REPAIRED if not beside else [*lines([GO, BOTH]), "human: never mind"]
    assert lines(it.history) == [*written, *said]
    it.run(message_under(name, it, HELLO))
    turn = [*REPAIRED, *said, "human: hello"]
    assert lines(it.model.seen[-1]) == turn
    said[said.index("ai: fine")] = "ai: yes?"
    assert lines(it.history) == [*turn, *said]
    assert not any(isinstance(m, RemoveMessage) for m in it.history)


@pytest.mark.parametrize("name", [name for name in REDUCERS if name != "none"])
@pytest.mark.parametrize("place", ["START", "model", "refused"])
async def test_events_and_traces_show_messages(name: str, place: str):
    """No `Overwrite`: the node returns what it returns in any other run, the patch node nothing."""
    it = Agent(reducing(name), FINE)
    history: list[Any] = DAMAGED if place != "refused" else [GO, AIMessage(""), HELLO]
    stored, sent = (history, []) if place == "model" else (history[:2], history[2:])
    it.graph.update_state(it.config, {"messages": stored}, as_node=START)
    value: Any = {"messages": sent} if sent else None
    found = patched(it, recover=False).graph.astream_events(value, it.config, version="v2")
    ended = {e["name"]: e["data"].get("output") async for e in found if "end" in e["event"]}
    assert ended.get("patch_tool_calls", "not run") == (None if place == "START" else "not run")
    is_last = name == "delta-appended" and place != "START"  # for an old LangGraph
    assert shown(ended["model"][0] if is_last else ended["model"]) == shown({"messages": [FINE]})
    assert validate_messages(it.history) == []


@dataclass(frozen=True, slots=True)
class FrozenState:
    """A state that is a frozen dataclass."""

    messages: list[AnyMessage]


@pytest.mark.parametrize("name", ["add_messages", "delta"])
def test_what_a_node_pushed_stays_beside_a_repair(name: str):
    """`push_message` in the model node: stored, and shown as in the bare graph."""

    def pushing(state: Any) -> Any:
        refuses(state["messages"])
        push_message(AIMessage("one moment", id="p1"))
        return {"messages": [FINE]}

    it = Agent(lambda _, __, saver: above(pushing, state=REDUCERS[name]).compile(saver))
    it.graph.update_state(it.config, {"messages": DAMAGED}, as_node=START)
    it = patched(it, model_node="node1", recover=False)
    chunks = it.stream(None)
    assert lines(it.history) == [*REPAIRED, "ai: one moment", "ai: fine"]
    parts = [{"messages": [*RESULTS, "ai: one moment"]}, {"messages": ["ai: fine"]}]
    assert [shown(chunk) for chunk in chunks] == [{"node1": parts}]


def test_a_node_that_is_a_sequence():
    """Its steps are those of the bare graph, in traces and in events; it repairs as any other."""
    steps = RunnableLambda(lambda state: state["messages"]) | StrictModel(script=[FINE, FINE])
    sequence = steps | RunnableLambda(lambda answer: {"messages": [answer]})
    bare = StateGraph(MessagesState).add_node("model", sequence).add_edge(START, "model").compile()
    graph = with_patching(bare, model_node="model")

    async def events(graph: Any) -> Any:
        found = graph.astream_events({"messages": [GO]}, version="v2")
        return [(e["event"], e["name"], e["tags"], len(e["parent_ids"])) async for e in found]

    assert asyncio.run(events(graph)) == asyncio.run(events(bare))
    names = []
    for each in (bare, graph):
        names.append(RunNames())
        each.invoke({"messages": [GO]}, {"callbacks": [names[-1]]})
    assert names[0].names == names[1].names
    assert lines(graph.invoke({"messages": DAMAGED})["messages"])[:5] == REPAIRED


def test_values_of_a_state_of_any_form():
    """A value is read and replaced in each form; a list of dicts alone is no history."""
    for state in ({"messages": [GO]}, PydanticState(messages=[GO]), FrozenState([GO])):
        copied = replace_values(state, {"messages": [NEVER]})
        assert values_in(copied)["messages"] == [NEVER]
        assert messages_in(state, "messages") == [GO]
    for value in ([{"role": "user", "content": "hi"}], [GO, object()], "hi", GO):
        assert messages_in({"messages": value}, "messages") is None
    assert values_in(FrozenState) == {} == values_in(GO)


@pytest.mark.parametrize("place", ["START", "the model"])
def test_a_repair_never_comes_from_a_cache(place: str):
    """A result that one thread recorded is not used in another thread with the same messages."""

    def build(model: Any, tools: Any, saver: Any) -> Any:
        bare = BARE["react_v2"](model, tools, None).builder
        bare.set_node_defaults(cache_policy=CachePolicy())
        bare.nodes.pop("__default_error_handler__", None)
        return with_patching(bare).compile(checkpointer=saver, cache=InMemoryCache())

    def abandon(*history: AnyMessage) -> None:
        if place == "START":
            it.run({"messages": [*history]})
        else:  # the node repairs what it reads, and START the thread with the next message
            it.graph.update_state(it.config, {"messages": [*history]}, as_node="tools")
            it.run(None)
            it.say("hello")

    it = Agent(build, BOTH)
    it.say("go")
    old = it.history[:2]
    abandon(NEVER)
    assert it.results["c1"] == "sent to bob"
    it.config = {"configurable": {"thread_id": "2"}}
    abandon(*old, NEVER)
    assert it.results["c1"] == UNKNOWN.format("mail", "c1")


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


def test_the_repr_of_a_patch_node():
    """It shows the options that are no defaults, cut."""
    assert repr(patch_node) == "PatchNode()"
    own = PatchNode(messages_key="chat", recover=False, placeholder="x" * 90)
    text = f"'{'x' * 28}…"
    assert repr(own) == f"PatchNode(placeholder={text}, messages_key='chat', recover=False)"


def beside(_: Any, __: Any, saver: Any) -> Any:
    """A patch node that starts together with another node."""
    builder = StateGraph(MessagesState).add_node("patch", PatchNode()).add_node("model", answering)
    builder.add_node("other", lambda _: None).add_edge(START, "other").add_edge(START, "patch")
    return builder.add_edge("patch", "model").compile(checkpointer=saver)


def test_a_patch_node_in_a_place_where_messages_would_be_lost():
    """The first run says what to do, also of a valid history; nothing is written."""
    it = Agent(beside)
    with pytest.raises(GraphError, match="add it as a node of its own that runs alone"):
        it.say("go")
    assert lines(it.history) == ["human: go"]
    assert patch_node.invoke({"messages": DAMAGED})["messages"].value != DAMAGED


def echoing(state: Any) -> Any:
    """Return the whole history and an answer."""
    refuses(state["messages"])
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
    refuses(it.history)
    after = [line for line in lines(it.history) if line != "ai: ok"]
    assert after == [*([] if node is trimming else REPAIRED), "human: hello"]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (lambda _: {"messages": [FINE]}, [*DAMAGED, FINE]),
        (lambda state: {"messages": state["messages"]}, DAMAGED),
        (lambda state: {"messages": [RemoveMessage(m.id) for m in state["messages"]]}, []),
    ],
)
def test_what_no_model_has_read_stays_as_it_is(node: Any, expected: Any):
    """A node that asks none may stand between a call and its tool, whatever it returns."""
    it = Agent(lambda _, __, saver: above(node).compile(saver))
    it.graph.update_state(it.config, {"messages": DAMAGED}, as_node=START)
    patched(it, recover=False).run(None)
    assert it.history == expected


def test_a_graph_that_returns_its_whole_history_beside_a_repair():
    """Clients see each new message once."""
    agent = above(answering).compile()
    it = Agent(lambda _, __, saver: above(agent).compile(saver))
    it.graph.update_state(it.config, {"messages": DAMAGED}, as_node=START)
    [chunk] = patched(it, recover=False).stream(None)
    assert [line for line in shown(chunk)["node1"]["messages"] if line in RESULTS] == RESULTS


@pytest.mark.parametrize("place", ["node", "steps", "model"])
async def test_a_stream_that_its_reader_leaves_is_closed(place, monkeypatch):
    """At once, with all that it reads from, and not when the garbage collector comes."""
    closed: list[str] = []

    async def chunks(_: AsyncIterator[Any]) -> AsyncIterator[Any]:
        try:
            for number in range(3):
                yield {"messages": [AIMessage(str(number), id=str(number))]}
        finally:
            closed.append("chunks")

    async def passes_on(parts: AsyncIterator[Any]) -> AsyncIterator[Any]:
        kept.append(parts)  # what the garbage collector would not close
        try:
            async for part in parts:
                yield part
        finally:
            closed.append("passes_on")

    kept, inner = list[Any](), RunnableGenerator(chunks)
    wrapper: Any = PatchedNode(inner, {"messages": Repairer()}, shown=())
    if place == "steps":
        steps = RunnableSequence(inner, RunnableGenerator(passes_on))
        wrapper = PatchedNode(steps, {"messages": Repairer()}, shown=())
    elif place == "model":
        monkeypatch.setattr(StrictModel, "astream", lambda _, given, *__: chunks(given))
        wrapper = patch_model(StrictModel())
    stream = wrapper.astream({"messages": [GO]} if place != "model" else [GO])
    kept.append(stream)
    await anext(stream)
    await stream.aclose()
    assert closed == (["passes_on", "chunks"] if place == "steps" else ["chunks"])


@pytest.mark.parametrize("damage", ["an orphan", "a mark that is settled"])
def test_a_repair_that_adds_nothing(damage: str):
    """A dropped result, a placeholder that lost its mark: no superstep, and nothing is shown."""
    marker = {PLACEHOLDER_KEY: {"cause": "unknown", "look_again": True}}
    text = UNKNOWN.format("mail", "c1")
    settled = ToolMessage(text, tool_call_id="c1", id="t1", additional_kwargs=marker)
    messages = [calls(("mail", {}), id="a1"), settled]
    if damage == "an orphan":
        messages = [ToolMessage("r", tool_call_id="gone")]
    it = repairing("patch_tool_calls", recover=True)
    it.graph.update_state(it.config, {"messages": messages}, as_node=START)
    assert [*map(list, it.stream({"messages": [HELLO]}))] == [["node1"]]
    assert [m.additional_kwargs for m in it.history if m.type == "tool"] in (
        [],
        [{PLACEHOLDER_KEY: {"cause": "unknown"}}],
    )
    assert [state.next for state in it.graph.get_state_history(it.config)][:2] == [(), ("node1",)]


def test_a_history_of_a_send_does_not_replace_the_stored_one():
    """Its repair is not written, also where both have as many messages."""
    it = patched(Agent(lambda _, __, saver: above(answering).compile(saver)), model_node="node1")
    it.graph.update_state(it.config, {"messages": [GO, AIMessage("a"), HELLO]}, as_node="node1")
    it.run(Command(goto=Send("node1", {"messages": DAMAGED})))
    assert lines(it.history) == ["human: go", "ai: a", "human: hello", "ai: fine"]


def test_a_repaired_history_takes_the_place_of_what_the_node_wrote():
    """In its own part, if the history has no reducer; the other parts stay as they are."""
    parts = [Command(update={"messages": [1]}), Command(update={"tone": "calm"}, goto="tools")]
    first, last = NodeOutput(parts).with_writes({"messages": [0, 1]}, None, Run({}))
    assert first.update == {"messages": [0, 1]}
    assert (last.update, last.goto) == ({"tone": "calm"}, "tools")
