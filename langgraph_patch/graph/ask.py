"""Ask a model; ask again if its provider refuses the history, or if its message is unusable.

Three places call a model: the node wrapper, the middleware and `patch_model`. Each makes a
`Request`, and `answered` sends it: one loop for all three. What a provider refused is repaired and
sent again, at most twice; `Attempts` says what is sent.

May a request be sent again? Only where that does what a retry of the model would do:

| | it is sent again only if |
|---|---|
| 1 | what failed is the refusal itself |
| 2 | nobody nearer to the model has asked |
| 3 | nothing else was begun |
| 4 | it is another request, at most twice in a task |

1. The error is the object that a model run below raised, or one that only carries it (a group, a
   `RetryError`: `refusal.carried_by`). An error that the application made is the application's: it
   is raised, with a note, and nothing is run again.
2. `patch_model` comes first: it repeats one request, and nothing of a node. Then the middleware,
   last the node.
3. No tool, graph or `@task`, no answered `interrupt()`, nothing that has not ended
   (`TruncationGuard.began_more`).
4. A form that integrations send as the one before is none. An attempt of a retry around a request
   whose forms were all refused sends it once. A retry inside of it sends each further form once.
5. What the refused run of a node wrote is dropped, as LangGraph does before it runs a node again.
   What the answered one writes beside the repair stays (`writing`).
6. The error that is raised stays the application's own. A note speaks of this run only (`refusal`).

`may_be_sent_again` has the points 1 to 3, `Attempts` the others. An unusable message is asked for
again under the points 2 and 3: `TruncationGuard.asks_again`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.errors import GraphBubbleUp

from langgraph_patch._langgraph.run import Run
from langgraph_patch._sansio import IOGenerator, IORequest
from langgraph_patch.errors import PatchError
from langgraph_patch.graph.guard import (
    RefusedAgainError,
    TruncationGuard,
    guarded,
    in_charge,
)
from langgraph_patch.graph.refusal import (
    carried_by,
    is_refusal,
    note,
    refusal_text,
    text_of,
    without_notes,
)
from langgraph_patch.graph.repairer import Repairer
from langgraph_patch.history.changes import Patch, joined
from langgraph_patch.history.plain_form import plain_form
from langgraph_patch.history.reading import Reading
from langgraph_patch.history.refused import repair_refused

logger: logging.Logger = logging.getLogger("langgraph_patch")

Histories: TypeAlias = Mapping[str, list[BaseMessage]]
"""Histories by their state keys."""

_MAX_NOTE = 500


# --- what is asked ----------------------------------------------------------------------------


@dataclass(slots=True)
class Request(ABC):
    """A request to a model, made by one of the three places.

    Attributes:
        run: The run that it is made in.
    """

    run: Run

    @property
    def has_history(self) -> bool:
        """Whether the place has a patched history."""
        return True

    @property
    def returns_all(self) -> bool:
        """Whether its output is all that comes of it; else others drop more if it is sent again."""
        return True

    @abstractmethod
    def histories(self) -> Histories:
        """The histories in the request."""

    @abstractmethod
    def with_histories(self, histories: Histories) -> Self:
        """The same request with these histories in the place of its own."""

    def left_open(self) -> Mapping[str, tuple[Repairer, Reading]]:
        """The histories whose calls at the end were left to a frontend, by their state keys."""
        return {}

    def guard(self) -> TruncationGuard | None:
        """A guard for what it sends; None if it does not see what comes."""
        return TruncationGuard(self.run, drops=not self.has_history)

    @abstractmethod
    def send(self) -> IORequest:
        """Send it."""

    def drop_writes(self) -> None:  # noqa: B027 - most places write nothing before an answer
        """Drop what it has written to the state before it was refused."""

    @abstractmethod
    def message(self, output: Any) -> BaseMessage | None:
        """The message of the model in an output; None if it cannot be read."""

    @abstractmethod
    def closed(self, output: Any, message: AIMessage) -> Histories:
        """The histories behind an unusable message, whose calls have placeholders."""

    def corrected(self, output: Any, guard: TruncationGuard) -> Any:  # noqa: ARG002 - for others
        """An output with corrected messages; the guard corrects the one that `invoke` returns."""
        return output

    def with_turns(self, output: Any, turns: Histories) -> Any:  # noqa: ARG002 - for others
        """The output of the second request, behind the first message and its placeholders."""
        return output

    def report(self, patches: Iterable[Patch]) -> None:  # noqa: B027 - most places store them
        """Report what was repaired after a refusal, if nothing stores it."""


def ask(
    attempts: Attempts, first: tuple[Any, TruncationGuard | None] | None = None
) -> IOGenerator[Any]:
    """The output of a request, which is made once more if the message of the model is unusable.

    The second request has the message and a placeholder for each of its calls, as if its tools had
    answered; a message without any call is left out. `TruncationGuard.asks_again` has the
    conditions.

    Args:
        attempts: Those of the request; afterwards, what can be stored of a refused history.
        first: The output of the first request and its guard, if it was made. Default: it is made.
    """
    output, guard = first or (yield from answered(attempts))
    if guard is None:
        return output
    output, guard = yield from _with_retried(attempts, output, guard)
    sent = attempts.request
    output = sent.corrected(output, guard)
    message = sent.message(output) if guard.unfinished else None
    if guard.asks_again(message):
        closed = sent.closed(output, message) if message.invalid_tool_calls else {}
        again = Attempts(sent.with_histories(closed))
        output, second = yield from answered(again)
        if second is not None:
            guard = second
            guard.finish()
            output = again.request.corrected(output, guard)
            guard.asks_again(again.request.message(output), asked=True)
        output = sent.with_turns(output, {key: _last_turn(each) for key, each in closed.items()})
    if (around := in_charge()) is not None:
        around.follow(guard)
    return output


def answered(attempts: Attempts) -> IOGenerator[tuple[Any, TruncationGuard | None]]:
    """The output of a request that was not refused, and its guard: the loop of all three places."""
    while True:
        guard, sent = attempts.guard(), attempts.request.send()
        try:
            output = yield sent if guard is None else guarded(guard, sent)
        except (Exception, RefusedAgainError) as error:  # noqa: BLE001 - raised below, if it stays
            failed = yield from attempts.refused(_refusal_of(error, guard), guard)
        else:
            attempts.report()
            return output, guard
        if failed is not None:
            raise failed


def _refusal_of(error: BaseException, guard: TruncationGuard | None) -> BaseException:
    """The error of a request; what ended it, if its guard did."""
    if isinstance(error, RefusedAgainError) and error.guard is guard:
        return error.refusal
    return error


def _last_turn(history: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The last message of a model, and what follows it."""
    place = max(i for i, message in enumerate(history) if isinstance(message, AIMessage))
    return list(history[place:])


