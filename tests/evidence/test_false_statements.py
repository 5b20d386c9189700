"""Calls about which an earlier version stated something false: now correct, or unknown."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import Command, RetryPolicy, Send, interrupt

from langgraph_patch import with_patching
from support.agents import REDUCERS
from support.evidence_agents import (
    AWAITING_INPUT,
    BOTH,
    CONFIG,
    TOOLS,
    ai_with_calls,
    human_input,
    recovered,
    run_until_stop,
    scripted_model,
    send_email,
)

MAIL, WIRE = ai_with_calls("m1", "send_email:c1"), ai_with_calls("m1", "wire_money:c1")
OLD_STYLE = pytest.mark.filterwarnings(
    "ignore:create_react_agent has been moved", "ignore:.*AgentStatePydantic"
)


def edited(message, **changes):
    """`message` with its first call changed and its ids kept."""
    calls = [{**message.tool_calls[0], **changes}, *message.tool_calls[1:]]
    return message.model_copy(update={"tool_calls": calls})


def calls_of(state):
    """The calls of the last message."""
    return getattr(state["messages"][-1], "tool_calls", None)


def graph_of(script, saver, *, each=True, node=None, state=MessagesState, **options):
    """An agent with a task for each call, or one for all, and what its model was shown."""
    script, seen = iter(script), []

    def agent(state):
        seen.append(state["messages"])
        said_now = next(script)
        if isinstance(said_now, Exception):
            raise said_now
        return {"messages": [said_now]}

    def route(state):
        calls = calls_of(state)
        if not calls:
            return END
        return [Send("tools", [call]) for call in calls] if each else "tools"

    builder = StateGraph(state).add_node("agent", agent).set_entry_point("agent")
    builder.add_node("tools", node or ToolNode(TOOLS, handle_tool_errors=False), **options)
    builder.add_conditional_edges("agent", route, ["tools", END]).add_edge("tools", "agent")
    return builder.compile(checkpointer=saver), seen


def asked(*calls, config=CONFIG, saver=None):
    """What is found of the first calls of these messages."""
    wanted = [(message, message.tool_calls[0]["id"]) for message in calls]
    return recovered(saver, *wanted, config=config)


# --- edited calls ------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"args": {"to": "alice"}}, {"name": "wire_money"}])
def test_edited_call_has_not_run(changes):
    """The result of a call does not belong to an edited copy of it on a fork."""
    saver = InMemorySaver()
    graph, _ = graph_of([MAIL, AIMessage("done")], saver)
    run_until_stop(graph, human_input("go"))
    ended = graph.get_state(CONFIG).config
    (before,) = [s for s in graph.get_state_history(CONFIG) if s.next == ("tools",)]
    graph.update_state(before.config, {"messages": [edited(MAIL, **changes)]})
    assert asked(edited(MAIL, **changes), saver=saver) == {}
    assert asked(MAIL, saver=saver, config=ended) == {("m1", "c1"): "sent to bob"}


def test_only_the_edited_call_is_another():
    """The sibling that was not edited keeps its result."""
    saver, graph = InMemorySaver(), None
    graph, _ = graph_of([BOTH], saver)
    run_until_stop(graph, human_input("go"))
    changed = BOTH.model_copy(
        update={"tool_calls": [BOTH.tool_calls[0], {**BOTH.tool_calls[1], "args": {"eur": 5}}]}
    )
    graph.update_state(CONFIG, {"messages": [changed]}, as_node="agent")
    found = recovered(saver, (changed, "c1"), (changed, "c2"))
    assert found == {("m1", "c1"): "sent to bob"}


@pytest.mark.parametrize("edit", [True, False], ids=["edited", "as it was"])
def test_a_search_keeps_to_its_branch(edit):
    """A step that two branches have is read on the way of this one only."""
    saver = InMemorySaver()
    graph, _ = graph_of([MAIL], saver)
    graph.interrupt_before_nodes = ["tools"]
    run_until_stop(graph, human_input("go"))
    fork = at = graph.get_state(CONFIG).config
    graph, _ = graph_of([AIMessage("hm")] * 80, saver)
    for number in range(5):
        graph.invoke(human_input(str(number)), at)
        at = graph.get_state(CONFIG).config
    changed = {"messages": [edited(MAIL, args={"to": "alice"})]} if edit else None
    branch = graph.update_state(fork, changed, as_node="agent")
    graph.invoke(None, branch)
    for number in range(4):
        run_until_stop(graph, human_input(f"there {number}"))
    for number in range(40):
        graph.invoke(human_input(f"here {number}"), at)
        at = graph.get_state(CONFIG).config
    assert asked(MAIL, saver=saver, config=at) == {}


# --- what one task says ------------------------------------------------------------------


def test_sibling_that_was_answered_by_the_client():
    """A task ran both calls, whichever of them has a result by now."""
    saver = InMemorySaver()
    graph, _ = graph_of([BOTH, AIMessage("hm")], saver, each=False)
    run_until_stop(graph, human_input("go"))
    late = ToolMessage("sent by hand", tool_call_id="c1")
    run_until_stop(graph, {"messages": [late, HumanMessage("never mind")]})
    assert recovered(saver, (BOTH, "c2")) == {}


@pytest.mark.parametrize("others", [["boom:"], ["boom:c2", "boom:c2"]])
def test_sibling_with_an_ambiguous_id(others):
    """Calls without an id, or with another's, were run by the task as well."""
    saver = InMemorySaver()
    message = ai_with_calls("m1", "send_email:c1", *others)
    graph, _ = graph_of([message], saver, each=False)
    run_until_stop(graph, human_input("go"))
    assert recovered(saver, *((message, c["id"]) for c in message.tool_calls)) == {}


