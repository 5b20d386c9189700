"""Report on the stored threads of a checkpointer, without the code of the application.

A scan only reads. A thread that cannot be read is a report, so it never stops a scan. A failed
database does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_patch._langgraph_storage import task_of_namespace
from langgraph_patch._sansio import (
    IOGenerator,
    IOIterator,
    asynchronous_iterator,
    call_method,
    synchronous_iterator,
)
from langgraph_patch.errors import EvidenceError, OptionError, ThreadError
from langgraph_patch.graph.repairer import Repairer
from langgraph_patch.history.pairing import Reading, read_history
from langgraph_patch.history.patch import Patch, changes_history, patch_reading, read_if_damaged
from langgraph_patch.history.placeholders import is_placeholder
from langgraph_patch.threads.keys import Key, check_saver, list_keys
from langgraph_patch.threads.opening import is_database_failure
from langgraph_patch.threads.plan import RepairOptions, plan_repair
from langgraph_patch.threads.reports import ThreadReport
from langgraph_patch.threads.server import Activity, LangGraphServer, server_of
from langgraph_patch.threads.server_client import ServerClient
from langgraph_patch.threads.stored import (
    age_of,
    as_text,
    asked,
    config_of,
    history_of,
    interrupts_of,
    is_marked,
    reason_of,
    starts_tasks,
    waiting_tasks,
)
from langgraph_patch.threads.target import may_be_empty
from langgraph_patch.threads.turns import lost_turns

_IDS = "the ids of threads, for one thread a list of one"


@synchronous_iterator
def scan_threads(
    saver: BaseCheckpointSaver[Any] | ServerClient,
    *,
    messages_key: str = "messages",
    thread_ids: Iterable[str] | None = None,
    include: Callable[[str], bool] | None = None,
    since: datetime | None = None,
) -> IOIterator[ThreadReport]:
    """Report on every thread of a checkpointer, and on every namespace in it that later runs read.

    A namespace of one run of a node (`node:<task id>`) is not read again when that run is over.
    It is reported only while it waits for a human. What an agent in it did, if an input dropped
    its run, is missing in the graph above, whose report says so. `ascan_threads` is the same for
    an asynchronous checkpointer or client: iterate over it with `async for`.

    A scan makes one query for each history. A thread with subgraphs takes one more, for its newest
    input. Older checkpoints are read only if a history is damaged, or if that input ended tasks.

    Args:
        saver: The checkpointer. It is only read. For the threads of a LangGraph Server: the
            client (`langgraph_sdk.get_sync_client`), or a `LangGraphServer`, which filters them.
        messages_key: The state key of the history. Default: `"messages"`.
        thread_ids: The ids of the threads to report on; needed if the checkpointer cannot list its
            threads. Default: all threads.
        include: A function that takes the id of a thread and returns whether to report on it.
            Other threads are not read. Default: all threads.
        since: Report only on histories that were written to at this time or later. A time without
            a zone is UTC. Default: all times.

    Yields:
        The reports, by thread, and for each thread by namespace. Each report is made when it is
        asked for, and none is kept in memory.

    Raises:
        ThreadError: If one of `thread_ids` does not exist, or if the database cannot list its
            threads.
        OptionError: If an option has an invalid value, or if the checkpointer has only the other
            form, synchronous or asynchronous.

    Examples:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph_patch.threads import scan_threads
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> builder = StateGraph(MessagesState)
        >>> _ = builder.add_node("model", lambda state: {"messages": [
        ...     AIMessage("", tool_calls=[call]), HumanMessage("never mind")]})
        >>> graph = builder.set_entry_point("model").compile(checkpointer=InMemorySaver())
        >>> _ = graph.invoke({"messages": []}, {"configurable": {"thread_id": "1"}})
        >>> [str(report) for report in scan_threads(graph.checkpointer)]
        ["'1': damaged - inserted 'wire' 'c1' (unknown)"]
    """
    target: Any = server_of(saver) or saver
    check_saver(target)
    options = RepairOptions(repairer=Repairer(messages_key=messages_key, recover="required"))
    if include is not None and not callable(include):
        raise OptionError(f"include={include!r:.200}: expected a function of a thread id.")
    if since is not None:
        if not isinstance(since, datetime):
            raise OptionError(f"since={since!r:.200}: expected a datetime.")
        since = since if since.tzinfo else since.replace(tzinfo=UTC)
    ids = None if thread_ids is None else _checked_ids(thread_ids)
    return _reports(_Reader(target, options, since), ids, include)


ascan_threads = asynchronous_iterator(scan_threads)
"""Report on threads as `scan_threads` does, over an asynchronous checkpointer or client."""


def _checked_ids(thread_ids: Iterable[str]) -> Sequence[str]:
    """The ids of the chosen threads, each once, in the order of a scan."""
    ids = None
    if isinstance(thread_ids, Iterable) and not isinstance(thread_ids, str | bytes):
        ids = list(thread_ids)
    if ids is None or not all(isinstance(each, str) for each in ids):
        raise OptionError(f"thread_ids={thread_ids!r:.200}: expected {_IDS}.")
    return sorted(set(ids))


# --- the keys ----------------------------------------------------------------------------


def _reports(
    reader: _Reader, ids: Sequence[str] | None, include: Callable[[str], bool] | None
) -> IOIterator[ThreadReport]:
    yield reader.list_keys(ids)
    for key in reader.keys:
        if include is None or include(key.thread_id):
            yield reader.report(key)


def _keys_of(saver: BaseCheckpointSaver[Any], ids: Sequence[str]) -> IOGenerator[list[Key]]:
    keys: list[Key] = []
    for thread_id in ids:
        found: list[Key] = []
        with suppress(UnicodeEncodeError):  # no database can hold such an id
            found = yield from list_keys(saver, thread_id)
        if not found:
            raise ThreadError(f"There is no thread {thread_id!r}.")
        keys += found
    return keys


# --- one history -------------------------------------------------------------------------


@dataclass(slots=True)
class _Reader:
    """Reads the histories of a checkpointer, sorted by thread and namespace.

    Attributes:
        saver: The checkpointer.
        options: The options of a repair.
        since: Report on nothing older; None for all.
        thread_id: The thread that is read.
        tasks: Its tasks that wait for a human.
        interrupts: The interrupts of its root graph.
        keys: The keys of all histories.
        with_subgraphs: The threads that have namespaces of subgraphs.
    """

    saver: Any
    options: RepairOptions
    since: datetime | None
    thread_id: str | None = None
    tasks: set[str] = field(default_factory=set)
    interrupts: set[str] = field(default_factory=set)
    keys: Sequence[Key] = ()
    with_subgraphs: Collection[str] = ()

    def list_keys(self, ids: Sequence[str] | None) -> IOGenerator[None]:
        """Find the keys of all histories, or of those of some threads."""
        self.keys = yield from list_keys(self.saver) if ids is None else _keys_of(self.saver, ids)
        self.with_subgraphs = {key.thread_id for key in self.keys if key.namespace}

    def report(self, key: Key) -> IOGenerator[ThreadReport | None]:
        """The report on one history; None if no later run reads it, or if it is older."""
        if key.thread_id != self.thread_id:
            self.thread_id, self.tasks, self.interrupts = key.thread_id, set(), set()
        try:
            task = task_of_namespace(key.namespace)
            if task is not None and task not in self.tasks:
                return None
            return (yield from self._report(key))
        except Exception as error:  # any: what is stored may make every constructor fail
            if is_database_failure(error):
                raise
            return ThreadReport(*as_text(key), "unreadable", reason=reason_of(error))

    def _report(self, key: Key) -> IOGenerator[ThreadReport | None]:
        saved: CheckpointTuple | None = yield from call_method(
            self.saver, "get_tuple", config_of(key)
        )
        if saved is None:
            if (yield from may_be_empty(self.saver, key)):
                return ThreadReport(*key, "healthy")
            raise ThreadError("it was deleted during the scan")
        activity = yield from self._activity(key, saved)
        age = age_of(saved)
        if self.since and datetime.now(UTC) - timedelta(seconds=age) < self.since:
            return None
        history = yield from history_of(self.saver, saved, self.options.messages_key)
        report = ThreadReport(
            *key,
            "healthy",
            checkpoint_id=saved.checkpoint["id"],
            age=age,
            messages=None if history is None else len(history),
            repaired=is_marked(saved),
        )
        reading = _read(history or [], leaves_open=activity is not None)
        defects = patch_reading(reading).changes if reading else ()
        if activity == "waiting":
            return replace(report, status="paused", defects=defects, asks=asked(saved))
        if activity and not defects:
            return report
        try:
            patch = yield from self._patch(saved, history or [], reading)
        except EvidenceError as error:
            cause = error.__cause__ or error
            reason = f"its older checkpoints cannot be read: {reason_of(cause)}"
            report = replace(report, reason=reason)
            patch = patch_reading(replace(reading, leaves_open=False)) if reading else None
        if patch is None or not changes_history(patch):
            return report
        defects = (*(c for c in patch.changes if c.defect == "abandoned"), *defects)
        return replace(report, status="damaged", defects=defects, patch=patch)

    def _patch(
        self,
        saved: CheckpointTuple,
        history: list[BaseMessage],
        reading: Reading | None,
    ) -> IOGenerator[Patch | None]:
        """The repair of a history; None if there is none."""
        key, turns = self.options.messages_key, []
        if saved.config["configurable"]["thread_id"] in self.with_subgraphs:
            turns = yield from lost_turns(self.saver, saved, history, key)
        if reading is None and not turns:
            return None
        plan = plan_repair(self.saver, saved.config, history, self.options, turns=turns)
        return (yield from plan).patch

    def _activity(self, key: Key, saved: CheckpointTuple) -> IOGenerator[Activity | None]:
        """Whether a human may still answer or, on a server, a run is in progress."""
        if isinstance(self.saver, LangGraphServer):
            if starts_tasks(saved):
                return (yield from self.saver.activity(saved))
            return None
        interrupts = interrupts_of(saved)
        if not key.namespace:
            self.interrupts = interrupts
        if not interrupts & self.interrupts:  # an answer comes through the root graph only
            return None
        self.tasks.update(waiting_tasks(saved))
        return "waiting"


def _read(history: list[BaseMessage], *, leaves_open: bool) -> Reading | None:
    """A history that a repair may change: it has a defect, or a placeholder to search for."""
    reading = read_if_damaged(history, leaves_open=leaves_open)
    if reading is None and any(m.additional_kwargs and is_placeholder(m) for m in history):
        return read_history(history, leaves_open=leaves_open)
    return reading
