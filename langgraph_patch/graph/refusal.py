"""Know whether a model run failed because its provider refused the request.

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

from collections.abc import Iterator, Mapping
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from traceback import walk_tb
from types import FrameType
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.errors import GraphBubbleUp

from langgraph_patch.errors import PatchError

_REFUSED = (400, 422)
"""The status of a refused request; 422 is that of Mistral and of servers made with FastAPI."""

_SUSPENDS = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


def is_refusal(error: BaseException) -> bool:
    """Whether an error says that a provider, or its integration, refused the request.

    The outermost error with a status decides. An error without one counts if an integration raised
    it while it made a request of the messages. A context overflow does not count: it has status
    400, but its cause is the length of the history.

    Args:
        error: The error of a model run, as the integration or a wrapper around it raised it.

    Examples:
        >>> import httpx
        >>> from langgraph_patch.graph.refusal import is_refusal
        >>> request = httpx.Request("POST", "http://localhost")
        >>> def failed(status):
        ...     response = httpx.Response(status)
        ...     return httpx.HTTPStatusError("no", request=request, response=response)
        >>> [is_refusal(failed(status)) for status in (400, 401, 422, 429, 500)]
        [True, False, True, False, False]
    """
    for each in _chain(error):
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
    for each in _chain(error):
        inner = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        texts += [str(each), *map(refusal_text, inner)]
    return "\n".join(texts)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error, its cause, the cause of that, and so on."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        yield each
        seen.add(id(each))
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)


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
        if module.startswith("langchain_core.callbacks"):
            return False
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
