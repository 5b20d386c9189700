"""Graphs in graphs, with schemas of their own: broken in every way, they go on.

For each family of graphs and each break: the model, which refuses what providers refuse, never
reads a broken history; the stored history is valid; and a result that was recorded of a call in
the history is in the history. `test_agents_and_breaks.py` does the same with single agents.

A graph without a memory of its own gives its messages to its parent when it ends
(`Family.is_inside`). If its run is abandoned, the parent never gets the calls: a patched parent
adds them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from langgraph_patch import validate_messages, with_patching
from support.agents import Graph, both_calls, history, human, lines, one_send_each, thread
from support.placeholder_texts import FAILED, WAITED
from support.running import in_turn, pairs, sync_and_async
from support.strict import RefusedError, StrictModel, refuse
from support.watched import Watched

BOOKED = {"messages": [human("book it")]}
NEVER_MIND = {"messages": [human("never mind")]}


class Outcome(TypedDict):
    """What a graph that a tool runs says in the end."""

    outcome: str


class Desk:
    """The tools: the mail is sent, the money waits for a human, or fails at the first try.

    Attributes:
        saver: Where the runs are recorded.
        fails: Whether `wire_money` fails at the first try, and then asks no human.
        by_graph: Whether `wire_money` runs a graph to do its work.
        done: What was really done, in order.
    """

    def __init__(self, *, fails: bool) -> None:
        self.saver = Watched()
        self.fails = fails
        self.by_graph = False
        self.done: list[str] = []

    def send_email(self, to: str) -> str:
        """Send an email."""
        self.done.append("mail")
        return f"sent to {to}"

    def wire_money(self, amount: int) -> str:
        """Wire money."""
        return self.inner().invoke({"outcome": ""})["outcome"] if self.by_graph else self.wire()

    async def awire_money(self, amount: int) -> str:
        """Wire money."""
        if self.by_graph:
            return (await self.inner().ainvoke({"outcome": ""}))["outcome"]
        return await RunnableLambda(lambda _: self.wire()).ainvoke(None)

    def wire(self) -> str:
        """Ask the human; or fail, when the mail is on record, and do better next time."""
        if not self.fails:
            return f"wired: {interrupt('wire 3?')}"
        self.done.append("try")
        if self.done.count("try") == 1:
            self.saver.wait_for("sent to bob")
            raise ConnectionError("the bank is down")
        return "wired: at last"

    def inner(self) -> Graph:
        """The graph that a tool runs."""
        builder = StateGraph(Outcome)
        builder.add_node("wire", lambda _: {"outcome": self.wire()})
        builder.add_edge(START, "wire")
        return builder.compile()

    def tools(self) -> list[StructuredTool]:
        """As the agents take them, for sync and async runs."""
        return [
            StructuredTool.from_function(self.send_email),
            StructuredTool.from_function(self.wire_money, self.awire_money),
        ]

    def node(self) -> ToolNode:
        """A tool node of one's own."""
        return ToolNode(self.tools())


def script() -> StrictModel:
    """A model that makes two calls and then repeats the last message."""
    return StrictModel(script=[both_calls(), *[lambda seen: AIMessage(f"re: {seen[-1].text}")] * 9])


def loop(builder: StateGraph[Any, Any], desk: Desk, model: StrictModel) -> StateGraph[Any, Any]:
    """Put an agent and its tools into a builder of any schema."""
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", desk.node())
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", one_send_each, ["tools", END])
    builder.add_edge("tools", "agent")
    return builder


# --- the families --------------------------------------------------------------------------

Wrap = Callable[[Any], Any]
Build = Callable[[Desk, StrictModel, Wrap], Graph]


class Whole(MessagesState):
    """All that a graph knows."""

    steps: int


class Question(MessagesState):
    """What it takes."""


class Answer(TypedDict):
    """What it gives: no history."""

    steps: int


def schemas(desk: Desk, model: StrictModel, wrap: Wrap) -> Graph:
    """Another schema for what goes in and for what comes out."""
    builder = StateGraph(Whole, input_schema=Question, output_schema=Answer)
    return wrap(loop(builder, desk, model).compile(checkpointer=desk.saver))


@dataclass
class Ann:
    """The context of a run."""

    user: str


def context(desk: Desk, model: StrictModel, wrap: Wrap) -> Graph:
    """Parent and child with a context that names the user."""

    def call(state: MessagesState, runtime: Runtime[Ann]) -> dict[str, Any]:
        assert runtime.context.user == "ann"
        return {"messages": [model.invoke(state["messages"])]}

    child = StateGraph(MessagesState, context_schema=Ann)
    child.add_node("agent", call)
    child.add_node("tools", desk.node())
    child.add_edge(START, "agent")
    child.add_conditional_edges("agent", one_send_each, ["tools", END])
    child.add_edge("tools", "agent")
    builder = StateGraph(MessagesState, context_schema=Ann)
    builder.add_node("clerk", child.compile())
    builder.add_edge(START, "clerk")
    return wrap(builder.compile(checkpointer=desk.saver))


