"""Check the arguments of `with_patching`, before anything is built."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from typing import Any, TypeAlias

from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph

from langgraph_patch._langgraph_names import ROOT_CHANNEL
from langgraph_patch.errors import GraphError, OptionError
from langgraph_patch.graph.coverage import Coverage, all_keys, message_keys, tools_of
from langgraph_patch.graph.state_values import unknown_key_error

Builder: TypeAlias = "StateGraph[Any, Any, Any, Any]"


def checked_names(model_node: str | Sequence[str] | None) -> frozenset[str]:
    """The names of `model_node`."""
    if model_node is None:
        return frozenset()
    names = _names(model_node)
    if names is None:
        raise GraphError(
            f"model_node={model_node!r}: expected the name of a node, or a list of such names."
        )
    return frozenset(names)


def checked_keys(
    messages_key: str | Sequence[str], builder: Builder, *, recursive: bool
) -> tuple[str, ...]:
    """The state keys of `messages_key`. If the state is a bare list, the default means that."""
    keys = _names(messages_key)
    if keys is None:
        raise OptionError(
            f"messages_key={messages_key!r}: expected the name of a state key, or a list of names."
        )
    if set(builder.channels) == {ROOT_CHANNEL} and keys == ("messages",):
        return (ROOT_CHANNEL,)
    known = all_keys(builder, recursive=recursive)
    for key in keys:
        if key not in known:
            with_messages = message_keys(builder, recursive=recursive)
            raise unknown_key_error(key, builder.channels, with_messages)
    return keys


def _names(value: object) -> tuple[str, ...] | None:
    """One name or several, each once; None if `value` is something else."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Sequence | AbstractSet) or not names:
        return None
    return tuple(dict.fromkeys(names)) if all(isinstance(n, str) and n for n in names) else None


def checked_builder(graph: object) -> Builder:
    """The builder of a graph, compiled or not."""
    if isinstance(graph, CompiledStateGraph):
        return graph.builder
    if isinstance(graph, StateGraph):
        return graph
    raise GraphError(
        f"{graph!r:.200} is a {type(graph).__name__}: expected a StateGraph, or the compiled graph "
        f"that its compile() returns. Patch the graph before you bind() it, give it a "
        f"with_retry(), or call it in an @entrypoint; inside an @entrypoint use patch_messages."
    )


def check_reconcile(names: Iterable[str], builder: Builder, *, recursive: bool) -> None:
    """Check that no name is a misspelled name of a tool.

    A tool that no `ToolNode` has may be run by a node of the application, so a name that is like
    none of the known names is accepted.
    """
    tools = tools_of(builder, recursive=recursive)
    for name in names:
        if name not in tools and (meant := get_close_matches(name, tools)):
            listed = ", ".join(map(repr, sorted(tools)))
            raise OptionError(
                f"reconcile: no ToolNode has a tool called {name!r}: expected one of {listed}. "
                f"Did you mean {meant[0]!r}?"
            )


def check_coverage(
    coverage: Coverage,
    keys: Sequence[str],
    names: AbstractSet[str],
    builder: Builder,
    *,
    recursive: bool,
) -> None:
    """Check that each name is that of a node, and that nodes read each history."""
    nodes = ", ".join(map(repr, coverage.nodes)) or "none"
    if missing := sorted(names - coverage.named):
        raise GraphError(
            f"model_node: no node called {' or '.join(map(repr, missing))} can call a model: "
            f"expected one of {nodes}, which must not be a ToolNode."
        )
    for key in keys:
        if key not in coverage.keys:
            found = ", ".join(map(repr, message_keys(builder, recursive=recursive))) or "none"
            raise GraphError(
                f"No node reads the state key {key!r}, so there is nothing to patch: give the key "
                f"of the history with messages_key=... Keys with messages: {found}. "
                f"The nodes are: {nodes}."
            )
