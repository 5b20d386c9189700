"""What the API of LangGraph Server shows, read as a checkpoint; and what a repair sends there."""

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
    convert_to_messages,
)
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, TASKS
from langgraph.graph.message import add_messages
from langgraph_sdk import get_sync_client

from langgraph_patch import patch_messages
from langgraph_patch.errors import MessagesError
from langgraph_patch.evidence.tasks import read_step
from langgraph_patch.history.texts import Finding
from langgraph_patch.threads import LangGraphServer, repair_thread, scan_threads
from langgraph_patch.threads.server_json import checkpoint_of, with_messages
from langgraph_patch.threads.server_repair import as_json, writes_between
from support.agents import thread

CALLS = [{"name": name, "args": {}, "id": name, "type": "tool_call"} for name in ("a", "b", "c")]
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
    return {"id": f"t{index}", "name": name, "path": ["__pregel_push", index, False], **empty} | (
        outcome
    )


def finished(index, call_id):
    """A task with the result of a call."""
    return task(index, result={"messages": [result(call_id)]})


def waiting(index):
    """A task that waits for a human."""
    return task(index, interrupts=[{"id": f"i{index}", "value": "well?"}])


def saved(*tasks, checkpoint_id="c"):
    """The checkpoint before those tasks."""
    state = {
        "values": {"messages": [MODEL.model_dump(mode="json")]},
        "tasks": list(tasks),
        "checkpoint": {"thread_id": "1", "checkpoint_id": checkpoint_id},
        "metadata": {"step": 1},
        "created_at": "2026-01-01T00:00:00+00:00",
    }
    return checkpoint_of(state)


def sent_calls(checkpoint):
    """The id of the call of each `Send`; None where it is not known."""
    sends = checkpoint.checkpoint["channel_values"].get(TASKS, [])
    return [send.arg[0]["id"] if send.arg else None for send in sends]


def test_a_message_keeps_every_field():
    """Also those that `convert_to_messages` would move to `additional_kwargs`."""
    broken = MODEL.model_copy(
        update={
            "invalid_tool_calls": [
                {"name": "d", "args": "{", "id": "d", "error": None, "type": "invalid_tool_call"}
            ]
        }
    )
    for message in (MODEL, broken, HumanMessage("hi", id="h"), AIMessageChunk("x", id="x")):
        assert with_messages([message.model_dump(mode="json")]) == [message]
    assert with_messages([{"type": "remove", "id": "h", "content": ""}]) == [RemoveMessage(id="h")]


@pytest.mark.parametrize(
    "value",
    [
        7,
        None,
        {"type": "text", "text": "x"},
        {"type": "ai", "id": 3},
        {"type": ["ai"], "id": 3},
        {"type": "human", "id": "h", "content": 7},
    ],
)
def test_what_is_no_message_stays_as_it_is(value):
    """Also a value of the application that looks like a message."""
    assert with_messages([value]) == [value]


# --- one thread --------------------------------------------------------------------------


class Answers(LangGraphServer):
    """A server that shows one thread, and refuses to write."""

    def __init__(self, *messages):
        super().__init__(get_sync_client(url="http://127.0.0.1:9"))
        self.messages = [
            each if isinstance(each, dict) else each.model_dump(mode="json") for each in messages
        ]

    def get_tuple(self, config):
        """The only checkpoint."""
        del config
        state = {
            "values": {"messages": self.messages},
            "checkpoint": {"thread_id": "1", "checkpoint_id": "c"},
            "created_at": "2026-01-01T00:00:00+00:00",
        }
        return checkpoint_of(state)

    def list(self, *_, **__):
        """No older checkpoint."""
        return iter(())

    def request(self, path, *_, **__):
        """What the server answers."""
        assert path == "threads/1"
        yield from ()
        return {"thread_id": "1", "status": "idle", "metadata": {}}


def test_a_message_that_langchain_refuses():
    """The thread is unreadable, and the reason has the message."""
    server = Answers(HumanMessage("hi", id="x"), {"type": "human", "id": "h", "content": 7})
    (report,) = scan_threads(server, thread_ids=["1"])
    assert (report.status, "'content': 7" in report.reason) == ("unreadable", True)
    with pytest.raises(MessagesError, match="'content': 7"):
        repair_thread(server, thread())


