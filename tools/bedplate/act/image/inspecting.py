"""What a built image turned out to be: its versions, its commits, its packages; and how a second build compares.

Everything is read from the image's own layers; nothing of it is run. An image that is not what the definition says is
refused, whatever its build said.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bedplate.act.builders import contents
from bedplate.act.image.inputs import BUILT_FROM_FILE, Inputs
from bedplate.act.image.state import digest_of
from bedplate.decide.buildrecord import Answer, Reproduced
from bedplate.decide.images import difference, inventory, versions
from bedplate.decide.images.inventory import Package
from bedplate.model.faults import Refused
from bedplate.model.image import ImageDefinition
from bedplate.sources.commit import blob_of

_NAMED = 5  # files in one message


@dataclass(frozen=True)
class Found:
    """What an image holds. versions: those that matter, where there is exactly one."""

    platform: str
    diff_ids: tuple[str, ...]
    versions: Mapping[str, str]
    packages: tuple[Package, ...]


def found_in(image: Path, definition: ImageDefinition, inputs: Inputs) -> Found:
    """Read an image, and compare it with what it should be.

    Raises:
        Refused: it holds other versions or other commits than the definition says.
    """
    code = definition.upstream.code.lstrip("/") + "/" if definition.upstream and definition.upstream.code else None

    def wanted(path: str) -> bool:
        named = path.rpartition("/")[2] == BUILT_FROM_FILE
        return versions.wanted(path) or inventory.wanted(path) or named or bool(code and path.startswith(code))

    files = contents.files_of(image, wanted, largest_bytes=versions.LARGEST_BYTES)
    config = contents.config_of(image)
    wrong = [str(fault) for fault in versions.version_faults(definition, files)]
    if inputs.built_from:
        wrong += _commit_faults(files, config.get("config", {}).get("Labels") or {}, inputs)
    wrong += _code_faults(files, code, inputs.code) if code else []
    if wrong:
        raise Refused("\n".join(["the built image is not the one that is expected; it is not kept", *wrong]))
    return Found(
        platform=f"{config.get('os', 'linux')}/{config.get('architecture', 'unknown')}",
        diff_ids=tuple(config.get("rootfs", {}).get("diff_ids", ())),
        versions=versions.recorded(definition, files),
        packages=tuple(inventory.packages(files)),
    )


def _commit_faults(files: Mapping[str, bytes], labels: Mapping[str, str], inputs: Inputs) -> list[str]:
    faults = [
        f"label {key}: expected {value}, the built image has {labels.get(key)}"
        for key, value in inputs.labels.items()
        if labels.get(key) != value
    ]
    there = [path for path in files if path.rpartition("/")[2] == BUILT_FROM_FILE]
    if not there:
        faults.append(f"no {BUILT_FROM_FILE} in the built image (COPY --from=built-from . /opt/…)")
    faults += [
        f"/{path} of the built image does not name the commits that it is built from"
        for path in there
        if files[path] != inputs.built_from
    ]
    return faults


def _code_faults(files: Mapping[str, bytes], code: str, expected: Mapping[str, str]) -> list[str]:
    """Every file of the commit is where the definition says, with its bytes, and no other file is there."""
    there = {path: data for path, data in files.items() if path.startswith(code)}
    missing = sorted(expected.keys() - there.keys())
    foreign = sorted(there.keys() - expected.keys() - {f"{code}{BUILT_FROM_FILE}"})
    other = sorted(path for path in expected.keys() & there.keys() if blob_of(there[path]) != expected[path])
    told = (("missing", missing), ("no file of the commit", foreign), ("with other bytes than the commit's", other))
    return [f"/{code}: {what}: {_list(paths)}" for what, paths in told if paths]


def _list(paths: list[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more


def compared(first: Path, second: Path) -> Reproduced:
    """Whether two built images are the same, else what differs first."""
    if digest_of(first) == digest_of(second):
        return Reproduced(Answer.YES, f"two builds gave {digest_of(first)}")
    one, other = contents.layers_of(first), contents.layers_of(second)
    at = difference.first_other(one, other)
    if at is None:
        said = difference.config_difference(contents.config_of(first), contents.config_of(second))
        return Reproduced(Answer.NO, said)
    before = contents.entries_of(first, one[at]) if at < len(one) else {}
    after = contents.entries_of(second, other[at]) if at < len(other) else {}
    return Reproduced(Answer.NO, difference.layer_difference(at + 1, before, after))
