"""A refusal is known from every other error by its attributes, wherever it is in a chain.

`tests/server/test_refusals.py` has the same claim for the real integrations.
"""

import asyncio

import httpx
import pytest
from langgraph.errors import GraphInterrupt

from langgraph_patch.errors import EvidenceError
from langgraph_patch.graph.refusal import is_refusal, refusal_text


class SdkError(Exception):
    """An error of a provider's SDK, with these attributes."""

    def __init__(self, text="no", **fields):
        super().__init__(text)
        vars(self).update(fields)


class ContextOverflowError(SdkError):
    """What LangChain's integrations raise if the history is too long."""


def raised(error, cause=None, context=None):
    """The error with a cause, or with one that was handled when it was raised."""
    error.__context__ = context
    if cause is not None:
        error.__cause__ = cause
    return error


def answered(status):
    """What `httpx` raises for a response."""
    response = httpx.Response(status)
    return httpx.HTTPStatusError(
        "no", request=httpx.Request("POST", "http://localhost"), response=response
    )


def of_aws(status=None, code="ValidationException"):
    """A `ClientError` of botocore; an event of a stream has no status."""
    metadata = {"ResponseMetadata": {"HTTPStatusCode": status}} if status else {}
    return SdkError(response={"Error": {"Code": code}, **metadata})


FORMS = {
    "status_code": lambda status: SdkError(status_code=status),
    "code": lambda status: SdkError(code=status, status="INVALID_ARGUMENT"),
    "response.status_code": answered,
    "AWS": lambda status: of_aws(status, "X"),
}
ASKED_AGAIN = {400: True, 422: True}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 503, 529])
def test_the_status_decides(form, status):
    """Only 400 and 422, in each place where an SDK stores the status."""
    assert is_refusal(FORMS[form](status)) is ASKED_AGAIN.get(status, False)


REFUSED = SdkError(status_code=400)

NO_REFUSAL = {
    "an error of the application": ValueError("400"),
    "a lost connection": ConnectionError("reset"),
    "a timeout": TimeoutError(),
    "a cancellation": asyncio.CancelledError(),
    "a status that is none": SdkError(status_code=-1, code="invalid_request_error"),
    "a flag": SdkError(code=True),
    "a throttled event of AWS": of_aws(code="throttlingException"),
    "an error of this package": raised(EvidenceError("no"), cause=REFUSED),
    "an interrupt": raised(GraphInterrupt(()), context=REFUSED),
    "a context that is too long": ContextOverflowError(status_code=400),
    "a cancelled group": BaseExceptionGroup("g", [asyncio.CancelledError()]),
    "a rate limit of the fallback": raised(SdkError(status_code=429), context=REFUSED),
    "an error that hides its context": raised(ValueError("no"), context=REFUSED),
}
NO_REFUSAL["an error that hides its context"].__suppress_context__ = True


@pytest.mark.parametrize("name", NO_REFUSAL)
def test_no_refusal(name):
    """The outermost error with a status decides; without one it is none."""
    assert not is_refusal(NO_REFUSAL[name])


WRAPPED = {
    "a cause": raised(RuntimeError("failed"), cause=REFUSED),
    "a context": raised(RuntimeError("failed"), context=REFUSED),
    "a group": ExceptionGroup("g", [ValueError("x"), ExceptionGroup("h", [REFUSED])]),
    "a refusal of the fallback": raised(
        SdkError(status_code=400), context=SdkError(status_code=529)
    ),
    "an event of AWS": of_aws(code="validationException"),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_refusal_in_a_chain_of_errors(name):
    """As a cause, as a context, in a group; an error that is its own cause ends the search."""
    assert is_refusal(WRAPPED[name])
    loop = RuntimeError("loop")
    loop.__cause__ = loop
    assert not is_refusal(loop)


def test_the_text_of_a_refusal_is_that_of_all_errors():
    """A provider speaks of thinking in the cause of what the integration raises."""
    cause = raised(RuntimeError("outer"), cause=SdkError("in `thinking` block", status_code=400))
    assert refusal_text(ExceptionGroup("g", [cause])).splitlines()[1:] == [
        "outer",
        "in `thinking` block",
    ]
