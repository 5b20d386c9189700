"""Threads of a real LangGraph Server: scan, repair and undo over its API, without graph code.

The server starts once. Its agent is the bare one, which a damaged history kills. By default there
are 16 threads, 200 with `--long`.
"""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME
from langgraph_sdk import get_client, get_sync_client

from langgraph_patch import validate_messages
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.threads import (
    LangGraphServer,
    arepair_thread,
    ascan_threads,
    aundo_repair,
    repair_thread,
    scan_threads,
    undo_repair,
)
from langgraph_patch.threads.opening import open_database
from support.agents import thread
from support.dev_server import running_server
from support.placeholder_texts import WAITED

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("server")]

SECONDS = 60
AT_ONCE = 8
"""How many threads are made at once: the server has as many workers."""


# --- threads -----------------------------------------------------------------------------


def says(text):
    """The input of a run."""
    return {"messages": [{"role": "user", "content": text}]}


@dataclass(frozen=True)
class Talk:
    """One thread of the server."""

    client: object
    thread_id: str

    @classmethod
    async def begin(cls, client, **metadata):
        """A new thread."""
        made = await client.threads.create(metadata=metadata)
        return cls(client, made["thread_id"])

    async def start(self, text, **options):
        """Start a run; its id."""
        run = await self.client.runs.create(self.thread_id, "bare", input=says(text), **options)
        return run["run_id"]

    async def end(self, run_id):
        """Wait for a run; its status."""
        async with asyncio.timeout(SECONDS):
            await self.client.runs.join(self.thread_id, run_id)
        return (await self.client.runs.get(self.thread_id, run_id))["status"]

    async def run(self, text, **options):
        """A run from begin to end; its status."""
        return await self.end(await self.start(text, **options))

    async def start_until_mailed(self, text):
        """Start a run of two tools, and return when one is finished and one is not."""
        run_id = await self.start(text)
        async with asyncio.timeout(SECONDS):
            while True:
                state = await self.client.threads.get_state(self.thread_id)
                if sorted(bool(task["result"]) for task in state["tasks"]) == [False, True]:
                    return run_id
                await asyncio.sleep(0.05)

    async def messages(self):
        """The messages of the newest checkpoint, without what its tasks wrote."""
        [newest] = await self.client.threads.get_history(self.thread_id, limit=1)
        return newest["values"]["messages"]


async def abandoned(talk):
    """A human was asked, and wrote something else."""
    await talk.run("wire")
    assert await talk.run("never mind") == "error"


async def abandoned_long_ago(talk):
    """The same; the human tried again."""
    await abandoned(talk)
    assert await talk.run("hello?") == "error"


async def cancelled(talk):
    """A run was cancelled while a tool was at work."""
    run_id = await talk.start_until_mailed("report")
    await talk.client.runs.cancel(talk.thread_id, run_id, wait=True)


async def double_texted(talk):
    """A second message interrupted the run."""
    run_id = await talk.start_until_mailed("report")
    assert await talk.run("never mind", multitask_strategy="interrupt") == "error"
    assert await talk.end(run_id) == "interrupted"


async def failed(talk):
    """A tool raised, and the human wrote again."""
    await failed_at_the_tail(talk)
    assert await talk.run("what happened?") == "error"


async def failed_at_the_tail(talk):
    """A tool raised."""
    assert await talk.run("boom") == "error"


async def limited(talk):
    """The recursion limit came before the tools."""
    assert await talk.run("wire", config={"recursion_limit": 1}) == "error"


IMPORTED = [
    {
        "type": "ai",
        "id": "a1",
        "content": "",
        "tool_calls": [{"name": "send_email", "args": {"to": "bob"}, "id": "c1"}],
    },
    {"type": "human", "id": "h2", "content": "and then?"},
    {"type": "ai", "id": "a2", "content": "nothing", "response_metadata": {"model_name": "m"}},
]


async def imported(talk):
    """A history was written over JSON; an AI message follows the damage."""
    await talk.run("hi")
    state = {"messages": IMPORTED}
    await talk.client.threads.update_state(talk.thread_id, state, as_node="model")


async def paused(talk):
    """A human is asked."""
    assert await talk.run("wire") == "success"


async def healthy(talk):
    """A turn without tools."""
    assert await talk.run("hi") == "success"


async def answered(talk):
    """A human was asked and answered."""
    await talk.run("wire")
    run = await talk.client.runs.create(talk.thread_id, "bare", command={"resume": "yes"})
    assert await talk.end(run["run_id"]) == "success"


