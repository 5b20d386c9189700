"""A scan and a repair say the same of every kind of thread, line by line."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from langgraph_patch.cli.main import main
from langgraph_patch.threads import scan_threads
from support.databases import open_saver
from support.stored_threads import stored, thread
from support.thread_laws import ODD_CALLS, check_same_judgement, with_odd_call

KINDS = ("agent", "hand_built", "delta", "stateful_child")
HAPPENED = ("healthy", "paused", "abandoned", "failed", "failed_and_on", "limited", "killed", "new")


@dataclass
class Note:
    """A class of an application, in a state."""

    text: str


@pytest.mark.needs("delta", langgraph="1.2.20")
def test_a_database_with_every_kind_of_thread(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """In both commands; and the commands that they print next."""
    path = str(tmp_path / "threads.sqlite")
    with open_saver(path) as saver:
        for kind in KINDS:
            for way in HAPPENED:
                stored(way, kind, saver, f"{kind} {way}")
        for shape in ODD_CALLS:
            with_odd_call(shape, saver, shape)
        stored("abandoned", "agent", saver, "odd class")
        saved = saver.get_tuple(thread("odd class"))
        assert saved is not None
        values = {**saved.checkpoint["channel_values"], "note": Note("x")}
        versions = {**saved.checkpoint["channel_versions"], "note": "1"}
        changed = {**saved.checkpoint, "channel_values": values, "channel_versions": versions}
        saver.put(saved.config, changed, {}, {})  # type: ignore[typeddict-item]
        outcomes = Counter(check_same_judgement(saver, each) for each in scan_threads(saver))
    assert outcomes.keys() >= {"healthy", "paused", "planned"}

    def lines(*command: str) -> list[dict[str, str]]:
        main([*command, "--json"])
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [each for each in found if "thread_id" in each]

    scanned = lines("scan", path)
    planned = lines("repair", path, "--all", "--min-age", "0")
    same = {"planned": "damaged", "paused": "paused", "refused": "damaged"}
    assert [(each["thread_id"], each["namespace"], same[each["outcome"]]) for each in planned] == [
        (each["thread_id"], each["namespace"], each["status"]) for each in scanned
    ]
    refused = [each["reason"] for each in planned if each["outcome"] == "refused"]
    assert [each for each in refused if "Note" in each]
    reasons = " ".join(each["reason"] or "" for each in scanned)
    assert all(reason in reasons for reason in refused)
    [first, *_] = [each["thread_id"] for each in scanned if "breakpoint" in str(each["reason"])]
    ended = lines("repair", path, first, "--on-pause=abandon", "--min-age", "0")
    assert {each["outcome"] for each in ended} == {"planned"}
