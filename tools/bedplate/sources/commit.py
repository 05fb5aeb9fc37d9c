"""A commit of somebody's repository as the files that it holds, whatever lies in a worktree.

- The commit is the one that the definition names. A tag that is missing or that is another commit is told with both.
- Files are `git archive`'s, without the reader's own settings (line ends, filters, masks), and each is compared with
  the blob that the commit has for it: what is built is the commit, or nothing is.
- What git leaves out (submodules, `export-ignore`) is told by name, for the record.

A checkout that a person names is only read. Without one, the commit is fetched into a bare repository of a cache.
"""

import hashlib
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bedplate.decide.images.recipe import Commits
from bedplate.decide.images.rules.tag_commit import commit_faults
from bedplate.model.faults import BadInput, BedplateError, Fault
from bedplate.model.image import ImageDefinition, Layer, Upstream
from bedplate.model.text import Path as Place
from bedplate.process import Finished, ProcessFailed, run
from bedplate.sources import checkout

FETCH_TIMEOUT_S = 3600.0
ASK_TIMEOUT_S = 120.0
EPOCH_S = 1_735_689_600  # 2025-01-01T00:00:00Z: any fixed time will do; before 1980 zip files break
_SUBMODULE = "160000"  # git's mode of a tree entry that is a commit of another repository
# A reader's own settings would change the bytes: core.autocrlf line ends, tar.umask modes, a filter (LFS) the content.
_AS_COMMITTED = (
    "-c", "tar.umask=0022", "-c", "core.autocrlf=false", "-c", "core.eol=lf", "-c", "core.attributesFile=/dev/null",
    "-c", "filter.lfs.smudge=", "-c", "filter.lfs.process=", "-c", "filter.lfs.required=false",
)  # fmt: skip


@dataclass(frozen=True)
class Commit:
    """Where a commit can be read. head: what `git rev-parse HEAD` says there; tag: None where nobody named one."""

    repository: str
    folder: Path
    commit: str
    head: str
    tag: str | None = None


@dataclass(frozen=True)
class Exported:
    """The files of a commit in a directory.

    tree: git's own hash of them; blobs: path -> git's hash of the file; left_out: paths that git does not hand out, of
    which submodules are commits of other repositories.
    """

    tree: str
    blobs: dict[str, str]
    left_out: tuple[str, ...]
    submodules: tuple[str, ...]


def upstream(image: ImageDefinition, folder: Path | None, cache: Path, log: Path) -> Commit:
    """The commit that a definition stands on: in a checkout, else fetched into the cache.

    Raises:
        BadInput: tag, commit and checkout do not agree, or the repository lacks one of them.
        BedplateError: the repository cannot be reached.
    """
    asked = image.upstream
    assert asked is not None  # noqa: S101  whoever asks has looked
    named, place = folder is not None, folder or bare(cache, asked.repository)
    if folder is None:
        _fetch_tag(image, asked, place, log)
    said = Commits(str(place) if named else asked.repository, *checkout.commits(place, asked.tag))
    if faults := list(commit_faults(image.document, asked, said)):
        raise BadInput(faults)
    return Commit(asked.repository, place, asked.commit, said.head, asked.tag)


def source(image: ImageDefinition, index: int, layer: Layer, cache: Path, log: Path) -> Commit:
    """The commit of a layer of kind `source`, fetched into the cache.

    Raises:
        BadInput: the repository does not have it.
        BedplateError: the repository cannot be reached.
    """
    repository, commit = str(layer.repository), str(layer.commit)
    place = bare(cache, repository)
    if not _has(place, commit):
        _git(place, ("fetch", "--quiet", "--no-tags", "--depth", "1", repository, commit), log=log, check=False)
    if not _has(place, commit):
        # Not every server hands out a commit that no branch or tag points to directly.
        everything = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        done = _git(place, ("fetch", "--quiet", repository, *everything), log=log, check=False)
        if done.code:
            raise BedplateError(f"{repository} cannot be fetched (log: {log}): {done.err[-500:]}")
    if not _has(place, commit):
        at: Place = ("layers", index, "commit")
        raise BadInput([image.document.fault(at, f"{repository} has no commit {commit}", "correct one of the two")])
    _git(place, ("update-ref", "--no-deref", "HEAD", commit))
    return Commit(repository, place, commit, commit)


def bare(cache: Path, repository: str) -> Path:
    """The bare repository of the cache for an address, made if it is not there."""
    words = re.sub(r"[^A-Za-z0-9.-]+", "-", repository.removeprefix("https://"))
    place = cache / f"{words[:80]}-{hashlib.sha256(repository.encode()).hexdigest()[:12]}.git"
    if not (place / "HEAD").exists():
        place.mkdir(parents=True, exist_ok=True)
        run(("git", "init", "--quiet", "--bare", place), env=_environment())
    return place


