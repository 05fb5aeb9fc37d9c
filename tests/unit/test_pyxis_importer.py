"""What Pyxis is answered at the start of a job: the sealed image of the node's environment, by digest, or a refusal."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.decide.render import JINJA
from bedplate.sources import checkout
from unit.lock_sample import digest, document

pytestmark = pytest.mark.slow  # every test starts programs

ROLES = checkout.root() / "roles"
DATA = b"hsqs" + b"image" * 1000
HEX = sha256(DATA).hexdigest()
MANIFEST, INDEX, OTHER = digest("5"), digest("4"), digest("e")
REPOSITORY = "registry.lab:5443#lab/small"


def rendered(role: str, template: str, **scope: object) -> str:
    return JINJA.from_string((ROLES / role / "templates" / template).read_text()).render(scope)


class Node:
    """A node with the importer, the seal program, and an image that was placed."""

    def __init__(self, root: Path, *, managed: bool = True) -> None:
        self.images, self.root = root / "images", root
        self.images.mkdir(mode=0o755)
        self.file = self.images / f"sha256-{HEX}.sqsh"
        self.sealed = Path(f"{self.file}.sealed")
        self.conf, self.program, self.sealer = root / "image.conf", root / "importer", root / "seal"
        lock = document()
        lock["image"] |= {"index_digest": INDEX, "squashfs_sha256": f"sha256:{HEX}", "squashfs_size": len(DATA)}
        scope = {
            "environment": {"name": "A"}, "image": lock["image"] if managed else None,
            "layers": {"image": {} if managed else {"unmanaged": "no image\nyet"}},
        }  # fmt: skip
        self.conf.write_text(rendered("pyxis_importer", "image.conf.j2", **scope))
        text = rendered("pyxis_importer", "importer.sh.j2")
        for there, here in (
            ("conf=/etc/bedplate/image.conf", f"conf={self.conf}"), ("/var/lib/bedplate/images", str(self.images)),
            ("owner=0", f"owner={os.getuid()}"), ("/usr/local/libexec/bedplate-image-seal", str(self.sealer)),
        ):  # fmt: skip
            assert there in text
            text = text.replace(there, here)
        self.program.write_text(text)
        self.sealer.write_text(rendered("image", "image-seal.py.j2"))
        for path in (self.program, self.sealer):
            path.chmod(0o755)
        self.file.write_bytes(DATA)
        self.file.chmod(0o444)

    def seal(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return ran(self.sealer, *words, str(self.file))

    def get(self, name: str) -> "subprocess.CompletedProcess[str]":
        """As Pyxis calls it: docker:// before what the user named, unless it is there."""
        return ran(self.program, "get", name if name.startswith("docker://") else f"docker://{name}")


