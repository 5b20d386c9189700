"""A real LangGraph Server (`langgraph dev`), offline, on a loopback port."""

import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing, contextmanager
from pathlib import Path

from support.paths import ENVIRONMENT, TESTS

_SECONDS = 60
_OFFLINE = {
    "LANGGRAPH_NO_VERSION_CHECK": "true",
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "LANGSMITH_TRACING": "false",
    "LANGSMITH_API_KEY": "",
}


@contextmanager
def running_server(folder, name="dev_app"):
    """The URL of a server that runs until the context ends, with a copy of the app in `folder`.

    `name` is a folder of `tests/support`, or the path of any other folder.
    """
    app = Path(folder) / "app"
    shutil.copytree(TESTS / "support" / name, app, ignore=shutil.ignore_patterns("__pycache__"))
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
