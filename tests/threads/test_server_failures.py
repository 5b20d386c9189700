"""What a scan of a LangGraph Server does when requests fail: a scripted server, the real client."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from langgraph_sdk.client import SyncLangGraphClient

from langgraph_patch.errors import ThreadError
from langgraph_patch.threads import scan_threads

THREAD = {"thread_id": "t1", "metadata": {"graph_id": "agent"}, "status": "idle"}


def client_of(status: int) -> SyncLangGraphClient:
    """A client of a server that lists one thread, and answers with the status to what follows."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/search"):
            return httpx.Response(200, json=[THREAD])
        return httpx.Response(status, json={"detail": "no"})

    transport = httpx.MockTransport(answer)
    return SyncLangGraphClient(httpx.Client(transport=transport, base_url="http://server"))


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "check LANGGRAPH_API_KEY"),
        (429, "it refuses more requests now"),
        (502, "the proxy before it cannot reach it"),
        (503, "it is not available now"),
    ],
)
def test_a_server_that_fails_ends_a_scan(status: int, reason: str) -> None:
    """Otherwise each of its threads would be called unreadable, and a repair would go on."""
    with pytest.raises(ThreadError, match=rf"^LangGraph Server: {reason} \(.*\)\.$"):
        list(scan_threads(client_of(status)))


@pytest.mark.parametrize("status", [403, 500, 504])
def test_a_thread_that_the_server_cannot_read_does_not_end_a_scan(status: int) -> None:
    """It may be too large, or of another user: it is reported with the reason."""
    [report] = scan_threads(client_of(status))
    expected: dict[str, Any] = {"thread_id": "t1", "status": "unreadable"}
    assert expected.items() <= report.to_dict().items()
    assert "LangGraph Server refused the request" in (report.reason or "")
