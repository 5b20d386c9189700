"""LangGraph Server: its threads, read over its API as those of a checkpointer are read.

`LangGraphServer` is a checkpointer that is only read. So a scan, and the search for recorded
results, need no code of their own. `server_repair` writes through the API.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any, Literal, NoReturn

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, get_checkpoint_id

from langgraph_patch._sansio import IOGenerator, run_async, run_sync
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.threads.server_client import (
    NotFoundError,
    ServerClient,
    StoreFailedError,
    bound_client,
    expected,
    send,
    sync_client,
)
from langgraph_patch.threads.server_json import checkpoint_of

Activity = Literal["running", "waiting"]
"""Why the calls of the last message may still get their results."""

_PAGE = 100
"""How many threads or runs are asked for at once."""

_ALL = 1000
"""How many checkpoints are asked for if the caller wants all."""

_SELECTED = ["thread_id", "metadata"]
"""What is asked for of each thread: without this the answer has its whole state."""

_LISTINGS = 3
"""How often the threads are listed, if threads come and go meanwhile."""

_MOST_THREADS = 1_000_000
"""How many threads are listed at most."""


class LangGraphServer(BaseCheckpointSaver[str]):
    """The threads of a LangGraph Server, as a checkpointer that is only read.

    Pass it, or the client alone, where `scan_threads` takes a checkpointer and where
    `repair_thread` and `undo_repair` take a graph. A synchronous client is for these functions,
    an asynchronous one for their asynchronous forms. What it answers to requests of this package is
    limited in size (64 MiB) and time (a minute); requests of others are as before.

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
        bound_client(client)
        self.filters = {
            key: value for key, value in (("metadata", metadata), ("status", status)) if value
        }

    # --- as a checkpointer ---------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that `config` names, by default the newest; None if none."""
        return run_sync(self._checkpoint(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the same as `get_tuple`."""
        return await run_async(self._checkpoint(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the name in the interface
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints of a thread, newest first.

        Without a `checkpoint_ns`, these are the checkpoints of the subgraphs that ran after the
        checkpoint that `filter["parents"]` names, as far as the server shows them.
        """
        yield from run_sync(self._checkpoints(config, filter or {}, before, limit or _ALL))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the name in the interface
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield the same as `list`."""
        found = await run_async(self._checkpoints(config, filter or {}, before, limit or _ALL))
        for saved in found:
            yield saved

    def put(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: a checkpoint is written by the server only."""
        raise ThreadError("LangGraph Server writes its checkpoints itself: use repair_thread.")

    # --- requests ------------------------------------------------------------------------

    def request(self, method: str, *args: Any, **kwargs: Any) -> IOGenerator[Any]:
        """Call a method of the client, such as `threads.get_state`; `send` documents it."""
        return (yield from send(self.client, method, *args, **kwargs))

    def thread(self, thread_id: str) -> IOGenerator[Mapping[str, Any] | None]:
        """The thread without its state; None if the server has no such thread."""
        try:
            found: Mapping[str, Any] = yield from self.request("threads.get", thread_id)
        except NotFoundError:
            return None
        return found

    def activity(self, thread_id: str) -> IOGenerator[Activity | None]:
        """Whether a run of the thread is in progress, or it waits for a human; None if neither."""
        thread = yield from self.request("threads.get", thread_id)
        with expected("threads.get"):
            if thread["status"] == "busy":
                return "running"
        state = yield from self.request("threads.get_state", thread_id)
        with expected("threads.get_state"):
            tasks, metadata = state["tasks"], state["metadata"] or {}
            if any(task["interrupts"] for task in tasks):
                return "waiting"
            if not state["next"] or any(task["error"] for task in tasks):
                return None
            run_id, source = metadata.get("run_id"), metadata.get("source")
        # The API hides the breakpoints of a graph. A run that stopped at one was successful.
        runs = yield from self.request("runs.list", thread_id, limit=1)
        with expected("runs.list"):
            stopped = (
                bool(runs)
                and runs[0]["status"] == "success"
                and runs[0]["run_id"] == run_id
                and source in ("input", "loop")
            )
        return "waiting" if stopped else None

    # --- threads -------------------------------------------------------------------------

    def thread_ids(self, thread_id: str | None = None) -> IOGenerator[Sequence[str]]:
        """The ids of the threads that ran a graph and that the filters choose, sorted.

        Args:
            thread_id: List this thread only, whether the filters choose it or not.

        Raises:
            StoreFailedError: If the server lists fewer threads than it counts, or more.
        """
        if thread_id is not None:
            return [] if (yield from self.thread(thread_id)) is None else [thread_id]
        for _ in range(_LISTINGS):
            before = yield from self._count()
            found = yield from self._listed(before)
            after = yield from self._count()
            if len(found) >= min(before, after):
                return sorted(each for each, is_chosen in found.items() if is_chosen)
        raise StoreFailedError(
            f"LangGraph Server lists {len(found)} of {after} threads, so some would be left out: "
            f"try again, or choose fewer threads with status= or metadata=."
        )

    def _count(self) -> IOGenerator[int]:
        count = yield from self.request("threads.count", **self.filters)
        with expected("threads.count"):
            if not 0 <= int(count) <= _MOST_THREADS:
                raise StoreFailedError(
                    f"LangGraph Server has {count} threads: choose fewer with status= or metadata=."
                )
            return int(count)

    def _listed(self, count: int) -> IOGenerator[dict[str, bool]]:
        """Each thread, and whether it is chosen.

        Each page begins with the last thread of the one before. If it has none of those, threads
        were deleted meanwhile, and the page before is read again, so that none is left out.
        """
        found: dict[str, bool] = {}
        offset = 0
        for _ in range(2 * count // _PAGE + _PAGE):
            page = yield from self.request(
                "threads.search",
                **self.filters,
                limit=_PAGE,
                offset=offset,
                sort_by="thread_id",
                sort_order="asc",
                select=_SELECTED,
            )
            with expected("threads.search"):
                ids = {str(each["thread_id"]): _has_run(each) for each in page}
            if offset and not ids.keys() & found.keys():
                offset = max(0, offset - _PAGE)
                continue
            if not ids.keys() - found.keys():
                return found
            found |= ids
            offset += len(ids) - 1
        return {}

    # --- checkpoints ---------------------------------------------------------------------

    def _checkpoint(self, config: RunnableConfig) -> IOGenerator[CheckpointTuple | None]:
        configurable = {"checkpoint_ns": "", **config["configurable"]}
        found = yield from self._checkpoints({"configurable": configurable}, {}, None, 1)
        return found[0] if found else None

    def _checkpoints(
        self,
        config: RunnableConfig | None,
        metadata: Mapping[str, Any],
        before: RunnableConfig | None,
        limit: int,
    ) -> IOGenerator[Sequence[CheckpointTuple]]:
        configurable = (config or {}).get("configurable", {})
        thread_id = str(configurable["thread_id"])
        try:
            if "checkpoint_ns" not in configurable:
                return (yield from self._of_subgraphs(thread_id, metadata, limit))
            namespace = configurable["checkpoint_ns"]
            if exact := get_checkpoint_id(config or {}):
                states = [(yield from self._state(thread_id, namespace, exact))]
            else:
                states = yield from self._history(thread_id, namespace, metadata, before, limit)
            return (yield from self._tuples(thread_id, namespace, states))
        except NotFoundError:
            return []

    def _state(self, thread_id: str, namespace: str, checkpoint_id: str) -> IOGenerator[Any]:
        names = {"checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}
        return (
            yield from self.request(
                "threads.get_state", thread_id, checkpoint={"thread_id": thread_id, **names}
            )
        )

    def _history(
        self,
        thread_id: str,
        namespace: str,
        metadata: Mapping[str, Any],
        before: RunnableConfig | None,
        limit: int,
    ) -> IOGenerator[Any]:
        return (
            yield from self.request(
                "threads.get_history",
                thread_id,
                limit=limit,
                before=None if before is None else {"configurable": dict(before["configurable"])},
                metadata=dict(metadata) or None,
                checkpoint={"checkpoint_ns": namespace} if namespace else None,
            )
        )

    def _of_subgraphs(
        self, thread_id: str, metadata: Mapping[str, Any], limit: int
    ) -> IOGenerator[Sequence[CheckpointTuple]]:
        """The checkpoints of the subgraphs of one superstep: the API names them in its tasks."""
        rest = {key: value for key, value in metadata.items() if key != "parents"}
        parents = [*dict(metadata.get("parents", {})).items()]
        if not parents:
            return []
        above = yield from self._state(thread_id, *parents[-1])
        with expected("threads.get_state"):
            named = [(task.get("checkpoint") or {}).get("checkpoint_ns") for task in above["tasks"]]
        found: Any = []
        for below in filter(None, named):
            states = yield from self._history(thread_id, below, rest, None, limit)
            found += yield from self._tuples(thread_id, below, states)
        tuples: Sequence[CheckpointTuple] = found[:limit]
        return tuples

    def _tuples(
        self, thread_id: str, namespace: str, states: Sequence[Any]
    ) -> IOGenerator[Sequence[CheckpointTuple]]:
        """Checkpoints of one namespace, newest first, each with an answer if one was sent.

        An answer counts for the checkpoint after which, and before whose successor, it was sent.
        """
        with expected("threads.get_history"):
            # A thread that never ran has a state without a checkpoint.
            stored = [each for each in states if (each["checkpoint"] or {}).get("checkpoint_id")]
            begins = [_time_of(state) for state in stored]
            asks = any(task["interrupts"] for each in stored for task in each.get("tasks") or ())
        answers = (yield from self._answers(thread_id)) if asks else []
        end = datetime.max.replace(tzinfo=UTC)
        if answers and stored:
            end = min([end, *(yield from self._successors(thread_id, namespace, stored[0]))])
        with expected("threads.get_history"):
            return [
                checkpoint_of(state, is_answered=any(begin <= time < end for time in answers))
                for state, begin, end in zip(stored, begins, [end, *begins], strict=False)
            ]

    def _successors(
        self, thread_id: str, namespace: str, state: Mapping[str, Any]
    ) -> IOGenerator[Sequence[datetime]]:
        """When the checkpoints that follow one were made."""
        with expected("threads.get_history"):
            step = {"step": int((state.get("metadata") or {})["step"]) + 1}
            checkpoint_id = state["checkpoint"]["checkpoint_id"]
        found = yield from self._history(thread_id, namespace, step, None, _PAGE)
        with expected("threads.get_history"):
            return [
                _time_of(each)
                for each in found
                if (each.get("parent_checkpoint") or {}).get("checkpoint_id") == checkpoint_id
            ]

    def _answers(self, thread_id: str) -> IOGenerator[Sequence[datetime]]:
        """When a run was started that answered an interrupt."""
        times: dict[str, datetime | None] = {}
        while True:
            runs = yield from self.request("runs.list", thread_id, limit=_PAGE, offset=len(times))
            with expected("runs.list"):
                page = {
                    each["run_id"]: _time_of(each) if _is_answer(each) else None for each in runs
                }
            if not page.keys() - times.keys() or len(times) > _MOST_THREADS:
                return [time for time in times.values() if time]
            times |= page


def _is_answer(run: Mapping[str, Any]) -> bool:
    command = (run.get("kwargs") or {}).get("command") or {}
    return command.get("resume") is not None


def _has_run(thread: Mapping[str, Any]) -> bool:
    return bool((thread.get("metadata") or {}).get("graph_id"))


def _time_of(value: Mapping[str, Any]) -> datetime:
    """When a checkpoint or a run was made."""
    moment = datetime.fromisoformat(str(value["created_at"]))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def server_of(target: Any) -> LangGraphServer | None:
    """The LangGraph Server that `target` is, or that it is a client of; otherwise None."""
    if isinstance(target, LangGraphServer):
        return target
    return LangGraphServer(target) if isinstance(target, ServerClient) else None


# --- a connection ------------------------------------------------------------------------


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