class Case(TypedDict):
    """The state of a child that does not share its parent's."""

    messages: Annotated[list[AnyMessage], add_messages]
    number: int


def called(desk: Desk, model: StrictModel, wrap: Wrap, **options: Any) -> Graph:
    """A graph with a state of its own that a node calls: it is the child that is patched."""
    child = wrap(loop(StateGraph(Case), desk, model).compile(**options))

    def call(state: MessagesState) -> dict[str, Any]:
        out = child.invoke({"messages": state["messages"][-1:], "number": 7})
        return {"messages": out["messages"][-1:]}

    async def acall(state: MessagesState) -> dict[str, Any]:
        out = await child.ainvoke({"messages": state["messages"][-1:], "number": 7})
        return {"messages": out["messages"][-1:]}

    builder = StateGraph(MessagesState)
    builder.add_node("clerk", RunnableLambda(call, acall))
    builder.add_edge(START, "clerk")
    return builder.compile(checkpointer=desk.saver)


def called_with_a_memory(desk: Desk, model: StrictModel, wrap: Wrap) -> Graph:
    """The same, and the child remembers."""
    return called(desk, model, wrap, checkpointer=True)


def in_a_tool(desk: Desk, model: StrictModel, wrap: Wrap) -> Graph:
    """An agent with a tool that runs a graph, which asks the human or fails."""
    desk.by_graph = True
    return wrap(create_agent(model, desk.tools(), checkpointer=desk.saver))


@dataclass(frozen=True, slots=True)
class Family:
    """How graphs are put into each other.

    Attributes:
        build: Makes one out of tools and a model, patched by `wrap`.
        entry: The node that `goto` names.
        is_inside: Whether a run that is abandoned leaves no trace in any history.
        namespace: Where the history with the calls is.
        context: The context of a run.
    """

    build: Build
    entry: str = "clerk"
    is_inside: bool = False
    namespace: str = ""
    context: Any = None


FAMILIES = {
    family.build.__name__: family
    for family in (
        Family(schemas, entry="agent"),
        Family(context, is_inside=True, context=Ann("ann")),
        Family(called_with_a_memory, namespace="clerk"),
        Family(in_a_tool, entry="model"),
    )
}


# --- the breaks ----------------------------------------------------------------------------


class Play:
    """One thread of one family: the bare graph and the patched one, over the same tools."""

    def __init__(self, name: str, *, fails: bool = False, asynchronous: bool = False) -> None:
        self.family = FAMILIES[name]
        self.asynchronous = asynchronous
        self.desk = Desk(fails=fails)
        self.model = script()
        self.bare = self.family.build(self.desk, self.model, lambda graph: graph)
        self.graph = self.family.build(self.desk, self.model, with_patching)

    async def run(self, value: Any, graph: Graph | None = None) -> Any:
        """Run a graph, by default the patched one, synchronously or asynchronously."""
        graph, context = graph or self.graph, self.family.context
        if self.asynchronous:
            return await graph.ainvoke(value, thread(), context=context)
        return graph.invoke(value, thread(), context=context)

    async def break_off(self, graph: Graph | None = None) -> None:
        """Let the human be asked, or the tool fail."""
        if self.desk.fails:
            with pytest.raises(ConnectionError, match="the bank is down"):
                await self.run(BOOKED, graph)
        else:
            await self.run(BOOKED, graph)
            assert self.graph.get_state(thread()).interrupts
        assert self.desk.done.count("mail") == 1

    async def die(self) -> None:
        """Let the bare graph be refused: by a message, or where that is forgotten by an edit."""
        await self.break_off(self.bare)
        value: Any = NEVER_MIND
        if self.family.is_inside:
            edit = {"messages": [both_calls(), human("never mind")]}
            self.bare.update_state(thread(), edit, as_node=START)
            value = None
        with pytest.raises(RefusedError, match="c1"):
            await self.run(value, self.bare)

    def history(self) -> list[AnyMessage]:
        """The history that holds the calls, if any does."""
        place = {"thread_id": "1", "checkpoint_ns": self.family.namespace}
        saved = self.desk.saver.get_tuple({"configurable": place})
        assert saved is not None
        return saved.checkpoint["channel_values"]["messages"]

    def results(self) -> dict[str, str]:
        """What each call came to, in a history that is valid."""
        messages = self.history()
        assert validate_messages(messages) == []
        refuse(messages)
        return {m.tool_call_id: m.text for m in messages if isinstance(m, ToolMessage)}

    async def check_the_next_turns(self) -> None:
        """The thread goes on as if nothing had been, and nothing is done twice."""
        assert self.graph.get_state(thread()).next == ()
        results = self.results()
        for text in ("hello", "and now?"):
            await self.run({"messages": [human(text)]})
            shown = lines(history(self.graph, thread()))
            assert shown[-2:] == [f"human: {text}", f"ai: re: {text}"]
            assert self.results() == results
        assert self.desk.done.count("mail") == 1


