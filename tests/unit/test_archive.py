"""The archive with real aptly and gpg, against upstream archives on a local web server."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bedplate.act.archive import add as adding
from bedplate.act.archive import collect as collecting
from bedplate.act.archive import state as standing
from bedplate.act.archive import verify as verifying
from bedplate.act.archive.place import working
from bedplate.act.archive.suite import Damaged
from bedplate.cli.main import main
from bedplate.decide.lockdoc import lock_text
from bedplate.ledger.store import Ledger
from bedplate.ledger.story import summary
from bedplate.model.archive import Kind, parse_archive
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput, Busy, Refused
from bedplate.process import ProcessFailed
from bedplate.sources import checkout
from bedplate.sources.apt import Source, open_archive
from bedplate.sources.aptly import Aptly
from bedplate.sources.files import write_whole
from bedplate.sources.signature import secret_key
from unit.apt_archive import Key, StubArchive
from unit.archive_sample import Broken, Sample, sample
from unit.lock_sample import document
from unit.site_sample import replace_in

pytestmark = pytest.mark.slow

LATER = datetime.now(UTC) + timedelta(days=60)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Key, Key]]:
    made = Key(tmp_path_factory.mktemp("k") / "up"), Key(tmp_path_factory.mktemp("k") / "own")
    yield made
    for key in made:
        key.close()


@contextmanager
def short() -> Iterator[Path]:
    """A directory for gpg: pytest's own may be too long for the sockets of an agent."""
    with tempfile.TemporaryDirectory(prefix="bp-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def once(keys: tuple[Key, Key]) -> Iterator[tuple[Sample, Broken]]:
    """Suite A with driver 580.1; then upstream moves to 580.2 alone, and suite B has that."""
    with short() as place, sample(place / "s", *keys) as (made, broken):
        made.mirror()
        made.freeze("A")
        made.publish("A")
        (made.cuda.root / "pool/nvidia-driver_580.1-1_amd64.deb").unlink()
        made.cuda.add("nvidia-driver", "580.2-1", depends="tool (>= 1.0)")
        made.sign()
        made.mirror()
        made.freeze("B")
        made.publish("B")
        yield made, broken


@pytest.fixture
def own(keys: tuple[Key, Key]) -> Iterator[tuple[Sample, Broken]]:
    """The test's own, with nothing mirrored yet."""
    with short() as place, sample(place / "s", *keys) as made:
        yield made


def _keep(source: str, target: str) -> None:
    """Packages are linked: no test writes into one."""
    (os.link if source.endswith(".deb") else shutil.copy2)(source, target)


@pytest.fixture
def two(once: tuple[Sample, Broken], tmp_path: Path) -> Iterator[Sample]:
    """Suites A and B, for a test to damage: put back afterwards as they were."""
    made = once[0]
    shutil.copytree(made.directory, tmp_path / "copy", copy_function=_keep)
    shutil.copytree(made.site.root, tmp_path / "site")
    yield made
    for path, copy in ((made.directory, tmp_path / "copy"), (made.site.root, tmp_path / "site")):
        shutil.rmtree(path)
        copy.rename(path)


def versions(made: Sample, suite: str, name: str) -> list[str]:
    source = Source(f"file:{made.public}", suite, ("main",), made.key.public)
    with open_archive(source, "amd64") as archive:
        return archive.versions(name)


def overwrite(path: Path, data: bytes) -> None:
    """Other bytes in a file of its own: what is linked elsewhere stays."""
    path.unlink()
    path.write_bytes(data)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    overwrite(path, bytes(data))


def lock_of(made: Sample, suite: str, digest: str | None = None) -> dict[str, Any]:
    """A lock as `bedplate lock` would make it of a suite; digest: another InRelease."""
    source = Source(f"file:{made.public}", suite, ("main",), made.key.public)
    with open_archive(source, "amd64") as archive:
        record = archive.records("nvidia-driver")[0]
        inrelease = digest or archive.inrelease_sha256
    found = document()
    found["archive"] |= {"suite": suite, "inrelease_sha256": inrelease}
    package = found["packages"]["gpu"]["nvidia-driver-570-open"] | {"version": record.version, "sha256": record.sha256}
    found["packages"] = {"gpu": {"nvidia-driver": package}}
    return found


def record_lock(made: Sample, found: dict[str, Any]) -> None:
    with Ledger.open(made.site.ledger_url) as ledger:
        ledger.append(Draft("lock.resolved", ("environment:X",), {"environment": "X", "document": found}, None))


# --- mirror, freeze, publish ----------------------------------------------------------------------


def test_a_mirror_holds_what_its_filter_lets_through(once: tuple[Sample, Broken]) -> None:
    made, _ = once
    assert versions(made, "A", "nvidia-driver") == ["580.1-1"]
    assert versions(made, "A", "dkms") == ["3.0.11"], "that of cuda is excluded"
    assert versions(made, "A", "mft") == []


def test_two_suites_lie_side_by_side_with_a_version_each(once: tuple[Sample, Broken]) -> None:
    made, _ = once
    assert (versions(made, "A", "nvidia-driver"), versions(made, "B", "nvidia-driver")) == (["580.1-1"], ["580.2-1"])
    for suite, version in (("A", "580.1-1"), ("B", "580.2-1")):
        with open_archive(Source(f"file:{made.public}", suite, ("main",), made.key.public), "amd64") as archive:
            answer = archive.resolve({"nvidia-driver": version})
            assert not answer.problems
            assert {name: record.version for name, record in answer.packages.items()} == {
                "nvidia-driver": version, "tool": "1.0",
            }  # fmt: skip
            for record in answer.packages.values():
                assert (made.public / record.filename).stat().st_size == record.size
    assert not verifying.verify(made.site).findings


def test_what_is_published_can_be_read_by_a_web_server_whatever_the_umask(own: tuple[Sample, Broken]) -> None:
    made, _ = own
    before = os.umask(0o077)
    try:
        made.mirror()
        made.freeze("A")
        made.publish("A")
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    modes = {path.is_dir(): path.stat().st_mode & 0o777 for path in made.public.rglob("*")}
    assert modes == {True: 0o755, False: 0o644}
    assert (made.directory / "gnupg").stat().st_mode & 0o777 == 0o700


def test_the_examples_filters_are_aptlys_and_let_two_branches_through(tmp_path: Path) -> None:
    mirrors = parse_archive((checkout.root() / "inventory/archive.yml").read_text(), "archive.yml").mirrors
    stubs = StubArchive(tmp_path / "stubs")
    wanted = [
        ("nvidia-driver-580-open", "580.178.04-1ubuntu1"), ("libnvidia-compute-580", "580.178.04-1ubuntu1"),
        ("nvidia-fabricmanager", "580.178.04-1"), ("nvidia-driver-open", "595.91.07-1ubuntu1"),
        ("nvidia-open", "595.91.07-1"),
        ("libnvsdm", "595.91.07-1"), ("nvlink5-580", "580.178.04-1"), ("nvlsm", "2025.10.14-1"),
        ("datacenter-gpu-manager-4-cuda13", "1:4.6.0-1"),
    ]  # fmt: skip
    others = [
        ("nvidia-driver-575-open", "575.57.08-1"), ("nvidia-fabricmanager", "615.71.09-1"),
        ("nvidia-open", "615.71.09-1"), ("dkms", "1:3.4.1-1ubuntu1"), ("nvidia-settings", "580.178.04-1"),
        ("libxnvctrl0", "580.178.04-1"), ("mft", "4.30.0-1"), ("libnvidia-egl-wayland1", "1:1.1.20"),
        ("libnvidia-container1", "1.20.0-1"), ("nvidia-container-toolkit", "1.20.0-1"),
        ("cuda-toolkit-13-0", "13.0.0-1"),
    ]  # fmt: skip
    for name, version in [*wanted, *others]:
        stubs.add(name, version)
    (tmp_path / "aptly").mkdir()
    aptly = Aptly(tmp_path / "aptly", tmp_path / "gnupg", ("amd64",))
    aptly.run("repo", "create", "all")
    aptly.run("repo", "add", "all", stubs.root / "pool")

    def through(name: str) -> list[tuple[str, str]]:
        out = aptly.run("repo", "search", "-format={{.Package}} {{.Version}}", "all", mirrors[name].query).out
        return [(package, version) for package, version in (line.split() for line in out.splitlines())]

    assert sorted(through("nvidia-cuda")) == sorted(wanted)
    assert not [name for name, _ in through("ubuntu") if name.startswith(("nvidia-", "libnvidia-"))]


def test_a_name_once_used_is_never_changed_and_the_refusal_says_what_it_holds(once: tuple[Sample, Broken]) -> None:
    made, _ = once
    before = made.public.joinpath("dists/A/InRelease").read_bytes()
    with pytest.raises(
        Refused, match=r"snapshot A was made at .* 3 packages \(2 of base a, 1 of cuda a, 0 of incoming"
    ):
        made.freeze("A")
    with pytest.raises(Refused, match=r"suite A was published .* from snapshot A and is never changed"):
        made.publish("A", "B")
    again = made.publish("A")
    assert not again.did
    assert made.public.joinpath("dists/A/InRelease").read_bytes() == before


def test_every_act_is_told_in_the_ledger(once: tuple[Sample, Broken]) -> None:
    made, _ = once
    with Ledger.read(made.site.ledger_url) as ledger:
        told = {event.kind: summary(event) for event in ledger.events(kinds=None)}
    assert "cuda a 1" in told["archive.mirrored"]
    assert told["archive.snapshot"].startswith("B: 3 packages")
    assert told["archive.published"].startswith("B of snapshot B, 3 packages")
    assert [row.name for row in standing.state(made.site) if row.what == "suite"] == ["A", "B"]


def test_a_package_of_two_sources_is_refused_unless_it_is_shared(own: tuple[Sample, Broken]) -> None:
    made, _ = own
    made.definition("    exclude: [dkms]\n", "")
    made.mirror()
    with pytest.raises(BadInput, match=r"dkms: base has 3.0.11; cuda has 1:3.4.1"):
        made.freeze("A")
    made.definition("mirrors:\n", "shared: {dkms: the newer one wins}\nmirrors:\n")
    assert [p.version for p in made.freeze("A").packages if p.name == "dkms"] == ["1:3.4.1", "3.0.11"]


def test_a_flat_archive_is_mirrored_too(own: tuple[Sample, Broken]) -> None:
    made, _ = own
    flat = made.root / "served/flat"
    flat.mkdir()
    shutil.copy(made.cuda.root / "pool/mft_4.30_amd64.deb", flat)
    for name, words in (("Packages", ["packages"]), ("Release", ["release"])):
        done = subprocess.run(["apt-ftparchive", *words, "."], cwd=flat, check=True, capture_output=True, text=True)
        (flat / name).write_text(done.stdout)
    made.upstream_key.sign(flat / "Release")
    entry = f'  flat:\n    url: {made.url}/flat\n    suites: ["/"]\n    components: []\n    key: keys/upstream.asc\n'
    made.definition("mirrors:\n", f"mirrors:\n{entry}")
    made.mirror()
    made.freeze("A")
    made.publish("A")
    assert versions(made, "A", "mft") == ["4.30"]


def test_what_the_team_builds_comes_in_and_a_second_build_of_a_version_does_not(own: tuple[Sample, Broken]) -> None:
    made, _ = own
    builder = StubArchive(made.root / "builder")
    builder.add("enroot", "4.1.2-1")
    incoming = made.directory / "incoming"
    incoming.mkdir(parents=True)
    shutil.copy(builder.root / "pool/enroot_4.1.2-1_amd64.deb", incoming)
    made.mirror()
    assert list(incoming.iterdir()) == []
    made.freeze("A")
    made.publish("A")
    assert versions(made, "A", "enroot") == ["4.1.2-1"]
    other = StubArchive(made.root / "other")
    other.add("enroot", "4.1.2-1", depends="tool")
    shutil.copy(other.root / "pool/enroot_4.1.2-1_amd64.deb", incoming)
    with pytest.raises(BadInput, match="a new build needs a new version"):
        made.mirror("incoming")
    assert len(list(incoming.iterdir())) == 1


def test_a_mirror_signed_by_another_key_is_refused_and_the_others_are_mirrored(own: tuple[Sample, Broken]) -> None:
    made, _ = own
    (made.site.root / "keys/other.asc").write_bytes(made.key.public)
    made.definition("    key: keys/upstream.asc\n  cuda", "    key: keys/other.asc\n  cuda")
    with pytest.raises(BadInput, match=r"mirrors.base: a: ") as caught:
        made.mirror()
    assert len(caught.value.faults) == 1
    assert caught.value.faults[0].line == 9
    with working(made.site, "look") as place:
        assert len(place.aptly.packages("mirror", "cuda@a")) == 1
    with pytest.raises(
        BadInput, match=r"never completed as it is asked for here \(run: bedplate archive mirror base\)"
    ):
        made.freeze("A")


def test_a_download_that_breaks_off_changes_nothing_and_the_next_run_goes_on(own: tuple[Sample, Broken]) -> None:
    made, broken = own
    made.mirror()
    made.cuda.add("nvidia-driver", "580.2-1")
    made.cuda.add("nvidia-utils", "580.2-1")
    made.sign()
    broken.paths.add("nvidia-utils")
    with pytest.raises(BadInput, match=r"mirrors.cuda"):
        made.mirror()
    with working(made.site, "look") as place:
        assert [p.version for p in place.aptly.packages("mirror", "cuda@a")] == ["580.1-1"]
    broken.paths.clear()
    made.mirror()
    assert sorted({p.version for p in made.freeze("A").packages if p.name.startswith("nvidia")}) == [
        "580.1-1",
        "580.2-1",
    ]


def test_a_changed_filter_must_be_mirrored_before_it_is_frozen(own: tuple[Sample, Broken]) -> None:
    made, _ = own
    made.mirror()
    made.definition("Name (% nvidia-*)", "Name (% nvidia-*) | mft")
    with pytest.raises(BadInput, match="cuda: a was never completed"):
        made.freeze("A")
    made.mirror("cuda")
    assert "mft" in {package.name for package in made.freeze("A").packages}


def test_a_publication_that_fails_while_signing_shows_nothing_and_the_next_one_goes_on(
    own: tuple[Sample, Broken], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = own
    made.mirror()
    made.freeze("A")
    # gpg of aptly dies once its indices are written: the suite lies there unsigned, but not where it is served.
    bin_path = made.root / "bin"
    bin_path.mkdir()
    real = shutil.which("gpg")
    (bin_path / "gpg").write_text(f'#!/bin/sh\ncase "$*" in *clearsign*) kill -9 $PPID;; esac\nexec {real} "$@"\n')
    (bin_path / "gpg").chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{bin_path}:{os.environ['PATH']}")
        with pytest.raises(ProcessFailed):
            made.publish("A")
    assert (made.directory / "aptly/public/dists/A").is_dir(), "aptly by itself leaves half a suite"
    assert list((made.public / "dists").iterdir()) == []
    assert made.publish("A").did
    assert versions(made, "A", "tool") == ["1.0"]


def test_a_run_killed_before_the_suite_is_visible_is_finished_with_the_same_bytes(
    own: tuple[Sample, Broken], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = own
    made.mirror()
    made.freeze("A")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", _killed_at("A", Path.rename))
        with pytest.raises(KeyboardInterrupt):
            made.publish("A")
    assert standing_suites(made) == []
    done = made.publish("A")
    assert done.did
    with Ledger.read(made.site.ledger_url) as ledger:
        (event,) = ledger.events(kinds=["archive.published"])
    assert event.body["inrelease_sha256"] == done.inrelease_sha256
    assert not verifying.verify(made.site).findings


def _killed_at(name: str, rename: Any) -> Any:
    def wrapped(path: Path, target: Path) -> Path:
        if Path(target).name == name:
            raise KeyboardInterrupt
        return rename(path, target)  # type: ignore[no-any-return]

    return wrapped


def standing_suites(made: Sample) -> list[str]:
    with working(made.site, "look") as place:
        return place.suites()


def test_a_signing_key_that_is_not_there_or_not_the_sites_is_refused(own: tuple[Sample, Broken]) -> None:
    made, _ = own
    made.mirror()
    made.freeze("A")
    made.definition("user: archive@example.invalid", "user: nobody@example.invalid")
    with pytest.raises(BadInput, match=r"no secret key for nobody@example.invalid"):
        made.publish("A")
    made.definition("user: nobody@example.invalid", "user: archive@example.invalid")
    (made.site.root / "keys/archive.asc").write_bytes(made.upstream_key.public)
    with pytest.raises(BadInput, match=r"keys/archive.asc, which nodes trust, has"):
        made.publish("A")
    (made.site.root / "keys/archive.asc").write_text("no key\n")
    with pytest.raises(BadInput, match=r"keys/archive.asc holds no public key"):
        made.publish("A")


def test_a_keyring_in_too_long_a_path_is_told_as_what_it_is(tmp_path: Path, keys: tuple[Key, Key]) -> None:
    home = tmp_path / ("x" * 100)
    shutil.copytree(keys[1].home, home, ignore=shutil.ignore_patterns("S.*"))
    with pytest.raises(BadInput, match=r"no agent there: its socket S.gpg-agent.browser would have a path of"):
        secret_key(home, "archive@example.invalid")


@pytest.mark.parametrize("word", ["", ".a", "a/b", "-x", "a b", "../x"])
def test_a_name_that_is_no_suite_is_refused(once: tuple[Sample, Broken], word: str) -> None:
    made, _ = once
    with pytest.raises(BadInput, match="is no name of a snapshot or suite"):
        made.freeze(word)
    with pytest.raises(BadInput, match="is no name of a snapshot or suite"):
        made.publish(word)


def test_only_one_process_works_on_an_archive(once: tuple[Sample, Broken]) -> None:
    made, _ = once
    with working(made.site, "hold it"), pytest.raises(Busy, match="another process works on"):
        made.mirror()


def test_the_example_site_is_refused(own: tuple[Sample, Broken]) -> None:
    made, _ = own
    replace_in(made.site.root / "fleet.yml", "site: sample", "example: true\nsite: sample")
    with pytest.raises(Refused, match="example: true"):
        made.mirror()


# --- garbage --------------------------------------------------------------------------------------


def test_what_a_recorded_lock_refers_to_stays_and_the_rest_goes(two: Sample) -> None:
    record_lock(two, lock_of(two, "A"))
    said = {(v.what, v.name): v for v in collecting.collect(two.site, dry_run=True, now=LATER).verdicts}
    assert [re.sub(r"\d+", "7", why) for why in said["suite", "A"].why] == ["lock X (event 7) refers to it"]
    assert said["snapshot", "A"].why == ("published as A",)
    assert [key for key, verdict in said.items() if not verdict.stays] == [("suite", "B"), ("snapshot", "B")]
    assert versions(two, "B", "nvidia-driver") == ["580.2-1"], "a dry run removes nothing"
    done = collecting.collect(two.site, dry_run=False, now=LATER)
    assert (done.did, done.files) == (True, 1)
    assert standing_suites(two) == ["A"]
    assert versions(two, "A", "nvidia-driver") == ["580.1-1"]
    assert [path.name for path in (two.public / "pool").rglob("nvidia*.deb")] == ["nvidia-driver_580.1-1_amd64.deb"]
    assert not verifying.verify(two.site).findings
    with pytest.raises(Refused, match="collected, or lost"):
        two.publish("B")
    with pytest.raises(Refused, match="is never changed"):
        two.freeze("B")
    assert not collecting.collect(two.site, dry_run=False, now=LATER).did


def test_a_lock_file_that_the_ledger_does_not_know_counts_too(two: Sample) -> None:
    path = two.site.lock_path("A")
    path.write_text(lock_text(lock_of(two, "B")))
    done = collecting.collect(two.site, dry_run=True, now=LATER)
    assert {v.name for v in done.verdicts if v.stays} == {"B"}


def test_bytes_that_a_lock_needs_stay_whatever_their_suite_is_called(two: Sample) -> None:
    found = lock_of(two, "A")
    found["archive"]["suite"] = "renamed"
    record_lock(two, found)
    done = collecting.collect(two.site, dry_run=False, now=LATER)
    assert {(v.what, v.name) for v in done.verdicts if v.stays} == {("suite", "A"), ("snapshot", "A")}
    assert versions(two, "A", "nvidia-driver") == ["580.1-1"]


def test_a_suite_that_an_environment_file_names_stays_and_so_does_what_is_young(two: Sample) -> None:
    replace_in(two.site.environment_path("A"), "suite: a", "suite: B")
    done = collecting.collect(two.site, dry_run=True, now=LATER)
    assert {v.name for v in done.verdicts if v.stays} == {"B"}
    done = collecting.collect(two.site, dry_run=True)
    assert {v.name for v in done.verdicts if v.stays} == {"A", "B"}
    assert "less than 30 days ago" in done.verdicts[0].why[0]


def test_collecting_that_was_killed_goes_on(two: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    record_lock(two, lock_of(two, "A"))
    with monkeypatch.context() as patch:
        patch.setattr(Aptly, "run", _killed)
        with pytest.raises(KeyboardInterrupt):
            collecting.collect(two.site, dry_run=False, now=LATER)
    with monkeypatch.context() as patch:
        patch.setattr(collecting, "_drop", _killed)
        with pytest.raises(KeyboardInterrupt):
            collecting.collect(two.site, dry_run=False, now=LATER)
    assert standing_suites(two) == ["A"]
    done = collecting.collect(two.site, dry_run=False, now=LATER)
    assert [(v.what, v.name) for v in done.going] == [("snapshot", "B")]
    assert not verifying.verify(two.site).findings


def _killed(*_args: object, **_options: object) -> None:
    raise KeyboardInterrupt


def test_nothing_is_collected_while_a_lock_cannot_be_read(two: Sample) -> None:
    two.site.lock_path("A").write_text("{}\n")
    with pytest.raises(BadInput):
        collecting.collect(two.site, dry_run=False, now=LATER)
    two.site.lock_path("A").unlink()
    record_lock(two, {"archive": {}, "packages": {}})
    with pytest.raises(BadInput, match="nothing is collected"):
        collecting.collect(two.site, dry_run=False, now=LATER)
    assert standing_suites(two) == ["A", "B"]


# --- verification ---------------------------------------------------------------------------------


def found(made: Sample) -> list[str]:
    return [str(finding) for finding in verifying.verify(made.site).findings]


def deb(made: Sample, name: str) -> Path:
    (path,) = (made.public / "pool").rglob(f"{name}*.deb")
    return path


def test_a_flipped_byte_a_missing_and_an_unknown_package_are_named(two: Sample) -> None:
    flip(deb(two, "nvidia-driver_580.1"))
    deb(two, "tool").unlink()
    (two.public / "pool/main/stray.deb").write_text("x")
    said = found(two)
    assert [line.split(": ")[:2] for line in said] == [
        ["public/pool/main/n/nvidia-driver/nvidia-driver_580.1-1_amd64.deb", "is damaged"],
        ["public/pool/main/stray.deb", "is unknown"],
        ["public/pool/main/t/tool/tool_1.0_all.deb", "is missing"],
    ]
    two.publish("A")  # brings back what was lost or damaged
    assert [line.split(": ")[1] for line in found(two)] == ["is unknown"]


def test_a_damaged_file_of_aptlys_pool_is_named(two: Sample) -> None:
    (path,) = (two.directory / "aptly/pool").rglob("*580.2*")
    flip(path)
    assert [line.split(": ")[1] for line in found(two)] == ["is damaged or unknown"]
    path.unlink()
    assert found(two) == [
        f"aptly snapshot B: nvidia-driver 580.2-1 amd64, {sha_of(two, 'B', 'nvidia-driver')}, is missing"
    ]


def sha_of(made: Sample, suite: str, name: str) -> str:
    with open_archive(Source(f"file:{made.public}", suite, ("main",), made.key.public), "amd64") as archive:
        return archive.records(name)[0].sha256


def test_an_altered_index_is_named_and_its_packages_are_not_judged_by_it(two: Sample) -> None:
    index = two.public / "dists/B/main/binary-amd64/Packages"
    overwrite(index, index.read_bytes().replace(b"580.2-1", b"580.3-1"))
    said = found(two)
    assert said[0].startswith("public/dists/B/main/binary-amd64/Packages: is damaged")
    assert said[1].startswith("public/pool: packages of B were not judged")
    with pytest.raises(Damaged, match="Packages is not the file that was signed"):
        collecting.collect(two.site, dry_run=False, now=LATER)
    assert two.publish("B").did, "it comes back from where aptly wrote it"
    assert not found(two)


def test_an_inrelease_that_was_altered_or_signed_by_another_key_is_named(two: Sample) -> None:
    signed = two.public / "dists/B/InRelease"
    text = signed.read_bytes()
    overwrite(signed, text.replace(b"Suite: B", b"Suite: C"))
    assert any("InRelease: is not what was signed: it was altered after signing" in line for line in found(two))
    release = two.public / "dists/B/Release"
    two.upstream_key.sign(release)
    assert any("InRelease: is signed by another key" in line for line in found(two))
    overwrite(signed, b"Suite: B\n")
    assert any("InRelease: has no signature" in line or "cannot be checked" in line for line in found(two))
    signed.unlink()
    assert any("InRelease: is missing" in line for line in found(two))


def test_an_expired_key_is_named(two: Sample, tmp_path: Path) -> None:
    env = {**os.environ, "GNUPGHOME": str(tmp_path / "home")}
    (tmp_path / "home").mkdir(mode=0o700)
    gpg = ["gpg", "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
    old = "20200101T000000"
    make = [
        *gpg,
        "--faked-system-time",
        old,
        "--quick-gen-key",
        "t <t@example.invalid>",
        "ed25519",
        "sign",
        "seconds=86400",
    ]
    subprocess.run(make, env=env, check=True, capture_output=True)
    public = subprocess.run([*gpg, "--armor", "--export"], env=env, check=True, capture_output=True).stdout
    (two.site.root / "keys/archive.asc").write_bytes(public)
    for suite in ("A", "B"):
        signed = two.public / f"dists/{suite}/InRelease"
        signed.unlink()
        sign = [*gpg, "--faked-system-time", f"{old}!", "--clearsign", "-o", str(signed)]
        subprocess.run([*sign, str(signed.with_name("Release"))], env=env, check=True, capture_output=True)
    subprocess.run(["gpgconf", "--kill", "all"], env=env, check=True)
    said = [line for line in found(two) if "expired" in line]
    assert len(said) == 2, said


def test_a_lost_or_foreign_suite_is_named(two: Sample) -> None:
    (two.public / "dists/A").rename(two.public / "dists/Z")
    said = found(two)
    assert "public/dists/A: suite A is missing (run: bedplate archive publish A)" in said
    assert "public/dists/Z: suite Z is unknown: the ledger has no record of it" in said
    shutil.rmtree(two.public / "dists/Z")
    assert two.publish("A").did, "from where aptly wrote it, with the same bytes"
    assert not found(two)


def test_a_lock_that_was_made_from_another_inrelease_is_named(two: Sample) -> None:
    record_lock(two, lock_of(two, "A", "sha256:" + "0" * 64))
    (line,) = found(two)
    assert "was made from sha256:000" in line


def test_archived_files_and_package_lists_are_hashed_again(two: Sample, tmp_path: Path) -> None:
    for name, kind in (
        ("n.iso", Kind.ISO),
        ("vmlinuz", Kind.NETBOOT),
        ("media.zip", Kind.MEDIA),
        ("how.md", Kind.INSTRUCTIONS),
    ):
        (tmp_path / name).write_text(f"{name}\n")
        assert adding.add(two.site, tmp_path / name, kind).did
    assert not adding.add(two.site, tmp_path / "n.iso", Kind.ISO).did
    assert not found(two)
    files = two.directory / "files"
    flip(files / "iso/n.iso")
    (files / "netboot/vmlinuz").unlink()
    write_whole(files / "media/other.zip", "x")
    flip(two.directory / "snapshots/A.json")
    assert [line.split(": ")[:2] for line in found(two)] == [
        ["files/iso/n.iso", "is damaged"],
        ["files/media/other.zip", "is unknown"],
        ["files/netboot/vmlinuz", "is missing (archive it again"],
        ["snapshots/A.json", "is damaged"],
    ]
    assert adding.add(two.site, tmp_path / "n.iso", Kind.ISO).did, "the recorded bytes come back"
    (tmp_path / "n.iso").write_text("other\n")
    with pytest.raises(Refused, match=r"iso/n.iso was archived at"):
        adding.add(two.site, tmp_path / "n.iso", Kind.ISO)


def test_a_list_of_checksums_that_was_edited_is_named(two: Sample, tmp_path: Path) -> None:
    (tmp_path / "n.iso").write_text("n\n")
    adding.add(two.site, tmp_path / "n.iso", Kind.ISO)
    sums = two.directory / "SHA256SUMS"
    done = subprocess.run(["sha256sum", "-c", sums], cwd=two.directory, check=False, capture_output=True, text=True)
    assert done.returncode == 0, "any administrator can check it"
    line = next(line for line in sums.read_text().splitlines() if line.endswith("n.iso"))
    overwrite(sums, sums.read_bytes().replace(line.encode(), b"0" * 64 + b"  files/iso/n.iso"))
    said = found(two)
    assert any("SHA256SUMS: is sha256:" in line for line in said)
    assert any("for files/iso/n.iso, recorded was" in line for line in said)
    overwrite(sums, b"nonsense\n")
    assert any("SHA256SUMS: is damaged: line 1 is no line of sha256sum" in line for line in found(two))


def test_a_file_that_archive_yml_describes_must_be_that_file(two: Sample, tmp_path: Path) -> None:
    digest = "sha256:" + "1" * 64
    two.definition("mirrors:\n", f'files:\n  - {{name: n.iso, kind: iso, sha256: "{digest}"}}\nmirrors:\n')
    (line,) = found(two)
    assert line.startswith(f"files/iso/n.iso: is not archived as archive.yml asks for it, {digest}")
    assert line.endswith("(run: bedplate archive add n.iso --kind iso)")
    (tmp_path / "n.iso").write_text("n\n")
    with pytest.raises(BadInput) as caught:
        adding.add(two.site, tmp_path / "n.iso", Kind.MEDIA)
    assert [fault.line for fault in caught.value.faults] == [9, 9]
    assert not (two.directory / "files/media/n.iso").exists()


def test_aptlys_snapshot_that_was_changed_by_hand_is_named(two: Sample) -> None:
    with working(two.site, "change it") as place:
        place.aptly.run("publish", "drop", "A")
        place.aptly.run("snapshot", "drop", "A")
        place.aptly.run("snapshot", "create", "A", "empty")
    assert "aptly snapshot A: holds other packages than A.json says: it was changed" in found(two)


def test_an_archive_without_a_directory_that_can_be_made_says_where(own: tuple[Sample, Broken]) -> None:
    made, _ = own
    (made.root / "file").write_text("")
    made.definition(f"directory: {made.directory}", f"directory: {made.root}/file/x")
    with pytest.raises(BadInput, match=r"archive.yml:2: directory: .*Not a directory"):
        made.mirror()
    (made.site.root / "archive.yml").unlink()
    with pytest.raises(BadInput, match=r"archive.yml: no such file \(write it: docs/archive.md\)"):
        made.mirror()


# --- the command ----------------------------------------------------------------------------------


def test_the_commands_say_by_their_exit_code_what_comes_next(
    two: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str) -> tuple[int, Any]:
        """Exit code and JSON, or what stands on stderr."""
        monkeypatch.setattr(sys, "argv", ["bedplate", "--site", str(two.site.root), "archive", *words, "--json"])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, json.loads(out) if out else err

    (tmp_path / "n.iso").write_text("n\n")
    code, added = said("add", str(tmp_path / "n.iso"), "--kind", "iso")
    assert (code, added["did"], added["size"]) == (0, True, 2)
    code, verified = said("verify")
    assert (code, verified["suites"], verified["findings"]) == (0, 2, [])
    code, refusal = said("snapshot", "A")
    assert (code, "is never changed" in refusal) == (3, True)
    code, published = said("publish", "A")
    assert (code, published["did"]) == (0, False)
    code, unknown = said("mirror", "nvidia")
    assert (code, "known: base, cuda, incoming" in unknown) == (2, True)
    code, collected = said("gc", "--dry-run")
    assert (code, collected["did"], {v["stays"] for v in collected["verdicts"]}) == (0, False, {True})
    code, rows = said("show")
    assert (code, [row["name"] for row in rows if row["what"] == "file"]) == (0, ["iso/n.iso"])
    deb(two, "tool").unlink()
    code, damaged = said("verify")
    assert (code, [finding["found"] for finding in damaged["findings"]]) == (5, ["is missing"])
