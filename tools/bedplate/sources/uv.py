"""uv, asked what would happen: its resolver, in copies of a project; nothing is installed and nothing is built.

- Core packages of an image exist in no index. They are shown to the resolver as empty wheels with the image's versions.
- Packages without a wheel are no answer: to look into them means to run them.
- The project's own settings hold (indexes, find-links), those of the user's environment too.
"""

import shutil
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bedplate.decide.images import packages
from bedplate.decide.images.packages import Change, Replaced
from bedplate.model.faults import BadInput, Fault
from bedplate.model.image import ImageDefinition
from bedplate.process import Finished, run
from bedplate.sources.files import write_whole

PROJECT, LOCK = "pyproject.toml", "uv.lock"
RESOLVE_TIMEOUT_S = 600.0
SAID_LINES = 12  # of what uv says of a conflict: its conclusion stands at the end
# Ubuntu 24.04's glibc: NVIDIA's images stand on it, and wheels for later ones would not load.
PLATFORM, PYTHON = "x86_64-manylinux_2_39", "3.12"


@dataclass(frozen=True)
class Trial:
    """What adding packages would do.

    before, after: pyproject.toml and uv.lock; after is None where a core package is in the way.
    """

    before: tuple[str, str]
    replaced: tuple[Replaced, ...]
    changes: tuple[Change, ...] = ()
    after: tuple[str, str] | None = None


def trial(folder: Path, image: ImageDefinition, specs: Sequence[str], *, shown: str) -> Trial:
    """Try to add packages to a project that an image is made with.

    Raises:
        BadInput: a specification is none, files are missing, or no resolution exists at all; uv's words tell why.
    """
    wanted = packages.read_specs(specs)
    pyproject, lock = read(folder, shown=shown)
    before = packages.locked(lock, f"{shown}/{LOCK}")
    has = packages.image_has(image.expects)
    try:
        requirements = [str(each) for each in tomllib.loads(pyproject)["project"].get("dependencies", [])]
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as fault:
        raise BadInput([Fault(f"{shown}/{PROJECT}", None, f"no project: {fault}", "correct it")]) from fault
    asked = [*packages.others(requirements, has), *wanted.values()]
    with _copy(pyproject, lock) as place:
        prefer = [f"{name}=={version}" for name, version in before.items() if version and " " not in version]
        fitting = _compile(place, asked, prefer, has)
        answer = fitting if fitting.code == 0 else _compile(place, asked, prefer, {})
        if answer.code:
            raise BadInput(f"{', '.join(wanted.values())}: uv finds no way to have it{_why(answer)}")
        found = packages.replaced(packages.read_answer(answer.out), image.expects)
        if fitting.code and not found:
            raise BadInput(f"{', '.join(wanted.values())}: does not go with what the image has{_why(fitting)}")
        if found:
            return Trial((pyproject, lock), tuple(found))
        added = run(
            ("uv", "add", "--no-sync", *_QUIET, "--", *wanted.values()),
            cwd=place, check=False, timeout_s=RESOLVE_TIMEOUT_S,
        )  # fmt: skip
        if added.code:
            raise BadInput(f"{', '.join(wanted.values())}: {shown} cannot be locked with it{_why(added)}")
        after = (place / PROJECT).read_text(), (place / LOCK).read_text()
    return Trial((pyproject, lock), (), tuple(packages.changes(before, packages.locked(after[1], LOCK))), after)


def write(folder: Path, found: Trial, *, shown: str) -> None:
    """Write project and lock as a trial left them.

    Raises:
        BadInput: they were changed since they were read.
    """
    if found.after is None:
        raise ValueError("a trial that replaces what the image has is never written")
    if read(folder, shown=shown) != found.before:
        raise BadInput([Fault(shown, None, "was changed while the packages were tried", "run it again")])
    write_whole(folder / LOCK, found.after[1])
    write_whole(folder / PROJECT, found.after[0])  # killed between the two, `--locked` tells of it


_QUIET = ("--quiet", "--no-build", "--no-python-downloads", "--python", sys.executable)


def read(folder: Path, *, shown: str) -> tuple[str, str]:
    """pyproject.toml and uv.lock of a project.

    Raises:
        BadInput: one cannot be read.
    """
    texts, faults = [], []
    for name in (PROJECT, LOCK):
        try:
            texts.append((folder / name).read_bytes().decode())
        except (OSError, UnicodeDecodeError) as fault:
            said = fault.strerror if isinstance(fault, OSError) else "no UTF-8"
            faults.append(
                Fault(f"{shown}/{name}", None, f"cannot be read: {said}", "packages are added to a uv project")
            )
    if faults:
        raise BadInput(faults)
    return texts[0], texts[1]


@contextmanager
def _copy(pyproject: str, lock: str) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="bedplate-uv-"))
    try:
        (place / PROJECT).write_text(pyproject)
        (place / LOCK).write_text(lock)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _compile(place: Path, asked: Iterable[str], prefer: Iterable[str], has: Mapping[str, str]) -> Finished:
    """Ask for one set of versions; `out` is the answer, with who wants each."""
    wheels, wanted, answer = place / "core", place / "wanted.in", place / "answer.txt"
    shutil.rmtree(wheels, ignore_errors=True)
    wheels.mkdir()
    for name, version in has.items():
        _empty_wheel(wheels, name, version)
    wanted.write_text("\n".join([*asked, *(f"{name}=={version}" for name, version in has.items())]) + "\n")
    answer.write_text("\n".join(prefer) + "\n")  # uv keeps what stands in the file that it is to write
    words = ["uv", "pip", "compile", wanted.name, "--output-file", answer.name, "--no-header", *_QUIET]
    words += ["--annotation-style", "line", "--python-version", PYTHON, "--python-platform", PLATFORM]
    words += ["--find-links", str(wheels)]
    done = run(words, cwd=place, check=False, timeout_s=RESOLVE_TIMEOUT_S)
    return Finished(done.argv, done.code, answer.read_text(), done.err)


def _empty_wheel(folder: Path, name: str, version: str) -> None:
    stem = f"{name.replace('-', '_')}-{version}"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        inside = f"{stem}.dist-info"
        wheel.writestr(f"{inside}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{inside}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{inside}/RECORD", "")


def _why(done: Finished) -> str:
    said = [line for line in done.err.strip().splitlines() if line.strip()]
    return ":\n  " + "\n  ".join(said[-SAID_LINES:]) if said else ""
