"""The node wrapper around nodes that are graphs, have caches, stream, or echo their input."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, RemoveMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import CachePolicy, Command, Overwrite, interrupt
from langgraph_patch.graph.histories import Histories
from langgraph_patch.graph.node_wrapper import NodeWrapper
from pydantic import BaseModel
from typing_extensions import TypedDict

from langgraph_patch import with_patching
from langgraph_patch.graph.repairer import Repairer
from support.agents import Graph, Tools, both_calls, history, human, lines, react_v2, thread
from support.callbacks import RunNames
from support.open_calls import model_saying
from support.placeholder_texts import UNKNOWN, WAITED
from support.strict import StrictModel, ai, refuse

CALL = ai(("send_email", {"to": "bob"}, "c1"), id="a1")
DAMAGED = [human("go", None), CALL, human("never mind", None)]
NOT_RECORDED = f"tool c1: {UNKNOWN.format('send_email', 'c1')}"


def answering(model: StrictModel) -> Any:
    """A node that calls the model."""
    return lambda state: {"messages": [model.invoke(state["messages"])]}


# --- a graph that runs the tools ---------------------------------------------------------


def tools_at_once(tools: Any) -> Graph:
    """START leads to the tools."""
    return StateGraph(MessagesState).add_node("run", ToolNode(tools)).add_edge(
        START, "run"
    ).compile()  # fmt: skip


def tools_if_called(tools: Any) -> Graph:
    """A router looks at the calls first."""
    builder = StateGraph(MessagesState).add_node("run", ToolNode(tools))
    builder.add_conditional_edges(START, tools_condition, {"tools": "run", END: END})
    return builder.compile()


def tools_if_approved(tools: Any) -> Graph:
    """A node reads the calls, asks a human, and goes on."""

    def approve(state: Any) -> Any:
        assert interrupt(state["messages"][-1].tool_calls)
        return Command(goto="run")

    builder = StateGraph(MessagesState).add_node("run", ToolNode(tools))
    builder.add_node("approve", approve, destinations=("run",)).add_edge(START, "approve")
    return builder.compile()


@pytest.mark.parametrize("child", [tools_at_once, tools_if_called, tools_if_approved])
@pytest.mark.parametrize("persist", [True, False])
@pytest.mark.parametrize("recursive", [True, False])
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_graph_that_runs_the_tools(
    child: Any, *, persist: bool, recursive: bool, asynchronous: bool
):
    """Calls at the tail are its to run: a healthy graph is as it was, for clients too."""
    tools = Tools(asynchronous=asynchronous)
    model = StrictModel(script=[CALL, AIMessage("done")])
    builder = StateGraph(MessagesState).add_node("agent", answering(model))
    builder.add_node("tools", child(tools.tools())).add_edge("tools", "agent")
    builder.add_edge(START, "agent").add_conditional_edges("agent", tools_condition)
    patches: list[Any] = []
    graph = with_patching(
        builder.compile(checkpointer=InMemorySaver()),
        recursive=recursive,
        persist=persist,
        on_patch=lambda patch, _: patches.append(patch),
    )
    heard = []
    value: Any = {"messages": [human("go")]}
    while True:
        if asynchronous:
            async for chunk, _ in graph.astream(value, thread(), stream_mode="messages"):
                heard.append(chunk)
        else:
            heard += [chunk for chunk, _ in graph.stream(value, thread(), stream_mode="messages")]
        if not graph.get_state(thread()).interrupts:
            break
        value = Command(resume=True)
    expected = ["human: go", "ai c1: ", "tool c1: sent to bob", "ai: done"]
    assert lines(history(graph, thread())) == expected
    assert tools.done == ["mail to bob"]
    assert not patches
    assert NOT_RECORDED not in lines(heard)


@pytest.mark.parametrize("recursive", [True, False])
def test_a_graph_that_is_named_as_a_model(*, recursive: bool):
    """A named node that has no model with a usual name inside: calls are answered before it."""
    model = model_saying("fine")
    inner = StateGraph(MessagesState).add_node("think", answering(model)).add_edge(START, "think")
    builder = StateGraph(MessagesState).add_node("llm", inner.compile()).add_edge(START, "llm")
    bare = builder.compile(checkpointer=InMemorySaver())
    graph = with_patching(bare, model_node="llm", recursive=recursive)
    graph.invoke({"messages": [human("go"), CALL]}, thread())
    assert lines(history(graph, thread())) == ["human: go", "ai c1: ", NOT_RECORDED, "ai: fine"]


# --- what the model was only shown -------------------------------------------------------


def agent_graph(model: StrictModel) -> Any:
    """A graph as a node: it returns its whole history."""
    return react_v2(model, [])


def echoing(model: StrictModel) -> Any:
    """A function that returns its whole history."""
    return lambda state: {"messages": [*state["messages"], model.invoke(state["messages"])]}


class Answer(BaseModel):
    """An answer as an object."""

    messages: list[Any]


def echoing_object(model: StrictModel) -> Any:
    """The same as a state object."""
    echo = echoing(model)
    return lambda state: Answer(**echo(state))


def echoing_pairs(model: StrictModel) -> Any:
    """The same as commands, one of them with pairs."""
    echo = echoing(model)
    return lambda state: [Command(update=list(echo(state).items())), Command(update={})]


@pytest.mark.parametrize("node", [agent_graph, echoing, echoing_object, echoing_pairs])
def test_what_was_only_shown_is_not_written(node: Any):
    """With `persist=False` the state stays as it is, whatever the node returns."""
    model = model_saying("ok", "again")
    builder = StateGraph(MessagesState).add_node("agent", node(model)).add_edge(START, "agent")
    graph = with_patching(builder.compile(checkpointer=InMemorySaver()), persist=False)
    renamed = ai(("send email", {}, "c9"), id="a9")
    graph.invoke({"messages": [*DAMAGED, renamed, human("x")]}, thread())
    stored = history(graph, thread())
    assert lines(stored) == [
        "human: go",
        "ai c1: ",
        "human: never mind",
        "ai c9: ",
        "human: x",
        "ai: ok",
    ]
    assert stored[3].tool_calls[0]["name"] == "send email"
    assert [len(seen) for seen in model.seen] == [7]


class Whole(TypedDict):
    """A history that each write replaces."""

    messages: list[Any]


def test_what_was_changed_for_the_model_alone_is_given_back():
    """A history that is written whole keeps the call and the result as they were."""
    answer = AIMessage("ok", id="ok")
    called = ai(("send email", {}, "c9"), id="a9")
    result = ToolMessage("sent", tool_call_id="c9", id="t9", name="send email")
    stored = [human("go"), called, result, human("thanks")]
    for state, wrap in ((Whole, list), (MessagesState, Overwrite)):
        builder = StateGraph(state).add_edge(START, "model")
        builder.add_node("model", lambda s, w=wrap: {"messages": w([*s["messages"], answer])})
        graph = with_patching(builder.compile(), persist=False)
        assert graph.invoke({"messages": stored})["messages"] == [*stored, answer]


def test_pairs_of_another_key_stay_pairs():
    """A command that updates two keys updates both."""

    class Noted(MessagesState):
        note: str

    builder = StateGraph(Noted).add_edge(START, "model")
    update = [("messages", [AIMessage("ok")]), ("note", "n")]
    builder.add_node("model", lambda _: Command(update=update))
    after = with_patching(builder.compile(), persist=False).invoke({"messages": DAMAGED})
    assert (after["messages"][-1].content, after["note"]) == ("ok", "n")


def handing(state: Any) -> Any:
    """A node that goes to the parent's node with its whole input."""
    reported = [*state["messages"], AIMessage("bye", id="b")]
    return Command(goto="end", graph=Command.PARENT, update={"messages": reported})


