"""`with_patching` on graphs that people build by hand: every way in, every setting, every error."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from pydantic import BaseModel
from typing_extensions import TypedDict

from kit import Agent, Desk, StrictModel, above, calls, lines, loop, model_node, patched
from langgraph_patch import PatchError, PatchNode, patch_node, with_patching
from langgraph_patch.errors import GraphError, OptionError
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.placeholder_texts import UNKNOWN

MAIL = ("mail", {"to": "bob"})
BOTH = calls(MAIL, ("wire", {"amount": 5}), id="a1")
GO, NEVER, HELLO = (HumanMessage(text, id=text) for text in ("go", "never mind", "hello"))
OPEN = [GO, BOTH, NEVER]
RESULTS = [f"tool c{n}: {UNKNOWN.format(t, f'c{n}')}" for n, t in ((1, "mail"), (2, "wire"))]
REPAIRED = ["human: go", "ai c1 c2: ", *RESULTS, "human: never mind"]


class State(TypedDict):
    """A history, and notes beside it."""

    messages: Annotated[list[AnyMessage], add_messages]
    notes: Annotated[list[str], operator.add]


class Narrow(BaseModel):
    """What a router may ask for: it lacks the history."""

    notes: list[str] = []


def by_branch(builder: StateGraph[Any]) -> None:
    """A conditional entry without a path map."""
    builder.set_conditional_entry_point(lambda _: "agent")


def by_mapped_branch(builder: StateGraph[Any]) -> None:
    """A conditional entry with a path map, and a schema that lacks the history."""

    def route(state: Narrow) -> str:
        return "note" if state.notes else "talk"

    builder.set_conditional_entry_point(route, {"talk": "agent", "note": "note"})


def by_router_and_edge(builder: StateGraph[Any]) -> None:
    """Two routers beside a plain edge."""
    builder.add_edge(START, "note")
    builder.add_conditional_edges(START, lambda _: "agent", ["agent"])
    builder.add_conditional_edges(START, RunnableLambda(lambda _: "look", name="two"), ["look"])


def by_waiting_edge(builder: StateGraph[Any]) -> None:
    """The model waits for two nodes."""
    builder.add_edge(START, "note").add_edge(START, "look").add_edge(["note", "look"], "agent")


WAYS = (by_branch, by_mapped_branch, by_router_and_edge, by_waiting_edge)


def entered(way: Callable[[Any], None]) -> Callable[..., Any]:
    """How to build the loop with that way in."""

    def build(model: Any, tools: Any, saver: Any) -> Any:
        builder = loop(model, tools, state=State)
        builder.edges.discard((START, "agent"))
        for name in ("note", "look"):
            builder.add_node(name, lambda _, name=name: {"notes": [name]})
        way(builder)
        return builder.compile(checkpointer=saver)

    return build


def nodes_of(it: Agent, *messages: Any) -> Counter[str]:
    """How often each node runs in a turn."""
    chunks = it.stream({"messages": [*messages]})
    return Counter(node for chunk in chunks for node in chunk)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_thread_goes_on_and_the_same_nodes_run(way: Any):
    """Valid or damaged, START leads to the same nodes; `patch_tool_calls` only if damaged."""
    asynchronous = WAYS.index(way) % 2 == 1
    bare = nodes_of(Agent(entered(way)), GO)
    it = patched(Agent(entered(way), asynchronous=asynchronous), recover=False)
    assert nodes_of(it, GO) == bare
    it.graph.update_state(it.config, {"messages": [BOTH]}, as_node="tools")
    it.graph.update_state(it.config, None, as_node=END)
    assert nodes_of(it, NEVER) == bare + Counter({"patch_tool_calls": 1})
    turn = ["human: go", "ai: done", *REPAIRED[1:], "ai: done"]
    assert lines(it.history) == turn
    assert nodes_of(it, HELLO) == bare
    assert lines(it.history) == [*turn, "human: hello", "ai: done"]


def test_a_patch_node_of_ones_own_is_left_as_it_is(caplog: pytest.LogCaptureFixture):
    """It sees the damage and repairs it, and is not in the list of covered nodes."""
    build = lambda model, _, saver: above(patch_node, model_node(model)).compile(saver)
    it = Agent(build)
    it.graph.update_state(it.config, {"messages": OPEN}, as_node=START)
    caplog.set_level("INFO", logger="langgraph_patch")
    it = patched(it)
    assert "node2" in caplog.text
    assert "node1" not in caplog.text
    it.run(None)
    assert lines(it.history) == [*REPAIRED, "ai: done"]


def plain(*names: str, state: Any = MessagesState) -> StateGraph[Any]:
    """A builder with nodes of these names."""
    builder = StateGraph(state)
    for name in names:
        builder.add_node(name, lambda _: None).add_edge(START, name)
    return builder


def test_a_graph_in_which_nothing_reads_the_history():
    """The error lists the state keys and the nodes, nested ones too."""

    class Chats(State):
        chat: list[AnyMessage]

    def note(_: Narrow) -> Any:
        return {"notes": ["n"]}

    with pytest.raises(GraphError) as caught:
        with_patching(above(note, state=Chats), messages_key="chat")
    assert str(caught.value) == (
        "No node reads the state key 'chat', so there is nothing to patch: give the key of the "
        "history with messages_key=... The state keys are: 'chat', 'messages', 'notes'. "
        "The nodes are: 'node1'."
    )
    with pytest.raises(GraphError, match=r"No node reads.*nodes are: 'node1', 'node1\.node1'"):
        with_patching(above(above(note, state=Chats).compile(), state=Narrow))


def test_a_model_node_that_is_not_there():
    """B9: one wrong name among right ones is named, with the nodes that can call a model."""
    builder = plain("plan", "act").add_node("inner", plain("deep").compile())
    builder.add_node("tools", ToolNode(Desk().tools())).add_edge(START, "inner")
    expected = r"no node called 'missing' can call a model: .*'plan', 'act', 'inner\.deep'\.$"
    for names, message in (
        (["plan", "missing"], expected),
        ("plam", r"no node called 'plam' .* Did you mean 'plan'\?"),
        ("tools", "no node called 'tools' can call a model"),
        ("inner", r"no node called 'inner' can call.* Did you mean 'inner\.deep'\?"),
    ):
        with pytest.raises(GraphError, match=message):
            with_patching(builder, model_node=names)
    for name in ("deep", "inner.deep", {"plan", "act"}):
        assert with_patching(builder, model_node=name)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("model_node", value) for value in (3, [], [1])),
        *(("messages_key", value) for value in ("", ["messages", 3])),
        ("recover", "yes"),
        ("record", "no"),
        ("placeholder", 1),
        ("on_patch", "print"),
        ("reconcile", 1),
    ],
)
def test_an_option_with_a_wrong_value(option: str, value: Any):
    """It is quoted, before anything is built; the error says what is expected."""
    expected = {"model_node": " the name of a node,", "messages_key": " the name of a state key,"}
    message = f"{option}={value!r}: expected{expected.get(option, '')}"
    with pytest.raises(OptionError, match=re.escape(message)):
        with_patching(plain("agent"), **{option: value})


class Audit:
    """Is called asynchronously."""

    async def __call__(self, *_: Any) -> None:
        """Audit a patch."""


async def audit(*_: Any) -> None:
    """Audit a patch."""


@pytest.mark.parametrize("on_patch", [audit, partial(audit, 1), Audit()])
def test_an_asynchronous_on_patch(on_patch: Any):
    """It is called without await, so it would never run."""
    for build in (partial(with_patching, plain("agent")), PatchToolCallsMiddleware):
        with pytest.raises(OptionError, match="is asynchronous, and it is called without await"):
            build(on_patch=on_patch)


def test_a_misspelled_tool(caplog: Any):
    """A WARNING names one like a tool's; any may be a tool of a node's own, or of run time."""
    builder = loop(StrictModel(), Desk().tools())
    with_patching(builder, reconcile={"mail": lambda _: None, "weather": lambda _: None})
    assert caplog.text == ""
    with_patching(builder, reconcile={"mail": lambda _: None, "wier": lambda _: None})
    message = "reconcile: no ToolNode has a tool called 'wier' yet. Did you mean 'wire'?"
    assert [each.getMessage() for each in caplog.records] == [message]


@entrypoint()
def chat(text: str) -> str:
    """A graph of the functional API."""
    return text


ADDED = "a node called 'patch_tool_calls', and with_patching adds one of this name"
WITH_NODE = plain("agent").add_node("patch_tool_calls", patch_node)
BARE_LIST = plain("agent", state=Annotated[list[AnyMessage], add_messages])


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (with_patching(plain("agent").compile(), record=True), f"{ADDED}: the graph is patched "),
        (with_patching(plain("agent")).add_node("b", len), f"{ADDED}: the graph is patched "),
        (plain("patch_tool_calls"), f"{ADDED}: give yours another name"),
        (WITH_NODE, f"{ADDED}: leave out your patch node and its edges, or with_patching"),
        (
            plain("agent").compile().with_retry(),
            "RunnableRetry: expected a StateGraph.*patch_model",
        ),
        (chat, "Pregel: expected a StateGraph.*use patch_model"),
        (None, "NoneType: expected a StateGraph.*does not return it"),
        (plain, "function: expected a StateGraph.*pass what it returns"),
        (MessagesState, "expected a StateGraph.*made of the class"),
        (StrictModel(), "StrictModel: expected a StateGraph.*by patch_model"),
        (InMemorySaver(), "InMemorySaver: expected a StateGraph.*by repair_thread"),
        (ToolNode([]), "ToolNode: expected a StateGraph.*graph in which it is"),
        (BARE_LIST, "bare value: expected a schema with a key"),
    ],
)
def test_something_that_is_no_graph_to_patch(graph: Any, message: str):
    """Patched twice, a node of that name, bound, an entrypoint, a bare list: the way out."""
    with pytest.raises(GraphError, match=message) as caught:
        with_patching(graph)
    assert isinstance(caught.value, PatchError)


def test_a_graph_that_is_made_for_each_request(caplog: pytest.LogCaptureFixture):
    """Its INFO line comes once, if it is shown at all, also from several threads."""
    builder = plain("of_each", state=State)
    with_patching(builder)
    caplog.set_level("INFO", logger="langgraph_patch")
    with ThreadPoolExecutor() as pool:
        assert len([*pool.map(with_patching, [builder] * 20)]) == 20
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("made", [StateGraph.compile, lambda builder: builder])
def test_a_graph_that_is_patched_already(made: Callable[..., Any]):
    """A cell that is run twice: the graph itself comes back, and its model is asked once."""
    asked = []

    def agent(state: State) -> Any:
        asked.append(state)
        return {"messages": [AIMessage("hello")]}

    builder = StateGraph(State).add_node("agent", agent).add_edge(START, "agent")
    options: dict[str, Any] = {"model_node": ["agent"], "placeholder": {"unknown": "?"}}
    patched = with_patching(made(builder), **options)
    again = with_patching(patched, model_node="agent", placeholder={"unknown": "?"})
    assert again is patched
    graph = again if isinstance(again, CompiledStateGraph) else again.compile()
    assert with_patching(graph, **options) is graph
    agent = create_agent(StrictModel(), [Desk().mail])
    for first, second in ((graph, {}), (with_patching(agent), {"once": ["mail"]})):
        with pytest.raises(GraphError, match="patched already, with other options"):
            with_patching(first, **second)
    graph.invoke({"messages": [HumanMessage("hello")]})
    assert len(asked) == 1


@pytest.mark.parametrize("made", [patch_node.with_config(tags=["a"]), patch_node.with_retry()])
def test_a_patch_node_with_a_config(made: Any):
    """It is the node, in whatever the application wraps it."""
    history = [calls(("mail", {})), HumanMessage("hm")]
    state = above(made).compile().invoke({"messages": history})
    assert [m.type for m in state["messages"]] == ["ai", "tool", "human"]


@pytest.mark.parametrize("value", [len, {"messages": []}, None])
def test_a_patch_node_that_is_called(value: object):
    """The error says how it is used: `patch_model` and `patch_messages` are called."""
    for node in (patch_node, PatchNode()):
        with pytest.raises(
            GraphError, match=r"builder\.add_node\('patch_tool_calls', patch_node\)"
        ):
            node(value)
