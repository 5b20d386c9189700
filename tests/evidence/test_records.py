"""What statements the records support, what they do not, and what is found beside a result."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Annotated, Any, TypedDict

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send

from langgraph_patch._langgraph_names import NO_TASK
from langgraph_patch._sansio import run_sync
from langgraph_patch.evidence import queries
from langgraph_patch.evidence.recover import recover_evidence
from langgraph_patch.history.patch import Finding
from langgraph_patch.recording.wrappers import record_tool_calls
from support.evidence_agents import (
    AWAITING_INPUT,
    BOTH,
    BOTH_RECOVERED,
    CONFIG,
    NOT_STARTED,
    TOOLS,
    agent,
    ai_with_calls,
    deep,
    human_input,
    recovered,
    run_until_stop,
    scripted_model,
    v1,
    v2,
    wire_money,
)

WIRE = ai_with_calls("m1", "wire_money:c1")
pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")


def recovery_of(saver, *calls, config=CONFIG, **options):
    """The whole answer."""
    return run_sync(recover_evidence(saver, config, calls, **options))


# --- statements that the record does not support -------------------------------------------


def test_an_answer_in_the_root_of_a_lasting_subgraph():
    """The plain answer to a subgraph with its own checkpointer is in the root's checkpoint."""
    saver = InMemorySaver()
    inner = create_agent(scripted_model(WIRE), TOOLS, checkpointer=True)
    graph = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner")
    run_until_stop(graph.compile(checkpointer=saver), human_input("go"))
    config = {"configurable": {"thread_id": "1", "checkpoint_ns": "inner"}}
    assert recovered(saver, (WIRE, "c1"), config=config) == {("m1", "c1"): AWAITING_INPUT}
    root = saver.get_tuple(CONFIG)
    saver.put_writes(root.config, [("__resume__", "yes")], NO_TASK)
    assert recovered(saver, (WIRE, "c1"), config=config) == {}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("NodeTimeoutError('0.1 s')", Finding("failed", "NodeTimeoutError('0.1 s')", "timeout")),
        ("TimeoutError()", Finding("failed", "TimeoutError()")),
        ("CancelledError()", Finding("cancelled")),
    ],
)
def test_errors_of_langgraph(error, expected):
    """A timeout of LangGraph and a cancellation are not failures of the tool."""
    saver = InMemorySaver()
    graph = v2([ai_with_calls("m1", "slow:c1")], saver)
    graph.interrupt_before_nodes = ["tools"]
    run_until_stop(graph, human_input("go"))
    state = graph.get_state(CONFIG)
    saver.put_writes(state.config, [("__error__", error)], state.tasks[0].id)
    message = state.values["messages"][-1]
    assert recovered(saver, (message, "c1")) == {("m1", "c1"): expected}


def test_an_own_error_beside_an_interrupt():
    """Which of them came last is not recorded, unless the task wrote the answer too."""
    saver = InMemorySaver()
    graph = v2([WIRE], saver)
    run_until_stop(graph, human_input("go"))
    state = graph.get_state(CONFIG)
    saver.put_writes(state.config, [("__error__", "ValueError('no')")], state.tasks[0].id)
    assert recovered(saver, (WIRE, "c1")) == {}
    saver.put_writes(state.config, [("__resume__", ["yes"])], state.tasks[0].id)
    assert recovered(saver, (WIRE, "c1")) == {("m1", "c1"): Finding("failed", "ValueError('no')")}


def test_a_client_that_goes_past_the_approval():
    """A `goto` of a client may start the tools: nothing is stated about them."""
    saver = InMemorySaver()
    graph = agent_with_approval([WIRE], saver)
    run_until_stop(graph, human_input("go"))
    at = graph.get_state(CONFIG).config
    saver.put_writes(at, [("branch:to:tools", "__start__")], NO_TASK)
    assert recovered(saver, (WIRE, "c1")) == {}


def agent_with_approval(script, saver):
    """An agent that asks before `wire_money`."""
    asks = HumanInTheLoopMiddleware(interrupt_on={"wire_money": True})
    return create_agent(scripted_model(*script), TOOLS, checkpointer=saver, middleware=[asks])


def test_an_approval_that_is_open_is_asked_about_once_more():
    """An answer by interrupt id leaves no trace before the call ends: the next turn looks again."""
    saver = InMemorySaver()
    graph = agent_with_approval([WIRE], saver)
    run_until_stop(graph, human_input("wire"))
    found = recovery_of(saver, (WIRE, "c1")).evidence["m1", "c1"]
    assert (found.cause, found.detail) == ("not_started", "approval")
    assert found.searched is not None
    assert found.recheck


