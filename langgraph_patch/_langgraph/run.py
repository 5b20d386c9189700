"""The run that a node belongs to, read from what LangGraph passes it in its config.

LangGraph passes a node its checkpointer and its channels in `config["configurable"]`, under keys
that start with `__pregel_`. No public API provides them. A `Run` reads them and what they lead to
(`details.toml`); without one it has None or an empty value, and the run goes on. The first run of a
process looks at all of them, so that what is missing is told before a human is asked.

`tests/graph/test_langgraph.py` fails if LangGraph changes a detail that no other test would notice.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import sys
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MethodType
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.channels.base import BaseChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import INTERRUPT, TASKS
from langgraph.config import get_config
from langgraph.runtime import get_runtime

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.address import Address
from langgraph_patch._langgraph.details import TOLD, check, read
from langgraph_patch._langgraph.nodes import Nodes
from langgraph_patch._sansio import IOGenerator, IORequest

_NODE = "langgraph_node"
"""The metadata key with the name of the node that runs. It is absent outside of a node."""

_UNSEEN = {"details"}
"""What no run of this process has looked at yet."""

_KEPT: dict[int, dict[object, Any]] = {}
"""What `_kept_with` returns, by the id of the object with which it goes."""


class Run:
    """The run of a graph, as the node, the router or the `@task` that runs sees it.

    Args:
        config: What LangGraph passes to it; outside of a graph, any other config.

    Attributes:
        config: The same.
    """

    def __init__(self, config: RunnableConfig) -> None:
        self.config = config
        self._own: Mapping[str, Any] = config.get("configurable", {})
        self._metadata: Mapping[str, Any] = config.get("metadata", {})
        if _UNSEEN and self._is_task:
            _UNSEEN.clear()
            check("config", self._own)
            check("scratchpad", *filter(None, [self._scratchpad]))
            for name in [name for name, each in vars(Run).items() if isinstance(each, property)]:
                getattr(self, name)

    @classmethod
    def current(cls) -> Run:
        """The run in which the caller is; one without anything outside of a graph."""
        try:
            return cls(get_config())
        except RuntimeError:
            return cls({})

    def _of_task(self, name: str, kind: Any = object) -> Any:
        """A detail of the task that runs; None outside of a graph, where none is missing."""
        place, _, key = name.partition(".")
        own = self._metadata if place == "metadata" else self._own
        return read(own, name, kind) if key in own or self._is_task else None

    @property
    def _is_task(self) -> bool:
        return _NODE in self._metadata and any(key.startswith("__pregel_") for key in self._own)

    @property
    def lacks(self) -> str:
        """What was told of private details that this LangGraph does not have."""
        return " ".join(TOLD)

    @property
    def saver(self) -> BaseCheckpointSaver[Any] | None:
        saver = self._of_task("config.__pregel_checkpointer") or self._of_loop("checkpointer")
        return saver if isinstance(saver, BaseCheckpointSaver) else None

    @property
    def inner_saver(self) -> Any:
        """The same; that of the application (`langgraph.json`), behind the adapter of a server."""
        inner = getattr(self.saver, "_inner", None)
        is_adapter = type(self.saver).__module__.startswith("langgraph_api.")
        return inner if is_adapter and isinstance(inner, BaseCheckpointSaver) else self.saver

    @property
    def is_on_server(self) -> bool:
        """Whether a LangGraph Server runs it, where a thread has one run at a time."""
        is_server = "langgraph_api" in sys.modules  # what LangGraph tells is what a config says
        return is_server and getattr(get_runtime(), "server_info", None) is not None

    @property
    def writes_at_exit(self) -> bool:
        """Whether nothing is written before the run ends (durability "exit")."""
        return self._own.get("__pregel_durability") == "exit"

    # --- the thread ----------------------------------------------------------------------

    @property
    def thread_id(self) -> Any:
        """The id of the thread, as the caller gave it; None without one."""
        return self._own.get("thread_id")

    @property
    def thread(self) -> Address | None:
        """The address of the graph in its thread; None without a thread.

        It names the current checkpoint. With durability "exit" that one is not stored yet, so it
        names the checkpoint that the caller started the run from, if any.
        """
        if self.thread_id is None:
            return None
        current: Any = self.place.get(self.namespace)
        if self.writes_at_exit:
            current = None if self.namespace else self._metadata.get("checkpoint_id")
        checkpoint_id = current if isinstance(current, str) else None
        return Address(str(self.thread_id), self.namespace, checkpoint_id)  # as it is stored

    @property
    def place(self) -> Mapping[str, str]:
        """The current checkpoint of each graph from the root to this one, by its namespace."""
        inside, found = f"{self.namespace}|", self._of_task("config.checkpoint_map", dict)
        if found is None and (checkpoint := self._of_loop("checkpoint", dict)):
            found = {inside[:-1]: checkpoint["id"]}
        places = (found or {}).items()
        return {ns: str(each) for ns, each in places if not ns or inside.startswith(f"{ns}|")}

    @property
    def namespace(self) -> str:
        """The namespace of the graph that the node or the `@task` belongs to.

        A node's own namespace is that of its graph and one more segment, `node:task_id`. A `@task`
        has one more segment than the node or the task that called it.
        """
        namespace = str(self._own.get("checkpoint_ns", ""))
        path: Sequence[Any] = self._of_task("metadata.langgraph_path", (tuple, list)) or ()
        while tuple(path[:1]) == (storage.PUSH,) and path[-1] is True:
            namespace, path = storage.parent_namespace(namespace), path[1]
        return storage.parent_namespace(namespace)

    # --- the state -----------------------------------------------------------------------

    @property
    def channels(self) -> Mapping[str, Any]:
        """The live channels of the graph; none outside of a graph."""
        arguments = getattr(self._own.get("__pregel_read"), "args", ())
        for each in (each for each in arguments if isinstance(each, Mapping)):
            if isinstance(next(iter(each.values()), None), BaseChannel):
                return each
        return self._of_loop("channels", Mapping) or {}

    def values(self, keys: Collection[str]) -> dict[str, Any]:
        """The values of these state keys, as far as they have one; none outside of a graph.

        Managed values, such as `remaining_steps`, are found too.
        """
        with suppress(KeyError, TypeError):
            return dict(self._own["__pregel_read"](list(keys)))
        found = self.channels
        return {key: found[key].get() for key in keys if key in found and found[key].is_available()}

    def value_after(self, key: str) -> Any:
        """The value of a state key after the writes of the task; None if it has none.

        A conditional edge decides by it. The reducer gets a copy of the value: LangGraph's own read
        gives it the live one, and a reducer that extends its list in place then stores each write
        twice.
        """
        if (channel := self.channels.get(key)) is None:
            return None
        if written := [value for name, value in self._writes or () if name == key]:
            value = copy.copy(channel.get()) if channel.is_available() else None
            channel = channel.copy() if value is None else channel.from_checkpoint(value)
            channel.update(written)
        return channel.get() if channel.is_available() else None

    # --- the task and its superstep ------------------------------------------------------

    @property
    def node(self) -> str | None:
        """The name of the node that runs; None outside of a graph."""
        name = self._metadata.get(_NODE)
        return name if isinstance(name, str) else None

    @property
    def has_asked(self) -> bool:
        """Whether the node has come to an `interrupt()`: it went on, so there was an answer.

        To run the node once more would ask the same question again.
        """
        return self._has_counted("scratchpad.interrupt_counter") and bool(self.answers)

    @property
    def has_begun_tasks(self) -> bool:
        """Whether the node that runs has called a `@task`: no callback shows it."""
        return self._has_counted("scratchpad.call_counter")

    def _has_counted(self, name: str) -> bool:
        # If LangGraph has changed the counter, it counts as used: nothing is done twice.
        counter = read(self._scratchpad, name)
        return self._is_task and read(counter, "counter._counter", default=name) is not None

    @property
    def kept(self) -> dict[object, Any]:
        """What is kept as long as the task lives, through all attempts of a retry policy."""
        return _kept_with(self._writes)

    @property
    def kept_by_graph(self) -> dict[object, Any]:
        """What is kept as long as this run of the graph lives, for all its tasks."""
        return _kept_with(self._loop)

    @property
    def answers(self) -> list[Any]:
        """The recorded answers to the `interrupt()`s of the task, of this run or before.

        One that names its interrupt is there before the node has come to its question.
        """
        unknown = [uuid.uuid4().hex] if self._is_task else []  # it is none that another run got
        return [*read(self._scratchpad, "scratchpad.resume", list, unknown)]

    @property
    def _scratchpad(self) -> Any:
        return self._of_task("config.__pregel_scratchpad")

    def asked_in(self, writes: Iterable[tuple[str, str, Any]]) -> list[Any]:
        """What the task has asked, by the pending writes of its checkpoint."""
        own = str(self._own.get("checkpoint_ns", "")).rpartition(":")[2], INTERRUPT
        return [each for task, channel, value in writes if (task, channel) == own for each in value]

    @property
    def new_answers(self) -> list[Any]:
        """Other answers that this run got: one without an interrupt id, those to what waits."""
        waiting = uuid.uuid4().hex if self._is_task else None  # it is none that another run got
        with suppress(TypeError):
            waiting = read(self._scratchpad, "scratchpad.get_null_resume")(consume=False)
        by_id = self._own.get("__pregel_resume_map")
        asked = [each for _, key, value in self.loaded_writes if key == INTERRUPT for each in value]
        ids = {getattr(each, "id", None) for each in asked}
        answers = by_id.items() if isinstance(by_id, Mapping) else ()
        own = {id(answer) for answer in self.answers}  # those that the task itself has got
        named = [answer for name, answer in answers if name in ids and id(answer) not in own]
        return [*([] if waiting is None else [waiting]), *named]

    @property
    def send_index(self) -> int | None:
        """The index of the `Send` that made the task, among all of the superstep; None if none."""
        return storage.send_index(self._of_task("metadata.langgraph_path", (tuple, list)) or ())

    @property
    def sends(self) -> Sequence[Any]:
        """The `Send`s that made tasks of the superstep, in their order."""
        channel = self.channels.get(TASKS)
        return channel.get() if channel is not None and channel.is_available() else ()

    @property
    def started_nodes(self) -> set[str]:
        """The nodes that edges and routers started in the superstep; none outside of a graph.

        The channels that trigger nodes have a value for one superstep.
        """
        return {
            node
            for name, channel in self.channels.items()
            if (node := storage.triggered_node(name)) is not None and channel.is_available()
        }

    @property
    def is_alone(self) -> bool:
        """Whether no other task runs in the superstep of the node; True outside of a graph.

        The tasks that a `Send` makes are in a channel of their own.
        """
        tasks = len(self.started_nodes) + len(self.sends)
        return tasks == 1 or not (tasks or self._is_task)

    def is_node(self, runnable: object) -> bool:
        """Whether LangGraph runs `runnable` as the node; True in a node of which it shows nothing.

        A function that is the node may call others with the same config. A graph that is a node has
        its wrapper as `wrapper`.
        """
        reference = next(iter(getattr(self._call, "args", ())), None)
        task = reference() if isinstance(reference, weakref.ref) else None
        process = read(task, "task.proc")
        node = next(iter(getattr(process, "steps", ())), process)
        wrapper = getattr(node, "wrapper", None)
        return self.node is not None and (node is None or runnable is node or runnable is wrapper)

    def show_in_updates(self, value: Any) -> None:
        """Make the `updates` stream show `value` as the chunk of the node.

        LangGraph uses the reserved channel `__return__` for `@task` functions, and ignores the
        write when it computes the state. Call it only when nothing can fail any more: LangGraph
        takes a task with this write as finished.
        """
        send = self._of_task("config.__pregel_send")
        if callable(send):
            self._drop(lambda channel, _: channel == storage.RETURN)  # the first one is shown
            send([(storage.RETURN, value)])

    # --- what the task writes ------------------------------------------------------------

    @property
    def _writes(self) -> deque[tuple[str, Any]] | None:
        arguments = getattr(self._own.get("__pregel_read"), "args", ())
        task = next((each for each in arguments if hasattr(each, "writes")), None)
        if task is None and self._is_task:
            task = object()  # so that what it lacks is told
        writes: deque[tuple[str, Any]] | None = read(task, "task.writes", deque)
        return writes

    @property
    def written(self) -> list[tuple[str, Any]]:
        """The state keys and values that the task has written before its node returns.

        `push_message` and `push_ui_message` do. What `write_first` wrote is left out.
        """
        writes = [(key, value) for key, value in self._writes or () if key in self.channels]
        first = {key: self.written_first(key) for key, _ in writes}
        return [(k, value) for k, value in writes if not any(value is each for each in first[k])]

    def written_first(self, key: str) -> list[Any]:
        """What `write_first` wrote; nothing of an attempt that failed."""
        written = [value for _, value in self._writes or ()]
        first = self.kept.get(("first", key), ())
        return [value for value in first if any(value is each for each in written)]

    @property
    def can_write_first(self) -> bool:
        """Whether `write_first` can write."""
        return self._writes is not None

    def write_first(self, key: str, values: Sequence[Any]) -> None:
        """Write values before everything else that the task writes.

        They take the place of those that were written so before.
        """
        if (writes := self._writes) is None:
            return
        before = self.written_first(key)
        self._drop(lambda _, value: any(value is each for each in before))
        self.kept["first", key] = values
        writes.extendleft((key, value) for value in reversed(values))

    def drop_writes(self) -> None:
        """Drop what the task has written, as LangGraph does before it runs a node again."""
        self._drop(lambda *_: True)

    def _drop(self, is_dropped: Callable[[str, Any], bool]) -> None:
        if (writes := self._writes) is not None:
            left = [each for each in writes if not is_dropped(*each)]
            writes.clear()
            writes.extend(left)

    # --- the loop ------------------------------------------------------------------------

    @property
    def _call(self) -> Any:
        call = self._own.get("__pregel_call")
        if not inspect.isfunction(call):
            return call
        inside = inspect.getclosurevars(call).nonlocals.values()
        return next((each for each in inside if isinstance(each, partial)), call)

    @property
    def _loop(self) -> Any:
        schedule = read(getattr(self._call, "keywords", None), "call.schedule_task", MethodType)
        return getattr(schedule, "__self__", None)

    def _of_loop(self, name: str, kind: Any = object) -> Any:
        return read(self._loop, f"loop.{name}", kind)

    def stored(self) -> IOGenerator[bool]:
        """Wait until the current checkpoint is stored: LangGraph goes on while it is written.

        Returns:
            Whether it is; False if that cannot be known.

        Raises:
            Exception: What the checkpointer raised.
        """
        storing = getattr(self._loop, "_put_checkpoint_fut", None)  # none before the first one
        if storing is not None:
            # A synchronous call in an asynchronous run cannot wait for what the event loop does.
            with suppress(asyncio.InvalidStateError):
                yield IORequest(storing.result, lambda: asyncio.shield(storing))
                return True
        return self._is_loaded or (yield from storage.is_found(self.saver, self.thread))

    @property
    def _is_loaded(self) -> bool:
        """Whether the current checkpoint is the one from which the run started."""
        return self.loaded_checkpoint == self.place.get(self.namespace, "")

    @property
    def may_be_begun(self) -> bool:
        """Whether another run may have begun the tasks of the current checkpoint before this one.

        It may not have if this run made the checkpoint, from what a superstep wrote.
        """
        return self._is_loaded or self._is_edited or self.loaded_checkpoint is None

    def may_have_unread_results(self) -> bool:
        """Whether results may be recorded that the state does not have.

        An input, an update of the state or a fork drops tasks with what they have written. Tasks
        that wait run beside a node that a client's `goto` starts. Once it is so in a run of the
        graph, it stays so until a search finds nothing: a node may read a result and not write it.
        """
        triggers = [storage.triggered_node(channel) for _, channel, _ in self.loaded_writes]
        is_started_by_client = self._is_loaded and self.node in triggers
        has_dropped = self._is_edited or self.input_ended_tasks
        kept = self.kept_by_graph
        kept["unread"] = kept.get("unread") or is_started_by_client or has_dropped
        return self.saver is not None and bool(kept["unread"])

    def note_search(self, *, has_found: bool) -> None:
        """Note whether a search for results that the state does not have has found some."""
        self.kept_by_graph["unread"] = has_found

    @property
    def _source(self) -> Any:
        """What made the current checkpoint: an input, a superstep (`loop`), an update, a fork."""
        return (self._of_loop("checkpoint_metadata", dict) or {}).get("source")

    @property
    def _is_edited(self) -> bool:
        """Whether something else than a superstep made the current checkpoint, or may have."""
        return bool(self._source != "loop")

    @property
    def loaded_writes(self) -> Sequence[tuple[str, str, Any]]:
        """The pending writes of the current checkpoint, as far as this run knows them."""
        return [*(self._of_loop("checkpoint_pending_writes", list) or ())]

    @property
    def nodes(self) -> Nodes:
        """The nodes of the graph; none outside of a graph."""
        return Nodes(self._of_loop("nodes", Mapping) or {}, self.namespace)

    @property
    def input_ended_tasks(self) -> bool:
        """Whether the newest input ended tasks that had not been applied, and none started since.

        No public API tells this without a query.
        """
        checkpoint = self._of_loop("checkpoint", dict) or {}
        return storage.has_ended_tasks(checkpoint, is_input=self._source == "input")

    @property
    def loaded_checkpoint(self) -> str | None:
        checkpoint_id: str | None = self._of_loop("checkpoint_id_saved", str)
        return checkpoint_id


def _kept_with(owner: Any) -> dict[object, Any]:
    """What is kept as long as an object lives; nothing if there is none."""
    if owner is None:
        return {}
    own: dict[object, Any] = {}
    kept = _KEPT.setdefault(id(owner), own)  # in one step: tasks of one run may be in threads
    if kept is own:
        weakref.finalize(owner, _KEPT.pop, id(owner))
    return kept
