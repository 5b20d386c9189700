"""LangGraph Server: its threads, read over its API as those of a checkpointer are read.

`LangGraphServer` is a checkpointer that is only read. So a scan, and the search for recorded
results, need no code of their own. `server_repair` writes through the API.

The client is that of `langgraph_sdk`. This module imports nothing of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Literal, NoReturn

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, get_checkpoint_id

from langgraph_patch._sansio import IOGenerator, IORequest, run_async, run_sync
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.threads.stores.base import class_names
from langgraph_patch.threads.stores.server_api import (
    NotFoundError,
    ServerClient,
    api_errors,
    is_client,
)
from langgraph_patch.threads.stores.server_json import checkpoint_of

_PAGE = 100
"""How many runs are asked for at once."""

_ALL = 1000
"""How many checkpoints are asked for if the caller wants all."""

Activity = Literal["running", "waiting"]
"""Why the calls of the last message may still get their results."""


class LangGraphServer(BaseCheckpointSaver[str]):
    """The threads of a LangGraph Server, as a checkpointer that is only read.

    Pass it, or the client alone, where `scan_threads` takes a checkpointer and where
    `repair_thread` and `undo_repair` take a graph. A synchronous client is for these functions,
    an asynchronous one for their asynchronous forms.

    Args:
        client: What `langgraph_sdk.get_sync_client` or `get_client` returned.
        metadata: Scan only threads whose metadata contains these values. Default: all threads.
        status: Scan only threads with this status: `"idle"`, `"busy"`, `"interrupted"` or
            `"error"`. A thread that died of its history has `"error"`. Default: all threads.
        updated_after: Scan only threads that were updated at this time or later. Default: all.
        updated_before: Scan only threads that were updated before this time. Default: all.

    Raises:
        OptionError: If `client` is not such a client, or a time has no time zone.

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
        updated_after: datetime | None = None,
        updated_before: datetime | None = None,
    ) -> None:
        super().__init__()
        if not is_client(client):
            raise OptionError(
                f"{client!r:.200} is a {type(client).__name__}: expected a client of a LangGraph "
                f"Server, from langgraph_sdk.get_sync_client or get_client."
            )
        for name, time in (("updated_after", updated_after), ("updated_before", updated_before)):
            if time is not None and (not isinstance(time, datetime) or time.tzinfo is None):
                raise OptionError(f"{name}={time!r:.200}: expected a datetime with a time zone.")
        self.client = client
        self.is_async = "SyncLangGraphClient" not in class_names(client, "langgraph_sdk")
        self.filters = {
            key: value for key, value in (("metadata", metadata), ("status", status)) if value
        }
        self.updated = (updated_after, updated_before)

    @property
    def has_dates(self) -> bool:
        """Whether it chooses threads by the time of their update."""
        return self.updated != (None, None)

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
        """Call a method of the client, such as `threads.get_state`.

        Raises:
            BusyError: If a run of the thread is in progress.
            StoreFailedError: If the server cannot be reached, or refuses every request.
            ThreadError: If it refuses this one.
            OptionError: If the client is of the other kind, synchronous or asynchronous.
        """
        call: Callable[..., Any] = attrgetter(method)(self.client)

        def synchronously() -> Any:
            self._check_use(is_async=False)
            with api_errors():
                return call(*args, **kwargs)

        async def asynchronously() -> Any:
            self._check_use(is_async=True)
            with api_errors():
                return await call(*args, **kwargs)

        return (yield IORequest(synchronously, asynchronously))

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
        if thread["status"] == "busy":
            return "running"
        state = yield from self.request("threads.get_state", thread_id)
        tasks = state["tasks"]
        if any(task["interrupts"] for task in tasks):
            return "waiting"
        if not state["next"] or any(task["error"] for task in tasks):
            return None
        # The API hides the breakpoints of a graph. A run that stopped at one was successful.
        runs = yield from self.request("runs.list", thread_id, limit=1)
        metadata = state["metadata"] or {}
        stopped = (
            bool(runs)
            and runs[0]["status"] == "success"
            and runs[0]["run_id"] == metadata.get("run_id")
            and metadata.get("source") in ("input", "loop")
        )
        return "waiting" if stopped else None

    def only(self, **filters: Any) -> LangGraphServer:
        """The same server, with these filters instead of its own: the keyword arguments."""
        return LangGraphServer(self.client, **filters)

    def _check_use(self, *, is_async: bool) -> None:
        if self.is_async != is_async:
            expected = (
                "is asynchronous: use `async for` with ascan_threads, and await arepair_thread and "
                "aundo_repair, or take langgraph_sdk.get_sync_client."
                if self.is_async
                else "is synchronous: call scan_threads, repair_thread and undo_repair, or take "
                "langgraph_sdk.get_client."
            )
            raise OptionError(f"{type(self.client).__name__} {expected}")

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
        states: Sequence[Mapping[str, Any]]
        try:
            if "checkpoint_ns" not in configurable:
                states = yield from self._subgraph_states(thread_id, metadata, limit)
            elif exact := get_checkpoint_id(config or {}):
                names = {"checkpoint_ns": configurable["checkpoint_ns"], "checkpoint_id": exact}
                states = [(yield from self._state(thread_id, names))]
            else:
                namespace = configurable["checkpoint_ns"]
                states = yield from self._history(thread_id, namespace, metadata, before, limit)
        except NotFoundError:
            return []
        stored = [state for state in states if _is_stored(state)]
        answers = yield from self._answers(thread_id, stored)
        begins = [time_of(state) for state in stored]
        ends = [datetime.max.replace(tzinfo=UTC), *begins]
        return [
            checkpoint_of(state, is_answered=any(begin <= time < end for time in answers))
            for state, begin, end in zip(stored, begins, ends, strict=False)
        ]

    def _state(self, thread_id: str, names: Mapping[str, Any]) -> IOGenerator[Mapping[str, Any]]:
        state: Mapping[str, Any] = yield from self.request(
            "threads.get_state", thread_id, checkpoint={"thread_id": thread_id, **names}
        )
        return state

    def _history(
        self,
        thread_id: str,
        namespace: str,
        metadata: Mapping[str, Any],
        before: RunnableConfig | None,
        limit: int,
    ) -> IOGenerator[Sequence[Mapping[str, Any]]]:
        states: Sequence[Mapping[str, Any]] = yield from self.request(
            "threads.get_history",
            thread_id,
            limit=limit,
            before=None if before is None else {"configurable": dict(before["configurable"])},
            metadata=dict(metadata) or None,
            checkpoint={"checkpoint_ns": namespace} if namespace else None,
        )
        return states

    def _subgraph_states(
        self, thread_id: str, metadata: Mapping[str, Any], limit: int
    ) -> IOGenerator[Sequence[Mapping[str, Any]]]:
        """The states of the subgraphs of one superstep: the API names them in its tasks."""
        rest = {key: value for key, value in metadata.items() if key != "parents"}
        parents = list(dict(metadata.get("parents", {})).items())
        if not parents:
            return []
        namespace, checkpoint_id = parents[-1]
        names = {"checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}
        above = yield from self._state(thread_id, names)
        found: list[Mapping[str, Any]] = []
        for task in above["tasks"]:
            below = (task.get("checkpoint") or {}).get("checkpoint_ns")
            if below:
                found += yield from self._history(thread_id, below, rest, None, limit)
        return found[:limit]

    def _answers(
        self, thread_id: str, states: Sequence[Mapping[str, Any]]
    ) -> IOGenerator[Sequence[datetime]]:
        """When a run was started that answered an interrupt; asked only if there is one."""
        if not any(task["interrupts"] for state in states for task in state["tasks"]):
            return []
        times: list[datetime] = []
        offset = 0
        while True:
            runs = yield from self.request("runs.list", thread_id, limit=_PAGE, offset=offset)
            times += [time_of(run) for run in runs if _is_answer(run)]
            offset += len(runs)
            if len(runs) < _PAGE:
                return times


def _is_stored(state: Mapping[str, Any]) -> bool:
    """Whether the state is one of a checkpoint: a thread that never ran has none."""
    return bool((state.get("checkpoint") or {}).get("checkpoint_id"))


def _is_answer(run: Mapping[str, Any]) -> bool:
    command = (run.get("kwargs") or {}).get("command") or {}
    return command.get("resume") is not None


def time_of(value: Mapping[str, Any], key: str = "created_at") -> datetime:
    """When a checkpoint or a run was made, or the time under another key."""
    time = datetime.fromisoformat(str(value[key]))
    return time if time.tzinfo else time.replace(tzinfo=UTC)
