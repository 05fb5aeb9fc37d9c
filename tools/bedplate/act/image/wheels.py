"""The package that CPU tests run against the commit that the image is built from: what of it is not the same.

Our own lock has the upstream's package as a wheel of an index, for tests without the image; the image has the commit. A
wheel is compared if its file is given; that it was not is in the record too.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

from bedplate.decide.buildrecord import Wheel
from bedplate.decide.images.wheel import locked_wheels, project_name
from bedplate.model.faults import BadInput, Fault
from bedplate.sources.uv import LOCK, PROJECT
from bedplate.sources.wheel import compared, file_sha256

NOT_GIVEN = "not compared: the wheel was not given (bedplate image build ENV --wheel FILE)"


def wheels(own: Mapping[str, bytes], upstream: Path | None, given: Collection[Path]) -> tuple[Wheel, ...]:
    """What the record says of the wheel that our lock has of the upstream's package.

    own: files of the definition. upstream: the commit's files.

    Raises:
        BadInput: a file is given that is no wheel of our lock, or has nothing in common with the commit.
    """
    expected = _expected(own, upstream)
    hashes = {file: file_sha256(file) for file in given}
    known = expected[2] if expected else frozenset()
    faults = [
        Fault(str(file), None, f"has {digest}, and is no wheel that {LOCK} of the definition has of upstream's package",
              f"give one of: {', '.join(sorted(known)) or 'none, it has none: leave --wheel out'}")
        for file, digest in hashes.items()
        if digest not in known
    ]  # fmt: skip
    if faults:
        raise BadInput(faults)
    if expected is None or upstream is None:
        return ()
    name, version, _ = expected
    if not hashes:
        return (Wheel(name, version, None, NOT_GIVEN),)
    return tuple(_compared(name, version, file, digest, upstream) for file, digest in hashes.items())


def _expected(own: Mapping[str, bytes], upstream: Path | None) -> tuple[str, str, frozenset[str]] | None:
    if upstream is None or LOCK not in own or not (upstream / PROJECT).is_file():
        return None
    name = project_name((upstream / PROJECT).read_text(errors="replace"))
    found = locked_wheels(own[LOCK].decode(errors="replace"), name) if name else None
    return (name, *found) if name and found else None


def _compared(name: str, version: str, file: Path, digest: str, upstream: Path) -> Wheel:
    found = compared(file, upstream)
    differ = len(found["differ"])
    says = (
        f"{found['same']} files are the same, {differ} differ" if differ else f"all {found['same']} files are the same"
    )
    lists = {key: tuple(found[key]) for key in ("compiled", "wheel_only", "commit_only")}
    return Wheel(name, version, digest, says, found["same"], found["differ"], **lists)
