"""Logs go into the ledger's files by their hash; one that cannot keeps nothing else from being recorded."""

from pathlib import Path

import pytest

from bedplate.act.keptlogs import kept
from bedplate.ledger.filestore import FileStore
from bedplate.model.canonical import sha256
from bedplate.sources.site import Site, open_site
from unit.site_sample import write_site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return open_site(write_site(tmp_path / "site"))


def test_what_has_its_bytes_is_stored_and_named_and_the_rest_left_out(site: Site, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for name, data in (("job.txt", b"one"), ("run/other.txt", b"changed")):
        (tmp_path / name).write_bytes(data)
    logs = {"job.txt": sha256(b"one"), "run/other.txt": sha256(b"two"), "gone.txt": sha256(b"three")}
    (draft,) = kept(site, tmp_path, logs, role="acceptance-log", subjects=("node:n1",), identity=sha256(b"lock"))
    assert (draft.kind, draft.subjects, draft.environment) == ("file.attached", ("node:n1",), sha256(b"lock"))
    assert draft.body == {
        "role": "acceptance-log", "files": [{"name": "job.txt", "sha256": sha256(b"one"), "size": 3}],
    }  # fmt: skip
    assert FileStore(site.ledger_files_path).get(sha256(b"one")).read_bytes() == b"one"


def test_a_store_that_cannot_be_written_costs_the_logs_and_nothing_else(site: Site, tmp_path: Path) -> None:
    site.ledger_files_path.write_text("a file where the folder would be")
    (tmp_path / "job.txt").write_bytes(b"one")
    assert kept(site, tmp_path, {"job.txt": sha256(b"one")}, role="x", subjects=(), identity=None) == []
    assert kept(site, tmp_path, {}, role="x", subjects=(), identity=None) == []
