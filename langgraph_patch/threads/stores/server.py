"""LangGraph Server: its threads, read over its API as those of a checkpointer are read.

`LangGraphServer` is a checkpointer that is only read, through the client of `langgraph_sdk`. So a
scan, and the search for recorded results, need no code of their own.

The API has the state of each checkpoint and, of each task of the superstep that followed it, the
path, the result, the error and the interrupts. `checkpoint_of` makes of these the checkpoint that a
checkpointer would return. The API hides the versions of channels, the payload of a `Send`, answers
to interrupts, and the checkpoints of a graph that a tool runs. What only these would show of a call
is `unknown`.

A server is not trusted: each answer must be about the thread that was asked for, and an answer
that was not expected is an error in words. No error repeats a URL, which may hold a password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
from langchain_core.messages import messages_from_dict
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS
from langgraph.types import Interrupt, Send
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.address import Address
from langgraph_patch._text import brief, cut, short
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.threads.stores.other import Store

_PAGE = 100
"""How many threads are asked for at once."""

_ALL = 1000
"""How many checkpoints are asked for if the caller wants all."""


# --- the store ---------------------------------------------------------------------------

READ_ONLY = (
    "The threads of a LangGraph Server are read over its API, and not repaired: a repair "
    "would be a run of the graph that races with others. Deploy the graph with "
    "with_patching, and the next message of a thread repairs it; or name the database of "
    "the server."
)


class _ServerError(ThreadError):
    """The server itself failed, not the reading of one thread."""


class ServerStore(Store):
    """The threads of a LangGraph Server."""

    def list_addresses(self, saver: Any, thread_ids: Sequence[str] | None) -> Iterator[Address]:
        """The roots of some threads, or of all; its report tells if there is no such thread."""
        return map(Address, saver.thread_ids() if thread_ids is None else thread_ids)

    def is_failure(self, chain: Sequence[BaseException]) -> bool | None:
        """Whether every other request would fail too."""
        return True if any(isinstance(each, _ServerError) for each in chain) else None


# --- opening -----------------------------------------------------------------------------


_HEADERS = "LANGGRAPH_HEADERS"
"""The environment variable with further headers."""

_SERVER_SECONDS = 60.0
"""How long the server may say nothing."""


@contextmanager
def open_saver(target: str, *_: object, **__: object) -> Iterator[LangGraphServer]:
    """Connect to a LangGraph Server.

    The SDK takes the API key from `LANGGRAPH_API_KEY`, `LANGSMITH_API_KEY` or
    `LANGCHAIN_API_KEY`. Further headers come from `LANGGRAPH_HEADERS`, as lines of `Name: value`.

    Args:
        target: Its URL, without user and password.

    Raises:
        OptionError: If the URL holds a user or has no valid port, or a header is not
            `Name: value`.
    """
    if not _is_plain_url(target):
        raise OptionError(
            f"The URL holds a user or a password, or its port is no number: put the header that "
            f"your server expects into the environment variable {_HEADERS}."
        )
    lines = [line for line in os.environ.get(_HEADERS, "").splitlines() if line.strip()]
    headers = [tuple(map(str.strip, line.partition(":"))) for line in lines]
    if not all(map(all, headers)):
        raise OptionError(f"A line of {_HEADERS} is not a header: expected `Name: value`.")
    named = {name: value for name, _, value in headers}
    with get_sync_client(url=target, headers=named, timeout=_SERVER_SECONDS) as client:
        yield LangGraphServer(client)


def _is_plain_url(url: str) -> bool:
    """Whether a URL has no user, and a port that can be read: a part of a password cannot."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return parts.username is None and port != 0


# --- its threads, as those of a checkpointer ----------------------------------------------


