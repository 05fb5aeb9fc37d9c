"""A site that was lost is written back from its ledger and the files that its locks were made from."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bedplate.act import lock as locks
from bedplate.act import sitefiles
from bedplate.cli.ledger import ledger as command
from bedplate.decide.sitefiles import belongs
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput
from bedplate.sources.site import Site, open_site
from unit.lock_sample import digest, document, parsed, set_at
from unit.site_sample import replace_in, write_site

LOCK = parsed()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A site with A locked, its files kept; with a secret, and a program among the files of its image."""
    root = write_site(tmp_path / "site")
    (root / "secrets").mkdir()
    (root / "secrets/munge.key").write_text("secret\n")
    (root / "images/a/go.sh").write_text("#!/bin/sh\n")
    (root / "images/a/go.sh").chmod(0o755)
    site = open_site(root)
    locks.write(site, LOCK)
    assert sitefiles.keep(site, LOCK) is not None
    return site


def ask(root: Path, *words: str) -> Result:
    return CliRunner().invoke(command, words, obj=root, standalone_mode=False, catch_exceptions=False)


def files(root: Path) -> dict[str, tuple[bytes, int]]:
    """Path -> bytes and whether the owner may run it, of what a site's files are."""
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mode & 0o100)
        for path in root.rglob("*")
        if path.is_file()
        and path.parts[len(root.parts)] not in ("ledger-files", "secrets")
        and "sqlite" not in path.name
    }


def exported(site: Site, tmp_path: Path) -> tuple[str, str]:
    names = str(tmp_path / "x.jsonl"), str(tmp_path / "x.files")
    ask(site.root, "export", names[0], "--files", names[1])
    return names


def test_an_export_and_its_files_make_the_site_again_byte_for_byte(site: Site, tmp_path: Path) -> None:
    export, store = exported(site, tmp_path)
    before = files(site.root)
    shutil.rmtree(site.root)
    new = tmp_path / "new"
    said = ask(new, "import", export, "--files", store)
    assert said.return_value == 0
    assert "fleet.yml, nodes.csv written" in said.stderr
    assert ask(new, "recover").return_value == 0
    assert files(new) == before
    assert open_site(new).lock("A").identity == LOCK.identity
    assert not (new / "secrets").exists(), "a secret is in no record"
    assert ask(new, "verify", "--files").return_value == 0


def test_files_are_kept_once_and_again_when_one_of_them_changed(site: Site) -> None:
    assert sitefiles.keep(site, LOCK) is None
    replace_in(site.root / "nodes.csv", "LAB-8", "LAB-9")
    event = sitefiles.keep(open_site(site.root), LOCK)
    assert event is not None
    assert sitefiles.keep(open_site(site.root), LOCK) is None


def test_what_is_there_with_other_bytes_is_left_and_named_unless_it_is_to_be_replaced(site: Site) -> None:
    path = site.environment_path("A")
    path.write_text("mine\n")
    (site.root / "images/a/Dockerfile").unlink()
    said = ask(site.root, "recover", "A", "--json")
    assert said.return_value == 5
    told = json.loads(said.stdout)
    became = {one["path"]: one["became"] for one in told["environments"]["A"]}
    assert told["differ"] == ["environments/A.yml"]
    assert became["images/a/Dockerfile"] == "written"
    assert became["fleet.yml"] == "there already"
    assert path.read_text() == "mine\n"
    assert "environments/A.yml: replaced" in ask(site.root, "recover", "A", "--replace").stdout
    assert path.read_text() != "mine\n"


def test_of_a_file_that_several_environments_have_the_one_that_was_kept_last_is_written(site: Site) -> None:
    text = site.environment_path("A").read_text()
    site.environment_path("B").write_text(text.replace("environment: A", "environment: B"))
    other = parsed(set_at(document(), "environment", "B"))
    shared = site.model_path("lab-gpu8")
    shared.write_text(shared.read_text() + "# measured again\n")
    newest = shared.read_bytes()
    changed = open_site(site.root)
    locks.write(changed, other)
    sitefiles.keep(changed, other)
    shared.unlink()
    for words in (("recover",), ("recover", "--replace"), ("recover", "B", "A")):
        said = ask(site.root, *words)
        assert said.return_value == 0, said.output
        assert shared.read_bytes() == newest
        assert "B: models/lab-gpu8.yml: " in said.stdout
        assert "A: environments/A.yml: there already" in said.stdout


def test_a_damaged_file_of_the_store_is_never_written_back(site: Site) -> None:
    for path in (site.root / "ledger-files").rglob("*"):
        if path.is_file() and b"GREETING: hello" in path.read_bytes():
            path.chmod(0o600)
            path.write_text("other\n")
    shutil.rmtree(site.root / "images")
    with pytest.raises(Exception, match="was damaged: it hashes to"):
        ask(site.root, "recover", "A")
    assert not (site.root / "images").exists(), "nothing is written unless all of it is there"


def test_a_lock_of_which_no_files_were_kept_is_named(tmp_path: Path) -> None:
    site = open_site(write_site(tmp_path / "site"))
    locks.write(site, LOCK)
    with pytest.raises(BadInput, match="the ledger has no files of A"):
        ask(site.root, "recover")
    with pytest.raises(BadInput, match="has no lock of B"):
        ask(site.root, "recover", "B")


def test_an_empty_directory_and_an_export_without_a_fleet_are_no_site(tmp_path: Path) -> None:
    site = open_site(write_site(tmp_path / "site"))
    locks.write(site, LOCK)
    export, store = exported(site, tmp_path)
    with pytest.raises(BadInput, match=r"no site, and .* has no fleet.yml of one"):
        ask(tmp_path / "new", "import", export, "--files", store)
    assert not (tmp_path / "new").exists()


def test_nodes_of_somebody_else_are_no_place_for_an_export(site: Site, tmp_path: Path) -> None:
    export, store = exported(site, tmp_path)
    new = tmp_path / "new"
    new.mkdir()
    (new / "nodes.csv").write_text("mine\n")
    with pytest.raises(BadInput, match=r"new: has nodes.csv with other bytes \(import into an empty directory\)"):
        ask(new, "import", export, "--files", store)
    assert [path.name for path in new.iterdir()] == ["nodes.csv"]


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "secrets/munge.key", "a/../../b", "", "ledger-files/aa/b"])
def test_no_file_outside_a_site_and_no_secret_is_one_of_its_files(site: Site, path: str) -> None:
    assert not belongs(path)
    body = {"role": "site", "files": [{"name": path, "sha256": digest("a"), "size": 1}]}
    with Ledger.open(site.ledger_url) as ledger:
        ledger.append(Draft("file.attached", ("environment:A",), body, LOCK.identity))
    with pytest.raises(BadInput, match="names no files of a site"):
        ask(site.root, "recover", "A", "--replace")