@pytest.mark.parametrize("persist", [True, False])
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_nested_graph_that_goes_to_its_parent(*, persist: bool, asynchronous: bool):
    """The repair is written with the command, or not at all."""
    inner = StateGraph(MessagesState).add_node("hand", handing).add_edge(START, "hand").compile()
    builder = StateGraph(MessagesState).add_node("pre", lambda _: {"messages": DAMAGED})
    builder.add_node("sub", inner, destinations=("end",)).add_node("end", lambda _: None)
    builder.add_edge(START, "pre").add_edge("pre", "sub")
    graph = with_patching(builder.compile(), persist=persist)
    value: Any = {"messages": [human("0")]}
    after = await graph.ainvoke(value) if asynchronous else graph.invoke(value)
    repaired = [NOT_RECORDED] if persist else []
    assert lines(after["messages"]) == [
        "human: 0",
        "human: go",
        "ai c1: ",
        *repaired,
        "human: never mind",
        "ai: bye",
    ]


def test_a_node_that_trims_what_it_was_only_shown():
    """What no state holds cannot be removed from it."""

    def model(state: Any) -> Any:
        refuse(state["messages"])
        gone = [RemoveMessage(id=message.id) for message in state["messages"][:-1]]
        return {"messages": [*gone, AIMessage("answer")]}

    builder = StateGraph(MessagesState).add_node("model", model).add_edge(START, "model")
    graph = with_patching(builder.compile(), persist=False)
    left = graph.invoke({"messages": DAMAGED})["messages"]
    assert lines(left) == ["human: never mind", "ai: answer"]


