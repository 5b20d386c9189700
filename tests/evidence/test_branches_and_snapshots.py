"""Evidence of a superstep that ran again, of another branch, and of a run that was not stored."""

from __future__ import annotations

import time
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import ERROR
from langgraph.graph import START, StateGraph, add_messages
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from langgraph_patch import with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.agents import human, thread
from support.evidence_agents import recovered
from support.strict import RefusedError, StrictModel, ai
from support.versions import newer

DeltaChannel = newer("langgraph.channels", "DeltaChannel")
_messages_delta_reducer = newer("langgraph.graph.message", "_messages_delta_reducer")  # not public


@tool
def wire(to: str) -> str:
    """Wire, if a human agrees."""
    return f"wired to {to}: {interrupt('?')}"


@tool
def note(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Write a note."""
    message = ToolMessage("noted", name="note", tool_call_id=tool_call_id)
    return Command(update={"notes": text, "messages": [message]})


def _send_each(state: Any) -> Any:
    calls = getattr(state["messages"][-1], "tool_calls", [])
    return [Send("tools", [{**call, "type": "tool_call"}]) for call in calls] or "__end__"


def agent(reducer: Any, tools: list[Any], *script: Any) -> tuple[Any, StrictModel]:
    """A bare agent with a task for each call, and its model."""
    keys: Any = {"messages": Annotated[list[AnyMessage], reducer], "notes": str}
    model = StrictModel(script=[*script])
    builder = StateGraph(TypedDict("State", keys))
    builder.add_node("agent", lambda s: {"messages": [model.invoke(s["messages"])]})
    builder.add_node("tools", ToolNode(tools, handle_tool_errors=False))
    builder.add_edge(START, "agent").add_edge("tools", "agent")
    builder.add_conditional_edges("agent", _send_each, ["tools", "__end__"])
    return builder.compile(checkpointer=InMemorySaver()), model


def first_result(model: StrictModel) -> str:
    """The text of the first result that the model read last."""
    return next(m.text for m in model.seen[-1] if isinstance(m, ToolMessage))


def test_a_failed_call_that_a_goto_starts_again():
    """The model reads the error while the tool runs again; the next turn finds the result."""
    tries: list[int] = []

    @tool
    def flaky() -> str:
        """Raise once, then work for a while."""
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("kaput")
        time.sleep(0.3)
        return "at last"

    script = ai(("flaky", {}, "c1"), id="a1"), ai(("wire", {"to": "eve"}, "c1"), id="a2")
    fine = [AIMessage("fine") for _ in range(3)]
    bare, model = agent(add_messages, [flaky, wire], *script, *fine)
    graph = with_patching(bare)
    with pytest.raises(ValueError, match="kaput"):
        graph.invoke({"messages": [human("go")]}, thread(), durability="sync")
    graph.invoke(Command(goto="agent"), thread(), durability="sync")
    text = next(m.text for m in model.seen[1] if isinstance(m, ToolMessage))
    assert "failed in its last recorded attempt" in text
    graph.invoke({"messages": [human("and now?")]}, thread(), durability="sync")
    assert first_result(model) == "at last"


@pytest.mark.needs(langgraph="1.1.8")  # before, a fork takes the stored answer again
def test_a_fork_from_an_answered_approval():
    """The call was approved, and ran, on another branch: nothing states that it was not."""
    model = StrictModel(
        script=[ai(("note", {"text": "a"}, "c1"), id="a1"), *[AIMessage("fine") for _ in range(3)]]
    )
    approval = HumanInTheLoopMiddleware(interrupt_on={"note": True})
    graph = create_agent(
        model, [note], middleware=[PatchToolCallsMiddleware(), approval],
        checkpointer=InMemorySaver(),
    )  # fmt: skip
    graph.invoke({"messages": [human("go")]}, thread(), durability="sync")
    paused = graph.get_state(thread()).config
    graph.invoke(Command(resume={"decisions": [{"type": "approve"}]}), thread(), durability="sync")
    graph.invoke(None, paused, durability="sync")
    graph.invoke({"messages": [human("no, wait")]}, thread(), durability="sync")
    assert first_result(model) == (
        "No result of tool call note with id c1 is known; it may or may not have run."
    )


@pytest.mark.needs(langgraph="1.2")
@pytest.mark.parametrize("frequency", [1, 3, 4])
def test_an_id_that_is_used_again_after_a_snapshot(frequency: int):
    """The result of the second `call_0` is not given to the first one, which still waits."""
    reducer = DeltaChannel(_messages_delta_reducer, snapshot_frequency=frequency)
    script = [ai(("wire", {"to": to}, "call_0"), id=to) for to in ("eve", "mia")]
    bare, model = agent(reducer, [wire], *script, AIMessage("fine"), AIMessage("fine"))
    graph = with_patching(bare)
    for value in ("go", "never mind"):
        graph.invoke({"messages": [human(value)]}, thread(), durability="sync")
    graph.invoke(Command(resume="yes"), thread(), durability="sync")
    graph.invoke({"messages": [human("and now?")]}, thread(), durability="sync")
    assert "was waiting for human input" in first_result(model)


def test_a_snapshot_without_the_writes_before_it():
    """Nothing shows when the message was new: an older result of its id and tool is another's."""
    saver, config = InMemorySaver(), thread()
    older, newer_call = (ai(("wire", {"to": to}, "c1"), id=to) for to in ("eve", "mia"))
    result = ToolMessage("wired to eve", name="wire", tool_call_id="c1")
    histories = [[human("go"), older], None, [human("go"), older, result, human("2"), newer_call]]
    for step, history in enumerate(histories):
        checkpoint = empty_checkpoint()
        if history is not None:
            checkpoint["channel_values"] = {"messages": history}
            checkpoint["channel_versions"] = {"messages": step}
        config["configurable"].setdefault("checkpoint_ns", "")
        metadata: Any = {"source": "loop", "step": step, "parents": {}}
        versions: Any = {"messages": step} if history is not None else {}
        config = saver.put(config, checkpoint, metadata, versions)
        if history is None:
            saver.put_writes(config, [("messages", [result])], "task")
    assert recovered(saver, (newer_call, "c1")) == {}


def test_effects_that_a_run_with_durability_exit_dropped():
    """Such a run stores its last checkpoint only: that it began with a message is not stored."""
    made = ai(("note", {"text": "a"}, "c1"), ("wire", {"to": "eve"}, "c2"), id="a1")
    bare, model = agent(add_messages, [note, wire], made, AIMessage("fine"))
    graph = with_patching(bare)
    graph.invoke({"messages": [human("go")]}, thread(), durability="exit")
    with pytest.raises(RefusedError):
        bare.invoke({"messages": [human("never mind")]}, thread(), durability="exit")
    state = graph.invoke({"messages": [human("and now?")]}, thread(), durability="exit")
    assert state.get("notes") == "a" or "not kept: notes" in first_result(model)


def test_a_call_that_is_approved_after_a_repair_gave_it_a_new_id():
    """Its `Send` has the old id, which a newer message uses too; the result is the call's own."""

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    script = [
        ai(("note", {"text": "a"}, "c1"), id="a1"),
        ai(("pay", {"amount": 1}, "c1"), id="a2"),
        ai(("wire", {"to": "eve"}, "c1"), id="a3"),
        *[AIMessage("fine") for _ in range(3)],
    ]
    model = StrictModel(script=script)
    approval = HumanInTheLoopMiddleware(interrupt_on={"pay": True, "wire": True})
    graph = with_patching(
        create_agent(model, [note, pay, wire], middleware=[approval], checkpointer=InMemorySaver())
    )
    graph.invoke({"messages": [human("go")]}, thread(), durability="sync")
    [first] = graph.get_state(thread()).interrupts
    graph.invoke(Command(goto="model"), thread(), durability="sync")
    approve = {first.id: {"decisions": [{"type": "approve"}]}}
    graph.invoke(Command(resume=approve), thread(), durability="sync")
    graph.invoke({"messages": [human("and now?")]}, thread(), durability="sync")
    texts = [m.text for m in model.seen[-1] if isinstance(m, ToolMessage)]
    assert texts[:2] == ["noted", "paid 1"]


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
def test_equal_calls_with_one_id_that_are_answered_and_fail():
    """Of each, its own task tells how it ended."""

    @tool
    def risky() -> str:
        """Ask, then raise."""
        raise ValueError(f"kaput: {interrupt('?')}")

    made = ai(("risky", {}, "c1"), ("risky", {}, "c1"), id="a1")
    model = StrictModel(script=[made, AIMessage("fine")])
    bare = create_react_agent(model, ToolNode([risky]), checkpointer=InMemorySaver(), version="v2")
    graph = with_patching(bare)
    graph.invoke({"messages": [human("go")]}, thread(), durability="sync")
    answers = {asked.id: "yes" for asked in graph.get_state(thread()).interrupts}
    with pytest.raises(ValueError, match="kaput"):
        graph.invoke(Command(resume=answers), thread(), durability="sync")
    graph.invoke({"messages": [human("and now?")]}, thread(), durability="sync")
    texts = [m.text for m in model.seen[-1] if isinstance(m, ToolMessage)]
    assert len(texts) == len(answers) == 2
    # LangGraph stores the error of the second task only if it ends before the run does.
    writes = [write for saved in bare.checkpointer.list(thread()) for write in saved.pending_writes]
    stored = {task for task, channel, _ in writes if channel == ERROR}
    assert sum("failed in its last recorded attempt" in text for text in texts) == len(stored) > 0


DELTA = DeltaChannel(_messages_delta_reducer)
WAYS = {
    "plain-exit": (add_messages, "exit"),
    "delta-exit": (DELTA, "exit"),
    "delta-sync": (DELTA, "sync"),
}


class Shallow(InMemorySaver):
    """Keeps the newest checkpoint of each namespace, as shallow PostgreSQL and MySQL savers do."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        """Store a checkpoint in the place of the one before."""
        own = config["configurable"]
        self.storage[own["thread_id"]][own.get("checkpoint_ns", "")].clear()
        stored = super().put(config, checkpoint, metadata, new_versions)
        stored["configurable"].pop("parent", None)
        return stored


@tool
def mail(to: str) -> str:
    """Mail."""
    return f"sent to {to}"


@tool
def wire_to(to: str) -> str:
    """Wire, if a human agrees."""
    return f"wired to {to}: {interrupt('?')}"


def send_each(state: Any) -> Any:
    """A task for each call."""
    calls = getattr(state["messages"][-1], "tool_calls", [])
    return [Send("tools", [{**call, "type": "tool_call"}]) for call in calls] or "__end__"


def loop_of(saver: Any, reducer: Any, *script: AIMessage) -> tuple[Any, StrictModel]:
    """A hand-built agent, and its model."""
    state: Any = TypedDict("State", {"messages": Annotated[list[AnyMessage], reducer]})
    model = StrictModel(script=[*script])
    builder = StateGraph(state)
    builder.add_node("agent", lambda s: {"messages": [model.invoke(s["messages"])]})
    builder.add_node("tools", ToolNode([mail, wire_to]))
    builder.add_edge(START, "agent").add_edge("tools", "agent")
    builder.add_conditional_edges("agent", send_each, ["tools", "__end__"])
    return with_patching(builder.compile(checkpointer=saver)), model


def results(messages: Any) -> list[str]:
    """The texts of the results, in order."""
    return [m.text for m in messages if isinstance(m, ToolMessage)]


def test_a_shallow_saver_keeps_the_thread_alive():
    """What the pause recorded is gone: the calls are unknown, and the model answers."""
    made = ai(("mail", {"to": "bob"}, "c1"), ("wire_to", {"to": "eve"}, "c2"), id="a1")
    graph, model = loop_of(Shallow(), add_messages, made, AIMessage("fine"), AIMessage("ok"))
    for text in ("go", "never mind", "and now?"):
        graph.invoke({"messages": [human(text)]}, thread())
    assert results(model.seen[-1]) == [
        "No result of tool call mail with id c1 is known; it may or may not have run.",
        "No result of tool call wire_to with id c2 is known; it may or may not have run.",
    ]


@pytest.mark.parametrize(("reducer", "durability"), WAYS.values(), ids=WAYS)
def test_an_id_that_is_used_again(reducer: Any, durability: Any):
    """`call_0` finished in the first turn and waits in the second; then a replay of that turn."""
    script = [
        ai(("mail", {"to": "bob"}, "call_0"), id="a1"),
        AIMessage("done", id="a2"),
        ai(("wire_to", {"to": "eve"}, "call_0"), ("mail", {"to": "mia"}, "call_1"), id="a3"),
        *[AIMessage("fine") for _ in range(2)],
    ]
    graph, model = loop_of(InMemorySaver(), reducer, *script)
    for text in ("mail bob", "wire eve"):
        graph.invoke({"messages": [human(text)]}, thread(), durability=durability)
    paused = graph.get_state(thread()).config
    for config in (thread(), paused):
        graph.invoke({"messages": [human("never mind")]}, config, durability=durability)
        first, waits, mia = results(model.seen[-1])
        assert (first, mia) == ("sent to bob", "sent to mia")
        assert "was waiting for human input" in waits


@pytest.mark.parametrize(("reducer", "durability"), WAYS.values(), ids=WAYS)
def test_an_id_that_is_used_again_after_a_repair(reducer: Any, durability: Any):
    """A repair gives `call_0` a new id; the next `call_0` of the same run keeps its result.

    With durability "exit" the repair and the new message are in the writes of one checkpoint.
    """
    script = [
        ai(("mail", {"to": "bob"}, "call_0"), id="a1"),
        AIMessage("done", id="a2"),
        ai(("wire_to", {"to": "eve"}, "call_0"), id="a3"),
        ai(("mail", {"to": "mia"}, "call_0"), ("wire_to", {"to": "joe"}, "call_1"), id="a4"),
        AIMessage("fine"),
    ]
    graph, model = loop_of(InMemorySaver(), reducer, *script)
    for text in ("mail bob", "wire eve", "mail mia, wire joe", "never mind"):
        graph.invoke({"messages": [human(text)]}, thread(), durability=durability)
    bob, eve, mia, joe = results(model.seen[-1])
    assert (bob, mia) == ("sent to bob", "sent to mia")
    assert "was waiting for human input" in eve
    assert "was waiting for human input" in joe


@pytest.mark.parametrize(("reducer", "durability"), WAYS.values(), ids=WAYS)
@pytest.mark.needs("delta-exit", langgraph="1.2.16")  # it adds the result itself
def test_an_id_that_is_used_in_each_message(reducer: Any, durability: Any):
    """All calls of a run have one id: a result beside a pause is that of the last message."""
    script = [
        ai(("mail", {"to": "bob"}, "call_0"), ("wire_to", {}, "call_0"), id="a1"),
        ai(("mail", {"to": "mia"}, "call_0"), ("wire_to", {"to": "joe"}, "call_0"), id="a2"),
        AIMessage("fine"),
    ]
    graph, model = loop_of(InMemorySaver(), reducer, *script)
    for text in ("mail bob and mia", "never mind"):
        graph.invoke({"messages": [human(text)]}, thread(), durability=durability)
    found = results(model.seen[-1])
    assert len(found) == 4
    assert found[2] == "sent to mia"
    assert "was waiting for human input" in found[3]
