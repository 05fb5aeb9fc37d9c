"""Imports by real processes from a real registry: killed at any moment, and many at once."""

import contextlib
import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bedplate.act import image as images
from bedplate.act.image import proof
from bedplate.decide.buildrecord import Base, Builder, BuildRecord, record_text
from bedplate.ledger.store import Ledger
from bedplate.sources.registry import DOCKER_MANIFEST
from bedplate.sources.site import Site, open_site
from unit import realregistry
from unit.lock_sample import digest
from unit.site_sample import write_site
from unit.smallimage import Member, write

pytestmark = [pytest.mark.slow, realregistry.needed]

KILLS = 50
AT_ONCE = 16
DID, FOUND = 10, 11
# Loaded once, for Python takes longer to start than a small image to import. A line is how many processes are to import
# at once, and after how many seconds they are killed; the answer is their exit codes, when all have ended.
PROGRAM = """
import os, signal, sys, time, traceback
from pathlib import Path
from bedplate.act import image as images
from bedplate.sources.site import open_site
print("ready", flush=True)
for line in sys.stdin:
    children = []
    count, _, seconds = line.partition(" ")
    for _ in range(int(count)):
        child = os.fork()
        if not child:
            try:
                outcome = images.import_(open_site(Path(sys.argv[1])), "A", importer="embedded")
                os._exit(10 if outcome.did else 11)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        children.append(child)
    if seconds:
        time.sleep(float(seconds))
        for child in children:  # not waited for yet, so the number is still its own
            os.kill(child, signal.SIGKILL)
    print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children), flush=True)
"""