# --- what LangGraph knows a node by ------------------------------------------------------


def sales(_: Any) -> Any:
    """One node."""
    return {"messages": [AIMessage("sales")]}


def legal(_: Any) -> Any:
    """Another node of the same name in another graph."""
    return {"messages": [AIMessage("legal")]}


def twice(graph: Graph) -> Graph:
    """Wrapped two times."""
    return with_patching(with_patching(graph, persist=False))


@pytest.mark.parametrize("wrap", [with_patching, twice])
def test_two_graphs_that_share_a_cache(wrap: Any):
    """Each is answered from its own entries, as bare graphs are."""
    cache = InMemoryCache[Any]()
    heard = []
    for function in (sales, legal, sales):
        builder = StateGraph(MessagesState).add_node("model", function, cache_policy=CachePolicy())
        graph = wrap(builder.add_edge(START, "model").compile(cache=cache))
        heard.append(graph.invoke({"messages": [human("hi", None)]})["messages"][-1].content)
    assert heard == ["sales", "legal", "sales"]


def test_a_default_error_handler_stays():
    """`compile()` makes the node of such a handler each time, in nested graphs too."""

    def fail(_: Any) -> Any:
        raise ZeroDivisionError

    def graph_of(node: Any) -> Graph:
        builder = StateGraph(MessagesState).add_node("model", node).add_edge(START, "model")
        builder.set_node_defaults(error_handler=lambda _: {"messages": [AIMessage("handled")]})
        return builder.compile()

    for bare in (graph_of(fail), graph_of(graph_of(fail))):
        graph = with_patching(bare)
        assert lines(graph.invoke({"messages": DAMAGED})["messages"]) == [
            "human: go",
            "ai c1: ",
            NOT_RECORDED,
            "human: never mind",
            "ai: handled",
        ]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("thread_id", [7, uuid.UUID(int=7)])
def test_a_thread_id_that_is_no_text(kind: str, thread_id: Any):
    """LangGraph stores any id as text; its results are found under that."""
    config = {"configurable": {"thread_id": thread_id}}
    with SqliteSaver.from_conn_string(":memory:") as sqlite:
        memory = InMemorySaver()
        saver = memory if kind == "memory" else sqlite
        model = StrictModel(script=[both_calls(), AIMessage("ok")])
        graph = with_patching(react_v2(model, Tools().tools(), checkpointer=saver))
        graph.invoke({"messages": [human("go")]}, config)
        graph.invoke({"messages": [human("never mind")]}, config)
        assert lines(history(graph, config)) == [
            "human: go",
            "ai c1 c2: ",
            "tool c1: sent to bob",
            f"tool c2: {WAITED.format('wire_money', 'c2')}",
            "human: never mind",
            "ai: ok",
        ]
        assert set(memory.storage) <= {str(thread_id)}


