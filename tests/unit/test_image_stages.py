"""Build, push and import against programs and a registry that behave; the real ones run in the lab."""

import fcntl
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from bedplate.act import image as images
from bedplate.act.builders.buildah import build_command
from bedplate.act.builders.builder import Dockerfile, Paths
from bedplate.act.image import building, importing
from bedplate.cli.main import bedplate
from bedplate.decide.buildrecord import Stage
from bedplate.decide.images.compression import squash_options
from bedplate.ledger.store import Ledger
from bedplate.model.event import Event
from bedplate.model.faults import BadInput, BedplateError, Busy, Refused
from bedplate.process import ProcessFailed
from bedplate.sources.definition import read_definition
from bedplate.sources.registry import NotFound, Unreachable, WrongBytes
from bedplate.sources.site import Site, open_site
from unit.imagetools import Tools, install, registry_without_tls
from unit.lock_sample import digest
from unit.registryd import Shelf, registry
from unit.site_sample import replace_in, write_site

pytestmark = pytest.mark.slow  # every test starts programs


@dataclass
class Stand:
    root: Path
    shelf: Shelf
    tools: Tools

    @property
    def site(self) -> Site:
        """Read anew: a Site keeps what it has read."""
        return open_site(self.root)

    def events(self) -> list[Event]:
        with Ledger.read(self.site.ledger_url) as ledger:
            return list(ledger.events())

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events()]

    def all_stages(self) -> images.Outcome:
        images.build(self.site, "A")
        images.push(self.site, "A")
        return images.import_(self.site, "A")


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    with registry() as shelf:
        tools = install(monkeypatch)
        root = write_site(tmp_path / "site")
        base = shelf.put_image("base")
        definition = root / "images/a/image.yml"
        definition.write_text(
            f"name: lab-small\nrepository: {shelf.address}/lab/small\n"
            f"base: {{reference: '{shelf.address}/base/debian', digest: '{base}'}}\narguments: {{GREETING: hello}}\n"
        )
        registry_without_tls(monkeypatch)
        yield Stand(root, shelf, tools)


def test_the_three_stages_make_record_artifact_and_events(stand: Stand) -> None:
    outcome = stand.all_stages()
    record = outcome.record
    assert outcome.did
    assert record.stage is Stage.IMPORTED
    assert record.squashfs
    artifact = stand.root / record.squashfs.path
    assert images.verified_artifact(stand.site, record.squashfs.sha256, record.squashfs.size) == artifact
    assert artifact.stat().st_mode & 0o777 == 0o444
    assert record.squashfs.uri == f"docker://{record.reference}"
    beside = json.loads(artifact.with_suffix(".json").read_text())
    assert (beside["sha256"], beside["size"]) == (record.squashfs.sha256, record.squashfs.size)
    assert (beside["manifest_digest"], beside["importer"]) == (record.manifest_digest, "embedded")
    assert (
        stand.shelf.manifests[record.manifest_digest]
        == stand.shelf.manifests["bedplate-" + record.manifest_digest.removeprefix("sha256:")]
    )
    assert json.loads((stand.root / "builds/lab-small.json").read_text()) == record.document()
    events = stand.events()
    assert [event.kind for event in events] == ["image.built", "image.pushed", "image.imported"]
    assert {event.subjects for event in events} == {("image:lab-small",)}
    assert events[-1].body == record.document()
    assert "STEP 1/1" in min((stand.root / "builds/logs").glob("lab-small-*.log")).read_text()


def test_a_stage_that_is_done_is_not_done_again(stand: Stand) -> None:
    done = stand.all_stages().record
    stand.tools.calls.clear()
    for stage in (images.build, images.push, images.import_):
        outcome = stage(stand.site, "A")
        assert (outcome.did, outcome.record) == (False, done)
    assert stand.tools.calls == []
    assert len(stand.events()) == 3


def test_a_changed_definition_is_built_again_and_forgets_the_later_stages(stand: Stand) -> None:
    first = stand.all_stages().record
    replace_in(stand.root / "images/a/image.yml", "hello", "hallo")
    for stage in (images.push, images.import_):
        with pytest.raises(BadInput, match=r"was built from images/a as it was.*bedplate image build A"):
            stage(stand.site, "A")
    second = images.build(stand.site, "A").record
    assert second.stage is Stage.BUILT
    assert second.manifest_digest != first.manifest_digest
    assert first.squashfs
    assert (stand.root / first.squashfs.path).exists()


