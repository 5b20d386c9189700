"""Requests to a LangGraph Server.

A server is not trusted: its answers are bounded in size and time, and an answer that was not
expected is an error in words. `langgraph_sdk` reads an answer whole before anyone can bound it. So
its client is used for what it was made with (the address, headers and transport), and the requests
are those of the server's documented HTTP API. No error repeats a URL, which may hold a password.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

import httpx
from langgraph_sdk.client import LangGraphClient, SyncLangGraphClient

from langgraph_patch._sansio import IOGenerator, IORequest
from langgraph_patch.errors import OptionError, ThreadError, brief

ServerClient = LangGraphClient | SyncLangGraphClient
"""A client of a LangGraph Server: what `get_client` or `get_sync_client` returned."""

_MOST_BYTES = 64 * 2**20
"""How large an answer may be."""

_SECONDS = 60.0
"""How long the server may say nothing, and how long an answer may take after it began."""

_PAUSES = (1.0, 4.0, 16.0)
"""The seconds before a request is sent again, if the server does not name another number."""

_LONGEST_PAUSE = 30.0


# --- errors ------------------------------------------------------------------------------


class StoreFailedError(ThreadError):
    """The server itself failed, not the reading of one thread. It ends a scan."""


class NotFoundError(ThreadError):
    """The server has no such thread, or not the graph that wrote it."""


_LATER = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
"""The server refuses all requests for a while."""

_OF_SERVER = (*_LATER, HTTPStatus.UNAUTHORIZED, HTTPStatus.BAD_GATEWAY)
"""The statuses that every other request would get too."""


def _error_of(answer: httpx.Response, content: bytes) -> ThreadError:
    """The error of an answer with an error status."""
    status = answer.status_code
    text = f"{status} {answer.reason_phrase}: {_on_one_line(content.decode(errors='replace'))}"
    if status in _OF_SERVER:
        return StoreFailedError(
            f"LangGraph Server refuses all requests: check its URL and LANGGRAPH_API_KEY, or try "
            f"again later ({text})."
        )
    is_unknown = status in (HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
    if is_unknown and "thread" in text.lower():
        return NotFoundError(f"LangGraph Server has no such thread ({text})")
    return ThreadError(f"LangGraph Server refused the request ({text})")


def _on_one_line(text: str) -> str:
    return re.sub(r"\S*://\S*", "(its URL)", " ".join(text[:500].split()))


# --- one request -------------------------------------------------------------------------


def send(
    client: ServerClient,
    path: str,
    body: Mapping[str, Any] | None = None,
    *,
    read: Callable[[Any], Any] = lambda value: value,
) -> IOGenerator[Any]:
    """Send a request, and again after a pause while the server refuses all requests.

    Args:
        client: Has the address of the server, and is synchronous or asynchronous.
        path: The path of the API, with the query if any.
        body: What is posted, as JSON values. Default: nothing, the request only gets the answer.
        read: Reads what is needed of the answer, which may be any JSON value. Default: all of it.

    Raises:
        NotFoundError: If there is no such thread.
        StoreFailedError: If the server cannot be reached, or refuses every request.
        ThreadError: If it refuses this one, such as one that writes while a run of the thread is
            in progress, or its answer is too large or not the expected one.
        OptionError: If the client is of the other kind, synchronous or asynchronous.
    """
    http: Any = client.http.client
    check = partial(check_use, client, is_async=isinstance(client, LangGraphClient))
    stream = partial(
        http.stream,
        "GET" if body is None else "POST",
        path,
        json=body,
        timeout=_SECONDS,
        headers={"accept-encoding": "identity"},  # a small answer may unpack to a large one
    )

    def synchronously() -> tuple[httpx.Response, bytes]:
        check(awaited=False)
        content = _Content()
        with stream() as response:
            for chunk in response.iter_raw():
                content.add(chunk)
        return response, bytes(content)

    async def asynchronously() -> tuple[httpx.Response, bytes]:
        check(awaited=True)
        content = _Content()
        async with stream() as response:
            async for chunk in response.aiter_raw():
                content.add(chunk)
        return response, bytes(content)

    for pause in (*_PAUSES, None):
        try:
            answer, content = yield IORequest(synchronously, asynchronously)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise StoreFailedError(
                f"LangGraph Server: is it running, and is the URL right? "
                f"({_on_one_line(brief(error))})."
            ) from error
        if pause is None or answer.status_code not in _LATER:
            break
        named = answer.headers.get("retry-after", "")
        seconds = min(float(named), _LONGEST_PAUSE) if named.isdecimal() else pause
        yield IORequest(partial(time.sleep, seconds), partial(asyncio.sleep, seconds))
    if answer.is_error:
        raise _error_of(answer, content)
    try:
        return read(json.loads(content))
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ThreadError(
            f"LangGraph Server: its answer to {path} is not the expected one ({brief(error)}): is "
            f"this the URL of a LangGraph Server?"
        ) from error


class _Content(bytearray):
    """The content of an answer, up to the largest size and the latest time; never unpacked."""

    def __init__(self) -> None:
        super().__init__()
        self._end = time.monotonic() + _SECONDS

    def add(self, chunk: bytes) -> None:
        self.extend(chunk)
        if len(self) > _MOST_BYTES:
            raise ThreadError(
                f"LangGraph Server: an answer is larger than {_MOST_BYTES // 2**20} MiB, so it "
                f"was not read."
            )
        if time.monotonic() > self._end:
            raise StoreFailedError("LangGraph Server: an answer takes too long: try again later.")


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
        raise OptionError(
            f"{type(value).__name__} is {'asynchronous' if is_async else 'synchronous'}: call "
            f"scan_threads, repair_thread and undo_repair with a synchronous one, ascan_threads, "
            f"arepair_thread and aundo_repair with an asynchronous one."
        )
