"""The command line over a LangGraph Server: scan, show, repair and undo, without a graph."""

import json

import pytest
from langgraph_sdk import get_sync_client

from support.dev_server import running_server

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("server")]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A running server."""
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def threads(url):
    """The ids of a damaged, a paused and a healthy thread."""
    said = {"broken": ["wire", "never mind"], "paused": ["wire"], "ok": ["hi"]}
    made = {}
    with get_sync_client(url=url) as client:
        for name, texts in said.items():
            made[name] = client.threads.create()["thread_id"]
            for text in texts:
                message = {"messages": [{"role": "user", "content": text}]}
                client.runs.wait(made[name], "bare", input=message, raise_error=False)
    return made


def ids_in(out):
    """The threads of a plain table."""
    return {line.split("\t")[0] for line in out.splitlines()[1:]}


def test_a_server_is_scanned_repaired_and_undone(cli, url, threads):
    """The commands that a file takes, with the URL of a server and no --graph."""
    code, out, err = cli("scan", url)
    assert (code, ids_in(out)) == (1, {threads["broken"], threads["paused"]})
    assert "waits for a human: wire 3?" in out
    assert "next for paused: answer it" in err
    assert "next for damaged: " in err
    code, out, _ = cli("show", url, threads["broken"])
    assert (code, "sent to bob" in out, "inserted" in out) == (1, True, True)
    code, out, _ = cli("show", url, threads["paused"])
    assert (code, "wire 3?" in out) == (0, True)
    before = [json.loads(cli("show", url, each, "--json")[1]) for each in threads.values()]
    how = ("repair", url, "--all", "--min-age", 0)
    code, out, err = cli(*how)
    assert (code, "nothing was written" in err) == (1, True)
    code, out, _ = cli(*how, "--apply", "--yes", "--json")
    assert (code, cli("undo", url, "--all")[0]) == (0, 2)
    last = {line["thread_id"]: line["outcome"] for line in map(json.loads, out.splitlines())}
    assert last == {threads["broken"]: "repaired", threads["paused"]: "paused"}
    assert cli("scan", url)[0] == 0
    assert cli("undo", url, threads["broken"])[0] == 0
    after = [json.loads(cli("show", url, each, "--json")[1]) for each in threads.values()]
    assert [each["status"] for each in after] == ["damaged", "paused", "healthy"]
    assert [each["messages"] for each in after] == [each["messages"] for each in before]


def test_threads_of_a_server_are_selected_as_others(cli, url, threads):
    """By id, by pattern and by age; a page can be written; a wrong id writes nothing."""
    code, out, _ = cli("scan", url, threads["paused"], "--since", "1h")
    assert (code, ids_in(out)) == (0, {threads["paused"]})
    code, out, _ = cli("scan", url, "--thread", f"{threads['broken'][:12]}*", "--since", "1h")
    assert (code, ids_in(out)) == (1, {threads["broken"]})
    assert cli("scan", url, "--since", "0min")[:2] == (2, "")
    nobody = "00000000-0000-0000-0000-000000000000"
    code, out, err = cli("repair", url, threads["broken"], nobody, "--force", "--apply", "--yes")
    assert (code, out, f"There is no thread '{nobody}'" in err) == (2, "", True)


def test_a_graph_is_not_used_with_a_server(cli, url, graph_file):
    """The server has the graph: naming one is an error, before anything is read."""
    code, out, err = cli("repair", url, "--all", "--graph", graph_file)
    assert (code, out) == (2, "")
    assert "--graph is not used with a LangGraph Server" in err
