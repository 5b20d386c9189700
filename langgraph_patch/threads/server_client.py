"""Requests to a LangGraph Server, with the client of `langgraph_sdk`.

A server is not trusted: an answer is bounded in size and time, and an answer that was not expected
is an error in words. No error repeats a URL, which may hold a password.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from operator import attrgetter
from typing import Any

import httpx
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import LangGraphClient, SyncLangGraphClient

from langgraph_patch._sansio import IOGenerator, IORequest
from langgraph_patch.errors import OptionError, ThreadError, brief

ServerClient = LangGraphClient | SyncLangGraphClient
"""A client of a LangGraph Server: what `get_client` or `get_sync_client` returned."""

_MOST_BYTES = 64 * 2**20
"""How large an answer may be."""

_SECONDS = {"runs.wait": 300.0}
"""How long an answer may take, by method."""

_USUAL_SECONDS = 60.0

_PAUSES = (1.0, 2.0, 4.0)
"""The seconds before a request is sent again, if the server does not name another number."""

_LONGEST_PAUSE = 30.0

_HEADERS = "LANGGRAPH_HEADERS"
"""The environment variable with the headers of a client."""


# --- errors ------------------------------------------------------------------------------


class StoreFailedError(ThreadError):
    """The server itself failed, not the reading of one thread. It ends a scan."""


class TryLaterError(StoreFailedError):
    """The server refuses all requests for a while.

    Attributes:
        seconds: How long, if the server says so.
    """

    seconds: float | None = None


class BusyError(ThreadError):
    """A run of the thread is in progress."""


class NotFoundError(ThreadError):
    """The server has no such thread, or not the graph that wrote it."""


_UNAUTHORIZED, _GONE, _CONFLICT, _INVALID_ID, _TOO_MANY = 401, 404, 409, 422, 429
_BAD_GATEWAY, _UNAVAILABLE = 502, 503

_OF_SERVER = {
    _UNAUTHORIZED: "check LANGGRAPH_API_KEY",
    _TOO_MANY: "it refuses more requests now",
    _BAD_GATEWAY: "the proxy before it cannot reach it",
    _UNAVAILABLE: "it is not available now",
}
"""The statuses that every other request would get too, and what to do or what they mean."""

_IS_IT_A_SERVER = "is this the URL of a LangGraph Server?"


@contextmanager
def _api_errors(method: str) -> Iterator[None]:
    """Raise the errors of the client as errors of this package, which repeat no URL."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        response = getattr(error, "response", None)
        raise _error_of(re.sub(r"\S*://\S*", "(its URL)", brief(error)), response) from error
    except UnicodeEncodeError:
        raise
    except ValueError as error:
        raise ThreadError(
            f"LangGraph Server: its answer to {method} is no JSON: {_IS_IT_A_SERVER}"
        ) from error


def _error_of(text: str, response: httpx.Response | None) -> ThreadError:
    status = None if response is None else response.status_code
    if status == _CONFLICT:
        return BusyError("a run of it is in progress")
    if status in (_GONE, _INVALID_ID) and "thread" in text.lower():
        return NotFoundError(f"LangGraph Server has no such thread ({text})")
    if response is None or status is None or status in _OF_SERVER:
        reason = _OF_SERVER.get(status or 0, "is it running, and is the URL right?")
        is_later = status in (_TOO_MANY, _UNAVAILABLE)
        failed = (TryLaterError if is_later else StoreFailedError)(
            f"LangGraph Server: {reason} ({text})."
        )
        seconds = "" if response is None else response.headers.get("retry-after", "")
        if isinstance(failed, TryLaterError) and seconds.isdecimal():
            failed.seconds = min(float(seconds), _LONGEST_PAUSE)
        return failed
    return ThreadError(f"LangGraph Server refused the request ({text})")


@contextmanager
def expected(method: str) -> Iterator[None]:
    """Raise what an answer that is not of the expected shape makes Python raise."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ThreadError(
            f"LangGraph Server: its answer to {method} is not the expected one ({brief(error)}): "
            f"{_IS_IT_A_SERVER}"
        ) from error


# --- bounds ------------------------------------------------------------------------------


_END: ContextVar[float | None] = ContextVar("langgraph_patch_request_end", default=None)
"""When the answer to the current request must be complete; None for requests of others."""


class _BoundedStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of an answer, up to the largest size and the latest time."""

    def __init__(self, stream: Any, end: float) -> None:
        self._stream, self._end, self._size = stream, end, 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            yield self._checked(chunk)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield self._checked(chunk)

    def close(self) -> None:
        self._stream.close()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _checked(self, chunk: bytes) -> bytes:
        self._size += len(chunk)
        if self._size > _MOST_BYTES:
            raise ThreadError(
                f"LangGraph Server: an answer is larger than {_MOST_BYTES // 2**20} MiB, so it "
                f"was not read."
            )
        if time.monotonic() > self._end:
            raise StoreFailedError("LangGraph Server: an answer takes too long: try again later.")
        return chunk


