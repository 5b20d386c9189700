"""A call that is about to run stays alive, whatever refuses the model of a node before its tools.

Such a node is a judge, a memory, a summary. It asks a model of its own, which is refused because of
something old, or because it does not accept an open call. The bare graph ends there; a patched one
asks again, and then does what the bare graph does where nothing is refused.
"""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import push_message
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel

from kit import StrictModel, above, calls, lines, loop, model_node, send_each, streamed, tool_of
from langgraph_patch import with_patching
from langgraph_patch.history.patch import patch_messages
from langgraph_patch.repairing.writing import NodeOutput
from support.histories import invalid_of
from support.refused import RefusedError, RefusingModel

THREAD: Any = {"configurable": {"thread_id": "1"}}
GREETING = AIMessage("Hello.", id="a")
OLD = [GREETING, HumanMessage("rain?", id="h"), AIMessage("", id="said nothing")]
READ = "paid 5"


def pays(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def strict(messages: list[BaseMessage]) -> str | None:
    """Why a strict provider refuses a history whose last call has no result."""
    ids = {m.tool_call_id for m in messages if isinstance(m, ToolMessage)}
    is_open = any(c["id"] not in ids for m in messages for c in getattr(m, "tool_calls", []))
    return "`tool_use` ids were found without `tool_result` blocks" if is_open else None


def old(messages: list[BaseMessage]) -> str | None:
    """Why one refuses a message that says nothing; it accepts open calls."""
    is_empty = any(m.type == "ai" and not m.text and not m.tool_calls for m in messages)
    return "Assistant message must have either content or tool_calls" if is_empty else None


def unknown(messages: list[BaseMessage]) -> str | None:
    """The same, in words that nobody knows."""
    return "no" if old(messages) else None


REFUSALS = {"the open call": strict, "an old message": old, "in unknown words": unknown}
FIRST = "A conversation must start with a user message."
REFUSALS["a first answer"] = lambda messages: FIRST if messages[0].type == "ai" else None


def last_call(messages: list[BaseMessage]) -> Any:
    """The call of the last message, as most code finds it."""
    return messages[-1].tool_calls[0]


def by_attribute(messages: list[BaseMessage]) -> Any:
    """The same, in the way of `tools_condition`."""
    found = getattr(messages[-1], "tool_calls", None)
    return found[0] if found else None


def by_type(messages: list[BaseMessage]) -> Any:
    """The same, if the last message is one of a model."""
    return messages[-1].tool_calls[0] if isinstance(messages[-1], AIMessage) else None


def by_search(messages: list[BaseMessage]) -> Any:
    """The same, from the end."""
    return next(iter(next(reversed(messages)).tool_calls), None)


class State(MessagesState):
    """The history, and what a judge says."""

    verdict: str


def judged(judge: Any, look: Any, returned: Any) -> Any:
    """A gate that asks a judge, then a human about the last call."""

    def gate(state: Any) -> dict[str, Any]:
        verdict = judge.invoke([*state["messages"], HumanMessage("safe?")]).text
        if look(state["messages"]) and interrupt("pay?") != "yes":
            verdict = "no"
        return {"verdict": verdict, **returned(state["messages"])}

    return gate


def noted(judge: Any, _: Any, returned: Any) -> Any:
    """A gate that asks nobody but a model."""

    def gate(state: Any) -> dict[str, Any]:
        verdict = judge.invoke([*state["messages"], HumanMessage("note it")]).text
        return {"verdict": verdict, **returned(state["messages"])}

    return gate


RETURNED: dict[str, Any] = {
    "nothing": lambda _: {},
    "all": lambda history: {"messages": history},
    "the call again": lambda history: {"messages": [m for m in history if m.type == "ai"][-1:]},
    "a note of a human": lambda _: {"messages": [HumanMessage("checked")]},
}


def with_gate(gate: Any, model: Any) -> StateGraph[Any]:
    """A graph with the gate between the model and its tools."""
    builder = StateGraph(State).add_node("gate", gate).add_node("tools", ToolNode([pays]))
    builder.add_node("llm", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_edge(START, "llm").add_edge("tools", "llm")
    called = lambda state: "gate" if state["messages"][-1].tool_calls else END
    builder.add_conditional_edges("llm", called, ["gate", END])
    safe = lambda state: END if state["verdict"] == "no" else "tools"
    builder.add_conditional_edges("gate", safe, ["tools", END])
    return builder


OPTIONS: list[dict[str, Any]] = [
    *({}, {"record": True}, {"once": ["pays"]}, {"record": True, "once": ["pays"]}),
]


LOOKS = [last_call, by_attribute, by_type, by_search]
CASES: list[tuple[Any, ...]] = [
    (judged, each, LOOKS[(a + b) % 4], [*RETURNED][a], OPTIONS[b])
    for n, each in enumerate(REFUSALS)
    for a, b in product(range(4), range(4))
    if (a + b) % 4 == n
]
"""What is returned with each option, and the others in turn."""
CASES += [
    (noted, refusal, None, returned, OPTIONS[(a + b) % 4])
    for (a, refusal), (b, returned) in product(enumerate(REFUSALS), enumerate(RETURNED))
]
RETURNED["a note of a model"] = lambda _: {"messages": [AIMessage("checked")]}
CASES.append((judged, "the open call", by_attribute, "a note of a model", {}))


@pytest.mark.parametrize(("make", "refusal", "look", "returned", "options"), CASES)
def test_a_judge_that_is_refused_ends_no_call(
    make: Any, refusal: str, look: Any, returned: str, options: dict[str, Any]
):
    """A human is asked if the node asks one, the call runs once, and its result is read.

    A judge that accepts no open call ends there, as in the bare graph: its node may ask a human
    about what it finds, and must not find a placeholder; or it says nothing behind the call.
    """
    judge = RefusingModel(rule=REFUSALS[refusal], script=[AIMessage("safe")] * 9)
    model = StrictModel(script=[calls(("pays", {"amount": 5}))])
    gate = make(judge, look, RETURNED[returned])
    graph = with_gate(gate, model).compile(checkpointer=InMemorySaver())
    graph = with_patching(graph, **options)
    history = [*OLD, HumanMessage("pay 5", id="p")]
    if refusal == "the open call":
        with pytest.raises(RefusedError, match="tool_use"):
            graph.invoke({"messages": history}, THREAD)
        assert graph.get_state(THREAD).next == ("gate",)
        assert graph.get_state(THREAD).values["messages"][-1].tool_calls
        return
    state = graph.invoke({"messages": history}, THREAD)
    if make is judged:
        assert [each.value for each in graph.get_state(THREAD).interrupts] == ["pay?"]
        assert not [m for m in graph.get_state(THREAD).values["messages"] if m.type == "tool"]
        state = graph.invoke(Command(resume="yes"), THREAD)
    assert [m.text for m in state["messages"] if m.type == "tool"] == [READ]
    assert state["messages"][-1].text == "done"


class Data(BaseModel):
    """A state that a node may return."""

    messages: list[BaseMessage] = []


def pushes(answer: AIMessage) -> None:
    """Write the answer before the node returns."""
    push_message(answer.model_copy(update={"id": "pushed"}))


SAYS: dict[str, Any] = {
    "a message": lambda a: {"messages": [a]},
    "a list of a dict and a Command": lambda a: [{"messages": [a]}, Command(goto=END)],
    "pairs": lambda a: Command(update=[("messages", [a])]),
    "a model": lambda a: Data(messages=[a]),
    "pushed": pushes,
    "to the parent": lambda a: Command(graph=Command.PARENT, goto="next", update={"messages": [a]}),
    "as a human": lambda a: {"messages": [HumanMessage(a.text, name="expert")]},
}
SAYS_NOT: dict[str, Any] = {
    "nothing": lambda _: None,
    "another key": lambda a: {"verdict": a.text},
    "a note of a human": lambda _: {"messages": [HumanMessage("checked")]},
    "what it read": lambda _: {"messages": [HumanMessage("pay 5", id="p")]},
    "a removal": lambda _: {"messages": [RemoveMessage(id="p")]},
    "a Command": lambda _: Command(goto="next"),
    "a pause": lambda _: {"verdict": HUMANS[0]("sure?")},
}
HUMANS = [interrupt]
"""What a reader of code does not find."""


@pytest.mark.parametrize("way", [*SAYS, *SAYS_NOT])
def test_a_call_is_over_only_if_something_is_said_behind_it(way: str):
    """The node that asks again behind closed calls adds an answer; else it ends as the bare one.

    What it adds is read from all that LangGraph writes, whatever the form.
    """
    judge = RefusingModel(rule=strict, script=[AIMessage("safe", id="s")])
    of_judge = {**SAYS, **SAYS_NOT}[way]
    inner = above(lambda state: of_judge(judge.invoke(state["messages"])), state=State)
    builder = StateGraph(State).add_node("team", inner.compile()).add_node("next", lambda _: {})
    builder.add_edge(START, "team")
    graph = with_patching(builder.compile(checkpointer=InMemorySaver()))
    history = {"messages": [HumanMessage("pay 5", id="p"), calls(("pays", {"amount": 5}), id="a")]}
    if way in SAYS_NOT:
        with pytest.raises(RefusedError, match="tool_use"):
            graph.invoke(history, THREAD)
        assert not graph.get_state(THREAD).interrupts
        return
    graph.invoke(history, THREAD)
    assert "safe" in lines(graph.get_state(THREAD).values["messages"])[-1]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_node_that_judges_and_pays_itself(*, asynchronous: bool):
    """Its rule is for open calls: a call that was closed for its second run is not run by it."""
    judge, paid = RefusingModel(rule=strict, script=[AIMessage("safe")]), list[int]()

    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return READ

    tool = tool_of(pay)

    def executor(state: Any) -> Any:
        judge.invoke([*state["messages"], HumanMessage("safe?")])
        if any(c["args"]["amount"] > 1 for c in getattr(state["messages"][-1], "tool_calls", ())):
            return {}
        newest = next(m for m in reversed(state["messages"]) if isinstance(m, AIMessage))
        return {
            "messages": [tool.invoke({**call, "type": "tool_call"}) for call in newest.tool_calls]
        }

    model = StrictModel(script=[calls(("pay", {"amount": 5}))])
    graph = with_patching(above(model_node(model), executor).compile(InMemorySaver()))
    history = {"messages": [HumanMessage("pay 5")]}
    with pytest.raises(RefusedError, match="tool_use"):
        asyncio.run(graph.ainvoke(history, THREAD)) if asynchronous else graph.invoke(
            history, THREAD
        )
    assert paid == []


def skipping(judge: Any, messages: list[BaseMessage]) -> str:
    """Ask no judge where there is no call."""
    if not getattr(messages[-1], "tool_calls", None):
        return "nothing to judge"
    return str(judge.invoke(messages).text)


def asserting(judge: Any, messages: list[BaseMessage]) -> str:
    """Fail where a result is found."""
    verdict = judge.invoke([*messages, HumanMessage("safe?")]).text
    assert messages[-1].type == "ai", "a tool has run already"
    return str(verdict)


@pytest.mark.parametrize(
    ("ask", "said"), [(skipping, "said nothing behind"), (asserting, "a tool has run already")]
)
def test_a_gate_that_finds_its_calls_closed(ask: Any, said: str):
    """What it then skips or raises is no judgement and no error of the user: it is the refusal."""
    judge = RefusingModel(rule=strict, script=[AIMessage("safe")])
    model = StrictModel(script=[calls(("pays", {"amount": 5}))])
    gate = lambda state: {"verdict": ask(judge, state["messages"])}
    graph = with_patching(with_gate(gate, model).compile(checkpointer=InMemorySaver()))
    with pytest.raises(RefusedError, match="tool_use") as caught:
        graph.invoke({"messages": [HumanMessage("pay 5")]}, THREAD)
    assert any(said in each for each in caught.value.__notes__)
    assert lines(graph.get_state(THREAD).values["messages"])[1:] == ["ai c1: "]


def test_an_error_behind_an_unusable_message_leaves_the_turn_as_it_is():
    """The bare node has answered with that message: a second run must not make an error of it."""
    unusable = AIMessage("", invalid_tool_calls=[invalid_of('{"amount', name="pays")])
    model = StrictModel(script=[unusable, AIMessage("fine")])

    def llm(state: Any) -> Any:
        if len(state["messages"]) > 1:
            raise IndexError
        return {"messages": [model.invoke(state["messages"])]}

    state = with_patching(above(llm)).compile().invoke({"messages": [HumanMessage("pay")]})
    assert [m.type for m in state["messages"]] == ["human", "ai"]


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_node_that_appends_to_its_list(*, is_refused: bool):
    """What it adds is stored."""
    model = RefusingModel(rule=old if is_refused else lambda _: None, script=[AIMessage("rain")])

    def llm(state: Any) -> Any:
        state["messages"].append(model.invoke(state["messages"]))
        return state

    graph = with_patching(above(llm).compile(InMemorySaver()))
    state = graph.invoke({"messages": [*OLD, HumanMessage("well?", id="w")]}, THREAD)
    assert [m.text for m in state["messages"][1:]] == (
        ["rain?", "[no text]", "well?", "rain"] if is_refused else ["rain?", "", "well?", "rain"]
    )


def test_a_node_that_appends_a_cut_message_asks_again():
    """What it adds is compared with its list as it was before."""
    model = StrictModel(script=[streamed(("pays", '{"amount": ')), "rain"])

    def llm(state: Any) -> Any:
        state["messages"].append(model.invoke(state["messages"]))
        return state

    graph = with_patching(above(llm).compile(InMemorySaver()))
    state = graph.invoke({"messages": [HumanMessage("well?", id="w")]}, THREAD)
    assert [m.type for m in state["messages"]] == ["human", "ai", "tool", "ai"]
    assert state["messages"][-1].text == "rain"


def test_recording_that_is_switched_on_while_a_call_waits():
    """What an earlier version has led to runs once: not beside the routers of this version."""
    paid: list[int] = []

    def asks(amount: int) -> str:
        """Ask."""
        return f"{interrupt('ok?')} {amount}"

    def looks(amount: int) -> str:
        """Look."""
        paid.append(amount)
        return "looked"

    model = StrictModel(script=[calls(("looks", {"amount": 1}), ("asks", {"amount": 2}))])
    builder = loop(model, [asks, looks], router=send_each)
    builder.edges.discard(("tools", "agent"))
    builder.add_conditional_edges("tools", lambda _: "agent", ["agent"])
    graph = builder.compile(InMemorySaver())
    graph.invoke({"messages": [HumanMessage("go")]}, THREAD)
    state = with_patching(graph, record=True).invoke(Command(resume="yes"), THREAD)
    assert (paid, len(model.seen)) == ([1], 2)
    assert [m.text for m in state["messages"][2:]] == ["looked", "yes 2", "done"]


@pytest.mark.parametrize("options", [{}, {"record": True}, {"once": ["pays"]}], ids=str)
def test_a_call_with_a_placeholder_runs_where_the_application_leads_to_it(options: Any):
    """A placeholder is no result. As in the bare graph, what a goto sends to the tools is run."""
    builder = with_gate(lambda _: {}, StrictModel(script=[]))
    builder.add_conditional_edges(START, lambda _: "gate", ["gate", "llm"])
    builder.edges.remove((START, "llm"))
    builder.branches["gate"].clear()
    builder.add_edge("gate", "tools")
    graph = builder.compile(checkpointer=InMemorySaver())
    history = [HumanMessage("pay", id="h"), calls(("pays", {"amount": 5}), id="a")]
    graph.update_state(THREAD, {"messages": history}, as_node="llm")
    graph = with_patching(graph, **options)
    state = graph.invoke({"messages": [HumanMessage("do it now", id="n")]}, THREAD)
    assert [m.text for m in state["messages"] if m.type == "tool"] == [READ]
    assert state["messages"][-1].text == "done"


# --- what a node gets, and what it returns ------------------------------------------------------


def repaired() -> tuple[list[BaseMessage], list[BaseMessage]]:
    """A history with a call at its end, and the same with a placeholder."""
    history = [HumanMessage("pay", id="h"), calls(("pays", {"amount": 5}), id="a")]
    return history, patch_messages(history).messages


@pytest.mark.parametrize(
    "form",
    [
        lambda history: {"messages": history},
        lambda history: {"messages": history[-1:]},
        lambda history: Command(update={"messages": history}, goto="next"),
        lambda history: Command(update=[("messages", history)]),
        lambda history: Command(goto=Send("next", {"messages": history})),
        lambda history: Command(goto=[Send("next", {"messages": history}), "other"]),
        lambda history: [Command(update={"messages": history}), Command(goto="next")],
        lambda history: {"messages": [m.model_copy() for m in history]},
        lambda history: {"copy": history},
        lambda history: {"last": history[-1]},
    ],
)
def test_a_placeholder_that_is_not_written_is_not_returned(form: Any):
    """In whatever form a node returns what it has read."""
    history, messages = repaired()
    output = NodeOutput(form(messages)).with_stored({"messages": messages}, {"messages": history})
    assert "may or may not have run" in repr(form(messages))
    assert "may or may not have run" not in repr(output)
    untouched = form(history)
    unchanged = NodeOutput(untouched).with_stored({"messages": messages}, {"messages": history})
    assert unchanged is untouched


def test_what_a_model_says_more():
    """A message that the history has, a copy of it and another one's message are nothing new."""
    said, bare = AIMessage("hm", id="a"), AIMessage("hm")
    read = [said, bare]
    says = lambda *added: NodeOutput({"messages": [*added]}).says_more("messages", read)
    assert not says(said, bare, said.model_copy(), bare.model_copy(), HumanMessage("new"))
    assert not says(AIMessage("edited", id="a"))
    assert says(AIMessage("new"))
    assert says(("ai", "new"))
    assert not NodeOutput(Command(graph=Command.PARENT)).says_more("messages", read)
