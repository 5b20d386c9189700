"""Repair one history, with the options of the application and what the checkpoints recorded.

Every place at which a history is repaired has a `Repairer`: the entry check, the node wrapper, the
repair node, the patched model and the middleware.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_patch._langgraph.address import Address
from langgraph_patch._langgraph.run import Run
from langgraph_patch._sansio import IOGenerator, IORequest
from langgraph_patch._text import short
from langgraph_patch.errors import EvidenceError, OptionError, logger, note
from langgraph_patch.evidence.recover import Recovery, recover_evidence
from langgraph_patch.evidence.window import Reader
from langgraph_patch.history.changes import Patch
from langgraph_patch.history.comparing import are_identical
from langgraph_patch.history.patch import changes_history, read_if_damaged, settled
from langgraph_patch.history.placeholders import Placeholder, check_placeholder
from langgraph_patch.history.reading import Reading, read_history
from langgraph_patch.history.repair import dangling_calls, patch_reading
from langgraph_patch.repairing.effects import one_write_each, settle, with_unchanged_deltas
from langgraph_patch.repairing.reconcile import Lookup, check_reconcile, reconcile_calls
from langgraph_patch.repairing.writing import (
    first_writes,
    new_messages,
    show_repairs,
    stream_results,
    whole_write,
)

OnPatch: TypeAlias = Callable[[Patch, RunnableConfig], None]
"""Called with each repair and the config of the run, before the repair is written."""

Recover: TypeAlias = "bool | Literal['required']"
"""Whether the checkpoints are searched; with `"required"` it is an error if they cannot be
read, or if the run has no checkpointer.
"""

EVENT: Final = "langgraph_patch"
"""The name of the custom event of a repair."""


class Repair(NamedTuple):
    """A repaired history.

    Attributes:
        patch: The repair of the messages.
        restored: Writes to other state keys that recovered results need.
    """

    patch: Patch
    restored: Sequence[tuple[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Repairer:
    """Repairs the history under one state key.

    Attributes:
        placeholder: The text of the tool message for a call without a result.
        messages_key: The state key of the history.
        recover: Whether to search the checkpoints; `"required"` if an unreadable one is an error.
        reconcile: For each tool name a function that looks up the result of a call.
        on_patch: Called with each repair before it is written.
        leaves_open: Whether calls at the end of the history stay without a result, because the
            node that comes next may run them.
        other_histories: State keys with histories that other repairers write. Recovered results
            do not restore them.
        once: The tools whose calls run once: each has a record of its own.

    Raises:
        OptionError: If an option has an invalid value.
    """

    placeholder: Placeholder | None = None
    messages_key: str = "messages"
    recover: Recover = True
    reconcile: Mapping[str, Lookup] | None = None
    on_patch: OnPatch | None = None
    leaves_open: bool = False
    other_histories: Sequence[str] = ()
    once: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_placeholder(self.placeholder)
        if not isinstance(self.messages_key, str) or not self.messages_key:
            raise OptionError(
                f"messages_key={short(self.messages_key)}: expected the name of a state key."
            )
        if self.on_patch is not None and not callable(self.on_patch):
            raise OptionError(
                f"on_patch={short(self.on_patch)}: expected a callable (patch, config)."
            )
        if any(map(inspect.iscoroutinefunction, (self.on_patch, type(self.on_patch).__call__))):
            raise OptionError(
                f"on_patch={short(self.on_patch)} is asynchronous, and it is called without await: "
                f"expected a plain function, which may start a task."
            )
        if self.recover not in (True, False, "required"):
            raise OptionError(f"recover={short(self.recover)}: expected True, False or 'required'.")
        check_reconcile(self.reconcile)

    # --- read ----------------------------------------------------------------------------

    def read(
        self,
        messages: Sequence[BaseMessage],
        run: Run | None = None,
        *,
        look_again: bool = False,
        may_be_recorded: bool = False,
    ) -> Reading | None:
        """Read a history; return None if there is nothing to repair.

        Args:
            messages: The history.
            run: The run that it belongs to: what another task of this run of the graph has read of
                it is not read again. Default: everything is read.
            look_again: Whether placeholders that ask for another search count: once in a turn.
                Default: False.
            may_be_recorded: Whether results of the calls that stay open at the end may be recorded:
                these are told, and end a call. Default: False.
        """
        look_again = look_again and bool(self.recover)
        kept = run.kept_by_graph.setdefault(Repairer, {}) if run else {}
        damage: Reading | None = kept.pop(self, None)
        if damage is None or not are_identical(damage.messages, messages):
            known = () if look_again else kept.get(self.messages_key, ())
            damage = read_if_damaged(
                messages, known=known, leaves_open=self.leaves_open, look_again=look_again
            )
            if damage is None:
                kept[self.messages_key] = settled(messages)
            elif look_again:  # by START, whose node repairs it
                kept[self] = damage
        if damage is None and may_be_recorded and self.recover:
            known = kept.get(self.messages_key, ())
            if read_if_damaged(messages, known=known) is not None:
                reading = read_history(messages, leaves_open=True)
                return reading if reading.unanswered else None
        return damage

    # --- repair --------------------------------------------------------------------------

    def repair(
        self,
        reading: Reading,
        run: Run,
        *,
        restore: bool = False,
    ) -> IOGenerator[Repair]:
        """The repair of a damaged history, with what the checkpoints of the thread recorded.

        Args:
            reading: The history.
            run: The run that it belongs to.
            restore: Whether the caller writes `Repair.restored`. Otherwise the recovered results
                name what was not kept. Default: False.
        """
        saver, thread = run.saver, run.thread
        recovery = Recovery()
        if self.recover == "required" and reading.unanswered and (saver is None or thread is None):
            raise EvidenceError(
                "recover='required', and this run has no checkpointer or no thread_id, so nothing "
                "can be recovered: compile the graph with a checkpointer and pass a thread_id in "
                "config['configurable'], or leave recover='required' out."
            )
        if self.recover and saver is not None and thread is not None:
            with suppress(Exception):  # LangGraph raises it
                yield from run.stored()
            recovery = yield from self._search(saver, thread, reading, run)
            effects = recovery.effects
            if run.writes_at_exit:  # the live channels may be newer than all that was read
                effects = {
                    key: replace(each, unchanged=frozenset(), is_current=False)
                    for key, each in effects.items()
                }
            else:
                effects = yield from with_unchanged_deltas(saver, effects, run.channels)
            recovery = replace(recovery, effects=effects)
        return (yield from self.repair_with(recovery, reading, run.channels, restore=restore))

    def repair_abandoned(self, reading: Reading, place: Address, run: Run) -> IOGenerator[Patch]:
        """The repair of what an agent below did before an input abandoned it.

        Args:
            reading: Its messages.
            place: The newest checkpoint of the agent.
            run: The run that the repair belongs to.
        """
        recovery = Recovery()
        if (saver := run.saver) is not None:
            recovery = yield from self._search(saver, place, reading, run, is_over=True)
        return (yield from self.repair_with(recovery, reading, {}, restore=False)).patch

    def _search(
        self,
        saver: BaseCheckpointSaver[Any],
        place: Address,
        reading: Reading,
        run: Run,
        *,
        is_over: bool = False,
    ) -> IOGenerator[Recovery]:
        return (
            yield from recover_evidence(
                saver,
                place,
                reading.messages,
                reading.unanswered,
                messages_key=self.messages_key,
                required=self.recover == "required",
                searched_at=reading.looked_for_again,
                once=None if is_over else self.once,  # the worker's own names are not known
                is_over=is_over,
                nodes=run.nodes,
                seen=run.kept_by_graph.pop(Reader, None),
            )
        )

    def repair_with(
        self, recovery: Recovery, reading: Reading, channels: Mapping[str, Any], *, restore: bool
    ) -> IOGenerator[Repair]:
        """The repair of a history, with what is known of its calls.

        Args:
            recovery: What the checkpoints recorded.
            reading: The history.
            channels: The channels of the graph.
            restore: Whether other state keys can be restored through them.
        """
        own_keys = {self.messages_key, *self.other_histories}
        evidence, restored = settle(
            recovery.evidence,
            recovery.effects,
            restore=restore,
            own_keys=own_keys,
            channels=channels,
        )
        dangling = dangling_calls(reading, evidence)
        answers = yield from reconcile_calls(dangling, self.reconcile or {})
        patch = patch_reading(
            reading, placeholder=self.placeholder, evidence={**evidence, **answers}
        )
        return Repair(patch, restored)

    def report(self, patch: Patch, run: Run) -> IOGenerator[None]:
        """Report a repair that is written, if it changes what a model reads.

        It is passed to `on_patch`, logged, and is a custom event of the run, if there is one.
        """
        if not changes_history(patch):
            return
        self.notify(patch, run)
        logger.info("repaired thread %r: %s", run.thread_id, patch)
        if getattr(run.config.get("callbacks"), "parent_run_id", None) is not None:
            changes = [
                {name: getattr(each, name) for name in ("kind", "cause", "name", "tool_call_id")}
                for each in patch.changes
            ]
            data = {"thread_id": run.thread_id, "changes": changes}
            yield IORequest(
                lambda: dispatch_custom_event(EVENT, data, config=run.config),
                lambda: adispatch_custom_event(EVENT, data, config=run.config),
            )

    def notify(self, patch: Patch, run: Run) -> None:
        """Call `on_patch`, if there is one. Its error ends the run, with a note that says whose."""
        if self.on_patch is None:
            return
        try:
            self.on_patch(patch, run.config)
        except Exception as error:
            note(error, "raised by the function on_patch of the application; nothing was written")
            raise

    def repaired(
        self,
        messages: list[BaseMessage],
        run: Run,
        *,
        report: bool = False,
    ) -> IOGenerator[list[BaseMessage]]:
        """A history for a model, repaired and not written; the same object if it is valid.

        Args:
            messages: The history.
            run: The run that the model belongs to.
            report: Whether `on_patch` is called, because nothing writes the repair. Default: False.
        """
        reading = self.read(messages)
        if reading is None:
            return messages
        patch = (yield from self.repair(reading, run)).patch
        if report:
            self.notify(patch, run)
        logger.debug("repaired the input of a model in thread %r: %s", run.thread_id, patch)
        return patch.messages

    # --- calls that the model did not finish writing --------------------------------------

    def closed(self, messages: Sequence[BaseMessage]) -> Patch:
        """The repair of calls that were made in this superstep: no checkpoint has them."""
        return patch_reading(read_history(messages), placeholder=self.placeholder)


def write_repairs(
    repairs: Iterable[tuple[Repairer, Repair]],
    own: Iterable[tuple[str, Any]],
    run: Run,
    *,
    shown: Collection[str],
    others_follow: bool = False,
) -> IOGenerator[dict[str, Any]]:
    """Make the state update that writes repairs, report them, and show clients what is new.

    Args:
        repairs: The repair of each history, with its repairer.
        own: The state keys and the values that the node itself returns.
        run: The run of the node, which is alone in its superstep.
        shown: The keys of the output schema of the graph: those that the `updates` chunk has.
        others_follow: Whether others return more for the node: the histories are then written
            before everything else (`Run.write_first`), and the caller has streamed the new results.
            Default: False.

    Returns:
        The histories that are written, each with what the node itself adds to it, with the state
        keys that are restored.
    """
    channels, own = run.channels, [*run.written, *own]
    patches: dict[str, Patch] = {}
    new: dict[str, Patch] = {}
    writes: dict[str, Any] = {}
    restored: dict[str, Any] = {}
    for repairer, repair in repairs:
        key, patch = repairer.messages_key, repair.patch
        nearer = [] if others_follow else run.written_first(key)  # by a middleware
        write: Any
        if others_follow:
            write = first_writes(channels.get(key), patch) if run.can_write_first else None
        else:
            values = (value for name, value in own if name == key)
            write = whole_write(channels.get(key), patch, *nearer, *values)
        if not patch or write is None:
            continue
        yield from repairer.report(patch, run)
        patches[key], writes[key] = patch, write
        messages = [message for value in nearer for message in value]
        new[key] = replace(patch, messages=messages) if messages else patch
        # Histories of one task may restore the same keys: once is enough.
        restored = {**one_write_each(channels, repair.restored), **restored}
    if patches:
        show_repairs(run, new, [*own, *restored.items()], shown)
    if not others_follow:
        stream_results(run, chain.from_iterable(map(new_messages, patches.values())))
    return {**restored, **writes}
