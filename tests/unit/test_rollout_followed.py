"""A rollout that `bedplate rollout` watches: who watches ends it by a signal, and by nothing else."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.act import playbook
from bedplate.act.playbook import run_rollout
from bedplate.decide.fold import World
from bedplate.ledger import projection
from bedplate.ledger.store import Ledger
from bedplate.model.event import Event
from bedplate.model.faults import Busy
from bedplate.sources.site import Site, open_site
from unit.site_sample import write_site

# In the place of ansible-playbook: a rollout of two seconds.
PLAYBOOK = """\
#!{python}
import os, sys, time
from pathlib import Path
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
with Ledger.open("{ledger}") as ledger:
    body = {{"environment": "A", "token": os.environ["BEDPLATE_TOKEN"]}}
    ledger.append(Draft("rollout.started", ("rollout:1",), body))
    time.sleep(2)
    ledger.append(Draft("rollout.ended", ("rollout:1",), {{}}))
Path("{finished}").touch()
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    found = open_site(write_site(tmp_path / "site"))
    Ledger.open(found.ledger_url).close()
    program = tmp_path / "ansible-playbook"
    text = PLAYBOOK.format(python=sys.executable, ledger=found.ledger_url, finished=tmp_path / "finished")
    program.write_text(text)
    program.chmod(0o755)
    monkeypatch.setattr(playbook, "ansible_playbook", lambda: str(program))
    monkeypatch.setattr(playbook, "POLL_S", 0.05)
    return found


def test_a_pipe_without_a_reader_leaves_no_node_in_the_middle(site: Site, tmp_path: Path) -> None:
    """`bedplate rollout B --yes | head -3`, or a `tee` whose disk is full."""
    shown: list[int] = []

    def follow(world: World, number: int) -> None:
        shown.append(number)
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_rollout(site, "rollout", {"target": "A"}, None, follow)
    assert (tmp_path / "finished").exists(), "the playbook was ended in the middle"
    assert shown == [1]


def test_a_ledger_that_cannot_be_read_for_a_moment_ends_no_rollout(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = Ledger.events, list[int]()

    def events(self: Ledger, *, after: int = 0) -> Iterator[Event]:
        asked.append(1)
        if len(asked) % 2:
            raise Busy("another process holds it")
        return real(self, after=after)

    monkeypatch.setattr(projection, "world", lambda _: World({}, {}, {}, 0))
    monkeypatch.setattr(Ledger, "events", events)
    try:
        outcome = run_rollout(site, "rollout", {"target": "A"}, None, lambda *_: None)
    except Busy:
        pass  # at the last look
    else:
        assert outcome.record.outcome == "ended"
    assert (tmp_path / "finished").exists()


def test_an_interrupt_ends_the_playbook(site: Site, tmp_path: Path) -> None:
    def follow(world: World, number: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_rollout(site, "rollout", {"target": "A"}, None, follow)
    assert not (tmp_path / "finished").exists()
