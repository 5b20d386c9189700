"""The first look of a scan: no message is validated, and the reports are those of a whole look."""

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_patch import open_database, scan_threads
from langgraph_patch._langgraph import unvalidated
from langgraph_patch.threads import repair_thread, scan
from langgraph_patch.threads.stores import quick_saver
from support.stored_threads import stored, thread


class Reversed:
    """A cipher for those who look away."""

    def encrypt(self, plaintext):
        """The bytes backwards."""
        return "reversed", plaintext[::-1]

    def decrypt(self, _, ciphertext):
        """The bytes forwards."""
        return ciphertext[::-1]


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


@pytest.mark.parametrize(
    "detail", ["_MODEL", "serializer", "its subclass", "a saver of ones own", "own hook", "hook"]
)
def test_without_the_private_detail_all_is_validated(detail, saver, monkeypatch):
    """And with a serializer of the application, such as one that decrypts."""
    stored("healthy", saver=saver)
    if detail == "_MODEL":
        monkeypatch.setattr(unvalidated, "_MODEL", None)
    elif detail == "serializer":
        saver.serde = EncryptedSerializer(Reversed())
    elif detail == "its subclass":
        saver.serde = type("Own", (JsonPlusSerializer,), {})()
    elif detail == "a saver of ones own":
        saver = type("Own", (type(saver),), {})(saver.conn)
    elif detail == "own hook":
        saver.serde = JsonPlusSerializer(__unpack_ext_hook__=lambda *_: HumanMessage("hidden"))
    else:
        monkeypatch.delattr(saver.serde, "_unpack_ext_hook")
    assert quick_saver(saver) is None
