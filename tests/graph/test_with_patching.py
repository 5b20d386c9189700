"""`with_patching` on graphs that people build by hand: every way in, every state, nothing lost."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage, trim_messages
from langchain_core.runnables import RunnableConfig
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.runtime import Runtime
from langgraph.store.memory import InMemoryStore
from langgraph.types import CachePolicy, Command, RetryPolicy, Send
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from langgraph_patch import PatchError, is_placeholder, with_patching
from langgraph_patch.errors import GraphError, OptionError
from support.agents import Graph, Tools, both_calls, history, human, lines, react_v2, thread
from support.open_calls import OPEN, REPAIRED, Data, FrozenData, Model, messages_in, model_saying
from support.running import in_turn, pairs, run_by
from support.strict import RefusedError, StrictModel, ai


class State(TypedDict):
    """A history, and notes beside it."""

    messages: Annotated[list[AnyMessage], add_messages]
    notes: Annotated[list[str], operator.add]


class Narrow(TypedDict):
    """What a router may ask for: it lacks the history."""

    notes: list[str]


class NarrowModel(BaseModel):
    """The same as a pydantic model."""

    notes: list[str] = Field(default_factory=list)


def parts(model: StrictModel, state: Any = State, *, asynchronous: bool = False) -> StateGraph[Any]:
    """A builder with agent, tools and a node that takes a note, and no way in."""
    builder = StateGraph(state)
    builder.add_node("agent", lambda s: {"messages": [model.invoke(messages_in(s))]})
    builder.add_node("tools", ToolNode(Tools(asynchronous=asynchronous).tools()))
    builder.add_edge("tools", "agent")
    return builder


def noting(builder: StateGraph[Any]) -> None:
    """Add the node that takes a note."""
    builder.add_node("note", lambda _: {"notes": ["noted"]})


# --- every way in ------------------------------------------------------------------------


def by_edge(builder: StateGraph[Any]) -> None:
    """START -> agent."""
    builder.add_edge(START, "agent")


def by_branch(builder: StateGraph[Any]) -> None:
    """A conditional entry without a path map."""
    builder.set_conditional_entry_point(lambda _: "agent")


def by_mapped_branch(builder: StateGraph[Any]) -> None:
    """A conditional entry with a path map."""
    noting(builder)
    builder.set_conditional_entry_point(lambda _: "talk", {"talk": "agent", "note": "note"})


def by_send(builder: StateGraph[Any]) -> None:
    """A router that sends the state to the model."""
    builder.add_conditional_edges(START, lambda state: [Send("agent", state)], ["agent"])


def by_narrow_pydantic_router(builder: StateGraph[Any]) -> None:
    """The same with a pydantic schema."""

    def route(state: NarrowModel) -> str:
        assert isinstance(state, NarrowModel)
        return "agent"

    builder.add_conditional_edges(START, route, ["agent"])


def by_branch_and_edge(builder: StateGraph[Any]) -> None:
    """A router beside a plain edge."""
    noting(builder)
    builder.add_edge(START, "note")
    builder.add_conditional_edges(START, lambda _: "agent", ["agent"])


def by_two_branches(builder: StateGraph[Any]) -> None:
    """Two routers."""
    noting(builder)

    def route(state: State) -> str:
        return "agent"

    def take_note(state: State) -> str:
        return "note"

    builder.add_conditional_edges(START, route, ["agent"])
    builder.add_conditional_edges(START, take_note, ["note"])


def by_waiting_edge(builder: StateGraph[Any]) -> None:
    """The model waits for two nodes."""
    noting(builder)
    builder.add_node("look", lambda _: {"notes": ["looked"]})
    builder.add_edge(START, "note")
    builder.add_edge(START, "look")
    builder.add_edge(["note", "look"], "agent")


WAYS = (
    by_edge,
    by_branch,
    by_mapped_branch,
    by_send,
    by_narrow_pydantic_router,
    by_branch_and_edge,
    by_two_branches,
    by_waiting_edge,
)
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


def built(
    way: Callable[[Any], None], model: StrictModel, *, asynchronous: bool = False, **options: Any
) -> Graph:
    """The bare graph with that way in."""
    builder = parts(model, asynchronous=asynchronous)
    builder.add_conditional_edges("agent", tools_condition)
    way(builder)
    return builder.compile(checkpointer=InMemorySaver(), **options)


@pytest.mark.parametrize(("way", "how"), in_turn(WAYS, ["invoke", "astream", "ainvoke", "stream"]))
async def test_interrupt_then_a_new_message(way: Any, how: str):
    """Whatever leads to the model: the thread goes on, twice, with the expected results."""
    model = StrictModel(script=[both_calls(), AIMessage("fine"), AIMessage("yes?")])
    graph = with_patching(built(way, model, asynchronous=how.startswith("a")))
    await run_by(graph, "book it", how)
    assert graph.get_state(thread()).next == ("tools",)
    await run_by(graph, "never mind", how)
    messages = history(graph, thread())
    assert lines(messages) == [*REPAIRED, "ai: fine"]
    assert [is_placeholder(m) for m in messages] == [False, False, True, True, False, False]
    await run_by(graph, "hello", how)
    assert lines(history(graph, thread())) == [*REPAIRED, "ai: fine", "human: hello", "ai: yes?"]


@pytest.mark.parametrize("way", [by_edge, by_send, by_two_branches])
def test_the_repair_has_a_checkpoint_of_its_own(way: Any):
    """The entry check repairs before anything else runs, even if the model then fails."""

    def fail(_: Any) -> AIMessage:
        raise ZeroDivisionError

    graph = with_patching(built(way, StrictModel(script=[both_calls(), fail])))
    graph.invoke({"messages": [human("book it")]}, thread())
    with pytest.raises(ZeroDivisionError):
        graph.invoke({"messages": [human("never mind")]}, thread())
    assert lines(history(graph, thread())) == REPAIRED


@each_way
def test_the_same_nodes_run_as_before(way: Any):
    """Sound or damaged, START leads to the same nodes; `patch_tool_calls` only if damaged."""

    def nodes_of(graph: Graph, messages: Any) -> Counter[str]:
        chunks = graph.stream({"messages": messages}, thread(), stream_mode="updates")
        return Counter(node for chunk in chunks for node in chunk)

    bare = nodes_of(built(way, model_saying("fine")), [human("hi")])
    assert nodes_of(with_patching(built(way, model_saying("fine"))), [human("hi")]) == bare
    damaged = nodes_of(with_patching(built(way, model_saying("fine"))), OPEN)
    assert damaged == bare + Counter({"patch_tool_calls": 1})


@pytest.mark.parametrize("way", [w for w in WAYS if w is not by_branch], ids=lambda w: w.__name__)
def test_the_drawing(way: Any):
    """The node is drawn; everything else is drawn as it was."""
    bare = built(way, model_saying())
    before, after = bare.get_graph(), with_patching(bare).get_graph()
    assert set(after.nodes) == {*before.nodes, "patch_tool_calls"}

    def inner(drawing: Any) -> set[tuple[Any, ...]]:
        outer = {START, "patch_tool_calls"}
        return {
            (e.source, e.target, e.data, e.conditional)
            for e in drawing.edges
            if e.source not in outer
        }

    assert inner(after) == inner(before)

    def ends(drawing: Any, source: str) -> set[tuple[Any, Any]]:
        return {(e.target, e.data) for e in drawing.edges if e.source == source}

    assert {t for t, _ in ends(after, START)} == {
        *(t for t, _ in ends(before, START)),
        "patch_tool_calls",
    }
    assert ends(after, "patch_tool_calls") == ends(before, START)
    assert "patch_tool_calls" in with_patching(bare).get_graph().draw_mermaid()


def test_a_graph_that_goes_by_commands():
    """Nodes that say where to go need no edges; they are patched all the same."""
    model = StrictModel(script=[both_calls(), AIMessage("fine")])

    def agent(state: State) -> Command[Literal["tools", "__end__"]]:
        answer = model.invoke(state["messages"])
        goto = "tools" if answer.tool_calls else END
        return Command(update={"messages": [answer]}, goto=goto)

    builder = StateGraph(State)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode(Tools().tools()))
    builder.add_edge("tools", "agent")
    builder.add_edge(START, "agent")
    bare = builder.compile(checkpointer=InMemorySaver())
    graph = with_patching(bare)
    graph.invoke({"messages": [human("book it")]}, thread())
    with pytest.raises(RefusedError):
        bare.invoke({"messages": [human("never mind")]}, thread())
    graph.invoke(None, thread())
    assert lines(history(graph, thread())) == [*REPAIRED, "ai: fine"]


# --- kinds of state and of output --------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "place", "asynchronous"),
    pairs([State, Data, FrozenData, Model], ["entry", "model_node"], [False, True]),
)
async def test_kinds_of_state(state: Any, place: str, *, asynchronous: bool):
    """Dicts, dataclasses (frozen too) and pydantic models; the model gets the same kind."""
    model = model_saying("fine")
    kinds = []

    def agent(values: Any) -> Any:
        kinds.append(type(values))
        return {"messages": [model.invoke(messages_in(values))]}

    builder = StateGraph(state)
    builder.add_node("agent", agent)
    builder.add_edge(START, "agent")
    bare = builder.compile(checkpointer=InMemorySaver())
    graph = with_patching(bare, model_node="agent")
    how = "ainvoke" if asynchronous else "invoke"
    if place == "entry":
        await run_by(graph, {"messages": OPEN}, how)
    else:
        bare.update_state(thread(), {"messages": OPEN}, as_node=START)
        await run_by(graph, None, how)
    assert lines(history(graph, thread())) == [*REPAIRED, "ai: fine"]
    assert kinds == [dict if state is State else state]


class Answered(BaseModel):
    """A pydantic state that a node may return whole."""

    messages: Annotated[list[AnyMessage], add_messages] = Field(default_factory=list)
    notes: Annotated[list[str], operator.add] = Field(default_factory=list)


@dataclass
class AnsweredData:
    """A dataclass state that a node may return whole."""

    messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)
    notes: Annotated[list[str], operator.add] = field(default_factory=list)


FINE = AIMessage("fine", id="a2")
OUTPUTS: dict[str, tuple[Any, Any, list[str], list[str]]] = {
    "dict": (State, {"messages": [FINE]}, ["ai: fine"], []),
    "one message": (State, {"messages": FINE}, ["ai: fine"], []),
    "pydantic": (Answered, Answered(messages=[FINE], notes=["n"]), ["ai: fine"], ["n"]),
    "dataclass": (AnsweredData, AnsweredData([FINE], ["n"]), ["ai: fine"], ["n"]),
    "command": (State, Command(update={"messages": [FINE]}, goto="after"), ["ai: fine"], ["after"]),
    "pairs": (State, Command(update=[("messages", [FINE]), ("notes", ["n"])]), ["ai: fine"], ["n"]),
    "commands": (
        State,
        [
            Command(update={"messages": [FINE]}),
            Command(update={"notes": ["n"]}, goto=Send("after", {})),
        ],
        ["ai: fine"],
        ["n", "after"],
    ),
    "mixed list": (
        State,
        [{"messages": [FINE]}, Command(update={"notes": ["n"]})],
        ["ai: fine"],
        ["n"],
    ),
    "none": (State, None, [], []),
    "empty dict": (State, {}, [], []),
    "other key": (State, {"notes": ["n"]}, [], ["n"]),
}


@pytest.mark.parametrize(("shape", "asynchronous"), in_turn(OUTPUTS, [False, True]))
async def test_shapes_of_output(shape: str, *, asynchronous: bool):
    """Whatever it returns arrives, and the stored history is valid after the next message."""
    state, output, answer, notes = OUTPUTS[shape]
    builder = StateGraph(state)
    builder.add_node("agent", lambda _: output, destinations=("after",))
    builder.add_node("after", lambda _: {"notes": ["after"]})
    builder.add_edge(START, "agent")
    bare = builder.compile(checkpointer=InMemorySaver())
    graph = with_patching(bare)
    bare.update_state(thread(), {"messages": OPEN}, as_node=START)
    await run_by(graph, None, "ainvoke" if asynchronous else "invoke")
    assert graph.get_state(thread()).values.get("notes", []) == notes
    await run_by(graph, "hello", "ainvoke" if asynchronous else "invoke")
    assert lines(history(graph, thread())) == [*REPAIRED, *answer, "human: hello"]


def test_what_langgraph_injects():
    """Config, runtime, store and stream writer reach the model node through its wrapper."""
    got: dict[str, Any] = {}

    def agent(state: State, config: RunnableConfig, runtime: Runtime[Any]) -> Any:
        got.update(config=config, context=runtime.context, store=runtime.store)
        runtime.stream_writer("wrote")
        return {"messages": [AIMessage("fine")]}

    builder = StateGraph(State, context_schema=Narrow)
    builder.add_node("agent", agent)
    builder.add_edge(START, "agent")
    store = InMemoryStore()
    bare = builder.compile(store=store, checkpointer=InMemorySaver())
    graph = with_patching(bare)
    bare.update_state(thread(), {"messages": OPEN}, as_node=START)
    chunks = list(graph.stream(None, thread(), context={"notes": ["ctx"]}, stream_mode="custom"))
    assert chunks == ["wrote"]
    assert got["config"]["metadata"]["langgraph_node"] == "agent"
    assert got["context"] == {"notes": ["ctx"]}
    assert got["store"] is store


# --- the node wrapper --------------------------------------------------------------------


def test_llm_input_messages():
    """The list of a `pre_model_hook` is repaired; nothing is written, so nothing is reported."""
    reported: list[Any] = []
    model = model_saying("fine")

    def hook(state: Any) -> Any:
        kept = trim_messages(state["messages"], strategy="last", token_counter=len, max_tokens=2)
        return {"llm_input_messages": kept}

    valid = [human("go"), ai(("send_email", {"to": "b"}, "c1"), id="a1")]
    valid += [ToolMessage("sent", tool_call_id="c1", id="t1", name="send_email"), human("thanks")]
    bare = react_v2(model, Tools().tools(), pre_model_hook=hook, checkpointer=InMemorySaver())
    graph = with_patching(bare, on_patch=lambda patch, _: reported.append(str(patch)))
    graph.invoke({"messages": valid}, thread())
    assert [lines(seen) for seen in model.seen] == [["human: thanks"]]
    assert history(graph, thread())[:4] == valid
    assert lines(history(graph, thread()))[4:] == ["ai: fine"]
    assert reported == []


# --- what a graph carries ----------------------------------------------------------------


class Transformer:
    """Stands for a `stream_transformers` factory."""

    def __init__(self, scope: tuple[str, ...]) -> None:
        self.scope = scope


@pytest.mark.needs(langgraph="1.2")
def test_node_specs_stay():
    """Retry, cache, metadata, defer, timeout and input schema of every node are as before."""
    builder = StateGraph(State)
    builder.add_node(
        "agent",
        lambda _: {"messages": [AIMessage("fine")]},
        retry_policy=RetryPolicy(max_attempts=3, initial_interval=0.01, jitter=False),
        cache_policy=CachePolicy(ttl=9),
        metadata={"owner": "me"},
        defer=True,
        input_schema=State,
        destinations=("note",),
    )
    noting(builder)
    builder.add_edge(START, "agent")
    patched = with_patching(builder)
    for name, spec in builder.nodes.items():
        copy = patched.nodes[name]
        for attribute in (
            "retry_policy",
            "cache_policy",
            "metadata",
            "defer",
            "timeout",
            "ends",
            "input_schema",
        ):
            assert getattr(copy, attribute) == getattr(spec, attribute)
    compiled = patched.compile()
    assert compiled.nodes["agent"].metadata == {"owner": "me"}


@pytest.mark.needs(langgraph="1.2")
async def test_a_node_timeout_stays():
    """A node with a time limit is still cut off, in the patched graph too."""
    import asyncio  # noqa: PLC0415 - this test alone waits

    async def slow(_: Any) -> Any:
        await asyncio.sleep(5)

    builder = StateGraph(State)
    builder.add_node("agent", slow, timeout=0.05)
    builder.add_edge(START, "agent")
    graph = with_patching(builder.compile())
    with pytest.raises(Exception, match=r"(?i)time"):
        await graph.ainvoke({"messages": [human("hi")]})


@pytest.mark.needs(langgraph="1.2")
def test_what_compile_was_given_stays():
    """Checkpointer, store, cache, interrupts, debug, name, config and time limit."""
    builder = parts(model_saying(), MessagesState)
    by_edge(builder)
    value: dict[str, Any] = {
        "checkpointer": InMemorySaver(),
        "store": InMemoryStore(),
        "cache": InMemoryCache(),
        "name": "clerk",
        "debug": False,
        "interrupt_before": ["tools"],
        "interrupt_after": ["agent"],
    }
    bare = builder.compile(**value, transformers=[Transformer]).with_config(
        tags=["t"], recursion_limit=77
    )
    bare.step_timeout = 12.5
    bare.retry_policy = [RetryPolicy(max_attempts=2)]
    bare.cache_policy = CachePolicy(ttl=3)
    bare.stream_mode = "values"
    patched = with_patching(bare)
    for attribute in (
        "checkpointer",
        "store",
        "cache",
        "name",
        "debug",
        "interrupt_before_nodes",
        "interrupt_after_nodes",
        "config",
        "step_timeout",
        "retry_policy",
        "cache_policy",
        "stream_mode",
        "stream_transformers",
    ):
        assert getattr(patched, attribute) == getattr(bare, attribute), attribute


def test_the_input_graph_is_untouched():
    """Nodes, edges, branches, schemas and the compiled result are what they were."""
    bare = built(by_branch_and_edge, model_saying("fine"), name="clerk")
    builder = bare.builder

    def picture() -> Any:
        return (
            {
                name: {slot: getattr(spec, slot) for slot in spec.__dataclass_fields__}
                for name, spec in builder.nodes.items()
            },
            set(builder.edges),
            {source: dict(branches) for source, branches in builder.branches.items()},
            set(builder.waiting_edges),
            {schema: dict(channels) for schema, channels in builder.schemas.items()},
            dict(builder.channels),
            dict(bare.nodes),
            dict(bare.channels),
            bare.get_graph().draw_mermaid(),
        )

    before = picture()
    graph = with_patching(bare)
    graph.invoke({"messages": OPEN}, thread())
    assert picture() == before
    with pytest.raises(RefusedError):
        bare.invoke({"messages": OPEN}, thread("2"))


def test_kind_in_kind_out():
    """A builder gives a builder, a compiled graph a compiled one, a subclass the subclass."""

    class MyGraph(StateGraph[Any, Any, Any, Any]):
        """A builder of one's own."""

    for kind in (StateGraph, MyGraph):
        builder = kind(MessagesState)
        builder.add_node("agent", lambda _: None)
        builder.add_edge(START, "agent")
        patched = with_patching(builder)
        assert isinstance(patched, kind)
        assert type(patched).__name__ == kind.__name__
        assert type(with_patching(builder.compile())) is CompiledStateGraph


