"""List the threads of a LangGraph Server, and connect to one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from langgraph_patch._sansio import IOGenerator, run_sync
from langgraph_patch.errors import ThreadError
from langgraph_patch.threads.stores.base import Key
from langgraph_patch.threads.stores.server import LangGraphServer, time_of
from langgraph_patch.threads.stores.server_api import sync_client

_PAGE = 100
"""How many threads are asked for at once."""

_SELECTED = ["thread_id", "metadata", "status", "updated_at"]
"""What is asked for of each thread: without this the answer has its whole state."""


@dataclass(slots=True)
class ServerStore:
    """The `Store` of a LangGraph Server: only root namespaces, since it lists no others.

    Attributes:
        server: The server.
        offset: How many threads come before the next page.
        end: The id of the last thread of the page before.
    """

    server: LangGraphServer
    offset: int = 0
    end: str = ""

    def keys_after(self, last: Key | None) -> IOGenerator[Sequence[Key]]:
        """One page of keys, as `Store` documents it.

        Each page begins with the last thread of the one before. If it is not there, threads were
        deleted meanwhile, and the page before is read again, so that none is left out.
        """
        while True:
            page = yield from self._page()
            if self.offset and not (page and page[0]["thread_id"] <= self.end):
                self.offset = max(0, self.offset - _PAGE)
                continue
            if page:
                self.offset += len(page) - 1
                self.end = page[-1]["thread_id"]
            keys = [Key(each["thread_id"], "") for each in page if self._is_chosen(each)]
            keys = [key for key in keys if last is None or key > last]
            if keys or len(page) < _PAGE:
                return keys

    def count_threads(self) -> IOGenerator[int | None]:
        """How many threads the filters choose; None if they choose by date."""
        if self.server.has_dates:
            return None
        count: int = yield from self.server.request("threads.count", **self.server.filters)
        return count

    def keys_of(self, thread_id: str) -> IOGenerator[Sequence[Key]]:
        """The root namespace of one thread, whether the filters choose it or not."""
        thread = yield from self.server.thread(thread_id)
        return [] if thread is None else [Key(thread["thread_id"], "")]

    def delete_checkpoint(self, key: Key, checkpoint_id: str) -> IOGenerator[bool]:
        """Refuse: `undo_repair` has another way on a server."""
        yield from ()  # a generator that requests no I/O
        raise ThreadError(
            f"LangGraph Server cannot delete checkpoint {checkpoint_id} of thread "
            f"{key.thread_id!r}: call undo_repair with the client."
        )

    def _page(self) -> IOGenerator[Sequence[Mapping[str, Any]]]:
        page: Sequence[Mapping[str, Any]] = yield from self.server.request(
            "threads.search",
            **self.server.filters,
            limit=_PAGE,
            offset=self.offset,
            sort_by="thread_id",
            sort_order="asc",
            select=_SELECTED,
        )
        return page

    def _is_chosen(self, thread: Mapping[str, Any]) -> bool:
        """Whether a thread ran a graph, and was updated in the time that is asked for."""
        if not (thread.get("metadata") or {}).get("graph_id"):
            return False
        if not self.server.has_dates:
            return True
        begin, end = self.server.updated
        time = time_of(thread, "updated_at")
        return (begin is None or begin <= time) and (end is None or time < end)


@contextmanager
def open_server(url: str) -> Iterator[LangGraphServer]:
    """Connect to a LangGraph Server.

    The SDK takes the API key from `LANGGRAPH_API_KEY`, `LANGSMITH_API_KEY` or
    `LANGCHAIN_API_KEY`. Further headers come from `LANGGRAPH_HEADERS`, as lines of `Name: value`.

    Args:
        url: Its URL, without user and password.

    Raises:
        ThreadError: If the server cannot be reached.
        OptionError: If the URL holds a password, or a header is not `Name: value`.
    """
    with closing(sync_client(url)) as client:
        server = LangGraphServer(client)
        run_sync(server.request("threads.search", limit=1, select=_SELECTED))
        yield server
