"""A private detail of LangGraph that is missing or has changed: what is said, and what goes on."""

import ast
import importlib
import logging
import tomllib
from collections.abc import Mapping
from functools import cache

import pytest
from langgraph.graph import StateGraph
from langgraph.prebuilt import ToolNode

import langgraph_patch
import tomorrow
from kit import Agent, loop
from langgraph_patch import GraphError, with_patching
from langgraph_patch._langgraph import details, run
from langgraph_patch.testing import StrictModel, calls
from support.paths import ROOT

TABLE = details.table()["details"]
PACKAGE = ROOT / "langgraph_patch"
MAIL = calls(("mail", {"to": "bob"}))
QUICK = ("__pregel_scratchpad", "branch:to:")


@pytest.fixture(autouse=True)
def nothing_is_told_yet(monkeypatch):
    """As in a process that has just begun."""
    monkeypatch.setattr(details, "TOLD", {})
    monkeypatch.setattr(run, "_UNSEEN", {"details"})


def pytest_generate_tests(metafunc):
    """Rename two of the details; all of them with `--long`."""
    if "renamed" in metafunc.fixturenames:
        is_long = metafunc.config.getoption("--long")
        metafunc.parametrize("renamed", tomorrow.names() if is_long else QUICK)


@cache
def usual(*scenes):
    """What the scenes are with LangGraph as it is."""
    return tomorrow.played("", scenes)


def test_a_langgraph_of_tomorrow(renamed, pytestconfig):
    """A scene is right, ends in an error that names LangGraph, or is poorer behind a WARNING."""
    scenes = () if pytestconfig.getoption("--long") else ("START", "once")
    played = tomorrow.played(renamed, scenes)
    found = tomorrow.judged(played, usual(*scenes))
    assert "wrong" not in found.values(), found
    assert renamed not in QUICK or played["told"] or found["START"] == "error"


def names_in(path):
    """What a module reads of objects, and what of a builder; its texts; the names that it makes."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    attributes = [n for n in nodes if isinstance(n, ast.Attribute)]
    of_builder = {n.attr for n in attributes if ast.unparse(n.value).endswith("builder")}
    texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    own = {n.name for n in nodes if isinstance(n, ast.FunctionDef)}
    own |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    own |= {n.attr for n in attributes if isinstance(n.ctx, ast.Store)}
    return {n.attr for n in attributes} | texts, of_builder, texts, own


def test_each_detail_is_in_the_table():
    """No other module reads one, and `_langgraph` reads none that the table does not have."""
    found = {path: names_in(path) for path in PACKAGE.rglob("*.py")}
    rows = {f"{owner}.{name}" for owner in TABLE for name in TABLE[owner]}
    names = {row.partition(".")[2] for row in rows}
    own = set().union(*(each for *_, each in found.values()))
    public = {"add_node", "add_edge", "add_conditional_edges", "compile", "langgraph_patch"}
    for path, (read, of_builder, texts, _) in found.items():
        if path.parent.name == "_langgraph":
            assert of_builder <= names | public, path
            assert {n for n in texts if n.startswith("__pregel_") and n[9:]} <= names, path
            dotted = {n for n in texts if n.partition(".")[0] in TABLE and n.count(".") == 1}
            assert {n for n in dotted if n.partition(".")[2]} <= rows, path
        else:
            assert of_builder <= public, path
            assert read & {n for n in names - own if "_" in n} == set(), path


def test_the_known_versions_are_those_of_the_project():
    """The oldest that can be installed, and the one with which the tests run."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pins = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    oldest, newest = (pin for pin in pins if pin.startswith(("langgraph>", "langgraph=")))
    known = f"LangGraph {oldest[11:].split(',')[0]} to {newest[11:]}"
    assert details.table()["known"] == known


class Odd:
    """A scratchpad whose details have changed."""

    resume = None
    interrupt_counter = property(lambda _: 1 / 0)


