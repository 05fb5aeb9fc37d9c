"""Locking an environment of a small site: a signed archive over HTTP, a registry, build records, the ledger."""

import contextlib
import fcntl
import functools
import json
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bedplate.act import image as images
from bedplate.act import lock as locks
from bedplate.cli.main import bedplate
from bedplate.decide.buildrecord import Base, Builder, BuildRecord, Squashfs, record_text
from bedplate.decide.lockdoc import lock_text, parse_lock
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import identity
from bedplate.model.faults import BadInput, Busy, Fault, Refused
from bedplate.sources import checkout
from bedplate.sources.files import write_whole
from bedplate.sources.registry import DOCKER_MANIFEST, Registry
from bedplate.sources.site import Site, open_site
from unit.apt_archive import Key, StubArchive
from unit.lock_sample import digest, document, parsed, set_at
from unit.plugin_sample import shared_object
from unit.registryd import Shelf, registry

pytestmark = pytest.mark.slow  # every test starts programs

FLEET = """\
plugin: bedplate
site: test
ledger: sqlite:///ledger.sqlite3
ssh: {user: root, known_hosts: known_hosts, identity_file: /root/.ssh/id_ed25519, port: 22}
networks:
  management: {cidr: 10.77.0.0/24, addresses: {"n[1-2]": 10.77.0.11}}
  bmc: {cidr: 10.78.0.0/24}
kinds:
  gpu: {model: lab-gpu8, architecture: amd64}
racks: {r01: {positions: 42}}
groups:
  training: {nodes: "n[1-2]", kind: gpu, partition: training}
"""
NODES = """\
name,serial,boot_mac,nic_macs,bmc_address,rack,position
n1,LAB-1,02:00:00:00:00:01,02:00:00:00:01:01 02:00:00:00:01:02,10.78.0.11,r01,1
n2,LAB-2,02:00:00:00:00:02,02:00:00:00:02:01 02:00:00:00:02:02,10.78.0.12,r01,2
"""
ENVIRONMENT = """\
environment: A
description: Driver 570
kinds: [gpu]
archive: {url: "URL", suite: a, components: [main], key: keys/archive.asc}
layers:
  hardware: {models: [lab-gpu8]}
  firmware: {unmanaged: no firmware here}
  os: {distribution: debian, release: trixie, packages: {tuning-profiles: "1.0"}}
  kernel: {unmanaged: no kernel here}
  driver:
    packages:
      nvidia-driver-570-open: "570.133.20"
  fabric: {unmanaged: no fabric here}
  container: {unmanaged: no containers here}
  scheduler: {unmanaged: no scheduler here}
  image: {unmanaged: no image here}
  code: {unmanaged: no code here}
  config: {values: {nccl_debug: WARN}}
  launch: {unmanaged: no launch here}
rollout: {canary: 1, small: 2, batch: 4, failure_budget: 1}
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory, key: Key) -> StubArchive:
    made = StubArchive(tmp_path_factory.mktemp("archive"))
    made.add("nvidia-driver-570-open", "570.133.20-0ubuntu1", depends="libnvidia-compute-570 (>= 570.133.20)")
    made.add("libnvidia-compute-570", "570.133.20-0ubuntu1")
    made.add("tuning-profiles", "1.0", arch="all")
    made.publish(key)
    return made


@pytest.fixture
def archive(tmp_path: Path, pristine: StubArchive) -> StubArchive:
    """The test's own copy."""
    return StubArchive(shutil.copytree(pristine.root, tmp_path / "archive"))


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site without archive, and a checkout."""
    root, checkout = tmp_path / "site", tmp_path / "checkout"
    for folder in (root / "environments", root / "keys", root / "models", checkout / "roles/base/templates/sub"):
        folder.mkdir(parents=True)
    (checkout / "roles/base/templates/nccl.conf.j2").write_text("NCCL_DEBUG={{ values.nccl_debug }}\n")
    (checkout / "roles/base/templates/sub/deep.j2").write_text("deep\n")
    (checkout / "roles/base/files.yml").write_text("[]\n")
    (checkout / "roles/base/other.yml").write_text("not part of a lock\n")
    monkeypatch.setenv("BEDPLATE_CHECKOUT", str(checkout))
    (root / "fleet.yml").write_text(FLEET)
    (root / "nodes.csv").write_text(NODES)
    return open_site(root)


@pytest.fixture
def site(bare: Site, archive: StubArchive, key: Key) -> Iterator[Site]:
    """A site with environment A, not locked yet."""
    (bare.root / "keys/archive.asc").write_bytes(key.public)
    with serving(archive.root) as url:
        bare.environment_path("A").write_text(ENVIRONMENT.replace("URL", url))
        yield bare


def edit(site: Site, old: str, new: str) -> Site:
    """Change A.yml, and open the site again."""
    path = site.environment_path("A")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return open_site(site.root)


def lock(site: Site) -> locks.Written:
    return locks.write(site, locks.resolve(site, "A"))


def events(site: Site) -> list[Any]:
    with contextlib.closing(Ledger.read(site.ledger_url)) as ledger:
        return list(ledger.events())


def faults(site: Site) -> list[str]:
    with pytest.raises(BadInput) as caught:
        locks.resolve(site, "A")
    assert not events(site)
    assert not site.lock_path("A").exists()
    return [str(fault) for fault in caught.value.faults]


def bedplate_says(site: Site, *words: str) -> Result:
    return CliRunner().invoke(bedplate, ["--site", str(site.root), *words], standalone_mode=False)


# --- resolving ------------------------------------------------------------------------------------


def test_a_lock_holds_asked_packages_their_closure_and_the_configuration(site: Site) -> None:
    found = locks.resolve(site, "A")
    packages = found.packages("gpu")
    assert {name: (p.version, p.layer, p.asked) for name, p in packages.items()} == {
        "libnvidia-compute-570": ("570.133.20-0ubuntu1", "driver", False),
        "nvidia-driver-570-open": ("570.133.20-0ubuntu1", "driver", True),
        "tuning-profiles": ("1.0", "os", True),
    }
    assert sorted(found.templates) == [
        "roles/base/files.yml", "roles/base/templates/nccl.conf.j2", "roles/base/templates/sub/deep.j2",
    ]  # fmt: skip
    assert found.values == {"nccl_debug": "WARN"}
    assert found.kinds == {"gpu": {"model": "lab-gpu8", "architecture": "amd64"}}
    assert found.spec_sha256 == site.environment("A").spec_sha256
    assert found.unmanaged("image") == "no image here"
    assert not site.lock_path("A").exists(), "resolving writes nothing"


def test_every_fault_is_told_at_once_at_the_line_that_asked(site: Site) -> None:
    changed = edit(site, '"570.133.20"', '"580.1"')
    changed = edit(changed, 'tuning-profiles: "1.0"', 'tuning-profile: "1.0"')
    changed = edit(changed, "kinds: [gpu]", "kinds: [gpu, login]")
    text = changed.environment_path("A").read_text().splitlines()
    found = faults(changed)
    assert len(found) == 3
    for words, line in (
        (["no version 580.1", "570.133.20-0ubuntu1"], '      nvidia-driver-570-open: "580.1"'),
        (["no such package", "tuning-profiles"], text[7]),
        (['no kind "login"', "known: gpu"], "kinds: [gpu, login]"),
    ):
        place = f"A.yml:{text.index(line) + 1}: "
        assert any(place in fault and all(word in fault for word in words) for fault in found), (place, found)


def test_packages_that_conflict_are_a_fault_in_the_words_of_apt(site: Site, archive: StubArchive, key: Key) -> None:
    archive.add("mft", "1.0", conflicts="tuning-profiles")
    archive.publish(key)
    (found,) = faults(edit(site, 'tuning-profiles: "1.0"', 'tuning-profiles: "1.0", mft: "1.0"'))
    assert "Conflicts: tuning-profiles" in found


def test_an_archive_of_another_key_is_a_fault(site: Site, tmp_path: Path) -> None:
    other = Key(tmp_path / "other")
    other.close()
    (site.root / "keys/archive.asc").write_bytes(other.public)
    (found,) = faults(site)
    assert "is not signed by the site's key" in found
    assert "A.yml:4: archive.url" in found


def test_a_missing_key_is_a_fault(site: Site) -> None:
    (site.root / "keys/archive.asc").unlink()
    (found,) = faults(site)
    assert "keys/archive.asc cannot be read: No such file" in found


def test_an_unreachable_archive_is_a_fault(site: Site) -> None:
    (found,) = faults(edit(site, "http://127.0.0.1:", "http://127.0.0.1:1/"))
    assert "cannot be reached" in found


PLUGINS = "usr/lib/x86_64-linux-gnu/slurm"


@pytest.fixture
def with_plugins(site: Site, archive: StubArchive, key: Key) -> Site:
    """An environment with Slurm 25.05, Pyxis for it, and plug-ins of the site for whichever Slurm."""
    fitting = shared_object(0x190504)
    archive.add("slurmd", "25.05.1-1")
    archive.add("nvslurm-plugin-pyxis", "0.24.0-1", files={f"{PLUGINS}/spank_pyxis.so": fitting})
    for version, files in {
        "1": {"lua.so": fitting, "tuning.so": fitting}, "2": {"lua.so": fitting, "tuning.so": shared_object(0x180B05)},
        "3": {"lua.so": b"#!/bin/sh"}, "4": {},
    }.items():  # fmt: skip
        archive.add("site-plugins", version, files={f"{PLUGINS}/{name}": data for name, data in files.items()})
    archive.publish(key)
    asks = '{packages: {slurmd: "25.05.1", nvslurm-plugin-pyxis: "0.24.0", site-plugins: "1"}}'
    return edit(site, "{unmanaged: no scheduler here}", asks)


def test_a_lock_says_for_which_slurm_each_plug_in_was_built(with_plugins: Site) -> None:
    assert locks.resolve(with_plugins, "A").facts("gpu") == {"spank_abi": "25.05", "spank_abi site-plugins": "25.05"}
    without = edit(with_plugins, 'site-plugins: "1"', 'site-plugins: "4"')
    assert locks.resolve(without, "A").facts("gpu") == {"spank_abi": "25.05"}


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (
            "2",
            "SPANK-ABI: scheduler site-plugins 2 has plug-ins for Slurm 24.11, 25.05, and scheduler slurmd 25.05.1-1",
        ),
        ("3", "site-plugins_3_amd64.deb: lua.so: no ELF file that can be read"),
    ],
)
def test_a_plug_in_of_another_slurm_is_not_locked(with_plugins: Site, version: str, told: str) -> None:
    (found,) = faults(edit(with_plugins, 'site-plugins: "1"', f'site-plugins: "{version}"'))
    assert told in found


# --- the image ------------------------------------------------------------------------------------


@dataclass
class Built:
    """A site whose environment asks for an image, with the image's build record and a registry that has it."""

    site: Site
    shelf: Shelf
    record: BuildRecord

    def save(self, **changes: Any) -> None:
        self.record = replace(self.record, **changes)
        (self.site.builds_path / "lab-small.json").write_text(record_text(self.record))


