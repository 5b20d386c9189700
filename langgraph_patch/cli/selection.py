"""Which threads a command is about: ids, patterns, an age."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase

from langgraph_patch._sansio import run_sync
from langgraph_patch.cli.output import standard_input
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.threads import LangGraphServer, scan_threads
from langgraph_patch.threads.reports import ThreadReport
from langgraph_patch.threads.stores.select import Database, store_of

_SHOWN = 5  # how many missing ids an error names


def chosen_ids(options: argparse.Namespace) -> Sequence[str] | None:
    """The ids that were typed, or read from standard input for `-`; None if there are none.

    Raises:
        OptionError: If standard input is to be read and holds no id.
    """
    if not options.ids:
        return None
    ids: list[str] = []
    for each in options.ids:
        ids += _ids_in(standard_input()) if each == "-" else [each]
    if not ids:
        raise OptionError("standard input holds no id of a thread: expected one a line.")
    return ids


def _ids_in(lines: Iterable[str]) -> Iterator[str]:
    """One id for each line: the line itself, or the `thread_id` of a JSON object."""
    for line in lines:
        text = line.strip("\r\n")
        if text.startswith("{"):
            with suppress(ValueError):
                values = json.loads(text)
                if isinstance(values, dict) and isinstance(values.get("thread_id"), str):
                    text = values["thread_id"]
        if text:
            yield text


def check_ids(database: Database, ids: Sequence[str]) -> None:
    """Check that all threads exist, before the first one is written to.

    Raises:
        ThreadError: If a thread does not exist; the error names it.
    """
    missing = [each for each in dict.fromkeys(ids) if not _exists(database, each)]
    if missing:
        named = ", ".join(map(repr, missing[:_SHOWN]))
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise ThreadError(f"There is no thread {named}{more}: nothing was done.")


def _exists(database: Database, thread_id: str) -> bool:
    with suppress(UnicodeEncodeError):  # no database can hold such an id
        return bool(run_sync(store_of(database.saver).keys_of(thread_id)))
    return False


def read_reports(
    database: Database, options: argparse.Namespace, ids: Sequence[str] | None
) -> Iterator[ThreadReport]:
    """The reports on the selected threads."""
    saver = database.saver
    if options.since and ids is None and isinstance(saver, LangGraphServer):
        saver = saver.only(updated_after=options.since)  # it lists fewer threads
    return scan_threads(
        saver,
        messages_key=options.messages_key,
        thread_ids=ids,
        include=_matches(options.thread),
        since=options.since,
    )


def _matches(patterns: Sequence[str]) -> Callable[[str], bool] | None:
    if not patterns:
        return None
    return lambda thread_id: any(fnmatchcase(thread_id, pattern) for pattern in patterns)


def count_threads(
    database: Database, options: argparse.Namespace, ids: Sequence[str] | None
) -> int | None:
    """How many threads will be read, for a progress bar; None if that is not known before."""
    if options.thread or options.since:
        return None
    return len(set(ids)) if ids is not None else run_sync(store_of(database.saver).count_threads())
