"""The private details of what LangGraph stores: channels, tasks, namespaces and checkpoints.

A `CheckpointTuple` is public; what its channel values, versions and ids mean is not documented.
LangGraph stores them in databases, so it cannot change them without breaking old threads.

`tests/graph/test_langgraph.py` fails if LangGraph changes a detail that no other test would notice.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, Final, TypeAlias

from langgraph import channels, types
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import TASKS
from langgraph.graph import START
from langgraph.types import Interrupt

from langgraph_patch._langgraph.address import Address
from langgraph_patch._langgraph.details import read
from langgraph_patch._sansio import IOGenerator, IORequest, method_request

# --- channels -----------------------------------------------------------------------------

ROOT_CHANNEL: Final = "__root__"
"""The only channel of a graph with a single value as its state, such as a list of messages."""

RETURN: Final = "__return__"
"""The channel of what a functional task returned."""

ERROR_SOURCE: Final = "__error_source_node__"
"""The channel that names the node that an error came from."""

_TRIGGER_PREFIXES = ("branch:to:", "join:")
"""Channels of a compiled graph that trigger a node: `branch:to:<node>`, `join:<nodes>:<node>`."""


def is_reserved(channel: str) -> bool:
    """Whether a channel is LangGraph's own, such as `__interrupt__` or `__pregel_tasks`."""
    return channel.startswith("__")


def triggered_node(channel: str) -> str | None:
    return channel.rpartition(":")[2] if channel.startswith(_TRIGGER_PREFIXES) else None


def joined_nodes(channel: str) -> list[str]:
    """The nodes that a join waits for before it triggers its node; none for any other channel."""
    if not channel.startswith(_TRIGGER_PREFIXES[1]):
        return []
    return channel[len(_TRIGGER_PREFIXES[1]) :].rpartition(":")[0].split("+")


def trigger_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the channels that may start tasks, of those of a checkpoint.

    A channel of a deferred node has its value beside a flag: whether the graph has come to its end.
    Until then it starts nothing, and is left out.
    """
    found = {}
    for channel, value in values.items():
        if channel == TASKS:
            found[channel] = value
        elif triggered_node(channel) is not None:
            is_deferred = isinstance(value, tuple | list) and len(value) == _WITH_FLAG
            if not is_deferred or value[1] is not False:
                found[channel] = value[0] if is_deferred else value
    return found


_WITH_FLAG = 2


def due_channels(values: Mapping[str, Any]) -> list[str]:
    """The channels that start tasks, of the values of a checkpoint.

    A join that still waits for some of its nodes starts none. Its value are the nodes that ran.
    """
    return [
        channel
        for channel, value in trigger_values(values).items()
        if (value if channel == TASKS else not _still_joins(channel, value))
    ]


def _still_joins(channel: str, value: object) -> bool:
    return isinstance(value, set) and value < {*joined_nodes(channel)}


def trigger_channel(node: str) -> str:
    """The channel with which an edge triggers a node."""
    return f"{_TRIGGER_PREFIXES[0]}{node}"


def state_keys(names: Iterable[str]) -> list[str]:
    """The keys of the state among the channels of a graph, sorted.

    The other channels trigger nodes or are reserved.
    """
    return sorted(name for name in names if not (triggered_node(name) or is_reserved(name)))


# --- tasks --------------------------------------------------------------------------------

PUSH: Final = "__pregel_push"
"""The first part of the path of a task that a `Send` or a `@task` created."""

NO_TASK: Final = "00000000-0000-0000-0000-000000000000"
"""The task id of a write that no task made, such as an answer without an interrupt id."""


def send_index(path: Sequence[object]) -> int | None:
    """The index of the `Send` that made the task with this path, or None if no `Send` did."""
    if len(path) > 1 and path[0] == PUSH and isinstance(path[1], int):
        return path[1]
    return None


# --- namespaces: `node:task_id`, joined by `|` --------------------------------------------


def task_of_namespace(namespace: str) -> str | None:
    """The task that a namespace belongs to; None if the namespace lasts longer than a task.

    Parts are separated by `|`. A part is `node:task_id`, or `node` for a subgraph that keeps
    its state between runs.

    Examples:
        >>> from langgraph_patch._langgraph.storage import task_of_namespace
        >>> task_of_namespace("agent:7f3a"), task_of_namespace("agent")
        ('7f3a', None)
    """
    return namespace.rpartition(":")[2] if ":" in namespace else None


def nodes_of_namespace(namespace: str) -> list[str]:
    """The nodes on the way from the root graph to a node, the node itself last.

    Where one node calls several subgraphs, LangGraph adds a number as a segment of its own.
    """
    segments = namespace.split("|") if namespace else []
    return [each.partition(":")[0] for each in segments if not each.isdecimal()]


def parent_namespace(namespace: str) -> str:
    return namespace.rpartition("|")[0]


def own_interrupt_id(namespace: str, answers: int = 0) -> str:
    """The id of an interrupt that a task raised itself, when it had so many answers.

    LangGraph derives it from the namespace of the task, and from the answers if it numbers
    questions.
    """
    ns = f"{namespace}|{answers}" if answers else namespace
    with suppress(TypeError):
        return str(read(Interrupt, "Interrupt.from_ns")(value=None, ns=ns).id)
    return ""


_id_of_question: Any = getattr(types, "_interrupt_id", None)

NUMBERS_QUESTIONS: Final = _id_of_question is not None and _id_of_question(
    "a:b", 1
) == own_interrupt_id("a:b", 1)
"""Whether each question of a task has an id of its own; in old versions all have that of the first.