def test_error_after_a_message_that_was_an_input():
    """A model that fails on an input has not failed the call in it."""
    saver = InMemorySaver()
    graph, _ = graph_of([RuntimeError("429")], saver)
    assert run_until_stop(graph, {"messages": [HumanMessage("go"), MAIL]}) is not None
    assert asked(MAIL, saver=saver) == {}


class Moderation(AgentMiddleware):
    """Fails after the model."""

    def after_model(self, state: Any, runtime: Any) -> None:
        """Fail."""
        raise RuntimeError("moderation is down")


def test_error_of_a_middleware():
    """A middleware that fails between model and tools has not failed the call."""
    saver = InMemorySaver()
    graph = create_agent(scripted_model(MAIL), TOOLS, checkpointer=saver, middleware=[Moderation()])
    assert "moderation" in str(run_until_stop(graph, human_input("go")))
    assert asked(MAIL, saver=saver) == {}


class Work(TypedDict, total=False):
    """The input and the output of a worker."""

    tool_call: dict[str, Any]
    messages: Annotated[list[Any], operator.add]


def review(state):
    """Ask, or fail, when the tool is through."""
    if state["messages"][-1].tool_call_id == "c2":
        raise RuntimeError("no reviewer")
    return {"messages": [interrupt("publish?")]}


def team(*, each, keep=None):
    """A subgraph that runs tools and then asks for a review."""

    def call_tool(state):
        return {"messages": [ToolMessage("sent", tool_call_id=state["tool_call"]["id"])]}

    builder = StateGraph(Work if each else MessagesState).add_node("review", review)
    builder.add_node("run", call_tool if each else ToolNode(TOOLS))
    return builder.add_edge(START, "run").add_edge("run", "review").compile(checkpointer=keep)


@pytest.mark.parametrize("each", [True, False], ids=["for each call", "for all"])
@pytest.mark.parametrize("call_id", ["c1", "c2"], ids=["asks", "fails"])
def test_subgraph_that_asks_after_the_tool(each, call_id):
    """The tool has run: its result is found where the subgraph keeps it, and nothing else."""
    message = ai_with_calls("m1", f"send_email:{call_id}")
    for keep, evidence in ((None, True), (False, False)):
        saver = InMemorySaver()
        builder = StateGraph(MessagesState).add_node("agent", lambda _: {"messages": [message]})
        builder.add_node("team", team(each=each, keep=keep)).set_entry_point("agent")
        sends = [Send("team", {"tool_call": call}) for call in message.tool_calls]
        builder.add_conditional_edges("agent", lambda _, to=sends: to if each else "team", ["team"])
        run_until_stop(builder.compile(checkpointer=saver), human_input("go"))
        found = asked(message, saver=saver)
        if evidence:
            assert found == {("m1", call_id): "sent" if each else "sent to bob"}
        elif call_id == "c1" or not each:
            assert found == {}


