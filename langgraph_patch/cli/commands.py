"""What the commands of the command line do, with the options that `cli` has read.

They add to `langgraph_patch.threads` only output (`output`) and exit codes. Nothing is written to a
database without `--apply`.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, cast

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from rich.console import Console
from rich.text import Text

from langgraph_patch import threads, view
from langgraph_patch._langgraph.address import Address
from langgraph_patch._text import brief, database_name, quoted, short
from langgraph_patch.cli import output
from langgraph_patch.errors import OptionError, PatchError, ThreadError
from langgraph_patch.history.changes import json_value
from langgraph_patch.threads import ThreadRepair, ThreadReport
from langgraph_patch.threads.read import StoredHistory
from langgraph_patch.threads.scan import scan_selected
from langgraph_patch.threads.selection import Selection
from langgraph_patch.threads.stores import check_of_thread, checked_saver, open_database, store_of
from langgraph_patch.threads.undo import find_repairs

# --- the database ------------------------------------------------------------------------


def _open(
    options: Namespace, *, write: bool = False
) -> AbstractContextManager[BaseCheckpointSaver[Any]]:
    trust: Sequence[str] = getattr(options, "trust", ())
    if options.database.startswith(_SAVER):
        if trust or options.serde or options.statement_timeout:
            raise OptionError("--trust, --serde and --statement-timeout are for databases only.")
        return _own_saver(options.database, write=write)
    if trust and options.serde:
        raise OptionError("--trust is not used with --serde: it decides which classes are loaded.")
    classes = [_load("--trust", each, type) for each in trust]
    serde = _load("--serde", options.serde, SerializerProtocol) if options.serde else None
    names = [(each.__module__, each.__name__) for each in classes]
    timeout = options.statement_timeout
    return open_database(
        options.database, write=write, trust=names, serde=serde, statement_timeout=timeout
    )


_SAVER = "saver:"
"""How a database begins that is a checkpointer of the user's own."""


@contextmanager
def _own_saver(location: str, *, write: bool) -> Iterator[BaseCheckpointSaver[Any]]:
    """The checkpointer that a function of the user makes; this runs its code."""
    made = _load(_SAVER, location.removeprefix(_SAVER), object)
    made = made() if callable(made) else made
    with made if isinstance(made, AbstractContextManager) else nullcontext(made) as saver:
        yield checked_saver(saver, write=write)


def _load(option: str, target: str, kind: type) -> Any:
    """What an option names as `module.py:name` or `package.module:name`; this runs its code."""
    source, _, name = target.rpartition(":")
    folder, module = os.path.split(source.removesuffix(".py"))
    # The module may import its neighbours, as it may when Python runs it.
    sys.path.insert(0, str(Path(folder).resolve()))
    try:
        loaded = pkgutil.resolve_name(f"{module}:{name}")
    except (Exception, SystemExit) as error:  # a module may raise anything
        raise OptionError(
            f"{option} {quoted(target)} cannot be loaded ({brief(error)}): expected "
            f"module.py:attribute or package.module:attribute."
        ) from error
    if not isinstance(loaded, kind) or isinstance(loaded, type) != (kind is type):
        raise OptionError(
            f"{option} {quoted(target)} is a {type(loaded).__name__}: expected a {kind.__name__}, "
            f"and not the function or the class that makes it."
        )
    return loaded


def _selection(options: Namespace) -> Selection:
    """The threads that were selected; ids may come from the standard input."""
    ids, globs = [*options.ids], [glob for glob in options.thread if glob != "-"]
    if len(globs) < len(options.thread):
        ids += filter(None, (line.rstrip("\r\n") for line in sys.stdin or ()))
        if not ids:
            output.tell(options, "no id was read from the input.")
    is_named = bool(options.ids) or "-" in options.thread
    if ids and globs and not any(fnmatchcase(name, glob) for name in ids for glob in globs):
        raise OptionError(
            f"--thread {short(globs[0])} matches none of the ids, such as {short(ids[0])}: with "
            f"ids and --thread, what is in both is selected. Name all as ids, or repeat --thread."
        )
    return Selection(
        ids if is_named else None,
        (lambda name: any(fnmatchcase(name, glob) for glob in globs)) if globs else None,
        None if options.since is None else datetime.now(UTC) - options.since,
        options.shard,
        may_be_gone="-" in options.thread,
        rate=options.rate,
    )


def _reports(
    saver: BaseCheckpointSaver[Any],
    counts: output.Counts,
    options: Namespace,
    *,
    search: bool = True,
) -> Iterator[ThreadReport]:
    """The reports on the selected threads with the selected statuses; all of them are counted."""
    reports = scan_selected(
        saver, _selection(options), messages_key=options.messages_key, search=search
    )
    for report in output.each_of(options, reports, "read"):
        counts.add(report)
        if report.status in (options.status or (report.status,)):
            yield report


