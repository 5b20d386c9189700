"""What the tests of streams share."""

import pytest

from support.streams import Both


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def io(request):
    """One set of tests for the sync and the async functions."""
    both = Both(asynchronous=request.param)
    yield both
    both.loop.run_until_complete(both.loop.shutdown_asyncgens())
    both.loop.close()