# --- a refusal that is no error any more -----------------------------------------------------


def _with_retried(
    attempts: Attempts, output: Any, guard: TruncationGuard
) -> IOGenerator[tuple[Any, TruncationGuard]]:
    """An output and its guard; if LangChain made it of a refusal, those of the next forms.

    Any other refusal that the application caught is logged: nobody else would see it.
    """
    guard.finish()
    refusal = None
    if guard.errors and attempts.request.returns_all:
        refusal = _refusal_in(attempts.request.message(output), guard)
    attempts.is_repeated |= refusal is not None
    if refusal is not None and (yield from attempts.refused(refusal, guard)) is None:
        try:
            repaired, second = yield from answered(attempts)
        except Exception as error:
            if error is not refusal:
                raise
        else:
            return repaired, second or guard
    elif _has_refusal(guard.own_errors, guard):
        run = attempts.request.run
        if guard.answered_last:
            logger.info(_ANSWERED, run.node, run.thread_id)
        else:
            logger.warning(_CAUGHT, run.node, run.thread_id)
    return output, guard


_ANSWERED = (
    "a model of the node %r refused the history of thread %r, and another attempt or another model "
    "answered: the history is not repaired"
)
_CAUGHT = (
    "the provider of a model of the node %r refused the history of thread %r, and the node went on "
    "without an answer: the history is not repaired, and each next turn may be refused. Raise the "
    "refusal, or call the model through patch_model"
)


def _refusal_in(message: BaseMessage | None, guard: TruncationGuard) -> BaseException | None:
    """The refusal that LangChain's `ModelRetryMiddleware` has made this message of."""
    last = guard.errors[-1]
    if guard.answered or not isinstance(message, AIMessage) or message.tool_calls:
        return None
    content, end = message.content, f" with {type(last).__name__}: {text_of(last)}"
    is_made = isinstance(content, str) and content.startswith("Model call failed after ")
    return last if is_made and str(content).endswith(end) else None


# --- what is sent after a refusal ----------------------------------------------------------------