class LangGraphServer(BaseCheckpointSaver[str]):
    """The threads of a LangGraph Server, as a checkpointer that is only read.

    Args:
        client: What `langgraph_sdk.get_sync_client` returned.
    """

    def __init__(self, client: SyncLangGraphClient) -> None:
        super().__init__()
        self.client = client

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
            ThreadError: If the server fails, cannot read this thread, or answers for another one.
        """
        address, before = Address.of(config or {}), options.get("before")
        end = Address.of(before).checkpoint_id if before else None
        checkpoint: Any = {"checkpoint_ns": address.namespace}
        if address.checkpoint_id:
            checkpoint["checkpoint_id"] = address.checkpoint_id
        checkpoints = self._ask(
            self.client.threads.get_history,
            address.thread_id,
            limit=options.get("limit") or _ALL,
            checkpoint=checkpoint,
            before=before,
            read=partial(_tuples_of, address.thread_id),
        )
        for saved in checkpoints:
            own = saved.checkpoint["id"]
            # A server that answers another question must not keep a search from ending.
            if own == (address.checkpoint_id or own) and (not end or own < end):
                yield saved

    # --- threads -------------------------------------------------------------------------

    def thread_ids(self) -> Sequence[str]:
        """The ids of all threads, sorted.

        Raises:
            ThreadError: If the pages list fewer threads than the server counts: it is wrong, or
                threads were deleted meanwhile, which may hide others.
        """
        count = self._ask(self.client.threads.count, read=int)
        ids = set[str]()
        while len(ids) < count:
            page = self._ask(
                self.client.threads.search,
                select=["thread_id"],
                sort_by="thread_id",
                sort_order="asc",
                limit=_PAGE,
                offset=len(ids),
                read=lambda threads: {str(each["thread_id"]) for each in threads},
            )
            if page <= ids:
                raise ThreadError(
                    f"LangGraph Server listed {len(ids)} of {count} threads, so some would be left "
                    f"out: try again, or name the threads."
                )
            ids |= page
        return sorted(ids)

    def activity(self, saved: CheckpointTuple) -> Literal["running", "waiting"] | None:
        """Whether a run of a thread is in progress, or it waits for a human; None if neither.

        Args:
            saved: The newest checkpoint of the thread. A superstep follows it.
        """
        thread_id = Address.of(saved.config).thread_id

        def status_of(thread: Any) -> object:
            _check_thread(thread["thread_id"], thread_id)
            return thread["status"]

        if self._ask(self.client.threads.get, thread_id, read=status_of) == "busy":
            return "running"
        if any(channel == INTERRUPT for _, channel, _ in saved.pending_writes or ()):
            return "waiting"
        # The API hides the breakpoints of a graph. A run that stopped at one was successful.
        ended_well = self._ask(
            self.client.runs.list,
            thread_id,
            limit=1,
            select=["status"],
            read=lambda runs: bool(runs) and runs[0]["status"] == "success",
        )
        return "waiting" if ended_well else None

    # --- requests ------------------------------------------------------------------------

    def _ask(
        self,
        request: Callable[..., Any],
        *args: Any,
        read: Callable[[Any], Any],
        **options: Any,
    ) -> Any:
        """Send a request. A `_ServerError` means that every other request would fail too.

        Args:
            request: A method of the client.
            args: Its arguments.
            read: Reads what is needed of the answer, which may be any JSON value.
            options: Its other arguments.
        """
        fails: type[ThreadError] = ThreadError
        try:
            return read(request(*args, **options))
        except httpx.HTTPStatusError as error:  # every error status, as the SDK raises it
            status = error.response.status_code
            reason = f"{status} {error.response.reason_phrase}"
            said = str(error)
            text = _on_one_line(said if said.startswith(reason) else f"{reason}: {said}")
            problem = _OF_ALL.get(status, "it refused the request ({})").format(text)
            fails = _ServerError if status in _OF_ALL else ThreadError
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            fails = _ServerError
            problem = f"is it running, and is the URL right? ({_on_one_line(brief(error))})"
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            problem = (
                f"its answer is not the expected one ({_on_one_line(brief(error))}): is this "
                f"the URL of a LangGraph Server, with https where it needs that?"
            )
        # Outside of `except`: the context of the error may hold a URL.
        raise fails(f"LangGraph Server: {problem}")


_REFUSES = "it refuses all requests: check its URL and LANGGRAPH_API_KEY, or try again later ({})."
_IS_OTHER = "it refused the request ({}): is this the URL of a LangGraph Server?"
_OF_ALL: Mapping[int, str] = {
    HTTPStatus.UNAUTHORIZED: _REFUSES,
    HTTPStatus.TOO_MANY_REQUESTS: _REFUSES,
    HTTPStatus.BAD_GATEWAY: _REFUSES,
    HTTPStatus.SERVICE_UNAVAILABLE: _REFUSES,
    HTTPStatus.GATEWAY_TIMEOUT: _REFUSES,
    HTTPStatus.METHOD_NOT_ALLOWED: _IS_OTHER,
    HTTPStatus.NOT_IMPLEMENTED: _IS_OTHER,
}
"""What is said of the statuses that every other request would get too."""


def _on_one_line(text: str) -> str:
    return re.sub(r"\S*(?:://|@)\S*", "(its URL)", " ".join(cut(text, 500).split()))


def _check_thread(answered: object, thread_id: str) -> None:
    if answered != thread_id:
        raise ThreadError(
            f"LangGraph Server: it was asked for thread {thread_id!r} and answered for "
            f"{short(str(answered), 100)}, so nothing of it was read"
        )


# --- checkpoints, as the API shows them --------------------------------------------------


_NO_WRITES = "__no_writes__"
"""The channel that LangGraph uses for a task that finished without a write."""

_SEVERAL = "$writes"
"""How the API shows a channel to which a task wrote more than once."""


def _tuples_of(thread_id: str, states: Any) -> Sequence[CheckpointTuple]:
    # A thread that never ran has a state without a checkpoint.
    states = [state for state in states if (state["checkpoint"] or {}).get("checkpoint_id")]
    for state in states:
        _check_thread(state["checkpoint"]["thread_id"], thread_id)
    return [*map(checkpoint_of, states)]


def checkpoint_of(state: Mapping[str, Any]) -> CheckpointTuple:
    """The checkpoint and its pending writes, as a checkpointer would return them.

    Args:
        state: A `ThreadState` of the API.

    Examples:
        >>> from langgraph_patch.threads.stores.server import checkpoint_of
        >>> state = {"values": {"messages": [{"type": "human", "content": "hi", "id": "h1"}]},
        ...          "checkpoint": {"thread_id": "1", "checkpoint_id": "c1"}, "tasks": [],
        ...          "metadata": {"step": 3}, "created_at": "2026-01-01T00:00:00+00:00"}
        >>> checkpoint_of(state).checkpoint["channel_values"]["messages"][0].content
        'hi'
    """
    tasks: Sequence[Mapping[str, Any]] = state.get("tasks") or ()
    values = _values_of(state.get("values"))
    indexed = [(storage.send_index(task["path"]), task["name"]) for task in tasks]
    triggers = {
        storage.trigger_channel(name): None
        for index, name in indexed
        if index is None and not storage.is_reserved(name)
    }
    sent = sorted((index, name) for index, name in indexed if index is not None)
    sends = [Send(name, None) for _, name in sent]
    metadata: Any = state.get("metadata") or {}
    named, parent = state["checkpoint"], state.get("parent_checkpoint")
    return CheckpointTuple(
        config=_config_of(named),
        checkpoint={
            "v": storage.NEWEST_FORMAT,
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
    return replace(Address.of({"configurable": dict(checkpoint)}), others={}).config


def _values_of(written: Any) -> dict[str, Any]:
    """What a state, or the result of a task, has in each channel."""
    if written is None:
        return {}
    channels = written if isinstance(written, Mapping) else {storage.ROOT_CHANNEL: written}
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


def _writes_of(task: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """The pending writes of a task."""
    task_id: str = task["id"]
    if task.get("interrupts"):
        raised = [Interrupt(value=each.get("value"), id=each["id"]) for each in task["interrupts"]]
        yield task_id, INTERRUPT, raised
        # It may have been answered, which the API does not show.
        yield storage.NO_TASK, RESUME, None
    if task.get("error") is not None:
        yield task_id, ERROR, str(task["error"])
    result = task.get("result")
    for channel, value in _values_of(result).items():
        several = isinstance(value, Mapping) and value.keys() == {_SEVERAL}
        for each in value[_SEVERAL] if several else [value]:
            yield task_id, channel, with_messages(each)
    if result is not None and not result:
        yield task_id, _NO_WRITES, None
