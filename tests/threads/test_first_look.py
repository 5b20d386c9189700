"""The first look of a scan: no message is validated, and the reports are those of a whole look."""

import random
from contextlib import closing
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

from langgraph_patch import open_database, scan_threads
from langgraph_patch._langgraph import unvalidated
from langgraph_patch.threads import repair_thread, scan
from langgraph_patch.threads.read import Selection
from langgraph_patch.threads.stores import quick_saver
from langgraph_patch.threads.undo import find_repairs
from support.databases import open_saver, sqlite_saver
from support.stored_threads import stored, thread
from support.strategies import anything, fewer, histories

SERIALIZER = JsonPlusSerializer()


def put(saver, messages):
    """Store a history as it is; False if the serializer cannot."""
    version = {"messages": "1"}
    saved = {**empty_checkpoint(), "channel_versions": version}
    saved["channel_values"] = {"messages": messages}
    try:
        saver.put(thread(checkpoint_ns=""), saved, {"source": "input", "step": 1}, version)
    except Exception:  # noqa: BLE001 - what cannot be stored cannot be there
        return False
    return True


def both(saver, monkeypatch):
    """The reports with and without the first look, as they are printed, but for their ages."""
    looked = [{**report.to_dict(), "age": 0} for report in scan_threads(saver)]
    monkeypatch.setattr(scan, "quick_saver", lambda _: None)
    whole = [{**report.to_dict(), "age": 0} for report in scan_threads(saver)]
    monkeypatch.undo()
    return looked, whole


# --- the same reports -----------------------------------------------------------------------------


@fewer(2)
@given(histories() | anything())
def test_the_same_reports_of_any_history(history):
    """Valid, damaged, or with other things in it."""
    with closing(sqlite_saver().conn) as conn, pytest.MonkeyPatch.context() as monkeypatch:
        saver = type(sqlite_saver())(conn)
        if put(saver, history):
            looked, whole = both(saver, monkeypatch)
            assert looked == whole


WRONG = (
    None,
    7,
    True,
    "",
    "x",
    b"\xff",
    [],
    {},
    [None],
    [{}],
    {"a": 1},
    ["x"],
    [{"type": "tool_use"}],
)
"""What no message has in one of its fields, or not in each."""

MORE = {
    "content_blocks": [{"type": "tool_call", "id": "c9", "name": "t", "args": {}}],
    "tool_call_chunks": [{"name": "t", "args": "{", "id": "c9", "index": 0}],
    "odd": 1,
}
"""What some versions store beside the fields, or what no version stores."""


def as_stored(message, fields):
    """An object that is stored as a message of that class with these fields, whatever they are."""
    kind = type(message)
    made = type(kind.__name__, (), {"__module__": kind.__module__, "model_dump": lambda _: fields})
    return made()


def spoiled(history, seed):
    """A history in which stored fields are missing, added or of another type."""
    pick = random.Random(seed)  # noqa: S311 - no secret
    stored_ones = []
    for message in history:
        fields = message.model_dump(warnings=False) if isinstance(message, BaseMessage) else None
        if fields is None or pick.random() < 0.5:
            stored_ones.append(message)
            continue
        name = pick.choice(sorted(fields))
        calls = fields.get("tool_calls")
        call = calls[0] if isinstance(calls, list) and calls and isinstance(calls[0], dict) else {}
        change = pick.randrange(5)
        if change == 0:
            del fields[name]
        elif change == 1:
            fields[name] = pick.choice(WRONG)
        elif change == 2:
            extra = pick.choice(sorted(MORE))
            fields[extra] = MORE[extra]
        elif change == 3 and call:
            call[pick.choice([*sorted(call, key=str), "more"])] = pick.choice(WRONG)
        elif calls:
            raw = {"id": "c9", "type": "function", "function": {"name": "t", "arguments": "{}"}}
            fields |= {"tool_calls": [], "additional_kwargs": {"tool_calls": [raw]}}
        stored_ones.append(as_stored(message, fields))
    return stored_ones


@given(histories(), st.integers(0, 10**6))
def test_the_same_reports_of_fields_that_no_message_has(history, seed):
    """As an editor or another version of LangChain may have stored them."""
    with closing(sqlite_saver().conn) as conn, pytest.MonkeyPatch.context() as monkeypatch:
        saver = type(sqlite_saver())(conn)
        if put(saver, spoiled(history, seed)):
            looked, whole = both(saver, monkeypatch)
            assert looked == whole


CALL = {"name": "t", "args": {}, "id": "c1"}
HISTORY = [AIMessage("", tool_calls=[CALL]), ToolMessage("done", tool_call_id="c1", name="t")]


@pytest.mark.parametrize(
    ("at", "change", "status"),
    [
        (2, {"additional_kwargs": None}, "healthy"),
        (2, {"type": None}, "healthy"),
        (3, {"content_blocks": MORE["content_blocks"]}, "damaged"),
        (3, {"tool_calls": None}, "healthy"),
        (3, {"odd": 1}, "healthy"),
        (3, {5: 1}, "unreadable"),
        (3, {"cls": 1, "id": []}, "unreadable"),
    ],
)
def test_fields_from_which_langchain_makes_others(at, change, status, saver, monkeypatch):
    """One that is missing (None) gets its default, and blocks become calls."""
    history = [HumanMessage("go"), *HISTORY, AIMessage("bye")]
    fields = history[at].model_dump() | change
    missing = {name for name, value in change.items() if value is None}
    history[at] = as_stored(history[at], {k: v for k, v in fields.items() if k not in missing})
    assert put(saver, history)
    looked, whole = both(saver, monkeypatch)
    assert looked == whole
    assert [report["status"] for report in looked] == [status]