# --- graphs in graphs --------------------------------------------------------------------


def family(inner: Graph, **options: Any) -> Graph:
    """A graph with one node, which is a graph."""
    builder = StateGraph(MessagesState)
    builder.add_node("alice", inner)
    builder.add_edge(START, "alice")
    return builder.compile(checkpointer=InMemorySaver(), **options)


@pytest.mark.parametrize(("place", "asynchronous"), in_turn(["entry", "inside"], [False, True]))
async def test_a_graph_as_a_node(place: str, *, asynchronous: bool):
    """Its own START repairs what goes in; the parent's history is valid after the next message."""
    model, how = model_saying("fine", "yes?"), "ainvoke" if asynchronous else "invoke"
    bare = family(react_v2(model, Tools(asynchronous=asynchronous).tools()))
    graph = with_patching(bare)
    value: Any = {"messages": OPEN}
    if place == "inside":
        bare.update_state(thread(), value, as_node=START)
        value = None
    await run_by(graph, value, how)
    assert [lines(seen) for seen in model.seen] == [REPAIRED]
    await run_by(graph, "hello", how)
    assert lines(history(graph, thread())) == [*REPAIRED, "ai: fine", "human: hello", "ai: yes?"]
    inner = dict(graph.get_subgraphs())
    assert list(inner) == ["alice"]
    assert "patch_tool_calls" in inner["alice"].nodes


