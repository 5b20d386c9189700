"""deepagents' `write_file` and langchain's `write_todos` beside a pause, live and in a repair.

LangGraph drops what the tools wrote when the user moves on. Their results are recovered, so the
file and the todos must be in the state again, or the model must read that they are not.
"""

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import TodoListMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.types import interrupt

from langgraph_patch import with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from langgraph_patch.threads import arepair_thread, repair_thread
from support.agents import human, thread
from support.databases import POSTGRES, open_async_saver, open_saver
from support.running import run
from support.strict import RefusedError, StrictModel, ai

NOT_KEPT = "These effects of the tool call were not kept: "
TODOS = [{"content": "sleep", "status": "pending"}]
OTHER = [{"content": "eat", "status": "pending"}]
ON_BOTH = pytest.mark.parametrize("path", ["sqlite", POSTGRES], indirect=True)


@tool
def wire_money() -> str:
    """Wait for a human."""
    return str(interrupt("1000 EUR?"))


def calls(*, file=True):
    """A message that writes a file and todos, and asks."""
    writes = [("write_file", {"file_path": "/a.txt", "content": "hello"}, "c1")] if file else []
    return ai(*writes, ("write_todos", {"todos": TODOS}, "c2"), ("wire_money", {}, "c3"), id="a1")


def deep_agent(saver, *middleware):
    """A deep agent, and its model."""
    model = StrictModel(script=[calls(), AIMessage("fine")])
    stack = [TodoListMiddleware(), *middleware]
    return create_deep_agent(model, [wire_money], middleware=stack, checkpointer=saver), model


async def abandon(graph, way, value, *, asynchronous=False):
    """The user moves on, and the thread is repaired in one of the ways."""
    if way == "repair":
        options = {"on_pause": "abandon", "min_age": 0, "replace_foreign": True}
        if "files" in value:
            await run(graph, value, asynchronous=asynchronous)  # deepagents writes placeholders
        if asynchronous:
            result = await arepair_thread(graph, thread(), **options)
        else:
            result = repair_thread(graph, thread(), **options)
        assert result.outcome == "repaired", result
        return
    if way == "entry":
        graph = with_patching(graph)
    elif way == "wrapper":
        # A fork after the hooks: the model is next, and START is not run.
        paused = graph.get_state(thread()).config
        graph.update_state(paused, value, as_node="PatchToolCallsMiddleware.before_agent")
        graph, value = with_patching(graph), None
    await run(graph, value, asynchronous=asynchronous)


def texts(graph):
    """The text of each result in the state."""
    messages = graph.get_state(thread()).values["messages"]
    return {m.tool_call_id: m.text for m in messages if isinstance(m, ToolMessage)}


WAYS = ["entry", "middleware", "repair"]


@ON_BOTH
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.needs(deepagents="0.7")
async def test_the_file_and_the_todos_are_in_the_state(way, saver):
    """Entry check, middleware and `repair_thread`."""
    own = [PatchToolCallsMiddleware()] if way == "middleware" else []
    graph, model = deep_agent(saver, *own)
    await run(graph, "go")
    await abandon(graph, way, {"messages": [human("never mind")]})
    values = graph.get_state(thread()).values
    assert values["files"]["/a.txt"]["content"] == "hello"
    assert values["todos"] == TODOS
    assert texts(graph)["c1"] == "Updated file /a.txt"
    assert NOT_KEPT not in str(texts(graph)) + str(model.seen)


@pytest.mark.needs(deepagents="0.7")
async def test_a_model_node_names_them(tmp_path):
    """Where START does not run, the model reads before each result what was not kept."""
    with open_saver(str(tmp_path / "db.sqlite")) as saver:
        graph, model = deep_agent(saver)
        await run(graph, "go")
        await abandon(graph, "wrapper", {"messages": [human("never mind")]})
        values, stored = graph.get_state(thread()).values, texts(graph)
    assert "/a.txt" not in values.get("files", {})
    assert "todos" not in values
    assert stored["c1"].startswith(f"{NOT_KEPT}files. ")
    assert stored["c2"].startswith(f"{NOT_KEPT}todos. ")
    read = {m.tool_call_id: m.text for m in model.seen[-1] if isinstance(m, ToolMessage)}
    assert read == stored


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.needs(deepagents="0.7")
async def test_the_same_in_an_event_loop(way, tmp_path):
    """With an asynchronous checkpointer."""
    own = [PatchToolCallsMiddleware()] if way == "middleware" else []
    async with open_async_saver(str(tmp_path / "db.sqlite")) as saver:
        graph, _ = deep_agent(saver, *own)
        await run(graph, "go", asynchronous=True)
        await abandon(graph, way, {"messages": [human("never mind")]}, asynchronous=True)
        values = (await graph.aget_state(thread())).values
    assert values["files"]["/a.txt"]["content"] == "hello"
    assert values["todos"] == TODOS


@ON_BOTH
@pytest.mark.needs(deepagents="0.7")
async def test_a_repair_after_an_edit_restores_or_names_the_file(saver):
    """The version of a `DeltaChannel` may change without a write: then the file is named."""
    graph, _ = deep_agent(saver)
    await run(graph, "go")
    graph.update_state(thread(), {"messages": []}, as_node="model")
    await abandon(graph, "repair", {})
    files = graph.get_state(thread()).values.get("files", {})
    is_named = texts(graph)["c1"].startswith(f"{NOT_KEPT}files. ")
    assert texts(graph)["c1"].endswith("Updated file /a.txt")
    assert is_named is ("/a.txt" not in files)


@ON_BOTH
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.needs(deepagents="0.7")
async def test_a_newer_file_is_not_overwritten(way, saver):
    """The user's own file stays, and the model reads that the recorded one was not kept."""
    own = [PatchToolCallsMiddleware()] if way == "middleware" else []
    graph, model = deep_agent(saver, *own)
    await run(graph, "go")
    newer = {"/a.txt": {"content": "mine", "encoding": "utf-8"}}
    await abandon(graph, way, {"messages": [human("never mind")], "files": newer})
    values = graph.get_state(thread()).values
    assert values["files"]["/a.txt"]["content"] == "mine"
    assert values["todos"] == TODOS  # another call: its key has not changed
    assert texts(graph)["c1"].startswith(f"{NOT_KEPT}files. ")
    assert texts(graph)["c2"].startswith("Updated todo list")
    if way != "repair":
        read = {m.tool_call_id: m.text for m in model.seen[-1] if isinstance(m, ToolMessage)}
        assert read == texts(graph)


@ON_BOTH
@pytest.mark.parametrize("way", ["entry", "repair"])
async def test_newer_todos_are_not_overwritten(way, saver):
    """The thread died, somebody wrote other todos, and it is repaired later."""
    model = StrictModel(script=[calls(file=False), AIMessage("fine")])
    graph = create_agent(model, [wire_money], middleware=[TodoListMiddleware()], checkpointer=saver)
    await run(graph, "go")
    with pytest.raises(RefusedError):
        await run(graph, "never mind")
    graph.update_state(thread(), {"todos": OTHER}, as_node="model")
    if way == "repair":
        assert repair_thread(graph, thread(), min_age=0).outcome == "repaired"
    else:
        await run(with_patching(graph), "and now?")
    assert graph.get_state(thread()).values["todos"] == OTHER
    assert texts(graph)["c2"].startswith(f"{NOT_KEPT}todos. ")
