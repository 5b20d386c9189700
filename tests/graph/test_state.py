"""How a repair is written, under every reducer and in every form of output, and what clients see.

One dict for each node: first the new tool messages, then what the node itself wrote, as in a
healthy turn. Nobody sees an `Overwrite` or a `RemoveMessage` of ours, and nothing else is lost.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.types import Command, Overwrite
from typing_extensions import TypedDict

from kit import Agent, DeltaState, PydanticState, calls, lines, patched
from langgraph_patch import PatchNode, validate_messages
from langgraph_patch.graph.state import (
    messages_in,
    replace_values,
    values_in,
)
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from support.placeholder_texts import UNKNOWN
from support.strict import refuse

BOTH = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}), id="a1")
GO, NEVER, HELLO = (HumanMessage(text, id=text) for text in ("go", "never mind", "hello"))
OPEN = [GO, BOTH]
NEW = [f"tool c{n}: {UNKNOWN.format(t, f'c{n}')}" for n, t in ((1, "mail"), (2, "wire"))]
REPAIRED = ["human: go", "ai c1 c2: ", *NEW, "human: never mind"]
FINE = AIMessage("fine", id="a2")


class State(TypedDict, total=False):
    """A history and two other keys."""

    messages: Annotated[list[AnyMessage], add_messages]
    note: str
    steps: Annotated[list[str], operator.add]


def one_node(model: Any) -> Callable[..., Any]:
    """How to build a graph with a node `model`, and a node that only a goto starts."""

    def build(_: Any, __: Any, saver: Any) -> Any:
        builder = StateGraph(State).add_node("model", model, destinations=("after",))
        builder.add_node("after", lambda _: None).add_edge(START, "model")
        return builder.compile(checkpointer=saver)

    return build


def returning(output: Any) -> Callable[[Any], Any]:
    """A model node that refuses a broken history and returns `output`."""
    return lambda state: refuse(state["messages"]) or output


def shown(value: Any) -> Any:
    """A chunk with each message as a line."""
    if isinstance(value, dict):
        return {key: shown(part) for key, part in value.items()}
    if isinstance(value, list):
        return [shown(part) for part in value]
    if isinstance(value, Overwrite):
        return ["overwrite", shown(value.value)]
    return lines([value])[0] if hasattr(value, "type") else value


# --- nodes that only repair ------------------------------------------------------------------


def with_patch_node(_: Any, __: Any, saver: Any) -> Any:
    """A graph in which the patch node is placed by hand."""
    builder = StateGraph(State).add_node("patch", PatchNode(recover=False))
    builder.add_node("model", returning({"messages": [FINE]}))
    builder.add_edge(START, "patch").add_edge("patch", "model")
    return builder.compile(checkpointer=saver)


PLACES: dict[str, tuple[str, Callable[[], Agent]]] = {
    "START": (
        "patch_tool_calls",
        lambda: patched(Agent(one_node(returning({"messages": [FINE]}))), recover=False),
    ),
    "patch node": ("patch", lambda: Agent(with_patch_node)),
}


@pytest.mark.parametrize(
    ("place", "asynchronous"), [(p, bool(n % 2)) for n, p in enumerate(PLACES)]
)
def test_f18_f46_a_node_that_only_repairs(place: str, *, asynchronous: bool):
    """Clients see one dict with the new results; `values` has the whole history."""
    node, make = PLACES[place]
    it = make()
    it.asynchronous = asynchronous
    it.graph.update_state(it.config, {"messages": OPEN}, as_node="model")
    seen = it.stream({"messages": [NEVER]}, ["updates", "messages", "values", "custom"])
    chunks = {mode: [chunk for of, chunk in seen if of == mode] for mode in dict(seen)}
    updates = [shown(chunk) for chunk in chunks["updates"] if "beside" not in chunk]
    assert updates == [{node: {"messages": NEW}}, {"model": {"messages": ["ai: fine"]}}]
    assert lines([m for m, _ in chunks["messages"]]) == [*NEW, "ai: fine"]
    values = [lines(chunk["messages"]) for chunk in chunks["values"][-2:]]
    assert values == [REPAIRED, [*REPAIRED, "ai: fine"]]
    assert "custom" not in chunks


@pytest.mark.parametrize(("place", "answered"), [("START", True), ("patch node", False)])
def test_calls_that_get_other_ids(place: str, *, answered: bool):
    """They are edited in their places; clients see the new messages."""
    node, make = PLACES[place]
    it, long = make(), "c" * 60
    made = calls(("look", {}), id="a1")
    made.tool_calls[0]["id"] = long
    results = [ToolMessage("r", tool_call_id=long, id="t1")] if answered else []
    it.graph.update_state(it.config, {"messages": [made, *results]}, as_node="model")
    chunks = it.stream({"messages": [HELLO]})
    after = it.history
    assert [m.id for m in after if m is not after[1]] == ["a1", "hello", "a2"]
    assert after[1].tool_call_id == after[0].tool_calls[0]["id"] != long
    assert {node: {"messages": [] if answered else after[1:2]}} in chunks


@pytest.mark.parametrize("damage", ["an orphan", "a mark that is settled"])
def test_a_repair_that_adds_nothing(damage: str):
    """A dropped result and a placeholder that lost its mark: an empty list, never None."""
    marker = {PLACEHOLDER_KEY: {"cause": "unknown", "look_again": True}}
    text = UNKNOWN.format("mail", "c1")
    settled = ToolMessage(text, tool_call_id="c1", id="t1", additional_kwargs=marker)
    messages = [calls(("mail", {}), id="a1"), settled]
    if damage == "an orphan":
        messages = [ToolMessage("r", tool_call_id="gone")]
    it = patched(Agent(one_node(returning({"messages": [FINE]}))))
    it.graph.update_state(it.config, {"messages": messages}, as_node="model")
    assert it.stream({"messages": [HELLO]})[0] == {"patch_tool_calls": {"messages": []}}


# --- a model node, in every form of output -----------------------------------------------------


WRITERS: dict[str, Callable[[], Any]] = {
    "dict": lambda: {"messages": [FINE], "note": "n"},
    "a message as a dict": lambda: {"messages": {"role": "assistant", "content": "fine"}},
    "nothing": lambda: None,
    "command": lambda: Command(update={"messages": [FINE], "note": "n"}, goto="after"),
    "list of one command": lambda: [Command(update={"messages": [FINE]}, goto="after")],
    "removal": lambda: {"messages": [RemoveMessage(id="go"), FINE]},
}
OTHERS: dict[str, Callable[[], Any]] = {
    "pairs": lambda: Command(update=[("messages", [FINE]), ("note", "n")]),
    "a key twice": lambda: [Command(update={"steps": ["a"]}), {"steps": ["b"], "messages": [FINE]}],
    "overwrite": lambda: {"messages": Overwrite([HumanMessage("all over", id="o")])},
}


@pytest.mark.parametrize(
    ("name", "asynchronous"), [(n, bool(i % 2)) for i, n in enumerate([*WRITERS, *OTHERS])]
)
def test_f46_the_chunk_of_a_model_node(name: str, *, asynchronous: bool):
    """If it writes the repair, the new results come first; else it shows what the bare one does.

    What is not written is not reported.
    """
    node = returning((WRITERS | OTHERS)[name]())
    bare = Agent(one_node(node)).stream({"messages": [GO, HELLO]})
    it = Agent(one_node(node), asynchronous=asynchronous)
    it.graph.update_state(it.config, {"messages": [*OPEN, NEVER]}, as_node=START)
    reported: list[Any] = []
    report = lambda *each: reported.append(each)
    it = patched(it, model_node="model", recover=False, on_patch=report)
    seen = it.stream(None, ["updates", "messages"])
    assert len(reported) == (name in WRITERS)
    chunks = [chunk for mode, chunk in seen if mode == "updates"]
    [healthy] = [shown(chunk["model"]) for chunk in bare if "model" in chunk]
    [repaired] = [shown(chunk["model"]) for chunk in chunks if "model" in chunk]
    if name in OTHERS:
        assert repaired == healthy
        it.run({"messages": [HELLO]})
    else:
        own = (healthy or {}).get("messages", [])
        new = [*NEW, *(own if isinstance(own, list) else [own])]
        assert repaired == {**(healthy or {}), "messages": new}
        streamed = [shown(chunk[0]) for mode, chunk in seen if mode == "messages"]
        assert streamed[:2] == NEW
    assert [sorted(chunk) for chunk in chunks] == [sorted(chunk) for chunk in bare]
    assert validate_messages(it.history) == []
    assert name == "overwrite" or set(NEW) <= set(lines(it.history))
    if name in WRITERS:
        assert it.graph.get_state(it.config).values.get("note") == (healthy or {}).get("note")


# --- under every reducer ------------------------------------------------------------------


def new_only(left: list[Any], right: list[Any]) -> list[Any]:
    """A reducer that appends what is not there yet, and knows no `RemoveMessage`."""
    return [*left, *(m for m in right if m.id not in {old.id for old in left})]


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
def test_f17_f32_the_entry_check_under_every_reducer(name: str):
    """The repair has a superstep of its own: no other node's message is lost, nor the answer."""
    beside = () if name == "none" else ("a_note", "z_note")
    it = patched(Agent(reducing(name, *beside), FINE), recover=False)
    it.graph.update_state(it.config, {"messages": OPEN}, as_node="model")
    chunks = it.stream(message_under(name, it, NEVER), "messages")
    streamed = [message for message, _ in chunks if message.text]
    assert lines(streamed)[:2] == NEW
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
def test_f32_a_model_node_under_every_reducer(name: str, beside: Any):
    """The model reads a valid history; the node or START writes it, and nothing is lost."""
    it = Agent(reducing(name, *beside), FINE, AIMessage("yes?", id="a3"))
    it.graph.update_state(it.config, {"messages": [*OPEN, NEVER]}, as_node=START)
    it = patched(it, model_node="model", recover=False)
    it.run(None)
    assert [lines(seen) for seen in it.model.seen] == [REPAIRED]
    said = ["human: a_note", "ai: fine", "human: z_note"] if beside else ["ai: fine"]
    written = REPAIRED if not beside else [*lines(OPEN), "human: never mind"]
    assert lines(it.history) == [*written, *said]
    it.run(message_under(name, it, HELLO))
    turn = [*REPAIRED, *said, "human: hello"]
    assert lines(it.model.seen[-1]) == turn
    said[said.index("ai: fine")] = "ai: yes?"
    assert lines(it.history) == [*turn, *said]
    assert not any(isinstance(m, RemoveMessage) for m in it.history)


# --- kinds of state ----------------------------------------------------------------------------


@dataclass(frozen=True)
class FrozenState:
    """A state that is a frozen dataclass."""

    messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)


# --- the functions ------------------------------------------------------------------------------


def test_values_of_a_state_of_any_form():
    """A value is read and replaced in each form; a list of dicts alone is no history."""
    for state in ({"messages": [GO]}, PydanticState(messages=[GO]), FrozenState([GO])):
        copied = replace_values(state, {"messages": [NEVER]})
        assert values_in(copied)["messages"] == [NEVER]
        assert messages_in(state, "messages") == [GO]
    for value in ([{"role": "user", "content": "hi"}], [GO, object()], "hi", GO):
        assert messages_in({"messages": value}, "messages") is None
    assert values_in(FrozenState) == {} == values_in(GO)
