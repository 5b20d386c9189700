"""What is stated of a call: its own task decides, and what is not certain is `unknown`."""

from typing import Annotated, Any

import pytest
from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware as TheirMiddleware
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt

from kit import Agent, StrictModel, calls, model_node, results_in
from langgraph_patch import with_patching

THREAD: Any = {"configurable": {"thread_id": "1"}}
FINE = [AIMessage("fine") for _ in range(3)]


def say(graph: Any, text: str) -> Any:
    """Send a message of the user."""
    return graph.invoke({"messages": [HumanMessage(text)]}, THREAD)


@tool
def notify(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> ToolMessage:
    """Notify by the channel that is free."""
    return ToolMessage(f"notified: {text}", name="slack", tool_call_id=tool_call_id)


@tool
def wire(amount: int) -> str:
    """Wire money, if a human agrees."""
    return f"wired {amount}: {interrupt('wire?')}"


def test_a_result_with_a_name_of_the_tool_s_own():
    """The call's own task wrote it, so it is the call's, whatever it is called."""
    model = StrictModel(script=[calls(("notify", {"text": "hi"}), ("wire", {"amount": 5})), *FINE])
    graph = with_patching(create_agent(model, [notify, wire], checkpointer=InMemorySaver()))
    say(graph, "go")
    say(graph, "never mind")
    assert results_in(model.seen[-1])["c1"] == "notified: hi"


def approved(*decisions: dict[str, Any]) -> Command[Any]:
    """The answer to an approval of two calls."""
    return Command(resume={"decisions": list(decisions)})


def edited(tools: list[Any]) -> tuple[Any, StrictModel]:
    """An agent whose `wire` call a human edits into another call, beside a call that waits."""
    made = calls(("wire", {"amount": 5}), ("ask", {}))
    model = StrictModel(script=[made, *FINE])
    approval = HumanInTheLoopMiddleware(interrupt_on={"wire": True})
    saver = InMemorySaver()
    agent = create_agent(model, [*tools, wire], middleware=[approval], checkpointer=saver)
    graph = with_patching(agent)
    say(graph, "go")
    return graph, model


@tool
def ask() -> str:
    """Ask a human."""
    return str(interrupt("well?"))


@tool
def mail(to: str) -> str:
    """Send a mail, unless it is to nobody."""
    if not to:
        raise RuntimeError("nobody")
    return f"sent to {to}"


def edit(to: str) -> dict[str, Any]:
    """The decision to send a mail instead."""
    return {"type": "edit", "edited_action": {"name": "mail", "args": {"to": to}}}


def test_a_call_that_a_human_edited_into_another_one():
    """The mail was sent: the model reads its result."""
    graph, model = edited([mail, ask])
    graph.invoke(approved(edit("bob")), THREAD)
    say(graph, "never mind")
    assert results_in(model.seen[-1])["c1"].endswith("sent to bob")


def test_the_error_of_a_call_that_a_human_edited():
    """The mail failed. Nothing states that `wire` did, which never ran."""
    graph, model = edited([mail, ask])
    with pytest.raises(RuntimeError, match="nobody"):
        graph.invoke(approved(edit("")), THREAD)
    say(graph, "never mind")
    assert "failed" not in results_in(model.seen[-1])["c1"]
    assert "is known" in results_in(model.seen[-1])["c1"]


def test_a_tool_that_was_answered_and_asks_again():
    """An answer is recorded, so nothing states that none is."""

    @tool
    def book() -> str:
        """Ask twice."""
        return f"{interrupt('when?')} {interrupt('where?')}"

    agent = Agent(
        lambda model, _, saver: with_patching(create_agent(model, [book, ask], checkpointer=saver)),
        calls(("book", {}), ("ask", {})),
        *FINE,
    )
    agent.say("go")
    agent.run(Command(resume={agent.interrupts[0].id: "monday"}))
    agent.say("never mind")
    assert agent.read["c1"].startswith("No result of tool call book with id c1 is known")
    assert "was waiting for human input" in agent.read["c2"]


def test_a_second_question_after_an_approval():
    """The human approved; a second hook asks. Nothing states that the call was not approved."""

    class Audit(AgentMiddleware):
        """Asks before the tools, too."""

        def after_model(self, state: Any, runtime: Any) -> None:
            """Ask."""
            if state["messages"][-1].tool_calls:
                interrupt("audit?")

    model = StrictModel(script=[calls(("mail", {"to": "bob"})), *FINE])
    approval = HumanInTheLoopMiddleware(interrupt_on={"mail": True})
    agent = create_agent(
        model, [mail], middleware=[Audit(), approval], checkpointer=InMemorySaver()
    )
    graph = with_patching(agent)
    say(graph, "go")
    graph.invoke(approved({"type": "approve"}), THREAD)
    say(graph, "never mind")
    text = results_in(model.seen[-1])["c1"]
    assert "not approved" not in text
    assert "an approval was pending when another message came in" in text


def test_45_old_turns_of_another_package():
    """All results that it overwrote are found in the first turn: one walk serves all calls."""
    count = 45
    script = [
        calls(("mail", {"to": str(i)}), ("wire", {"amount": i}), first=2 * i + 1, id=f"a{i}")
        for i in range(count)
    ]
    saver, model = InMemorySaver(), StrictModel(script=[*script, *FINE])
    theirs = create_agent(model, [mail, wire], middleware=[TheirMiddleware()], checkpointer=saver)
    for i in range(count):
        say(theirs, f"turn {i}")
    ours = create_agent(model, [mail, wire], checkpointer=saver)
    say(with_patching(ours, replace_foreign=True), "and now?")
    read = results_in(model.seen[-1])
    assert [read[f"c{2 * i + 1}"] for i in range(count)] == [f"sent to {i}" for i in range(count)]
    assert all("was waiting for human input" in read[f"c{2 * i + 2}"] for i in range(count))


def test_200_parallel_calls():
    """Each of them has its own finding."""
    names = [("mail", {"to": str(i)}) for i in range(199)]
    agent = Agent("create_agent", calls(*names, ("wire", {"amount": 1})), *FINE)
    agent.say("go")
    agent.say("never mind")
    assert [agent.read[f"c{i + 1}"] for i in range(199)] == [f"sent to {i}" for i in range(199)]
    assert "was waiting for human input" in agent.read["c200"]


def test_a_send_with_the_call_as_its_payload():
    """`Send(node, call)`: what a hand-built graph writes first."""
    tools = {each.name: each for each in (mail, wire)}
    model = StrictModel(script=[calls(("mail", {"to": "bob"}), ("wire", {"amount": 5})), *FINE])

    def each(call: Any) -> dict[str, Any]:
        return {"messages": [tools[call["name"]].invoke({**call, "type": "tool_call"})]}

    def send_each(state: MessagesState) -> Any:
        return [Send("each", call) for call in state["messages"][-1].tool_calls] or END

    builder = StateGraph(MessagesState).add_node("agent", model_node(model)).add_node("each", each)
    builder.add_edge(START, "agent").add_edge("each", "agent")
    builder.add_conditional_edges("agent", send_each, ["each", END])
    graph = with_patching(builder.compile(checkpointer=InMemorySaver()))
    say(graph, "go")
    say(graph, "never mind")
    read = results_in(model.seen[-1])
    assert read["c1"] == "sent to bob"
    assert "was waiting for human input" in read["c2"]
