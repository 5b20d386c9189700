"""`langgraph-patch repair`: repair threads, where needed through the application's graph."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import Any

from langchain_core.runnables import RunnableConfig

from langgraph_patch.cli.local_code import check_trusted, load_graph
from langgraph_patch.cli.progress import progress_bar
from langgraph_patch.cli.repair_output import RepairOutput
from langgraph_patch.cli.selection import check_ids, chosen_ids, count_threads, read_reports
from langgraph_patch.cli.stopping import Stopping
from langgraph_patch.cli.summary import Counts, summarize_repair
from langgraph_patch.cli.target import Target, open_target, target_of
from langgraph_patch.errors import OptionError, PatchError, brief
from langgraph_patch.threads import repair_thread
from langgraph_patch.threads.opening import Database, is_database_failure
from langgraph_patch.threads.reports import ThreadRepair, ThreadReport


def run(options: argparse.Namespace) -> int:
    """Repair the selected threads, or print what a repair would do.

    Returns:
        The exit code.

    Raises:
        OptionError: If the options name no thread, or a graph beside a server.
        ThreadError: If one of the named threads does not exist; nothing is written then.
    """
    if bool(options.ids or options.thread or options.since) == options.all:
        raise OptionError("name the threads to repair, select them with --thread, or use --all.")
    target = target_of(options)
    graph = _graph(target, options)
    if options.trust and options.serde:
        raise OptionError("--trust is not used with --serde: your serializer decides what to load.")
    check_trusted(options.trust)
    ids = chosen_ids(options)
    counts = Counts()
    with ExitStack() as stack:
        database = stack.enter_context(
            open_target(target, options, write=options.apply, trust=options.trust)
        )
        if ids is not None:
            check_ids(database, ids)
        stopping = stack.enter_context(Stopping(counts.done, writes=options.apply))
        bar = stack.enter_context(progress_bar(lambda: count_threads(database, options, ids)))
        output = RepairOutput(stopping, as_json=options.json, with_diff=options.diff)
        for report in stopping.until_stopped(read_reports(database, options, ids)):
            bar.advance(report.thread_id)
            repair = _repair(database, graph, report, options)
            counts.add(report, repair)
            if repair.outcome != "healthy":
                bar.hide()
                output.print(repair)
    if stopping.exit_code is not None:
        return stopping.exit_code
    return summarize_repair(counts, options)


def _graph(target: Target, options: argparse.Namespace) -> Any:
    """The application's graph; None if it is not named, and for a server, which has it."""
    if target.is_server and options.graph:
        raise OptionError("--graph is not used with a LangGraph Server: it has the graph.")
    return load_graph(options.graph) if options.graph else None


def _repair(
    database: Database, graph: Any, report: ThreadReport, options: argparse.Namespace
) -> ThreadRepair:
    """Repair one thread after its scan; whatever goes wrong with it is a refusal."""
    key = (report.thread_id, report.namespace)
    if report.status == "unreadable":
        return ThreadRepair(*key, "refused", report.reason)
    if report.status == "healthy" or report.messages is None:
        return ThreadRepair(*key, "healthy", before=report.checkpoint_id)
    config: RunnableConfig = {
        "configurable": {"thread_id": report.thread_id, "checkpoint_ns": report.namespace}
    }
    saver = database.saver
    try:
        return repair_thread(
            saver if graph is None else graph.copy({"checkpointer": saver}),
            config,
            on_pause=options.on_pause,
            min_age=options.min_age,
            force=options.force,
            recover=options.recover,
            messages_key=options.messages_key,
            dry_run=not options.apply,
        )
    except Exception as error:  # any: the other threads are still to be repaired
        if options.debug or is_database_failure(error):
            raise
        reason = str(error) if isinstance(error, PatchError) else brief(error)
        return ThreadRepair(*key, "refused", reason, before=report.checkpoint_id)
