"""The files that an image is built from: images/DIR of a site as bytes, and any context of a build by its names."""

import hashlib
import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bedplate.decide.images.recipe import (
    LOCK,
    READ,
    Commits,
    Recipe,
    Role,
    own_arguments,
    read_recipe,
    script_recipe,
    scripts,
    upstream_arguments,
)
from bedplate.model.canonical import identity
from bedplate.model.faults import BadInput, Fault
from bedplate.model.image import ImageDefinition, parse_image
from bedplate.sources import checkout

DOCKERFILE = "Dockerfile"
IMAGE_FILE = "image.yml"


@dataclass(frozen=True)
class DefinitionFiles:
    """files: every file but image.yml, by its path in the directory; executable: which of them are."""

    image_yml: str
    files: Mapping[str, bytes]
    executable: frozenset[str]

    def write_context(self, folder: Path) -> None:
        """Write the files where a builder takes them from, with the same modes on every machine.

        So what was hashed is what is built, whatever the umask of the checkout, and whoever edits it meanwhile.
        """
        folder.mkdir()
        for path, data in self.files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            target.chmod(0o755 if path in self.executable else 0o644)
        for directory, _, _ in os.walk(folder):
            Path(directory).chmod(0o755)


def read_definition(folder: Path, *, shown: str) -> DefinitionFiles:
    """Read a definition's directory; shown: its name in messages.

    Raises:
        BadInput: it holds something that is no plain file, or that cannot be read. Every one is named.
    """
    faults: list[Fault] = []
    files: dict[str, bytes] = {}
    executable = set()
    for directory, inner, names in os.walk(folder):
        links = [name for name in inner if (Path(directory) / name).is_symlink()]
        for name in sorted([*names, *links]):
            path = Path(directory) / name
            inside = path.relative_to(folder).as_posix()
            try:
                mode = path.lstat().st_mode
                if not stat.S_ISREG(mode):
                    found = "a symbolic link" if stat.S_ISLNK(mode) else "no plain file"
                    faults.append(Fault(f"{shown}/{inside}", None, found, "put the file itself there"))
                    continue
                files[inside] = path.read_bytes()
            except OSError as fault:
                faults.append(Fault(f"{shown}/{inside}", None, f"cannot be read: {fault.strerror}"))
                continue
            if mode & stat.S_IXUSR:
                executable.add(inside)
    if IMAGE_FILE not in files and not faults:
        faults.append(Fault(f"{shown}/{IMAGE_FILE}", None, "no such file"))
    if faults:
        raise BadInput(faults)
    text = files.pop(IMAGE_FILE).decode(errors="replace")  # a wrong byte is a fault of site.image()
    return DefinitionFiles(text, files, frozenset(executable - {IMAGE_FILE}))


def context_files(folder: Path) -> frozenset[str]:
    """Every path below a build's context, directories too; what git keeps for itself is no part of it."""
    found: set[str] = set()
    for directory, inner, names in os.walk(folder):
        inner[:] = sorted(name for name in inner if name != ".git")
        found |= {(Path(directory) / name).relative_to(folder).as_posix() for name in (*inner, *names)}
    return frozenset(found)


def context_sha256(folder: Path) -> str:
    """The identity of a build's context: names, bytes, executable bits and targets of links, empty directories too."""
    said: dict[str, list[object]] = {}
    for inside in context_files(folder):
        path = folder / inside
        if path.is_symlink():
            said[inside] = ["link", str(path.readlink())]
        elif path.is_dir():
            said[inside] = ["directory"]
        else:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            said[inside] = ["file", bool(path.stat().st_mode & stat.S_IXUSR), digest]
    return identity(said)


def context_texts(folder: Path, paths: Collection[str], *, shown: str) -> dict[str, str]:
    """Those of some files that are there, as text.

    Raises:
        BadInput: one cannot be read, or is no text.
    """
    texts: dict[str, str] = {}
    faults: list[Fault] = []
    for path in paths:
        try:
            texts[path] = (folder / path).read_bytes().decode()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except UnicodeDecodeError:
            faults.append(Fault(f"{shown}/{path}", None, "no UTF-8", "save the file as UTF-8"))
        except OSError as fault:
            faults.append(Fault(f"{shown}/{path}", None, f"cannot be read: {fault.strerror}"))
    if faults:
        raise BadInput(faults)
    return texts


def definition_in(folder: Path, *, shown: str) -> ImageDefinition:
    """The definition in a directory.

    Raises:
        BadInput: there is none, or it is wrong.
    """
    texts = context_texts(folder, [IMAGE_FILE], shown=shown)
    if IMAGE_FILE not in texts:
        raise BadInput([Fault(f"{shown}/{IMAGE_FILE}", None, "no such file", "write it: docs/image.md has its keys")])
    return parse_image(texts[IMAGE_FILE], f"{shown}/{IMAGE_FILE}")


def recipes(
    folder: Path,
    *,
    shown: str,
    dockerfile: str | None = None,
    target: str | None = None,
    upstream: Path | None = None,
    commits: Commits | None = None,
) -> list[Recipe]:
    """All that an image in a directory is made by: a definition (and its upstream, in a checkout), or a Dockerfile.

    dockerfile, target: of a directory without image.yml; a definition says both itself. commits: what is known of
    upstream, where that is no checkout but the files of a commit.

    Raises:
        BadInput: files are missing or cannot be read.
    """
    if not (folder / IMAGE_FILE).is_file():
        if upstream is not None:
            what = "no image.yml, so no upstream that a checkout could be of"
            raise BadInput([Fault(shown, None, what, "name the checkout itself, with --file and --target")])
        git = Commits(shown, *checkout.commits(folder)) if (folder / ".git").exists() else None
        return _recipes(folder, shown, dockerfile or DOCKERFILE, Role.PLAIN, target=target, commits=git)
    image = definition_in(folder, shown=shown)
    found: list[Recipe] = []
    git = None
    if upstream is not None:
        if image.upstream is None:
            raise BadInput([Fault(f"{shown}/{IMAGE_FILE}", None, "names no upstream", "leave --checkout out")])
        git = commits or Commits(str(upstream), *checkout.commits(upstream, image.upstream.tag))
        given, goal = upstream_arguments(image), image.upstream.target
        at = {"target": goal, "given": given, "image": image, "commits": git}
        locks = (*READ, *image.upstream.lockfiles)
        found += _recipes(upstream, git.folder, image.upstream.dockerfile, Role.UPSTREAM, locks, **at)
    own = _recipes(folder, shown, image.dockerfile, Role.OWN, given=own_arguments(image), image=image, commits=git)
    below = found[0].texts.get(LOCK, "") if found else ""
    return [*(replace(recipe, below=below) for recipe in own), *found]


def _recipes(
    folder: Path, shown: str, dockerfile: str, role: Role, reads: Collection[str] = READ, **said: Any
) -> list[Recipe]:
    """A Dockerfile, and the scripts that it starts."""
    place = f"{shown}/{dockerfile}"
    texts = context_texts(folder, {*reads, dockerfile}, shown=shown)
    if dockerfile not in texts:
        raise BadInput([Fault(place, None, "no such file", "write it, or name it: --file")])
    files = context_files(folder)
    if role is Role.UPSTREAM and (image := said.get("image")):
        files |= frozenset(image.upstream.empty)  # made by the build
    found = read_recipe(texts.pop(dockerfile), place, role=role, files=files, texts=texts, folder=shown, **said)
    started = context_texts(folder, scripts(found), shown=shown)
    return [found, *(script_recipe(found, path, text) for path, text in started.items())]
