"""Repair a thread of a LangGraph Server over its API, and undo it: no code of the graph is needed.

The API has no staging and no single write that fits, so a repair is these requests:

1. `update_state(None, as_node="__end__")`, until nothing is due. It applies what finished tasks
   wrote and drops the other tasks. Otherwise the next request would run them: tools, and a model.
2. One run with `command={"update": [...]}`. It runs no node. It removes the messages from the first
   new one on and adds them again, behind the new ones. The server refuses it if another run is in
   progress. Its writes wait beside the newest checkpoint: whoever reads the state sees them.
3. `update_state(None, as_node="__end__")` again, which writes the repaired history as a checkpoint.

So each repair adds the checkpoint of the last step and at least one before it. None of them has a
truncated history. The history is read back afterwards. `update_state` takes no metadata, so the run
has the mark of the repair: it names the checkpoint before the repair and the one that it wrote to.

The server reads messages from JSON: a class of its own becomes one of LangChain's, and a
message keeps its `invalid_tool_calls` in `additional_kwargs` only. So as little as possible is
sent, and the outcome is predicted before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import (
    BaseMessage,
    BaseMessageChunk,
    RemoveMessage,
    convert_to_messages,
    message_chunk_to_message,
)
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT
from langgraph.graph.message import add_messages

from langgraph_patch._sansio import IOGenerator, call_method
from langgraph_patch.errors import ThreadError
from langgraph_patch.history.pairing import read_history
from langgraph_patch.history.patch import Patch, patch_reading
from langgraph_patch.threads.keys import Key
from langgraph_patch.threads.plan import (
    KILLED,
    MOVED,
    RepairOptions,
    Stopped,
    check_due,
    plan_repair,
    with_committed,
)
from langgraph_patch.threads.server import LangGraphServer
from langgraph_patch.threads.server_client import BusyError
from langgraph_patch.threads.stored import (
    MARK,
    are_same,
    config_of,
    history_of,
    is_same,
    starts_tasks,
)

_SUPERSTEPS = 5
"""How often tasks are dropped: what a finished task wrote may start others."""

_BEFORE, _WRITTEN_TO = "langgraph_patch_before", "langgraph_patch_written_to"
"""In the metadata of the run of a repair: the checkpoint before it, and the one it wrote to."""


# --- repair ------------------------------------------------------------------------------


def repair_on_server(
    server: LangGraphServer, base: CheckpointTuple, options: RepairOptions
) -> IOGenerator[tuple[Patch, str | None]]:
    """Repair a thread as `repair_thread` documents it.

    Returns:
        The patch, and the id of the checkpoint that has it; None for a dry run.

    Raises:
        Stopped: If it is not repaired.
        StoreFailedError: If the server cannot be reached.
    """
    stored = yield from _history(server, base, options)
    patch = (yield from plan_repair(server, base.config, stored, options)).patch
    activity = None
    if starts_tasks(base):
        activity = yield from server.activity(base.config["configurable"]["thread_id"])
    check_due(base, patch, options, activity)
    if base.metadata.get("source") == "input":
        raise Stopped("refused", KILLED)
    _predicted(stored, patch)
    if options.dry_run:
        return patch, None
    try:
        yield from _check_unmoved(server, base)
        cleared = yield from _without_tasks(server, base)
        committed = yield from _history(server, cleared, options)
        if not are_same(committed, stored):
            rest = yield from plan_repair(server, cleared.config, committed, options)
            patch = with_committed(stored, committed, rest.patch)
        return patch, (yield from _write(server, base, cleared, committed, patch, options))
    except BusyError as error:
        raise Stopped("busy", f"{error}: wait until it has ended") from error


def _history(
    server: LangGraphServer, saved: CheckpointTuple, options: RepairOptions
) -> IOGenerator[list[BaseMessage]]:
    return (yield from history_of(server, saved, options.messages_key)) or []


def _write(  # noqa: PLR0917 - three states of one thread
    server: LangGraphServer,
    base: CheckpointTuple,
    cleared: CheckpointTuple,
    committed: Sequence[BaseMessage],
    patch: Patch,
    options: RepairOptions,
) -> IOGenerator[str]:
    """Write a repair to a thread without tasks, and read it back; the id of its checkpoint."""
    thread_id = cleared.config["configurable"]["thread_id"]
    thread = yield from server.request("threads.get", thread_id)
    known = thread["metadata"]
    yield from _check_unmoved(server, cleared)
    predicted = _predicted(committed, patch)
    writes = writes_between(committed, patch.messages)
    if not writes:
        return cleared.checkpoint["id"]
    mark = {_BEFORE: base.checkpoint["id"], _WRITTEN_TO: cleared.checkpoint["id"]}
    answer = yield from server.request(
        "runs.wait",
        thread_id,
        known.get("assistant_id") or known["graph_id"],
        command={"update": [[options.messages_key, as_json(write)] for write in writes]},
        metadata={**MARK, **mark},
        multitask_strategy="reject",
        raise_error=False,
    )
    failed = answer.get("__error__") if isinstance(answer, Mapping) else None
    if failed is None:
        saved = yield from _end_superstep(server, cleared)
        written = yield from _history(server, saved, options)
        if _is_as_predicted(written, predicted) and not starts_tasks(saved):
            return saved.checkpoint["id"]
    yield from _restore(server, cleared)
    restored = yield from _history(server, (yield from _newest(server, cleared)), options)
    problem = f"the graph refused it ({failed})" if failed else "the graph did not keep it"
    ending = "was restored" if are_same(restored, committed) else "could not be restored"
    raise Stopped("refused", f"{problem}; the state before {ending}")


def _predicted(old: Sequence[BaseMessage], patch: Patch) -> list[BaseMessage]:
    try:
        return predict(old, patch.messages)
    except ThreadError as error:
        raise Stopped("refused", str(error)) from error


# --- undo --------------------------------------------------------------------------------


def undo_on_server(server: LangGraphServer, newest: CheckpointTuple) -> IOGenerator[str]:
    """Undo the repair that wrote the newest checkpoint of a thread.

    Returns:
        The id of the checkpoint before the repair; "" if no repair wrote the newest one.

    Raises:
        ThreadError: If the thread waited for a human before the repair: the server does not copy
            the pause. Or if the checkpoint before the repair is gone.
    """
    thread_id = newest.config["configurable"]["thread_id"]
    runs = yield from server.request("runs.list", thread_id, limit=1)
    mark = (runs[0].get("metadata") or {}) if runs else {}
    parent = ((newest.parent_config or {}).get("configurable") or {}).get("checkpoint_id")
    is_marked = all(mark.get(key) == value for key, value in MARK.items())
    before = mark.get(_BEFORE)
    if (
        not is_marked
        or not isinstance(before, str)
        or parent is None
        or parent != mark.get(_WRITTEN_TO)
        or newest.metadata.get("source") != "update"
    ):
        return ""
    exact = {**newest.config["configurable"], "checkpoint_id": before}
    saved = yield from call_method(server, "get_tuple", RunnableConfig(configurable=exact))
    if saved is None:
        raise ThreadError(f"Checkpoint {before!r}, from before the repair, is not stored any more.")
    written = {channel for _, channel, _ in saved.pending_writes or ()}
    if INTERRUPT in written:
        raise ThreadError(
            f"Thread {thread_id!r} waited for a human before its repair, and LangGraph Server "
            f"cannot make that checkpoint the newest again: answer it with a run with "
            f"checkpoint_id={before!r}."
        )
    if written <= {ERROR}:
        yield from _restore(server, saved)
    else:  # a copy would lose what finished tasks wrote, and run them again: so it is applied
        yield from _without_tasks(server, saved, before)
    return before


# --- requests ----------------------------------------------------------------------------


def _restore(server: LangGraphServer, saved: CheckpointTuple) -> IOGenerator[None]:
    """Make a copy of a checkpoint the newest one."""
    names = saved.config["configurable"]
    yield from server.request(
        "threads.update_state",
        names["thread_id"],
        None,
        as_node="__copy__",
        checkpoint_id=names["checkpoint_id"],
    )


def _without_tasks(
    server: LangGraphServer, base: CheckpointTuple, checkpoint_id: str | None = None
) -> IOGenerator[CheckpointTuple]:
    """Apply what finished tasks wrote, drop the other tasks, and return the new checkpoint.

    Args:
        server: The server.
        base: A checkpoint of the thread.
        checkpoint_id: The checkpoint to begin with. Default: the newest.

    Raises:
        Stopped: If the graph refuses that, or starts new tasks again and again.
    """
    for _ in range(_SUPERSTEPS):
        try:
            saved = yield from _end_superstep(server, base, checkpoint_id)
        except BusyError:
            raise
        except ThreadError as error:
            raise Stopped("refused", str(error)) from error
        checkpoint_id = None
        if not starts_tasks(saved):
            return saved
    raise Stopped("refused", "its graph starts new tasks whenever tasks are dropped")


def _end_superstep(
    server: LangGraphServer, base: CheckpointTuple, checkpoint_id: str | None = None
) -> IOGenerator[CheckpointTuple]:
    """Write a checkpoint in which the tasks of the superstep have ended, and return it."""
    thread_id = base.config["configurable"]["thread_id"]
    yield from server.request(
        "threads.update_state", thread_id, None, as_node="__end__", checkpoint_id=checkpoint_id
    )
    return (yield from _newest(server, base))


def _newest(server: LangGraphServer, base: CheckpointTuple) -> IOGenerator[CheckpointTuple]:
    """The newest checkpoint of the thread of `base`.

    Raises:
        ThreadError: If the thread was deleted.
    """
    thread_id = base.config["configurable"]["thread_id"]
    saved: CheckpointTuple | None = yield from call_method(
        server, "get_tuple", config_of(Key(thread_id, ""))
    )
    if saved is None:
        raise ThreadError(f"Thread {thread_id!r} was deleted meanwhile.")
    return saved


def _check_unmoved(server: LangGraphServer, saved: CheckpointTuple) -> IOGenerator[None]:
    """Stop if a checkpoint is not the newest any more."""
    if (yield from _newest(server, saved)).checkpoint["id"] != saved.checkpoint["id"]:
        raise Stopped("moved", MOVED)


# --- what is sent ------------------------------------------------------------------------


def writes_between(
    old: Sequence[BaseMessage], new: Sequence[BaseMessage]
) -> list[list[BaseMessage]]:
    """The writes that turn one history into another, for a state with `add_messages`.

    Messages up to the first new one stay where they are. Those that the repair edits are written
    with their old id, which replaces them in place.
    """
    start = 0
    while start < min(len(old), len(new)) and old[start].id == new[start].id:
        start += 1
    removals: list[BaseMessage] = [RemoveMessage(id=str(message.id)) for message in old[start:]]
    pairs = zip(old[:start], new[:start], strict=True)
    edited = [after for before, after in pairs if not is_same(before, after)]
    return [write for write in (removals, [*edited, *new[start:]]) if write]


def as_json(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """Messages as LangChain reads them from JSON, without fields that have no value."""
    found = []
    for message in messages:
        plain = (
            message_chunk_to_message(message) if isinstance(message, BaseMessageChunk) else message
        )
        dumped = plain.model_dump(mode="json")
        kept = {key: value for key, value in dumped.items() if value not in (None, [], {}, "")}
        found.append({**kept, "type": plain.type, "content": dumped["content"]})
    return found


def predict(old: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The history that the server will have after these writes.

    Raises:
        ThreadError: If it would not be the repaired one.
    """
    if any(message.id is None for message in old):
        raise ThreadError("a message of it has no id")
    value: Any = list(old)
    try:
        for write in writes_between(old, new):
            written: Any = convert_to_messages(as_json(write))
            value = add_messages(value, written)
    except Exception as error:  # LangChain's constructors do not expect every value
        raise ThreadError(f"a message cannot be sent as JSON: {error}") from error
    predicted: list[BaseMessage] = value
    if not _has_order_of(predicted, new) or _is_damaged(predicted):
        raise ThreadError(
            "what makes a call of it invalid cannot be sent as JSON: repair it with the graph and "
            "its checkpointer",
        )
    return predicted


def _has_order_of(some: Sequence[BaseMessage], others: Sequence[BaseMessage]) -> bool:
    return [m.id for m in some if m.id] == [m.id for m in others if m.id] and len(some) == len(
        others
    )


def _is_as_predicted(written: Sequence[BaseMessage], predicted: Sequence[BaseMessage]) -> bool:
    """Whether the server keeps the repair: what it made of each field is its own affair."""
    return (
        len(written) == len(predicted)
        and [(m.id, m.type, m.content) for m in written]
        == [(m.id, m.type, m.content) for m in predicted]
        and not _is_damaged(list(written))
    )


def _is_damaged(messages: list[BaseMessage]) -> bool:
    """Whether a history has defects."""
    return bool(patch_reading(read_history(messages)))