class Importers:
    """Processes that import."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin
        assert process.stdout
        self._stdin, self._stdout = process.stdin, process.stdout
        assert self._numbers("ready") == []

    def codes(self, count: int = 1, killed_after_s: float | None = None) -> list[int]:
        """Let some begin at once; their exit codes, when all have ended."""
        self._stdin.write(f"{count}\n" if killed_after_s is None else f"{count} {killed_after_s:.4f}\n")
        self._stdin.flush()
        return self._numbers()

    def _numbers(self, word: str = "") -> list[int]:
        line = self._stdout.readline().strip()
        assert line, "it ended"
        return [] if line == word else list(map(int, line.split()))


@dataclass(frozen=True)
class Stand:
    root: Path
    registry: realregistry.Running

    @property
    def site(self) -> Site:
        return open_site(self.root)

    @contextlib.contextmanager
    def importers(self) -> Iterator[Importers]:
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(self.root)], env=self.registry.environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ) as process:  # fmt: skip
            yield Importers(process)

    def faults(self) -> list[str]:
        """Files under a final name whose bytes are not what the name says."""
        found = []
        for file in (self.root / "artifacts").glob("*.sqsh"):
            if file.name != f"sha256-{hashlib.sha256(file.read_bytes()).hexdigest()}.sqsh":
                found.append(f"{file.name} has other bytes")
            if not file.with_suffix(".json").exists():
                found.append(f"{file.name} has no record")
        return found + [
            f"blob {file.name} has other bytes"
            for file in (self.root / "builds/mirror/blobs/sha256").glob("[0-9a-f]*")
            if file.name != hashlib.sha256(file.read_bytes()).hexdigest()
        ]

    def forget(self) -> None:
        """As before the import."""
        for folder in ("artifacts", "builds/mirror"):
            shutil.rmtree(self.root / folder, ignore_errors=True)


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    (tmp_path / "registry").mkdir()
    with realregistry.serving(tmp_path / "registry") as registry:
        for name, value in registry.environment.items():
            monkeypatch.setenv(name, value)
        root = write_site(tmp_path / "site")
        repository = f"{registry.host}/lab/small"
        (root / "images/a/image.yml").write_text(
            f"name: lab-small\nrepository: {repository}\n"
            f"base: {{reference: '{registry.host}/base/debian', digest: '{digest('0')}'}}\n"
        )
        noise = random.Random(7)  # noqa: S311  for tests
        layers = [
            [Member("etc/motd", "hello\n"), *(Member(f"opt/{n}", noise.randbytes(300_000)) for n in range(20))],
            [Member("opt/.wh.3"), Member("opt/4", "four")],
        ]
        site = open_site(root)
        built = images.built_path(site, "lab-small")
        manifest_digest = write(built, layers)
        manifest = json.loads((built / "manifest.json").read_bytes())
        record = BuildRecord(
            name="lab-small", definition_sha256=images.definition_sha256(site, "images/a"), repository=repository,
            base=Base(f"{registry.host}/base/debian", digest("0"), digest("0")), builder=Builder("none", "0", {}),
            index_digest=None, manifest_digest=manifest_digest, config_digest=manifest["config"]["digest"],
            media_type=DOCKER_MANIFEST, built_at="2026-01-01T00:00:00Z",
        )  # fmt: skip
        images.record_path(site, "lab-small").write_text(record_text(record))
        yield Stand(root, registry)


def test_killed_at_any_moment_nothing_has_a_final_name_that_it_should_not(stand: Stand) -> None:
    images.push(stand.site, "A")
    dice = random.Random(5)  # noqa: S311  for tests
    killed = 0
    with stand.importers() as importers:
        began = time.monotonic()
        assert importers.codes() == [DID]
        takes_s = time.monotonic() - began
        for _ in range(KILLS * 10):
            if dice.random() < 0.5:
                stand.forget()  # the mirror too
            else:
                shutil.rmtree(stand.root / "artifacts", ignore_errors=True)
            (code,) = importers.codes(killed_after_s=dice.uniform(0, takes_s))
            assert stand.faults() == []
            killed += code == -signal.SIGKILL
            if killed == KILLS:
                break
            if code != -signal.SIGKILL:
                assert code == DID
                takes_s *= 0.9  # the machine is faster than it was: earlier, then
        assert killed == KILLS
        stand.forget()
        assert importers.codes() == [DID]
    assert stand.faults() == []
    assert {path.suffix for path in (stand.root / "artifacts").iterdir()} == {".sqsh", ".json"}
    assert {part.state for part in images.verify(stand.site, "A")} == {images.State.WHOLE}


def test_many_who_ask_at_once_get_one_import(stand: Stand) -> None:
    images.push(stand.site, "A")
    logs = len(list((stand.root / "builds/logs").iterdir()))
    with stand.importers() as importers:
        assert sorted(importers.codes(AT_ONCE)) == [DID] + [FOUND] * (AT_ONCE - 1)
    assert len(list((stand.root / "builds/logs").iterdir())) == logs + 1
    with Ledger.read(stand.site.ledger_url) as ledger:
        assert [event.kind for event in ledger.events()].count("image.imported") == 1
    assert len(list((stand.root / "artifacts").glob("*.sqsh"))) == 1
    assert stand.faults() == []


def test_garbage_collection_never_takes_what_the_tag_keeps(stand: Stand, tmp_path: Path) -> None:
    outcome = images.push(stand.site, "A")
    other = write(tmp_path / "other", [[Member("etc/other", "other")]])
    repository = f"docker://{stand.registry.host}/lab/small"
    stand.registry.skopeo(f"dir:{tmp_path}/other", f"{repository}:moving")
    stand.registry.skopeo(f"{repository}@{outcome.record.manifest_digest}", f"{repository}:moving")
    manifests = stand.registry.root / "data/docker/registry/v2/repositories/lab/small/_manifests"

    def there(name: str) -> bool:
        return (manifests / "revisions/sha256" / name.removeprefix("sha256:") / "link").exists()

    assert there(other)
    shutil.rmtree(manifests / "tags/moving")
    stand.registry.collect_garbage()
    assert not there(other)
    assert {part.state for part in images.verify(stand.site, "A")} == {images.State.WHOLE}
    assert images.import_(stand.site, "A", importer="embedded").did

    shutil.rmtree(manifests / "tags" / proof.keep_tag(outcome.record))
    named = [part.what for part in images.verify(stand.site, "A") if part.state is images.State.MISSING]
    assert named == ["registry: keep-tag"]
    stand.registry.collect_garbage()
    assert not there(outcome.record.manifest_digest)
    named = [part.what for part in images.verify(stand.site, "A") if part.state is images.State.MISSING]
    assert named == ["registry: manifest", "registry: keep-tag"]
    assert images.push(stand.site, "A").did
    assert {part.state for part in images.verify(stand.site, "A")} == {images.State.WHOLE}
