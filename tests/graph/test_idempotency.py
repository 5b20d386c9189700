"""`idempotency_key`: one key for one call, however often and wherever it runs."""

import asyncio
from typing import Annotated

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode, ToolRuntime
from langgraph.types import Command, interrupt

from langgraph_patch import idempotency_key
from langgraph_patch.errors import RecordingError
from langgraph_patch.recording.wrappers import arecord_tool_calls, record_tool_calls
from support.recorded_agents import (
    GO,
    THREAD,
    WITH_SEND,
    State,
    TwoHistories,
    World,
    ask,
    plain_loop,
    recorded,
)


class Keys(World):
    """Tools that note their keys."""

    def __init__(self):
        super().__init__()
        self.keys: list[str] = []

    def tools(self):
        """One tool with a runtime, one with a config; both ask."""

        @tool
        def mail(to: str, runtime: ToolRuntime) -> str:
            """Send a mail, if a human agrees."""
            self.keys.append(idempotency_key(runtime, runtime.tool_call_id))
            return interrupt(f"{to}?")

        @tool
        def wire(
            to: str, config: RunnableConfig, call_id: Annotated[str, InjectedToolCallId]
        ) -> str:
            """Wire money, if a human agrees."""
            self.keys.append(idempotency_key(config, call_id))
            return interrupt(f"{to}?")

        return [mail, wire]


def plain(world, saver, message):
    """A `ToolNode` without recording."""
    return plain_loop(world, saver, message, node=ToolNode(world.tools()))


KINDS = {"recorded": plain_loop, "plain": plain, **WITH_SEND}


@pytest.mark.parametrize("name", ["mail", "wire"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_key_is_the_same_after_a_resume(runs, kind, name):
    """Each start of the tool has the key of the first one."""
    world = Keys()

    def scenario(saver):
        app = KINDS[kind](world, saver, ask((name, "bob", "c1")))
        yield app, "invoke", GO, THREAD
        yield app, "invoke", None, THREAD
        yield app, "invoke", Command(resume="yes"), THREAD

    runs(scenario)
    assert len(world.keys) == 3
    assert len(set(world.keys)) == 1


@pytest.mark.parametrize("name", ["mail", "wire"])
def test_the_key_is_the_same_after_an_update_and_without_recording(runs, name):
    """Neither the task id nor the namespace of a recorded call is a part of it."""
    world = Keys()

    def scenario(saver):
        app = plain_loop(world, saver, ask((name, "bob", "c1")))
        yield app, "invoke", GO, THREAD
        yield app, "update_state", THREAD, {"flag": True}
        yield app, "invoke", Command(resume="yes"), THREAD
        yield plain(world, None, ask((name, "bob", "c1"))), "invoke", GO, THREAD

    runs(scenario)
    assert len(world.keys) == 3
    assert len(set(world.keys)) == 1


def test_the_runtime_and_the_config_give_one_key(runs):
    """So do two tools with the same call, and other keys for what is another call."""
    world = Keys()
    calls = [
        (THREAD, ask(("mail", "bob", "c1"))),
        (THREAD, ask(("wire", "bob", "c1"))),
        (THREAD, ask(("wire", "bob", "c2"))),
        (THREAD, ask(("wire", "bob", "c1"), message_id="ai2")),
        ({"configurable": {"thread_id": "2"}}, ask(("wire", "bob", "c1"))),
    ]

    def scenario(_):
        for thread, message in calls:
            yield plain_loop(world, InMemorySaver(), message), "invoke", GO, thread

    runs(scenario)
    assert world.keys[0] == world.keys[1]
    assert len(set(world.keys)) == 4


def test_two_histories_with_one_call_have_two_keys(runs):
    """The node tells the calls apart."""
    world = Keys()

    def scenario(saver):
        builder = StateGraph(TwoHistories)
        one, two = (ask(("wire", "bob", "c1"), message_id=i) for i in ("ai1", "ai2"))
        builder.add_node("agent", lambda _: {"messages": [one], "other": [two]})
        builder.add_node("tools", recorded(world.tools()))
        builder.add_node("others", recorded(world.tools(), messages_key="other"))
        builder.add_edge(START, "agent")
        builder.add_edge("agent", "tools")
        builder.add_edge("agent", "others")
        yield builder.compile(checkpointer=saver), "invoke", GO, THREAD

    runs(scenario)
    assert len(set(world.keys)) == len(world.keys) == 2


@pytest.mark.parametrize("inner", [False, True])
def test_inside_a_wrapper(runs_mode, inner):
    """A wrapper around the recorder and the tool that it runs see one key."""
    world, seen = Keys(), []

    def note(request):
        seen.append(idempotency_key(request.runtime, request.tool_call["id"]))

    def wrapper(request, execute):
        note(request)
        return record_tool_calls(request, lambda r: (inner and note(r)) or execute(r))

    async def awrapper(request, execute):
        note(request)
        return await arecord_tool_calls(request, lambda r: (inner and note(r)) or execute(r))

    node = ToolNode(world.tools(), wrap_tool_call=wrapper, awrap_tool_call=awrapper)
    app = plain_loop(world, InMemorySaver(), ask(("mail", "bob", "c1")), node=node)
    app.invoke(GO, THREAD) if runs_mode == "sync" else asyncio.run(app.ainvoke(GO, THREAD))
    assert set(seen) == set(world.keys)
    assert len(set(seen)) == 1


def test_where_no_key_identifies_the_call():
    """An error, because two calls with one key would be done once."""
    with pytest.raises(RecordingError, match="no message of the state makes it"):
        idempotency_key({"configurable": {}}, "c1")
    twice = ask(("mail", "bob", "c1"), ("mail", "eve", "c1"))
    unnamed = AIMessage("", tool_calls=ask(("mail", "bob", "c1")).tool_calls)
    node = ToolNode(Keys().tools(), handle_tool_errors=False)
    for message, reason in ((twice, "two calls with this id"), (unnamed, "has no id")):
        builder = StateGraph(State)
        builder.add_node("tools", lambda _, m=message: node.invoke({"messages": [m]}))
        app = builder.add_edge(START, "tools").compile()
        with pytest.raises(RecordingError, match=reason):
            app.invoke(GO)
