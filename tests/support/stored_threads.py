"""Stored threads with damage, and how the tests read them."""

from langgraph_patch.threads import repair_thread, scan_threads
from support.agents import both_calls, thread
from support.broken_threads import answer, application, make_threads, say, silent
from support.databases import every_row, open_saver


def stored_messages(graph, thread_id="1", namespace=""):
    """The messages that the next run of a thread will read."""
    config = {"thread_id": thread_id, "checkpoint_ns": namespace}
    return graph.get_state({"configurable": config}).values["messages"]


def abandoned_thread(kind, saver, thread_id="1"):
    """Store a thread in which a human was asked and wrote something else; its graph."""
    graph = application(kind, saver, both_calls(), answer())
    say(graph, thread(thread_id), "go")
    say(graph, thread(thread_id), "never mind")
    return silent(kind, saver)


class Incident:
    """A database of damaged, paused and healthy threads: before, during and after a repair."""

    def __init__(self, path, count):
        with open_saver(path) as saver:
            self.made = make_threads(saver, count)
            self.before = every_row(path)
            self.histories = self._histories(saver)
            self.found = {r.thread_id: r for r in scan_threads(saver) if not r.namespace}
            self.scanned = every_row(path)
            self.repairs = {
                m.thread_id: repair_thread(silent(m.kind, saver), thread(m.thread_id), min_age=0)
                for m in self.made
            }
            self.after = every_row(path)
            self.second = {r.thread_id: r.status for r in scan_threads(saver) if not r.namespace}
            self.repaired = self._histories(saver)

    def _histories(self, saver):
        return {m.thread_id: stored_messages(silent(m.kind, saver), m.thread_id) for m in self.made}

    def damaged(self):
        """The threads that were damaged."""
        return [made for made in self.made if made.status == "damaged"]