class Attempts:
    """The forms of one request: as it is, repaired, in the plain form.

    Nothing is read, copied or reported before a request was refused.

    Args:
        request: The request.

    Attributes:
        request: The next form of it.
        patches: What can be stored of its histories, by their state keys; none before a refusal,
            and none if every form was refused.
        is_repeated: Whether the application repeats a refused request: then the first refusal of
            another form ends it.
    """

    def __init__(self, request: Request) -> None:
        self.request = self._first = request
        self._forms = [_as_stored, _in_plain_form]
        self._errors: list[BaseException] = []
        self._models: Any = None  # those that were asked first
        self._tools: set[str] = set()  # what they may call
        self._closed: dict[str, Patch] = {}
        self._changes = ""
        self.is_repeated = False
        self.patches: Mapping[str, Patch] = {}

    def guard(self) -> TruncationGuard | None:
        """A guard for the next form."""
        guard = self.request.guard()
        if guard is not None and self.is_repeated:
            guard.ends_when = is_refusal
        return guard

    def refused(
        self, error: BaseException, guard: TruncationGuard | None
    ) -> IOGenerator[BaseException | None]:
        """Choose what is sent after an error; return the error to raise if nothing is.

        That is the first error, with a note, if the last repair was refused as well. An error that
        is no refusal is returned as it is.

        Args:
            error: What the request raised.
            guard: The guard of what was sent; None if it had none.
        """
        failed: BaseException | None = error
        carried = carried_by(error)
        if guard is None or all(any(each is own for own in guard.own_errors) for each in carried):
            for each in (error, *carried):
                without_notes(each)
        if may_be_sent_again(error, guard):
            self._errors.append(error)
            failed = None if (yield from self._has_next(guard)) else self._given_up()
        elif guard is not None and self._first.has_history:
            _note_own_error(error, guard, self._first.run)
        if failed is not None and (around := in_charge()) is not None:
            around.passed_on += carried_by(failed)
        return failed

    def _has_next(self, guard: TruncationGuard | None) -> IOGenerator[bool]:
        """Whether there is another form; it is the next one then."""
        run = self._first.run
        if len(self._errors) == 1:
            self._models = None if guard is None else guard.models
            self._tools = set(_tool_names([options for _, options in self._models or ()]))
            refused = _RefusedBefore(self._models, self._first.histories(), "")
            if before := next(filter(refused.is_same, run.kept.get(Attempts, ())), None):
                self._changes = before.changes
                return False
            for key, (repairer, reading) in self._first.left_open().items():
                self._closed[key] = (yield from repairer.repair(reading, run)).patch
        text = "\n".join(map(refusal_text, [*self._errors, *(guard.errors if guard else ())]))
        patches = {
            key: self._stored(key, history, text)
            for key, history in self._first.histories().items()
        }
        last = self.request.histories()
        while self._forms:
            forms = self._forms.pop(0)(patches, self._tools)
            sent = {key: patch.messages for key, patch in forms.items()}
            if not all(_are_same_request(sent[key], last[key]) for key in sent):
                self.request = self._first.with_histories(sent)
                self.request.drop_writes()
                self.patches = {key: patch for key, patch in patches.items() if patch}
                self._changes = "; ".join(str(patch) for patch in forms.values() if patch)
                self.is_repeated |= guard is not None and guard.asked_again
                return True
        if self._changes:
            refused = _RefusedBefore(self._models, self._first.histories(), self._changes)
            run.kept.setdefault(Attempts, []).append(refused)
            logger.warning("%s", self._note())
        return False

    def _stored(self, key: str, history: list[BaseMessage], refusal: str) -> Patch:
        """What can be stored of the repair of a history."""
        closed = self._closed.get(key) or Patch(history, (), history)
        return joined(closed, repair_refused(closed.messages, refusal))

    def _given_up(self) -> BaseException:
        """The first error, with a note if a repair was sent in this task."""
        self.request, self.patches = self._first, {}
        if self._changes:
            note(self._errors[0], self._note())
        return self._errors[0]

    def _note(self) -> str:
        return (
            f"the provider refused the history of thread {self._first.run.thread_id!r}, and again "
            f"after this repair: {self._changes[:_MAX_NOTE]}. Each next turn will be refused, "
            f"unless the history or the request is changed."
        )

    def report(self) -> None:
        """Report that a request after a refusal was answered."""
        if self._errors:
            logger.info(
                "asked the model of thread %r again, because its provider refused the history: %s",
                self._first.run.thread_id,
                self._changes,
            )
            self.request.report(self.patches.values())


