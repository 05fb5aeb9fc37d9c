"""What the site's mirror keeps: the images of records, locks and nodes, and every blob that one of them has."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.act.distribution import collect_mirror
from bedplate.act.distribution.collecting import Collected
from bedplate.act.image import mirror
from bedplate.decide.buildrecord import record_text
from bedplate.decide.distribution.keep import known_manifests
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft, Event
from bedplate.sources.imagestore import Image
from bedplate.sources.site import Site, open_site
from unit.image_nodes import record
from unit.lock_sample import digest
from unit.site_sample import write_site
from unit.smallimage import Member, write

BASE = [Member("etc/base", "shared")]
A, B = digest("a"), digest("b")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    root = write_site(tmp_path / "site")
    (root / "builds").mkdir()
    return open_site(root)


def mirrored(site: Site, name: str, text: str) -> Image:
    """An image of the shared layer and one of its own, in the mirror of the site."""
    folder = site.root.parent / name
    made = write(folder, [BASE, [Member("etc/own", text)]])
    return mirror.store(site).take(folder, made, name)


def recorded(site: Site, image: Image, name: str = "lab-small") -> None:
    said = replace(record(b"hsqs"), name=name, manifest_digest=image.manifest.digest)
    (site.builds_path / f"{name}.json").write_text(record_text(said))


def names(found: Collected) -> set[str]:
    return {file.name for file in found.files}


def own(image: Image, *others: Image) -> set[str]:
    """The files that only this image is made of."""
    made = {blob.hexadecimal for blob in image.manifest.blobs} | {image.manifest.digest.removeprefix("sha256:")}
    return made - {blob.hexadecimal for other in others for blob in other.manifest.blobs}


def runs(site: Site, identity: str) -> None:
    """n1 is to run an environment."""
    with Ledger.open(site.ledger_url) as ledger:
        ledger.append(Draft("batch.admitted", ("node:n1",), {"rollout": 1}, identity))


def test_what_no_record_names_is_told_first_and_removed_when_asked(site: Site) -> None:
    kept, old = mirrored(site, "kept", "new"), mirrored(site, "old", "old")
    recorded(site, kept)
    told = collect_mirror(site, remove=False)
    assert names(told) == own(old, kept)
    assert {file.does for file in told.files} == {"would remove"}
    assert mirror.store(site).image(old.manifest.digest), "nothing was removed"
    done = collect_mirror(site, remove=True)
    assert (names(done), {file.does for file in done.files}) == (own(old, kept), {"removed"})
    assert mirror.store(site).image(kept.manifest.digest), "the layer that both had is there"
    assert mirror.store(site).image(old.manifest.digest) is None
    listed = json.loads((mirror.store(site).root / "index.json").read_text())["manifests"]
    assert [each["digest"] for each in listed] == [kept.manifest.digest]
    with Ledger.read(site.ledger_url) as ledger:
        (event,) = ledger.events(kinds=["image.collected"])
    assert (event.subjects, event.body["freed"]) == (("images:mirror",), done.freed)
    assert collect_mirror(site, remove=True).files == ()


def test_what_a_killed_copy_left_is_removed(site: Site) -> None:
    kept = mirrored(site, "kept", "new")
    recorded(site, kept)
    left = mirror.store(site).root / "blobs/sha256" / ("f" * 64)
    left.write_bytes(b"a layer without a manifest")
    assert names(collect_mirror(site, remove=True)) == {left.name}
    assert not left.exists()


def test_what_a_node_runs_is_kept_and_an_environment_that_nobody_knows_keeps_everything(site: Site) -> None:
    recorded(site, mirrored(site, "kept", "new"))
    old = mirrored(site, "old", "old")
    runs(site, A)
    found = collect_mirror(site, remove=True)
    assert found.files == ()
    assert f"target environment {A}: the ledger does not say which image it has" in found.why
    body = {"environment": "A", "document": {"image": {"reference": f"r.lab/a@{old.manifest.digest}"}}}
    with Ledger.open(site.ledger_url) as ledger:
        ledger.append(Draft("lock.resolved", ("environment:A",), body, A))
    found = collect_mirror(site, remove=True)
    assert (found.files, found.why) == ((), "")
    assert mirror.store(site).image(old.manifest.digest)


def test_beside_a_needed_image_that_is_damaged_nothing_is_removed(site: Site) -> None:
    kept, old = mirrored(site, "kept", "new"), mirrored(site, "old", "old")
    recorded(site, kept)
    mirror.store(site).path(kept.manifest.digest).write_bytes(b"rot")
    found = collect_mirror(site, remove=True)
    assert found.files == ()
    assert "left alone: " in found.why
    assert "nothing was removed" in found.why
    assert mirror.store(site).image(old.manifest.digest)


def test_beside_a_record_that_cannot_be_read_nothing_is_removed(site: Site) -> None:
    old = mirrored(site, "old", "old")
    (site.builds_path / "lab-small.json").write_text("{")
    found = collect_mirror(site, remove=True)
    assert (found.files, "lab-small.json:1: no JSON" in found.why) == ((), True)
    assert mirror.store(site).image(old.manifest.digest)


def test_a_site_without_a_mirror_has_nothing_to_remove(site: Site) -> None:
    assert collect_mirror(site, remove=True) == Collected("mirror")


def test_manifests_are_known_by_locks_alone() -> None:
    def event(number: int, kind: str, identity: str, body: dict[str, object]) -> Event:
        return Event(number, "", "", kind, (), identity, body, "", "", "")

    image = {"reference": f"r.lab/a@{digest('1')}"}
    found = known_manifests([
        event(1, "lock.resolved", A, {"environment": "A", "document": {"image": image}}),
        event(2, "lock.resolved", B, {"environment": "B", "document": {"image": None}}),
        event(3, "image.placed", digest("c"), {"squashfs_sha256": digest("2")}),
    ])  # fmt: skip
    assert found.images == {A: digest("1"), B: None}
