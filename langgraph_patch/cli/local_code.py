"""Load the graph and the serializer of an application from `module.py:attribute`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph

from langgraph_patch.errors import GraphError, OptionError, brief


def load_graph(target: str) -> Any:
    """The compiled graph that `target` names. Its module is imported, which runs its code.

    Args:
        target: `path/to/module.py:name`, or `package.module:name` for a module that is installed
            or in the current folder.

    Raises:
        OptionError: If `target` has another form.
        GraphError: If the module cannot be imported, or the name is not a graph.

    Examples:
        >>> from langgraph_patch.cli.local_code import load_graph
        >>> load_graph("no_such_module:graph")
        Traceback (most recent call last):
        langgraph_patch.errors.GraphError: 'no_such_module': cannot be imported \
(ModuleNotFoundError: No module named 'no_such_module').
    """
    found = _load("--graph", target)
    if isinstance(found, StateGraph):
        found = found.compile()
    if not isinstance(found, CompiledStateGraph):
        raise GraphError(
            f"{target!r} is a {type(found).__name__}: expected a graph, compiled or not "
            f"(if a function makes it, assign its result to a variable)."
        )
    return found


def load_serde(target: str) -> SerializerProtocol:
    """The serializer that `target` names. Its module is imported, which runs its code.

    Args:
        target: As for `load_graph`.

    Raises:
        OptionError: If `target` has another form, or the attribute is not a serializer.
        GraphError: If the module cannot be imported, or has no such attribute.

    Examples:
        >>> from langgraph_patch.cli.local_code import load_serde
        >>> load_serde("json:loads")
        Traceback (most recent call last):
        langgraph_patch.errors.OptionError: --serde 'json:loads' is a function: expected a \
serializer, such as an EncryptedSerializer, not the function that makes it.
    """
    found = _load("--serde", target)
    if isinstance(found, type) or not isinstance(found, SerializerProtocol):
        raise OptionError(
            f"--serde {target!r} is a {type(found).__name__}: expected a serializer, such as an "
            f"EncryptedSerializer, not the function that makes it."
        )
    return found


def check_trusted(names: Iterable[tuple[str, str]]) -> None:
    """Check that trusted classes can be loaded.

    An instance of a class that cannot be loaded would be written back as a dict.

    Args:
        names: The classes, each as (module, class).

    Raises:
        OptionError: If a class cannot be loaded.

    Examples:
        >>> from langgraph_patch.cli.local_code import check_trusted
        >>> check_trusted([("decimal", "Decimal")])
    """
    for module, name in names:
        problem = _load_problem(module, name)
        if problem:
            raise OptionError(
                f"--trust {module}:{name} cannot be loaded ({problem}), so its instances would be "
                f"written back as dicts."
            )


def _load_problem(module: str, name: str) -> str | None:
    """Why a checkpointer cannot load a class from the top level of a module; None if it can."""
    if module == "__main__":
        return "it belongs to your program: repair from Python, in that program"
    try:
        getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a module may raise anything
        return brief(error)
    return None


def _load(option: str, target: str) -> Any:
    """The attribute of a module that an option names."""
    source, colon, name = target.rpartition(":")
    if not (source and colon and name):
        raise OptionError(
            f"{option} {target!r}: expected module.py:attribute or package.module:attribute."
        )
    found: Any = _import_module(source)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise GraphError(f"{source!r} has no {name!r}: name a variable of it.")
    return found


def _import_module(source: str) -> ModuleType:
    path = Path(source).resolve()
    is_file = source.endswith(".py")
    if is_file and not path.is_file():
        raise GraphError(f"{source!r}: there is no such file.")
    # The module may import its neighbours, as it may when Python runs it.
    folder = str(path.parent if is_file else Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(path.stem if is_file else source)
    except (Exception, SystemExit) as error:  # a module may raise anything
        raise GraphError(f"{source!r}: cannot be imported ({brief(error)}).") from error
    if is_file and Path(module.__file__ or "").resolve() != path:
        raise GraphError(f"{source!r}: another module is called {path.stem!r}: rename the file.")
    return module