class _RefusedBefore(NamedTuple):
    """A request whose forms were all refused in a task.

    Attributes:
        models: The models that were asked.
        histories: The histories in it.
        changes: The repairs that were sent.
    """

    models: Any
    histories: Histories
    changes: str

    def is_same(self, other: _RefusedBefore) -> bool:
        """Whether another request is the same one."""
        return (
            self.models == other.models
            and self.histories.keys() == other.histories.keys()
            and all(_are_same_request(self.histories[k], other.histories[k]) for k in self[1])
        )


def _as_stored(patches: Mapping[str, Patch], _: Collection[str]) -> Mapping[str, Patch]:
    return patches


def _in_plain_form(patches: Mapping[str, Patch], tools: Collection[str]) -> Mapping[str, Patch]:
    return {key: joined(each, plain_form(each.messages, tools)) for key, each in patches.items()}


def _tool_names(value: object, *, in_tools: bool = False) -> Iterator[str]:
    """The names of the tools in the options of a request, in whatever form a provider has them."""
    if isinstance(value, Mapping):
        name = value.get("name")
        if in_tools and isinstance(name, str):
            yield name
        for key, each in value.items():
            yield from _tool_names(each, in_tools=in_tools or key in ("tools", "functions"))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tool_names(each, in_tools=in_tools)


def _are_same_request(some: Sequence[BaseMessage], others: Sequence[BaseMessage]) -> bool:
    """Whether integrations send the same for two histories."""
    pairs = zip(some, others, strict=False)
    return len(some) == len(others) and all(a is b or _sent(a) == _sent(b) for a, b in pairs)


def _sent(message: BaseMessage) -> tuple[Any, ...]:
    """What integrations read of a message: no id of it, and no value that is empty.

    ChatOpenAI without streaming puts `{"refusal": None}` on each message, for example. Metadata
    decide how blocks are translated, and are not sent themselves.
    """
    names = ("role", "tool_calls", "invalid_tool_calls", "tool_call_id", "status")
    extra = {k: v for k, v in message.additional_kwargs.items() if not _is_nothing(v)}
    metadata = None if isinstance(message.content, str) else message.response_metadata
    fields = [getattr(message, name, None) for name in names]
    return (message.type, message.content, message.name or None, extra, metadata, *fields)


def _is_nothing(value: object) -> bool:
    return value is None or (isinstance(value, str | list | tuple | dict) and not value)


# --- whether it may be sent again ----------------------------------------------------------------


def may_be_sent_again(error: BaseException, guard: TruncationGuard | None) -> bool:
    """Whether a request may be sent again after an error; the points 1 to 3 of the table.

    Args:
        error: What left the node, the middleware or the model.
        guard: The guard of what was sent. None if it had none: no code of the application ran.
    """
    if guard is None:
        return is_refusal(error)
    own = _first_own_error(error, guard)
    return own is not None and _has_refusal(guard.errors[own:], guard) and guard.only_failed


def _has_refusal(errors: Iterable[BaseException], guard: TruncationGuard) -> bool:
    return any(is_refusal(error, guard.errors) for error in errors)


def _first_own_error(error: BaseException, guard: TruncationGuard) -> int | None:
    """The place among the errors of model runs from which on an error carries them alone.

    None if it carries anything else, or what someone nearer to the model has looked at. With
    fallbacks the first error is raised, and the refusal may be one that came later.
    """
    carried = carried_by(error)
    places = [i for i, own in enumerate(guard.errors) if any(own is each for each in carried)]
    is_own = all(any(each is own for own in guard.own_errors) for each in carried)
    return min(places, default=None) if is_own else None


def _note_own_error(error: BaseException, guard: TruncationGuard, run: Run) -> None:
    """Say on an error of the application that a refusal came before it."""
    if isinstance(error, PatchError | GraphBubbleUp) or guard.answered_last:
        return
    is_own = not all(any(each is own for own in guard.errors) for each in carried_by(error))
    if is_own and _has_refusal(guard.own_errors, guard):
        note(
            error,
            f"the provider of a model of the node {run.node!r} refused the history of thread "
            f"{run.thread_id!r}, and this error came in its place, so the history is not repaired. "
            f"Raise the refusal itself, or call the model through patch_model.",
        )
