"""A misspelt word is refused with what was asked and what there is; never answered by emptiness."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bedplate.cli.main import bedplate
from bedplate.ledger import story
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput
from bedplate.sources import checkout
from bedplate.sources.site import open_site
from unit.simulation import lock_site
from unit.site_sample import write_site


@pytest.fixture
def site(tmp_path: Path) -> Path:
    root = write_site(tmp_path / "site")
    lock = lock_site(open_site(root), "A")
    with Ledger.open(open_site(root).ledger_url) as book:
        book.append(
            Draft("node.verified", ("node:n1",), {"verdict": "PASS"}, lock.identity),
            Draft("node.collected", ("node:old7",), {}),
            Draft("moon.landed", ("moon:1",), {}),
        )
    return root


def ask(site: Path, *words: str) -> Result:
    return CliRunner().invoke(bedplate, ["--site", str(site), *words], standalone_mode=False, catch_exceptions=False)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["ledger", "log", "--kind", "node.faild"],
            r"--kind node.faild: no event is of such a kind \(nearest: node.fa",
        ),
        (["ledger", "log", "--kind", "rolout"], r"--kind rolout: .*nearest: rollout, .*all below one word: archive, b"),
        (
            ["ledger", "log", "--nodes", "n99"],
            r"--nodes n99: the fleet has no n99, and no event names it \(the fleet has: ctl,n\[1-8\]",
        ),
        (["ledger", "log", "--nodes", "n[1,98-99]"], r"the fleet has no n\[98-99\]"),
        (
            ["render", "A", "--nodes", "ctl"],
            r"--nodes ctl: environment A is for the kinds gpu, and ctl is of controller \(it is for: n\[1-8\]\)",
        ),
        (["render", "A", "--nodes", "n1,ctl"], "and ctl is of controller"),
        (["status", "--nodes", "n11"], r"--nodes n11: .*fleet.yml has no n11 \(nearest: n1; it has: ctl,n\[1-8\]\)"),
        (["ledger", "explain", "n99"], r"n99: the fleet has no such node, .*the fleet has: ctl,n\[1-8\]"),
        (["ledger", "explain", "n11"], "the fleet has no such node, .*nearest: n1; "),
        (["ledger", "explain", "n2"], "n2: the fleet has it, .*nothing was done with it yet"),
        (["ledger", "explain", "n[1-2]"], r"NODE n\[1-2\]: explain takes one node"),
        (["ledger", "explain", "n1,n2"], "explain takes one node"),
    ],
)
def test_a_misspelt_word_is_refused_with_what_there_is(site: Path, words: list[str], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        ask(site, *words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--kind", "node.failed"], "no event of --kind node.failed\n"),
        (["--nodes", "n2", "--kind", "node"], "no event of --nodes n2 --kind node\n"),
    ],
)
def test_what_is_known_and_has_no_event_is_no_fault(site: Path, words: list[str], says: str) -> None:
    found = ask(site, "ledger", "log", *words)
    assert (found.stdout, found.stderr, found.return_value) == ("", says, 0)


@pytest.mark.parametrize("words", [["--kind", "moon"], ["--nodes", "old7"], ["--kind", "node", "--nodes", "old7"]])
def test_what_the_ledger_alone_knows_is_found(site: Path, words: list[str]) -> None:
    found = ask(site, "ledger", "log", *words)
    assert len(found.stdout.splitlines()) == 1
    assert not found.stderr


def test_every_kind_that_is_written_is_known() -> None:
    families = "|".join({kind.partition(".")[0] for kind in story.KINDS})
    literal = re.compile(rf'"((?:{families})\.[a-z]+)"')
    files = [*(checkout.root() / "tools/bedplate").rglob("*.py"), *(checkout.root() / "playbooks").rglob("*.py")]
    written = {word for path in files for word in literal.findall(path.read_text())}
    names_of_files = {
        "archive.yml", "image.yml", "image.sqsh", "ledger.yml", "ledger.jsonl", "rollout.lock", "node.answers",
        "rollback.yml", "rollout.yml",
    }  # fmt: skip
    assert written - names_of_files <= story.KINDS
    assert {"node.failed", "rollback.rehearsed", "netboot.armed"} <= written