# --- scan and show -----------------------------------------------------------------------


def scan(options: Namespace) -> int:
    """Report on the selected threads."""
    counts = output.Counts()
    with _open(options) as saver:
        reports = _reports(saver, counts, options)
        results = (each for each in reports if options.status or each.status != "healthy")
        output.print_threads(options, results, lambda: output.summary(counts))
    if options.json:
        output.print_json(output.totals_of(counts, options))
    output.check_found(counts, options)
    if "damaged" in counts.first:
        command = output.next_command(options, "show", [counts.first["damaged"]])
        output.tell(options, "next for one thread: this shows what happened to it:", command)
    return output.exit_code(counts, options)


def show(options: Namespace) -> int:
    """Show each selected history, with its defects and the patch beside it."""
    _check_selected(options)
    counts, is_shown = output.Counts(), False
    with _open(options) as saver:
        for report in _reports(saver, counts, options):
            if not _has_history(report):
                continue
            values, is_shown = report.to_dict(), True
            if options.json:
                output.print_json(values)
                continue
            history = _history(saver, report, options.messages_key)
            output.print_view(view.report_view(values, history, whole=options.all))
    output.check_found(counts, options)
    if counts.with_key and not (is_shown or options.status):
        output.tell(options, "no run has written a history there yet.")
    return output.exit_code(counts, options)


def _has_history(report: ThreadReport) -> bool:
    """Whether there is, or may be, a history: a graph without messages has none."""
    return report.messages is not None or report.status == "unreadable"


def _history(saver: BaseCheckpointSaver[Any], report: ThreadReport, messages_key: str) -> list[Any]:
    """The messages of a report as JSON values; none if its patch has them, or it has none."""
    if report.patch or report.messages is None:
        return []
    address = Address(report.thread_id, report.namespace)
    messages = StoredHistory.newest(saver, address, messages_key).messages()
    return [json_value(each) for each in messages or ()]


# --- repair and undo ---------------------------------------------------------------------


def repair(options: Namespace) -> int:
    """Repair the selected threads while they are read, or plan it without `--apply`."""
    _check_selected(options)
    counts, outcomes, plans = output.Counts(), output.Counts(), output.Counts()
    with _open(options, write=options.apply) as saver:
        checked_saver(saver, write=True)
        if options.apply and (problem := store_of(saver).undo_problem(saver)):
            outcomes.can_undo = False
            output.tell(options, f"{problem}: these repairs could not be undone.")
        reports = _reports(saver, counts, options, search=False)
        todo: Iterable[ThreadReport]
        todo = (each for each in reports if each.status != "healthy" and _has_history(each))
        if options.apply and not options.yes:
            found = [*todo]  # what a human is asked about is what is written
            deque(_repairs(saver, output.each_of(options, found, "planned"), options, plans), 0)
            if not _is_confirmed(options, plans, "write {} to"):
                output.tell(options, "nothing was written.")
                return output.DAMAGED
            todo = output.each_of(options, found, "done")
        results = _repairs(saver, todo, options, outcomes, dry_run=not options.apply)
        shown = (each for each in results if each.outcome != "healthy")
        output.print_threads(options, shown, lambda: _total_of_repair(counts, outcomes, options))
    output.check_found(counts, options)
    if outcomes.states["paused"]:
        outcomes.paused_with_damage = counts.paused_with_damage
    return output.exit_code(outcomes, options)


def undo(options: Namespace) -> int:
    """Undo the last repair of the selected threads, or show it without `--apply`."""
    _check_selected(options)
    outcomes, planned = output.Counts(), output.Counts()
    with _open(options, write=options.apply) as saver:
        if options.apply and (problem := store_of(saver).undo_problem(saver)):
            raise ThreadError(f"{problem}: grant that right, or name another user.")
        plans = [*output.each_of(options, find_repairs(saver, _selection(options)), "read")]
        for _, plan in plans:
            planned.add(plan)
        if options.apply and not (options.yes or _is_confirmed(options, planned, "undo {} in")):
            output.tell(options, "nothing was undone.")
            return output.DAMAGED
        results = (
            _done(saver, options, outcomes, plan, partial(_undo_one, saver, address, plan, options))
            for address, plan in output.each_of(options, plans, "done")
        )
        none = "" if plans else "no thread has a repair to undo"
        output.print_threads(options, results, lambda: _total(outcomes, options, "undone", none))
    return output.exit_code(outcomes, options)


