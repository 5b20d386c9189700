"""What a recovered result wrote to other state keys is restored, or the model reads that it is not.

A tool that writes `files` or `todos` finishes beside one that waits for a human. The user moves on.
"""

import operator
from collections import ChainMap
from dataclasses import replace
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.channels import LastValue, UntrackedValue
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.types import Command, Overwrite, interrupt
from typing_extensions import TypedDict

from kit import Agent, DeltaChannel, calls, model_node, send_each
from langgraph_patch import with_patching
from langgraph_patch.evidence.effects import Effects
from langgraph_patch.evidence.superstep import Task
from langgraph_patch.history.findings import Finding
from langgraph_patch.repairing.effects import one_write_each, settle
from support.supersteps import MORE, Thread, sent

NOT_KEPT = "These effects of the tool call were not kept: "
FILES = {"a.txt": "hello"}
TURN = calls(("write", {}), ("wire", {}), id="a1")


class State(TypedDict, total=False):
    """A state with two keys that the tools write."""

    messages: Annotated[list[AnyMessage], add_messages]
    files: Annotated[dict[str, str], operator.or_]
    note: str


def paused(
    *, goto: str | None = None, state: Any = State, first: Any = None, durability: Any = None
) -> Agent:
    """A patched agent whose tools write a file and a note, or ask: paused beside a finished call.

    `first` is in the input of the turn.
    """

    def run(sent: Any) -> Any:
        [call] = sent
        if call["name"] == "wire":
            interrupt("1000 EUR?")
        done = ToolMessage("Updated file", tool_call_id=call["id"], name=call["name"], id="r1")
        written = {"messages": [done], "files": FILES, "note": "written"}
        return Command(update=written, goto=goto or ())

    def build(model: Any, _: Any, saver: Any) -> Any:
        builder = StateGraph(state).add_node("agent", model_node(model)).add_node("tools", run)
        builder.add_node("other", lambda _: {"messages": [AIMessage("other")]})
        builder.add_edge(START, "agent").add_edge("tools", "agent")
        builder.add_conditional_edges("agent", send_each, ["tools", END])
        return with_patching(builder.compile(checkpointer=saver))

    agent = Agent(build, TURN)
    agent.run({"messages": [HumanMessage("go")], **(first or {})}, durability=durability)
    assert agent.graph.get_state(agent.config).next
    return agent


def values(agent: Agent) -> tuple[Any, Any]:
    """The stored files and note; the files are None if there are none."""
    stored = agent.graph.get_state(agent.config).values
    return stored.get("files") or None, stored.get("note")


@pytest.mark.parametrize(
    ("update", "durability", "goto"),
    [({"note": "mine"}, "sync", None), ({}, "sync", "other"), ({}, "exit", None)],
)
def test_effects_that_are_not_kept(update: Any, durability: str, goto: str | None):
    """The effects of a task are restored together, or named; newer values stay.

    With durability "exit" the live values may be newer than all checkpoints.
    """
    agent = paused(goto=goto, durability=durability)
    agent.run({"messages": [MORE], **update}, durability=durability)
    assert values(agent) == (None, update.get("note"))
    names = "files, note" + (", goto" if goto else "")
    is_certain = not update and durability == "sync"  # what was written since may be these effects
    text = NOT_KEPT if is_certain else NOT_KEPT.replace("were not", "may not have been")
    assert agent.results["c1"] == f"{text}{names}. Its recorded result:\nUpdated file"


class Filed(TypedDict, total=False):
    """A state with a history and files in `DeltaChannel`s."""

    messages: Annotated[list[AnyMessage], add_messages]
    files: Annotated[dict[str, str], DeltaChannel(lambda old, new: {**old, **ChainMap(*new)})]
    note: str


@pytest.mark.needs(langgraph="1.2")
@pytest.mark.parametrize("first", [{}, {"files": {"old.txt": "older"}}])
@pytest.mark.parametrize("other", [{}, {"files": {"b.txt": "mine"}}])
def test_files_in_a_delta_channel(other: Any, first: Any):
    """LangGraph gives the channel a new version when an input drops its write: values decide."""
    agent = paused(state=Filed, first=first)
    agent.run({"messages": [MORE], **other})
    before = first.get("files", {})
    if other:
        assert values(agent)[0] == {**before, **other["files"]}
        assert "may not have been kept: files, note" in agent.results["c1"]
    else:
        assert values(agent)[0] == {**before, **FILES}
        assert agent.results["c1"] == "Updated file"


RESULT = ToolMessage("done", tool_call_id="c1")
ONE, TWO = (Task(Thread(TURN, sent("done")).step, name, ()) for name in ("t1", "t2"))
FILED: Any = {"goes_elsewhere": False, "task": ONE, "is_current": False}
KEPT = Effects((("files", FILES),), frozenset({"files"}), **FILED)
OTHER = replace(KEPT, writes=(("files", {"c": "d"}),), task=TWO)
TWICE = replace(KEPT, writes=(*KEPT.writes, *OTHER.writes))
GONE = replace(KEPT, writes=(*KEPT.writes, ("a", 2)), goes_elsewhere=True)
LAST = {"files": LastValue(dict)}
REDUCER: dict[str, Any] = {"files": BinaryOperatorAggregate(dict, operator.or_)}


def test_what_is_restored():
    """All effects of a task or none, and none without a write; what is not restored is named."""
    table: Any = [
        # Two calls of one task share its writes.
        ([KEPT, KEPT], LAST, [(), ()], KEPT.writes),
        # Two tasks write one key: only a reducer takes both.
        ([KEPT, OTHER], REDUCER, [(), ()], (*KEPT.writes, *OTHER.writes)),
        ([KEPT, OTHER], LAST, [(), ("files",)], KEPT.writes),
        ([TWICE], LAST, [("files",)], ()),
        ([TWICE], REDUCER, [()], TWICE.writes),
        ([TWICE], {"files": UntrackedValue(dict, guard=True)}, [("files",)], ()),
        # A changed key, a key that the graph lacks, a `goto`.
        ([replace(KEPT, unchanged=frozenset())], LAST, [("files",)], ()),
        ([KEPT], {"messages": None}, [("files",)], ()),
        ([GONE], {"a": LAST["files"], "files": LAST["files"]}, [("a", "files", "goto")], ()),
        ([replace(KEPT, writes=(), goes_elsewhere=True)], LAST, [("goto",)], ()),
        # Keys of the caller are left out.
        ([replace(KEPT, writes=(("messages", [RESULT]),))], LAST, [()], ()),
    ]
    for effects, channels, not_kept, writes in table:
        found = {(0, ordinal): each for ordinal, each in enumerate(effects)}
        before = dict.fromkeys(found, Finding(result=RESULT))
        how: Any = {"own_keys": {"messages"}, "channels": channels}
        settled, restored = settle(before, found, restore=True, **how)
        assert [each.not_kept for each in settled.values()] == not_kept
        assert restored == writes
        assert settle(before, found, restore=False, **how)[1] == ()


def test_one_write_with_the_effect_of_several():
    """An `Overwrite` of what the reducer makes of all."""
    files = REDUCER["files"].copy()
    files.update([{"a": "1"}])
    writes = (("files", {"b": "2"}), ("files", {"c": "3"}), ("one", 1))
    whole = {"a": "1", "b": "2", "c": "3"}
    assert one_write_each({"files": files}, writes) == {"files": Overwrite(whole), "one": 1}
    anew = (("files", Overwrite({"b": "2"})), ("files", Overwrite({"d": "4"})))
    assert one_write_each({"files": files}, anew) == {"files": Overwrite({"d": "4"})}
    assert files.get() == {"a": "1"}