def test_a_child_that_is_patched_already():
    """A nested graph that was patched by its owner is left as it is."""
    child = with_patching(react_v2(model_saying("fine"), Tools().tools()))
    graph = with_patching(family(child))
    assert dict(graph.get_subgraphs())["alice"] is child
    graph.invoke({"messages": OPEN}, thread())
    assert lines(history(graph, thread())) == [*REPAIRED, "ai: fine"]


# --- bad input ---------------------------------------------------------------------------


def plain(*names: str) -> StateGraph[Any]:
    """A builder with nodes of these names."""
    builder = StateGraph(MessagesState)
    for name in names:
        builder.add_node(name, lambda _: None)
        builder.add_edge(START, name)
    return builder


def test_a_graph_in_which_nothing_reads_the_history():
    """The error says which keys hold messages, and lists the nodes, nested ones too."""

    class Two(State):
        chat: list[AnyMessage]

    def note(_: Narrow) -> Any:
        return {"notes": ["n"]}

    inner = StateGraph(Two).add_node("deep", note).add_edge(START, "deep").compile()
    builder = StateGraph(Two).add_node("note", note).add_edge(START, "note")
    with pytest.raises(GraphError) as caught:
        with_patching(builder, messages_key="chat")
    assert str(caught.value) == (
        "No node reads the state key 'chat', so there is nothing to patch: give the key of the "
        "history with messages_key=... Keys with messages: 'chat', 'messages'. "
        "The nodes are: 'note'."
    )
    builder = StateGraph(Narrow).add_node("inner", inner).add_edge(START, "inner")
    with pytest.raises(GraphError, match=r"No node reads.*The nodes are: 'inner', 'inner\.deep'"):
        with_patching(builder)