def cut_message():
    """A message with a call of which the arguments are incomplete."""
    bad = {"name": "wire_money", "args": '{"amount": 1', "id": "c1", "error": None}
    return AIMessage("", id="m1", invalid_tool_calls=[bad])


@pytest.mark.parametrize("runs", [True, False])
def test_incomplete_arguments(runs):
    """Whether anything ran after the message decides what is stated about the call."""
    saver, message = InMemorySaver(), cut_message()
    builder = StateGraph(MessagesState).add_node("agent", lambda _: {"messages": [message]})
    builder.add_node("tools", lambda _: {}).set_entry_point("agent")
    if runs:
        builder.add_edge("agent", "tools")
    graph = builder.compile(checkpointer=saver)
    run_until_stop(graph, human_input("go"))
    finding = recovered(saver, (message, "c1"))["m1", "c1"]
    assert finding == Finding("malformed", '{"amount": 1', detail="tools_ran" if runs else None)


# --- start marks -----------------------------------------------------------------------------


def test_a_recorded_call_without_a_start_mark():
    """Its sibling was marked and asked; this one was never started."""

    def first_only(request, execute):
        if request.tool_call["id"] == "c2":
            raise RuntimeError("no worker")
        return record_tool_calls(request, execute)

    saver, message = InMemorySaver(), ai_with_calls("m1", "wire_money:c1", "send_email:c2")
    node = ToolNode(TOOLS, wrap_tool_call=first_only, handle_tool_errors=False)
    builder = StateGraph(MessagesState).add_node("agent", lambda _: {"messages": [message]})
    builder.add_node("tools", node).set_entry_point("agent").add_edge("agent", "tools")
    run_until_stop(builder.compile(checkpointer=saver), human_input("go"), durability="sync")
    found = recovered(saver, (message, "c1"), (message, "c2"))
    assert found["m1", "c1"] == AWAITING_INPUT
    assert found["m1", "c2"] == NOT_STARTED


# --- unreadable checkpointers ----------------------------------------------------------------


class NoFilter(InMemorySaver):
    """Refuses to filter, as the official Redis checkpointer does for some keys."""

    def list(self, config, *, filter=None, before=None, limit=None):  # noqa: A002
        """Refuse a filter."""
        if filter:
            raise ValueError("Unsupported filter key: parents")
        yield from super().list(config, before=before, limit=limit)


class NoList(InMemorySaver):
    """Cannot list."""

    def list(self, *_: Any, **__: Any) -> Any:
        """Fail."""
        raise NotImplementedError


class OldRow(InMemorySaver):
    """Cannot read the first checkpoint of a thread."""

    def list(self, config, **options):
        """Fail at the first checkpoint."""
        for saved in super().list(config, **options):
            if saved.metadata["step"] == -1:
                raise ValueError("unknown type")
            yield saved


def test_a_checkpointer_that_refuses_the_filter():
    """It is asked without a filter, and filtered here."""
    saver = NoFilter()
    inner = v2([BOTH])
    graph = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner")
    graph = graph.add_node("more", lambda _: {}).compile(checkpointer=saver)
    run_until_stop(graph, human_input("go"))
    spaces = {t.config["configurable"]["checkpoint_ns"] for t in saver.list(CONFIG)} - {""}
    config = {"configurable": {"thread_id": "1", "checkpoint_ns": spaces.pop()}}
    found = recovery_of(saver, (BOTH, "c1"), (BOTH, "c2"), config=config, required=True)
    assert {key: getattr(e, "cause", "result") for key, e in found.evidence.items()} == {
        ("m1", "c1"): "result",
        ("m1", "c2"): "awaiting_input",
    }


@pytest.mark.parametrize("kind", [NoList, OldRow])
def test_evidence_that_cannot_be_read(kind, caplog):
    """One warning, and no statement that was not searched for; results found before are kept."""
    saver = kind()
    message = ai_with_calls("m1", "send_email:c1", "wire_money:c2", "slow:c3")
    graph = v2([BOTH, AIMessage("done")], saver)
    run_until_stop(graph, human_input("go"))
    with caplog.at_level(logging.WARNING, logger="langgraph_patch"):
        found = recovery_of(saver, (BOTH, "c1"), (BOTH, "c2"))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    texts = {k: e.content for k, e in found.evidence.items() if isinstance(e, ToolMessage)}
    assert texts == ({} if kind is NoList else {("m1", "c1"): "sent to bob"})
    others = [e for e in found.evidence.values() if isinstance(e, Finding)]
    assert set(others) <= {Finding("unknown", recheck=True)}
    assert message.id == "m1"