@pytest.fixture
def built(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Built]:
    folder = site.root / "images/a"
    folder.mkdir(parents=True)
    site.builds_path.mkdir()
    (folder / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    monkeypatch.setattr(locks, "Registry", functools.partial(Registry, auth=[], plain_http=True))
    with registry() as shelf:
        base = f"base: {{reference: {shelf.address}/base/debian, digest: '{digest('7')}'}}"
        (folder / "image.yml").write_text(f"name: lab-small\nrepository: {shelf.address}/lab/small\n{base}\n")
        asks = edit(site, "image: {unmanaged: no image here}", "image: {definition: images/a}")
        manifest = {"mediaType": DOCKER_MANIFEST, "config": {"digest": digest("6")}, "layers": []}
        record = BuildRecord(
            name="lab-small", definition_sha256=images.definition_sha256(asks, "images/a"),
            repository=f"{shelf.address}/lab/small",
            base=Base(f"{shelf.address}/base/debian", digest("7"), digest("7")),
            builder=Builder("buildah", "1", {"skopeo": "1"}), index_digest=None, manifest_digest=shelf.put(manifest),
            config_digest=digest("6"), media_type=DOCKER_MANIFEST, built_at="2026-11-02T09:14:03Z",
            pushed_at="2026-11-02T09:15:03Z", imported_at="2026-11-02T09:16:03Z",
            squashfs=Squashfs(digest("8"), 9, f"artifacts/sha256-{'8' * 64}.sqsh", "t", "o", "docker://x#lab/small"),
        )  # fmt: skip
        made = Built(asks, shelf, record)
        made.save()
        yield made


def image_faults(site: Site) -> list[str]:
    """Of the image alone: apt need not be asked for each case."""
    found: list[Fault] = []
    locks._image(site, site.environment("A"), found)
    return [str(fault) for fault in found]


def test_a_lock_takes_the_image_from_its_build_record(built: Built) -> None:
    image = locks.resolve(built.site, "A").image
    assert image is not None
    assert image.reference == f"{built.shelf.address}/lab/small@{built.record.manifest_digest}"
    assert (image.config_digest, image.base_digest, image.squashfs_sha256) == (digest("6"), digest("7"), digest("8"))
    assert image.build_record_sha256 == identity(json.loads(record_text(built.record)))


def test_a_lock_says_which_versions_the_build_found_in_the_image(built: Built) -> None:
    built.save(versions={"torch": "2.13.0a0+8145d630e8"})
    found = locks.resolve(built.site, "A")
    assert found.image is not None
    assert found.image.versions == found.document["image"]["versions"] == {"torch": "2.13.0a0+8145d630e8"}


def test_an_image_imported_again_to_the_same_bytes_is_no_change(built: Built) -> None:
    written = lock(built.site)
    assert locks.verify_online(built.site, "A") == []
    built.save(imported_at="2026-11-03T09:16:03Z")
    assert lock(open_site(built.site.root)).lock == written.lock


@pytest.mark.parametrize(
    ("changes", "said", "command"),
    [
        (None, "was never built", "bedplate image build A"),
        ({"definition_sha256": digest("0")}, "was built from images/a as it was", "bedplate image build A"),
        ({"pushed_at": None, "imported_at": None, "squashfs": None}, "not pushed", "bedplate image push A"),
        ({"imported_at": None, "squashfs": None}, "not imported", "bedplate image import A"),
        ({"manifest_digest": digest("0")}, "is not in the registry", "bedplate image push"),
        ({"config_digest": digest("0")}, f"has config {digest('6')} in the registry", "build it again"),
    ],
)
def test_an_image_that_is_not_complete_names_the_command_to_run(
    built: Built, changes: dict[str, Any] | None, said: str, command: str
) -> None:
    if changes is None:
        (built.site.builds_path / "lab-small.json").unlink()
    else:
        built.save(**changes)
    (found,) = image_faults(built.site)
    assert "lab-small.json: image lab-small " in found
    assert said in found
    assert command in found


def test_a_damaged_build_record_is_a_fault(built: Built) -> None:
    (built.site.builds_path / "lab-small.json").write_text("{")
    (found,) = image_faults(built.site)
    assert "lab-small.json" in found


def test_a_file_added_to_the_definition_makes_the_record_old(built: Built) -> None:
    (built.site.root / "images/a/extra").write_text("x")
    (found,) = image_faults(built.site)
    assert "as it was" in found


def test_faults_of_packages_and_image_come_together(built: Built) -> None:
    built.save(pushed_at=None, imported_at=None, squashfs=None)
    assert len(faults(edit(built.site, '"570.133.20"', '"580.1"'))) == 2


def test_a_registry_that_lost_the_image_is_a_fault_of_verification(built: Built) -> None:
    lock(built.site)
    built.shelf.manifests.clear()
    (found,) = locks.verify_online(built.site, "A")
    assert "image lab-small is not in the registry" in str(found)


# --- writing --------------------------------------------------------------------------------------

FOUND_AGAIN = set_at(document(), "archive/inrelease_sha256", digest("f"))  # the same bytes, archive signed anew
OTHER = set_at(document(), "packages/gpu/libnuma1/version", "2.0.19-1")


def test_the_first_lock_is_recorded_and_written(bare: Site) -> None:
    written = locks.write(bare, parsed())
    assert (written.outcome, written.previous) == (locks.Outcome.NEW, None)
    (event,) = events(bare)
    assert (event.kind, event.subjects) == ("lock.resolved", ("environment:A",))
    assert event.environment == parsed().identity
    assert event.body == {
        "environment": "A", "identity": parsed().identity, "document": document(),
        "bedplate": dict(checkout.itself()),
    }  # fmt: skip
    assert bare.lock("A") == parsed()
    assert written.path.read_text() == lock_text(document())


def test_locking_a_site_twice_changes_nothing(site: Site) -> None:
    first, again = lock(site), lock(open_site(site.root))
    assert (again.outcome, again.lock, again.previous) == (locks.Outcome.UNCHANGED, first.lock, None)
    assert len(events(site)) == 1


def test_an_archive_signed_anew_with_the_same_packages_is_no_change(bare: Site) -> None:
    locks.write(bare, parsed())
    again = locks.write(bare, parsed(FOUND_AGAIN))
    assert (again.outcome, again.lock) == (locks.Outcome.UNCHANGED, parsed())
    assert len(events(bare)) == 1


def test_a_change_of_what_the_ledger_knows_is_refused_and_shown(bare: Site) -> None:
    locks.write(bare, parsed())
    with pytest.raises(Refused) as caught:
        locks.write(bare, parsed(OTHER))
    assert f"A was locked as {parsed().identity} at 2" in str(caught.value)
    assert "copy A.yml to a new name" in str(caught.value)
    assert "os package libnuma1: 2.0.18-1+b1 -> 2.0.19-1" in str(caught.value)
    assert bare.lock("A") == parsed()
    assert len(events(bare)) == 1


def test_another_question_with_the_same_answer_is_refused(bare: Site) -> None:
    locks.write(bare, parsed())
    with pytest.raises(Refused, match="asks in another way, for the same bytes"):
        locks.write(bare, parsed(set_at(document(), "spec_sha256", digest("f"))))


def test_a_missing_or_edited_file_is_written_again_from_the_ledger(bare: Site) -> None:
    path = locks.write(bare, parsed()).path
    for damage in (path.unlink, lambda: path.write_text("{}"), lambda: path.write_bytes(b"\xff")):
        damage()
        again = locks.write(bare, parsed(FOUND_AGAIN))
        assert (again.outcome, again.lock, again.previous) == (locks.Outcome.RESTORED, parsed(), None)
        assert bare.lock("A") == parsed()


def test_an_edit_that_is_a_lock_of_its_own_is_undone_and_shown(bare: Site) -> None:
    path = locks.write(bare, parsed()).path
    path.write_text(lock_text(OTHER))
    again = locks.write(bare, parsed())
    assert (again.outcome, again.previous) == (locks.Outcome.RESTORED, parsed(OTHER))


def test_a_run_killed_between_ledger_and_file_is_finished_by_the_next(
    bare: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(locks, "write_whole", killed)
    with pytest.raises(KeyboardInterrupt):
        locks.write(bare, parsed())
    assert len(events(bare)) == 1
    assert not bare.lock_path("A").exists()
    monkeypatch.setattr(locks, "write_whole", write_whole)
    assert locks.write(bare, parsed(FOUND_AGAIN)).outcome is locks.Outcome.RESTORED
    assert bare.lock("A").identity == events(bare)[0].environment


def test_a_lock_file_from_elsewhere_with_the_same_bytes_is_recorded_as_it_is(bare: Site) -> None:
    bare.lock_path("A").write_text(lock_text(document()))
    written = locks.write(bare, parsed(FOUND_AGAIN))
    assert (written.outcome, written.lock) == (locks.Outcome.RECORDED, parsed())
    assert events(bare)[0].environment == parsed().identity


def test_a_lock_file_that_no_ledger_knows_is_replaced_and_shown(bare: Site) -> None:
    bare.lock_path("A").write_text(lock_text(OTHER))
    written = locks.write(bare, parsed())
    assert (written.outcome, written.lock, written.previous) == (locks.Outcome.NEW, parsed(), parsed(OTHER))


def test_two_writers_take_turns(bare: Site) -> None:
    handle = os.open(bare.root / "environments", os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        with pytest.raises(Busy, match="another process is writing"):
            locks.write(bare, parsed())
    finally:
        os.close(handle)
    assert locks.write(bare, parsed()).outcome is locks.Outcome.NEW


def test_a_changed_environment_file_makes_its_lock_stale(bare: Site) -> None:
    bare.environment_path("A").write_text(ENVIRONMENT.replace("URL", "http://archive.lab:8080/"))
    site = open_site(bare.root)
    held = parsed(set_at(document(), "spec_sha256", site.environment("A").spec_sha256))
    locks.refuse_stale(site, site.environment("A"), held)
    described = edit(site, "Driver 570", "The driver of the first half year")
    locks.refuse_stale(described, described.environment("A"), held)
    changed = edit(site, "nccl_debug: WARN", "nccl_debug: INFO")
    with pytest.raises(Refused, match=r"A\.yml is not what A was locked from"):
        locks.refuse_stale(changed, changed.environment("A"), held)


# --- still there? ---------------------------------------------------------------------------------


def test_what_was_locked_is_still_in_the_archive(site: Site, archive: StubArchive, key: Key) -> None:
    lock(site)
    archive.add("libnvidia-compute-570", "570.172.08-0ubuntu1")  # newer ones do not matter
    archive.publish(key)
    assert locks.verify_online(site, "A") == []


def test_what_was_locked_and_is_gone_or_other_bytes_is_a_fault(site: Site, archive: StubArchive, key: Key) -> None:
    lock(site)
    (archive.root / "pool/tuning-profiles_1.0_all.deb").unlink()
    (archive.root / "pool/libnvidia-compute-570_570.133.20-0ubuntu1_amd64.deb").unlink()
    shutil.rmtree(archive.root / "trees/libnvidia-compute-570_570.133.20-0ubuntu1")
    archive.add("libnvidia-compute-570", "570.133.20-0ubuntu1", provides="other-bytes")
    archive.publish(key)
    found = [str(fault) for fault in locks.verify_online(site, "A")]
    assert len(found) == 2
    assert any("tuning-profiles 1.0 sha256:" in fault and "it has no version" in fault for fault in found)
    assert any("libnvidia-compute-570" in fault and "it has that version as sha256:" in fault for fault in found)


def test_a_closure_that_needs_more_than_the_lock_has_is_refused_with_the_difference(
    site: Site, archive: StubArchive, key: Key
) -> None:
    written = lock(site)
    archive.add("nvidia-firmware-570", "570.133.20-0ubuntu1")
    archive.publish(key)
    less = json.loads(lock_text(written.lock.document))
    assert locks.verify_online(site, "A") == []
    del less["packages"]["gpu"]["libnvidia-compute-570"]  # what the driver depends on
    site.lock_path("A").write_text(lock_text(less))
    (found,) = locks.verify_online(open_site(site.root), "A")
    assert "no longer resolves to the lock: libnvidia-compute-570 absent -> 570.133.20-0ubuntu1" in str(found)


def test_an_environment_without_a_lock_needs_what_it_asks_for(site: Site) -> None:
    (found,) = locks.verify_online(edit(site, '"570.133.20"', '"580.1"'), "A")
    assert "no version 580.1" in str(found)


def test_an_archive_that_is_gone_is_a_fault_of_verification(site: Site) -> None:
    written = lock(site)
    document = json.loads(lock_text(written.lock.document))
    document["archive"]["url"] = "http://127.0.0.1:1/"
    site.lock_path("A").write_text(lock_text(document))
    (found,) = locks.verify_online(site, "A")
    assert "cannot be reached" in str(found)


# --- the commands ---------------------------------------------------------------------------------


def test_the_command_says_identity_packages_and_image(site: Site) -> None:
    said = bedplate_says(site, "lock", "A")
    identity = site.lock("A").identity
    assert said.exit_code == 0
    assert said.output.splitlines()[0] == f"A {identity}"
    assert "gpu: 3 packages, 2 asked for and 1 that these need" in said.output
    assert "image: unmanaged: no image here" in said.output
    again = json.loads(bedplate_says(site, "lock", "A", "--json").output)
    assert again["outcome"] == "unchanged"
    assert again["identity"] == identity
    assert again["packages"] == {"gpu": 3}


def test_the_command_shows_what_changed_in_the_file(site: Site) -> None:
    site.lock_path("A").write_text(lock_text(locks.resolve(site, "A").document))
    said = bedplate_says(edit(site, "nccl_debug: WARN", "nccl_debug: INFO"), "lock", "A")
    assert "the file held another lock before" in said.output
    assert "config: value nccl_debug: WARN -> INFO" in said.output


def test_faults_end_the_command_as_bad_input(site: Site) -> None:
    said = bedplate_says(edit(site, '"570.133.20"', '"580.1"'), "lock", "A")
    assert isinstance(said.exception, BadInput)


@pytest.fixture
def two(bare: Site) -> Site:
    """A site with A and B locked."""
    other = set_at(set_at(document(), "config/values/nccl_debug", "INFO"), "environment", "B")
    for made in (document(), other):
        locks.write(bare, parsed(made))
    return bare


def test_two_environments_differ_by_layer_with_exit_code_5(two: Site) -> None:
    said = bedplate_says(two, "diff", "A", "B")
    assert said.return_value == 5
    assert "driver: the same (1 items)" in said.output
    assert "kernel: unmanaged: no kernel here" in said.output
    assert "config: 1 differ, 2 the same\n  value nccl_debug: WARN -> INFO" in said.output


def test_an_environment_equals_itself_by_name_file_and_identity(two: Site) -> None:
    identity = two.lock("A").identity
    for word in ("A", str(two.lock_path("A")), identity, identity[:19]):
        said = bedplate_says(two, "diff", "A", word)
        assert said.return_value == 0, word
        assert "the nodes get the same bytes" in said.output


def test_a_comparison_as_json_has_all_twelve_layers(two: Site) -> None:
    said = json.loads(bedplate_says(two, "diff", "A", "B", "--json").output)
    assert len(said["layers"]) == 12
    assert said["differences"] == 1
    assert said["a"] == {"environment": "A", "identity": two.lock("A").identity}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("sha256:123", "too short"),
        ("sha256:" + "0" * 64, "is the identity of no lock"),
        ("C", r'no environment "C" \(there: A, B\)'),
        ("./none.lock.json", "cannot be read"),
    ],
)
def test_a_word_that_names_no_lock_is_bad_input(two: Site, word: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        locks.find(two, word)


def test_a_lock_known_to_the_ledger_is_found_without_its_file(two: Site) -> None:
    lock = two.lock("A")
    two.lock_path("A").unlink()
    assert locks.find(two, lock.identity) == lock
    assert parse_lock(lock_text(lock.document), "lock") == lock
