"""What the API of LangGraph Server shows, read as a checkpoint."""

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, TASKS

from langgraph_patch.threads.server_json import checkpoint_of, with_messages

CALLS = [{"name": name, "args": {}, "id": name, "type": "tool_call"} for name in ("a", "b", "c")]
CUT = {"name": "d", "args": "{", "id": "d", "error": None, "type": "invalid_tool_call"}
MODEL = AIMessage(
    "",
    id="m",
    tool_calls=CALLS,
    usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    response_metadata={"finish_reason": "tool_calls"},
)


def result(call_id):
    """A result as JSON."""
    return ToolMessage("done", id=f"r-{call_id}", tool_call_id=call_id).model_dump(mode="json")


def task(index, *, name="tools", **outcome):
    """A task that a `Send` made, as the API shows it."""
    empty = {"error": None, "interrupts": [], "result": None}
    path = ["__pregel_push", index, False]
    return {"id": f"t{index}", "name": name, "path": path, **empty, **outcome}


def finished(index, call_id):
    """A task with the result of a call."""
    return task(index, result={"messages": [result(call_id)]})


def waiting(index):
    """A task that waits for a human."""
    return task(index, interrupts=[{"id": f"i{index}", "value": "well?"}])


def saved(*tasks, messages=(MODEL,), **fields):
    """The checkpoint before those tasks."""
    state = {
        "values": {"messages": [message.model_dump(mode="json") for message in messages]},
        "tasks": list(tasks),
        "checkpoint": {"thread_id": "1", "checkpoint_id": "c"},
        "metadata": {"step": 1},
        "created_at": "2026-01-01T00:00:00+00:00",
        **fields,
    }
    return checkpoint_of(state)


# --- messages -------------------------------------------------------------------------------


def test_a_message_keeps_every_field_and_other_values_stay():
    """Also fields that `convert_to_messages` would move, and values that look like a message."""
    cut = MODEL.model_copy(update={"invalid_tool_calls": [CUT]})
    for message in (MODEL, cut, HumanMessage("hi", id="h"), AIMessageChunk("x", id="x")):
        assert with_messages([message.model_dump(mode="json")]) == [message]
    human = {"type": "human", "id": "h", "content": 7}
    for value in (7, {"type": "text", "text": "x"}, {"type": ["ai"], "id": 3}, human):
        assert with_messages([value]) == [value]


# --- checkpoints ----------------------------------------------------------------------------


def test_a_checkpoint_has_what_the_api_shows():
    """Its names, its values, the nodes that are due, and what came before it."""
    pulled = {**task(0), "path": ["__pregel_pull", "agent"], "name": "agent"}
    start = {**pulled, "name": "__start__"}
    parent = {"thread_id": "1", "checkpoint_id": "b", "checkpoint_ns": "x", "other": 1}
    read = saved(pulled, start, parent_checkpoint=parent)
    values = {"messages": [MODEL], "branch:to:agent": None}
    assert read.checkpoint["channel_values"] == values
    assert read.checkpoint["channel_versions"].keys() == values.keys()
    assert (read.checkpoint["id"], read.checkpoint["ts"]) == ("c", "2026-01-01T00:00:00+00:00")
    assert (read.metadata, read.pending_writes) == ({"step": 1}, [])
    names = {"thread_id": "1", "checkpoint_ns": "", "checkpoint_id": "c"}
    before = {"thread_id": "1", "checkpoint_ns": "x", "checkpoint_id": "b"}
    assert read.config == {"configurable": names}
    assert read.parent_config == {"configurable": before}
    assert saved().parent_config is None


def test_a_state_of_any_form():
    """A state that is no dict is in the channel that LangGraph names `__root__`."""
    root = {"__root__": [ToolMessage(**result("a"))]}
    for values, expected in ((None, {}), ([result("a")], root), ({"n": 1}, {"n": 1})):
        read = saved(values=values, tasks=None, metadata=None)
        assert (read.checkpoint["channel_values"], read.metadata) == (expected, {})


def test_the_pending_writes_of_tasks():
    """Results, errors, interrupts, and tasks that finished without a write."""
    several = {"$writes": [[result("a")], [result("b")]]}
    writes = saved(
        finished(0, "a"),
        waiting(1),
        task(2, error="kaput"),
        task(3, result={"messages": several, "n": {"$writes": [1], "and": 2}}),
        task(4, result={}),
        task(5),
    ).pending_writes
    assert [(task, channel) for task, channel, _ in writes] == [
        ("t0", "messages"),
        ("t1", INTERRUPT),
        ("t2", ERROR),
        ("t3", "messages"),
        ("t3", "messages"),
        ("t3", "n"),
        ("t4", "__no_writes__"),
    ]
    [first, asked, error, *two, other, _] = [value for *_, value in writes]
    assert [message.tool_call_id for [message] in (first, *two)] == ["a", "a", "b"]
    assert [(each.id, each.value) for each in asked] == [("i1", "well?")]
    assert (error, other) == ("kaput", {"$writes": [1], "and": 2})


def test_the_call_of_a_send_is_derived_only_if_it_is_certain():
    """A result names its call, and which of the others ended how must not matter."""
    for tasks, expected in (
        ((finished(0, "a"), waiting(1), finished(2, "c")), ["a", "b", "c"]),
        ((finished(0, "a"), waiting(1), waiting(2)), ["a", "b", "c"]),
        ((finished(0, "a"), waiting(1), task(2, error="no")), [None] * 3),
        ((finished(0, "b"), waiting(1), waiting(2)), ["b", "a", "c"]),  # in another order
        ((finished(0, "x"), waiting(1), waiting(2)), [None] * 3),  # no call of the message
        ((finished(0, "a"), finished(1, "a"), waiting(2)), [None] * 3),
        ((task(0, result={}), waiting(1), waiting(2)), [None] * 3),
        ((waiting(1), finished(0, "a"), finished(2, "c")), ["a", "b", "c"]),  # tasks not in order
        ((finished(0, "a"), waiting(1)), [None] * 2),  # another count
        (tuple(task(i, name="other") for i in range(3)), [None] * 3),
        ((), []),
    ):
        sends = saved(*tasks).checkpoint["channel_values"].get(TASKS, [])
        assert [send.arg[0]["id"] if send.arg else None for send in sends] == expected
