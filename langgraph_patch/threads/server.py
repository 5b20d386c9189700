"""LangGraph Server: its threads, read over its API as those of a checkpointer are read.

`LangGraphServer` is a checkpointer that is only read. So a scan, and the search for recorded
results, need no code of their own. `server_repair` writes through the API.

The API has the state of each checkpoint and, of each task of the superstep that followed it, the
path, the result, the error and the interrupts. From these, `checkpoint_of` makes the checkpoint
that a checkpointer would return. The API hides:

- the payload of a `Send`. `_sends` derives it where only one reading is possible;
- the answers to interrupts. The list of runs has them;
- the versions of channels;
- the checkpoints of a graph that a tool runs.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from langchain_core.messages import ToolMessage, messages_from_dict
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, get_checkpoint_id
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS
from langgraph.types import Interrupt, Send
from langgraph_sdk import get_sync_client

from langgraph_patch._langgraph_storage import (
    NEWEST_FORMAT,
    NO_TASK,
    ROOT_CHANNEL,
    is_reserved,
    send_index,
    trigger_channel,
)
from langgraph_patch._sansio import IOGenerator, run_async, run_sync
from langgraph_patch.errors import OptionError
from langgraph_patch.graph.state import listed, open_calls
from langgraph_patch.threads.server_client import (
    NotFoundError,
    ServerClient,
    StoreFailedError,
    send,
)

Activity = Literal["running", "waiting"]
"""Why the calls of the last message may still get their results."""

_PAGE = 100
"""How many threads or runs are asked for at once."""

_ALL = 1000
"""How many checkpoints are asked for if the caller wants all."""

_MOST_THREADS = 1_000_000
"""How many threads are listed at most."""

_TOOLS = "tools"
"""LangGraph's name for the node that runs tools: each `Send` to it carries one call."""

_NO_WRITES = "__no_writes__"
"""The channel that LangGraph uses for a task that finished without a write."""

_SEVERAL = "$writes"
"""How the API shows a channel to which a task wrote more than once."""


