"""The forms of refused histories, one after the other, until one is answered.

| form | what can be stored of it |
|---|---|
| as it is | |
| repaired: messages that say nothing or stop halfway, thinking that is refused (`whole`) | all |
| in the plain form, that every provider reads (`plain`) | the repair |
| the same, as the text of the refusal asks for it (`asked`) | the repair |
| if the plain form is refused for another reason: repaired, and as the text asks | all |

In each form but the first, what a human, a system or a tool left empty has a text (`with_texts`).

Calls at the end may be alive: a judge between a model and its tools asks about them. They get
placeholders in these forms if a refusal speaks of a call without a result, or if nothing else has
helped.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage

from langgraph_patch.history.changes import Patch
from langgraph_patch.history.forms.asked import TAKES, Take, asked_form, media_in, newest_human
from langgraph_patch.history.forms.phrases import OF_MEDIA, matters_in, speaks_of_calls
from langgraph_patch.history.forms.plain import plain_form
from langgraph_patch.history.forms.whole import repair_refused, with_texts

_NEWEST = (
    "the refusal speaks of a picture or a file, and the newest message has one: it is never left "
    "out. Behind the next message it is an older one, and becomes a text if it is refused again."
)


class Form(NamedTuple):
    """A form of the histories of a request, by their state keys.

    Attributes:
        stored: What can be stored of them.
        sent: What is sent.
        how: How it was made.
    """

    stored: Mapping[str, Patch]
    sent: Mapping[str, Patch]
    how: _How

    @property
    def histories(self) -> dict[str, list[BaseMessage]]:
        """The histories that are sent."""
        return {key: patch.messages for key, patch in self.sent.items()}

    @property
    def changes(self) -> str:
        """The changes in what is sent; `""` if it is as it was."""
        return "; ".join(str(patch) for patch in self.sent.values() if patch)

    def of_next(self, histories: Mapping[str, list[BaseMessage]]) -> Form:
        """The same form of later histories, which begin with these.

        A picture that came later is sent: only those are left out that were refused.
        """
        among = {key: len(media_in(patch.before)) for key, patch in self.sent.items()}
        return self.how.form(_unchanged(histories), among)

    @classmethod
    def in_turn(
        cls,
        histories: Mapping[str, list[BaseMessage]],
        refusal: Sequence[str],
        tools: Collection[str],
    ) -> Generator[Form | None, Any, str | None]:
        """The forms after a refusal; the first, and others, may be sent as one was that is refused.

        Args:
            histories: The histories.
            refusal: The text of the refusal, and those of errors beside it.
            tools: The names of the tools that the model is given.

        Yields:
            A form, which is sent the next refusal of it, or None if it was none. None, which is
            sent the repairs that close the calls at the end, or None if there are no such calls.

        Returns:
            A note for who reads the refusal, or None.
        """
        starts, refusals = _unchanged(histories), [refusal]
        newest, may_close = _How(), True
        order: Iterator[_How] = chain([newest], _order(refusals, tools))
        while True:
            is_asked = may_close and speaks_of_calls("\n".join(refusals[-1]))
            how = None if is_asked else next(order, None)
            if how is not None:
                if (refusal := (yield how.form(starts))) is not None:
                    refusals.append(refusal)
                    newest = how
            elif may_close:
                may_close = False
                if (closed := (yield None)) is not None:
                    starts = {**starts, **closed}
                    order = _order(refusals, tools)
                    if newest.refusal is not None:
                        order = chain([newest._replace(refusal=_text_of(refusals))], order)
            else:
                return _NEWEST if _is_kept(histories, _text_of(refusals)) else None


class _How(NamedTuple):
    """How a form is made.

    Attributes:
        refusal: The text of the refusals before it; None for the history as it is.
        tools: For the plain form, the names of the tools that the model is given; else None.
        take: For the form that the refusal asks for, which media are taken; else None.
        keeps_ids: Whether ids stay that Mistral alone refuses: the refusal names another matter.
    """

    refusal: str | None = None
    tools: Collection[str] | None = None
    take: Take | None = None
    keeps_ids: bool = False

    def form(self, starts: Mapping[str, Patch], among: Mapping[str, int] | None = None) -> Form:
        """The form; `among` says for each history how many of its first media may be taken."""
        stored, sent = dict[str, Patch](), dict[str, Patch]()
        for key, start in starts.items():
            found = start
            if self.refusal is not None:
                found = Patch.joined(found, repair_refused(found.messages, self.refusal))
            stored[key] = found
            if self.tools is not None:
                plain = plain_form(found.messages, self.tools, keeps_ids=self.keeps_ids)
                found = Patch.joined(found, plain)
            if self.take is not None:
                most, refusal = (among or {}).get(key), self.refusal or ""
                found = Patch.joined(found, asked_form(found.messages, refusal, self.take, most))
            if self.refusal is not None:
                found = Patch.joined(found, with_texts(found.messages))
            sent[key] = found
        return Form({key: patch for key, patch in stored.items() if patch}, sent, self)


def _order(refusals: Sequence[Sequence[str]], tools: Collection[str]) -> Iterator[_How]:
    """How the forms are made, each by the refusals that there are when it is its turn."""
    repaired = _text_of(refusals)
    yield _How(repaired)
    yield _How(_text_of(refusals), tools, keeps_ids=_is_known(refusals))
    # A plain form that is refused for another reason has lost what the provider demands.
    is_plain = _is_known(refusals)
    for take in TAKES:
        plain = _How(_text_of(refusals), tools, take, keeps_ids=_is_known(refusals))
        yield plain if is_plain else _How(repaired, take=take)


def _text_of(refusals: Sequence[Sequence[str]]) -> str:
    return "\n".join(chain.from_iterable(refusals))


def _is_known(refusals: Sequence[Sequence[str]]) -> bool:
    """Whether the newest refusal itself names a matter that is known."""
    return bool(matters_in(refusals[-1][0]))


def _is_kept(histories: Mapping[str, list[BaseMessage]], refusal: str) -> bool:
    """Whether a refusal may speak of what the newest message of a human has."""
    return bool(matters_in(refusal) & OF_MEDIA) and any(
        place.message == newest_human(history)
        for history in histories.values()
        for place in media_in(history)
    )


def _unchanged(histories: Mapping[str, list[BaseMessage]]) -> dict[str, Patch]:
    return {key: Patch(history, (), history) for key, history in histories.items()}
