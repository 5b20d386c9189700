"""Apply a repair: write it to the state, or let a model read it; and report it.

A repair is a state update of the node that runs. Clients in `stream_mode="messages"` receive its
new tool messages, and `stream_mode="updates"` shows what is new.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph.message import push_message
from langgraph.types import Command

from langgraph_patch._langgraph import channels_of, is_in_node, runs_alone
from langgraph_patch._sansio import IOGenerator
from langgraph_patch.graph.repairer import Repair, Repairer
from langgraph_patch.graph.shown_update import new_messages, new_results, show_repair
from langgraph_patch.graph.state_update import Writes, values_once, writes_for
from langgraph_patch.history.patch import Patch, changes_history

logger: logging.Logger = logging.getLogger("langgraph_patch")


def write_repairs(
    repairers: Sequence[Repairer], state: Any, config: RunnableConfig, *, node: object
) -> IOGenerator[Command[Any] | None]:
    """Repair the histories in the state, and show clients what is new.

    Args:
        repairers: One for each history.
        state: The state.
        config: The config of the node that runs.
        node: The runnable that LangGraph runs as that node.

    Returns:
        The state update, or None if there is nothing to repair. What a recovered result of
        several histories restores is restored once.
    """
    update: list[tuple[str, Any]] = []
    restored: list[tuple[str, Any]] = []
    new: dict[str, list[BaseMessage]] = {}
    for repairer in repairers:
        repair = yield from repairer.state_repair(state, config)
        if repair is None:
            continue
        taken = {key for key, _ in restored}
        own = tuple(pair for pair in repair.restored if pair[0] not in taken)
        written = write_repair(repairer, replace(repair, restored=own), config, alone=True)
        if written is not None:
            update += written.update or ()
            restored += own
            new[repairer.messages_key] = new_messages(repair.patch)
    if not update:
        return None
    show_repair(config, new, node=[node], restored=tuple(restored))
    return Command(update=update)


def write_repair(
    repairer: Repairer, repair: Repair, config: RunnableConfig, *, alone: bool
) -> Command[Any] | None:
    """Report a repair and return the state update that writes it.

    Args:
        repairer: What made the repair.
        repair: A repair of the history that the state has.
        config: The config of the node that runs.
        alone: Whether no other node runs in the same superstep, and the node writes nothing
            else to the history.

    Returns:
        The state update, or None if no update has the wanted effect.
    """
    writes = _writes(repairer, repair, config, alone=alone)
    pairs = [*((repairer.messages_key, write) for write in writes), *repair.restored]
    return Command(update=pairs) if pairs else None


def write_repair_as_dict(
    repairer: Repairer, repair: Repair, config: RunnableConfig
) -> dict[str, Any] | Command[Any] | None:
    """Do the same as `write_repair` for a node that writes nothing else, with each key once.

    Returns:
        A dict; a `Command` if a key must be written several times, for another node of the
        superstep or for a channel that knows no `Overwrite`; or None.
    """
    values = values_once(channels_of(config), repair.restored)
    if values is None or not runs_alone(config):
        return write_repair(repairer, repair, config, alone=runs_alone(config))
    writes = _writes(repairer, repair, config, alone=True, once=True)
    return {**({repairer.messages_key: writes[0]} if writes else {}), **values} or None


def _writes(
    repairer: Repairer, repair: Repair, config: RunnableConfig, *, alone: bool, once: bool = False
) -> Writes:
    """Report a repair; the values to write to the history, or none."""
    patch = repair.patch.for_state()
    writes = None
    if patch:
        writes = writes_for(
            channels_of(config).get(repairer.messages_key),
            patch.before,
            patch.messages,
            alone=alone,
            after=runs_alone(config),
            once=once,
        )
    report(repairer, repair.patch, config, only_for=None if writes is not None else "node")
    if writes is not None and is_in_node(config):
        for message in new_results(patch):
            push_message(message, state_key=None)
    return writes or []


def repaired_for_model(
    repairer: Repairer, messages: list[BaseMessage], config: RunnableConfig
) -> IOGenerator[list[BaseMessage]]:
    """A history for a model, repaired and not written; the same object if it is valid."""
    reading = repairer.read(messages, recheck=False)
    if reading is None:
        return messages
    patch = (yield from repairer.repair(reading, config, restore=False)).patch
    report(repairer, patch, config, only_for="model")
    return patch.messages


def report(
    repairer: Repairer,
    patch: Patch,
    config: RunnableConfig,
    *,
    only_for: Literal["model", "node"] | None = None,
) -> None:
    """Call `on_patch` and log the repair, if it changes what a model reads.

    Args:
        repairer: What made the repair.
        patch: The repair of the messages.
        config: The config of the run.
        only_for: Whose input is repaired, if the state is not. Default: None, the repair is
            written to the state.
    """
    if not changes_history(patch):
        return
    if repairer.on_patch is not None:
        repairer.on_patch(patch, config)
    thread_id = config.get("configurable", {}).get("thread_id")
    if only_for is None:
        logger.info("repaired thread %r: %s", thread_id, patch)
    else:
        logger.debug("repaired the input of a %s in thread %r: %s", only_for, thread_id, patch)
