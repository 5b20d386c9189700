"""The web service in `examples`, over loopback: approvals, two tabs, a client that leaves."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import time

import httpx
import pytest

from support.databases import open_saver
from support.paths import ENVIRONMENT, ROOT

pytestmark = pytest.mark.xdist_group("postgres")

REQUEST = "Write to Bob and wire him 100."
SECONDS = 60


class Service:
    """A running service: what it is asked, and what it answers."""

    def __init__(self, client, ledger, database):
        self.client, self.database, self.ledger = client, database, ledger
        self.before = len(ledger.read_text())

    async def post(self, path, **body):
        """The events of one request: name and text."""
        response = await self.client.post(path, json=body)
        found = re.findall(r"event: (\w+)\ndata: (.*)\n\n", response.text)
        return [(name, json.loads(data)["text"]) for name, data in found]

    async def question(self, thread):
        """The id of the approval that is open."""
        state = (await self.client.get(f"threads/{thread}")).json()
        [approval] = state["approvals"]
        return approval["id"]

    def results(self, thread):
        """The texts of the tool messages in the stored history."""
        with open_saver(self.database) as saver:
            found = saver.get({"configurable": {"thread_id": thread}})
        return [m.text for m in found["channel_values"]["messages"] if m.type == "tool"]

    def payments(self):
        """What was paid since the test began, whatever LangGraph knows of it."""
        return re.findall(r"^wired \d+$", self.ledger.read_text()[self.before :], re.MULTILINE)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def running(request, tmp_path_factory):
    """The address, the ledger and the database of a service in two worker processes."""
    folder = tmp_path_factory.mktemp("service")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    paths = (str(ROOT / "examples"), ENVIRONMENT["PYTHONPATH"])
    environment = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths), "BANK_SECONDS": "2"}
    database = str(folder / "chat.sqlite")
    if request.param == "postgres":
        database = environment["DATABASE_URI"] = request.getfixturevalue("postgres").make()
    command = [sys.executable, "-m", "uvicorn", "web_service.app:app", "--workers=2"]
    command.append(f"--port={port}")
    with (folder / "ledger").open("w") as ledger:
        process = subprocess.Popen(  # noqa: S603 - our own code
            command, cwd=folder, env=environment, stdout=ledger, stderr=ledger
        )
    base, until = f"http://127.0.0.1:{port}", time.monotonic() + SECONDS
    try:
        while True:
            try:
                assert "<form>" in httpx.get(base).text
                break
            except httpx.ConnectError:
                assert time.monotonic() < until
                time.sleep(0.1)
        yield base, folder / "ledger", database
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
async def service(running):
    """The service, and a client of it."""
    base, ledger, database = running
    async with httpx.AsyncClient(base_url=base, timeout=SECONDS) as client:
        yield Service(client, ledger, database)


async def test_a_message_instead_of_the_answer(service):
    """The thread goes on, its model knows of the mail, and a late answer reaches nothing."""
    assert await service.post("threads/1", text=REQUEST) == [("approval", "Wire 100?")]
    question = await service.question("1")
    [(kind, text)] = await service.post("threads/1", text="Never mind.")
    assert (kind, text) == ("answer", "I have read: Never mind.")
    mail, wire = service.results("1")
    assert mail == "sent to bob"
    assert "asked for human input" in wire
    late = await service.client.post("threads/1", json={"id": question, "text": "yes"})
    assert late.status_code == httpx.codes.CONFLICT
    loaded = (await service.client.get("threads/1")).json()
    assert [each["text"] for each in loaded["messages"]] == [REQUEST, "Never mind.", text]
    assert loaded["approvals"] == []
    assert service.payments() == []


async def test_two_tabs(service):
    """Both answer one question at once: the money is wired once, and one tab is told why not."""
    await service.post("threads/2", text=REQUEST)
    answer = {"id": await service.question("2"), "text": "yes"}
    tabs = [service.post("threads/2", **answer) for _ in range(2)]
    kinds = [kind for events in await asyncio.gather(*tabs) for kind, _ in events]
    assert sorted(kinds) == ["answer", "error"]
    assert service.payments() == ["wired 100"]
    assert service.results("2") == ["sent to bob", "wired 100"]


async def test_a_client_that_leaves(service):
    """The run is cancelled in the tool; the next message is answered, and no tool runs again."""
    await service.post("threads/3", text=REQUEST)
    answer = {"id": await service.question("3"), "text": "yes"}
    with pytest.raises(httpx.ReadTimeout):
        await service.client.post("threads/3", json=answer, timeout=1)
    await asyncio.sleep(1)
    events = await service.post("threads/3", text="Are you there?")
    assert events == [("answer", "I have read: Are you there?")]
    mail, wire = service.results("3")
    assert mail == "sent to bob"
    assert "a cancellation is recorded" in wire
    await asyncio.sleep(2)
    assert service.payments() == []