BREAKS = [
    abandoned,
    abandoned_long_ago,
    cancelled,
    double_texted,
    failed,
    failed_at_the_tail,
    limited,
    imported,
]
CAUSES = {
    abandoned: {"recovered", "awaiting_input"},
    abandoned_long_ago: {"recovered", "awaiting_input"},
    cancelled: {"recovered", "cancelled"},
    double_texted: {"recovered", "cancelled"},
    imported: {"unknown"},
    limited: {"unknown"},
}
"""What the repair says of the calls. Where a tool raised, its sibling may have finished or not."""


async def make_threads(client, ways):
    """A thread for each way, in that order."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def make(way):
        async with gate:
            talk = await Talk.begin(client, way=way.__name__)
            await way(talk)
            return talk

    return await asyncio.gather(*map(make, ways))


@dataclass(frozen=True)
class Incident:
    """A server with threads, and how each was made."""

    url: str
    ways: dict

    def ids(self, *ways):
        """The threads that were made in one of these ways."""
        return [thread_id for thread_id, way in self.ways.items() if way in ways]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A running server."""
    with running_server(tmp_path_factory.mktemp("server")) as base:
        yield base


@pytest.fixture(scope="module")
def incident(url, request):
    """16 threads: 8 broken in eight ways, 2 paused, 6 healthy; 40, 10 and 150 with `--long`."""
    broken, waiting, sound = (40, 10, 150) if request.config.getoption("--long") else (8, 2, 6)
    ways = [BREAKS[number % len(BREAKS)] for number in range(broken)] + [paused] * waiting
    ways += [(healthy, answered)[number % 2] for number in range(sound)]

    async def make():
        async with get_client(url=url) as client:
            await client.threads.create()  # it never ran
            return await make_threads(client, ways)

    talks = asyncio.run(make())
    return Incident(url, {talk.thread_id: way for talk, way in zip(talks, ways, strict=True)})


@pytest.fixture
def client(url):
    """A synchronous client."""
    with get_sync_client(url=url) as client:
        yield client


@pytest.fixture
async def aclient(url):
    """An asynchronous client."""
    async with get_client(url=url) as client:
        yield client


def of_incident(incident, reports):
    """The status of each thread of the incident: other tests use the server too."""
    return {r.thread_id: r.status for r in reports if r.thread_id in incident.ways}


def expected_statuses(incident):
    """What a scan must find."""
    named = {paused: "paused", healthy: "healthy", answered: "healthy"}
    return {thread_id: named.get(way, "damaged") for thread_id, way in incident.ways.items()}


# --- a whole server ----------------------------------------------------------------------


async def test_a_server_is_healed(incident, client, aclient):
    """Exactly the broken threads are found and healed, from Python and from the command line.

    The next message of each goes through. Pauses stand, and are answered afterwards.
    """
    expected = expected_statuses(incident)
    assert of_incident(incident, scan_threads(client)) == expected
    assert of_incident(incident, [r async for r in ascan_threads(aclient)]) == expected
    assert command_line("scan", incident.url)[0] == 1

    broken = incident.ids(*BREAKS)
    histories = {i: await Talk(aclient, i).messages() for i in incident.ways}
    third = len(broken) // 3
    repairs = [repair_thread(client, thread(i), min_age=0) for i in broken[:third]]
    repairs += await asyncio.gather(
        *(arepair_thread(aclient, thread(i), min_age=0) for i in broken[third : 2 * third])
    )
    assert {repair.outcome for repair in repairs} == {"repaired"}
    code, out = command_line("repair", incident.url, "--all", "--apply", "--yes", "--min-age", "0")
    assert code == 0, out
    printed = {line["thread_id"]: line for line in map(json.loads, out.splitlines())}
    assert {i for i, line in printed.items() if line["outcome"] == "repaired"} >= {
        *broken[2 * third :]
    }

    after = {i: "paused" if expected[i] == "paused" else "healthy" for i in expected}
    assert of_incident(incident, scan_threads(client)) == after
    await check_histories(incident, aclient, histories)
    await check_next_messages(incident, aclient)


