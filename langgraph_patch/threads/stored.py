"""Read a stored checkpoint without the graph that wrote it: its history, its pause and its age.

`get_state()` applies the pending writes of finished tasks. The next message discards them, so
`get_state()` would hide that they are lost. This module reads the state as the next run finds it.

It also says why a thread cannot be read, and compares messages: `==` raises an error for arrays and
data frames in an artifact, and it is false for NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.graph import StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Overwrite
from langgraph_sdk.client import LangGraphClient, SyncLangGraphClient

from langgraph_patch._langgraph_storage import (
    ERROR_SOURCE,
    NEWEST_FORMAT,
    NO_TASK,
    RUN_KEYS,
    due_channels,
    is_reserved,
    is_spread,
    later_checkpoint_id,
    task_of_namespace,
    whole_value,
)
from langgraph_patch.errors import (
    GraphError,
    OptionError,
    ThreadError,
    brief,
    class_names,
    quoted,
)
from langgraph_patch.evidence.address import Address
from langgraph_patch.evidence.writes import fold
from langgraph_patch.history.patch import as_messages
from langgraph_patch.threads.server import Activity, LangGraphServer

_SERDE = JsonPlusSerializer(pickle_fallback=True)  # only used to write

_NO_RESULT = frozenset((INTERRUPT, RESUME, ERROR, ERROR_SOURCE))
"""A write to one of these channels does not show that a task finished."""


# --- what the functions take ---------------------------------------------------------------


def checked_saver(target: Any, *, server: bool) -> BaseCheckpointSaver[Any]:
    """The synchronous checkpointer that a function was given.

    Args:
        target: What it was given.
        server: Whether a LangGraph Server will do, which is only read.

    Raises:
        GraphError: If it is a graph.
        OptionError: If it is something else, or can only be used asynchronously.
        ThreadError: If it is a LangGraph Server, and that will not do.
    """
    if isinstance(target, StateGraph | CompiledStateGraph):
        raise GraphError(
            "A graph was passed: pass its checkpointer (graph.checkpointer). A stored thread is "
            "read and repaired without the code of the application."
        )
    name = type(target).__name__
    is_client = isinstance(target, SyncLangGraphClient)
    is_asynchronous = (
        isinstance(target, LangGraphClient)
        or getattr(type(target), "get_tuple", None) is BaseCheckpointSaver.get_tuple
        or any(each.startswith("Async") for each in class_names(target, "langgraph"))
    )
    if (is_client or isinstance(target, LangGraphServer)) and not server:
        raise ThreadError(SERVER_IS_READ)
    if is_asynchronous:
        raise OptionError(
            f"{name} is asynchronous: open the same database with its synchronous form, such as "
            f"SqliteSaver or PostgresSaver, or get_sync_client for a LangGraph Server. An "
            f"asynchronous service calls the function in a thread: await asyncio.to_thread(...)."
        )
    if is_client:
        return LangGraphServer(target)
    if not isinstance(target, BaseCheckpointSaver):
        raise OptionError(
            f"{quoted(target)} is a {name}: expected a checkpointer, such as a SqliteSaver or the "
            f"`checkpointer` of a graph. `langgraph_patch.threads.opening.open_database` opens "
            f"the one of a file or a URI."
        )
    return target


SERVER_IS_READ: Final = (
    "The threads of a LangGraph Server are read over its API, and not repaired: a repair would be "
    "a run of the graph that races with others. Deploy the graph with with_patching, and the next "
    "message of a thread repairs it; or name the database of the server (postgresql://...)."
)


def address_of(config: RunnableConfig) -> Address:
    """The address that a caller's config names, without the keys of a run.

    Raises:
        ThreadError: If it names no thread, or a namespace that no later run reads.
    """
    configurable = config.get("configurable") if isinstance(config, Mapping) else None
    if not isinstance(configurable, Mapping) or configurable.get("thread_id") is None:
        raise ThreadError(f"{quoted(config)} names no thread: expected configurable.thread_id.")
    # Other keys stay: some checkpointers need more than these.
    kept = {key: value for key, value in configurable.items() if not is_reserved(key)}
    for key in {*RUN_KEYS} - {"checkpoint_id"}:
        kept.pop(key, None)
    address = Address.of({"configurable": kept})
    if task_of_namespace(address.namespace) is not None:
        raise ThreadError(
            f"Namespace {address.namespace!r} belongs to one run of a node: no later run reads it, "
            f"so there is nothing to repair. Repair the root namespace of the thread."
        )
    return address


def read_newest(saver: BaseCheckpointSaver[Any], address: Address) -> CheckpointTuple:
    """The newest checkpoint of a history.

    Raises:
        ThreadError: If there is no such thread.
    """
    saved = saver.get_tuple(address.newest.config)
    if saved is None:
        where = f" in namespace {address.namespace!r}" if address.namespace else ""
        raise ThreadError(f"There is no thread {address.thread_id!r}{where}.")
    return saved


def other_checkpoint(address: Address, newest: str) -> str | None:
    """Why nothing is done, if a caller named another checkpoint than the newest one."""
    if address.checkpoint_id in (None, newest):
        return None
    return f"its newest checkpoint is {newest}, not {address.checkpoint_id}"


# --- the history -------------------------------------------------------------------------


def history_of(
    saver: BaseCheckpointSaver[Any], saved: CheckpointTuple, messages_key: str
) -> list[BaseMessage] | None:
    """Read the messages of a checkpoint as the next run finds them.

    Args:
        saver: The checkpointer that holds the checkpoint. It is read only for a `DeltaChannel`:
            the value is spread over older checkpoints.
        saved: The checkpoint.
        messages_key: The state key of the history.

    Returns:
        The messages, or None if the state has no such key.

    Raises:
        ThreadError: If the format of the checkpoint is newer than this module supports, or if
            the value is lost or holds anything but messages.
        MessagesError: If the value is not a list of messages.
    """
    checkpoint = saved.checkpoint
    if checkpoint.get("v", 1) > NEWEST_FORMAT:
        raise ThreadError(
            f"its checkpoint has format {checkpoint['v']!r}, which is newer than this version of "
            f"langgraph-patch supports: upgrade langgraph-patch"
        )
    values = checkpoint["channel_values"]
    if messages_key in values:
        return _checked_messages(values[messages_key])
    if messages_key not in checkpoint["channel_versions"]:
        return None
    return fold(*_spread(saver, saved, messages_key))


def is_ambiguous(
    saver: BaseCheckpointSaver[Any], saved: CheckpointTuple, messages_key: str
) -> bool:
    """Whether a history is in a `DeltaChannel` that not every reducer reads alike.

    `RemoveMessage(REMOVE_ALL_MESSAGES)` is obeyed by the reducer of deepagents, as by `fold`, and
    ignored by that of LangGraph.
    """
    if messages_key in saved.checkpoint["channel_values"]:
        return False
    writes = _spread(saver, saved, messages_key)[1]
    resets = [at for at, write in enumerate(writes, 1) if isinstance(write, Overwrite)]
    return any(map(_removes_all, writes[resets[-1] if resets else 0 :]))


def _removes_all(write: Any) -> bool:
    for each in write if isinstance(write, list) else [write]:
        named = each.get("id") if isinstance(each, Mapping) else getattr(each, "id", None)
        if named == REMOVE_ALL_MESSAGES:
            return True
    return False


def _spread(
    saver: BaseCheckpointSaver[Any], saved: CheckpointTuple, messages_key: str
) -> tuple[list[BaseMessage], list[Any]]:
    """The last stored value of a `DeltaChannel`, and what was written since."""
    delta = saver.get_delta_channel_history(config=saved.config, channels=[messages_key])
    own = delta[messages_key]
    seed: Any = own.get("seed", [])
    # A value that was stored as it is belongs to another channel, or to a state before it.
    if "seed" in own and whole_value(seed) is seed and not is_spread(saved, messages_key):
        raise ThreadError(
            f"the value of its state key {messages_key!r} is not stored any more: an older one is "
            f"no substitute"
        )
    return _checked_messages(seed), [value for _, _, value in own.get("writes", ())]


def _checked_messages(value: Any) -> list[BaseMessage]:
    """The messages of a stored value; a class that is not loaded leaves only its arguments."""
    value = whole_value(value)
    for kind in set(map(type, value)) if isinstance(value, list) else ():
        if not issubclass(kind, BaseMessage | dict):
            raise ThreadError(
                f"its history holds a {kind.__name__} where a message was expected: a class that "
                f"is not loaded, or another kind of state"
            )
    return as_messages(value)


# --- pauses, marks and ages ---------------------------------------------------------------


def interrupts_of(saved: CheckpointTuple) -> dict[str, Any]:
    """The interrupts of the tasks that wait for a human: what each asks, by its id."""
    waiting: dict[str, Sequence[Any]] = {}
    finished: set[str] = set()
    for task, channel, value in saved.pending_writes or ():
        if channel == INTERRUPT and task != NO_TASK:
            waiting[task] = value if isinstance(value, Sequence) else [value]
        elif channel not in _NO_RESULT:
            finished.add(task)
    asking = [each for task, own in waiting.items() if task not in finished for each in own]
    return {str(getattr(each, "id", each)): getattr(each, "value", each) for each in asking}


def activity_of(saver: BaseCheckpointSaver[Any], saved: CheckpointTuple) -> Activity | None:
    """Whether a human may still answer or, on a server, a run is in progress; None if neither.

    Args:
        saver: The checkpointer.
        saved: The newest checkpoint of a history.
    """
    if isinstance(saver, LangGraphServer):
        return saver.activity(saved) if starts_tasks(saved) else None
    interrupts = {*interrupts_of(saved)}
    if interrupts and (address := Address.of(saved.config)).namespace:
        # An answer comes through the root graph only. If that has moved on, none will come.
        root = saver.get_tuple(address.at("").config)
        interrupts &= {*interrupts_of(root)} if root else set()
    return "waiting" if interrupts else None


def starts_tasks(saved: CheckpointTuple) -> bool:
    """Whether a superstep follows the checkpoint, or was begun."""
    return bool(due_channels(saved.checkpoint["channel_values"]))


MARK: Final = {"langgraph_patch": "repair"}
"""The metadata of a checkpoint that a repair wrote."""


def is_repair(saved: CheckpointTuple) -> bool:
    """Whether a repair wrote the checkpoint: it has the mark, and an id directly behind its parent.

    A mark alone may be a copy: `update_state` stores whatever metadata its config has.
    """
    metadata: Any = saved.metadata or {}
    if saved.parent_config is None or metadata.get("source") != "update":
        return False
    if any(metadata.get(key) != value for key, value in MARK.items()):
        return False
    parent = Address.of(saved.parent_config).checkpoint_id or ""
    return bool(saved.checkpoint["id"] == later_checkpoint_id(parent, 1))


def written_at(saved: CheckpointTuple) -> datetime | None:
    """When the checkpoint was written, in UTC; None if it has no readable time."""
    try:
        written = datetime.fromisoformat(str(saved.checkpoint["ts"]))
    except (KeyError, ValueError):
        return None
    return written.replace(tzinfo=UTC) if written.tzinfo is None else written.astimezone(UTC)


def age_of(written: datetime | None) -> float:
    """The seconds since a checkpoint was written; 0 if that is not known."""
    return 0.0 if written is None else max(0.0, (datetime.now(UTC) - written).total_seconds())


# --- why a thread cannot be read --------------------------------------------------------------


def reason_of(error: BaseException) -> str:
    """Why a thread cannot be read.

    Args:
        error: What was raised when its checkpoint was read.

    Examples:
        >>> from langgraph_patch.threads.stored import reason_of
        >>> reason_of(ValueError("unpack(b) received extra data"))
        'a value of it cannot be loaded (ValueError: unpack(b) received extra data)'
    """
    if isinstance(error, ThreadError):
        return str(error)
    # LangGraph's serializer raises it with the type of the row, such as pickle or msgpack+aes.
    if isinstance(error, NotImplementedError) and "serialization type" in str(error):
        return (
            f"a row of it is of a type that is not loaded, because it is encrypted or may run any "
            f"code ({brief(error)}): if you trust it, scan with the checkpointer of the "
            f"application, or name its serializer with --serde module:attribute"
        )
    return f"a value of it cannot be loaded ({brief(error)})"


# --- comparing messages ------------------------------------------------------------------


def is_same(one: BaseMessage, other: BaseMessage) -> bool:
    """Whether two messages have the same id and equal contents, in whatever order their keys are.

    Examples:
        >>> from langchain_core.messages import ToolMessage
        >>> from langgraph_patch.threads.stored import is_same
        >>> one, other = (
        ...     ToolMessage("r", tool_call_id="c", artifact=float("nan")) for _ in range(2)
        ... )
        >>> one == other, is_same(one, other)
        (False, True)
    """
    if one is other or one.id != other.id:
        return one is other
    fields = [{**vars(each), **(each.model_extra or {})} for each in (one, other)]
    return type(one) is type(other) and _is_equal(*fields)


def _is_equal(one: Any, other: Any) -> bool:
    """Whether two stored values are equal; `==` of an application's class may raise anything."""
    if one is other:
        return True
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    if isinstance(one, str | int | None) and isinstance(other, str | int | None):
        return type(one) is type(other) and one == other
    return _SERDE.dumps_typed(one) == _SERDE.dumps_typed(other)


def are_same(some: Sequence[BaseMessage], others: Sequence[BaseMessage]) -> bool:
    """Whether two histories have the same messages in the same order."""
    return len(some) == len(others) and all(map(is_same, some, others))
