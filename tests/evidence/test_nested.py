"""What graphs above and below a call recorded: of subagents, subgraphs and handoffs."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import Command, Send, interrupt
from langgraph_swarm import create_handoff_tool, create_swarm
from typing_extensions import TypedDict

from kit import Agent, DeltaState, Desk, StrictModel, above, calls, loop, send_each
from langgraph_patch import is_placeholder, with_patching
from langgraph_patch._langgraph_storage import NO_TASK
from langgraph_patch._sansio import run_sync
from langgraph_patch.evidence.recover import recover_evidence
from langgraph_patch.history.calls import read_calls
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.supersteps import GO, made, short

MAIL, WIRE = ("mail", {"to": "bob"}), ("wire", {"amount": 5})
SENT = 'mail({"to": "bob"}): sent to bob'
ROOT: Any = {"configurable": {"thread_id": "1"}}
WAITED = (
    "Tool call task with id t1 was waiting for human input when another message came in; "
    "no answer and no result were recorded."
)
TASK = AIMessage(
    "", tool_calls=[{"name": "task", "args": {}, "id": "t1", "type": "tool_call"}], id="a1"
)


def found(
    saver: Any, message: AIMessage, namespace: str = "", **options: Any
) -> list[str]:  # fmt: skip
    """What is found of the calls of a message, without marks of time."""
    place: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": namespace}}
    search = recover_evidence(saver, place, [GO, message], read_calls(message, 1), **options)
    texts = [short(each) for each in run_sync(search).evidence.values()]
    return [text.replace(" | paused", "").replace(" | look again", "") for text in texts]


def run_bare(message: AIMessage, tools: Any, *, each: bool = True) -> InMemorySaver:
    """Run a bare loop with these tools, or this node, until it stops."""
    saver, model = InMemorySaver(), StrictModel(script=[message])
    builder = loop(model, [], **({"router": send_each} if each else {}))
    builder.nodes.pop("tools")
    builder.add_node("tools", ToolNode(tools, handle_tool_errors=False) if isinstance(
        tools, list) else tools)  # fmt: skip
    builder.compile(checkpointer=saver).invoke({"messages": [GO]}, ROOT)
    return saver


# --- results inside a call ---------------------------


class Clerk(Desk):
    """A tool `task` that runs an agent with the usual tools."""

    def __init__(self, *script: Any, state: Any = None, middleware: Any = ()) -> None:
        super().__init__()
        model = StrictModel(script=list(script))
        if state is None:
            self.clerk = create_agent(model, super().tools(), middleware=list(middleware))
        else:
            builder = loop(model, super().tools(), state=state, router=send_each)
            self.clerk = builder.compile()

    def tools(self) -> list[BaseTool]:
        """The tool."""

        async def acall() -> str:
            return str(await self.clerk.ainvoke({"messages": [HumanMessage("do it")]}))

        @tool
        def task() -> str:
            """Let a clerk do it."""
            return str(self.clerk.invoke({"messages": [HumanMessage("do it")]}))

        task.coroutine = acall  # type: ignore[attr-defined]
        return [task]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("state", [None, DeltaState])
def test_f44_the_model_reads_that_the_subagent_sent_the_mail(state: Any, *, asynchronous: bool):
    """The subagent waits for a human beside a mail that was sent; the user moves on."""
    clerk = Clerk(calls(MAIL, WIRE), state=state)
    agent = Agent("create_agent", TASK, desk=clerk, asynchronous=asynchronous)
    for text in ("go", "never mind"):
        agent.say(text)
    assert agent.read == {"t1": f"{WAITED} Recorded inside it: {SENT}"}
    assert clerk.did == {"mail bob": 1}


def test_an_id_that_the_subagent_uses_again():
    """Each message of the subagent begins with the same id; no result hides another."""
    script = [calls(MAIL), calls(("mail", {"to": "mia"}), WIRE)]
    clerk = Clerk(*script, middleware=[PatchToolCallsMiddleware()])
    agent = Agent("create_agent", TASK, desk=clerk)
    for text in ("go", "never mind"):
        agent.say(text)
    later = 'mail({"to": "mia"}): sent to mia'
    assert agent.read["t1"].endswith(f" Recorded inside it: {later}; {SENT}")


def test_more_results_than_are_listed():
    """The newest eight are listed, shortened, and the number of the others."""
    mails = [("mail", {"to": f"{n}-{'x' * 200}"}) for n in range(10)]
    agent = Agent("create_agent", TASK, desk=Clerk(calls(*mails, WIRE)))
    agent.say("go")
    search = recover_evidence(
        agent.graph.checkpointer, ROOT, [GO, TASK], read_calls(TASK, 1)
    )  # fmt: skip
    (finding,) = run_sync(search).evidence.values()
    *listed, more = finding.inner
    assert more == "(+2)"
    assert [text[:12] for text in listed] == [f'mail({{"to": "{n}'[:12] for n in range(9, 1, -1)]
    arguments, text = listed[0].removeprefix("mail(").split("): ")
    assert (len(arguments), arguments[-1]) == (60, "…")
    assert (len(text), text[-1]) == (120, "…")


@pytest.mark.parametrize(("count", "last"), [(8, SENT), (9, "(+1)")])
def test_the_number_of_results_that_are_not_listed(count: int, last: str):
    """It is left out if it is none."""
    agent = Agent("create_agent", TASK, desk=Clerk(calls(*[MAIL] * count, WIRE)))
    agent.say("go")
    search = recover_evidence(agent.graph.checkpointer, ROOT, [TASK], read_calls(TASK))
    (finding,) = run_sync(search).evidence.values()
    assert finding.inner[-1] == last


@pytest.mark.parametrize(("city", "listed"), [("Rome", 1), ("Oslo", 0)])
def test_results_inside_a_call_come_from_its_own_send(city: str, listed: int):
    """A `Send` with other arguments is that of another call with the id, of a run at once."""

    def look_up(_: MessagesState) -> Any:
        return {"messages": [made("look_up:i1"), {"role": "tool", "content": "sunny",
                                                  "tool_call_id": "i1"}]}  # fmt: skip

    below = above(look_up, lambda _: interrupt("sure?")).compile()

    def tools(_: object) -> Any:
        return {"messages": below.invoke({"messages": [HumanMessage("go")]})["messages"][:0]}

    asked = made("task:c1:Rome")
    builder = StateGraph(MessagesState).add_node("model", lambda _: {"messages": [asked]})
    builder.add_node("tools", tools).add_edge(START, "model")
    sends = [Send("tools", [call]) for call in made(f"task:c1:{city}").tool_calls]
    builder.add_conditional_edges("model", lambda _: sends, ["tools"])
    saver = InMemorySaver()
    builder.compile(checkpointer=saver).invoke({"messages": [GO]}, ROOT)
    (text,) = found(saver, asked)
    assert text == ("awaiting_input | look_up(): sunny" if listed else "unknown")


# --- graphs below ---------------------------


def waiting(*, kept: bool | None = None, steps: int = 0) -> Any:
    """A graph that asks a human, perhaps after some supersteps."""
    child = StateGraph(MessagesState).add_node("work", lambda _: {"messages": [("ai", "on")]})
    child.add_node("ask", lambda _: interrupt("which?")).add_edge(START, "work")
    child.add_conditional_edges(
        "work", lambda state: "ask" if len(state["messages"]) > steps else "work", ["ask", "work"]
    )
    return child.compile(checkpointer=kept)


def delegating(child: Any, times: int = 1) -> BaseTool:
    """A tool that runs a graph, perhaps twice."""

    @tool
    def delegate() -> str:
        """Let another graph do it."""
        runs = [child.invoke({"messages": [GO]}, {"recursion_limit": 99}) for _ in range(times)]
        return str(runs)

    return delegate


@tool
def careful() -> str:
    """Ask in a `@task`."""

    @task
    def inner() -> Any:
        return interrupt("sure?")

    return str(inner().result())


@pytest.mark.parametrize(
    ("message", "tools", "expected"),
    [
        (made("delegate:c1"), [delegating(waiting())], ["awaiting_input"]),
        (made("delegate:c1"), [delegating(waiting(kept=True))], ["awaiting_input"]),
        (made("delegate:c1"), [delegating(waiting(steps=60))], ["awaiting_input"]),
        (made("delegate:c1", "delegate:c2"), [delegating(waiting())], ["awaiting_input"] * 2),
        (made("careful:c1"), [careful], ["awaiting_input"]),
    ],
    ids=["a graph", "one with a memory", "a long one", "two", "a task"],
)
@pytest.mark.parametrize("each", [True, False])
def test_a_tool_that_waits_in_a_graph_below(
    message: AIMessage, tools: Any, expected: list[str], *, each: bool
):
    """It has not finished: the call awaits input. Of one task for two calls nothing is known."""
    saver = run_bare(message, tools, each=each)
    is_known = each or len(expected) == 1
    assert found(saver, message) == (expected if is_known else ["unknown"] * 2)


def test_a_graph_with_a_memory_that_an_older_turn_ran():
    """What it recorded then was for another call."""
    turns = iter([False, True])

    def maybe(_: Any) -> Any:
        texts = [AIMessage("", tool_calls=made("mail:i1").tool_calls),
                 ToolMessage("sent", tool_call_id="i1", name="mail")]  # fmt: skip
        return {"messages": texts}

    child = above(maybe).compile(checkpointer=True)

    @tool
    def delegate() -> str:
        """Run the graph, or ask at once."""
        if next(turns):
            return str(interrupt("well?"))
        child.invoke({"messages": [GO]})
        return "done"

    second = made("delegate:c2", id="m2")
    model = StrictModel(script=[made("delegate:c1"), second])
    saver = InMemorySaver()
    graph = loop(model, [delegate], router=send_each).compile(checkpointer=saver)
    graph.invoke({"messages": [GO]}, ROOT)
    assert found(saver, second) == ["awaiting_input"]


class Work(TypedDict, total=False):
    """The input and the output of a worker."""

    tool_call: dict[str, Any]
    messages: Annotated[list[Any], operator.add]


def review(state: Any) -> Any:
    """Ask, or fail, when the tool is through."""
    if state["messages"][-1].tool_call_id == "c2":
        raise RuntimeError("no reviewer")
    return {"messages": [interrupt("publish?")]}


@pytest.mark.parametrize("each", [True, False], ids=["for each call", "for all"])
@pytest.mark.parametrize("call_id", ["c1", "c2"], ids=["asks", "fails"])
@pytest.mark.parametrize("keep", [None, False], ids=["stored", "not stored"])
def test_a_subgraph_that_asks_after_the_tool(call_id: str, *, each: bool, keep: bool | None):
    """The tool has run: its result is found where the subgraph keeps it, and nothing else."""

    def call_tool(state: Any) -> Any:
        call = state["tool_call"] if each else state["messages"][-1].tool_calls[0]
        return {"messages": [ToolMessage("sent", tool_call_id=call["id"])]}

    child = StateGraph(Work if each else MessagesState).add_node("run", call_tool)
    child.add_node("review", review).add_edge(START, "run").add_edge("run", "review")
    message, saver = made(f"mail:{call_id}"), InMemorySaver()
    builder = StateGraph(MessagesState).add_node("agent", lambda _: {"messages": [message]})
    builder.add_node("team", child.compile(checkpointer=keep)).add_edge(START, "agent")
    sends = [Send("team", {"tool_call": call}) for call in message.tool_calls]
    builder.add_conditional_edges("agent", lambda _: sends if each else "team", ["team"])
    graph = builder.compile(checkpointer=saver)
    if call_id == "c2":
        with pytest.raises(RuntimeError, match="no reviewer"):
            graph.invoke({"messages": [GO]}, ROOT)
    else:
        graph.invoke({"messages": [GO]}, ROOT)
    if keep is None:
        assert found(saver, message) == ["sent"]
    elif call_id == "c1" or not each:
        assert found(saver, message) == ["unknown"]
    else:  # the error of its own task
        assert found(saver, message) == ["failed | RuntimeError('no reviewer')"]


def test_a_subgraph_that_makes_a_call_of_its_own_with_the_id():
    """How its task ended says nothing of the call above; nor does that call's result."""
    own = made("mail:c1", id="inner")

    def work(_: Any) -> Any:
        return {"messages": [own, ToolMessage("sent", tool_call_id="c1")]}

    child = above(work, lambda _: interrupt("publish?")).compile()
    saver = run_bare(made("delegate:c1"), [delegating(child)])
    assert found(saver, made("delegate:c1")) == ["unknown | mail(): sent"]


