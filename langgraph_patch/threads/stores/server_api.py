"""What LangGraph Server's API and its client answer, and how a client is made.

The client is that of `langgraph_sdk`, which is imported only to make one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from langgraph_patch.errors import OptionError, ThreadError, brief
from langgraph_patch.threads.stores.base import StoreFailedError, class_names
from langgraph_patch.threads.stores.masking import masked

_HEADERS = "LANGGRAPH_HEADERS"
"""The environment variable with the headers of a client."""

_UNAUTHORIZED, _GONE, _CONFLICT, _INVALID_ID, _TOO_MANY = 401, 404, 409, 422, 429
_BAD_GATEWAY, _UNAVAILABLE = 502, 503


class ServerClient(Protocol):
    """A client of a LangGraph Server: what `get_client` or `get_sync_client` returned."""

    @property
    def threads(self) -> Any:
        """The part of the API for threads."""
        ...

    @property
    def runs(self) -> Any:
        """The part of the API for runs."""
        ...


def is_client(value: object) -> bool:
    """Whether it is a client of a LangGraph Server, synchronous or asynchronous."""
    names = class_names(value, "langgraph_sdk")
    return bool(names & {"LangGraphClient", "SyncLangGraphClient"})


# --- errors ------------------------------------------------------------------------------


class BusyError(ThreadError):
    """A run of the thread is in progress."""


class NotFoundError(ThreadError):
    """The server has no such thread, or not the graph that wrote it."""


@contextmanager
def api_errors() -> Iterator[None]:
    """Raise the errors of the client as errors of this package."""
    try:
        yield
    except Exception as error:  # any: httpx, whose errors these are, is not imported here
        names = class_names(error, "httpx")
        if not names:
            raise
        raise _error_of(error, getattr(error, "response", None)) from error


_OF_SERVER = {
    _UNAUTHORIZED: "check LANGGRAPH_API_KEY",
    _TOO_MANY: "it refuses more requests now",
    _BAD_GATEWAY: "the proxy before it cannot reach it",
    _UNAVAILABLE: "it is not available now",
}
"""The statuses that every other request would get too, and what to do or what they mean."""


def _error_of(error: Exception, response: Any) -> ThreadError:
    status = getattr(response, "status_code", None)
    text = masked(brief(error))
    if status == _CONFLICT:
        return BusyError("a run of it is in progress")
    if status in (_GONE, _INVALID_ID) and "thread" in text.lower():
        return NotFoundError(f"LangGraph Server has no such thread ({text})")
    if status is None or status in _OF_SERVER:
        reason = _OF_SERVER.get(status or 0, "is it running, and is the URL right?")
        return StoreFailedError(f"LangGraph Server: {reason} ({text}).")
    return ThreadError(f"LangGraph Server refused the request ({text})")


# --- a client ----------------------------------------------------------------------------


def sync_client(url: str) -> Any:
    """A client for a server.

    Raises:
        OptionError: If the URL holds a password, or a header is not `Name: value`.
    """
    from langgraph_sdk import get_sync_client  # noqa: PLC0415 - only for a server

    if "@" in url.partition("://")[2].partition("/")[0]:
        raise OptionError(
            f"{masked(url)!r:.200} holds a user or a password: put the header that your server "
            f"expects into the environment variable {_HEADERS}."
        )
    return get_sync_client(url=url, headers=_headers(os.environ.get(_HEADERS, "")))


def _headers(text: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = line.partition(":")
        if not (colon and name.strip() and value.strip()):
            raise OptionError(f"A line of {_HEADERS} is not a header: expected `Name: value`.")
        headers[name.strip()] = value.strip()
    return headers
