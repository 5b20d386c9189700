"""`PatchedNode` around nodes that are graphs, have caches, stream, or echo their input."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, RemoveMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, Overwrite, interrupt

from langgraph_patch import with_patching
from langgraph_patch.graph.node import PatchedNode
from langgraph_patch.graph.repairer import Repairer
from support.agents import Graph, Tools, both_calls, history, human, lines, react_v2, thread
from support.callbacks import RunNames
from support.open_calls import model_saying
from support.placeholder_texts import UNKNOWN, WAITED
from support.running import in_turn, pairs
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


@pytest.mark.parametrize(
    ("child", "asynchronous"),
    in_turn([tools_at_once, tools_if_called, tools_if_approved], [False, True]),
)
async def test_a_graph_that_runs_the_tools(child: Any, *, asynchronous: bool):
    """Calls at the tail are its to run: a healthy graph is as it was, for clients too."""
    tools = Tools(asynchronous=asynchronous)
    model = StrictModel(script=[CALL, AIMessage("done")])
    builder = StateGraph(MessagesState).add_node("agent", answering(model))
    builder.add_node("tools", child(tools.tools())).add_edge("tools", "agent")
    builder.add_edge(START, "agent").add_conditional_edges("agent", tools_condition)
    patches: list[Any] = []
    graph = with_patching(
        builder.compile(checkpointer=InMemorySaver()),
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


@pytest.mark.parametrize(
    ("node", "kind"), pairs([echoing, overwriting, trimming], ["model", "input"])
)
def test_a_node_that_rewrites_the_history(node: Any, kind: str):
    """It may have read placeholders that the state lacks; the thread goes on, and is valid."""
    builder = StateGraph(MessagesState).add_node("look", node).add_edge(START, "look")
    bare = builder.compile(checkpointer=InMemorySaver())
    bare.update_state(thread(), {"messages": DAMAGED}, as_node=START)
    graph = with_patching(bare, model_node="look" if kind == "model" else None)
    graph.invoke(None, thread())
    graph.invoke({"messages": [human("hello")]}, thread())
    refuse(history(graph, thread()))
    kept = ["human: go", "ai c1: ", NOT_RECORDED, "human: never mind"]
    after = [line for line in lines(history(graph, thread())) if line != "ai: ok"]
    assert after == [*([] if node is trimming else kept), "human: hello"]


def test_a_model_node_beside_a_node_that_removes():
    """It repairs its input only; the history is valid after the next message, in order."""
    name, late = "z_summarise", [CALL, human("and?", "h9"), AIMessage("hm")]
    builder = StateGraph(MessagesState)
    builder.add_node("pre", lambda s: None if len(s["messages"]) > 1 else {"messages": late})
    model = model_saying("ok", "yes?")
    builder.add_node("model", answering(model))
    removes = lambda s: {"messages": [RemoveMessage(id="h9")] if s["messages"][2:3] else []}
    builder.add_node(name, lambda s: removes(s) if len(model.seen) < 2 else None)
    builder.add_edge(START, "pre").add_edge("pre", "model")
    bare = builder.add_conditional_edges(
        "pre", lambda s: name if s["messages"][2:3] and not model.seen else END, [name, END]
    ).compile(checkpointer=InMemorySaver())
    graph = with_patching(bare, model_node="model")
    graph.invoke({"messages": [human("go")]}, thread())
    graph.invoke({"messages": [human("hello")]}, thread())
    assert lines(history(graph, thread())) == [
        "human: go", "ai c1: ", NOT_RECORDED, "ai: hm", "ai: ok", "human: hello", "ai: yes?",
    ]  # fmt: skip


# --- what LangGraph knows a node by ------------------------------------------------------


@pytest.mark.parametrize(("kind", "thread_id"), [("memory", 7), ("sqlite", uuid.UUID(int=7))])
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


async def parts_of(graph: Graph, messages: list[Any], kind: str) -> list[Any]:
    """What `astream_events` tells of the parts that are streamed."""
    events = graph.astream_events({"messages": messages}, version="v2")
    return [event["data"]["chunk"] async for event in events if event["event"] == kind]


def one_node(node: Any) -> Graph:
    """A graph of a model node alone."""
    builder = StateGraph(MessagesState).add_node("model", node).add_edge(START, "model")
    return builder.compile()


async def test_a_chain_that_streams():
    """It streams as the bare node does, in a damaged turn too."""
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


async def test_it_is_a_runnable_like_any():
    """However it is run, it repairs, and it adds no run of its own."""
    model = model_saying(*["fine"] * 6)
    inner = RunnableLambda(answering(model))
    wrapper = PatchedNode(inner, {"messages": Repairer()}, written=(), shown=())
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


def test_a_model_node_that_goes_to_its_parent():
    """The parent has a history of its own: all of it stays."""

    def breaking(state: Any) -> Any:
        gone = [RemoveMessage(id=message.id) for message in state["messages"]]
        return {"messages": [*gone, CALL, human("sub question")]}

    def handing(state: Any) -> Any:
        refuse(state["messages"])
        update = {"messages": [AIMessage("bye", id="b")]}
        return Command(goto="end", graph=Command.PARENT, update=update)

    inner = StateGraph(MessagesState).add_node("break", breaking).add_node("hand", handing)
    inner.add_edge(START, "break").add_edge("break", "hand")
    builder = StateGraph(MessagesState).add_node("sub", inner.compile(), destinations=("end",))
    builder.add_node("end", lambda _: None).add_edge(START, "sub")
    graph = with_patching(builder.compile(), model_node="sub.hand")
    after = graph.invoke({"messages": [human("book it"), AIMessage("ok"), human("go")]})
    assert lines(after["messages"]) == ["human: book it", "ai: ok", "human: go", "ai: bye"]
