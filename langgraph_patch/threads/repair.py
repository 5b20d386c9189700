"""How one stored thread is repaired: looked at, rehearsed, checked, and only then written.

The order of the writes is the point. What finished siblings wrote is committed first
(`update_state(None, END)`): writing in their place would destroy it. Then the repair. Then
what the repair's node would start is cleared, so that the next message goes through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.graph import END, START
from langgraph.types import Command

from langgraph_patch._sansio import IOGenerator, call_method
from langgraph_patch.errors import PatchError, ThreadError, brief
from langgraph_patch.evidence.recover import recover_evidence
from langgraph_patch.graph.message_equality import are_same, missing, unnamed
from langgraph_patch.graph.patch_node import key_error
from langgraph_patch.graph.state_update import Writes, writes_for
from langgraph_patch.history.pairing import Reading, read_history
from langgraph_patch.history.patch import Change, Evidence, Patch
from langgraph_patch.history.patcher import as_messages, patch_reading
from langgraph_patch.threads.checkpoint_state import age_of, id_of, pauses_of
from langgraph_patch.threads.options import RepairOptions
from langgraph_patch.threads.reports import Outcome, ThreadRepair
from langgraph_patch.threads.staging import Rehearsal
from langgraph_patch.threads.stores.select import Key, ask_source, source_of
from langgraph_patch.threads.target import graph_at, place_of, saver_of, writers


class _RefusedError(Exception):
    """Why a repair is not written. Never leaves this module."""


# --- the thread --------------------------------------------------------------------------


class Repairing:
    """One thread under repair.

    Args:
        graph: The application's graph.
        config: Names the thread and the namespace.
        options: How to repair.
    """

    def __init__(self, graph: Any, config: RunnableConfig, options: RepairOptions) -> None:
        self._place = place_of(config)
        self._saver = saver_of(graph, config, options.checkpointer)
        self._graph = graph.copy({"checkpointer": self._saver})
        self._wanted = config.get("configurable", {}).get("checkpoint_id")
        place = self._place["configurable"]
        self._key = Key(str(place["thread_id"]), place["checkpoint_ns"])
        self._target = graph_at(graph, self._key.namespace)
        self._options = options
        if options.messages_key not in self._target.channels:
            raise key_error(options.messages_key, self._target.channels)

    def run(self) -> IOGenerator[ThreadRepair]:
        """Repair the thread, or say why not."""
        self._base = yield from self._newest()
        if self._wanted is not None and self._wanted != id_of(self._base):
            return self._result(
                "moved", f"its newest checkpoint is {id_of(self._base)}, not {self._wanted}"
            )
        self._rehearsal = Rehearsal(self._saver, self._base)
        self._stage = self._graph.copy({"checkpointer": self._rehearsal})
        try:
            return (yield from self._repaired())
        except _RefusedError as refusal:
            return self._result("refused", str(refusal))

    def _repaired(self) -> IOGenerator[ThreadRepair]:
        held = yield from self._state(self._base.config)
        live = yield from self._state()
        history = self._messages(held)
        waits = yield from self._waits(live)
        keeps = self._options.on_pause == "keep"
        reading = self._read(history)
        if not (yield from self._patch_of(reading)):
            reason = _WAITS if keeps else _ENDS
            return self._result("paused", reason) if waits else self._result("healthy")
        if waits and keeps:
            return self._result("paused", _WAITS)
        age = age_of(self._base)
        if age < self._options.min_age and not self._options.force:
            return self._result("young", _YOUNG.format(age, self._options.min_age))
        patch = yield from self._rehearse(reading, live)
        if self._options.dry_run:
            return self._result("planned", patch=patch)
        return (yield from self._write(patch))

    def _newest(self) -> IOGenerator[CheckpointTuple]:
        saved: CheckpointTuple | None = yield from call_method(
            self._saver, "get_tuple", self._place
        )
        if saved is None:
            where = f" in namespace {self._key.namespace!r}" if self._key.namespace else ""
            raise ThreadError(f"There is no thread {self._key.thread_id!r}{where}.")
        return saved

    def _state(self, place: RunnableConfig | None = None) -> IOGenerator[Any]:
        return self._staged("get_state", place or self._place)

    def _staged(self, method: str, *args: Any, **options: Any) -> IOGenerator[Any]:
        """What the application's code makes of the thread; that it fails is no other's matter."""
        try:
            return (yield from call_method(self._stage, method, *args, **options))
        except Exception as error:
            if isinstance(error, PatchError) or self._rehearsal.has_raised(error):
                raise
            raise _RefusedError(f"the graph cannot read it: {brief(error)}") from error

    def _messages(self, state: Any) -> list[BaseMessage]:
        key, values = self._options.messages_key, state.values
        if key != "__root__":
            values = values.get(key) or []
        return as_messages(values)

    def _result(
        self, outcome: Outcome, reason: str | None = None, patch: Patch | None = None
    ) -> ThreadRepair:
        return ThreadRepair(
            *self._key,
            outcome,
            reason,
            patch,
            before=id_of(self._base),
            after=self._rehearsal.checkpoint_id if outcome == "repaired" else None,
        )

    # --- does it wait? -------------------------------------------------------------------

    def _waits(self, live: Any) -> IOGenerator[bool]:
        """Whether a human may still answer."""
        asked = {question.id for question in live.interrupts}
        if asked and self._key.namespace:
            # Only through the root graph can an answer come: if that has moved on, none will.
            root = yield from self._state({"configurable": {"thread_id": self._key.thread_id}})
            asked &= {question.id for question in root.interrupts}
        return bool(asked) or self._is_at_breakpoint(live)

    def _is_at_breakpoint(self, live: Any) -> bool:
        if not live.next or any(task.error for task in live.tasks):
            return False
        before = self._target.interrupt_before_nodes
        if self._target.interrupt_after_nodes or before == "*":
            return True
        return any(node in before for node in live.next)

    # --- rehearsing ----------------------------------------------------------------------

    def _rehearse(self, before: Reading, live: Any) -> IOGenerator[Patch]:
        """Let the graph make the repaired checkpoints, and check them.

        Raises:
            _RefusedError: If they are not right.
        """
        self._check_known(live)
        if START in live.next:
            yield from self._take_input()
        yield from self._update(None, END)
        committed = self._messages((yield from self._state()))
        after = self._read(committed)
        self._check_kept(before, self._messages(live), after)
        patch = yield from self._patch_of(after)
        if patch:
            channel = self._target.channels[self._options.messages_key]
            writes = writes_for(channel, committed, patch.messages, alone=True)
            if writes is None:
                raise _RefusedError(
                    f"the reducer of {self._options.messages_key!r} accepts no form of the repair"
                )
            yield from self._rehearse_write(writes, patch.messages)
        if (yield from self._state()).next:
            yield from self._update(None, END)
        final = yield from self._state()
        if final.next or not are_same(self._messages(final), patch.messages):
            raise _RefusedError("the graph did not hold what was written to it")
        history = list(before.messages)
        changes = (*_committed_changes(history, committed), *patch.changes)
        return Patch(patch.messages, changes, history)

    def _check_known(self, live: Any) -> None:
        """Refuse if the graph knows nothing of tasks that finished or wait: they would be lost."""
        tasks = {task.id for task in live.tasks}
        for task, channel in _written(self._base):
            if task not in tasks and channel in self._target.channels and channel[:2] != "__":
                raise _RefusedError(_NO_NODE.format("work that finished in this thread"))
        if self._options.on_pause == "keep" and not tasks.issuperset(pauses_of(self._base)):
            raise _RefusedError(_NO_NODE.format("what waits for a human in this thread"))

    def _take_input(self) -> IOGenerator[None]:
        """Take in a message that the run had accepted and not yet put into the state."""
        if self._is_delta:
            raise _RefusedError("a run was cut off as it began: go on with invoke(None) first")
        value = self._base.checkpoint["channel_values"][START]
        yield from self._update(value, START)

    def _update(self, values: Any, node: str) -> IOGenerator[None]:
        yield from self._staged("update_state", self._place, values, as_node=node)

    def _check_kept(self, before: Reading, live: Sequence[BaseMessage], after: Reading) -> None:
        """Refuse to write fewer messages than there were, or fewer answered calls."""
        held = before.messages
        known = {message.id for message in held}
        # Results get their ids only now, and so does what was written as a dict or a tuple.
        new = [m for m in live if m.id not in known and not isinstance(m, ToolMessage)]
        lost = missing(held, after.messages) + missing(unnamed(new), unnamed(after.messages))
        if lost or len(after.unanswered) > len(before.unanswered):
            raise _RefusedError(
                f"{lost} of its {len(held) + len(new)} messages would be lost: a finished node "
                f"removes or edits them, or the graph is not the one that wrote this thread"
            )

    def _patch_of(self, reading: Reading) -> IOGenerator[Patch]:
        options = self._options
        evidence: Evidence = {}
        if options.recover:
            evidence = yield from recover_evidence(
                self._saver,
                self._base.config,
                reading.unanswered,
                messages_key=options.messages_key,
            )
        return patch_reading(
            reading,
            placeholder=options.placeholder,
            language=options.language,
            evidence=evidence,
        )

    def _read(self, messages: list[BaseMessage]) -> Reading:
        return read_history(messages, replace_foreign=self._options.replace_foreign)

    def _rehearse_write(self, writes: Writes, wanted: list[BaseMessage]) -> IOGenerator[None]:
        """Write as the first node whose routers let the repair through."""
        failed: Exception | None = None
        update: Command[Any] = Command(update=[(self._options.messages_key, w) for w in writes])
        for node in writers(self._target):
            mark = self._rehearsal.mark()
            try:
                yield from self._update(update, node)
                if are_same(self._messages((yield from self._state())), wanted):
                    return
            except (_RefusedError, PatchError) as error:
                failed = error
            self._rehearsal.rewind(mark)
        raise _RefusedError("no node of the graph can write the repair") from failed

    @property
    def _is_delta(self) -> bool:
        return any(isinstance(c, DeltaChannel) for c in self._target.channels.values())

    # --- writing -------------------------------------------------------------------------

    def _write(self, patch: Patch) -> IOGenerator[ThreadRepair]:
        """Put the rehearsed checkpoints into the database, and read them back."""
        key = self._options.messages_key
        is_spread = isinstance(self._target.channels[key], DeltaChannel)
        self._rehearsal.squash(self._target.channels, {key: patch.messages} if is_spread else {})
        now = yield from self._newest()
        if id_of(now) != id_of(self._base) or _written(now) != _written(self._base):
            return self._result("moved", _MOVED)
        yield from self._rehearsal.perform()
        ours = self._rehearsal.checkpoint_id
        newest = yield from self._newest()
        if id_of(newest) != ours:
            stands = yield from self._comes_from(newest, ours)
            return (
                self._result("repaired", patch=patch) if stands else self._result("moved", _MOVED)
            )
        state = yield from call_method(self._graph, "get_state", self._place)
        if not state.next and are_same(self._messages(state), patch.messages):
            return self._result("repaired", patch=patch)
        yield from ask_source(source_of(self._saver), "forget", self._key, ours)
        return self._result("refused", "the database did not give back what was written to it")

    def _comes_from(self, saved: CheckpointTuple | None, ancestor: str) -> IOGenerator[bool]:
        """Whether a later checkpoint was made from the repaired one."""
        while saved is not None and saved.parent_config is not None and id_of(saved) > ancestor:
            saved = yield from call_method(self._saver, "get_tuple", saved.parent_config)
        return saved is not None and id_of(saved) == ancestor


_WAITS = "it waits for a human: answer it, or abandon the pause"
_ENDS = "it waits for a human, and nothing in it is damaged: the next message ends the pause"
_NO_NODE = "the graph has no node for {}: is it the graph that the application runs?"
_YOUNG = (
    "its newest checkpoint is {:.0f} s old and a tool may be running: wait until it is {:.0f} s "
    "old, or force the repair"
)
_MOVED = "something else wrote to it meanwhile: what that wrote stands"


def _committed_changes(
    before: Sequence[BaseMessage], after: Sequence[BaseMessage]
) -> Iterator[Change]:
    """The results that finished siblings had recorded."""
    known = {message.id for message in before}
    makers = {
        call["id"]: (place, call["name"])
        for place, message in enumerate(before)
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    }
    for message in after:
        if isinstance(message, ToolMessage) and message.id not in known:
            place, name = makers.get(message.tool_call_id, (len(before), message.name))
            yield Change("recovered", place, message.tool_call_id, name, None, None, message)


def _written(saved: CheckpointTuple) -> list[tuple[str, str]]:
    """Who wrote what since the checkpoint; the values themselves may not be comparable."""
    return [(task, channel) for task, channel, _ in saved.pending_writes or ()]