def ran(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    env = {"PATH": "/nowhere", "SLURMD_NODENAME": "n1", "PYTHONPATH": "/nowhere", "PYTHONHOME": "/nowhere"}
    return subprocess.run(words, capture_output=True, text=True, check=False, env=env)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    assert made.seal().returncode == 0
    return made


@pytest.mark.parametrize(
    "name",
    [
        f"docker://{REPOSITORY}@{MANIFEST}",
        f"{REPOSITORY}@{MANIFEST}",
        f"{REPOSITORY}@{INDEX}",  # an index leads to the same image
        f"registry.lab:5443/lab/small@{MANIFEST}",
        f"registry.lab:5443/lab/small:1.2@{MANIFEST}",  # beside a digest Enroot drops the tag
        f"{REPOSITORY}:{MANIFEST}",  # the form that Enroot 3.5 reads, too
        f"mirror.lab/copy@{MANIFEST}",  # the digest says which bytes; nobody is asked
    ],
)
def test_the_pinned_image_is_the_file_on_this_node(node: Node, name: str) -> None:
    done = node.get(name)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{node.file}\n", "")


def test_the_path_of_the_artifact_is_answered_and_every_other_is_refused(node: Node) -> None:
    assert node.get(str(node.file)).stdout == f"{node.file}\n"
    twin = node.images / f"sha256-{'a' * 64}.sqsh"
    shutil.copy(node.file, twin)
    (node.images / "current.sqsh").symlink_to(node.file.name)  # a name that moves is no digest
    for path in (twin, node.images / "current.sqsh", "/etc/passwd", f"{node.images}/../images/{node.file.name}"):
        done = node.get(str(path))
        assert (done.returncode, done.stdout) == (1, "")
        assert f"{path} is not the image of environment A" in done.stderr
        assert f"--container-image={REPOSITORY}@{MANIFEST}" in done.stderr


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (f"{REPOSITORY}:1.2", "has no digest, and what a tag means may change"),
        (REPOSITORY, "has no digest"),
        ("ubuntu", "has no digest"),
        ("dockerd://small", "has no digest"),
        (f"{REPOSITORY}@{OTHER}", "is not on this node, which has the image of environment A"),
        (f"{REPOSITORY}@{MANIFEST[:-1]}", "is not on this node"),
        (f"{REPOSITORY}@{MANIFEST}0", "is not on this node"),
        (f"{REPOSITORY}@{MANIFEST.upper()}", "has no digest"),
        (f"{REPOSITORY}@sha256:", "is not on this node"),
        (f"{REPOSITORY}@sha256:*", "is not on this node"),
        (f"@{MANIFEST}", "has no digest"),
        (f"{REPOSITORY}@{OTHER}@{MANIFEST}", "has two digests"),
        (f"{REPOSITORY} @{MANIFEST}", "is no name of an image"),
        (f"{REPOSITORY}\n@{MANIFEST}", "is no name of an image"),
        (f"$(touch pwned)@{OTHER}", "is no name of an image"),
        ("", "is no name of an image"),
    ],
)
def test_anything_else_is_refused_with_what_is_there_and_what_to_do(node: Node, name: str, says: str) -> None:
    done = node.get(name)
    assert (done.returncode, done.stdout) == (1, "")
    assert says in done.stderr
    assert f"ask for --container-image={REPOSITORY}@{MANIFEST}" in done.stderr
    assert done.stderr.count("\n") == 1


