"""The requests that one request becomes: as it is, and after a refusal in other forms.

`history.forms` has the forms, and says which one is next. Here it is kept what was sent, what can
be stored of it and what is raised. A form that integrations send as one that was refused is none.

The form that a model accepted is the first one of its next request, if the refused history is the
beginning of that one: a loop of twenty model calls is refused once. It holds for one run of a
graph, for that model alone, and only where the model is known before it is asked
(`Request.known_model`). In a node that runs again, the repaired input serves all of its requests.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from langgraph.errors import GraphBubbleUp

from langgraph_patch._sansio import IOGenerator
from langgraph_patch.asking.guard import TruncationGuard
from langgraph_patch.asking.refusal import refusal_text
from langgraph_patch.asking.request import (
    Histories,
    KnownModel,
    Request,
    are_same_request,
    begins_with,
    models_of,
)
from langgraph_patch.errors import logger, note
from langgraph_patch.history.changes import Patch
from langgraph_patch.history.forms.order import Form
from langgraph_patch.history.patch import validate_messages
from langgraph_patch.repairing.repairer import Repairer

_MAX_NOTE = 500


class Attempts:
    """The forms of one request, and which of them is sent.

    Nothing is read, copied or reported before a request was refused.

    Args:
        request: The request.

    Attributes:
        request: The next form of it.
        patches: What can be stored of its histories, by their state keys; none before a refusal,
            and none if every form was refused.
        answers: The texts of what models have answered, as far as callbacks show.
        closed_in: The histories whose calls at the end were closed for the next form.
        own_error: What the application itself raised; None if it raised nothing.
    """

    def __init__(self, request: Request) -> None:
        self.request = self.first = request
        self.own_error: BaseException | None = None
        self.answers: Collection[str] = ()
        self.patches: Mapping[str, Patch] = {}
        self._forms: Generator[Form | None, Any, str | None] | None = None  # after a refusal
        self._form: Form | None = None  # in which it is sent; None as it is
        self._sent: list[Histories] = []
        self._errors: list[BaseException] = []
        self._refused = _RefusedBefore(None, {}, ())
        self.closed_in: Sequence[str] = ()
        self._changes = ""  # of the newest form that has any
        kept = request.run.kept_by_graph.get(Attempts, ())
        self._accepted = next((each for each in reversed(kept) if each.is_of(request)), None)
        if self._accepted is not None:  # by this model, which has refused the history before
            self._take(self._accepted.form.of_next(request.histories()))

    @property
    def stored(self) -> Histories:
        """The histories as they are stored, or will be: the request may have another form."""
        repaired = {key: patch.messages for key, patch in self.patches.items()}
        return {**self.first.histories(), **repaired}

    def after(
        self, refusal: BaseException, guard: TruncationGuard | None
    ) -> IOGenerator[BaseException | None]:
        """Choose the form that is sent after a refusal; return the error to raise if there is none.

        That is the first refusal, with a note if a repair was sent in this task.

        Args:
            refusal: What the request raised.
            guard: The guard of what was sent; None if it had none.
        """
        run, histories = self.first.run, self.first.histories()
        run.kept_by_graph[Repairer] = {}  # all is checked again
        self._errors.append(refusal)
        texts = [refusal_text(each) for each in (refusal, *(guard.errors if guard else ()))]
        told: list[str] | None = texts
        if self._forms is None:
            models = None if guard is None else guard.models
            self._refused = _RefusedBefore(models, histories, ())
            if before := next(filter(self._refused.is_same, run.kept.get(Attempts, ())), None):
                return self._given_up(before.notes)
            tools = _tool_names(
                [each for _, each in models or ()]
                or [options for _, options in models_of(*self.first.asks)]
            )
            self._forms = Form.in_turn(histories, texts, {*tools})
            self._sent += [histories] if self._form is None else []
            told = None  # it has not begun
        try:
            form = self._forms.send(told)
            while form is None or any(_are_same(form.histories, each) for each in self._sent):
                form = self._forms.send((yield from self._closed()) if form is None else None)
        except StopIteration as end:
            return self._refused_again(end.value, guard)
        self._take(form)
        self.request.drop_writes()
        return None

    def _closed(self) -> IOGenerator[Mapping[str, Patch] | None]:
        """The repairs that close the calls at the end, for what is sent; None if none are open."""
        found = dict[str, Patch]()
        histories = {} if self.first.may_ask else self.first.histories()
        for key, history in histories.items():
            repairer = replace(self.first.repairers[key], leaves_open=False)
            if (reading := repairer.read(history)) is not None:
                found[key] = (yield from repairer.repair(reading, self.first.run)).patch
        self.closed_in = tuple(found)
        return found or None

    def _take(self, form: Form) -> None:
        """Send a form next."""
        self._form, self.patches = form, form.stored
        self._sent.append(form.histories)
        self.request = self.first.with_histories(form.histories)
        self._changes = form.changes or self._changes

    def misled(
        self,
        guard: TruncationGuard | None,
        output: Any = None,
        error: BaseException | None = None,
    ) -> BaseException | None:
        """The error to raise if the code of the application ran again and said nothing more.

        Closed calls are over only if something is said behind them. A node that looks for open
        calls, to ask a human about them or to send them on, finds none: whatever else it did, it
        did not do what the bare node does. That one runs once, and raises the refusal.

        Args:
            guard: The guard of what was sent; None if it had none.
            output: What the application returned. Default: nothing.
            error: What it raised. Default: nothing.

        Returns:
            The refusal; what the application raised, if no call was closed; None for nothing.
        """
        if not isinstance(error, GraphBubbleUp):
            self.own_error = error
        if not self.closed_in or guard is None:
            return error
        if error is None and self.request.says_more(output, self.closed_in, guard.answers):
            return None
        end = f"raised {error!r}" if error else "said nothing behind the calls"
        logger.warning(_MISLED.format(self._changes, end), exc_info=error)
        return self._given_up([_MISLED.format(self._changes[:_MAX_NOTE], end)])

    def _refused_again(self, hint: str | None, guard: TruncationGuard | None) -> BaseException:
        """The first error, if no form is left: all of them were refused."""
        notes = [] if hint is None else [hint]
        defects = chain.from_iterable(map(validate_messages, guard.sent if guard else ()))
        if any(each.defect == "orphan" for each in defects):
            notes.insert(0, _SHORTENED)
        if self._changes:
            thread_id = self.first.run.thread_id
            notes.insert(0, _AGAIN.format(thread_id, self._changes[:_MAX_NOTE]))
            kept = self._refused._replace(notes=notes)
            self.first.run.kept.setdefault(Attempts, []).append(kept)
            logger.warning("%s", " ".join(notes))
        return self._given_up(notes)

    def _given_up(self, notes: Sequence[str]) -> BaseException:
        self.request, self.patches = self.first, {}
        for each in notes:
            note(self._errors[0], each)
        return self._errors[0]

    def report(self) -> None:
        """Report that a request in another form was answered, and keep the form."""
        if (form := self._form) is None:
            return
        thread_id = self.first.run.thread_id
        if self._errors:
            logger.info(_ASKED_AGAIN, thread_id, form.changes or "as it is")
            self._keep(form)
        elif form.changes:
            logger.info(_ASKED_AT_ONCE, thread_id, form.changes)
        self.request.report(self.patches.values())

    def _keep(self, form: Form) -> None:
        """Keep the form in which the model has accepted what it refused."""
        if (model := self.first.known_model) is None:
            return
        # What was repaired may be in the state when the model is asked again.
        accepted = _Accepted(model, (self.first.histories(), self.stored), form)
        run = self.first.run
        kept = (each for each in run.kept_by_graph.get(Attempts, ()) if each is not self._accepted)
        run.kept_by_graph[Attempts] = [*kept, accepted]


_MISLED = (
    "its code ran once more with a repaired history ({}), and {}. Call the model through "
    "patch_model: then its request alone is repeated"
)
_AGAIN = (
    "the provider refused the history of thread {!r}, and again after this repair: {}. The next "
    "turn may be refused, too, unless the history or the request is changed."
)
_SHORTENED = "A result was sent without its call: call the model through patch_model."
_ASKED_AGAIN = "asked the model of thread %r again, because its provider refused the history: %s"
_ASKED_AT_ONCE = "asked the model of thread %r in the form that it accepted before: %s"


class _Accepted(NamedTuple):
    """A form in which a model accepted a request that it had refused.

    Attributes:
        model: The model.
        refused: The histories that it refused: as they were, and with what can be stored.
        form: The form.
    """

    model: KnownModel
    refused: tuple[Histories, Histories]
    form: Form

    def is_of(self, request: Request) -> bool:
        """Whether a request has the refused history as its beginning, for the same model."""
        if not self.model.is_same(request.known_model):
            return False
        histories = request.histories()
        return any(
            refused.keys() == histories.keys()
            and all(begins_with(histories[key], history) for key, history in refused.items())
            for refused in self.refused
        )


class _RefusedBefore(NamedTuple):
    """A request whose forms were all refused in a task.

    Attributes:
        models: The models that were asked.
        histories: The histories in it.
        notes: What was said of it.
    """

    models: Any
    histories: Histories
    notes: Sequence[str]

    def is_same(self, other: _RefusedBefore) -> bool:
        """Whether another request is the same one."""
        return self.models == other.models and _are_same(self.histories, other.histories)


def _are_same(some: Histories, others: Histories) -> bool:
    return some.keys() == others.keys() and all(
        are_same_request(history, others[key]) for key, history in some.items()
    )


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