def _check_selected(options: Namespace) -> None:
    statuses = getattr(options, "status", None)
    by = "--thread or --since" if statuses is None else "--thread, --since or --status"
    is_chosen = options.ids or options.thread or options.since is not None or statuses
    if options.command == "show":  # where --all is all of each message
        if not is_chosen:
            raise OptionError(f"name threads, or select them with {by}.")
    elif is_chosen and options.all:
        raise OptionError(f"name or select threads, or --all: --all is without ids and {by}.")
    elif not (is_chosen or options.all):
        raise OptionError(f"name threads, select them with {by}, or --all.")


def _total_of_repair(counts: output.Counts, outcomes: output.Counts, options: Namespace) -> str:
    """The totals of a repair, with what a scan found healthy; empty if it found no history."""
    outcomes.states["healthy"] += counts.states["healthy"]
    return _total(outcomes, options, "written") if counts.with_key else ""


def _total(outcomes: output.Counts, options: Namespace, what: str, none: str = "") -> str:
    """The totals of a repair or an undo, and whether anything was done."""
    text = output.outcomes_in_words(outcomes) or none or "no thread was finished"
    return text + ("." if options.apply else f" (nothing was {what}).")


def _repairs(
    saver: BaseCheckpointSaver[Any],
    todo: Iterable[ThreadReport],
    options: Namespace,
    outcomes: output.Counts,
    *,
    dry_run: bool = True,
) -> Iterator[ThreadRepair]:
    """Repair each history, up to `--limit`, and count the outcomes."""
    for report in todo:
        is_full = outcomes.states["repaired"] + outcomes.states["planned"] == options.limit
        if is_full and _is_changed(report, options):
            # This outcome is of the command line only.
            left = cast("Any", output.BEYOND)
            outcomes.add(ThreadRepair(report.thread_id, report.namespace, left))
        else:
            act = partial(_repair_one, saver, report, options, dry_run=dry_run)
            yield _done(saver, options, outcomes, report, act)


def _is_confirmed(options: Namespace, plans: output.Counts, what: str) -> bool:
    """Whether the user wants to write what is planned; with the causes, and the database's name."""
    if not (count := plans.states["planned"]):
        return True
    question = f"{what.format(view.counted(count, 'repair*'))} {database_name(options.database)}"
    if kinds := output.kinds_in_words(plans):
        question += f" ({kinds})"
    if sys.stdin is None or not sys.stdin.isatty():
        raise OptionError(f"nobody can be asked whether to {question}: add --yes.")
    sys.stderr.write(f"{question}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _is_changed(report: ThreadReport, options: Namespace) -> bool:
    """Whether a repair changes such a history, unless it is refused."""
    return report.status == "damaged" or (report.status, options.on_pause) == ("paused", "abandon")


def _repair_one(
    saver: BaseCheckpointSaver[Any], report: ThreadReport, options: Namespace, *, dry_run: bool
) -> ThreadRepair:
    """Repair one history."""
    if report.status == "unreadable":
        return ThreadRepair(report.thread_id, report.namespace, "refused", report.reason)
    return threads.repair_thread(
        saver,
        report.config,
        on_pause=options.on_pause,
        min_age=options.min_age.total_seconds(),
        recover=options.recover,
        messages_key=options.messages_key,
        dry_run=dry_run,
    )


def _undo_one(
    saver: BaseCheckpointSaver[Any], address: Address, plan: ThreadRepair, options: Namespace
) -> ThreadRepair:
    """Undo one repair."""
    if plan.outcome != "planned" or not options.apply:
        return plan
    threads.undo_repair(saver, address.config)
    # This outcome is of the command line only.
    return replace(plan, outcome=cast("Any", "undone"))


def _done(
    saver: BaseCheckpointSaver[Any],
    options: Namespace,
    outcomes: output.Counts,
    planned: ThreadReport | ThreadRepair,
    act: Callable[[], ThreadRepair],
) -> ThreadRepair:
    """What a repair or an undo did; whatever goes wrong with one thread is a refusal."""
    try:
        result = act()
    except Exception as error:  # any: the other threads are still to be done
        check_of_thread(error, saver)
        if options.debug:
            raise
        said = str(error) if isinstance(error, PatchError) else brief(error)
        reason = said + output.notes_of(error)
        result = ThreadRepair(planned.thread_id, planned.namespace, "refused", reason)
    outcomes.add(result)
    return result


def demo(_: Namespace) -> int:
    """Run the same agent without patching and with it."""
    from langgraph_patch.cli.demo import lines, style_of  # noqa: PLC0415 - imports agents

    console = Console(highlight=False, markup=False, emoji=False)
    for line in lines():
        console.print(Text(line, style_of(line)), soft_wrap=not console.is_terminal)
    return output.CLEAN
