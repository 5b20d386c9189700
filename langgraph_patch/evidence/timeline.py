"""Read one message through its checkpoints, newest first.

The evidence about the calls of a message is collected until the checkpoint that does not contain
the message yet. A `Timeline` selects the checkpoints from which the current one was made;
checkpoints of other branches are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from langchain_core.messages import BaseMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from langgraph_patch._langgraph_storage import wrote_in_older_superstep
from langgraph_patch.evidence.checkpoint_messages import (
    Checkpoint,
    reuses_call_id,
    tasks_that_rewrite,
    writer_of,
)
from langgraph_patch.evidence.open_calls import (
    OpenCall,
    call_in,
    first_result,
    has_earlier_open_call,
    index_of,
    index_of_call,
    requested_elsewhere,
    result_of_call,
)
from langgraph_patch.evidence.supersteps import (
    sends_call,
    sends_request,
    sent_results,
    summarize,
    updated_channels,
    written_results,
)
from langgraph_patch.evidence.task_outcomes import outcome_of_call
from langgraph_patch.evidence.tracked_calls import Origin, Source, TrackedCall, TrackedMessage


@dataclass(slots=True)
class Timeline:
    """A walk from one checkpoint to the checkpoints that it was made from.

    Attributes:
        config: The thread and the namespace.
        messages: The messages to follow.
        newest: The newest checkpoint read, if any.
        oldest: The oldest checkpoint read so far, if any.
        has_older: Whether the checkpointer may have older ones.
    """

    config: RunnableConfig
    messages: Sequence[TrackedMessage]
    oldest: Checkpoint | None = None
    newest: Checkpoint | None = None
    has_older: bool = True

    def unfinished(self) -> list[TrackedMessage]:
        """The messages for which older checkpoints have to be read."""
        return [message for message in self.messages if not message.is_finished]

    def read(self, page: Sequence[Checkpoint]) -> None:
        """Read the next older checkpoints, newest first. Those of other branches are skipped."""
        for checkpoint in page:
            if self.oldest is None or checkpoint.id == self.oldest.parent_id:
                child, self.oldest = self.oldest, checkpoint
                self.newest = self.newest or checkpoint
                for message in self.unfinished():
                    read_checkpoint(message, checkpoint, child)
        parent = self.oldest.parent_id if self.oldest else None
        self.has_older = bool(page) and parent is not None and parent < page[-1].id


# --- reading one checkpoint ---------------------------------------------------------------


def read_checkpoint(
    message: TrackedMessage, checkpoint: Checkpoint, child: Checkpoint | None
) -> None:
    """Read one checkpoint for all calls of a message.

    Args:
        message: The message.
        checkpoint: The checkpoint, which is older than those read before.
        child: The checkpoint that was made from it, if that was read.
    """
    history = checkpoint.history
    if history is None:
        task_id = writer_of(checkpoint, message.message, ignore_rewrites=True)
        if task_id is not None:
            if child is None or child.source != "update":
                _finish(message, checkpoint, task_id)
                _drop_ambiguous(message, checkpoint, task_id)
                return
            _note_edit(message)
    elif not message.is_in(history):
        task_id = writer_of(checkpoint, message.message, ignore_rewrites=False)
        _finish(message, checkpoint, task_id)
        return
    message.oldest = checkpoint
    _note_superstep(message, checkpoint, child)
    if message.later is not None:
        message.later |= updated_channels(checkpoint, child)
    source = Source(checkpoint, "", child, later=message.later)
    for tracked in message.calls:
        if not tracked.is_edited:
            _read_call(tracked, checkpoint, source)
    if child is not None and child.source != "input" and message.later is not None:
        message.later |= {channel for _, channel, _ in checkpoint.writes}
    if history is not None:
        message.is_finished = all(
            tracked.is_edited or tracked.has_result for tracked in message.calls
        )


def _note_edit(message: TrackedMessage) -> None:
    """Keep the evidence that is newer than a write of a client, which may have edited a call.

    Older evidence counts only for calls that the message contained before.
    """
    for tracked in message.calls:
        if tracked.newer is None:
            tracked.newer = (tracked.evidence, tracked.source, tracked.outcome)


def _note_superstep(
    message: TrackedMessage, checkpoint: Checkpoint, child: Checkpoint | None
) -> None:
    is_pending = None
    if checkpoint.history is not None:
        index = index_of(checkpoint.history, message.message) or 0
        is_pending = all(isinstance(m, ToolMessage) for m in checkpoint.history[index + 1 :])
    if is_pending is not False:
        if message.newest_pending is None or is_pending is None:
            message.newest_pending = checkpoint
        step = summarize(checkpoint, message.message, child, is_pending=is_pending)
        message.supersteps.append(step)


def _read_call(tracked: TrackedCall, checkpoint: Checkpoint, source: Source) -> None:
    history, forms, is_pending = checkpoint.history, tracked.forms, True
    # Only with durability "exit" are the writes those of several supersteps.
    is_exit = any(wrote_in_older_superstep("", write[0]) for write in checkpoint.writes)
    if history is not None:
        version = _version_in(tracked, history)
        if version is None:
            return
        forms = (version,)
    # One of these supersteps may be a repair that gave the other call a new id.
    is_renaming = is_exit and history is not None
    is_reused = any(reuses_call_id(checkpoint, f, include_renamed=is_renaming) for f in forms)
    is_renamed = tracked.is_renamed and (
        _has_new_id(tracked.call, checkpoint) if history is None else forms[0].id == tracked.call.id
    )
    if is_reused or is_renamed:
        tracked.reset()  # What is newer and has the old id was about another call.
        tracked.sent_in.clear()
    if history is not None:
        later = history[index_of_call(history, forms[0].id) or 0 :][1:]
        is_pending = all(isinstance(stored, ToolMessage) for stored in later)
        tracked.add_result(first_result(later, forms[0]))
    elif is_renamed:
        forms = forms[:1]
    if is_reused and is_exit:
        tracked.is_doubtful = True
        _read_sent(tracked, forms, source)
        return
    for form in forms:
        is_certain = history is not None or (
            tracked.is_renamed and form is tracked.call and tracked.found == tracked.certain
        )
        _read_writes(tracked, form, source, is_pending=is_pending)
        if is_certain:
            tracked.certain = tracked.found
    if history is not None and is_renamed and not requested_elsewhere(history, tracked.original):
        _read_sent(tracked, (tracked.original,), source)  # made before the call was renamed


def _read_sent(tracked: TrackedCall, forms: Sequence[OpenCall], source: Source) -> None:
    """Read the task of the `Send` of a call in a superstep in which its id is another call's too.

    The `Send` was made before the other call, so it is not for that.
    """
    for form in forms:
        if sends_request(source.checkpoint, form):
            tracked.sent_in.append(source.checkpoint)
            for task_id, result in sent_results(source.checkpoint, form):
                tracked.add_result(result, source._replace(task_id=task_id))


def _read_writes(tracked: TrackedCall, form: OpenCall, source: Source, *, is_pending: bool) -> None:
    checkpoint = source.checkpoint
    rewriters = tasks_that_rewrite(checkpoint) | checkpoint.repairs
    # Once the turn is over, a `@task` may have returned results of a node's own calls.
    for task_id, result in written_results(checkpoint, form, include_returned=is_pending):
        own = source._replace(task_id=task_id, is_rewrite=task_id in rewriters)
        tracked.add_result(result, own)
    tracked.add_outcome(outcome_of_call(checkpoint, form))
    if sends_call(checkpoint, form):
        tracked.sent_in.append(checkpoint)


def _has_new_id(call: OpenCall, checkpoint: Checkpoint) -> bool:
    """Whether a superstep wrote the message of a call with the id that the call has now."""
    written = [messages for _, messages in checkpoint.written()]
    indexes = [(messages, index_of(messages, call.message)) for messages in written]
    versions = [call_in(messages[i], call) for messages, i in indexes if i is not None]
    return any(version is not None and version.id == call.id for version in versions)


def _version_in(tracked: TrackedCall, history: Sequence[BaseMessage]) -> OpenCall | None:
    """The call as a history has it; None if results there may belong to another call of its id."""
    index = index_of(history, tracked.call.message)
    if index is None:
        return None
    version = call_in(history[index], tracked.call)
    if version is None:
        tracked.is_edited = index_of_call([history[index]], tracked.call.id) is not None
        return None
    is_last = index_of_call(history, version.id) == index
    return version if is_last and not has_earlier_open_call(history[:index], version.id) else None


def _finish(message: TrackedMessage, checkpoint: Checkpoint, task_id: str | None) -> None:
    """Stop at the checkpoint before the message, and read what its task wrote beside it."""
    message.is_finished = True
    if task_id is None:
        message.unwritten = checkpoint
        message.drop_uncertain()
        return
    message.origin = Origin(checkpoint, task_id)
    for writer, written in checkpoint.written():
        index = index_of(written, message.message) if writer == task_id else None
        if index is None:
            continue
        for tracked in message.calls:
            tracked.add_result(result_of_call(written, tracked.call))
            if tracked.newer is not None and call_in(written[index], tracked.call) is None:
                tracked.reset(tracked.newer)


def _drop_ambiguous(message: TrackedMessage, checkpoint: Checkpoint, task_id: str) -> None:
    """Drop evidence that may be another call's.

    Without a stored history, the order of the calls with one id in this superstep is unknown,
    unless one task wrote them. With durability "exit" the writes may be those of several
    supersteps: an older one counts only if its call is left open.
    """
    own = [m for task, m in checkpoint.written(include_returned=False) if task == task_id]
    others = [(task, messages) for task, messages in checkpoint.written() if task != task_id]
    written = [each for messages in own for each in messages if not isinstance(each, RemoveMessage)]
    index = index_of(written, message.message)
    # What a repair wrote before the message is older, and has no open calls.
    repairs = tasks_that_rewrite(checkpoint) | checkpoint.repairs
    before = [] if task_id in repairs else written[:index]
    older = [
        stored
        for task, messages in sorted(others, key=itemgetter(0))
        if wrote_in_older_superstep(task, task_id)
        for stored in messages
    ]
    # A message that was written again keeps its place.
    again = {stored.id for stored in older} - {None}
    older += [stored for stored in before if stored.id not in again]
    newer = [(t, each) for t, each in others if not wrote_in_older_superstep(t, task_id)]
    for tracked in message.calls:
        call = call_in(written[index], tracked.call) if index is not None else None
        is_ambiguous = call is None or has_earlier_open_call(older, call.id)
        for task, messages in newer:
            is_repair = task in repairs
            made = (_makes_call(messages, form.id, is_repair=is_repair) for form in tracked.forms)
            is_ambiguous = is_ambiguous or any(made)
        if is_ambiguous:
            tracked.reset()
            tracked.is_ambiguous = True


def _makes_call(messages: Sequence[BaseMessage], call_id: str, *, is_repair: bool) -> bool:
    """Whether messages of one write make a call with this id; of a repair only an open call.

    The calls that a repair wrote again have results. It may write a new message beside them.
    """
    if is_repair:
        return has_earlier_open_call(messages, call_id)
    return index_of_call(messages, call_id) is not None
