"""A request to a model: what each of the three places that call one makes of it.

The node wrapper, the middleware and `patch_model` have a `Request` each. `ask` sends it, and
`attempts` makes others of it with other histories.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableSequence, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase

from langgraph_patch._langgraph.run import Run
from langgraph_patch._sansio import IORequest
from langgraph_patch.asking.guard import TruncationGuard
from langgraph_patch.history.changes import Patch
from langgraph_patch.repairing.repairer import Repairer

Histories: TypeAlias = Mapping[str, list[BaseMessage]]
"""Histories by their state keys."""


class KnownModel(NamedTuple):
    """A chat model and the options with which it is asked.

    Attributes:
        model: The model.
        options: The options, as text: they may be of any type.
    """

    model: BaseChatModel
    options: str

    def is_same(self, other: KnownModel | None) -> bool:
        """Whether it is the same object, with the same options."""
        return other is not None and self.model is other.model and self.options == other.options


@dataclass(slots=True)
class Request(ABC):
    """A request to a model, made by one of the three places.

    Attributes:
        run: The run that it is made in.
        repairers: The repairers of its histories, by their state keys.
        returns_all: Whether its output is all that comes of it; else others drop more if it is sent
            again.
    """

    run: Run
    repairers: Mapping[str, Repairer]
    returns_all: ClassVar[bool] = True

    @property
    def asks(self) -> tuple[object, ...]:
        """The runnable that it asks, then its options; None alone if that shows only later."""
        return (None,)

    @property
    def known_model(self) -> KnownModel | None:
        """The model that it asks; None if it may ask several, or it is not known before."""
        (model, options), *others = models_of(*self.asks)
        if isinstance(model, BaseChatModel) and not others:
            return KnownModel(model, repr(options))
        return None

    @property
    def may_ask(self) -> bool:
        """Whether it may ask a human about calls that are open."""
        return False

    @abstractmethod
    def histories(self) -> Histories:
        """The histories in the request."""

    @abstractmethod
    def with_histories(self, histories: Histories) -> Self:
        """The same request with these histories in the place of its own."""

    def guard(self) -> TruncationGuard | None:
        """A guard for what it sends; None if it does not see what comes."""
        return TruncationGuard(self.run)

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

    def says_more(self, output: Any, keys: Collection[str], answers: Collection[str]) -> bool:  # noqa: ARG002 - for others
        """Whether an output says something behind each of these histories.

        Args:
            output: The output.
            keys: The histories.
            answers: The texts of what the models have answered.
        """
        return bool(answers)

    def with_turns(self, output: Any, turns: Histories) -> Any:  # noqa: ARG002 - for others
        """The output of the second request, behind the first message and its placeholders."""
        return output

    def report(self, patches: Iterable[Patch]) -> None:  # noqa: B027 - most places store them
        """Report what was repaired after a refusal, if nothing stores it."""


# --- who is asked ------------------------------------------------------------------------------


def models_of(runnable: object, *options: object) -> Iterator[tuple[object, Sequence[object]]]:
    """What a runnable passes its input to, with the options: a model, or one for each fallback."""
    if isinstance(runnable, RunnableBindingBase):
        yield from models_of(runnable.bound, runnable.kwargs, *options)
    elif isinstance(runnable, RunnableSequence):
        yield from models_of(runnable.first, *options)
    elif isinstance(runnable, RunnableWithFallbacks):
        for each in runnable.runnables:
            yield from models_of(each, *options)
    else:
        yield runnable, options


# --- what is sent ------------------------------------------------------------------------------


def are_same_request(some: Sequence[BaseMessage], others: Sequence[BaseMessage]) -> bool:
    """Whether integrations send the same for two histories."""
    pairs = zip(some, others, strict=False)
    return len(some) == len(others) and all(a is b or _sent(a) == _sent(b) for a, b in pairs)


def begins_with(history: Sequence[BaseMessage], start: Sequence[BaseMessage]) -> bool:
    """Whether integrations send a history as the beginning of another one."""
    return are_same_request(start, history[: len(start)])


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