def test_two_graphs_of_one_task():
    """The results of both are listed."""
    texts = iter("ab")

    def work(_: Any) -> Any:
        return {"messages": [ToolMessage(next(texts), tool_call_id="i1", name="look")]}

    done = above(work).compile()

    @tool
    def delegate() -> str:
        """Run two graphs, then ask."""
        for _ in range(2):
            done.invoke({"messages": [GO]})
        return str(interrupt("well?"))

    @tool
    def below() -> str:
        """Run two graphs, of which the second asks."""
        done.invoke({"messages": [GO]})
        return str(asking.invoke({"messages": [GO]}))

    asking = above(work, lambda _: interrupt("?")).compile()
    saver = run_bare(made("below:c1"), [below])
    assert found(saver, made("below:c1")) == ["awaiting_input | look(): b | look(): a"]
    texts = iter("ab")
    saver = run_bare(made("delegate:c1"), [delegate])
    assert found(saver, made("delegate:c1")) == ["awaiting_input"]  # asked by the tool itself


# --- graphs above ---------------------------


def spaces(saver: InMemorySaver) -> list[str]:
    """The namespaces of all subgraphs."""
    return sorted({row.config["configurable"]["checkpoint_ns"] for row in saver.list(ROOT)} - {""})


def test_f21_a_subgraph_s_own_namespace():
    """In a subgraph the history of the subgraph's namespace is read, and no other."""
    saver, message = InMemorySaver(), calls(MAIL, WIRE, id="m1")
    agent = create_agent(StrictModel(script=[message]), Desk().tools())
    above(agent).compile(checkpointer=saver).invoke({"messages": [GO]}, ROOT)
    (space,) = spaces(saver)
    assert found(saver, message, space) == ["sent to bob", "awaiting_input"]
    assert found(saver, message) == ["unknown"] * 2