@settings(max_examples=60)
@given(name=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=80))
def test_no_other_text_is_ever_answered(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    root = tmp_path_factory.getbasetemp() / "any"
    if not root.exists():
        root.mkdir()
        Node(root).seal()
    done = ran(root / "importer", "get", f"docker://{name}")
    assert (done.returncode, done.stdout) == (1, "")


def remove(node: Node) -> None:
    node.file.unlink()


def never_sealed(node: Node) -> None:
    node.sealed.unlink()


def put_another_with_the_same_bytes(node: Node) -> None:
    shutil.copy2(node.file, node.images / "other")
    os.rename(node.images / "other", node.file)  # noqa: PTH104


def write_into_it(node: Node) -> None:
    node.file.chmod(0o644)
    time = node.file.stat().st_mtime - 10
    node.file.write_bytes(DATA.replace(b"image", b"other"))
    os.utime(node.file, (time, time))
    node.file.chmod(0o444)


def cut_it(node: Node) -> None:
    about = node.file.stat()
    os.truncate(node.file, 100)
    os.utime(node.file, (about.st_atime, about.st_mtime))


def let_others_write(node: Node) -> None:
    node.file.chmod(0o464)


def let_others_write_beside(node: Node) -> None:
    node.images.chmod(0o777)


def point_elsewhere(node: Node) -> None:
    node.file.rename(node.root / "elsewhere")
    node.file.symlink_to(node.root / "elsewhere")


def garble_the_seal(node: Node) -> None:
    node.sealed.chmod(0o644)
    node.sealed.write_text("sha256:1 2 3\n")


def take_the_seal_of_another(node: Node) -> None:
    node.sealed.chmod(0o644)
    node.sealed.write_text(node.sealed.read_text().replace(HEX, "a" * 64))


@pytest.mark.parametrize(
    ("harm", "says", "remedy"),
    [
        (remove, "is not there", "bedplate image place A --nodes n1"),
        (point_elsewhere, "is not there", "bedplate image place A --nodes n1"),
        (never_sealed, "its whole hash was not taken on this node", "run as root, here: "),
        (garble_the_seal, "its whole hash was not taken on this node", "run as root, here: "),
        (take_the_seal_of_another, "is of another file", "run as root, here: "),
        (put_another_with_the_same_bytes, "is not the file that was hashed", "run as root, here: "),
        (write_into_it, "is not the file that was hashed", "run as root, here: "),
        (cut_it, "is not the file that was hashed", "run as root, here: "),
        (let_others_write, "others than root may write", "look: ls -la"),
        (let_others_write_beside, "others than root may write", "look: ls -la"),
    ],
)
def test_a_file_that_is_not_the_hashed_one_starts_no_job(
    node: Node, harm: Callable[[Node], None], says: str, remedy: str
) -> None:
    harm(node)
    for words in (("get", f"docker://{REPOSITORY}@{MANIFEST}"), ("check",)):
        done = ran(node.program, *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert says in done.stderr
        assert remedy in done.stderr
        assert done.stderr.count("\n") == 1  # Slurm's reason is one line


def test_release_is_called_twice_and_takes_nothing_away(node: Node) -> None:
    before = sorted((path.name, path.stat().st_mtime_ns) for path in node.images.iterdir())
    for _ in range(2):
        done = ran(node.program, "release")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted((path.name, path.stat().st_mtime_ns) for path in node.images.iterdir()) == before


@pytest.mark.parametrize("words", [(), ("get",), ("get", "a", "b"), ("fetch", "a")])
def test_what_pyxis_never_says_is_a_usage_fault(node: Node, words: tuple[str, ...]) -> None:
    done = ran(node.program, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: bedplate-importer get URI | release | check" in done.stderr


def test_where_no_image_is_managed_jobs_start_and_none_is_given_out(tmp_path: Path) -> None:
    node = Node(tmp_path, managed=False)
    assert ran(node.program, "check").returncode == 0
    done = node.get(f"{REPOSITORY}@{MANIFEST}")
    assert (done.returncode, done.stdout) == (1, "")
    assert "environment A, which this node runs, manages no image: no image yet" in done.stderr


def test_without_its_configuration_nothing_is_given_out_and_no_job_starts(node: Node) -> None:
    node.conf.unlink()
    for done in (ran(node.program, "check"), node.get(f"{REPOSITORY}@{MANIFEST}")):
        assert (done.returncode, done.stdout) == (1, "")
        assert "image.conf cannot be read" in done.stderr


def test_prolog_and_health_check_ask_the_same_program(node: Node, tmp_path: Path) -> None:
    said = tmp_path / "said"
    logger = tmp_path / "logger"
    logger.write_text(f'#!/bin/sh\necho "$@" >> {said}\n')
    logger.chmod(0o755)
    scripts = {}
    for name in ("prolog-image.sh.j2", "health-image.sh.j2"):
        text = rendered("pyxis_importer", name).replace("/usr/local/libexec/bedplate-importer", str(node.program))
        (tmp_path / name).write_text(text.replace("logger ", f"{logger} "))
        scripts[name] = ["sh", str(tmp_path / name)]
    env = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}
    for words in scripts.values():
        assert subprocess.run(words, check=False, env=env).returncode == 0
    node.file.unlink()
    for words in scripts.values():
        assert subprocess.run(words, check=False, env=env, stderr=subprocess.DEVNULL).returncode == 1
    assert f"job 7: bedplate: {node.file} is not there" in said.read_text()


def test_a_file_that_fs_verity_holds_is_known_by_its_measurement_alone(node: Node) -> None:
    """The importer's part of it; what the kernel measures is tried where there is a file system that has it."""
    real = node.sealer.read_text()
    node.sealed.chmod(0o644)
    node.sealed.write_text(re.sub(r" -$", " fs-verity:abc", node.sealed.read_text()))
    for said, code in (("fs-verity:abc", 0), ("fs-verity:abd", 1), ("-", 1)):
        node.sealer.write_text(f'#!/bin/sh\n[ "$1 $2" = "measure {node.file}" ] && echo {said}\n')
        done = node.get(f"{REPOSITORY}@{MANIFEST}")
        assert done.returncode == code, done.stderr
    node.sealer.write_text(real)
    done = node.get(f"{REPOSITORY}@{MANIFEST}")  # this file has none: whoever took it away is told
    assert done.returncode == 1
    assert "is not the file that was hashed: it is -, that was fs-verity:abc" in done.stderr
