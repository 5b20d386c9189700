"""What a refusal is: an error of a provider about the request, known by its attributes.

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

The errors are the application's: an attribute, a text or a chain of one may be anything, and one
object may be raised again and again. So nothing that reads or marks one raises.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from traceback import walk_tb
from types import FrameType
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.errors import GraphBubbleUp

from langgraph_patch.errors import PatchError, attribute_of, chain_of
from langgraph_patch.history.forms.phrases import matters_in

_REFUSED = (400, 422)
"""The status of a refused request; 422 is that of Mistral and of servers made with FastAPI."""

_SUSPENDS = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


def is_refusal(error: BaseException, others: Iterable[BaseException] = ()) -> bool:
    """Whether an error says that a provider, or its integration, refused the request.

    The outermost error with a status decides. An error without one counts if an integration raised
    it while it made a request of the messages. A context overflow does not count: it has status
    400, but its cause is the length of the history. Nor does an account without credit. A sentence
    that is only in refusals counts with every status (`refused` in `phrases.toml`).

    Args:
        error: The error of a model run, as the integration or a wrapper around it raised it.
        others: Errors of other model runs: one that was handled meanwhile is no cause. Default:
            none.

    Examples:
        >>> import httpx
        >>> from langgraph_patch.asking.refusal import is_refusal
        >>> request = httpx.Request("POST", "http://localhost")
        >>> def failed(status):
        ...     response = httpx.Response(status)
        ...     return httpx.HTTPStatusError("no", request=request, response=response)
        >>> [is_refusal(failed(status)) for status in (400, 401, 422, 429, 500)]
        [True, False, True, False, False]
    """
    return any(is_refused for _, is_refused in _judged(error, others))


def _judged(
    error: BaseException, others: Iterable[BaseException] = ()
) -> Iterator[tuple[BaseException, bool | None]]:
    """An error, its causes and what it carries, each with whether it is a refusal itself.

    What decides is the last of a chain: an error behind it was handled when it came.
    """
    seen, left = {id(other) for other in others if other is not error}, [error]
    while left:
        for each in chain_of(left.pop(), seen):
            members = _members_of(each)
            is_refused = None if members else _is_refused(each)
            yield each, is_refused
            left += reversed(members)
            if members or is_refused is not None:
                break


def _is_refused(error: BaseException) -> bool | None:
    """Whether an error is a refusal itself; None if its cause decides."""
    kind = type(error)
    if not issubclass(kind, Exception) or issubclass(kind, PatchError | GraphBubbleUp):
        return False
    if any(base.__name__ == "ContextOverflowError" for base in kind.__mro__):
        return False
    if (status := _status(error)) is not None:
        matters = matters_in(text_of(error))
        return (status in _REFUSED or "refused" in matters) and "no_history" not in matters
    return True if _is_of_request(error) else None


def refusal_text(error: BaseException) -> str:
    """The texts of an error, of its causes and of what it carries."""
    return "\n".join(text_of(each) for each, _ in _judged(error))


def text_of(error: BaseException) -> str:
    """The text of an error; the name of its class if it has none."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - `__str__` of the application may raise anything
        return type(error).__name__


def carried_by(error: BaseException) -> list[BaseException]:
    """The errors that an error only carries: those in a group, at any depth, or of tenacity.

    The error itself if it is none of these.
    """
    found: list[BaseException] = []
    seen, left = set[int](), [error]
    while left:
        each = left.pop()
        if id(each) not in seen:
            seen.add(id(each))
            members = _members_of(each)
            left += members
            found += [] if members else [each]
    return found


# --- reading an error -----------------------------------------------------------------------------


def _members_of(error: BaseException) -> list[BaseException]:
    """The errors that a group, or a `RetryError` of tenacity, carries."""
    members: Any = ()
    if isinstance(error, BaseExceptionGroup):
        members = attribute_of(error, "exceptions")
    elif type(error).__name__ == "RetryError" and "tenacity" in str(type(error).__module__):
        with contextlib.suppress(Exception):  # as everywhere: it may be anything
            members = [attribute_of(error, "last_attempt").exception()]
    listed = members if isinstance(members, list | tuple) else ()
    return [each for each in listed if isinstance(each, BaseException)]


def _status(error: BaseException) -> int | None:
    """The HTTP status that an error carries, or None."""
    response = attribute_of(error, "response")
    code = _value(_value(response, "Error"), "Code")
    if type(code) is str and code.lower() == "validationexception":
        return 400  # of Bedrock, which sends none in a stream
    for value in (
        attribute_of(error, "status_code"),
        attribute_of(response, "status_code"),
        _value(_value(response, "ResponseMetadata"), "HTTPStatusCode"),
        attribute_of(error, "code"),
    ):
        if issubclass(type(value), int) and value in range(100, 600):
            return int(value)
    return None


def _value(stored: object, key: str) -> Any:
    """The value of a dict; None if it is none, or has none."""
    own: Any = stored if issubclass(type(stored), dict) else {}
    return dict.get(own, key)


def _is_of_request(error: BaseException) -> bool:
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
            return not issubclass(kind, OSError)
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
    items = [item for v in values for item in (v if type(v) is list else [v])]
    return any(issubclass(type(item), BaseMessage) for item in items)
