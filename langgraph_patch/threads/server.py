"""LangGraph Server: its threads, read over its API as those of a checkpointer are read.

`LangGraphServer` is a checkpointer that is only read, through the client of `langgraph_sdk`. So a
scan, and the search for recorded results, need no code of their own.

The API has the state of each checkpoint and, of each task of the superstep that followed it, the
path, the result, the error and the interrupts. From these, `checkpoint_of` makes the checkpoint
that a checkpointer would return. The API hides:

- the payload of a `Send`. `_sends` derives it where only one reading is possible;
- the answers to interrupts. The list of runs has them;
- the versions of channels;
- the checkpoints of a graph that a tool runs.

A server is not trusted: each answer must be about the thread that was asked for, and an answer
that was not expected is an error in words. No error repeats a URL, which may hold a password.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from operator import itemgetter
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
from langchain_core.messages import ToolMessage, messages_from_dict
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS
from langgraph.types import Interrupt, Send
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient

from langgraph_patch._langgraph_storage import (
    NEWEST_FORMAT,
    NO_TASK,
    ROOT_CHANNEL,
    is_reserved,
    send_index,
    trigger_channel,
)
from langgraph_patch.errors import OptionError, StoreError, ThreadError, brief, quoted
from langgraph_patch.evidence.address import Address
from langgraph_patch.graph.state import listed, open_calls

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

    Pass it, or the client alone, to `scan_threads`.

    Args:
        client: What `langgraph_sdk.get_sync_client` returned.
        metadata: Scan only threads whose metadata contains these values. Default: all threads.
        status: Scan only threads with this status of the server: `"idle"`, `"busy"`,
            `"interrupted"` or `"error"`. A thread that died of its history has `"error"`.
            Default: all threads.

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
        client: SyncLangGraphClient,
        *,
        metadata: Mapping[str, Any] | None = None,
        status: str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(client, SyncLangGraphClient):
            raise OptionError(
                f"{quoted(client)} is a {type(client).__name__}: expected a synchronous client of "
                f"a LangGraph Server, from langgraph_sdk.get_sync_client."
            )
        self.client = client
        filters = {"metadata": metadata, "status": status}
        self.filters: dict[str, Any] = {key: value for key, value in filters.items() if value}

    # --- as a checkpointer ---------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that `config` names, by default the newest; None if none."""
        return next(self.list(config, limit=1), None)

    def list(self, config: RunnableConfig | None, **options: Any) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints of one namespace of a thread, newest first.

        Args:
            config: The thread and the namespace; with a `checkpoint_id`, only that checkpoint.
            options: `before`, a checkpoint, and `limit`, as usual.

        Raises:
            StoreError: If the server fails.
            ThreadError: If it cannot read this thread, or answers for another one.
        """
        address = Address.of(config or {})
        before, limit = options.get("before"), options.get("limit") or _ALL
        end = Address.of(before).checkpoint_id if before else None
        checkpoint: Any = {"checkpoint_ns": address.namespace}
        if address.checkpoint_id:
            checkpoint["checkpoint_id"] = address.checkpoint_id
        found = self._ask(
            self.client.threads.get_history,
            address.thread_id,
            limit=limit,
            checkpoint=checkpoint,
            before=before,
            read=partial(_tuples_of, address.thread_id),
        )
        # A server that answers another question must not keep a search from ending.
        found = [
            saved
            for saved in found
            if saved.checkpoint["id"] == (address.checkpoint_id or saved.checkpoint["id"])
            and (not end or saved.checkpoint["id"] < end)
        ]
        if any(map(asks, found)):
            # Only the list of runs shows answers. It does not show to which pause: an answer counts
            # for each pause before it, so that a call is `unknown` rather than said to be waiting.
            found = self._runs(
                address.thread_id, _PAGE, ["created_at", "kwargs"], partial(_with_answers, found)
            )
        yield from found

    # --- threads -------------------------------------------------------------------------

    def exists(self, thread_id: str) -> bool:
        """Whether the server has a thread.

        Only the request for the thread itself tells: a history may also be refused because the
        graph of the thread is gone.
        """
        try:
            return bool(self._thread(thread_id))
        except _NoThreadError:
            return False

    def thread_ids(self) -> Sequence[str]:
        """The ids of the threads that the filters choose, sorted.

        Raises:
            StoreError: If the pages do not fit together, have no end, or list fewer threads
                than the server counts: it is wrong, or threads were deleted meanwhile.
        """
        threads = self.client.threads
        count = self._ask(threads.count, **self.filters, read=int, fails=StoreError)
        found: set[str] = set()
        while len(found) <= 2 * min(count, _MOST_THREADS) + _PAGE:
            # Each page begins with the last thread of the one before. If it does not have it,
            # threads were deleted meanwhile, and others may have moved to a page that was read.
            page = self._ask(
                threads.search,
                **self.filters,
                select=["thread_id"],
                sort_by="thread_id",
                sort_order="asc",
                limit=_PAGE,
                offset=max(0, len(found) - 1),
                read=lambda found: {str(each["thread_id"]) for each in found},
                fails=StoreError,
            )
            if page <= found and len(found) >= count:
                return sorted(found)
            if page <= found or (found and not page & found):
                break
            found |= page
        raise StoreError(
            f"LangGraph Server listed {len(found)} of {count} threads, so some would be left out: "
            f"try again, or choose fewer threads with LangGraphServer(status=, metadata=)."
        )

    def activity(self, saved: CheckpointTuple) -> Activity | None:
        """Whether a run of a thread is in progress, or it waits for a human; None if neither.

        Args:
            saved: The newest checkpoint of the thread. A superstep follows it.
        """
        thread_id = Address.of(saved.config).thread_id
        if self._thread(thread_id)["status"] == "busy":
            return "running"
        if asks(saved):
            return "waiting"
        # The API hides the breakpoints of a graph. A run that stopped at one was successful.
        status = self._runs(thread_id, 1, ["status"], lambda runs: runs[0]["status"] if runs else 0)
        return "waiting" if status == "success" else None

    # --- requests ------------------------------------------------------------------------

    def _thread(self, thread_id: str) -> Any:
        def read(thread: Any) -> Any:
            _check_thread(thread["thread_id"], thread_id)
            return {"status": thread["status"]}

        return self._ask(self.client.threads.get, thread_id, read=read)

    def _runs(self, thread_id: str, limit: int, select: Any, read: Callable[[Any], Any]) -> Any:
        return self._ask(self.client.runs.list, thread_id, limit=limit, select=select, read=read)

    def _ask(
        self,
        request: Callable[..., Any],
        *args: Any,
        read: Callable[[Any], Any],
        fails: type[ThreadError] = ThreadError,
        **options: Any,
    ) -> Any:
        """Send a request, and again after a pause while the server refuses all requests.

        Args:
            request: A method of the client.
            args: Its arguments.
            read: Reads what is needed of the answer, which may be any JSON value.
            fails: The error if the server refuses this request only. Default: ThreadError.
            options: Its other arguments.
        """
        for pause in (*_PAUSES, None):
            refusal, problem = None, ""
            try:
                return read(request(*args, **options))
            except httpx.HTTPStatusError as error:  # every error status, as the SDK raises it
                refusal = error.response
                problem = _refusal(refusal, str(error))
            except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
                fails = StoreError
                problem = f"is it running, and is the URL right? ({_on_one_line(brief(error))})"
            except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
                problem = (
                    f"its answer is not the expected one ({_on_one_line(brief(error))}): is this "
                    f"the URL of a LangGraph Server, with https where it needs that?"
                )
            if refusal is None or pause is None or refusal.status_code not in _LATER:
                break
            named = refusal.headers.get("retry-after", "")
            time.sleep(min(float(named), _LONGEST_PAUSE) if named.isdecimal() else pause)
        # Outside of `except`: the context of the error may hold a URL.
        if refusal is not None and refusal.status_code in _OF_SERVER:
            fails = StoreError
        elif refusal is not None and refusal.status_code in _MAYBE_NO_THREAD:
            fails = _NoThreadError if fails is ThreadError else fails
        raise fails(f"LangGraph Server: {problem}")


_PAUSES = (1.0, 4.0, 16.0)
"""The seconds before a request is sent again, if the server does not name another number."""

_LONGEST_PAUSE = 30.0

_LATER = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
"""The server refuses all requests for a while."""

_OF_SERVER = (*_LATER, HTTPStatus.UNAUTHORIZED, HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT)
"""The statuses that every other request would get too."""

_MAYBE_NO_THREAD = (HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)


class _NoThreadError(ThreadError):
    """The server has no such thread, or refuses its id; or the graph that wrote it is gone."""


def _refusal(answer: httpx.Response, text: str) -> str:
    said = _on_one_line(f"{answer.status_code} {answer.reason_phrase}: {text}")
    if answer.status_code in _OF_SERVER:
        return (
            f"it refuses all requests: check its URL and LANGGRAPH_API_KEY, or try again later "
            f"({said})."
        )
    return f"it refused the request ({said})"


def _on_one_line(text: str) -> str:
    return re.sub(r"\S*(?:://|@)\S*", "(its URL)", " ".join(text[:500].split()))


def _check_thread(answered: object, thread_id: str) -> None:
    if answered != thread_id:
        raise ThreadError(
            f"LangGraph Server: it was asked for thread {thread_id!r} and answered for "
            f"{str(answered)[:100]!r}, so nothing of it was read"
        )


# --- checkpoints, as the API shows them --------------------------------------------------


def _tuples_of(thread_id: str, states: Any) -> Sequence[CheckpointTuple]:
    # A thread that never ran has a state without a checkpoint.
    states = [state for state in states if (state["checkpoint"] or {}).get("checkpoint_id")]
    for state in states:
        _check_thread(state["checkpoint"]["thread_id"], thread_id)
    return [*map(checkpoint_of, states)]


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
        config=Address.of({"configurable": _named(named)}).config,
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
        parent_config=Address.of({"configurable": _named(parent)}).config if parent else None,
        pending_writes=[write for task in tasks for write in _writes_of(task)],
    )


def _named(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    names = ("thread_id", "checkpoint_ns", "checkpoint_id")
    return {name: checkpoint[name] for name in names if name in checkpoint}


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
    if {*map(itemgetter("name"), in_order)} == {_TOOLS} and len(set(ends)) <= 1:
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

_SECONDS = 60.0
"""How long the server may say nothing."""


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
    named = {name: value for name, _, value in headers}
    with get_sync_client(url=url, headers=named, timeout=_SECONDS) as client:
        yield LangGraphServer(client)


def _names_a_place(url: str) -> bool:
    """Whether a URL has no user, and a port that can be read: a part of a password cannot."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return parts.username is None and port != 0
