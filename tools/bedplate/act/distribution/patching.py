"""Patches on this controller: made once, kept beside the artifacts."""

import os
from collections.abc import Callable
from pathlib import Path

from bedplate.act.distribution.artifact import Artifact
from bedplate.act.distribution.payload import Payload
from bedplate.act.image import artifact_path, artifacts
from bedplate.decide.distribution.patches import SMALLEST, Patch, parse_patch, patch_name, window
from bedplate.process import ProcessFailed, run
from bedplate.sources.files import sync_directory, write_whole
from bedplate.sources.site import Site

MAKE_TIMEOUT_S = 4 * 3600.0
LEVEL = "-1"  # -3 and -9 save 1 % and 2 % of a patch for half and four times more time (docs/distribution.md)


def bases(site: Site, what: Artifact) -> dict[str, int]:
    """Earlier artifacts on this controller that a patch could be made against: file -> how recent it is, in ns."""
    if what.size < SMALLEST:
        return {}
    folder = artifact_path(site, what.sha256).parent
    return {
        path.name: path.stat().st_mtime_ns
        for path in sorted(folder.glob("sha256-*.sqsh"))
        if path.name != what.file and path.is_file()
    }


def sizes(site: Site, names: dict[str, int]) -> dict[str, int]:
    return {name: (site.root / "artifacts" / name).stat().st_size for name in names}


def patch(base_file: str, what: Artifact, source: Path, say: Callable[[str], None]) -> tuple[Patch, Payload] | None:
    """The patch from one artifact to another, made if there is none; None: it is not worth moving, or cannot be made.

    The base is believed by its name: a node hashes what it makes with the patch, and nothing else counts.
    """
    folder = source.parent
    base = base_file.removeprefix("sha256-").removesuffix(".sqsh")
    path = folder / patch_name(base, what.hexadecimal)
    record = path.with_suffix(".json")
    found = parse_patch(record.read_text()) if record.exists() else None
    if found is None or (found.worth_it and (not path.exists() or path.stat().st_size != found.size)):
        say(f"making the patch from {base_file[:19]} to {what.file[:19]}")
        try:
            found = _make(folder / base_file, source, path, base, what)
        except ProcessFailed as fault:
            say(f"no patch, the whole file is moved: {fault}")
            return None
        write_whole(record, found.text())
    if not found.worth_it:
        say(f"the patch has {found.size} of {what.size} bytes: the whole file is moved")
        return None
    if f"sha256:{found.sha256}" != artifacts.fingerprint(path)[0]:
        record.unlink()
        say(f"{path.name} is damaged: the whole file is moved, and the patch is made again when it is next needed")
        return None
    return found, Payload(found.name, found.sha256, found.size, path)


def _make(base: Path, source: Path, path: Path, base_sha256: str, what: Artifact) -> Patch:
    looked_at = window(base.stat().st_size)
    temp = path.with_name(f".{path.name}.part")
    try:
        # -A: no file names in the patch, so that the same two files give the same patch.
        argv: list[str | Path] = ["xdelta3", "-e", "-f", LEVEL, "-A", "-B", str(looked_at), "-s", base, source, temp]
        run(argv, timeout_s=MAKE_TIMEOUT_S)
        digest, size, _ = artifacts.fingerprint(temp)
        tool = run(["xdelta3", "-V"], timeout_s=30, check=False)
        made = Patch(
            base_sha256, what.hexadecimal, digest.removeprefix("sha256:"), size, what.size, looked_at,
            (tool.err or tool.out).partition("\n")[0].partition(",")[0],
        )  # fmt: skip
        if made.worth_it:
            with temp.open("rb") as file:
                os.fsync(file.fileno())
            temp.rename(path)
            sync_directory(path.parent)
    finally:
        temp.unlink(missing_ok=True)
    return made