def test_a_model_node_that_is_not_there():
    """One wrong name among right ones is named, with the nodes that there are."""
    builder = plain("plan", "act")
    builder.add_node("inner", plain("deep").compile())
    builder.add_node("tools", ToolNode(Tools().tools()))
    builder.add_edge(START, "inner")
    expected = r"no node called 'missing' can call.*'plan', 'act', 'inner', 'inner\.deep', 'tools'"
    with pytest.raises(GraphError, match=expected):
        with_patching(builder.compile(), model_node=["plan", "missing"])
    with pytest.raises(GraphError, match="no node called 'tools' can call a model"):
        with_patching(builder, model_node="tools")
    with pytest.raises(GraphError, match=r"no node called 'inner' can call.*name the node in it"):
        with_patching(builder, model_node="inner")


@pytest.mark.parametrize("value", [3, [], [1], ""])
def test_a_model_node_that_is_no_name(value: Any):
    """What is no name is quoted."""
    with pytest.raises(OptionError, match="model_node="):
        with_patching(plain("agent"), model_node=value)


def test_a_key_that_is_not_in_the_schema():
    """Seen when the graph is wrapped, before anything runs."""
    with pytest.raises(GraphError, match=r"messages_key='chat'.*expected one of 'messages'\."):
        with_patching(plain("agent"), messages_key="chat")