def _bound_request(request: httpx.Request) -> None:
    end = _END.get()
    if end is not None:
        request.headers["accept-encoding"] = "identity"  # a small answer may unpack to a large one
        seconds = max(0.0, end - time.monotonic())
        request.extensions["timeout"] |= {"read": seconds, "write": seconds}


def _bound_response(response: httpx.Response) -> None:
    end = _END.get()
    if end is None:
        return
    if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
        raise ThreadError(
            "LangGraph Server: an answer is compressed, though that was not asked for, so it was "
            "not read: name the server itself instead of the proxy before it."
        )
    response.stream = _BoundedStream(response.stream, end)


async def _bound_request_async(request: httpx.Request) -> None:
    _bound_request(request)


async def _bound_response_async(response: httpx.Response) -> None:
    _bound_response(response)


def bound_client(client: ServerClient) -> None:
    """Bound the answers to our requests; those to requests of others stay as they are."""
    http: Any = client.http.client
    is_sync = isinstance(client, SyncLangGraphClient)
    hooks: dict[str, Any] = {
        "request": _bound_request if is_sync else _bound_request_async,
        "response": _bound_response if is_sync else _bound_response_async,
    }
    for name, hook in hooks.items():
        if hook not in http.event_hooks[name]:
            http.event_hooks[name].append(hook)


@contextmanager
def _bounded(method: str) -> Iterator[None]:
    token = _END.set(time.monotonic() + _SECONDS.get(method, _USUAL_SECONDS))
    try:
        yield
    finally:
        _END.reset(token)


# --- requests ----------------------------------------------------------------------------


def send(client: ServerClient, method: str, *args: Any, **kwargs: Any) -> IOGenerator[Any]:
    """Call a method of the client, such as `threads.get_state`.

    It waits and tries again while the server refuses all requests.

    Raises:
        BusyError: If a run of the thread is in progress.
        NotFoundError: If there is no such thread.
        StoreFailedError: If the server cannot be reached, or refuses every request.
        ThreadError: If it refuses this one, or its answer is too large or no JSON.
        OptionError: If the client is of the other kind, synchronous or asynchronous.
    """
    call: Callable[..., Any] = attrgetter(method)(client)
    check = partial(check_use, client, is_async=isinstance(client, LangGraphClient))

    def synchronously() -> Any:
        check(awaited=False)
        with _api_errors(method), _bounded(method):
            return call(*args, **kwargs)

    async def asynchronously() -> Any:
        check(awaited=True)
        with _api_errors(method), _bounded(method):
            return await call(*args, **kwargs)

    for pause in _PAUSES:
        try:
            return (yield IORequest(synchronously, asynchronously))
        except TryLaterError as error:
            seconds = pause if error.seconds is None else error.seconds
        yield IORequest(partial(time.sleep, seconds), partial(asyncio.sleep, seconds))
    return (yield IORequest(synchronously, asynchronously))


def check_use(value: object, *, is_async: bool, awaited: bool) -> None:
    """Check that a client or a checkpointer is used as it can be used.

    Args:
        value: The client or the checkpointer.
        is_async: Whether it can only be used in an event loop.
        awaited: Whether it is used in one.

    Raises:
        OptionError: If it is not; the error names the functions to use.
    """
    if is_async != awaited:
        way = (
            "asynchronous: use `async for` with ascan_threads, and await arepair_thread and "
            "aundo_repair."
            if is_async
            else "synchronous: call scan_threads, repair_thread and undo_repair."
        )
        raise OptionError(f"{type(value).__name__} is {way}")


# --- a client ----------------------------------------------------------------------------


def sync_client(url: str) -> SyncLangGraphClient:
    """A client for a server.

    Raises:
        OptionError: If the URL holds a password, or a header is not `Name: value`.
    """
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise OptionError(
            f"The URL holds a user or a password: put the header that your server expects into "
            f"the environment variable {_HEADERS}."
        )
    return get_sync_client(url=url, headers=_headers())


def _headers() -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in filter(None, map(str.strip, os.environ.get(_HEADERS, "").splitlines())):
        name, colon, value = line.partition(":")
        if not (colon and name.strip() and value.strip()):
            raise OptionError(f"A line of {_HEADERS} is not a header: expected `Name: value`.")
        headers[name.strip()] = value.strip()
    return headers