@pytest.mark.parametrize("gate", [True, False], ids=["approval", "tool"])
@pytest.mark.parametrize("answered", [True, False])
def test_an_answer_that_a_graph_above_recorded(*, gate: bool, answered: bool):
    """LangGraph records it there, to all graphs below: no call below waits for certain."""
    saver, message = InMemorySaver(), calls(WIRE, id="m1")
    middleware = [HumanInTheLoopMiddleware(interrupt_on={"wire": True})] if gate else []
    agent = create_agent(StrictModel(script=[message]), Desk().tools(), middleware=middleware)
    graph = above(agent).compile(checkpointer=saver)
    graph.invoke({"messages": [GO]}, ROOT)
    (space,) = spaces(saver)
    if answered:
        saver.put_writes(graph.get_state(ROOT).config, [("__resume__", "yes")], NO_TASK)
    waits = "not_started | approval" if gate else "awaiting_input"
    assert found(saver, message, space) == ["unknown" if answered else waits]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_f08_a_call_beside_a_handoff(*, asynchronous: bool):
    """The result that LangGraph drops beside a handoff is recorded in the graph of the writer."""
    both = calls(MAIL, ("transfer_to_bob", {}))

    def build(model: Any, tools: Any, saver: Any) -> Any:
        handoff = create_handoff_tool(agent_name="bob")
        alice = create_agent(model, [*tools, handoff], name="alice")
        bob = create_agent(other, tools, name="bob")
        swarm = create_swarm([alice, bob], default_active_agent="alice")
        return with_patching(swarm.compile(checkpointer=saver))

    other = StrictModel()
    agent = Agent(build, both, asynchronous=asynchronous)
    agent.say("mail, and hand over")
    (seen,) = other.seen
    read = {m.tool_call_id: m.text for m in seen if isinstance(m, ToolMessage)}
    assert read["c1"] == "sent to bob"
    agent.say("and?")
    assert agent.results["c1"] == "sent to bob"