# --- beside others, and in streams -------------------------------------------------------


@pytest.mark.parametrize("name", ["a_summarise", "z_summarise"])
def test_a_repair_beside_a_node_that_removes(name: str):
    """Whoever writes first, the run goes on and the history is valid."""
    late = [ai(("send_email", {"to": "b"}, "c9"), id="a9"), human("and?", None), AIMessage("hm")]
    removed = late[1]
    removed.id = "h9"
    builder = StateGraph(MessagesState)
    builder.add_node("pre", lambda _: {"messages": [*late, human("well")]})
    builder.add_node("model", answering(model_saying("ok")))
    builder.add_node(name, lambda _: {"messages": [RemoveMessage(id="h9")]})
    builder.add_edge(START, "pre").add_edge("pre", "model").add_edge("pre", name)
    bare = builder.compile(checkpointer=InMemorySaver())
    graph = with_patching(bare, model_node="model")
    graph.invoke({"messages": [human("go")]}, thread())
    after = lines(history(graph, thread()))
    assert after[:3] == ["human: go", "ai c9: ", f"tool c9: {UNKNOWN.format('send_email', 'c9')}"]
    assert after[-3:] == ["ai: hm", "human: well", "ai: ok"]
    refuse(history(graph, thread()))


async def parts_of(graph: Graph, messages: list[Any], kind: str) -> list[Any]:
    """What `astream_events` tells of the parts that are streamed."""
    events = graph.astream_events({"messages": messages}, version="v2")
    return [event["data"]["chunk"] async for event in events if event["event"] == kind]


def one_node(node: Any) -> Graph:
    """A graph of a model node alone."""
    builder = StateGraph(MessagesState).add_node("model", node).add_edge(START, "model")
    return builder.compile()


async def test_a_chain_that_streams():
    """It streams as the bare node does; where the wrapper repairs, it answers as a whole."""
    bare = one_node(
        RunnableLambda(lambda state: state["messages"])
        | model_saying("a b", "c d", "e f", "g h")
        | StrOutputParser()
        | RunnableLambda(lambda text: {"messages": [AIMessage(text)]})
    )
    kind = "on_parser_stream"
    assert await parts_of(bare, [human("go")], kind) == ["a ", "b"]
    assert await parts_of(with_patching(bare), [human("go")], kind) == ["c ", "d"]
    assert await parts_of(with_patching(bare), DAMAGED, kind) == ["e ", "f"]
    assert await parts_of(with_patching(bare, persist=False), DAMAGED, kind) == []


async def test_a_generator_that_streams():
    """Each part of its answer is streamed, as by the bare graph."""

    async def node(state: Any) -> AsyncIterator[Any]:
        refuse(state["messages"])
        for text in "xyz":
            yield {"messages": [AIMessage(text, id="1")]}

    for graph in (bare := one_node(node), with_patching(bare)):
        reported = await parts_of(graph, [human("go")], "on_chain_stream")
        assert [p for p in reported if p.get("messages", [])[-1:] != [human("go")]][:3] == [
            {"messages": [AIMessage(text, id="1")]} for text in "xyz"
        ]


async def test_it_is_a_runnable_like_any():
    """However it is run, it repairs, and it adds no run of its own."""
    model = model_saying(*["fine"] * 6)
    wrapper = NodeWrapper(RunnableLambda(answering(model)), Histories((Repairer(),), writers={}))
    state = {"messages": DAMAGED}
    names: list[str] = []
    config: Any = {"callbacks": [RunNames(names)]}

    async def parts() -> AsyncIterator[Any]:
        yield state

    reported = [
        wrapper.invoke(state, config),
        *wrapper.stream(state, config),
        *wrapper.transform(iter([state]), config),
        await wrapper.ainvoke(state, config),
        *[part async for part in wrapper.astream(state, config)],
        *[part async for part in wrapper.atransform(parts(), config)],
    ]
    assert [lines(part["messages"]) for part in reported] == [["ai: fine"]] * 6
    assert [len(seen) for seen in model.seen] == [4] * 6
    assert names == ["RunnableLambda"] * 6
