"""Signed heads kept elsewhere: what `ledger verify` sees with them that the chain alone cannot."""

import json
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from bedplate.decide.ledgeranchor import Anchor, held, parse_anchor, payload
from bedplate.ledger import places
from bedplate.ledger.schema import OBJECTS
from bedplate.ledger.store import Ledger
from bedplate.model.faults import BadInput, Refused
from bedplate.model.ledgersite import Place, parse_ledger_site
from bedplate.sources.site import Site
from unit.ledger_sample import LEDGER, anchored_site, as_json, ask, stand_in_ssh, tell

DIGEST = "sha256:" + "0a" * 32
LINE = Anchor("munich", 3, DIGEST, "2026-11-30T15:00:00.000000Z", "ctl@munich", "signed").line()


# --- what needs no program ---------------------------------------------------------------------------


def test_an_anchor_is_read_back_from_its_line() -> None:
    anchor = parse_anchor(LINE)
    assert anchor.line() == LINE
    assert anchor.payload == payload("munich", 3, DIGEST)


@pytest.mark.parametrize(
    "line",
    [
        "{", "[]", "{}", LINE.replace('"id": 3', '"id": "3"'), LINE.replace('"id": 3', '"id": 0'),
        LINE.replace("sha256:0a", "md5:0a"), LINE.replace("2026-11-30T", "yesterday "), LINE[:-20],
        LINE.replace('"signed"', "7"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_anchor_is_named_with_its_number(line: str) -> None:
    found = held("log", "munich", LINE + line)
    assert [anchor.id for anchor in found.anchors] == [3]
    assert found.faults[0].startswith("anchors at log, line 2: ")


def test_anchors_of_other_sites_are_left_out() -> None:
    assert held("log", "berlin", LINE) == held("log", "berlin", "")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("principal: ctl@munich, ", "", '"principal" is missing'),
        ("git: ../log.git", "git: a, directory: b", "names not one place"),
        (", git: ../log.git", "", "names not one place"),
        ("name: host", "name: log", "stands there twice"),
        ("git: ../log.git", "git: --upload-pack=x", "is no place"),
        ("ctl@munich", '"a b"', '"a b" is no principal'),
        ("git:", "gti:", 'unknown key "gti"'),
    ],
)
def test_a_wrong_ledger_yml_says_where_and_what(old: str, new: str, says: str) -> None:
    assert len(parse_ledger_site(LEDGER, "ledger.yml").places) == 2
    with pytest.raises(BadInput, match=f"ledger.yml:.*{says}"):
        parse_ledger_site(LEDGER.replace(old, new), "ledger.yml")


# --- with ssh-keygen and git ---------------------------------------------------------------------------

pytestmark = pytest.mark.slow


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return anchored_site(tmp_path)


def edit(site: Site, *statements: str) -> None:
    """What somebody with the file can do, who puts the guards back."""
    with closing(sqlite3.connect(site.root / "ledger.sqlite3", isolation_level=None)) as raw:
        triggers = [(name, sql) for (sort, name), sql in OBJECTS.items() if sort == "trigger"]
        for name, _ in triggers:
            raw.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            raw.execute(statement)
        for _, sql in triggers:
            raw.execute(sql)


def rewritten(site: Site, count: int) -> None:
    """Another ledger in its place, as long, whole in itself."""
    (site.root / "ledger.sqlite3").unlink()
    for left in site.root.glob("ledger.sqlite3-*"):
        left.unlink()
    tell(site, count)


def test_the_head_is_signed_and_every_place_has_it(site: Site, tmp_path: Path) -> None:
    tell(site, 3)
    done = ask(site, "anchor")
    assert done.return_value == 0
    assert [line.split(": at ")[1] for line in done.stdout.splitlines()] == ["log", "host"]
    kept = subprocess.run(
        ["git", "-C", tmp_path / "log.git", "show", "main:munich.jsonl"], stdout=subprocess.PIPE, text=True, check=True
    )
    assert parse_anchor(kept.stdout).id == 3
    assert [file.name[:19] for file in (tmp_path / "anchors").iterdir()] == ["munich-000000000003"]
    found = ask(site, "verify")
    assert found.return_value == 0
    assert "anchored up to event 3" in found.stdout
    assert "by ctl@munich" in found.stdout


def test_anchoring_again_does_nothing_until_something_happened(site: Site) -> None:
    tell(site, 3)
    ask(site, "anchor")
    assert ask(site, "anchor").stdout == "nothing new: every place has the head\n"
    tell(site, 1)
    assert as_json(ask(site, "anchor", "--json"))["anchor"]["id"] == 5


def test_a_tail_that_was_cut_off_is_named_against_the_last_anchor(site: Site) -> None:
    tell(site, 6)
    ask(site, "anchor")
    edit(site, "DELETE FROM event WHERE id > 4")
    found = ask(site, "verify")
    assert found.return_value == 5
    assert (
        "event 5: this and all up to event 6 are missing (2 events): the tail was cut off behind event 4"
        in found.stdout
    )
    assert "at log, signed by ctl@munich, has event 6" in found.stdout


def test_a_history_rewritten_to_its_end_is_named_and_gets_no_new_anchor(site: Site) -> None:
    tell(site, 3)
    ask(site, "anchor")
    rewritten(site, 8)
    found = ask(site, "verify")
    assert found.return_value == 5
    assert "event 3: is sha256:" in found.stdout
    assert "history was rewritten" in found.stdout
    with pytest.raises(Refused, match=r"nothing is signed: .*\n.*event 3 is sha256"):
        ask(site, "anchor")


def test_a_ledger_that_was_removed_is_not_an_empty_one(site: Site) -> None:
    tell(site, 3)
    ask(site, "anchor")
    for file in site.root.glob("ledger.sqlite3*"):
        file.unlink()
    found = ask(site, "verify")
    assert found.return_value == 5
    assert "event 1: this and all up to event 3 are missing" in found.stdout


def test_a_restored_old_copy_is_named_until_a_person_answers_for_it(site: Site) -> None:
    tell(site, 3)
    shutil.copy(site.root / "ledger.sqlite3", site.root / "copy")
    tell(site, 3)
    ask(site, "anchor")
    for left in site.root.glob("ledger.sqlite3-*"):
        left.unlink()
    shutil.copy(site.root / "copy", site.root / "ledger.sqlite3")
    assert "the tail was cut off behind event 3" in ask(site, "verify").stdout
    with pytest.raises(Refused, match="event 6 is not there"):
        ask(site, "anchor")
    assert (
        as_json(ask(site, "restored", "--approved-by", "maria", "--reason", "disk died", "--json"))["lost"][0]["id"]
        == 6
    )
    found = ask(site, "verify")
    assert found.return_value == 0
    assert "events up to 6 of the one before are lost: disk died (maria)" in found.stderr
    tell(site, 4)
    assert ask(site, "anchor").return_value == 0
    assert ask(site, "verify").return_value == 0
    with pytest.raises(Refused, match="no loss to answer for"):
        ask(site, "restored", "--approved-by", "maria", "--reason", "again")


def test_an_anchor_of_a_key_that_may_not_sign_is_damage_of_its_place_only(site: Site, tmp_path: Path) -> None:
    tell(site, 3)
    ask(site, "anchor")
    (file,) = (tmp_path / "anchors").iterdir()
    forged = json.loads(file.read_text()) | {"id": 4, "sha256": DIGEST}
    (tmp_path / "anchors/munich-000000000004-x.json").write_text(json.dumps(forged) + "\n")
    found = ask(site, "verify")
    assert found.return_value == 5
    assert "anchor of event 4 at host: its signature does not hold" in found.stdout
    assert "history was rewritten" not in found.stdout


def test_an_anchor_that_a_place_lost_is_named(site: Site, tmp_path: Path) -> None:
    tell(site, 3)
    ask(site, "anchor")
    (file,) = (tmp_path / "anchors").iterdir()
    file.unlink()
    found = ask(site, "verify")
    assert found.return_value == 5
    assert "anchors at host: the anchor of event 3 is missing, which it took" in found.stdout


def test_a_place_that_cannot_be_read_is_unknown_and_said_so(site: Site, tmp_path: Path) -> None:
    tell(site, 3)
    ask(site, "anchor")
    shutil.move(tmp_path / "log.git", tmp_path / "gone.git")
    found = ask(site, "verify")
    assert found.return_value == 4
    assert "anchors at log: cannot be read" in found.stderr
    assert ask(site, "verify", "--offline").return_value == 0


def test_a_place_that_was_away_gets_the_anchor_the_next_time(site: Site, tmp_path: Path) -> None:
    tell(site, 3)
    shutil.move(tmp_path / "anchors", tmp_path / "away")
    first = ask(site, "anchor")
    assert first.return_value == 1
    assert "anchors at host: " in first.stderr
    shutil.move(tmp_path / "away", tmp_path / "anchors")
    again = as_json(ask(site, "anchor", "--json"))
    assert (again["took"], again["anchor"]["id"]) == (["host"], 3)
    assert ask(site, "verify").return_value == 0


def test_a_site_without_signers_says_that_nothing_is_known_of_its_anchors(site: Site) -> None:
    tell(site, 3)
    ask(site, "anchor")
    (site.root / "ledger.yml").unlink()
    found = ask(site, "verify")
    assert found.return_value == 4
    assert "the site names nobody who signs" in found.stderr
    with pytest.raises(BadInput, match="names no place for anchors"):
        ask(site, "anchor")


def test_a_key_that_the_signers_do_not_know_signs_nothing(site: Site, tmp_path: Path) -> None:
    tell(site, 3)
    (site.root / "keys/ledger.signers").write_text("")
    with pytest.raises(BadInput, match="does not know the key of ctl@munich"):
        ask(site, "anchor")
    assert list((tmp_path / "anchors").iterdir()) == []


def test_a_directory_on_another_host_is_written_and_read_by_ssh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a place").mkdir()
    for name, value in stand_in_ssh(tmp_path).items():
        monkeypatch.setenv(name, value)
    place = Place("host", "directory", f"log1:{tmp_path}/a place")
    anchor = parse_anchor(LINE)
    assert places.read(place, "munich").anchors == ()
    places.add(place, anchor)
    assert places.read(place, "munich").anchors == (anchor,)
    with pytest.raises(Exception, match="was not taken"):
        places.add(place, anchor)
    assert places.read(place, "munich").anchors == (anchor,)


def test_two_who_anchor_at_once_in_one_repository_both_come_in(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place("log", "git", str(tmp_path / "log.git"))
    other = Anchor("berlin", 1, DIGEST, "2026-11-30T15:00:00.000000Z", "x", "y")
    real = places._git
    did: list[int] = []

    def meanwhile(*words: str | Path, check: bool = True) -> str:
        if "push" in words and not did:
            did.append(1)
            monkeypatch.setattr(places, "_git", real)
            places.add(place, other)
        return real(*words, check=check)

    monkeypatch.setattr(places, "_git", meanwhile)
    places.add(place, parse_anchor(LINE))
    assert len(places.read(place, "munich").anchors) == len(places.read(place, "berlin").anchors) == 1


def test_damage_of_the_head_is_not_signed(site: Site) -> None:
    tell(site, 3)
    edit(site, "UPDATE event SET actor = 'you' WHERE id = 3")
    with pytest.raises(Refused, match="event 3: was edited"):
        ask(site, "anchor")
    with Ledger.read(site.ledger_url) as book:
        assert book.head()[0] == 3
