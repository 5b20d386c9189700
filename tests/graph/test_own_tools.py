"""A node called `agent` that runs its own tools behaves as it does in the bare graph."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from langgraph_patch import is_placeholder, with_patching
from support.agents import history, human, lines, thread
from support.running import run, sync_and_async
from support.savers import each_saver
from support.strict import StrictModel, ai


class OwnTools:
    """One node: it runs the open calls of the history, or else calls the model; then it repeats."""

    def __init__(self, *script: Any):
        self.model = StrictModel(script=list(script))
        self.ran: list[str] = []

    def agent(self, state: Any) -> Any:
        """One round."""
        last = state["messages"][-1]
        if not getattr(last, "tool_calls", []):
            return {"messages": [self.model.invoke(state["messages"])]}
        answers = []
        for call in last.tool_calls:
            answer = interrupt("sure?")
            self.ran.append(call["id"])
            answers.append(ToolMessage(f"ran: {answer}", tool_call_id=call["id"]))
        return {"messages": answers}

    def builder(self, name: str = "agent") -> Any:
        """The graph."""
        builder = StateGraph(MessagesState)
        builder.add_node(name, self.agent)
        builder.add_edge(START, name)
        return builder.add_conditional_edges(name, self.onward, [name, "__end__"])

    def onward(self, state: Any) -> str:
        """Repeat until the model answers."""
        last = state["messages"][-1]
        return "agent" if isinstance(last, ToolMessage) or last.tool_calls else "__end__"


@each_saver
async def test_it_runs_its_tools(open_saver: Any):
    """The calls at the tail are left to it, through a pause too."""
    own = OwnTools(ai(("wire", {}, "c1"), id="a1"), AIMessage("done", id="a2"))
    with open_saver() as saver:
        graph = with_patching(own.builder().compile(checkpointer=saver))
        await run(graph, "go")
        await run(graph, Command(resume="yes"))
        assert own.ran == ["c1"]
        found = lines(history(graph, thread()))
        assert found == ["human: go", "ai c1: ", "tool c1: ran: yes", "ai: done"]


@sync_and_async
async def test_a_new_message_over_its_pause_is_repaired(*, asynchronous: bool):
    """The call is no longer at the tail, so nobody would run it."""
    own = OwnTools(ai(("wire", {}, "c1"), id="a1"), AIMessage("fine", id="a2"))
    graph = with_patching(own.builder().compile(checkpointer=InMemorySaver()))
    await run(graph, "go", asynchronous=asynchronous)
    await run(graph, "never mind", asynchronous=asynchronous)
    assert own.ran == []
    assert [is_placeholder(m) for m in history(graph, thread())].count(True) == 1


async def test_a_named_model_node_answers_its_calls():
    """The application says that the node is a model node: then its calls are answered."""
    own = OwnTools(AIMessage("fine", id="a2"))
    bare = own.builder().compile(checkpointer=InMemorySaver())
    bare.update_state(
        thread(), {"messages": [human("go"), ai(("wire", {}, "c1"), id="a1")]}, as_node=START
    )
    await run(with_patching(bare, model_node="agent"), None)
    assert own.ran == []
    assert [m.type for m in history(bare, thread())] == ["human", "ai", "tool", "ai"]


async def test_it_is_left_alone_inside_a_parent():
    """The same for such an agent as a subgraph."""
    own = OwnTools(ai(("wire", {}, "c1"), id="a1"), AIMessage("done", id="a2"))
    builder = StateGraph(MessagesState).add_node("inside", own.builder().compile())
    parent = builder.add_edge(START, "inside").compile(checkpointer=InMemorySaver())
    graph = with_patching(parent)
    await run(graph, "go")
    await run(graph, Command(resume="yes"))
    assert own.ran == ["c1"]