def test_a_name_that_is_taken():
    """Patched twice, or a node of that name: the error says what to do."""
    once = with_patching(plain("agent").compile())
    for graph in (once, plain("patch_tool_calls")):
        with pytest.raises(GraphError, match=r"'patch_tool_calls' already.*needs another one"):
            with_patching(graph)


def things_that_are_no_graph() -> Sequence[Any]:
    """What people may try."""

    @entrypoint()
    def chat(text: str) -> str:
        return text

    graph = plain("agent").compile()
    return [graph.bind(stop=["x"]), graph.with_retry(), chat, None, lambda s: s, "graph", {}]


@pytest.mark.parametrize("place", range(7))
def test_something_that_is_no_graph(place: int):
    """A bound or retried graph, an entrypoint, anything else: named, with what to do."""
    thing = things_that_are_no_graph()[place]
    with pytest.raises(GraphError, match="expected a StateGraph") as caught:
        with_patching(thing)
    assert type(thing).__name__ in str(caught.value)
    assert isinstance(caught.value, PatchError)


def test_bad_options():
    """Options are checked when the graph is wrapped."""
    for option, value in {"recover": "yes", "placeholder": 1, "messages_key": 3}.items():
        with pytest.raises(OptionError, match=f"{option}={value!r}"):
            with_patching(plain("agent"), **{option: value})


@pytest.mark.parametrize("key", ["messages", "__root__"])
def test_a_state_that_is_a_bare_list(key: str):
    """The error says what to do."""
    builder = StateGraph(Annotated[list[AnyMessage], add_messages])
    builder.add_node("agent", lambda _: []).add_edge(START, "agent")
    with pytest.raises(GraphError, match="bare value: expected a schema with a key"):
        with_patching(builder, messages_key=key)
