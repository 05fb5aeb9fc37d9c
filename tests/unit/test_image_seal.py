"""The seal of an image on a node's disk: written only after its whole hash, gone when the hash is another."""

import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from bedplate.decide.render import JINJA
from bedplate.sources import checkout

pytestmark = pytest.mark.slow  # every test starts programs

TEMPLATE = (checkout.root() / "roles/image/templates/image-seal.py.j2").read_text()
DATA = b"hsqs" + os.urandom(100_000)
NAME = f"sha256-{sha256(DATA).hexdigest()}.sqsh"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "bedplate-image-seal"
    path.write_text(JINJA.from_string(TEMPLATE).render())
    path.chmod(0o755)
    return path


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / NAME
    path.write_bytes(DATA)
    path.chmod(0o444)
    return path


def ran(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, capture_output=True, text=True, check=False)


def seal_of(image: Path) -> Path:
    return Path(f"{image}.sealed")


def test_a_seal_says_what_stat_says_and_is_written_once(program: Path, image: Path) -> None:
    assert ": sealed now" in ran(program, image).stdout
    known = ran("stat", "--format=%s %i %Y", image).stdout.strip()
    verity = ran(program, "measure", image).stdout.strip()
    assert seal_of(image).read_text() == f"sha256:{NAME[7:71]} {known} {verity}\n"
    written = seal_of(image).stat()
    assert written.st_mode & 0o777 == 0o444
    assert ran(program, image).stdout == f"{image}: sealed, as it was\n"
    assert seal_of(image).stat().st_ino == written.st_ino
    assert sorted(path.name for path in image.parent.iterdir()) == sorted([NAME, f"{NAME}.sealed", program.name])


def test_a_dry_run_hashes_and_writes_nothing(program: Path, image: Path) -> None:
    assert ": sealed now" in ran(program, "--dry-run", image).stdout
    assert not seal_of(image).exists()
    ran(program, image)
    assert ran(program, "--dry-run", image).stdout == f"{image}: sealed, as it was\n"


def test_other_bytes_lose_their_seal(program: Path, image: Path) -> None:
    ran(program, image)
    shutil.copy(image, image.parent / "other")
    with (image.parent / "other").open("r+b") as file:
        file.seek(5000)
        file.write(b"\0flip")
    (image.parent / "other").rename(image)
    done = ran(program, "--dry-run", image)
    assert (done.returncode, seal_of(image).exists()) == (1, True)
    done = ran(program, image)
    assert (done.returncode, seal_of(image).exists()) == (1, False)
    assert "it has sha256:" in done.stderr
    assert "bedplate image place" in done.stderr


def test_what_is_no_image_is_refused(program: Path, image: Path) -> None:
    moved = image.parent / "images"
    moved.mkdir()
    link = moved / NAME
    link.symlink_to(image)
    pipe = moved / f"sha256-{'a' * 64}.sqsh"
    os.mkfifo(pipe)
    for path in (link, pipe, moved / f"sha256-{'b' * 64}.sqsh", moved / "current.sqsh", moved):
        done = ran(program, path)
        assert (done.returncode, done.stdout) == (1, ""), path
        assert done.stderr.startswith(f"{path}: ")
    for words in ((), ("measure",), ("--wet-run", image), ("measure", image, image)):
        assert ran(program, *words).returncode in {1, 2}
    assert not [path for path in moved.iterdir() if path.name.endswith(".sealed")]


def test_the_program_is_clean_to_the_linters(tmp_path: Path) -> None:
    """It lies among the templates so that the lock, the manifest and drift know its bytes; no linter looks there."""
    path = tmp_path / "seal.py"
    path.write_text(JINJA.from_string(TEMPLATE).render())
    assert path.read_text() == TEMPLATE
    ruff = Path(sys.executable).with_name("ruff")
    wanted = ["check", "--no-cache", "--isolated", "--line-length=120", "--target-version=py310", "--select=E,F,W,B,UP"]
    done = ran(ruff, *wanted, path)
    assert done.returncode == 0, done.stdout


def verity(root: Path) -> Path:
    """A file system with fs-verity, mounted below a directory; skips where there is none to be had."""
    if not Path("/sys/fs/ext4/features/verity").exists():
        pytest.skip("fs-verity: the kernel here has none (CONFIG_FS_VERITY)")
    if os.getuid() != 0 or not shutil.which("mkfs.ext4"):
        pytest.skip("fs-verity: needs root and mkfs.ext4 to make a file system that has it")
    disk, place = root / "disk", root / "verity"
    place.mkdir()
    with disk.open("wb") as file:
        file.truncate(32 * 1024 * 1024)
    made = ran("mkfs.ext4", "-q", "-O", "verity", "-b", "4096", disk)
    mounted = made if made.returncode else ran("mount", "-o", "loop", disk, place)
    if mounted.returncode:
        pytest.skip(f"fs-verity: no file system could be made that has it: {mounted.stderr.strip()}")
    return place


def test_where_the_file_system_has_fs_verity_the_image_is_immutable_and_its_damage_is_met(
    program: Path, image: Path, tmp_path: Path
) -> None:
    place = verity(tmp_path)
    try:
        there = place / NAME
        shutil.copy(image, there)
        assert "without fs-verity" not in ran(program, there).stdout
        measured = ran(program, "measure", there).stdout.strip()
        assert measured.startswith("fs-verity:")
        assert len(measured) == len("fs-verity:") + 64
        assert seal_of(there).read_text().split()[4] == measured
        assert ran(program, there).stdout == f"{there}: sealed, as it was\n"
        with pytest.raises(PermissionError):
            there.open("r+b")
    finally:
        ran("umount", place)