@pytest.mark.parametrize("kept", [None, True], ids=["nothing", "its state"])
def test_tool_that_waits_in_a_subgraph(kept):
    """A tool that runs a graph that asks a human has not finished: the call awaits input."""
    child = StateGraph(MessagesState).add_node("ask", lambda _: interrupt("which?"))
    child = child.set_entry_point("ask").compile(checkpointer=kept)

    @tool
    def delegate() -> str:
        """Let another graph do it."""
        return str(child.invoke({"messages": [HumanMessage("do it")]}))

    saver, message = InMemorySaver(), ai_with_calls("m1", "delegate:c1")
    run_until_stop(graph_of([message], saver, node=ToolNode([delegate]))[0], human_input("go"))
    assert asked(message, saver=saver) == {("m1", "c1"): AWAITING_INPUT}


def test_tool_that_asks_in_a_task():
    """A `@task` of the tool is a part of it."""

    @tool
    def careful() -> str:
        """Ask in a task."""

        @task
        def inner() -> Any:
            return interrupt("sure?")

        return str(inner().result())

    saver, message = InMemorySaver(), ai_with_calls("m1", "careful:c1")
    run_until_stop(graph_of([message], saver, node=ToolNode([careful]))[0], human_input("go"))
    assert asked(message, saver=saver) == {("m1", "c1"): AWAITING_INPUT}


def test_tool_that_waits_in_a_long_subgraph():
    """However many steps the tool's own graph has made, also beside others."""
    child = StateGraph(MessagesState).add_node("work", lambda _: {"messages": [("ai", "on")]})
    child = child.add_node("ask", lambda _: interrupt("which?")).set_entry_point("work")
    child.add_conditional_edges(
        "work", lambda state: "ask" if len(state["messages"]) > 60 else "work", ["ask", "work"]
    )
    long = child.compile()

    @tool
    def delegate() -> str:
        """Let another graph do it."""
        return str(long.invoke({"messages": [HumanMessage("do it")]}, {"recursion_limit": 99}))

    saver, message = InMemorySaver(), ai_with_calls("m1", "delegate:c1", "delegate:c2")
    run_until_stop(graph_of([message], saver, node=ToolNode([delegate]))[0], human_input("go"))
    assert asked(message, saver=saver) == {("m1", "c1"): AWAITING_INPUT}


class Noting(AgentMiddleware):
    """Runs before the model."""

    def before_model(self, state: Any, runtime: Any) -> Any:
        """Do nothing to the history."""
        return {"messages": []}


def test_middleware_is_no_start():
    """A node that ended as usual and left no result has not run the call."""
    message = ai_with_calls("m1", "wire_money:c1", "client:c2")

    @tool
    def client() -> str:
        """Run where the user is."""
        return str(interrupt("over to you"))

    saver, tools = InMemorySaver(), [*TOOLS, client]
    script = scripted_model(message, AIMessage("fine"))
    graph = create_agent(script, tools, checkpointer=saver, middleware=[Noting()])
    run_until_stop(graph, human_input("go"))
    run_until_stop(graph, {"messages": [ToolMessage("here", tool_call_id="c2")]})
    assert asked(message, saver=saver) == {("m1", "c1"): AWAITING_INPUT}


@pytest.mark.needs(langgraph="1.2")
def test_tools_that_ran_in_later_turns():
    """They ran other calls, also where no state says so."""
    mail = [ai_with_calls(f"m{n}", f"send_email:z{n}") for n in (2, 3)]
    script = [WIRE, mail[0], AIMessage("sent"), mail[1], AIMessage("sent")]
    for state in (MessagesState, REDUCERS["delta"]):
        saver = InMemorySaver()
        graph, _ = graph_of(script, saver, each=False, state=state)
        for text in ("go", "mail", "mail again"):
            run_until_stop(graph, human_input(text))
        assert asked(WIRE, saver=saver) == {("m1", "c1"): AWAITING_INPUT}


# --- calls that were started again -------------------------------------------------------


@OLD_STYLE
@pytest.mark.parametrize("kind", ["each", "all"])
def test_started_again(kind):
    """What is recorded stays recorded: the finding is about the record."""
    saver = InMemorySaver()
    graph, _ = graph_of([WIRE], saver, each=kind == "each")
    run_until_stop(graph, human_input("go"))
    waits = {("m1", "c1"): AWAITING_INPUT}
    assert asked(WIRE, saver=saver) == waits
    pause = graph.get_state(CONFIG).config
    graph.update_state(CONFIG, None, as_node="agent")
    # Of a task over the whole state, it is not certain which of two supersteps was the last.
    assert asked(WIRE, saver=saver) == ({} if kind == "all" else waits)
    assert asked(WIRE, saver=saver, config=pause) == waits


