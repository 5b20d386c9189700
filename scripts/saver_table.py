"""Print the table of checkpointers: what `langgraph_patch` can do with each, every cell from a run.

    python scripts/saver_table.py PostgresSaver=postgresql://... ValkeySaver=valkey://127.0.0.1:6379

A checkpointer that needs a server gets the URI of an empty database; without one its row says so.
MongoDB and DynamoDB are the emulators `mongomock` (it knows `pymongo<4.11`; install
langgraph-checkpoint-mongodb with `--no-deps` after it) and `moto[dynamodb]`.
"""

# ruff: noqa: T201, BLE001 - it prints what happens, whatever it is

from __future__ import annotations

import sys
import tempfile
import uuid
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch import threads, with_patching
from langgraph_patch._text import brief
from langgraph_patch.errors import PatchError, ThreadError
from support.bank import Talk, twice
from support.stored_threads import WAITED, results, stored

# --- what is checked -------------------------------------------------------------------------


def check(what: str, found: object, expected: object) -> None:
    """Compare."""
    if found != expected:
        raise AssertionError(f"{what}: expected {expected!r}, found {found!r}")


def recover(saver: Any) -> None:
    """A patched graph finds recorded results."""
    made = stored("paused", saver=saver, thread_id=uuid.uuid4().hex)
    made.graph = with_patching(made.graph)
    made.say("never mind")
    check("the results", results(made.history), ["sent to bob", WAITED.format("c2")])


def scan(saver: Any) -> None:
    """Each thread has its status, among all others."""
    expected = {"healthy": "healthy", "paused": "paused", "abandoned": "damaged"}
    ids = {way: uuid.uuid4().hex for way in expected}
    for way, name in ids.items():
        stored(way, saver=saver, thread_id=name)
    for options in ({"thread_ids": [*ids.values()]}, {}):
        found = {
            report.thread_id: report.status for report in threads.scan_threads(saver, **options)
        }
        check("the statuses", {way: found[name] for way, name in ids.items()}, expected)


def repair(saver: Any) -> None:
    """A damaged thread accepts its next message, and a pause is ended only if that is asked."""
    made = stored("abandoned", saver=saver, thread_id=uuid.uuid4().hex)
    check("the outcome", threads.repair_thread(saver, made.config, min_age=0).outcome, "repaired")
    made.say("next")
    check("the results", results(made.history), ["sent to bob", WAITED.format("c2")])
    made = stored("paused", saver=saver, thread_id=uuid.uuid4().hex)
    check("the pause", threads.repair_thread(saver, made.config, min_age=0).outcome, "paused")
    threads.repair_thread(saver, made.config, min_age=0, on_pause="abandon")
    check("the results", results(made.history), ["sent to bob", WAITED.format("c2")])


def undo(saver: Any) -> None:
    """The thread is as it was before its repair, and a second undo is an error."""
    made = stored("abandoned", saver=saver, thread_id=uuid.uuid4().hex)
    before = made.history
    threads.repair_thread(saver, made.config, min_age=0)
    threads.undo_repair(saver, made.config)
    check("the history", made.history, before)
    try:
        threads.undo_repair(saver, made.config)
    except ThreadError:
        return
    raise AssertionError("a second undo raised no error")


def once(saver: Any) -> None:
    """Of two runs one runs the tool (`once=[...]`)."""
    talk = Talk("create_agent", saver=saver)
    if talk.say("pay") is not None:
        raise talk.error
    check("what both runs raise", twice(talk), [None, "StartedError"])
    check("what was done", talk.bank.paid, [5])


CHECKS = (recover, scan, repair, undo, once)


# --- checkpointers ---------------------------------------------------------------------------


def from_uri(module: str) -> Callable[[str, str], Any]:
    """Opens the checkpointer of that name over a URI or a path."""
    return lambda name, uri: getattr(import_module(module), name).from_conn_string(uri)


def mongodb(*_: str) -> Any:
    """Over the emulator mongomock."""
    client = import_module("mongomock").MongoClient()
    client.append_metadata = lambda *_, **__: None
    saver = import_module("langgraph.checkpoint.mongodb").MongoDBSaver
    return nullcontext(saver(client, db_name=f"t{uuid.uuid4().hex}"))


@contextmanager
def dynamodb(*_: str) -> Any:
    """Over the emulator moto, which wants credentials in the environment: any will do."""
    with import_module("moto").mock_aws():
        keys = [("PK", "HASH"), ("SK", "RANGE")]
        import_module("boto3").client("dynamodb", region_name="us-east-1").create_table(
            TableName="threads",
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys],
            AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n, _ in keys],
            BillingMode="PAY_PER_REQUEST",
        )
        saver = import_module("langgraph_checkpoint_aws").DynamoDBSaver
        yield saver(table_name="threads", region_name="us-east-1")


_LANGGRAPH = "langgraph.checkpoint"
ROWS: list[tuple[str, str, Callable[[str, str], Any]]] = [
    ("InMemorySaver", "", lambda *_: nullcontext(InMemorySaver())),
    ("SqliteSaver", "-sqlite", from_uri(f"{_LANGGRAPH}.sqlite")),
    ("DuckDBSaver", "-duckdb", from_uri(f"{_LANGGRAPH}.duckdb")),
    ("MongoDBSaver", "-mongodb", mongodb),
    ("DynamoDBSaver", "-aws", dynamodb),
    ("PostgresSaver", "-postgres", from_uri(f"{_LANGGRAPH}.postgres")),
    ("PyMySQLSaver", "-mysql", from_uri(f"{_LANGGRAPH}.mysql.pymysql")),
    ("ValkeySaver", "-aws", from_uri("langgraph_checkpoint_aws.checkpoint.valkey")),
    ("RedisSaver", "-redis", from_uri(f"{_LANGGRAPH}.redis")),
]
"""A name, the end of the package's, and what opens it."""
FILES = ("SqliteSaver", "DuckDBSaver")
NO_URI = ("InMemorySaver", "MongoDBSaver", "DynamoDBSaver")


# --- the table -------------------------------------------------------------------------------


def use(function: Any, opened: Any) -> None:
    """Run a check over a checkpointer that is opened for it."""
    with opened as saver:
        if hasattr(saver, "setup"):
            saver.setup()
        function(saver)


def cell(function: Any, make: Callable[[str], Any], uri: str) -> str:
    """What a check says of a checkpointer."""
    try:
        use(function, make(uri))
    except PatchError as error:
        return f"not possible: {error}"
    except Exception as error:
        return f"{'wrong' if isinstance(error, AssertionError) else 'fails'}: {brief(error)}"
    return "yes"


def main() -> None:
    """Print the table."""
    uris = dict(argument.split("=", 1) for argument in sys.argv[1:])
    print("| checkpointer | package |", " | ".join(each.__name__ for each in CHECKS), "|")
    print("|---" * (2 + len(CHECKS)) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for name, ending, make in ROWS:
            package = f"langgraph-checkpoint{ending}"
            uri = f"{folder}/{name}" if name in FILES else uris.get(name, "")
            try:
                package = f"{package} {version(package)}"
                is_run = uri or name in NO_URI
                cells = [cell(c, partial(make, name), uri) if is_run else "no URI" for c in CHECKS]
            except PackageNotFoundError:
                cells = ["not installed"] * len(CHECKS)
            print(f"| {name} | {package} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