Without it a task that failed behind an answer looks like one that failed, ran again and asks its
next question.
"""


# --- checkpoints --------------------------------------------------------------------------

NEWEST_FORMAT: Final = 4
"""The newest supported `checkpoint["v"]`, the format of a checkpoint."""

_UUID6 = 6
"""Checkpoint ids are UUIDs of version 6: their order is the order of time."""

_DELTA_CHANNEL: Any = getattr(channels, "DeltaChannel", ())
"""The channel that stores its writes and only now and then its value; old versions lack it."""


def accepted_input(saved: CheckpointTuple) -> Any:
    """The input of a run that is stored and not yet applied to the state; None if there is none."""
    return saved.checkpoint["channel_values"].get(START)


def is_found(saver: Any, address: Address | None) -> IOGenerator[bool]:
    """Whether a checkpointer has the checkpoint that an address names, or has it soon."""
    if saver is None or address is None or address.checkpoint_id is None:
        return False
    for wait in WAITS:
        yield IORequest(partial(time.sleep, wait), partial(asyncio.sleep, wait))
        if (yield method_request(saver, "get_tuple", address.config)) is not None:
            return True
    return False


WAITS = (0, 0.01, 0.1, 1)
"""How many seconds are waited for a checkpoint, before each look."""


def has_ended_tasks(checkpoint: Mapping[str, Any], *, is_input: bool) -> bool:
    """Whether the newest input ended tasks that had not been applied, and none started since.

    LangGraph gives all channels that an input touches one new version: its own, and those that
    started the tasks that it drops. START notes the version that it has seen.

    Args:
        checkpoint: The checkpoint of the input, or one that was made after it.
        is_input: Whether it is that of the input: START has not run.
    """
    versions = checkpoint.get("channel_versions", {})
    seen = versions if is_input else checkpoint.get("versions_seen", {}).get(START, {})
    started = [v for c, v in versions.items() if c == TASKS or triggered_node(c) is not None]
    return START in seen and seen[START] in started


def nodes_of_turn(saved: CheckpointTuple) -> set[str]:
    """The nodes that ran between the newest input and a checkpoint, as far as edges triggered them.

    A node notes the version of the channel that triggered it, and START that of the input.
    """
    seen = saved.checkpoint.get("versions_seen") or {}
    begun: Any = seen.get(START, {}).get(START)
    return {
        node
        for node, versions in seen.items()
        for channel, version in versions.items()
        if triggered_node(channel) == node and (begun is None or version > begun)
    }


def is_node_timeout(error: str) -> bool:
    """Whether the `repr` of an error is that of LangGraph's for a node that took too long.

    A synchronous node goes on after that.
    """
    return error.startswith("NodeTimeoutError(")


def later_checkpoint_id(checkpoint_id: str, ticks: int) -> str | None:
    """A checkpoint id that is `ticks` times 100 ns later; None if it is not a UUID of LangGraph's.

    Examples:
        >>> from langgraph_patch._langgraph.storage import later_checkpoint_id
        >>> later_checkpoint_id("1ef4f797-8335-6428-8001-8a1503f9b875", 1)
        '1ef4f797-8335-6429-8001-8a1503f9b875'
    """
    try:
        old = uuid.UUID(checkpoint_id)
    except ValueError:
        return None
    if old.version != _UUID6:
        return None
    # 48 bits of the time, 4 of the version, 12 of the time, 64 of others.
    ticked = (old.int >> 80 << 12 | (old.int >> 64) & 0xFFF) + ticks
    rest = old.int & (2**64 - 1)
    return str(uuid.UUID(int=(ticked >> 12) << 80 | _UUID6 << 76 | (ticked & 0xFFF) << 64 | rest))


# --- values that a `DeltaChannel` spreads over checkpoints --------------------------------


def is_delta_channel(channel: Any) -> bool:
    """Whether the value of a channel is spread over the writes of many checkpoints."""
    return isinstance(channel, _DELTA_CHANNEL)


_COUNTERS = "counters_since_delta_snapshot"
"""The metadata that counts, for each `DeltaChannel`, the writes since its value was stored."""


def is_spread(saved: CheckpointTuple, channel: str) -> bool:
    """Whether a value that a checkpoint does not have is spread over older ones, and not lost."""
    return channel in _counters(saved)


def counters_of(saved: CheckpointTuple, stored: str) -> dict[str, Any]:
    """The metadata of a checkpoint after another one that stores the whole value of a channel."""
    kept = {channel: count for channel, count in _counters(saved).items() if channel != stored}
    return {_COUNTERS: kept} if kept else {}


def _counters(saved: CheckpointTuple) -> Mapping[str, Any]:
    metadata: Any = saved.metadata or {}
    return metadata.get(_COUNTERS) or {}


def whole_value(value: Any) -> Any:
    """A stored value, taken out of the snapshot that a `DeltaChannel` stores now and then."""
    # The snapshot is a named tuple, so it is a sequence too.
    return value if isinstance(value, list) else getattr(value, "value", value)


# --- the connection of a `PostgresSaver` --------------------------------------------------


@contextmanager
def postgres_cursor(saver: Any) -> Iterator[Any]:
    """A cursor in a transaction of its own, over the connection of a `PostgresSaver`.

    The saver has no public way to run a statement. If its attributes change, this raises an error
    before anything is read or written.

    Args:
        saver: The checkpointer; its connection may be one of a pool.
    """
    lock, conn = saver.lock, saver.conn
    connected = conn.connection() if hasattr(conn, "getconn") else nullcontext(conn)
    with lock, connected as own, own.transaction(), own.cursor() as cursor:
        yield cursor


Loader: TypeAlias = Callable[[Any], CheckpointTuple | None]
"""Takes a checkpointer, and returns the newest checkpoint of one history, if there is one."""


def load_newest(address: Address, saver: Any) -> CheckpointTuple | None:
    """The newest checkpoint of a history, read alone."""
    found: CheckpointTuple | None = saver.get_tuple(address.config)
    return found


def newest_of_postgres(saver: Any, addresses: Sequence[Address]) -> dict[Address, Loader]:
    """Read the newest checkpoints of histories in PostgreSQL, in one statement.

    LangGraph reads them one by one. This takes the statement and the way from a row to a checkpoint
    of the saver itself; if they are gone, it finds nothing. A checkpoint of a format that LangGraph
    migrates is left out, and so are those behind the first 64 MB.

    Args:
        saver: A `PostgresSaver`.
        addresses: The histories.

    Returns:
        What loads each checkpoint that was read, with the serializer of a checkpointer. If a row
        cannot be loaded, the checkpoint is read alone, which says what is wrong.
    """
    select = getattr(saver, "SELECT_SQL", None)
    is_known = isinstance(select, str) and select.rstrip().endswith("from checkpoints")
    if not (is_known and callable(getattr(saver, "_load_checkpoint_tuple", None))):
        return {}
    keys = [[a.thread_id for a in addresses], [a.namespace for a in addresses]]
    found, free = dict[Address, Loader](), _HELD
    with postgres_cursor(saver) as cursor:
        if cursor.connection.pgconn.pipeline_status:  # it streams nothing: each is read alone
            return {}
        # Row by row: a result that is read as a whole is in memory whatever its size.
        for values in cursor.stream(f"{select} {_NEWEST}", keys, binary=True):
            names = [column.name for column in cursor.description]
            row = values if isinstance(values, Mapping) else dict(zip(names, values, strict=True))
            with suppress(Exception):  # any: what is stored may have no format
                size = _size_of(row)
                if row["checkpoint"]["v"] >= _NOT_MIGRATED and (size <= free or not found):
                    address = Address(row["thread_id"], row["checkpoint_ns"])
                    found[address] = partial(_load_row, address, row)
                    free -= size
    return found


_HELD = 64_000_000
"""How many bytes of checkpoints are held at once."""


def _size_of(row: Mapping[str, Any]) -> int:
    """The bytes of the values in a row: of the blobs, and of the texts beside them."""
    blobs = (*(row["channel_values"] or ()), *(row["pending_writes"] or ()))
    texts = row["checkpoint"].get("channel_values") or {}
    inline = sum(len(each) for each in texts.values() if isinstance(each, str))
    return inline + sum(len(part) for blob in blobs for part in blob if part is not None)


def _load_row(address: Address, row: Mapping[str, Any], saver: Any) -> CheckpointTuple | None:
    with suppress(Exception):  # any: read alone, it says what is wrong
        found: CheckpointTuple = saver._load_checkpoint_tuple(row)  # noqa: SLF001
        return found
    return load_newest(address, saver)


_NOT_MIGRATED = 4
"""The format from which on LangGraph reads a checkpoint as it is."""

_NEWEST = """WHERE (thread_id, checkpoint_ns, checkpoint_id) IN (
    SELECT named.thread_id, named.namespace, (
        SELECT c.checkpoint_id FROM checkpoints AS c
        WHERE c.thread_id = named.thread_id AND c.checkpoint_ns = named.namespace
        ORDER BY c.checkpoint_id DESC LIMIT 1
    ) FROM unnest(%s::text[], %s::text[]) AS named(thread_id, namespace)
)"""
