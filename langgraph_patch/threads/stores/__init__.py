"""The kinds of databases of threads: each has a module, with a `Store` that knows one of them.

`other` has the base, which knows any checkpointer and has a rule for any error. Those of SQLite and
PostgreSQL query their tables (`tables`). What the threads of LangGraph Server do not allow,
`server` leaves to the base. What can be opened has `open_saver(target, serde, *, write)`: a context
manager over a checkpointer that executes nothing of what is stored, and raises a `ThreadError`
where the database fails.

Nothing in a database is executed. By default LangGraph's serializer imports and calls whatever a
msgpack row names, and a pickle row is code. So the serializer gets an allowlist, and pickles are
not loaded. An instance of any other class is read as a dict. If such a value were written back, the
class would be lost, so `repair` refuses that.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from os import PathLike
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph_sdk.client import LangGraphClient, SyncLangGraphClient

from langgraph_patch._langgraph.address import Address
from langgraph_patch._text import quoted
from langgraph_patch.errors import (
    EvidenceError,
    GraphError,
    OptionError,
    ThreadError,
    chain_of,
    is_interrupt,
)
from langgraph_patch.threads.stores import postgres, server, sqlite
from langgraph_patch.threads.stores.other import Store
from langgraph_patch.threads.stores.server import LangGraphServer
from langgraph_patch.threads.stores.tables import PACKAGES, class_names

_KINDS = (
    (("http://", "https://"), server),
    (("postgresql://", "postgres://"), postgres),
    (("",), sqlite),
)
"""How a target begins, and the module that opens it."""

_STORES = {
    "LangGraphServer": server.ServerStore(),
    "PostgresSaver": postgres.PostgresStore(),
    "SqliteSaver": sqlite.SqliteStore(),
    "BaseCheckpointSaver": Store(),
}
"""The stores, by the class of a checkpointer that each knows."""


def open_database(
    target: str,
    *,
    write: bool = False,
    trust: Sequence[tuple[str, str]] = (),
    serde: SerializerProtocol | None = None,
    statement_timeout: timedelta | None = None,
) -> AbstractContextManager[BaseCheckpointSaver[Any]]:
    """Open a database of threads without executing anything in it.

    The checkpointer that it returns, as a context manager, is for `scan_threads`, `repair_thread`
    and `undo_repair`. An error never repeats a URI, which may hold a password.

    Args:
        target: The path of a SQLite file, the `postgresql://` URI of a PostgreSQL database, or
            the `http://` or `https://` URL of a LangGraph Server.
        write: Whether it may be written to. Otherwise it is opened read-only, as a server always
            is. Default: False.
        trust: Classes that may be loaded beside LangChain's and LangGraph's, as (module,
            class). Default: none.
        serde: The serializer of the application, such as one that decrypts. It decides which
            classes are loaded. Default: LangGraph's, which loads only trusted classes.
        statement_timeout: PostgreSQL: how long one statement may take. Default: a minute.

    Raises:
        ThreadError: If there is no such database, or it holds no threads, or it would run code
            when it is read; or if it fails while it is open.
        OptionError: If `target` is no text; if it is a PostgreSQL database, and psycopg is not
            installed; if the URL of a server holds a user or a password; or if `statement_timeout`
            is no `timedelta` above 0, or is used for another database.

    Examples:
        >>> import tempfile
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph.checkpoint.sqlite import SqliteSaver
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph_patch import open_database, scan_threads
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> builder = StateGraph(MessagesState)
        >>> _ = builder.add_node("model", lambda state: {"messages": [
        ...     AIMessage("", tool_calls=[call]), HumanMessage("never mind")]})
        >>> folder = tempfile.TemporaryDirectory()
        >>> file = f"{folder.name}/threads.sqlite"
        >>> with SqliteSaver.from_conn_string(file) as saver:
        ...     graph = builder.set_entry_point("model").compile(checkpointer=saver)
        ...     _ = graph.invoke({"messages": []}, {"configurable": {"thread_id": "1"}})
        >>> with open_database(file) as saver:
        ...     [report.status for report in scan_threads(saver)]
        ['damaged']
        >>> folder.cleanup()
    """
    if not isinstance(target, str):
        raise OptionError(
            f"{quoted(target)} is a {type(target).__name__}: expected the path of a SQLite file or "
            f"the URI of a database, as a text."
            + (" Pass str(path)." if isinstance(target, PathLike) else "")
        )
    used = serde or JsonPlusSerializer(allowed_msgpack_modules=list(trust) or None)
    kind = next(kind for begins, kind in _KINDS if target.startswith(begins))
    if kind is sqlite and not sqlite.is_path(target):
        raise ThreadError(
            "This is not a supported database: expected a URI that begins with postgresql:// or "
            "postgres:// (PostgreSQL), or with http:// or https:// (LangGraph Server), or the "
            "path of a SQLite file."
        )
    limits: dict[str, Any] = {}
    if statement_timeout is not None:
        if kind is not postgres:
            raise OptionError("statement_timeout is for PostgreSQL only.")
        if not isinstance(statement_timeout, timedelta) or statement_timeout <= timedelta(0):
            raise OptionError(
                f"statement_timeout={quoted(statement_timeout)}: expected a timedelta above 0."
            )
        limits["statement_timeout"] = statement_timeout
    opened: AbstractContextManager[Any] = kind.open_saver(target, used, write=write, **limits)
    return opened


# --- the store of a checkpointer ---------------------------------------------------------


def checked_saver(target: Any, *, write: bool) -> BaseCheckpointSaver[Any]:
    """The synchronous checkpointer that was passed.

    Args:
        target: What was passed.
        write: Whether it will be written to, as a LangGraph Server never is.

    Raises:
        GraphError: If it is a graph.
        OptionError: If it is something else, or asynchronous.
        ThreadError: If it is a LangGraph Server and `write` is True.
    """
    if isinstance(target, StateGraph | CompiledStateGraph):
        raise GraphError(
            "A graph was passed: pass its checkpointer (graph.checkpointer). A stored thread is "
            "read and repaired without the code of the application."
        )
    name = type(target).__name__
    if isinstance(target, SyncLangGraphClient):
        target = LangGraphServer(target)
    if write and server_of(target):
        raise ThreadError(server.READ_ONLY)
    if (
        isinstance(target, LangGraphClient)
        or getattr(type(target), "get_tuple", None) is BaseCheckpointSaver.get_tuple
        or any(each.startswith("Async") for each in class_names(target, "langgraph"))
    ):
        raise OptionError(
            f"{name} is asynchronous: open the same database with its synchronous form, such as "
            f"SqliteSaver or PostgresSaver, or get_sync_client for a LangGraph Server. An "
            f"asynchronous service calls the function in a thread: await asyncio.to_thread(...)."
        )
    if isinstance(target, AbstractContextManager) and not isinstance(target, BaseCheckpointSaver):
        raise OptionError(
            f"a {name} is no checkpointer yet: from_conn_string and open_database open one with "
            f"`with ... as saver:`; pass that `saver`."
        )
    if not isinstance(target, BaseCheckpointSaver):
        raise OptionError(
            f"{quoted(target)} is a {name}: expected a checkpointer, such as a SqliteSaver or the "
            f"`checkpointer` of a graph. `langgraph_patch.open_database` opens a file or a URI."
        )
    return target


def server_of(saver: Any) -> LangGraphServer | None:
    """The LangGraph Server behind a checkpointer, which knows of runs; None for a database."""
    return saver if isinstance(saver, LangGraphServer) else None


def store_of(saver: BaseCheckpointSaver[Any]) -> Store:
    """The store that knows a checkpointer.

    Examples:
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph_patch.threads.stores import store_of
        >>> saver = InMemorySaver()
        >>> [*store_of(saver).list_addresses(saver, None)]
        []
    """
    # Packages of others have such classes too: hence the module.
    names = class_names(saver, PACKAGES)
    return next(store for name, store in _STORES.items() if name in names)


# --- whose failure an error is -----------------------------------------------------------


def check_of_thread(error: Exception, saver: BaseCheckpointSaver[Any]) -> None:
    """Raise what is not about the one thread that was read or written.

    An error that no module here knows is the thread's, if the checkpointer answers another query.

    Raises:
        KeyboardInterrupt: If Ctrl-C is among its causes.
        Exception: The error itself, if the database or the server failed. Of an `EvidenceError`
            its cause: that a repair can do without the evidence is no advice during an outage.
    """
    chain = [*chain_of(error)]
    if is_interrupt(error):
        raise KeyboardInterrupt from error
    store = next(each for each in _STORES.values() if each.is_failure(chain) is not None)
    if not store.is_failure(chain):
        return
    is_known = type(store) is not Store or any(isinstance(each, OSError) for each in chain)
    if is_known or not _answers(saver):
        raise (isinstance(error, EvidenceError) and error.__cause__) or error


def _answers(saver: BaseCheckpointSaver[Any]) -> bool:
    """Whether a checkpointer can be asked, for a thread that does not exist."""
    try:
        saver.get_tuple(Address(uuid.uuid4().hex).config)
    except Exception:  # noqa: BLE001 - of any driver: the first error is raised
        return False
    return True
