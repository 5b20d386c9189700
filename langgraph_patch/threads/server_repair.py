"""Repair a thread of a LangGraph Server over its API, and undo it: no code of the graph is needed.

The API has no staging and no single write that fits, so a repair is these requests:

1. `update_state(None, as_node="__end__")`, until nothing is due. It applies what finished tasks
   wrote and drops the other tasks. Otherwise the next request would run them: tools, and a model.
2. One run with `command={"update": [...]}`. It runs no node. It removes the messages from the first
   new one on and adds them again, behind the new ones. The server refuses it if another run is in
   progress. Its writes wait beside the newest checkpoint: whoever reads the state sees them.
3. `update_state(None, as_node="__end__")` again, which writes the repaired history as a checkpoint.

So each repair adds the checkpoint of the last step and at least one before it. None of them has a
truncated history. The history is read back afterwards; if it is not the repaired one, a copy of the
checkpoint before the run becomes the newest. `update_state` takes no metadata, so the run has the
mark of the repair: it names the checkpoint before the repair and the one that it wrote to.

The server reads messages from JSON: a class of its own becomes one of LangChain's, and a
message keeps its `invalid_tool_calls` in `additional_kwargs` only. So as little as possible is
sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from langchain_core.messages import BaseMessage, RemoveMessage, message_chunk_to_message
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_patch._sansio import IOGenerator, call_method
from langgraph_patch.errors import ThreadError
from langgraph_patch.evidence.tasks import configured_id
from langgraph_patch.history.json_values import json_value
from langgraph_patch.history.patch import Patch, validate_messages
from langgraph_patch.threads.plan import (
    KILLED,
    MOVED,
    RepairOptions,
    Stopped,
    check_due,
    plan_repair,
    with_committed,
)
from langgraph_patch.threads.server import LangGraphServer, asks, path_of
from langgraph_patch.threads.server_client import StoreFailedError
from langgraph_patch.threads.stored import MARK, are_same, history_of, is_same, starts_tasks

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
    thread = _Thread(server, base.config["configurable"]["thread_id"], options.messages_key)
    stored = yield from thread.history(base)
    patch = (yield from plan_repair(server, base.config, stored, options)).patch
    activity = (yield from server.activity(base)) if starts_tasks(base) else None
    check_due(base, patch, options, activity)
    if base.metadata.get("source") == "input":
        raise Stopped("refused", KILLED)
    if options.dry_run:
        return patch, None
    try:
        yield from thread.check_newest(base)
        cleared = yield from thread.without_tasks()
        committed = yield from thread.history(cleared)
        if not are_same(committed, stored):
            rest = yield from plan_repair(server, cleared.config, committed, options)
            patch = with_committed(patch, rest.patch)
        mark = {_BEFORE: base.checkpoint["id"], _WRITTEN_TO: cleared.checkpoint["id"]}
        if writes := writes_between(committed, patch.messages):
            cleared = yield from _write(thread, cleared, writes, mark, patch.messages)
    except StoreFailedError:
        raise
    except ThreadError as error:
        raise Stopped("refused", str(error)) from error
    return patch, cleared.checkpoint["id"]


def _write(
    thread: _Thread,
    cleared: CheckpointTuple,
    writes: Sequence[Sequence[BaseMessage]],
    mark: Mapping[str, str],
    repaired: Sequence[BaseMessage],
) -> IOGenerator[CheckpointTuple]:
    """Write a repair to a thread without tasks, and read it back; the checkpoint that has it."""
    assistant = yield from thread.server.request(
        path_of(thread.id),
        read=lambda it: it["metadata"].get("assistant_id") or it["metadata"]["graph_id"],
    )
    yield from thread.check_newest(cleared)
    run = {
        "assistant_id": assistant,
        "command": {"update": [[thread.messages_key, as_json(write)] for write in writes]},
        "metadata": {**MARK, **mark},
        "multitask_strategy": "reject",
        "on_disconnect": "cancel",
    }
    answer = yield from thread.server.request(path_of(thread.id, "runs/wait"), run)
    failed = answer.get("__error__") if isinstance(answer, Mapping) else None
    if failed is None:
        saved = yield from thread.update("__end__")
        written = yield from thread.history(saved)
        if _is_kept(written, repaired) and not starts_tasks(saved):
            return saved
    copy = yield from thread.update("__copy__", cleared.checkpoint["id"])
    restored, before = (yield from thread.history(copy)), (yield from thread.history(cleared))
    problem = f"the graph refused it ({failed})" if failed else "the graph did not keep it"
    ending = "was restored" if are_same(restored, before) else "could not be restored"
    raise Stopped("refused", f"{problem}; the state before {ending}")


# --- undo --------------------------------------------------------------------------------


def undo_on_server(server: LangGraphServer, newest: CheckpointTuple) -> IOGenerator[str]:
    """Undo the repair that wrote the newest checkpoint of a thread.

    What finished tasks had written before the repair is applied, and no task is due: a copy of that
    checkpoint would lose these writes, and run the tasks again.

    Returns:
        The id of the checkpoint before the repair; "" if no repair wrote the newest one.

    Raises:
        ThreadError: If the thread waited for a human before the repair: the server does not copy
            the pause. Or if the checkpoint before the repair is gone.
    """
    thread = _Thread(server, newest.config["configurable"]["thread_id"])
    mark = yield from server.newest_run(thread.id, "metadata")
    parent = configured_id(newest.parent_config)
    if not isinstance(mark, Mapping) or parent is None or parent != mark.get(_WRITTEN_TO):
        return ""
    before = str(mark.get(_BEFORE))
    if asks((yield from thread.checkpoint(before))):
        raise ThreadError(
            f"Thread {thread.id!r} waited for a human before its repair, and LangGraph Server "
            f"cannot make that checkpoint the newest again: answer it with a run with "
            f"checkpoint_id={before!r}."
        )
    yield from thread.without_tasks(before)
    return before


# --- requests ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Thread:
    """A thread of a server.

    Attributes:
        server: The server.
        id: The id of the thread.
        messages_key: The state key of the history.
    """

    server: LangGraphServer
    id: str
    messages_key: str = ""

    def history(self, saved: CheckpointTuple) -> IOGenerator[list[BaseMessage]]:
        """The history of a checkpoint."""
        return (yield from history_of(self.server, saved, self.messages_key)) or []

    def checkpoint(self, checkpoint_id: str | None = None) -> IOGenerator[CheckpointTuple]:
        """A checkpoint, by default the newest.

        Raises:
            ThreadError: If it was deleted.
        """
        names = {"thread_id": self.id, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}
        saved: CheckpointTuple | None = yield from call_method(
            self.server, "get_tuple", {"configurable": names}
        )
        if saved is None:
            raise ThreadError(f"Thread {self.id!r}, or a checkpoint of it, was deleted meanwhile.")
        return saved

    def check_newest(self, saved: CheckpointTuple) -> IOGenerator[None]:
        """Stop if a checkpoint is not the newest any more."""
        if (yield from self.checkpoint()).checkpoint["id"] != saved.checkpoint["id"]:
            raise Stopped("moved", MOVED)

    def update(
        self, as_node: str, checkpoint_id: str | None = None
    ) -> IOGenerator[CheckpointTuple]:
        """Make a checkpoint from one, by default the newest, without new values, and return it."""
        begin = {"checkpoint": {"checkpoint_id": checkpoint_id}} if checkpoint_id else {}
        body = {"values": None, "as_node": as_node, **begin}
        yield from self.server.request(path_of(self.id, "state"), body)
        return (yield from self.checkpoint())

    def without_tasks(self, checkpoint_id: str | None = None) -> IOGenerator[CheckpointTuple]:
        """Apply what finished tasks wrote, drop the other tasks, and return the new checkpoint.

        Args:
            checkpoint_id: The checkpoint to begin with. Default: the newest.

        Raises:
            ThreadError: If the graph refuses that, or starts new tasks again and again.
        """
        for _ in range(_SUPERSTEPS):
            saved = yield from self.update("__end__", checkpoint_id)
            if not starts_tasks(saved):
                return saved
            checkpoint_id = None
        raise ThreadError("its graph starts new tasks whenever tasks are dropped")


# --- what is sent ------------------------------------------------------------------------


def writes_between(
    old: Sequence[BaseMessage], new: Sequence[BaseMessage]
) -> list[list[BaseMessage]]:
    """The writes that turn one history into another, for a state with `add_messages`.

    Messages before the first one that changes stay where they are.
    """
    start = len([*takewhile(bool, map(is_same, old, new))])
    removals: list[BaseMessage] = [RemoveMessage(id=str(message.id)) for message in old[start:]]
    return [write for write in (removals, list(new[start:])) if write]


def as_json(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """Messages as LangChain reads them from JSON, without fields that have no value."""
    return [
        {
            **json_value(message.model_dump(exclude_defaults=True, warnings=False)),
            "type": message.type,
        }
        for message in map(message_chunk_to_message, messages)  # those that are no chunks stay
    ]


def _is_kept(written: Sequence[BaseMessage], repaired: Sequence[BaseMessage]) -> bool:
    """Whether a history is the repaired one: what the server made of a field is its own affair."""
    found, expected = ([(m.id, m.content or "") for m in each] for each in (written, repaired))
    return found == expected and not validate_messages(list(written))
