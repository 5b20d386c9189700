"""The command line: `langgraph-patch demo | scan | show | repair`.

It adds to `langgraph_patch.threads` only arguments, output and exit codes. Data goes to standard
output, everything else to standard error, and nothing is written without `--apply`.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig

from langgraph_patch._sansio import run_sync
from langgraph_patch.cli.arguments import BAD, CLEAN, CLOSED, DAMAGED, REFUSED, STOPPED, parse
from langgraph_patch.cli.load_graph import check_trusted, load_graph
from langgraph_patch.cli.output import (
    discard_output,
    prepare_streams,
    print_message,
    print_result,
    print_table,
    progress_bar,
    rich_required,
    write_page,
)
from langgraph_patch.cli.stopping import Stopping
from langgraph_patch.cli.summary import Counts, no_state_key, summarize_repair, summarize_scan
from langgraph_patch.errors import OptionError, PatchError, ThreadError, brief
from langgraph_patch.threads import repair_thread, scan_threads
from langgraph_patch.threads.checkpoint_state import history_of
from langgraph_patch.threads.reports import ThreadRepair, ThreadReport
from langgraph_patch.threads.stores.select import Database, is_database_failure, open_database


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The arguments after the name of the program. Default: those of the process.

    Returns:
        The exit code.

    Example:
        >>> from langgraph_patch.cli.main import main
        >>> main(["scan", "/no/such.db"])
        2
    """
    prepare_streams()
    options = parse(arguments, demo=_run_demo, scan=_run_scan, show=_run_show, repair=_run_repair)
    logger = logging.getLogger("langgraph")
    if not options.debug and not logger.handlers:
        # LangGraph logs each class that it does not load; the reports name them.
        logger.addHandler(logging.NullHandler())
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output(sys.stdout)
        return CLOSED
    except KeyboardInterrupt:
        if options.debug:
            raise
        print_message("stopped by Ctrl-C.")
        return STOPPED
    except Exception as error:
        if options.debug:
            raise
        is_expected = isinstance(error, PatchError | OSError)
        print_message(
            str(error) if is_expected else f"{type(error).__name__}: {error} (see --debug)."
        )
        return BAD
    return code


# --- demo and show -----------------------------------------------------------------------


def _run_demo(_: argparse.Namespace) -> int:
    with rich_required():
        from langgraph_patch.cli import demo  # noqa: PLC0415 - needs rich
    return demo.run()


def _run_show(options: argparse.Namespace) -> int:
    with open_database(options.database) as database:
        report = _report_on_thread(database, options)
        is_readable = report.status != "unreadable"
        if is_readable and report.messages is None:
            return no_state_key(options)
        history = _stored_history(database, options) if is_readable else []
    as_json = options.format == "json"
    if options.html is not None:
        write_page(options.html, report, history)
    if as_json or not is_readable:
        print_result(report, as_json=as_json, with_patch=is_readable)
    elif options.html is None:
        print_table(report, history)
    if not is_readable:
        return REFUSED
    return DAMAGED if report.defects else CLEAN


def _report_on_thread(database: Database, options: argparse.Namespace) -> ThreadReport:
    reports = scan_threads(
        database.saver, messages_key=options.messages_key, thread_ids=[options.thread]
    )
    for report in reports:
        if report.namespace == options.namespace:
            return report
    raise ThreadError(f"Thread {options.thread!r} has no namespace {options.namespace!r}.")


def _stored_history(database: Database, options: argparse.Namespace) -> list[BaseMessage]:
    config = _thread_config(options.thread, options.namespace)
    saved = database.saver.get_tuple(config)
    if saved is None:
        raise ThreadError(f"Thread {options.thread!r} has been deleted meanwhile.")
    return run_sync(history_of(database.saver, saved, options.messages_key)) or []


# --- scan and repair ---------------------------------------------------------------------


def _run_scan(options: argparse.Namespace) -> int:
    counts = Counts()
    with (
        open_database(options.database) as database,
        Stopping(as_json=options.format == "json", writes=False) as stopping,
        progress_bar() as advance,
    ):
        for report in stopping.until_stopped(_read_reports(database, options)):
            counts.add(report)
            advance()
            if report.status != "healthy" or options.healthy:
                stopping.print(report)
    if stopping.exit_code is not None:
        return stopping.exit_code
    return summarize_scan(counts, options)


def _run_repair(options: argparse.Namespace) -> int:
    if bool(options.thread) == options.all:
        raise OptionError("name the threads to repair, or use --all.")
    graph = load_graph(options.graph)
    check_trusted(options.trust)
    counts = Counts()
    with (
        open_database(options.database, write=options.apply, trust=options.trust) as database,
        Stopping(as_json=options.format == "json", writes=options.apply) as stopping,
        progress_bar() as advance,
    ):
        reports = _read_reports(database, options, options.thread or None)
        for report in stopping.until_stopped(reports):
            advance()
            repair = _repair_reported(database, graph, report, options)
            counts.add(report, repair)
            if repair.outcome != "healthy":
                stopping.print(repair)
    if stopping.exit_code is not None:
        return stopping.exit_code
    return summarize_repair(counts, options)


def _read_reports(
    database: Database, options: argparse.Namespace, thread_ids: Sequence[str] | None = None
) -> Iterator[ThreadReport]:
    return scan_threads(
        database.saver,
        messages_key=options.messages_key,
        thread_ids=thread_ids,
        after=options.after,
        shard=options.shard,
    )


def _repair_reported(
    database: Database, graph: Any, report: ThreadReport, options: argparse.Namespace
) -> ThreadRepair:
    """Repair one thread after its scan; whatever goes wrong with it is a refusal."""
    key = (report.thread_id, report.namespace)
    if report.status == "unreadable":
        return ThreadRepair(*key, "refused", report.reason)
    if report.status == "healthy" or report.messages is None:
        return ThreadRepair(*key, "healthy", before=report.checkpoint_id)
    try:
        return _repair_stored(database, graph, _thread_config(*key), options)
    except Exception as error:
        if options.debug or is_database_failure(error):
            raise
        reason = str(error) if isinstance(error, PatchError) else brief(error)
        return ThreadRepair(*key, "refused", reason, before=report.checkpoint_id)


def _repair_stored(
    database: Database, graph: Any, config: RunnableConfig, options: argparse.Namespace
) -> ThreadRepair:
    """Plan a repair and, with `--apply`, write it if all classes of the state were loaded."""
    repair_options = {
        "on_pause": options.on_pause,
        "min_age": options.min_age,
        "force": options.force,
        "recover": options.recover,
        "messages_key": options.messages_key,
        "checkpointer": database.saver,
    }
    database.blocked.clear()
    plan = repair_thread(graph, config, dry_run=True, **repair_options)
    if plan.outcome != "planned":
        return plan
    if database.blocked:
        names = " ".join(f"--trust {name}" for name in sorted(database.blocked))
        reason = f"its state holds classes that were not loaded; if they are yours: {names}"
        return ThreadRepair(plan.thread_id, plan.namespace, "refused", reason, before=plan.before)
    return repair_thread(graph, config, **repair_options) if options.apply else plan


def _thread_config(thread_id: str, namespace: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace}}
