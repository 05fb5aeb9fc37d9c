"""The source of a swarm: a program on the controller that may die, and whose pipes nobody may trip over."""

import sys
import time
from pathlib import Path

import pytest

from bedplate.act.distribution import local, nodeprogram
from bedplate.act.distribution.engines import torrent
from bedplate.act.distribution.visit import Orders

SPEC = {"do": "seed"}
# Notes each start; the first time it dies in the middle of what it is told, later it does what the real one does.
PROGRAM = """
import json, os, sys
line = sys.stdin.buffer.readline()  # how long the program is
first = not os.path.exists(sys.argv[1])
open(sys.argv[1], "a").write("start\\n")
print(json.dumps({"have": 7}), flush=True)
if first or "always" in sys.argv:
    os._exit(3)
for line in sys.stdin.buffer:
    try:
        order = json.loads(line[line.index(b"{"):])
    except ValueError:
        continue
    open(sys.argv[1], "a").write(json.dumps(order) + "\\n")
    if order.get("end"):
        print(json.dumps({"have": 5}), flush=True)
        break
"""


class Swarm:
    def __init__(self) -> None:
        self.sources: list[Orders] = []

    def fed_by(self, source: Orders) -> None:
        self.sources.append(source)
        source.tell({"peers": [["10.0.0.1", len(self.sources)]]})


def program(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(nodeprogram, "argv", lambda _: [sys.executable, "-c", PROGRAM, *words])


def wait_for(path: Path, text: str) -> None:
    deadline = time.monotonic() + 30
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < deadline, path.read_text() if path.exists() else "nothing was started"
        time.sleep(0.02)


def test_a_program_that_ends_before_it_has_read_all_costs_nobody_a_broken_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodeprogram, "argv", lambda _: ["sh", "-c", "exit 3"])
    one = local.Local(tmp_path, SPEC)
    for _ in range(2000):
        one.orders.tell({"peers": [["10.0.0.1", 6881]]})
    one.close()
    assert local.asked(tmp_path, SPEC, timeout_s=10) == {}


def test_a_source_that_dies_is_started_again_and_told_who_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, swarm = tmp_path / "notes", Swarm()
    program(monkeypatch, str(notes))
    source = torrent._Source(tmp_path, SPEC, swarm)  # type: ignore[arg-type]
    wait_for(notes, '{"peers": [["10.0.0.1", 2]]}')
    source.close()
    assert notes.read_text().splitlines() == [
        "start", "start", '{"do": "seed"}', '{"peers": [["10.0.0.1", 2]]}', '{"end": true}',
    ]  # fmt: skip
    assert source.sent == 7 + 5, "what both gave away"


def test_a_source_that_dies_again_and_again_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes, swarm = tmp_path / "notes", Swarm()
    program(monkeypatch, str(notes), "always")
    source = torrent._Source(tmp_path, SPEC, swarm)  # type: ignore[arg-type]
    wait_for(notes, "start\n" * (1 + torrent.RESTARTS))
    time.sleep(0.5)
    source.close()
    assert notes.read_text() == "start\n" * (1 + torrent.RESTARTS)
    assert source.sent == 7 * (1 + torrent.RESTARTS)