class LangGraphServer(BaseCheckpointSaver[str]):
    """The threads of a LangGraph Server, as a checkpointer that is only read.

    Pass it, or the client alone, where `scan_threads` takes a checkpointer and where
    `repair_thread` and `undo_repair` take a graph. A synchronous client is for these functions,
    an asynchronous one for their asynchronous forms. The answers to their requests are limited in
    size (64 MiB) and time (a minute).

    Args:
        client: What `langgraph_sdk.get_sync_client` or `get_client` returned.
        metadata: Scan only threads whose metadata contains these values. Default: all threads.
        status: Scan only threads with this status: `"idle"`, `"busy"`, `"interrupted"` or
            `"error"`. A thread that died of its history has `"error"`. Default: all threads.

    Raises:
        OptionError: If `client` is not such a client.

    Examples:
        >>> from langgraph_sdk import get_sync_client
        >>> from langgraph_patch.threads import LangGraphServer
        >>> client = get_sync_client(url="http://127.0.0.1:2024")
        >>> failed = LangGraphServer(client, status="error")
        >>> # for report in scan_threads(failed): print(report)
    """

    def __init__(
        self,
        client: ServerClient,
        *,
        metadata: Mapping[str, Any] | None = None,
        status: str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(client, ServerClient):
            raise OptionError(
                f"{client!r:.200} is a {type(client).__name__}: expected a client of a LangGraph "
                f"Server, from langgraph_sdk.get_sync_client or get_client."
            )
        self.client = client
        filters = {"metadata": metadata, "status": status}
        self.filters = {key: value for key, value in filters.items() if value}

    # --- as a checkpointer ---------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that `config` names, by default the newest; None if none."""
        return next(self.list(config, limit=1), None)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the same as `get_tuple`."""
        found = [saved async for saved in self.alist(config, limit=1)]
        return found[0] if found else None

    def list(self, config: RunnableConfig | None, **options: Any) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints of a thread, newest first; `before` and `limit` as usual."""
        yield from run_sync(self._checkpoints(config or {}, **options))

    async def alist(
        self, config: RunnableConfig | None, **options: Any
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield the same as `list`."""
        for saved in await run_async(self._checkpoints(config or {}, **options)):
            yield saved

    # --- requests ------------------------------------------------------------------------

    def request(self, path: str, *args: Any, **options: Any) -> IOGenerator[Any]:
        """Send a request to a path of the API; `send` documents the arguments."""
        return (yield from send(self.client, path, *args, **options))

    def thread(self, thread_id: str) -> IOGenerator[Any]:
        """The thread without its state; None if the server has no such thread."""
        try:
            return (yield from self.request(path_of(thread_id)))
        except NotFoundError:
            return None

    def newest_run(self, thread_id: str, key: str) -> IOGenerator[Any]:
        """A field of the run of a thread that was made last; None if there is none."""
        path = path_of(thread_id, "runs?limit=1")
        return (yield from self.request(path, read=lambda found: found[0][key] if found else None))

    def activity(self, saved: CheckpointTuple) -> IOGenerator[Activity | None]:
        """Whether a run of a thread is in progress, or it waits for a human; None if neither.

        Args:
            saved: The newest checkpoint of the thread. A superstep follows it.
        """
        thread_id = saved.config["configurable"]["thread_id"]
        status = yield from self.request(path_of(thread_id), read=itemgetter("status"))
        if status == "busy":
            return "running"
        if asks(saved):
            return "waiting"
        # The API hides the breakpoints of a graph. A run that stopped at one was successful.
        status = yield from self.newest_run(thread_id, "status")
        return "waiting" if status == "success" else None

    # --- threads -------------------------------------------------------------------------

    def thread_ids(self, thread_id: str | None = None) -> IOGenerator[Sequence[str]]:
        """The ids of the threads that the filters choose, sorted.

        Args:
            thread_id: List this thread only, whether the filters choose it or not.

        Raises:
            StoreFailedError: If the pages do not fit together, have no end, or list fewer threads
                than the server counts: it is wrong, or threads were deleted meanwhile.
        """
        if thread_id is not None:
            return [] if (yield from self.thread(thread_id)) is None else [thread_id]
        count = yield from self.request("threads/count", self.filters, read=int)
        search = {**self.filters, "select": ["thread_id"], "limit": _PAGE}
        search |= {"sort_by": "thread_id", "sort_order": "asc"}
        found: set[str] = set()
        while len(found) <= 2 * min(count, _MOST_THREADS) + _PAGE:
            # Each page begins with the last thread of the one before. If it does not have it,
            # threads were deleted meanwhile, and others may have moved to a page that was read.
            page = yield from self.request(
                "threads/search",
                {**search, "offset": max(0, len(found) - 1)},
                read=lambda threads: {str(each["thread_id"]) for each in threads},
            )
            if page <= found and len(found) >= count:
                return sorted(found)
            if page <= found or (found and not page & found):
                break
            found |= page
        raise StoreFailedError(
            f"LangGraph Server listed {len(found)} of {count} threads, so some would be left out: "
            f"try again, or choose fewer threads with status= or metadata=."
        )

    # --- checkpoints ---------------------------------------------------------------------

    def _checkpoints(
        self, config: RunnableConfig, before: RunnableConfig | None = None, limit: int | None = None
    ) -> IOGenerator[Sequence[CheckpointTuple]]:
        """The checkpoints of one namespace, newest first; with a `checkpoint_id`, only that one."""
        thread_id, exact = str(config["configurable"]["thread_id"]), get_checkpoint_id(config)
        end = get_checkpoint_id(before) if before else None
        checkpoint = {"checkpoint_ns": config["configurable"].get("checkpoint_ns", "")}
        body: dict[str, Any] = {"checkpoint": checkpoint, "limit": limit or _ALL}
        if exact:
            checkpoint["checkpoint_id"] = exact
        if before:
            body["before"] = before
        try:
            read = yield from self.request(path_of(thread_id, "history"), body, read=_tuples_of)
        except NotFoundError:
            return []
        # A server that answers another question must not keep a search from ending.
        found: Sequence[CheckpointTuple] = [
            saved
            for saved in read
            if saved.checkpoint["id"] == (exact or saved.checkpoint["id"])
            and (not end or saved.checkpoint["id"] < end)
        ]
        if any(map(asks, found)):
            # Only the list of runs shows answers. It does not show to which pause: an answer counts
            # for each pause before it, so that a call is `unknown` rather than said to be waiting.
            found = yield from self.request(
                path_of(thread_id, f"runs?limit={_PAGE}&select=created_at&select=kwargs"),
                read=partial(_with_answers, found),
            )
        return found


def path_of(thread_id: str, part: str = "") -> str:
    """The path of a thread in the API, or of a part of it."""
    return f"threads/{quote(thread_id, safe='')}/{part}".rstrip("/")


def server_of(target: Any) -> LangGraphServer | None:
    """The LangGraph Server that `target` is, or that it is a client of; otherwise None."""
    if isinstance(target, LangGraphServer):
        return target
    return LangGraphServer(target) if isinstance(target, ServerClient) else None


# --- checkpoints, as the API shows them --------------------------------------------------


def _tuples_of(states: Any) -> Sequence[CheckpointTuple]:
    # A thread that never ran has a state without a checkpoint.
    return [checkpoint_of(s) for s in states if (s["checkpoint"] or {}).get("checkpoint_id")]


def asks(saved: CheckpointTuple) -> bool:
    """Whether a task after a checkpoint asked a human."""
    return any(channel == INTERRUPT for _, channel, _ in saved.pending_writes or ())


def _with_answers(found: Sequence[CheckpointTuple], runs: Any) -> Sequence[CheckpointTuple]:
    hidden = runs[_PAGE - 1 :]  # any run that is older than the oldest one here may be an answer
    answers = [r for r in runs if (r["kwargs"].get("command") or {}).get("resume") is not None]
    times = [datetime.fromisoformat(run["created_at"]) for run in [*answers, *hidden]]
    newest = max(times, default=datetime.min.replace(tzinfo=UTC))
    return [
        saved._replace(pending_writes=[*(saved.pending_writes or ()), (NO_TASK, RESUME, None)])
        if asks(saved) and datetime.fromisoformat(saved.checkpoint["ts"]) < newest
        else saved
        for saved in found
    ]


def checkpoint_of(state: Mapping[str, Any]) -> CheckpointTuple:
    """The checkpoint and its pending writes, as a checkpointer would return them.

    Args:
        state: A `ThreadState` of the API.

    Examples:
        >>> from langgraph_patch.threads.server import checkpoint_of
        >>> state = {"values": {"messages": [{"type": "human", "content": "hi", "id": "h1"}]},
        ...          "checkpoint": {"thread_id": "1", "checkpoint_id": "c1"}, "tasks": [],
        ...          "metadata": {"step": 3}, "created_at": "2026-01-01T00:00:00+00:00"}
        >>> checkpoint_of(state).checkpoint["channel_values"]["messages"][0].content
        'hi'
    """
    tasks: Sequence[Mapping[str, Any]] = state.get("tasks") or ()
    values = _values_of(state.get("values"))
    triggers = {
        trigger_channel(task["name"]): None
        for task in tasks
        if send_index(task["path"]) is None and not is_reserved(task["name"])
    }
    sends = _sends(tasks, values)
    metadata: Any = state.get("metadata") or {}
    named, parent = state["checkpoint"], state.get("parent_checkpoint")
    return CheckpointTuple(
        config=_config_of(named),
        checkpoint={
            "v": NEWEST_FORMAT,
            "id": named["checkpoint_id"],
            "ts": str(state["created_at"]),
            "channel_values": {**values, **triggers, **({TASKS: sends} if sends else {})},
            # The API hides the versions. These differ, so that values are compared instead.
            "channel_versions": dict.fromkeys([*values, *triggers], named["checkpoint_id"]),
            "versions_seen": {},
            "updated_channels": None,
        },
        metadata=metadata,
        parent_config=_config_of(parent) if parent else None,
        pending_writes=[write for task in tasks for write in _writes_of(task)],
    )


def _config_of(checkpoint: Mapping[str, Any]) -> RunnableConfig:
    names = {"checkpoint_ns": "", **checkpoint}
    keys = ("thread_id", "checkpoint_ns", "checkpoint_id")
    return {"configurable": {key: names[key] for key in keys}}


# --- its values ------------------------------------------------------------------------------


def _values_of(written: Any) -> dict[str, Any]:
    """What a state, or the result of a task, has in each channel."""
    if written is None:
        return {}
    channels = written if isinstance(written, Mapping) else {ROOT_CHANNEL: written}
    return {key: with_messages(value) for key, value in channels.items()}


def with_messages(value: Any) -> Any:
    """A JSON value in which each message, alone or in a list, is a message object.

    LangChain's `convert_to_messages` would move `usage_metadata` and `invalid_tool_calls` to
    `additional_kwargs`. This keeps every field. What LangChain refuses stays as it is.
    """
    if isinstance(value, list):
        return [with_messages(item) for item in value]
    if isinstance(value, Mapping) and "type" in value and "id" in value:
        with suppress(ValueError, TypeError, KeyError, AttributeError):  # it does not check all
            return messages_from_dict([{"type": value["type"], "data": dict(value)}])[0]
    return value


# --- its tasks -------------------------------------------------------------------------------


def _writes_of(task: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """The pending writes of a task."""
    task_id: str = task["id"]
    if task.get("interrupts"):
        raised = [Interrupt(value=each.get("value"), id=each["id"]) for each in task["interrupts"]]
        yield task_id, INTERRUPT, raised
    if task.get("error") is not None:
        yield task_id, ERROR, str(task["error"])
    result = task.get("result")
    for channel, value in _values_of(result).items():
        several = isinstance(value, Mapping) and value.keys() == {_SEVERAL}
        for each in value[_SEVERAL] if several else [value]:
            yield task_id, channel, with_messages(each)
    if result is not None and not result:
        yield task_id, _NO_WRITES, None


def _sends(tasks: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> list[Send]:
    """The `Send`s of the superstep, each with its call if it is certain which one it carried.

    Both agents of LangGraph send each open call of the last message to the node `tools`. A result
    names its call. If the other tasks have all ended alike, it does not matter which has which of
    the other calls.
    """
    sent = {index: task for task in tasks if (index := send_index(task["path"])) is not None}
    in_order = [sent[index] for index in sorted(sent)]
    results = [_results_of(task) for task in in_order]
    ends = [
        (bool(task.get("interrupts")), task.get("error"), task.get("result") is None)
        for task, ids in zip(in_order, results, strict=True)
        if not ids
    ]
    if {task["name"] for task in in_order} == {_TOOLS} and len(set(ends)) <= 1:
        for history in filter(None, map(listed, values.values())):
            calls = {call["id"]: call for call in open_calls(history).values()}
            rest = [call for call_id, call in calls.items() if [call_id] not in results]
            if len(calls) == len(in_order) and len(rest) == len(ends):
                return [Send(_TOOLS, [calls[ids[0]] if ids else rest.pop(0)]) for ids in results]
    return [Send(task["name"], None) for task in in_order]


def _results_of(task: Mapping[str, Any]) -> list[str]:
    """The id of the call of each result that a task wrote."""
    written = [value for _, _, value in _writes_of(task)]
    messages = [each for value in written for each in listed(value)]
    return [message.tool_call_id for message in messages if isinstance(message, ToolMessage)]


# --- a connection ------------------------------------------------------------------------


_HEADERS = "LANGGRAPH_HEADERS"
"""The environment variable with further headers."""


@contextmanager
def open_server(url: str) -> Iterator[LangGraphServer]:
    """Connect to a LangGraph Server.

    The SDK takes the API key from `LANGGRAPH_API_KEY`, `LANGSMITH_API_KEY` or
    `LANGCHAIN_API_KEY`. Further headers come from `LANGGRAPH_HEADERS`, as lines of `Name: value`.

    Args:
        url: Its URL, without user and password.

    Raises:
        OptionError: If the URL holds a user or has no valid port, or a header is not
            `Name: value`.
    """
    if not _names_a_place(url):
        raise OptionError(
            f"The URL holds a user or a password, or its port is no number: put the header that "
            f"your server expects into the environment variable {_HEADERS}."
        )
    lines = [line for line in os.environ.get(_HEADERS, "").splitlines() if line.strip()]
    headers = [tuple(map(str.strip, line.partition(":"))) for line in lines]
    if not all(map(all, headers)):
        raise OptionError(f"A line of {_HEADERS} is not a header: expected `Name: value`.")
    with get_sync_client(url=url, headers={name: value for name, _, value in headers}) as client:
        yield LangGraphServer(client)


def _names_a_place(url: str) -> bool:
    """Whether a URL has no user, and a port that can be read: a part of a password cannot."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return parts.username is None and port != 0
