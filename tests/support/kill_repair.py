"""Repairs in processes of their own, which are killed or get in each other's way.

As a script it is a server that has imported all it needs and forks at once: for each line of
JSON on its standard input, `["repair_one", ...]` or `["repair_all", ...]`, a child, which prints
its process id when it begins; for `["wait", pid]` it prints the child's exit code.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any, Self

from langgraph.checkpoint.sqlite import SqliteSaver

from langgraph_patch.cli import main
from langgraph_patch.threads import repair_thread
from support.agents import thread
from support.broken_threads import application, silent
from support.paths import ENVIRONMENT

react_v2 = application("react_v2", None)
create_deep_agent = application("create_deep_agent", None)


class Processes:
    """The server, seen from a test."""

    def __enter__(self) -> Self:
        self._server = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-W", "ignore", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()
        assert self._server.returncode == 0

    def start(self, *what: Any) -> int:
        """Begin a repair; its process id."""
        return self._ask(*what)

    def wait(self, pid: int) -> int:
        """Wait until a process has ended; its exit code, or minus the signal that killed it."""
        return self._ask("wait", pid)

    def _ask(self, *what: Any) -> int:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(what) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())


# --- in the child ------------------------------------------------------------------------


def begin() -> None:
    """Tell the test that the repair begins now."""
    os.write(1, f"{os.getpid()}\n".encode())


def repair_one(path: str, kind: str, thread_id: str, fatal: int) -> int:
    """Repair one thread; kill this process at its SQL statement number `fatal` (0: never).

    The number of statements is written to a file beside the database.
    """
    with closing(sqlite3.connect(path, check_same_thread=False)) as conn:
        saver = SqliteSaver(conn)
        saver.setup()
        graph = silent(kind, saver)
        done = 0

        def count(_: str) -> None:
            nonlocal done
            done += 1
            if done == fatal:
                os.kill(os.getpid(), signal.SIGKILL)

        conn.set_trace_callback(count)
        begin()
        repair_thread(graph, thread(thread_id), min_age=0)
        conn.set_trace_callback(None)
        Path(f"{path}.statements").write_text(str(done))
    return 0


def repair_all(path: str, kind: str) -> int:
    """`langgraph-patch repair --all --apply`; what it prints goes into a file."""
    graph = f"{__file__}:{kind}"
    options = ["--all", "--apply", "--yes", "--min-age", "0", "--json", "--graph", graph]
    texts = io.StringIO()
    begin()
    with contextlib.redirect_stdout(texts):
        code = main(["repair", path, *options])
    Path(f"{path}.{os.getpid()}.output").write_text(texts.getvalue())
    return code


def serve() -> None:
    """Do what each line asks for."""
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        if what == "wait":
            status = os.waitpid(arguments[0], 0)[1]
            os.write(1, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        elif os.fork() == 0:
            os._exit({"repair_one": repair_one, "repair_all": repair_all}[what](*arguments))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    serve()