def test_the_same_definition_gives_the_same_image_and_the_same_artifact(stand: Stand) -> None:
    first = stand.all_stages().record
    (stand.root / "builds/lab-small.json").unlink()
    (stand.root / "images/a/Dockerfile").chmod(0o640)  # a checkout's umask
    second = stand.all_stages().record
    assert second.manifest_digest == first.manifest_digest
    assert second.squashfs == first.squashfs


def test_stages_have_an_order(stand: Stand) -> None:
    with pytest.raises(BadInput, match=r"is not built.*bedplate image build A"):
        images.push(stand.site, "A")
    images.build(stand.site, "A")
    with pytest.raises(BadInput, match=r"is not pushed.*bedplate image push A"):
        images.import_(stand.site, "A")


def test_an_event_that_a_killed_process_left_out_comes_later(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(building, "tell_ledger", lambda *_: None)
        images.build(stand.site, "A")
    assert stand.kinds() == []
    images.push(stand.site, "A")
    images.build(stand.site, "A")
    events = stand.events()
    assert [event.kind for event in events] == ["image.pushed", "image.built"]
    assert events[1].body["pushed_at"] is None


@pytest.mark.parametrize("step", ["buildah bud", "buildah push", "skopeo copy"])
def test_a_build_that_fails_leaves_no_record_and_says_where_the_log_is(stand: Stand, step: str) -> None:
    stand.tools.fails, stand.tools.says = step, "no such package: foo"
    with pytest.raises(ProcessFailed, match="no such package: foo"):
        images.build(stand.site, "A")
    assert not (stand.root / "builds/lab-small.json").exists()
    assert stand.kinds() == []
    assert not list((stand.root / "builds").glob(".work-*"))
    assert not stand.tools.images
    stand.tools.fails = ""
    assert images.build(stand.site, "A").did


def test_what_a_killed_build_left_is_removed(stand: Stand) -> None:
    left = stand.root / "builds/.work-lab-small+dead/context"
    other = stand.root / "builds/.work-lab-small-2+live"
    left.mkdir(parents=True)
    other.mkdir()
    images.build(stand.site, "A")
    assert not left.parent.exists()
    assert other.exists()


def test_a_base_that_its_registry_does_not_have_is_not_built_from(stand: Stand) -> None:
    replace_in(stand.root / "images/a/image.yml", "digest: 'sha256:", f"digest: '{digest('0')}'}} #")
    with pytest.raises(NotFound, match="base/debian"):
        images.build(stand.site, "A")
    assert not any(call.startswith("buildah bud") for call in stand.tools.calls)


def test_an_unpinned_dockerfile_is_refused_before_anything_runs(stand: Stand) -> None:
    (stand.root / "images/a/Dockerfile").write_text("FROM debian:12\n")
    with pytest.raises(BadInput, match="is not pinned"):
        images.build(stand.site, "A")
    replace_in(stand.root / "images/a/image.yml", "name:", "dockerfile: other\nname:")
    with pytest.raises(BadInput, match=r"images/a/other: no such file"):
        images.build(stand.site, "A")
    assert stand.tools.calls == []


def test_an_environment_without_an_image_says_why(stand: Stand) -> None:
    replace_in(stand.root / "environments/A.yml", "definition: images/a", "unmanaged: no jobs here")
    with pytest.raises(BadInput, match="manages no image: no jobs here"):
        images.build(stand.site, "A")


def test_a_registry_that_keeps_other_bytes_is_found_out(stand: Stand) -> None:
    images.build(stand.site, "A")
    stand.shelf.swallow = lambda raw: raw + b"\n"
    with pytest.raises(WrongBytes, match=r"(?s)the registry does not have it.*:bedplate-[0-9a-f]{64} names sha256:"):
        images.push(stand.site, "A")
    assert images.asked(stand.site, "A").record == images.read(stand.site, "lab-small")
    record = images.read(stand.site, "lab-small")
    assert record
    assert record.stage is Stage.BUILT


def test_a_registry_that_refuses_the_push_leaves_the_stage_open(stand: Stand) -> None:
    images.build(stand.site, "A")
    stand.tools.fails = "docker://"
    with pytest.raises(ProcessFailed):
        images.push(stand.site, "A")
    assert stand.kinds() == ["image.built"]


def test_a_registry_that_cannot_say_is_no_absence(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    images.build(stand.site, "A")
    monkeypatch.setattr("bedplate.sources.registryconnection.RETRIES", 0)
    stand.shelf.failures = [500]
    with pytest.raises(Unreachable):
        images.push(stand.site, "A")


def test_an_image_that_the_registry_lost_is_pushed_again(stand: Stand) -> None:
    first = stand.all_stages().record
    stand.shelf.manifests.clear()
    outcome = images.push(stand.site, "A")
    assert (outcome.did, outcome.record) == (True, first)
    assert first.manifest_digest in stand.shelf.manifests


def test_an_image_that_is_in_the_registry_already_is_not_pushed_again(stand: Stand) -> None:
    images.build(stand.site, "A")
    place = images.built_path(stand.site, "lab-small") / "manifest.json"
    digest_there = stand.shelf.put(place.read_bytes())
    for blob in place.parent.iterdir():
        stand.shelf.put_blob(blob.read_bytes())
    stand.tools.calls.clear()
    record = images.push(stand.site, "A").record
    assert record.stage is Stage.PUSHED
    copy = "skopeo copy --quiet --preserve-digests docker://{0}@{1} docker://{0}:bedplate-{2}"
    assert stand.tools.calls == [copy.format(record.repository, digest_there, digest_there.removeprefix("sha256:"))]


def test_a_lost_image_that_nobody_has_is_to_be_built_again(stand: Stand) -> None:
    images.build(stand.site, "A")
    (images.built_path(stand.site, "lab-small") / "manifest.json").unlink()
    with pytest.raises(BadInput, match="neither the registry nor the mirror have it"):
        images.push(stand.site, "A")
    assert images.build(stand.site, "A").did
    assert images.push(stand.site, "A").did


def test_importing_asks_the_registry_for_the_right_manifest_first(stand: Stand) -> None:
    images.build(stand.site, "A")
    record = images.push(stand.site, "A").record
    kind, _ = stand.shelf.manifests[record.manifest_digest]
    stand.shelf.manifests[record.manifest_digest] = (kind, b'{"other": "image"}')
    with pytest.raises(WrongBytes):
        images.import_(stand.site, "A")
    del stand.shelf.manifests[record.manifest_digest]
    with pytest.raises(NotFound, match="bedplate image push A"):
        images.import_(stand.site, "A")
    assert not (stand.root / "artifacts").exists()


def test_what_a_killed_import_left_is_no_hindrance(stand: Stand) -> None:
    images.build(stand.site, "A")
    images.push(stand.site, "A")
    (stand.root / "artifacts/.import-lab-small+dead").mkdir(parents=True)
    (stand.root / "artifacts/.import-lab-small+dead/image.sqsh").write_text("half")
    (stand.root / "artifacts/.import-lab-small.sqsh").write_text("half, of an earlier version")
    (stand.root / "artifacts/.import-lab-small-2+live").mkdir()
    assert images.import_(stand.site, "A").did
    left = sorted(path.suffix or path.name for path in (stand.root / "artifacts").iterdir())
    assert left == [".import-lab-small-2+live", ".json", ".sqsh"]


def test_a_file_that_is_cut_off_never_gets_the_final_name(stand: Stand) -> None:
    images.build(stand.site, "A")
    images.push(stand.site, "A")
    stand.tools.cuts_off = True
    with pytest.raises(BedplateError, match="cut off"):
        images.import_(stand.site, "A", importer="enroot")
    assert list((stand.root / "artifacts").iterdir()) == []
    assert stand.kinds()[-1] == "image.pushed"


def test_a_finished_artifact_is_never_written_over(stand: Stand) -> None:
    done = stand.all_stages().record
    assert done.squashfs
    artifact = stand.root / done.squashfs.path
    artifact.chmod(0o644)
    artifact.write_text("rotten")
    with pytest.raises(Refused, match="does not have the bytes"):
        images.import_(stand.site, "A")
    images.read(stand.site, "lab-small")
    (stand.root / "builds/lab-small.json").unlink()
    images.build(stand.site, "A")
    images.push(stand.site, "A")
    with pytest.raises(Refused, match="does not have the bytes"):
        images.import_(stand.site, "A")
    assert artifact.read_text() == "rotten"


def test_an_artifact_that_was_removed_is_imported_again(stand: Stand) -> None:
    done = stand.all_stages().record
    assert done.squashfs
    (stand.root / done.squashfs.path).unlink()
    assert images.import_(stand.site, "A").record.squashfs == done.squashfs


def test_an_artifact_that_was_removed_is_made_again_with_the_options_of_its_record(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:  # when blocks of 1 MiB were the default
        earlier.setattr(importing, "squash_options", lambda: squash_options("1M"))
        old = stand.all_stages().record.squashfs
    assert old
    assert "-b 1M" in old.options
    (stand.root / old.path).unlink()
    assert images.import_(stand.site, "A").record.squashfs == old
    (stand.root / "builds/lab-small.json").unlink()
    new = stand.all_stages().record.squashfs
    assert new
    assert "-b 256K" in new.options
    assert new.sha256 != old.sha256
    assert (stand.root / old.path).exists()
    assert json.loads((stand.root / old.path).with_suffix(".json").read_text())["options"] == old.options


def test_one_process_works_on_an_image_at_a_time(stand: Stand) -> None:
    (stand.root / "builds").mkdir()
    with (stand.root / "builds/.lab-small.lock").open("w") as held:
        held.write("4711\n")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Busy, match="process 4711"):
            images.build(stand.site, "A")
    assert images.build(stand.site, "A").did


def test_the_build_command_pins_base_isolation_network_and_time() -> None:
    one = Dockerfile("image", Path("/c"), "Dockerfile", "BASE", {"GREETING": "hello"}, "host")
    words = build_command("lab-small", one, "r.lab/base@sha256:1", Paths(Path("/w"), Path("/l")))
    for pair in (("--isolation", "chroot"), ("--network", "host"), ("--format", "oci"), ("--timestamp", "1735689600")):
        assert words[words.index(pair[0]) + 1] == pair[1]
    arguments = [words[at + 1] for at, word in enumerate(words) if word == "--build-arg"]
    assert arguments == ["BASE=r.lab/base@sha256:1", "GREETING=hello"]
    assert "--no-cache" in words


# --- the files of a definition ---------------------------------------------------------------------------------


def test_what_is_hashed_is_what_is_built_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    (folder / "sub").mkdir(parents=True, mode=0o700)
    (folder / "image.yml").write_text("name: a\n")
    (folder / "sub/run.sh").write_text("#!/bin/sh\n")
    (folder / "sub/run.sh").chmod(0o700)
    (folder / "data").write_bytes(b"\xff\x00")
    (folder / "data").chmod(0o600)
    files = read_definition(folder, shown="images/a")
    assert (set(files.files), files.executable) == ({"sub/run.sh", "data"}, frozenset({"sub/run.sh"}))
    files.write_context(tmp_path / "context")
    modes = {
        path.relative_to(tmp_path / "context").as_posix(): path.stat().st_mode & 0o777
        for path in (tmp_path / "context").rglob("*")
    }
    assert modes == {"sub": 0o755, "sub/run.sh": 0o755, "data": 0o644}
    assert (tmp_path / "context/data").read_bytes() == b"\xff\x00"


def test_what_is_no_plain_file_is_a_fault_and_all_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    (folder / "sub").mkdir(parents=True)
    (folder / "image.yml").write_text("name: a\n")
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "sub/folder").symlink_to("/etc")
    with pytest.raises(BadInput) as caught:
        read_definition(folder, shown="images/a")
    assert [fault.file for fault in caught.value.faults] == ["images/a/link", "images/a/sub/folder"]


# --- the command ---------------------------------------------------------------------------------------------------


def command(stand: Stand, *words: str) -> str:
    result = CliRunner().invoke(bedplate, ["--site", str(stand.root), "image", *words], catch_exceptions=False)
    return result.stdout


def test_the_command_says_what_it_did_and_what_is_next(stand: Stand) -> None:
    assert json.loads(command(stand, "show", "A", "--json"))["next"] == "build"
    assert command(stand, "build", "A").startswith("built image lab-small: sha256:")
    assert command(stand, "build", "A").endswith("(nothing to do)\n")
    assert "next\tbedplate image push A" in command(stand, "show", "A")
    assert json.loads(command(stand, "push", "A", "--json"))["record"]["pushed_at"]
    assert command(stand, "import", "A").startswith("imported image lab-small: sha256:")
    assert "next\tbedplate lock A, then bedplate image place A" in command(stand, "show", "A")
    (stand.root / "images/a/new").touch()
    assert "changed since it was built" in command(stand, "show", "A")
    assert json.loads(command(stand, "show", "A", "--json"))["next"] == "build"
