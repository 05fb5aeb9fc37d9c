"""A signed package archive of stub packages on disk, made with dpkg-deb, apt-ftparchive and gpg."""

import gzip
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


def _run(*argv: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in argv],
        check=False,
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode == 0, f"{argv}: {done.stderr}{done.stdout}"
    return done.stdout


@dataclass
class Key:
    """A signing key in a keyring of its own."""

    home: Path
    public: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.home.mkdir(mode=0o700, parents=True)
        made = self._gpg(
            "--passphrase",
            "",
            "--quick-gen-key",
            "archive <archive@example.invalid>",
            "ed25519",
            "sign",
            "never",
        )
        assert made == ""
        self.public = self._gpg("--armor", "--export").encode()
        assert self.public.startswith(b"-----BEGIN")

    def sign(self, release: Path) -> None:
        self._gpg("--yes", "--clearsign", "-o", str(release.with_name("InRelease")), str(release))

    def close(self) -> None:
        """End the agent that gpg started for this keyring."""
        _run("gpgconf", "--kill", "all", env={"GNUPGHOME": str(self.home)})

    def _gpg(self, *words: str) -> str:
        return _run(
            "gpg",
            "--batch",
            "--quiet",
            "--pinentry-mode",
            "loopback",
            *words,
            env={"GNUPGHOME": str(self.home)},
        )


@dataclass
class StubArchive:
    """`dists/SUITE/main` over `pool/`: add packages, then publish with a key."""

    root: Path
    suite: str = "a"

    @property
    def url(self) -> str:
        return f"file:{self.root}"

    @property
    def index(self) -> Path:
        return self.root / "dists" / self.suite / "main/binary-amd64/Packages"

    def add(
        self,
        name: str,
        version: str,
        *,
        depends: str = "",
        provides: str = "",
        conflicts: str = "",
        arch: str = "amd64",
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        tree = self.root / "trees" / f"{name}_{version.replace(':', '%3a')}"
        (tree / "DEBIAN").mkdir(parents=True)
        fields = {
            "Package": name, "Version": version, "Architecture": arch, "Maintainer": "t <t@example.invalid>",
            "Depends": depends, "Provides": provides, "Conflicts": conflicts, "Description": "stub",
        }  # fmt: skip
        (tree / "DEBIAN/control").write_text("".join(f"{k}: {v}\n" for k, v in fields.items() if v))
        for place, content in (files or {}).items():
            (tree / place).parent.mkdir(parents=True, exist_ok=True)
            (tree / place).write_bytes(content)
        pool = self.root / "pool"
        pool.mkdir(exist_ok=True)
        _run("dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, pool / f"{tree.name}_{arch}.deb")

    def publish(self, key: Key) -> None:
        self.index.parent.mkdir(parents=True, exist_ok=True)
        text = _run("apt-ftparchive", "packages", "pool", cwd=self.root)
        self.index.write_text(text)
        self.index.with_suffix(".gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        self.sign(key)

    def sign(self, key: Key) -> None:
        dist = self.root / "dists" / self.suite
        for old in (dist / "Release", dist / "InRelease"):
            old.unlink(missing_ok=True)
        options = {
            "Suite": self.suite,
            "Codename": self.suite,
            "Architectures": "amd64",
            "Components": "main",
        }
        words = [word for k, v in options.items() for word in ("-o", f"APT::FTPArchive::Release::{k}={v}")]
        (dist / "Release").write_text(_run("apt-ftparchive", *words, "release", dist))
        key.sign(dist / "Release")
