"""A misspelt word is refused with what was asked and what there is; never answered by emptiness."""

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bedplate.cli import uvprogram
from bedplate.cli.main import bedplate, main
from bedplate.ledger import story
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput, Refused
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
        (["rolout"], "No such command 'rolout'. Did you mean 'rollout'"),
        (["ledger", "lgo"], "No such command 'lgo'. Did you mean 'log'?"),
        (
            ["rollout", "--target", "B"],
            "No such option '--target': the environment is an argument: bedplate rollout ENV",
        ),
        (["plan", "--env", "B"], "No such option '--env': the environment is an argument: bedplate plan ENV"),
        (["rollback", "--target", "B"], "the environment is an argument: bedplate rollback ENV"),
        (["status", "--nods", "n1"], "No such option '--nods'. Did you mean '--nodes'?"),
        (["lab", "shell", "n1", "ls", "-l"], "a command for the host stands behind --: bedplate lab shell n1 -- ls -l"),
    ],
)
def test_a_word_that_a_command_does_not_take_is_answered_with_what_to_write(
    site: Path, words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bedplate", "--site", str(site), *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("word", ["yesterday", "2h ago", "2026-13-01"])
def test_a_time_says_which_forms_it_may_have(site: Path, word: str) -> None:
    with pytest.raises(BadInput, match=rf"TIME {word}: no time \(write: 2026-11-02, .* 30s, 45m, 2h, 3d, 1w\)"):
        ask(site, "ledger", "at", word)


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


@pytest.mark.parametrize("command", ["drift", "collect"])
def test_nodes_of_a_site_without_host_keys_are_not_asked_one_by_one(site: Path, command: str) -> None:
    with pytest.raises(BadInput, match=r"known_hosts: missing: .*ssh.known_hosts, .*fleet.yml:4.*ssh-keyscan"):
        ask(site, command, "n1")
    with Ledger.read(open_site(site).ledger_url) as book:
        assert not list(book.events(kinds=["node.uncollected"]))


def stand_in(place: Path, code: int) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/bin/sh\nexit {code}\n")
    place.chmod(0o755)


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No uv anywhere; tmp_path/kept is where tools/setup keeps its own."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(uvprogram, "SHARED", tmp_path / "kept")
    return tmp_path


def test_a_machine_without_uv_is_told_what_to_run(nowhere: Path, site: Path) -> None:
    said = rf"no uv that works: looked on PATH and in {nowhere}/kept, {nowhere}/cache/bedplate \(run: tools/setup"
    with pytest.raises(Refused, match=said):
        ask(site, "image", "add-package", "einops")


@pytest.mark.parametrize("place", ["kept/uv-0.13.9/bin/uv", "cache/bedplate/uv-0.13.9/bin/uv"])
def test_the_uv_that_setup_keeps_is_found_behind_a_shim_that_does_not_answer(nowhere: Path, place: str) -> None:
    stand_in(nowhere / "bin/uv", 127)
    stand_in(nowhere / place, 0)
    uvprogram.put_on_path()
    assert shutil.which("uv") == str(nowhere / place)


def test_a_uv_on_path_stays_the_one(nowhere: Path) -> None:
    stand_in(nowhere / "bin/uv", 0)
    stand_in(nowhere / "kept/uv-0.13.9/bin/uv", 0)
    uvprogram.put_on_path()
    assert shutil.which("uv") == str(nowhere / "bin/uv")
