"""Find the damaged histories that a node reads, and those in the state that it is to repair.

A node may read several histories, each under a state key of its own. The history in the node's
input and the history in the state may differ: a node before it may have trimmed the history, or
a `Send` may carry another one. So each is read on its own.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig

from langgraph_patch._langgraph import comes_first, node_of, stored_value
from langgraph_patch.errors import MessagesError
from langgraph_patch.graph.message_equality import are_identical
from langgraph_patch.graph.repairer import Repairer
from langgraph_patch.graph.state_values import get_messages, get_value
from langgraph_patch.history.pairing import Reading
from langgraph_patch.history.patcher import as_messages

logger: logging.Logger = logging.getLogger("langgraph_patch")

MODEL_INPUT = "llm_input_messages"
"""The state key in which a `pre_model_hook` returns a history for the model only."""


@dataclass(frozen=True, slots=True)
class Damage:
    """The damaged histories of one run of a node.

    Attributes:
        input: Those in the node's input, by their state keys.
        stored: Those in the state that are to be repaired, by their state keys; the same object
            as in `input` if both histories are the same.
        writes: The state keys whose histories this run of the node repairs in the state.
    """

    input: dict[str, Reading]
    stored: dict[str, Reading]
    writes: frozenset[str]


@dataclass(frozen=True)
class Histories:
    """The histories that a node may read.

    Attributes:
        repairers: One for each state key.
        writers: For each history that the node repairs in the state, the nodes of the graph that
            do so. If several of them run in one superstep, only the first one writes: two rewrites
            of one history would misplace each other's messages.
    """

    repairers: tuple[Repairer, ...]
    writers: Mapping[str, Collection[str]]

    @cached_property
    def by_key(self) -> Mapping[str, Repairer]:
        """The repairer of the history under each key of the node's input."""
        own = {repairer.messages_key: repairer for repairer in self.repairers}
        return {**own, MODEL_INPUT: own.get(MODEL_INPUT, self.repairers[0])} if own else {}

    @property
    def keys(self) -> tuple[str, ...]:
        """The state keys of the histories."""
        return tuple(repairer.messages_key for repairer in self.repairers)

    def repairer(self, key: str) -> Repairer:
        """The repairer of the history under a key of the node's input."""
        return self.by_key[key]

    def owner(self, key: str) -> str:
        """The state key of the history under a key of the node's input.

        What a `pre_model_hook` returns is a version of the first history.
        """
        return self.repairer(key).messages_key

    def find_damage(self, state: Any, config: RunnableConfig) -> Damage | None:
        """The damaged histories; None if the node's input has none."""
        histories: dict[str, list[BaseMessage]] = {}
        damaged: dict[str, Reading] = {}
        for key, repairer in self.by_key.items():
            if get_value(state, key) is None:
                continue
            history = _messages_in(state, key, config)
            reading = None if history is None else repairer.read(history, recheck=False)
            if history is not None:
                histories[key] = history
            if reading is not None:
                damaged[key] = reading
        if not damaged:
            return None
        writes = frozenset(
            key for key, writers in self.writers.items() if comes_first(config, writers)
        )
        return Damage(damaged, self._stored_damage(histories, damaged, writes, config), writes)

    def _stored_damage(
        self,
        histories: Mapping[str, Sequence[BaseMessage]],
        damaged: Mapping[str, Reading],
        keys: Collection[str],
        config: RunnableConfig,
    ) -> dict[str, Reading]:
        found = {}
        for key in keys:
            stored = _stored_messages(config, key)
            if are_identical(stored, histories.get(key, [])):
                reading = damaged.get(key)
            else:
                reading = self.repairer(key).read(stored, recheck=False)
            if reading is not None:
                found[key] = reading
        return found


def _messages_in(state: Any, key: str, config: RunnableConfig) -> list[BaseMessage] | None:
    try:
        return get_messages(state, key)
    except MessagesError as error:
        logger.debug("node %r runs unchanged. %s", node_of(config), error)
        return None


def _stored_messages(config: RunnableConfig, key: str) -> list[BaseMessage]:
    value = stored_value(config, key)
    try:
        return [] if value is None else as_messages(value)
    except MessagesError:  # nothing that this package could repair
        return []
