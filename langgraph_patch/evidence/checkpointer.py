"""Query a checkpointer: what is read, and how much one search may read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_patch._langgraph_storage import state_keys, whole_value
from langgraph_patch._sansio import IOGenerator, IORequest, method_request
from langgraph_patch.errors import EvidenceError, MessagesError
from langgraph_patch.evidence.tasks import Step, configured_id, fold, read_step
from langgraph_patch.history.damaged_fields import corrected
from langgraph_patch.history.patch import as_messages

_BUDGET = 100_000
"""How many stored messages one search may load for all its calls: 3 to 5 seconds at most."""

_EACH_CHECKPOINT = 100
"""What a query costs beside the messages that it loads, in messages."""


@dataclass(slots=True)
class Reader:
    """A checkpointer and what all queries of a search share.

    Attributes:
        saver: The checkpointer.
        messages_key: The state key of the history.
        required: Whether to raise if the checkpointer raises. Otherwise the search ends there.
        breakpoints: The nodes before which the graph is set to pause; None for every node.
        budget: How many more messages the search may load.
        error: The first error of the checkpointer, or None.
    """

    saver: BaseCheckpointSaver[Any]
    messages_key: str
    required: bool = False
    breakpoints: frozenset[str] | None = frozenset()
    budget: int = _BUDGET
    error: EvidenceError | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A checkpoint of a graph.

    Attributes:
        step: The superstep after it.
        history: The history before that superstep.
        values: The values of the other state keys.
    """

    step: Step
    history: Sequence[BaseMessage]
    values: Mapping[str, Any]


def read_place(
    reader: Reader, config: RunnableConfig, child: Step | None = None
) -> IOGenerator[Place | None]:
    """The checkpoint that a config names, or the newest one of its namespace; None without one.

    Args:
        reader: The checkpointer.
        config: The thread, the namespace, and perhaps the checkpoint.
        child: The superstep after the next checkpoint of this branch, if there is one.
    """
    saved = yield from _ask(reader, config, method_request(reader.saver, "get_tuple", config))
    return None if saved is None else (yield from _place_of(reader, saved, child))


def _place_of(
    reader: Reader, saved: CheckpointTuple, child: Step | None = None
) -> IOGenerator[Place]:
    history = yield from _history_at(reader, saved)
    reader.budget -= len(history) + _EACH_CHECKPOINT
    stored, key = saved.checkpoint["channel_values"], reader.messages_key
    others = state_keys(set(stored) - {key})
    values = {name: whole_value(stored[name]) for name in others}
    return Place(read_step(saved, key, child), history, values)


def read_older(reader: Reader, step: Step) -> IOGenerator[Place | None]:
    """The checkpoint that the one of a superstep was made from.

    None if there is none, or if nothing more may be read.
    """
    parent, parent_id = step.saved.parent_config, step.parent_id
    is_spent = reader.budget <= 0 or reader.error is not None
    # A checkpoint may name itself as its parent.
    if is_spent or parent is None or parent_id is None or parent_id >= step.id:
        return None
    return (yield from read_place(reader, parent, step))


def _history_at(reader: Reader, saved: CheckpointTuple) -> IOGenerator[list[BaseMessage]]:
    """The history at a checkpoint; empty if the state has none, or something else there."""
    stored, writes = saved.checkpoint["channel_values"].get(reader.messages_key), list[Any]()
    if stored is None and reader.messages_key in saved.checkpoint["channel_versions"]:
        stored, writes = yield from _spread_over_checkpoints(reader, saved)
    try:
        history = [] if stored is None else as_messages(whole_value(stored))
        return [corrected(message) for message in (fold(history, writes) if writes else history)]
    except MessagesError:
        return []  # an older version of the application stored something else there


def _spread_over_checkpoints(
    reader: Reader, saved: CheckpointTuple
) -> IOGenerator[tuple[Any, list[Any]]]:
    """The history of a `DeltaChannel`: its last stored value, and what was written since."""
    key = reader.messages_key
    request = method_request(
        reader.saver, "get_delta_channel_history", config=saved.config, channels=[key]
    )
    found = yield from _ask(reader, saved.config, request)
    delta = found[key] if found else {}
    return delta.get("seed"), [value for _, _, value in delta.get("writes", ())]


def read_input(reader: Reader, step: Step) -> IOGenerator[Place | None]:
    """The newest input that the graph of a superstep got before it; None if none is stored."""

    def is_wanted(saved: CheckpointTuple) -> bool:
        return saved.checkpoint["id"] < step.id and saved.metadata.get("source") == "input"

    options: Any = {"before": step.saved.config, "filter": {"source": "input"}}
    saved = yield from _first(reader, step, is_wanted, limit=1, **options)
    return None if saved is None else (yield from _place_of(reader, saved))


def has_gone_on(reader: Reader, step: Step) -> IOGenerator[bool]:
    """Whether what the tasks of a superstep wrote was applied, in this branch or another one."""

    def is_wanted(saved: CheckpointTuple) -> bool:
        is_next = saved.checkpoint["id"] > step.id and saved.metadata.get("source") == "loop"
        return is_next and configured_id(saved.parent_config) == step.id

    number = step.number + 1
    found = yield from _first(reader, step, is_wanted, filter={"source": "loop", "step": number})
    return found is not None


def _first(
    reader: Reader, step: Step, is_wanted: Callable[[CheckpointTuple], bool], **options: Any
) -> IOGenerator[CheckpointTuple | None]:
    """The first wanted checkpoint of a listing of the namespace of a superstep.

    Not every checkpointer knows all options of `list`.
    """
    place = in_namespace(step.saved.config, step.namespace)

    def read() -> CheckpointTuple | None:
        return next(filter(is_wanted, reader.saver.list(place, **options)), None)

    async def aread() -> CheckpointTuple | None:
        listing: Any = reader.saver.alist(place, **options)
        async with aclosing(listing):  # a database keeps no cursor open
            return await anext((each async for each in listing if is_wanted(each)), None)

    found: CheckpointTuple | None = yield from _ask(reader, place, IORequest(read, aread))
    return found


def in_namespace(
    config: RunnableConfig, namespace: str, checkpoint_id: str | None = None
) -> RunnableConfig:
    """The same thread in another namespace, at a checkpoint or at the newest."""
    names = {"thread_id": config["configurable"]["thread_id"], "checkpoint_ns": namespace}
    return {"configurable": names | ({"checkpoint_id": checkpoint_id} if checkpoint_id else {})}


def _ask(reader: Reader, config: RunnableConfig, request: IORequest) -> IOGenerator[Any]:
    """What a query returns; None if the checkpointer raised."""
    try:
        return (yield request)
    except Exception as error:  # of any checkpointer: unreadable evidence never ends a run
        configurable = config["configurable"]
        failed = EvidenceError(
            f"Thread {configurable.get('thread_id')!r}: the checkpointer raised {error!r} while "
            f"the checkpoints of namespace {configurable.get('checkpoint_ns', '')!r} were read. "
            f"Fix the checkpointer, or set recover=False to repair without it."
        )
        failed.__cause__ = error
        if reader.required:
            raise failed from error
        reader.error = reader.error or failed
        return None