def test_what_is_missing_is_told_once(caplog):
    """Missing, None, of another type, or a property that raises: each with what is lost."""
    for _ in range(2):
        assert details.read(Odd(), "scratchpad.resume", list, default=["?"]) == ["?"]
        assert details.read({}, "config.__pregel_send") is None
        assert details.read({"__pregel_call": 1}, "config.__pregel_call", Mapping) is None
        assert details.read(Odd(), "scratchpad.call_counter") is None
        assert details.read(Odd(), "scratchpad.interrupt_counter") is None
        assert details.read(None, "loop.nodes") is None
    told = [record.getMessage() for record in caplog.records]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 4
    assert all(text.startswith(f"LangGraph {details.__version__} does not have") for text in told)
    assert "'config.__pregel_send' as langgraph-patch knows it from LangGraph 1." in told[1]
    assert ": clients see the whole history where it is repaired (stream_mode=" in told[1]


def test_a_healthy_langgraph(caplog):
    """Nothing is missing, of what a graph is asked for, a run reads, and names in its code."""
    agent = Agent("recorded", MAIL, once=["mail"])
    agent.say("mail bob")
    assert (agent.results, details.unknown_names(), caplog.records) == (
        {"c1": "sent to bob"},
        [],
        [],
    )


@pytest.mark.parametrize("value", [None, [], 1, property(lambda _: 1 / 0), ...])
def test_what_a_graph_needs_to_be_patched(value, monkeypatch):
    """An error before anything runs: also for two at once, and whatever the version is called."""
    monkeypatch.setattr(details, "__version__", "no version")
    builder = loop(StrictModel(), [])
    if isinstance(value, property):
        builder.__class__ = type("Odd", (StateGraph,), {"schemas": value})
    elif value is ...:
        del builder.schemas, builder.edges
    else:
        builder.schemas = value
    with pytest.raises(GraphError, match=r"^LangGraph no version .*'StateGraph\.schemas'"):
        with_patching(builder)


def test_a_method_with_one_argument_more(monkeypatch):
    """A `ToolNode` is patched without `once`, and an error says why not with it."""

    def run_one(self, call, kind, runtime, more):
        """Takes one argument more."""

    monkeypatch.setattr(ToolNode, "_run_one", run_one)
    graph = loop(StrictModel(), Agent("hand_built").desk.tools())
    with_patching(graph)
    with pytest.raises(GraphError, match=r"'once\._run_one'"):
        with_patching(graph, once=["mail"])


def test_names_that_langgraph_has_no_more(monkeypatch, caplog):
    """Nothing is recorded call by call if a call with a state may have another form."""
    monkeypatch.setattr(details, "unknown_names", lambda: ["ToolNode.tool_call_with_context"])
    monkeypatch.setattr("langgraph_patch._langgraph.graphs.unknown_names", details.unknown_names)
    agent = Agent("recorded", MAIL)
    agent.say("mail bob")
    assert agent.results == {"c1": "sent to bob"}
    assert "seems not to have the private detail" in caplog.text


@pytest.mark.parametrize("error", [AttributeError("x"), ImportError("x", name="langgraph.types")])
def test_why_a_name_cannot_be_imported(error, monkeypatch):
    """The package itself can be. What an extra lacks is told as it is."""
    found = {"graph.with_patching": error, "threads": ModuleNotFoundError("y", name="rich")}

    def imported(name):
        if name.endswith("details"):
            return details
        raise found[name.removeprefix("langgraph_patch.")]

    monkeypatch.setattr(importlib, "import_module", imported)
    with pytest.raises(ImportError, match=r"with_patching cannot be used with LangGraph .*: x\."):
        langgraph_patch.__getattr__("with_patching")
    with pytest.raises(ModuleNotFoundError, match=r"^y$"):
        langgraph_patch.__getattr__("scan_threads")


def test_two_details_of_a_run_at_once(monkeypatch, caplog):
    """The state cannot be read: each model reads a repaired history, and each loss is told."""
    made = run.Run.__init__

    def without(self, config):
        own = config.get("configurable", {}).items()
        left = {k: v for k, v in own if k not in ("__pregel_call", "__pregel_read")}
        made(self, {**config, "configurable": left})
        self.config = config

    monkeypatch.setattr(run.Run, "__init__", without)
    agent = Agent("hand_built", calls(("wire", {"amount": 5})))
    agent.say("pay")
    agent.say("never mind")
    assert [*agent.read] == ["c1"]
    assert {"__pregel_call" in text for text in caplog.messages} == {True, False}
