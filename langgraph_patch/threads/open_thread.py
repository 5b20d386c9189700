"""A thread under repair: its checkpoint, the graph, and a graph whose writes are staged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_patch._sansio import IOGenerator, call_method
from langgraph_patch.errors import ThreadError
from langgraph_patch.graph.state import unknown_key_error
from langgraph_patch.threads.keys import Key
from langgraph_patch.threads.options import RepairOptions
from langgraph_patch.threads.staging import StagingSaver
from langgraph_patch.threads.target import find_checkpointer, graph_of_namespace, newest_config


@dataclass(frozen=True, slots=True)
class OpenThread:
    """A thread under repair.

    Attributes:
        options: The options of the repair.
        key: The thread and the namespace of the history.
        config: The newest checkpoint of that namespace.
        saver: The checkpointer of the application.
        graph: The application's graph, over that checkpointer.
        target: The graph that the history belongs to: `graph`, or one of its subgraphs.
        base: The checkpoint that is repaired.
        staging: Keeps the new checkpoints until they are checked.
        staged_graph: The application's graph, over `staging`.
    """

    options: RepairOptions
    key: Key
    config: RunnableConfig
    saver: BaseCheckpointSaver[Any]
    graph: Any
    target: Any
    base: CheckpointTuple
    staging: StagingSaver
    staged_graph: Any

    @property
    def channel(self) -> Any:
        """The channel of the history."""
        return self.target.channels[self.options.messages_key]


def open_thread(
    graph: Any, config: RunnableConfig, options: RepairOptions
) -> IOGenerator[OpenThread]:
    """Read the newest checkpoint of the thread and the namespace that `config` names.

    Raises:
        ThreadError: If there is no such thread.
        GraphError: If `graph` is not a compiled graph with a checkpointer, or has no such
            namespace or state key.
        OptionError: If the checkpointer of the options is not a checkpointer.
    """
    newest = newest_config(config)
    key = Key(newest["configurable"]["thread_id"], newest["configurable"]["checkpoint_ns"])
    saver = find_checkpointer(graph, config, options.checkpointer)
    target = graph_of_namespace(graph, key.namespace)
    if options.messages_key not in target.channels:
        raise unknown_key_error(options.messages_key, target.channels)
    base = yield from call_method(saver, "get_tuple", newest)
    if base is None:
        raise no_thread_error(key)
    staging = StagingSaver(saver, base)
    return OpenThread(
        options=options,
        key=key,
        config=newest,
        saver=saver,
        graph=graph.copy({"checkpointer": saver}),
        target=target,
        base=base,
        staging=staging,
        staged_graph=graph.copy({"checkpointer": staging}),
    )


def no_thread_error(key: Key) -> ThreadError:
    """The error for a thread or a namespace that is not stored."""
    where = f" in namespace {key.namespace!r}" if key.namespace else ""
    return ThreadError(f"There is no thread {key.thread_id!r}{where}.")


def written_channels(saved: CheckpointTuple) -> list[tuple[str, str]]:
    """The task and the channel of each pending write; their values may not be comparable."""
    return [(task, channel) for task, channel, _ in saved.pending_writes or ()]