@pytest.mark.parametrize(
    ("name", "fails", "asynchronous"), pairs(FAMILIES, [False, True], [False, True])
)
async def test_a_new_message(name: str, *, fails: bool, asynchronous: bool):
    """The model never refuses, the stored history is valid, the mail's result is recovered."""
    play = Play(name, fails=fails, asynchronous=asynchronous)
    await play.break_off()
    await play.run(NEVER_MIND)
    reported = (
        FAILED.format("wire_money", "c2", "ConnectionError('the bank is down')")
        if fails
        else WAITED.format("wire_money", "c2")
    )
    remembered = {"c1": "sent to bob", "c2": reported}
    assert play.results() == remembered
    await play.check_the_next_turns()


@pytest.mark.parametrize(
    ("name", "how", "asynchronous"),
    pairs(FAMILIES, ["none", "goto"], [False, True]),
)
async def test_a_dead_thread_without_a_message(name: str, how: str, *, asynchronous: bool):
    """What stopped the bare graph is repaired, whichever way the patched one is started."""
    play = Play(name, asynchronous=asynchronous)
    await play.die()
    await play.run(None if how == "none" else Command(goto=play.family.entry))
    assert lines(play.history())[-1] == "ai: re: never mind"
    # A nested graph repairs its own history; that of its parent is repaired by the next message.
    await play.run({"messages": [human("go on")]})
    assert play.results().keys() == {"c1", "c2"}
    if not play.family.is_inside:
        assert play.results()["c1"] == "sent to bob"
    said = ["human: never mind", "ai: re: never mind", "human: go on", "ai: re: go on"]
    assert lines(play.history())[-4:] == said
    await play.check_the_next_turns()


@pytest.mark.parametrize(("name", "asynchronous"), in_turn(FAMILIES, [False, True]))
async def test_a_goto_beside_a_live_pause(name: str, *, asynchronous: bool):
    """LangGraph runs it beside what waits: the pause lives on, and its answer arrives."""
    play = Play(name, asynchronous=asynchronous)
    await play.break_off()
    await play.run(Command(goto=play.family.entry))
    assert play.graph.get_state(thread()).interrupts
    await play.run(Command(resume="yes"))
    assert play.results() == {"c1": "sent to bob", "c2": "wired: yes"}
    await play.check_the_next_turns()


@pytest.mark.parametrize(
    ("name", "fails", "asynchronous"), pairs(FAMILIES, [False, True], [True, False])
)
async def test_what_is_resumed_is_not_repaired(name: str, *, fails: bool, asynchronous: bool):
    """An answer to the pause, or `invoke(None)` after a failure: both results are real."""
    play = Play(name, fails=fails, asynchronous=asynchronous)
    await play.break_off()
    await play.run(None if fails else Command(resume="yes"))
    reported = "wired: at last" if fails else "wired: yes"
    assert lines(history(play.graph, thread()))[-1] == f"ai: re: {reported}"
    assert play.results() == {"c1": "sent to bob", "c2": reported}
    await play.check_the_next_turns()


# --- what belongs to the schemas -------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_what_comes_out_is_as_before(name: str):
    """A healthy run of the patched graph gives what the bare one gives, under the same keys."""
    play = Play(name)
    play.model.script[:] = [AIMessage("hi", id="hi")] * 2
    outs = [
        graph.invoke({"messages": [human("hello")]}, thread(number), context=play.family.context)
        for number, graph in (("1", play.bare), ("2", play.graph))
    ]
    assert outs[0] == outs[1]
    assert play.bare.get_output_jsonschema() == play.graph.get_output_jsonschema()
    assert play.bare.get_input_jsonschema() == play.graph.get_input_jsonschema()


@sync_and_async
async def test_a_child_that_a_node_calls_must_be_patched_itself(*, asynchronous: bool):
    """The parent cannot see it, and patching the node that calls it is not enough."""
    play = Play("called_with_a_memory", asynchronous=asynchronous)
    parent = with_patching(play.bare, model_node="clerk")
    await play.break_off(parent)
    with pytest.raises(RefusedError, match="c1"):
        await play.run(NEVER_MIND, parent)