async def check_histories(incident, aclient, histories):
    """Nothing is lost, no tool and no model ran, and other threads are as they were."""
    for thread_id, way in incident.ways.items():
        now = await Talk(aclient, thread_id).messages()
        if way not in BREAKS:
            assert now == histories[thread_id]
            continue
        assert validate_messages(now) == []
        assert [m for m in now if m["type"] != "tool"] == [
            m for m in histories[thread_id] if m["type"] != "tool"
        ]


async def check_next_messages(incident, aclient):
    """Every broken thread answers, and every pause takes its answer."""

    async def go_on(thread_id):
        talk = Talk(aclient, thread_id)
        if incident.ways[thread_id] is paused:
            run = await aclient.runs.create(thread_id, "bare", command={"resume": "yes"})
            assert await talk.end(run["run_id"]) == "success"
            assert any(m["content"] == "wired: yes" for m in await talk.messages())
        else:
            assert await talk.run("hello") == "success"
            assert (await talk.messages())[-1]["content"] == "re: hello"

    gate = asyncio.Semaphore(AT_ONCE)

    async def one(thread_id):
        async with gate:
            await go_on(thread_id)

    await asyncio.gather(*map(one, incident.ids(*BREAKS, paused)))


def command_line(*arguments):
    """The exit code and the standard output of the command line, with JSON lines."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "langgraph_patch", *arguments, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stdout or done.stderr


# --- one thread --------------------------------------------------------------------------


async def test_what_a_repair_knows(aclient):
    """Recorded results come back, and each other call gets the cause that the API shows."""
    talks = await make_threads(aclient, CAUSES)
    repairs = await asyncio.gather(
        *(arepair_thread(aclient, thread(talk.thread_id), min_age=0) for talk in talks)
    )
    found = {
        way: {change.cause or change.kind for change in repair.patch.changes}
        for way, repair in zip(CAUSES, repairs, strict=True)
    }
    assert found == CAUSES
    for way, talk in zip(CAUSES, talks, strict=True):
        recovered = [m for m in await talk.messages() if m["content"] == "sent to bob"]
        assert len(recovered) == ("recovered" in CAUSES[way])


async def test_an_answer_that_was_given_is_known(aclient):
    """The list of runs shows that a pause was answered; the tool was cut off afterwards."""
    talk = await Talk.begin(aclient)
    await talk.run("slow")
    server, config = LangGraphServer(aclient), thread(talk.thread_id)
    assert not is_answered(await server.aget_tuple(config))
    resume = await aclient.runs.create(talk.thread_id, "bare", command={"resume": "yes"})
    await asyncio.sleep(1)
    await aclient.runs.cancel(talk.thread_id, resume["run_id"], wait=True)
    assert is_answered(await server.aget_tuple(config))
    assert await talk.run("never mind") == "error"
    repair = await arepair_thread(aclient, config, min_age=0)
    [placed] = [change for change in repair.patch.changes if change.tool_call_id == "slow"]
    assert placed.cause in ("cancelled", "unknown")  # and not `awaiting_input`
    # A second pause, answered or not, is not the first one.
    await talk.run("wire")
    assert not is_answered(await server.aget_tuple(config))


def is_answered(saved):
    """Whether a checkpoint has an answer to an interrupt among its pending writes."""
    assert any(channel == INTERRUPT for _, channel, _ in saved.pending_writes)
    return any(channel == RESUME for _, channel, _ in saved.pending_writes)


async def test_only_what_follows_the_damage_is_sent_again(aclient):
    """An AI message after the damage keeps its fields; the one before is not touched."""
    [talk] = await make_threads(aclient, [imported])
    before = await talk.messages()
    assert str(await arepair_thread(aclient, thread(talk.thread_id), min_age=0)).endswith(
        "repaired - inserted 'send_email' 'c1' (unknown)"
    )
    after = await talk.messages()
    assert [m for m in after if m["type"] != "tool"] == before


def test_a_pause_can_be_abandoned_and_not_brought_back(client, url):
    """`on_pause="abandon"` keeps the finished result; an undo says how to answer it instead."""
    [talk] = asyncio.run(with_client(url, [paused]))
    config = thread(talk.thread_id)
    assert repair_thread(client, config, min_age=0).outcome == "paused"
    repair = repair_thread(client, config, min_age=0, on_pause="abandon")
    assert repair.outcome == "repaired"
    state = client.threads.get_state(talk.thread_id)
    assert (state["next"], state["interrupts"]) == ([], [])
    assert [m["content"][:17] for m in state["values"]["messages"][2:]] == [
        "sent to bob",
        "Tool call wire_mo",
    ]
    with pytest.raises(ThreadError, match=f"checkpoint_id='{repair.before}'"):
        undo_repair(client, config)


async def with_client(url, ways):
    """New threads, for a synchronous test."""
    async with get_client(url=url) as client:
        return await make_threads(client, ways)


async def test_a_repair_is_undone(aclient):
    """A copy of the checkpoint before it becomes the newest; a second undo is an error."""
    [talk] = await make_threads(aclient, [abandoned])
    before = await talk.messages()
    repair = await arepair_thread(aclient, thread(talk.thread_id), min_age=0)
    assert await aundo_repair(aclient, thread(talk.thread_id)) == repair.before
    assert await talk.messages() == before
    [report] = [r async for r in ascan_threads(aclient, thread_ids=[talk.thread_id])]
    assert report.status == "damaged"
    assert "recovered 'send_email'" in str(report)
    with pytest.raises(ThreadError, match="no repair wrote its newest checkpoint"):
        await aundo_repair(aclient, thread(talk.thread_id))
    again = await arepair_thread(aclient, thread(talk.thread_id), min_age=0)
    assert again.outcome == "repaired"
    assert await talk.run("hello") == "success"
    with pytest.raises(ThreadError, match="no repair wrote its newest checkpoint"):
        await aundo_repair(aclient, thread(talk.thread_id))


async def test_an_undo_keeps_what_finished_tasks_wrote(aclient):
    """The placeholder goes, the recorded result stays, and no task is due that would run again."""
    [talk] = await make_threads(aclient, [cancelled])
    await arepair_thread(aclient, thread(talk.thread_id), min_age=0)
    await aundo_repair(aclient, thread(talk.thread_id))
    assert [m["content"] for m in await talk.messages()] == ["report", "", "sent to bob"]
    assert (await aclient.threads.get_state(talk.thread_id))["next"] == []


async def test_a_thread_with_a_run_is_busy(aclient):
    """It is healthy in a scan, and a repair says `busy` instead of raising an error."""
    talk = await Talk.begin(aclient)
    run_id = await talk.start_until_mailed("report")
    [report] = [r async for r in ascan_threads(aclient, thread_ids=[talk.thread_id])]
    assert report.status == "healthy"
    repair = await arepair_thread(aclient, thread(talk.thread_id), min_age=0, force=True)
    assert (repair.outcome, repair.skipped) == ("busy", True)
    await aclient.runs.cancel(talk.thread_id, run_id, wait=True)


async def test_a_breakpoint_is_a_pause(aclient):
    """A run that stopped before the tools, because the caller asked for it, is left as it is."""
    talk = await Talk.begin(aclient)
    assert await talk.run("wire", interrupt_before=["tools"]) == "success"
    [report] = [r async for r in ascan_threads(aclient, thread_ids=[talk.thread_id])]
    assert report.status == "paused"
    repair = await arepair_thread(aclient, thread(talk.thread_id), min_age=0)
    assert repair.outcome == "paused"


async def test_a_pause_in_a_subgraph(aclient):
    """The thread is paused; the checkpoints of the agent inside are read by its namespace."""
    made = await aclient.threads.create()
    run = {"assistant_id": "nested", "input": says("wire")}
    await aclient.runs.wait(made["thread_id"], **run)
    [report] = [r async for r in ascan_threads(aclient, thread_ids=[made["thread_id"]])]
    assert (report.status, report.asks) == ("paused", ("wire 3?",))
    state = await aclient.threads.get_state(made["thread_id"])
    [task] = state["tasks"]
    names = {"thread_id": made["thread_id"], "checkpoint_ns": task["checkpoint"]["checkpoint_ns"]}
    server, config = LangGraphServer(aclient), {"configurable": names}
    inside = await server.aget_tuple(config)
    results = [value for _, channel, value in inside.pending_writes if channel == "messages"]
    assert [message.content for [message] in results] == ["sent to bob"]
    first = [saved async for saved in server.alist(config)][-1]
    assert first.metadata["step"] == -1
    assert [s async for s in server.alist(config, before=first.config, limit=2)] == []
    # The next message abandons the agent inside; its call never reached the history.
    await aclient.runs.wait(made["thread_id"], assistant_id="nested", input=says("never mind"))
    [report] = [r async for r in ascan_threads(aclient, thread_ids=[made["thread_id"]])]
    assert report.status == "healthy"


async def test_a_young_thread_waits_and_a_plan_writes_nothing(aclient):
    """As with a checkpointer: `min_age`, `dry_run`, and an expected checkpoint."""
    [talk] = await make_threads(aclient, [abandoned])
    config = thread(talk.thread_id)
    before = await aclient.threads.get_history(talk.thread_id)
    assert (await arepair_thread(aclient, config)).outcome == "young"
    plan = await arepair_thread(aclient, config, min_age=0, dry_run=True)
    assert plan.outcome == "planned"
    other = {"configurable": {**config["configurable"], "checkpoint_id": "other"}}
    assert (await arepair_thread(aclient, other, min_age=0)).outcome == "moved"
    assert await aclient.threads.get_history(talk.thread_id) == before
    assert WAITED.format("wire_money", "wire") in [m.content for m in plan.patch.messages]


# --- which threads -----------------------------------------------------------------------


async def test_filters(aclient, client):
    """Metadata and status choose the threads of a scan."""
    ways = [healthy, abandoned]
    mine = f"{os.getpid()}-{datetime.now(UTC)}"
    for way in ways:
        talk = await Talk.begin(aclient, mine=mine)
        await way(talk)

    def found(**filters):
        chosen = LangGraphServer(client, metadata={"mine": mine}, **filters)
        return [report.status for report in scan_threads(chosen)]

    assert sorted(found()) == ["damaged", "healthy"]
    assert found(status="error") == ["damaged"]


def test_every_page_is_read(client, monkeypatch):
    """Pages of three threads show each thread once, whatever the size."""
    monkeypatch.setattr("langgraph_patch.threads.server._PAGE", 3)
    whole = [report.thread_id for report in scan_threads(client)]
    assert whole == sorted(t["thread_id"] for t in client.threads.search(limit=1000))


# --- errors ------------------------------------------------------------------------------


async def test_threads_that_have_no_history(aclient):
    """One that never ran is healthy; one whose graph is gone is unreadable, in words."""
    never = [await aclient.threads.create(), await aclient.threads.create(graph_id="bare")]
    gone = await aclient.threads.create(graph_id="gone")
    ids = [made["thread_id"] for made in (*never, gone)]
    reports = {r.thread_id: r async for r in ascan_threads(aclient, thread_ids=ids)}
    assert [reports[each].status for each in ids] == ["healthy", "healthy", "unreadable"]
    assert "Graph 'gone' not found" in reports[ids[2]].reason
    for each in ids[:2]:
        assert (await arepair_thread(aclient, thread(each))).outcome == "healthy"
    with pytest.raises(ThreadError, match="Graph 'gone' not found"):
        await arepair_thread(aclient, thread(ids[2]))


def test_wrong_use(client, aclient, url):
    """Each error names the value and what to do."""
    with pytest.raises(ThreadError, match="There is no thread 'nope'"):
        list(scan_threads(client, thread_ids=["nope"]))
    with pytest.raises(ThreadError, match="There is no thread"):
        repair_thread(client, thread("00000000-0000-0000-0000-000000000000"))
    with pytest.raises(OptionError, match="is asynchronous"):
        list(scan_threads(aclient))
    with pytest.raises(OptionError, match="expected a client"):
        LangGraphServer("http://127.0.0.1")
    with (
        pytest.raises(OptionError, match="LANGGRAPH_HEADERS"),
        open_database(url.replace("://", "://bob:secret@")),
    ):
        pass
    subgraph = {"configurable": {"thread_id": "x", "checkpoint_ns": "child"}}
    with pytest.raises(ThreadError, match="subgraph 'child'"):
        repair_thread(client, subgraph)


def test_a_server_that_is_gone_ends_the_scan():
    """The error names the server; no thread is called unreadable because of it."""
    with (
        pytest.raises(ThreadError, match="is it running, and is the URL right"),
        open_database("http://127.0.0.1:9"),
    ):
        pass


def test_headers_come_from_the_environment(url, monkeypatch):
    """A line that is no header is an error, and its text is not shown."""
    monkeypatch.setenv("LANGGRAPH_HEADERS", "X-Tenant: 7\n")
    with open_database(url) as saver:
        assert saver.client.http.client.headers["x-tenant"] == "7"
    monkeypatch.setenv("LANGGRAPH_HEADERS", "secret")
    with pytest.raises(OptionError, match="Name: value") as error, open_database(url):
        pass
    assert "secret" not in str(error.value)
