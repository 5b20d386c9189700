"""Open the database that the command line names, and name it without its password."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from langchain_core.messages import BaseMessage

from langgraph_patch._sansio import run_sync
from langgraph_patch.cli.arguments import MESSAGES_KEY
from langgraph_patch.cli.local_code import load_serde
from langgraph_patch.cli.output import print_message
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.threads.reports import ThreadReport
from langgraph_patch.threads.stored import history_of
from langgraph_patch.threads.stores.masking import masked
from langgraph_patch.threads.stores.select import Database, open_database

_PASSWORD = re.compile(r"://[^@]*:[^@]*@|password\s*=", re.IGNORECASE)

_HINT = (
    "every user of this machine can see the password in the URI (ps): leave it out and set "
    "PGPASSWORD, PGSERVICE or ~/.pgpass, or put the URI into an environment variable and name it "
    "as env:NAME."
)


@dataclass(frozen=True, slots=True)
class Target:
    """What the command line named.

    Attributes:
        text: How it was typed.
        location: The path or the URI; it may hold a password.
        is_server: Whether it is a LangGraph Server, which has its own graph.
        reading: The options without which its threads cannot be read, as they were typed.
    """

    text: str
    location: str
    is_server: bool
    reading: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The path or the URI, without user, password and parameters."""
        if "://" not in self.location:
            return self.location
        parts = urlsplit(self.location)
        rest = f"{parts.path}{parts.query}{parts.fragment}"
        host = parts.netloc.rpartition("@")[2]
        if "@" in rest or not re.fullmatch(r"[^:]*|[^:]*:\d*|\[.*\](:\d*)?", host):
            return masked(self.location)  # it may not have been read as it was meant
        return f"{parts.scheme}://{host}{parts.path}"

    def command(self, command: str, *options: str, ids: Sequence[str] = ()) -> str:
        """A command line for these threads that can be typed; `DB` stands for a password."""
        is_secret = _PASSWORD.search(self.text) or (
            self.text == self.location and "***" in self.name
        )
        text = "DB" if is_secret else shlex.quote(self.text)
        dash = ["--"] if any(each.startswith("-") and each != "-" for each in ids) else []
        quoted = [shlex.quote(each) for each in (*options, *self.reading, *dash, *ids)]
        return " ".join(["langgraph-patch", command, text, *quoted])


def target_of(options: argparse.Namespace) -> Target:
    """The database that the options name.

    Raises:
        OptionError: If they name an environment variable that is not set.
    """
    text: str = options.database
    location = text
    if text.startswith("env:"):
        location = os.environ.get(text[4:], "")
        if not location:
            raise OptionError(f"{text}: the environment variable {text[4:]!r} is not set.")
    elif _PASSWORD.search(text):
        print_message(_HINT)
    is_server = location.startswith(("http://", "https://"))
    return Target(text, location, is_server, _reading(options))


def _reading(options: argparse.Namespace) -> list[str]:
    messages_key = getattr(options, "messages_key", MESSAGES_KEY)
    named = ["--messages-key", messages_key] if messages_key != MESSAGES_KEY else []
    return [*named, "--serde", options.serde] if options.serde else named


@contextmanager
def open_target(
    target: Target,
    options: argparse.Namespace,
    *,
    write: bool = False,
    trust: Sequence[tuple[str, str]] = (),
) -> Iterator[Database]:
    """Open a database with the serializer of the options.

    Raises:
        OptionError: If the serializer cannot be loaded.
        ThreadError: If the database cannot be opened, or fails.
    """
    serde = load_serde(options.serde) if options.serde else None
    with open_database(target.location, write=write, trust=trust, serde=serde) as database:
        yield database


def stored_history(
    database: Database, report: ThreadReport, messages_key: str
) -> list[BaseMessage]:
    """The messages of the history that a report is about.

    Raises:
        ThreadError: If it has been deleted meanwhile.
    """
    configurable = {"thread_id": report.thread_id, "checkpoint_ns": report.namespace}
    saved = database.saver.get_tuple({"configurable": configurable})
    if saved is None:
        raise ThreadError(f"Thread {report.thread_id!r} has been deleted meanwhile.")
    return run_sync(history_of(database.saver, saved, messages_key)) or []