def export(commit: Commit, target: Path) -> Exported:
    """Write the files of a commit into a new directory, every one with the bytes that the commit has for it.

    Raises:
        BadInput: git hands out other bytes than are committed.
    """
    target.mkdir(parents=True)
    archive = target.with_name(f"{target.name}.tar")
    try:
        _git(commit.folder, (*_AS_COMMITTED, "archive", "--format=tar", f"--output={archive}", commit.commit))
        with tarfile.open(archive, "r:") as tar:
            tar.extractall(target, filter="data")
    except tarfile.TarError as fault:
        raise BadInput(f"{commit.repository} at {commit.commit}: its files cannot be laid out: {fault}") from fault
    finally:
        archive.unlink(missing_ok=True)
    tree = _git(commit.folder, ("rev-parse", f"{commit.commit}^{{tree}}")).out.strip()
    wanted = dict(_listed(commit))
    faults, blobs = [], {}
    for path, (mode, blob) in wanted.items():
        found = None if mode == _SUBMODULE else _blob(target / path)
        if found is not None and found != blob:
            what = f"git archive hands out {found}, the commit {commit.commit} has {blob}"
            remedy = "an attribute (export-subst, a filter, .git/info/attributes) changes it: name a fresh clone"
            faults.append(Fault(f"{commit.folder}/{path}", None, what, remedy))
        elif found:
            blobs[path] = blob
    if faults:
        raise BadInput(faults)
    settle(target)
    submodules = tuple(sorted(path for path, (mode, _) in wanted.items() if mode == _SUBMODULE))
    return Exported(tree, blobs, tuple(sorted(wanted.keys() - blobs.keys())), submodules)


def settle(folder: Path) -> None:
    """The same modes and times on every machine: files are readable by all, directories open, all of one second."""
    for directory, inner, names in os.walk(folder):
        for name in [*inner, *names]:
            path = Path(directory) / name
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
            os.utime(path, (EPOCH_S, EPOCH_S), follow_symlinks=False)
    folder.chmod(0o755)
    os.utime(folder, (EPOCH_S, EPOCH_S))


def blob_of(data: bytes) -> str:
    """The hash that git has for a file's bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _blob(path: Path) -> str | None:
    if path.is_symlink():
        return blob_of(os.fsencode(path.readlink()))
    return blob_of(path.read_bytes()) if path.is_file() else None


def _listed(commit: Commit) -> Iterator[tuple[str, tuple[str, str]]]:
    """What the commit's tree has: path -> mode, hash."""
    said = _git(commit.folder, ("ls-tree", "-r", "-z", commit.commit)).out
    for entry in filter(None, said.split("\0")):
        head, _, path = entry.partition("\t")
        mode, _, blob = head.split(" ")
        yield path, (mode, blob)


def _fetch_tag(image: ImageDefinition, asked: Upstream, place: Path, log: Path) -> None:
    """Bring the tag's commit into the cache, once the repository says that the tag is what the definition says."""
    ref = f"refs/tags/{asked.tag}"
    said = _git(place, ("ls-remote", asked.repository, ref, f"{ref}^{{}}"), check=False, timeout_s=ASK_TIMEOUT_S)
    if said.code:
        raise BedplateError(f"{asked.repository} cannot be asked for {asked.tag}: {said.err.strip()[-500:]}")
    there = {name: commit for commit, name in (line.split("\t") for line in said.out.splitlines())}
    found = there.get(f"{ref}^{{}}") or there.get(ref)  # of a signed tag: what it points to
    if found is None:
        what = f"no tag {asked.tag} in {asked.repository}; the definition says {asked.commit}"
        raise BadInput([image.document.fault(("upstream", "tag"), what, "correct the tag, or ask who removed it")])
    if found != asked.commit:
        told = Commits(asked.repository, asked.commit, found)
        raise BadInput(commit_faults(image.document, asked, told))
    if not _has(place, asked.commit) or checkout.commit_of_tag(place, asked.tag) != asked.commit:
        try:
            _git(
                place,
                ("fetch", "--quiet", "--no-tags", "--force", "--depth", "1", asked.repository, f"+{ref}:{ref}"),
                log=log,
                timeout_s=FETCH_TIMEOUT_S,
            )
        except ProcessFailed as fault:
            raise BedplateError(f"{asked.repository} cannot be fetched (log: {log}): {fault}") from fault
    _git(place, ("update-ref", "--no-deref", "HEAD", asked.commit))


def _has(place: Path, commit: str) -> bool:
    return _git(place, ("cat-file", "-e", f"{commit}^{{commit}}"), check=False).code == 0


def _git(
    folder: Path,
    words: Sequence[str],
    *,
    check: bool = True,
    log: Path | None = None,
    timeout_s: float = FETCH_TIMEOUT_S,
) -> Finished:
    command: list[str | Path] = ["git", "-C", folder, *words]
    return run(command, check=check, log=log, timeout_s=timeout_s, env=_environment())


def _environment() -> dict[str, str]:
    """No question is asked of a person, no replaced object is taken for the commit."""
    return {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1", "LC_ALL": "C"}