def test_a_call_that_runs_the_asking_graph():
    """The graph that asks belongs to the call above; this call is not awaiting input."""
    child = StateGraph(MessagesState).add_node("agent", lambda _: {"messages": [AIMessage("ok")]})
    child.add_node("ask", lambda _: {"messages": [HumanMessage(interrupt("which?"))]})
    child.add_edge(START, "ask").add_edge("ask", "agent")
    inner: Any = with_patching(child.compile(), model_node="agent")
    reported: list[Any] = []

    @tool
    def delegate(messages: Annotated[list[Any], InjectedState("messages")]) -> str:
        """Let another graph do it, which sees it all."""
        reported.extend(inner.invoke({"messages": messages})["messages"])
        return "delegated"

    both, saver = calls(("delegate", {}), MAIL), InMemorySaver()
    model = StrictModel(script=[both])
    graph = create_agent(model, [delegate, Desk().tools()[0]], checkpointer=saver)
    (asked,) = graph.invoke({"messages": [GO]}, ROOT)["__interrupt__"]
    graph.invoke(Command(resume={asked.id: "blue"}), ROOT)
    read = {m.tool_call_id: m for m in reported if isinstance(m, ToolMessage)}
    assert read["c1"].additional_kwargs["langgraph_patch"]["cause"] == "unknown"
    assert read["c2"].text == "sent to bob"
    assert not is_placeholder(read["c2"])