def test_waiting_counts_wall_time(monkeypatch):
    """A slow database does not multiply the time that a search waits for its checkpoint."""
    clock = [0.0]
    monkeypatch.setattr(queries.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(queries.time, "sleep", lambda _: None)
    asked = []

    class Slow(InMemorySaver):
        def list(self, config, **options):
            asked.append(options)
            clock[0] += 0.4
            yield from super().list(config, **options)

    saver = Slow()
    run_until_stop(v2([BOTH], saver), human_input("go"))
    asked.clear()
    config = {"configurable": {"thread_id": "1", "checkpoint_ns": "", "checkpoint_id": "2"}}
    recovered(saver, (BOTH, "c1"), (BOTH, "c2"), config=config)
    assert len(asked) <= 6


# --- effects -------------------------------------------------------------------------------


class Files(TypedDict, total=False):
    """A state with files."""

    messages: Annotated[list[AnyMessage], add_messages]
    files: dict[str, str]


@tool
def write_file() -> Command[Any]:
    """Write a file."""
    return Command(
        update={"files": {"a": "b"}, "messages": [ToolMessage("Updated file", tool_call_id="c1")]}
    )


@tool
def hand_over() -> Command[Any]:
    """Go to another node."""
    return Command(goto="bob", update={"messages": [ToolMessage("to bob", tool_call_id="c1")]})


def files_graph(saver, name, *, wrap=None):
    """An agent with a tool that writes more than its message, beside one that waits."""
    message = ai_with_calls("m1", f"{name}:c1", "wire_money:c2")
    script = iter([message, AIMessage("fine"), AIMessage("fine")])
    node = ToolNode([write_file, hand_over, wire_money], wrap_tool_call=wrap)

    def route(state):
        calls = getattr(state["messages"][-1], "tool_calls", ())
        if wrap:
            return "tools" if calls else "__end__"
        return [Send("tools", [call]) for call in calls] or "__end__"

    builder = StateGraph(Files).add_node("agent", lambda _: {"messages": [next(script)]})
    builder.add_node("tools", node).add_node("bob", lambda _: {}).add_edge(START, "agent")
    builder.add_conditional_edges("agent", route, ["tools", "__end__"]).add_edge("tools", "agent")
    return message, builder.compile(checkpointer=saver)


WAYS = pytest.mark.parametrize("wrap", [None, record_tool_calls], ids=["send", "recorded"])


@WAYS
def test_other_writes_of_a_recovered_result(wrap):
    """They come with the result, and it is known whether their channels have changed since."""
    saver = InMemorySaver()
    message, graph = files_graph(saver, "write_file", wrap=wrap)
    run_until_stop(graph, human_input("go"))
    run_until_stop(graph, human_input())
    found = recovery_of(saver, (message, "c1"), (message, "c2"))
    effects = found.effects["m1", "c1"]
    assert (effects.writes, effects.goto) == ((("files", {"a": "b"}),), ())
    assert effects.unchanged == {"files"}
    run_until_stop(graph, {"files": {"c": "d"}, **human_input()})
    assert recovery_of(saver, (message, "c1")).effects["m1", "c1"].unchanged == frozenset()


@WAYS
def test_a_dropped_goto(wrap):
    """A `goto` is an effect, the edge back to the model is none."""
    saver = InMemorySaver()
    message, graph = files_graph(saver, "hand_over", wrap=wrap)
    run_until_stop(graph, human_input("go"))
    run_until_stop(graph, human_input())
    found = recovery_of(saver, (message, "c1"))
    assert found.evidence["m1", "c1"].content == "to bob"
    assert found.effects["m1", "c1"].goto == ("bob",)


def test_a_plain_result_has_no_effects():
    """The edge after the tools is no effect, in every kind of agent."""
    for make in (agent, v2, deep):
        saver = InMemorySaver()
        graph = make([BOTH, AIMessage("done")], saver)
        run_until_stop(graph, human_input("go"))
        run_until_stop(graph, human_input())
        assert recovery_of(saver, (BOTH, "c1"), (BOTH, "c2")).effects == {}


# --- what was searched -----------------------------------------------------------------------


def test_what_was_searched():
    """A call that waits is searched once more; one without any end, until it has one."""
    saver = InMemorySaver()
    graph = v2([BOTH, AIMessage("done")], saver)
    run_until_stop(graph, human_input("go"))
    newest = saver.get_tuple(CONFIG).checkpoint["id"]
    found = recovery_of(saver, (BOTH, "c1"), (BOTH, "c2"))
    assert found.evidence["m1", "c2"] == replace(AWAITING_INPUT, searched=newest, recheck=True)

    saver = InMemorySaver()
    graph = v1([WIRE], saver)
    graph.interrupt_before_nodes = ["tools"]
    run_until_stop(graph, human_input("go"))
    found = recovery_of(saver, (WIRE, "c1"))
    assert found.evidence["m1", "c1"] == Finding("unknown", recheck=True)


def test_45_abandoned_approvals_do_not_hide_an_error():
    """The newest calls are searched first."""
    saver = InMemorySaver()
    waits = [ai_with_calls(f"m{n}", f"wire_money:c{n}") for n in range(45)]
    last = ai_with_calls("last", "boom:z")
    graph = agent([*waits, last], saver)
    for message in [*waits, last]:
        run_until_stop(graph, human_input(message.id))
    every = [(message, message.tool_calls[0]["id"]) for message in [*waits, last]]
    found = recovered(saver, *every)
    assert found["last", "z"] == Finding("failed", "RuntimeError('kaput')")


# --- DeltaChannel ------------------------------------------------------------------------------


def test_an_edited_call_does_not_hide_its_sibling():
    """Without a stored history too, the sibling keeps its result."""
    saver = InMemorySaver()
    graph = deep([BOTH], saver)
    run_until_stop(graph, human_input("go"))
    edit = {**BOTH.tool_calls[1], "args": {"eur": 5}}
    changed = BOTH.model_copy(update={"tool_calls": [BOTH.tool_calls[0], edit]})
    graph.update_state(CONFIG, {"messages": [changed]}, as_node="model")
    found = recovered(saver, (changed, "c1"), (changed, "c2"))
    assert found == {("m1", "c1"): "sent to bob"}
    assert recovered(saver, (BOTH, "c1"), (BOTH, "c2"))["m1", "c1"] == BOTH_RECOVERED["m1", "c1"]


# --- the whole tree ----------------------------------------------------------------------------


def test_what_a_subagent_did():
    """A subagent sent a mail and then asked: the call that ran it lists the mail."""

    @tool
    def send(to: str) -> str:
        """Send a mail."""
        return f"sent to {to}"

    inner = AIMessage("", id="s1", tool_calls=[{"name": "send", "args": {"to": "bob"}, "id": "i1"}])
    ask = AIMessage("", id="s2", tool_calls=[{"name": "wire_money", "args": {}, "id": "i2"}])
    sub: Any = {
        "name": "helper",
        "description": "helps",
        "runnable": create_agent(scripted_model(inner, ask), [send, wire_money]),
    }
    args = {"description": "mail bob", "subagent_type": "helper"}
    outer = AIMessage("", id="m1", tool_calls=[{"name": "task", "args": args, "id": "c1"}])
    saver = InMemorySaver()
    graph = create_deep_agent(scripted_model(outer), [], subagents=[sub], checkpointer=saver)
    run_until_stop(graph, {"messages": [HumanMessage("go")]})
    found = recovered(saver, (outer, "c1"))
    assert found["m1", "c1"].inner == ('send({"to": "bob"}): sent to bob',)


def test_what_each_run_of_a_subagent_did():
    """An `update_state` over a pause starts the subagent again; what it did before is listed."""

    @tool
    def send(to: str) -> str:
        """Send a mail."""
        return f"sent to {to}"

    inner = AIMessage("", id="s1", tool_calls=[{"name": "send", "args": {"to": "bob"}, "id": "i1"}])
    asks = [ai_with_calls(f"s{number}", f"wire_money:i{number}") for number in (2, 3)]
    helper = create_agent(scripted_model(inner, *asks), [send, wire_money])
    outer = ai_with_calls("m1", "task:c1")
    saver = InMemorySaver()
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda _: {"messages": [outer]})
    builder.add_node("task", lambda _: helper.invoke({"messages": [HumanMessage("mail bob")]}))
    builder.add_edge(START, "model")
    builder.add_conditional_edges(
        "model", lambda _: [Send("task", list(outer.tool_calls))], ["task"]
    )
    graph = builder.compile(checkpointer=saver)
    run_until_stop(graph, human_input("go"))
    graph.update_state(CONFIG, {"messages": []}, as_node="model")
    run_until_stop(graph, None)
    found = recovered(saver, (outer, "c1"))
    assert found["m1", "c1"].inner == ('send({"to": "bob"}): sent to bob',)