def test_a_placeholder_for_which_a_search_may_find_something(saver, monkeypatch):
    """Such a thread is not healthy at the first look."""
    stored("abandoned", saver=saver)
    assert repair_thread(saver, thread(), min_age=0, recover=False).outcome == "repaired"
    looked, whole = both(saver, monkeypatch)
    assert looked == whole
    assert [report["status"] for report in looked] == ["damaged"]


def test_the_same_reports_of_all_kinds_of_threads(saver, monkeypatch):
    """Healthy, abandoned, paused, failed; by hand, of an agent, with subgraphs, in channels."""
    number = count()
    for way in ("healthy", "paused", "abandoned", "failed", "killed"):
        for kind in ("agent", "hand_built", "delta", "stateful_child"):
            stored(way, kind, saver, thread_id=f"t{next(number)}")
    stored("abandoned", saver=saver, thread_id="repaired")
    assert repair_thread(saver, thread("repaired"), min_age=0).outcome == "repaired"
    looked, whole = both(saver, monkeypatch)
    assert looked == whole
    assert {report["status"] for report in looked} == {"healthy", "paused", "damaged"}


# --- what it saves, and where it cannot ----------------------------------------------------------


@pytest.fixture
def built(monkeypatch):
    """The messages that LangChain builds, and so validates."""
    made, build = [], BaseMessage.__init__

    def noting(self, *args, **fields):
        made.append(type(self).__name__)
        build(self, *args, **fields)

    monkeypatch.setattr(BaseMessage, "__init__", noting)
    return made


def test_no_message_of_a_healthy_thread_is_validated(path, saver, built):
    """Of a damaged one each is, once."""
    stored("healthy", saver=saver)
    built.clear()
    with open_database(path) as opened:
        assert [report.status for report in scan_threads(opened)] == ["healthy"]
    assert built == []
    stored("abandoned", saver=saver, thread_id="2")
    built.clear()
    assert [report.status for report in scan_threads(saver)] == ["healthy", "damaged"]
    assert built


def test_an_undo_reads_no_message(saver, built):
    """It looks for the mark of a repair."""
    stored("abandoned", saver=saver)
    repair_thread(saver, thread(), min_age=0)
    built.clear()
    [(_, plan)] = find_repairs(saver, Selection())
    assert (plan.outcome, built) == ("planned", [])


class Reversed:
    """A cipher for those who look away."""

    def encrypt(self, plaintext):
        """The bytes backwards."""
        return "reversed", plaintext[::-1]

    def decrypt(self, _, ciphertext):
        """The bytes forwards."""
        return ciphertext[::-1]


@pytest.mark.parametrize("detail", ["_MODEL", "serializer", "own hook", "hook"])
def test_without_the_private_detail_all_is_validated(detail, saver, monkeypatch):
    """And with a serializer of the application, such as one that decrypts."""
    stored("healthy", saver=saver)
    if detail == "_MODEL":
        monkeypatch.setattr(unvalidated, "_MODEL", None)
    elif detail == "serializer":
        saver.serde = EncryptedSerializer(Reversed())
    elif detail == "own hook":
        saver.serde = JsonPlusSerializer(__unpack_ext_hook__=lambda *_: HumanMessage("hidden"))
    else:
        monkeypatch.delattr(saver.serde, "_unpack_ext_hook")
    assert quick_saver(saver) is None


class Caching(SqliteSaver):
    """A subclass that keeps what it has read, and closes its connection with itself."""

    def __init__(self, conn):
        super().__init__(conn)
        self.kept = {}

    def get_tuple(self, config):
        """What was read before, if it was."""
        name = str(config)
        if name not in self.kept:
            self.kept[name] = super().get_tuple(config)
        return self.kept[name]

    def __copy__(self):
        raise NotImplementedError


def test_other_checkpointers_have_no_first_look():
    """Nobody knows whether they may be copied, and what they do with what they read."""
    assert quick_saver(InMemorySaver()) is None
    saver = sqlite_saver(kind=Caching)
    stored("healthy", saver=saver)
    assert [report.status for report in scan_threads(saver)] == ["healthy"]
    [first, *_] = saver.get_tuple(thread(checkpoint_ns="")).checkpoint["channel_values"]["messages"]
    assert first.model_copy() == first


def test_the_checkpointer_itself_is_left_alone(path, saver):
    """It still validates, and so does its serializer."""
    stored("healthy", saver=saver)
    before = saver.serde
    assert [report.status for report in scan_threads(saver)] == ["healthy"]
    assert saver.serde is before
    [first, *_] = saver.get_tuple(thread()).checkpoint["channel_values"]["messages"]
    assert first.model_copy() == first
    with open_saver(path) as other:
        assert other.get_tuple(thread()) == saver.get_tuple(thread())


def test_a_broken_row_has_the_same_reason(path, saver, monkeypatch):
    """A value that cannot be loaded, or the classes of which are not trusted."""
    stored("healthy", saver=saver)
    with saver.cursor() as cursor:
        cursor.execute("UPDATE checkpoints SET checkpoint = x'c1c1'")
    looked, whole = both(saver, monkeypatch)
    assert looked == whole
    assert looked[0]["status"] == "unreadable"


def test_what_is_stored_without_validation_is_what_was_stored():
    """Field by field, for messages of each class."""
    call = {"name": "t", "args": {"a": 1}, "id": "c1", "type": "tool_call"}
    messages = [HumanMessage("hi", id="h"), AIMessage("", tool_calls=[call], id="a")]
    saver = sqlite_saver()
    quick = unvalidated.without_validation(saver)
    found = quick.serde.loads_typed(SERIALIZER.dumps_typed(messages))
    assert [each.__dict__ for each in found] == [each.__dict__ for each in messages]
    assert not any(hasattr(each, "__pydantic_fields_set__") for each in found)
