"""Ask a model; ask again if its provider refuses the history, or if its message is unusable.

Three places call a model: the node wrapper, the middleware and `patch_model`. Each makes a
`Request`, and `ask` sends it. What a provider refused is repaired and sent again, at most twice;
`Attempts` says what is sent.

A refusal has status 400 or 422, or the integration could not build a request of the history. No
integration is imported: each kind of error is known by its attributes.

| integration | error | status |
|---|---|---|
| OpenAI, Anthropic, Groq, DeepSeek, Ollama | `APIStatusError`, `ResponseError` | `status_code` |
| Gemini | `ChatGoogleGenerativeAIError`, caused by an `APIError` | `code` |
| Mistral | `httpx.HTTPStatusError` | `response.status_code` |
| Bedrock | `ClientError` | `response["ResponseMetadata"]["HTTPStatusCode"]` |

Read in langchain-openai 1.7.3, langchain-anthropic 1.7.7, langchain-groq 1.1.3,
langchain-deepseek 1.1.1, langchain-ollama 1.1.0, langchain-google-genai 4.4.2,
langchain-mistralai 1.1.6 and langchain-aws 1.9.1.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from traceback import walk_tb
from types import FrameType
from typing import Any, Self, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.errors import GraphBubbleUp

from langgraph_patch._langgraph.run import Run
from langgraph_patch._sansio import IOGenerator, IORequest
from langgraph_patch.errors import PatchError, chain_of
from langgraph_patch.graph.guard import TruncationGuard, guarded
from langgraph_patch.history.changes import Patch, joined
from langgraph_patch.history.comparing import are_identical
from langgraph_patch.history.plain_form import plain_form
from langgraph_patch.history.refused import repair_refused

logger: logging.Logger = logging.getLogger("langgraph_patch")

Histories: TypeAlias = Mapping[str, list[BaseMessage]]
"""Histories by their state keys."""

_REFUSED = (400, 422)
"""The status of a refused request; 422 is that of Mistral and of servers made with FastAPI."""

_NOTE = "langgraph-patch: "
_MAX_NOTE = 500

_SUSPENDS = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


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

    @abstractmethod
    def histories(self) -> Histories:
        """The histories in the request."""

    @abstractmethod
    def with_histories(self, histories: Histories) -> Self:
        """The same request with these histories in the place of its own."""

    def guard(self) -> TruncationGuard | None:
        """A guard for what it sends; None if it does not see what comes."""
        return TruncationGuard(self.run, drops=not self.has_history)

    @abstractmethod
    def send(self) -> IORequest:
        """Send it."""

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
    guard.finish()
    sent = attempts.request
    output = sent.corrected(output, guard)
    message = sent.message(output) if guard.has_damaged else None
    if not guard.asks_again(message):
        return output
    closed = sent.closed(output, message) if message.invalid_tool_calls else {}
    again = Attempts(sent.with_histories(closed))
    output, guard = yield from answered(again)
    if guard is not None:
        guard.finish()
        output = again.request.corrected(output, guard)
        guard.asks_again(again.request.message(output), asked=True)
    return sent.with_turns(output, {key: _last_turn(each) for key, each in closed.items()})


def answered(attempts: Attempts) -> IOGenerator[tuple[Any, TruncationGuard | None]]:
    """The output of a request that was not refused, and its guard: the loop of all three places."""
    while True:
        guard, sent = attempts.request.guard(), attempts.request.send()
        try:
            output = yield sent if guard is None else guarded(guard, sent)
        except Exception as error:  # noqa: BLE001 - it is raised below, if it is no refusal
            failed = attempts.refused(error, guard)
        else:
            attempts.report()
            return output, guard
        if failed is not None:
            raise failed


def _last_turn(history: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The last message of a model, and what follows it."""
    place = max(i for i, message in enumerate(history) if isinstance(message, AIMessage))
    return list(history[place:])


# --- what is sent after a refusal ----------------------------------------------------------------


class Attempts:
    """The forms of one request: as it is, repaired, in the plain form.

    Nothing is read, copied or reported before a request was refused.

    Args:
        request: The request.

    Attributes:
        request: The next form of it.
        patches: What can be stored of its histories, by their state keys; none before a refusal.
    """

    def __init__(self, request: Request) -> None:
        self.request = self._first = request
        self._forms = [_as_stored, _in_plain_form]
        self._errors: list[Exception] = []
        self._changes = ""
        self.patches: Mapping[str, Patch] = {}

    def refused(self, error: Exception, guard: TruncationGuard | None = None) -> Exception | None:
        """Choose what is sent after an error; return the error to raise if nothing is.

        That is the first error, with a note, if the last repair was refused as well. An error that
        is no refusal is returned as it is.

        Args:
            error: What the request raised.
            guard: The guard of the node that made it; None if a model alone was called.
        """
        if not _asks_again(error, guard, self._first.run):
            return error
        self._errors.append(error)
        text = "\n".join(map(refusal_text, [*self._errors, *(guard.errors if guard else ())]))
        stored, last = self._first.histories(), self.request.histories()
        patches = {key: repair_refused(history, text) for key, history in stored.items()}
        while self._forms:
            forms = self._forms.pop(0)(patches)
            sent = {key: patch.messages for key, patch in forms.items()}
            if not all(are_identical(sent[key], last[key]) for key in sent):
                self.request = self._first.with_histories(sent)
                self.patches = {key: patch for key, patch in patches.items() if patch}
                self._changes = "; ".join(str(patch) for patch in forms.values() if patch)
                return None
        first, thread_id = self._errors[0], self._first.run.thread_id
        if self._changes:
            first.add_note(
                f"{_NOTE}the provider refused the history of thread {thread_id!r}, and again "
                f"after this repair: {self._changes[:_MAX_NOTE]}. Each next turn will be refused, "
                f"unless the history or the request is changed."
            )
        return first

    def report(self) -> None:
        """Report that a request after a refusal was answered."""
        if self._errors:
            logger.info(
                "asked the model of thread %r again, because its provider refused the history: %s",
                self._first.run.thread_id,
                self._changes,
            )
            self.request.report(self.patches.values())


