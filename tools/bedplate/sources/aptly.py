"""aptly, asked in an archive's own directory: its mirrors, snapshots and published suites.

aptly keeps the packages by content (`pool/ab/cd/REST_NAME.deb`), so versions lie side by side and a file that two
snapshots have lies there once.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bedplate.decide.archive import Package
from bedplate.process import Finished, run
from bedplate.sources.files import write_whole

QUICK_S = 3600.0  # a snapshot of a whole distribution has 80,000 packages
MIRROR_S = 48 * 3600.0  # the first copy of a distribution, over a slow line
NEVER = "0001-01-01T00:00:00Z"  # Go's zero time: a mirror that was never updated
_FORMAT = "{{.Package}} {{.Version}} {{.Architecture}} {{.SHA256}} {{.Size}}"
_EVERYTHING = "Name (% *)"


@dataclass(frozen=True)
class MirrorState:
    """A mirror of one suite as aptly has it."""

    name: str
    url: str
    suite: str
    components: tuple[str, ...]
    architectures: tuple[str, ...]
    query: str
    with_dependencies: bool
    updated_at: str | None


class Aptly:
    """aptly with a root, a configuration and a keyring of its own; nothing of the user's home is read."""

    def __init__(self, root: Path, gnupg: Path, architectures: tuple[str, ...]) -> None:
        self.root = root
        self.gnupg = gnupg
        self._configuration = root / "aptly.conf"
        self._text = json.dumps(
            {
                "rootDir": str(root), "architectures": list(architectures), "gpgProvider": "gpg",
                "skipLegacyPool": True, "skipContentsPublishing": True, "skipBz2Publishing": True,
            }, indent=2,
        )  # fmt: skip

    @property
    def staging(self) -> Path:
        """Where aptly publishes to: not what is served."""
        return self.root / "public"

    @property
    def pool(self) -> Path:
        return self.root / "pool"

    def run(self, *words: str | Path, timeout_s: float = QUICK_S, check: bool = True) -> Finished:
        """Run aptly; what it says of a failure is in the exception."""
        if not self._configuration.is_file() or self._configuration.read_text() != self._text:
            write_whole(self._configuration, self._text)
        environment = {**os.environ, "GNUPGHOME": str(self.gnupg), "LC_ALL": "C.UTF-8"}
        return run(
            ["aptly", f"-config={self._configuration}", *words], timeout_s=timeout_s, env=environment, check=check
        )

    def mirrors(self) -> dict[str, MirrorState]:
        return {state.name: state for state in map(_mirror, self._json("mirror", "list"))}

    def snapshots(self) -> set[str]:
        return {str(entry["Name"]) for entry in self._json("snapshot", "list")}

    def repositories(self) -> set[str]:
        return {str(entry["Name"]) for entry in self._json("repo", "list")}

    def published(self) -> dict[str, str]:
        """Suite -> the snapshot it was published from."""
        return {str(entry["Distribution"]): str(entry["Sources"][0]["Name"]) for entry in self._json("publish", "list")}

    def packages(self, what: str, name: str) -> tuple[Package, ...]:
        """The packages of a `mirror`, a `repo` or a `snapshot`."""
        done = self.run(what, "search", f"-format={_FORMAT}", name, _EVERYTHING, check=False)
        if done.code and "no results" in done.err + done.out:
            return ()
        if done.code:
            done = self.run(what, "search", f"-format={_FORMAT}", name, _EVERYTHING)
        return tuple(sorted(_package(line) for line in done.out.splitlines() if line.strip()))

    def _json(self, *words: str) -> list[Mapping[str, Any]]:
        found = json.loads(self.run(*words, "-json").out or "[]")
        return list(found or [])


def pool_path(package_sha256: str, file: str) -> str:
    """Where aptly's pool has a file: ab/cd/ and 28 digits more of its sha256."""
    digits = package_sha256.removeprefix("sha256:")
    return f"{digits[:2]}/{digits[2:4]}/{digits[4:32]}_{file}"


def _mirror(entry: Mapping[str, Any]) -> MirrorState:
    at = str(entry.get("LastDownloadDate") or NEVER)
    return MirrorState(
        str(entry["Name"]), str(entry["ArchiveRoot"]), str(entry["Distribution"]), tuple(entry["Components"] or ()),
        tuple(entry["Architectures"] or ()), str(entry.get("Filter") or ""), bool(entry.get("FilterWithDeps")),
        None if at == NEVER else at,
    )  # fmt: skip


def _package(line: str) -> Package:
    name, version, architecture, digest, size = line.split()
    return Package(name, version, architecture, f"sha256:{digest}", int(size))
