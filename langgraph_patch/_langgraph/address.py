"""The address of a checkpoint: its thread, its namespace and its id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from langchain_core.runnables import RunnableConfig

_NAMES = ("thread_id", "checkpoint_ns", "checkpoint_id")
_NO_OTHERS: Mapping[str, Any] = MappingProxyType({})  # one for all: a scan has many addresses


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """Names a checkpoint of a thread, or the newest one.

    Attributes:
        thread_id: The thread.
        namespace: The namespace of a graph in it. Default: `""`, the root graph.
        checkpoint_id: The checkpoint. Default: None, the newest one of the namespace.
        others: Other keys of `configurable` that the checkpointer may need. Default: none.

    Examples:
        >>> from langgraph_patch._langgraph.address import Address
        >>> address = Address.of({"configurable": {"thread_id": "1", "checkpoint_id": "c1"}})
        >>> address.config["configurable"]
        {'thread_id': '1', 'checkpoint_ns': '', 'checkpoint_id': 'c1'}
        >>> address.newest.config["configurable"]
        {'thread_id': '1', 'checkpoint_ns': ''}
    """

    thread_id: str
    namespace: str = ""
    checkpoint_id: str | None = None
    others: Mapping[str, Any] = field(default_factory=lambda: _NO_OTHERS, compare=False, repr=False)

    @classmethod
    def of(cls, config: RunnableConfig) -> Address:
        """The address that a config names; it must name a thread."""
        named = config["configurable"]
        others = {key: value for key, value in named.items() if key not in _NAMES}
        checkpoint_id = named.get("checkpoint_id")
        return cls(
            str(named["thread_id"]),  # as it is stored
            str(named.get("checkpoint_ns") or ""),
            str(checkpoint_id) if checkpoint_id else None,
            others,
        )

    @property
    def config(self) -> RunnableConfig:
        """The address as a config."""
        named = {"thread_id": self.thread_id, "checkpoint_ns": self.namespace}
        if self.checkpoint_id is not None:
            named["checkpoint_id"] = self.checkpoint_id
        return {"configurable": {**self.others, **named}}

    @property
    def newest(self) -> Address:
        """The newest checkpoint of the same namespace."""
        return replace(self, checkpoint_id=None)

    def at(self, namespace: str, checkpoint_id: str | None = None) -> Address:
        """Another namespace of the same thread, at a checkpoint or at the newest one."""
        return replace(self, namespace=namespace, checkpoint_id=checkpoint_id)