def test_the_pending_writes_of_tasks():
    """Results, errors and interrupts."""
    several = task(3, result={"messages": {"$writes": [[result("a")], [result("b")]]}, "n": 1})
    writes = saved(finished(0, "a"), waiting(1), task(2, error="kaput"), several).pending_writes
    assert [(task, channel) for task, channel, _ in writes] == [
        ("t0", "messages"),
        ("t1", INTERRUPT),
        ("t2", ERROR),
        ("t3", "messages"),
        ("t3", "messages"),
        ("t3", "n"),
    ]
    assert writes[0][2][0].tool_call_id == "a"
    assert writes[1][2][0].id == "i1"
    [_, empty] = saved(task(0, result={}), task(1, result={})).pending_writes
    assert empty[0] == "t1"


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ((finished(0, "a"), waiting(1), finished(2, "c")), ["a", "b", "c"]),
        ((finished(0, "a"), waiting(1), waiting(2)), ["a", "b", "c"]),
        ((finished(0, "a"), waiting(1), task(2, error="no")), [None] * 3),
        ((finished(0, "b"), waiting(1), waiting(2)), ["b", "a", "c"]),
        ((finished(0, "x"), waiting(1), waiting(2)), [None] * 3),
        ((task(0, result={}), waiting(1), waiting(2)), [None] * 3),
        ((waiting(1), finished(0, "a"), finished(2, "c")), ["a", "b", "c"]),
        ((finished(0, "a"), waiting(1)), [None] * 2),
        (tuple(task(i, name="other") for i in range(3)), [None] * 3),
    ],
    ids=[
        "one left",
        "all wait",
        "two causes",
        "other order",
        "no call",
        "no result",
        "tasks not in order",
        "other count",
        "other node",
    ],
)
def test_the_call_of_a_send_is_derived_only_if_it_is_certain(tasks, expected):
    """A result names its call, and which of the others ended how must not matter."""
    assert sent_calls(saved(*tasks)) == expected


# --- writes ------------------------------------------------------------------------------


def applied(old, new):
    """What `add_messages` makes of the writes."""
    value = list(old)
    for write in writes_between(old, new):
        value = add_messages(value, write)
    return value


def test_only_what_has_to_move_is_sent():
    """Messages before the first one that changes are not."""
    history = [HumanMessage("go", id="h1"), MODEL, HumanMessage("never mind", id="h2")]
    patch = patch_messages(history)
    removals, written = writes_between(history, patch.messages)
    assert [message.id for message in removals] == ["h2"]
    assert [message.type for message in written] == ["tool", "tool", "tool", "human"]
    assert applied(history, patch.messages) == patch.messages
    edited = [history[0], MODEL.model_copy(update={"content": "hm"}), history[2]]
    removals, written = writes_between(history, edited)
    assert ([message.id for message in removals], written) == (["m", "h2"], edited[1:])
    assert applied(history, edited) == edited
    assert writes_between(history, history) == []


def test_a_chunk_is_sent_as_the_message_that_it_is():
    """LangChain reads no chunk from JSON."""
    [sent] = as_json([AIMessageChunk("hi", id="x")])
    assert sent == {"type": "ai", "content": "hi", "id": "x"}
    [sent] = as_json([MODEL])
    assert convert_to_messages([sent])[0].tool_calls == CALLS
    assert convert_to_messages([sent])[0].additional_kwargs.keys() == {"usage_metadata"}


OLDER, NEWER = "1ef4f797-8335-6428-8001-8a1503f9b875", "1ef4f797-8335-6429-8001-8a1503f9b875"


class Pruned(Answers):
    """The same with an older checkpoint: the superstep in which the tool's task has a result."""

    def get_tuple(self, config):
        """One of two checkpoints."""
        if config["configurable"].get("checkpoint_id") not in {None, NEWER}:
            return next(self.list())
        state = {
            "values": {"messages": self.messages},
            "checkpoint": {"thread_id": "1", "checkpoint_id": NEWER},
            "parent_checkpoint": {"thread_id": "1", "checkpoint_id": OLDER},
            "metadata": {"step": 2},
            "created_at": "2026-01-01T00:00:01+00:00",
        }
        return checkpoint_of(state)

    def list(self, *_, **__):
        """The older checkpoint; the id of its task is the one that LangGraph derives."""
        older = saved(finished(0, "a"), checkpoint_id=OLDER)
        [ran] = read_step(older, "messages", None)[0].tasks
        writes = [(ran.id, channel, value) for _, channel, value in older.pending_writes]
        yield older._replace(pending_writes=writes)


def test_a_final_placeholder_on_a_server_gives_way_to_a_result():
    """In the scan and in the dry run."""
    call = MODEL.model_copy(update={"tool_calls": CALLS[:1]})
    final = {(0, 0): Finding()}
    server = Pruned(*patch_messages([call, HumanMessage("hi", id="h")], evidence=final).messages)
    (report,) = scan_threads(server, thread_ids=["1"])
    assert report.status == "damaged"
    repair = repair_thread(server, thread(), dry_run=True)
    assert str(repair) == "'1': planned - recovered 'a' 'a'"
