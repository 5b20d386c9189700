"""The forms of one request: as it is, and after a refusal others, until one is answered.

| form | what can be stored of it |
|---|---|
| as it is | |
| repaired: messages that say nothing or stop halfway, thinking that is refused | all |
| in the plain form, that every provider reads | the repair |
| the same, as the text of the refusal asks for it (`asked_form`) | the repair |
| if the plain form is refused for another reason: repaired, and as the text asks | all |

A form that integrations send as one that was refused is none.

Calls at the end of a node's history may be alive: a judge between a model and its tools asks about
them. They get placeholders in these forms if a refusal speaks of a call without a result, or if
nothing else has helped.

The form that a model accepted is the first one of its next request, if the refused history is the
beginning of that one: a loop of twenty model calls is refused once. It holds for one run of a
graph, for that model alone, and only where the model is known before it is asked
(`Request.known_model`). In a node that runs again, the repaired input serves all of its requests.
A picture that came later is sent: only those are left out that were refused.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from langgraph_patch._sansio import IOGenerator
from langgraph_patch.asking.guard import TruncationGuard
from langgraph_patch.asking.refusal import refusal_text
from langgraph_patch.asking.request import (
    Histories,
    KnownModel,
    Request,
    are_same_request,
    begins_with,
)
from langgraph_patch.errors import note
from langgraph_patch.history.changes import Patch, joined
from langgraph_patch.history.forms.asked import (
    TAKES,
    Take,
    asked_form,
    media_in,
    newest_human,
)
from langgraph_patch.history.forms.phrases import OF_MEDIA, matters_in, speaks_of_calls
from langgraph_patch.history.forms.plain import plain_form
from langgraph_patch.history.forms.whole import repair_refused
from langgraph_patch.history.reading import Reading
from langgraph_patch.repairing.repairer import Repairer

logger: logging.Logger = logging.getLogger("langgraph_patch")

_MAX_NOTE = 500


class Form(NamedTuple):
    """A form of the histories of a request.

    Attributes:
        refusal: The text of the refusals before it; None for the history as it is.
        tools: For the plain form, the names of the tools that the model is given; else None.
        take: For the form that the refusal asks for, which media are taken; else None.
        among: For each history how many of its first media may be taken. Default: all.
        keeps_ids: Whether ids stay that Mistral alone refuses: the refusal names another matter.
    """

    refusal: str | None = None
    tools: Collection[str] | None = None
    take: Take | None = None
    among: Mapping[str, int] | None = None
    keeps_ids: bool = False

    def stored(self, patch: Patch) -> Patch:
        """What can be stored of it, behind what is repaired already."""
        if self.refusal is None:
            return patch
        return joined(patch, repair_refused(patch.messages, self.refusal))

    def sent(self, key: str, stored: Patch) -> Patch:
        """What is sent of the history under a key, if this can be stored of it."""
        base = stored
        if self.tools is not None:
            plain = plain_form(stored.messages, self.tools, keeps_ids=self.keeps_ids)
            base = joined(stored, plain)
        if self.take is None:
            return base
        among = (self.among or {}).get(key)
        return joined(base, asked_form(base.messages, self.refusal or "", self.take, among))


class Attempts:
    """The forms of one request, and which of them is sent.

    Nothing is read, copied or reported before a request was refused.

    Args:
        request: The request.
        is_again: Whether it was made before, and answered with an unusable message. Default: False.

    Attributes:
        request: The next form of it.
        patches: What can be stored of its histories, by their state keys; none before a refusal,
            and none if every form was refused.
        has_asked: Whether a model was asked, as far as callbacks show.
        own_error: What the application raised when its code ran again; None if it raised nothing.
    """

    def __init__(self, request: Request, *, is_again: bool = False) -> None:
        self.request = self.first = request
        self._is_again = is_again
        self.own_error: BaseException | None = None
        self._form = Form()
        self._forms: Iterator[Form] = iter(())  # holds this object, so it comes with a refusal
        self._sent: list[Histories] = []
        self._errors: list[BaseException] = []
        self._refusal = ""
        self._models: Any = None  # those that were asked first
        self._tools: set[str] = set()  # what they may call
        self._open: Mapping[str, tuple[Repairer, Reading]] = {}  # that may be closed
        self._closed: dict[str, Patch] = {}
        self._changes = ""
        self.has_asked = False
        self.patches: Mapping[str, Patch] = {}
        self._accepted = self._accepted_before()
        if self._accepted is not None:
            self._takes(self._accepted.form)

    @property
    def stored(self) -> Histories:
        """The histories as they are stored, or will be: the request may have another form."""
        repaired = {key: patch.messages for key, patch in self.patches.items()}
        return {**self.first.histories(), **repaired}

    def _in_turn(self) -> Iterator[Form]:
        if self._accepted is not None:
            yield Form()
        yield Form(self._refusal)
        repaired = self._refusal
        yield Form(self._refusal, self._tools, keeps_ids=self._names_matter())
        # A plain form that is refused for another reason has lost what the provider demands.
        is_plain = self._names_matter()
        for take in TAKES:
            plain = Form(self._refusal, self._tools, take, keeps_ids=self._names_matter())
            yield plain if is_plain else Form(repaired, take=take)

    def _names_matter(self) -> bool:
        """Whether the newest refusal names a matter that is known."""
        return bool(matters_in(refusal_text(self._errors[-1])))

    def after(
        self, refusal: BaseException, guard: TruncationGuard | None
    ) -> IOGenerator[BaseException | None]:
        """Choose the form that is sent after a refusal; return the error to raise if there is none.

        That is the first refusal, with a note if a repair was sent in this task.

        Args:
            refusal: What the request raised.
            guard: The guard of what was sent; None if it had none.
        """
        run = self.first.run
        self._errors.append(refusal)
        errors = [refusal, *(guard.errors if guard else ())]
        text = "\n".join(map(refusal_text, errors))
        self._refusal = f"{self._refusal}\n{text}"
        if len(self._errors) == 1:
            self._forms = self._in_turn()
            self._models = None if guard is None else guard.models
            seen = [options for _, options in self._models or ()]
            self._tools = set(_tool_names(seen or [*self.first.options]))
            refused = _RefusedBefore(self._models, self.first.histories(), "")
            if before := next(filter(refused.is_same, run.kept.get(Attempts, ())), None):
                self._changes = before.changes
                return self._given_up()
            if self._accepted is None:
                self._sent.append(self.first.histories())
            self._open = self.first.left_open()
        if speaks_of_calls(text):
            yield from self._close(guard)
        is_taken = any(map(self._takes, self._forms))
        if not is_taken and self._open:  # nothing else has helped
            yield from self._close(guard)
            is_taken = any(map(self._takes, self._forms))
        if is_taken:
            self.request.drop_writes()
            return None
        if self._changes:
            kept = _RefusedBefore(self._models, self.first.histories(), self._changes)
            run.kept.setdefault(Attempts, []).append(kept)
            logger.warning("%s", self._note())
        return self._given_up()

    def _close(self, guard: TruncationGuard | None) -> IOGenerator[None]:
        """Close the calls at the end, for what is sent. The forms begin anew, the newest first."""
        for key, (repairer, reading) in self._open.items():
            makers = [reading.messages[call.index] for call in reading.unanswered]
            # An approval may ask a model of its own about something else.
            if guard is None or guard.may_have_sent(makers):
                self._closed[key] = (yield from repairer.repair(reading, self.first.run)).patch
        if self._open and self._form.refusal is not None:
            newest = self._form._replace(refusal=self._refusal)
            self._forms = chain([newest], self._in_turn())
        elif self._open:
            self._forms = self._in_turn()
        self._open = {}

    def misled(
        self, guard: TruncationGuard | None, error: BaseException | None = None
    ) -> BaseException | None:
        """The error to raise if the code of the application did not expect the closed calls.

        It has raised an error of its own, or has asked no model. The bare node runs once, and
        raises the refusal.

        Args:
            guard: The guard of what was sent; None if it had none.
            error: What the application raised. Default: nothing.

        Returns:
            The refusal; what the application raised, if no call was closed; None for nothing.
        """
        if self._is_again:
            self.own_error = error
        if not self._closed or guard is None or (error is None and guard.has_asked):
            return error
        self.request, self.patches = self.first, {}
        end = "asked no model" if error is None else f"raised {error!r}"
        note(self._errors[0], _MISLED.format(self._changes[:_MAX_NOTE], end))
        logger.warning(_MISLED.format(self._changes, end), exc_info=error)
        return self._errors[0]

    def _takes(self, form: Form) -> bool:
        """Whether a form is no request that was refused already; it is the next one then."""
        stored = {
            key: form.stored(self._closed.get(key) or Patch(history, (), history))
            for key, history in self.first.histories().items()
        }
        forms = {key: form.sent(key, patch) for key, patch in stored.items()}
        sent = {key: patch.messages for key, patch in forms.items()}
        if any(_are_same(sent, before) for before in self._sent):
            return False
        self._sent.append(sent)
        self._form = form
        self.request = self.first.with_histories(sent)
        self.patches = {key: patch for key, patch in stored.items() if patch}
        changes = "; ".join(str(patch) for patch in forms.values() if patch)
        self._changes = changes or self._changes
        return True

    def _given_up(self) -> BaseException:
        """The first error, with a note if a repair was sent in this task."""
        self.request, self.patches = self.first, {}
        if self._changes:
            note(self._errors[0], self._note())
        if matters_in(self._refusal) & OF_MEDIA and self._newest_has_media():
            note(self._errors[0], _NEWEST)
        return self._errors[0]

    def _newest_has_media(self) -> bool:
        return any(
            place.message == newest_human(history)
            for history in self.first.histories().values()
            for place in media_in(history)
        )

    def _note(self) -> str:
        return (
            f"the provider refused the history of thread {self.first.run.thread_id!r}, and again "
            f"after this repair: {self._changes[:_MAX_NOTE]}. Each next turn will be refused, "
            f"unless the history or the request is changed."
        )

    def report(self) -> None:
        """Report that a request in another form was answered, and keep the form."""
        if not self._sent:
            return
        thread_id = self.first.run.thread_id
        changes = "as it is" if self._form.refusal is None else self._changes
        if self._errors:
            logger.info(_ASKED_AGAIN, thread_id, changes)
            self._keep()
        elif changes:
            logger.info(_ASKED_AT_ONCE, thread_id, changes)
        self.request.report(self.patches.values())

    # --- what was accepted before ----------------------------------------------------------

    def _accepted_before(self) -> _Accepted | None:
        """What this model accepted in this run of the graph, if it has refused this history."""
        kept = self.first.run.kept_by_graph.get(Attempts, ())
        return next((each for each in reversed(kept) if each.is_of(self.first)), None)

    def _keep(self) -> None:
        if (model := self.first.known_model) is None:
            return
        # What was repaired may be in the state when the model is asked again.
        refused = self.first.histories()
        among = {key: len(media_in(history)) for key, history in refused.items()}
        form = self._form._replace(among=among)
        accepted = _Accepted(model, (refused, self.stored), form)
        run = self.first.run
        kept = (each for each in run.kept_by_graph.get(Attempts, ()) if each is not self._accepted)
        run.keep_by_graph(Attempts, [*kept, accepted])


_MISLED = (
    "its code ran once more with a repaired history ({}), and {}. Call the model through "
    "patch_model: then its request alone is repeated"
)
_NEWEST = (
    "the refusal speaks of a picture or a file, and the newest message has one: it is never left "
    "out. Behind the next message it is an older one, and becomes a text if it is refused again."
)
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
        changes: The repairs that were sent.
    """

    models: Any
    histories: Histories
    changes: str

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