def _as_stored(patches: Mapping[str, Patch]) -> Mapping[str, Patch]:
    return patches


def _in_plain_form(patches: Mapping[str, Patch]) -> Mapping[str, Patch]:
    return {key: joined(patch, plain_form(patch.messages)) for key, patch in patches.items()}


# --- what a refusal is --------------------------------------------------------------------------


def _asks_again(error: Exception, guard: TruncationGuard | None, run: Run) -> bool:
    """Whether a request is made again after an error.

    Below a node only if nothing else happened than model runs that failed before their first
    chunk: nothing is done twice, and no question is asked twice.
    """
    notes = getattr(error, "__notes__", ())
    if isinstance(error, PatchError | GraphBubbleUp) or any(n.startswith(_NOTE) for n in notes):
        return False
    if guard is None:
        return is_refusal(error)
    return guard.only_failed and not run.has_answers and any(map(is_refusal, guard.errors))


def is_refusal(error: BaseException) -> bool:
    """Whether an error says that a provider, or its integration, refused the request.

    The outermost error with a status decides. An error without one counts if an integration raised
    it while it made a request of the messages. A context overflow does not count: it has status
    400, but its cause is the length of the history.

    Args:
        error: The error of a model run, as the integration or a wrapper around it raised it.

    Examples:
        >>> import httpx
        >>> from langgraph_patch.graph.ask import is_refusal
        >>> request = httpx.Request("POST", "http://localhost")
        >>> def failed(status):
        ...     response = httpx.Response(status)
        ...     return httpx.HTTPStatusError("no", request=request, response=response)
        >>> [is_refusal(failed(status)) for status in (400, 401, 422, 429, 500)]
        [True, False, True, False, False]
    """
    for each in chain_of(error):
        if isinstance(each, BaseExceptionGroup):
            return any(map(is_refusal, each.exceptions))
        if not isinstance(each, Exception) or isinstance(each, PatchError | GraphBubbleUp):
            return False
        if any(kind.__name__ == "ContextOverflowError" for kind in type(each).__mro__):
            return False
        if (status := _status(each)) is not None:
            return status in _REFUSED
        if _is_of_request(each):
            return True
    return False


def refusal_text(error: BaseException) -> str:
    """The texts of an error and of its causes."""
    texts = []
    for each in chain_of(error):
        inner = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        texts += [str(each), *map(refusal_text, inner)]
    return "\n".join(texts)


def _status(error: BaseException) -> int | None:
    """The HTTP status that an error carries, or None."""
    response = getattr(error, "response", None)
    stored: Mapping[str, Any] = response if isinstance(response, Mapping) else {}
    code = stored.get("Error", {}).get("Code", "")
    if str(code).lower() == "validationexception":  # of Bedrock, which sends none in a stream
        return 400
    for value in (
        getattr(error, "status_code", None),
        getattr(response, "status_code", None),
        stored.get("ResponseMetadata", {}).get("HTTPStatusCode"),
        getattr(error, "code", None),
    ):
        if isinstance(value, int) and value in range(100, 600):
            return int(value)
    return None


def _is_of_request(error: Exception) -> bool:
    """Whether an integration raised an error while it made a request of messages.

    Errors of the response, of callbacks and of the application pass no function of an integration
    that makes one.
    """
    kind = type(error)
    if kind.__name__ == "ParamValidationError" and kind.__module__ == "botocore.exceptions":
        return True
    in_model = False
    for frame, _ in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__"))
        if in_model and _makes_request(frame, module):
            return not isinstance(error, OSError)
        in_model = in_model or module == "langchain_core.language_models.chat_models"
    return False


def _makes_request(frame: FrameType, module: str) -> bool:
    """Whether a function of an integration gets messages, and does no more than convert them.

    What runs a model gets a run manager or is suspended while it waits.
    """
    is_integration = module.startswith("langchain_") and not module.startswith("langchain_core.")
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if not is_integration or code.co_flags & _SUSPENDS or "run_manager" in names:
        return False
    values = [frame.f_locals.get(name) for name in names]
    items = [item for v in values for item in (v if isinstance(v, list) else [v])]
    return any(isinstance(item, BaseMessage) for item in items)