def fails(times):
    """A tool that raises so many times, then waits."""
    left = iter(range(times))

    @tool
    def flaky() -> str:
        """Raise, then wait."""
        if next(left, None) is not None:
            raise RuntimeError("no route")
        return interrupt("sure?")

    return flaky


def test_the_newest_outcome_is_recovered():
    """A call that failed, was started again and now waits has not failed."""
    flaky = fails(1)
    saver, message = InMemorySaver(), ai_with_calls("m1", "flaky:c1")
    graph, _ = graph_of([message], saver, node=ToolNode([flaky], handle_tool_errors=False))
    assert run_until_stop(graph, human_input("go")) is not None
    graph.update_state(CONFIG, None, as_node="agent")
    run_until_stop(graph, None)
    run_until_stop(graph, human_input())
    assert asked(message, saver=saver) == {("m1", "c1"): AWAITING_INPUT}


@pytest.mark.needs(langgraph="1.1.3")
def test_the_last_attempt_is_recovered():
    """An attempt that failed is over when the next one waits."""
    flaky = fails(1)
    saver, message = InMemorySaver(), ai_with_calls("m1", "flaky:c1")
    node = ToolNode([flaky], handle_tool_errors=False)
    retry = RetryPolicy(initial_interval=0.01, jitter=False, retry_on=Exception)
    run_until_stop(graph_of([message], saver, node=node, retry_policy=retry)[0], human_input("go"))
    assert asked(message, saver=saver) == {("m1", "c1"): AWAITING_INPUT}


@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.needs(langgraph="1.1.3")
def test_two_runs_of_which_the_last_waits(attempts):
    """That the first run failed is not the last word; their order is not recorded."""
    flaky = fails(attempts)
    saver, message = InMemorySaver(), ai_with_calls("m1", "flaky:c1")
    node = ToolNode([flaky], handle_tool_errors=False)
    retry = RetryPolicy(
        initial_interval=0.01, jitter=False, retry_on=Exception, max_attempts=attempts
    )
    graph, _ = graph_of([message], saver, each=False, node=node, retry_policy=retry)
    assert isinstance(run_until_stop(graph, human_input("go")), RuntimeError)
    run_until_stop(graph, None)
    assert asked(message, saver=saver) == {}


# --- one id for two calls ----------------------------------------------------------------


def test_results_that_name_other_tools():
    """Of two calls with one id, results of other tools under that id are of neither."""
    message = ai_with_calls("m1", "send_email:c1", "send_email:c1")
    others = [
        ToolMessage("wired", name="wire_money", tool_call_id="c1"),
        ToolMessage("kaput", name="boom", tool_call_id="c1"),
    ]
    saver = InMemorySaver()
    builder = StateGraph(MessagesState).add_node("agent", lambda _: {"messages": [message]})
    builder.add_node("late", lambda _: {"messages": others})
    graph = builder.add_edge(START, "agent").add_edge("agent", "late").compile(checkpointer=saver)
    graph.invoke(human_input("go"), CONFIG)
    assert recovered(saver, (message, "c1", 0), (message, "c1", 1)) == {}


def test_an_open_call_that_nothing_runs():
    """A call in `invalid_tool_calls` has no result, so a later one with its id has its own."""
    invalid = {"name": "wire_money", "args": "{", "id": "c1", "error": None}
    first = ai_with_calls("m1", "send_email:c2").model_copy(
        update={"invalid_tool_calls": [invalid]}
    )
    second = ai_with_calls("m2", "send_email:c1", "wire_money:c3")
    saver = InMemorySaver()
    graph, _ = graph_of([first, second], saver)
    run_until_stop(graph, human_input("go"))
    assert recovered(saver, (second, "c1")) == {("m2", "c1"): "sent to bob"}


