"""LangGraph Server: its threads, read over its API as those of a checkpointer are read.

`LangGraphServer` is a checkpointer that is only read, through the client of `langgraph_sdk`. So a
scan, and the search for recorded results, need no code of their own.

`server_json` makes the checkpoints. The answers to interrupts are in the list of runs only, and the
checkpoints of a graph that a tool runs are not shown at all.

A server is not trusted: each answer must be about the thread that was asked for, and an answer
that was not expected is an error in words. No error repeats a URL, which may hold a password.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Literal

import httpx
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME
from langgraph_sdk.client import SyncLangGraphClient

from langgraph_patch._langgraph_storage import (
    NO_TASK,
)
from langgraph_patch.errors import OptionError, StoreError, ThreadError, brief, quoted
from langgraph_patch.evidence.address import Address
from langgraph_patch.threads.server_json import checkpoint_of

Activity = Literal["running", "waiting"]
"""Why the calls of the last message may still get their results."""

_PAGE = 100
"""How many threads or runs are asked for at once."""

_ALL = 1000
"""How many checkpoints are asked for if the caller wants all."""

_MOST_THREADS = 1_000_000
"""How many threads are listed at most."""


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
            StoreError: If the pages list fewer threads than the server counts: it is wrong, or
                threads were deleted meanwhile, which may hide others.
        """
        threads = self.client.threads
        count = self._ask(threads.count, **self.filters, read=int, fails=StoreError)
        found: set[str] = set()
        for offset in range(0, min(count, _MOST_THREADS) + _PAGE, _PAGE):
            found |= self._ask(
                threads.search,
                **self.filters,
                select=["thread_id"],
                sort_by="thread_id",
                sort_order="asc",
                limit=_PAGE,
                offset=offset,
                read=lambda page: {str(each["thread_id"]) for each in page},
                fails=StoreError,
            )
        if len(found) >= count:
            return sorted(found)
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