def test_one_id_open_twice():
    """If two open calls share one id, each has what its own task recorded."""
    saver = InMemorySaver()
    mail, wire = ai_with_calls("ma", "send_email:t:0"), ai_with_calls("mb", "wire_money:t:0")
    builder = StateGraph(MessagesState).add_node("tools", ToolNode(TOOLS))
    for name, message in (("a", mail), ("b", wire)):
        builder.add_node(name, lambda _, m=message: {"messages": [m]}).add_edge(START, name)
        sends = [Send("tools", [call]) for call in message.tool_calls]
        builder.add_conditional_edges(name, lambda _, to=sends: to, ["tools"])
    run_until_stop(builder.compile(checkpointer=saver), human_input("go"))
    assert asked(mail, wire, saver=saver) == {
        ("ma", "t:0"): "sent to bob",
        ("mb", "t:0"): AWAITING_INPUT,
    }


def test_calls_that_a_node_keeps_to_itself():
    """What a `@task` of a node returned is not the result of an older call with its id."""
    saver = InMemorySaver()

    @task
    def mail():
        return ToolMessage("sent to bob", tool_call_id="c1")

    def work(state):
        mail().result()
        interrupt("wire?")

    builder = StateGraph(MessagesState).add_node("work", work).set_entry_point("work")
    graph = builder.compile(checkpointer=saver)
    run_until_stop(graph, {"messages": [HumanMessage("pay"), WIRE, HumanMessage("never mind")]})
    assert asked(WIRE, saver=saver) == {}


# --- shapes of results, and graphs above -------------------------------------------------


@pytest.mark.parametrize("how", [lambda result: result, lambda result: [result]])
def test_result_that_is_a_dict(how):
    """A result that a task wrote as a dict is a result."""

    def tools(calls):
        if calls[0]["name"] == "wire_money":
            interrupt("1000 EUR?")
        result = {"role": "tool", "content": "sent", "tool_call_id": calls[0]["id"]}
        return {"messages": how(result)}

    saver = InMemorySaver()
    run_until_stop(graph_of([BOTH], saver, node=tools)[0], human_input("go"))
    found = recovered(saver, (BOTH, "c1"), (BOTH, "c2"))
    assert found == {("m1", "c1"): "sent", ("m1", "c2"): AWAITING_INPUT}


def test_call_that_runs_the_asking_graph():
    """The graph that asks belongs to the call above; this call is not awaiting input."""
    child = StateGraph(MessagesState).add_node("agent", lambda _: {"messages": [AIMessage("ok")]})
    child.add_node("ask", lambda _: {"messages": [HumanMessage(interrupt("which?"))]})
    child = child.set_entry_point("ask").add_edge("ask", "agent")
    inner: Any = with_patching(child.compile(), model_node="agent")

    @tool
    def delegate(messages: Annotated[list[Any], InjectedState("messages")]) -> str:
        """Let another graph do it, which sees it all."""
        reported.extend(inner.invoke({"messages": messages})["messages"])
        return "delegated"

    reported: list[Any] = []
    saver, message = InMemorySaver(), ai_with_calls("m1", "delegate:c1", "send_email:c2")

    def route(state):
        of_call = {"__type": "tool_call_with_context", "state": state}
        calls = [{**call, "type": "tool_call"} for call in calls_of(state) or ()]
        return [Send("tools", {**of_call, "tool_call": call}) for call in calls] or END

    script = iter([message, AIMessage("done")])
    builder = StateGraph(MessagesState).add_node("agent", lambda _: {"messages": [next(script)]})
    builder.add_node("tools", ToolNode([delegate, send_email])).set_entry_point("agent")
    builder.add_conditional_edges("agent", route, ["tools", END]).add_edge("tools", "agent")
    graph = builder.compile(checkpointer=saver)
    asks = graph.invoke(human_input("go"), CONFIG)["__interrupt__"]
    graph.invoke(Command(resume={asks[0].id: "blue"}), CONFIG)
    causes = {m.tool_call_id: m.additional_kwargs for m in reported if isinstance(m, ToolMessage)}
    assert causes["c1"]["langgraph_patch"]["cause"] == "unknown"
    assert "langgraph_patch" not in causes["c2"]


def test_message_that_was_written_again():
    """A message that was written again unchanged is the same message: its result is found."""
    saver = InMemorySaver()
    graph, _ = graph_of([BOTH], saver)
    run_until_stop(graph, human_input("go"))
    again = [RemoveMessage(id="m1"), BOTH.model_copy()]
    graph.update_state(CONFIG, {"messages": again}, as_node="tools")
    assert recovered(saver, (BOTH, "c1")) == {("m1", "c1"): "sent to bob"}
