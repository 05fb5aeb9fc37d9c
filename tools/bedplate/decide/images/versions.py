"""Which versions a built image holds, by its own files: dpkg's status, CUDA's version.json, Python's dist-info.

What the environment variables of a base image say is not asked: a recipe may replace what they speak of, and upstream's
does (NCCL). Two of one thing are two findings: which of them a job loads is decided by search paths.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bedplate.decide.images.core import is_core
from bedplate.model.faults import Fault
from bedplate.model.image import ImageDefinition

_DPKG = "var/lib/dpkg/status"
_TOOLKIT = re.compile(r"usr/local/cuda[^/]*/version\.json")
_DISTRIBUTION = re.compile(r"(?:.+/)?(?:site|dist)-packages/[^/]+\.dist-info/METADATA")
LARGEST_BYTES = 64 * 1024 * 1024  # dpkg's status of an image with everything has 2 MB
# name in `expects` -> packages of dpkg, wheels of Python that are it
_PACKAGES = {"libnccl2": "nccl"}
_NAMED = ("cuda", "nccl", "numpy")
_WHEELS = re.compile(r"nvidia-(nccl)-cu\d+")


@dataclass(frozen=True, order=True)
class Held:
    """One version of a thing, and the file that says so."""

    version: str
    where: str


def wanted(path: str) -> bool:
    """Whether a file of an image, by its path without a leading slash, says a version."""
    return path == _DPKG or bool(_TOOLKIT.fullmatch(path) or _DISTRIBUTION.fullmatch(path))


def held(files: Mapping[str, bytes]) -> dict[str, list[Held]]:
    """The versions that files say, by the name that `expects` has for the thing."""
    found: dict[str, set[Held]] = {}
    for path, data in files.items():
        text = data.decode(errors="replace")
        if path == _DPKG:
            pairs = _dpkg(text)
        elif _TOOLKIT.fullmatch(path):
            pairs = _toolkit(text)
        else:
            pairs = _distribution(text)
        for name, version in pairs:
            found.setdefault(name, set()).add(Held(version, path))
    return {name: sorted(versions) for name, versions in found.items()}


def version_faults(image: ImageDefinition, files: Mapping[str, bytes]) -> list[Fault]:
    """Every version that is expected and not found, or found and not expected."""
    found = held(files)
    faults = []
    for name, expected in image.expects.items():
        there = found.get(name, [])
        wrong = [each for each in there if not _is(each.version, expected)]
        if not there:
            what, remedy = f"expected {expected}, and the built image has none", "correct the recipe, or the name"
        elif wrong:
            said = ", ".join(f"{each.version} (/{each.where})" for each in wrong)
            what, remedy = f"expected {expected}, the built image has {said}", "correct the recipe, or what is expected"
        else:
            continue
        faults.append(image.document.fault(("expects", name), what, remedy))
    return faults


def recorded(image: ImageDefinition, files: Mapping[str, bytes]) -> dict[str, str]:
    """The versions that a record keeps: what is expected and the core, where the image has exactly one of it."""
    return {
        name: there[0].version
        for name, there in sorted(held(files).items())
        if (name in image.expects or name in _NAMED or is_core(name)) and len({each.version for each in there}) == 1
    }


def _is(version: str, expected: str) -> bool:
    # NVIDIA's images put the image's own release behind PyTorch's version: 2.13.0a0+8145d630e8.nv26.06
    return version == expected or re.fullmatch(rf"{re.escape(expected)}\.nv[0-9.]+", version) is not None


def _dpkg(text: str) -> Iterable[tuple[str, str]]:
    for entry in text.split("\n\n"):
        said = dict(re.findall(r"^(Package|Status|Version): (.*)$", entry, re.MULTILINE))
        name = _PACKAGES.get(said.get("Package", ""))
        if name and "Version" in said and said.get("Status", "").endswith(" installed"):
            yield name, said["Version"].strip()


def _toolkit(text: str) -> Iterable[tuple[str, str]]:
    try:
        version = json.loads(text)["cuda"]["version"]
    except (ValueError, KeyError, TypeError):
        return
    if isinstance(version, str):
        yield "cuda", version


def _distribution(text: str) -> Iterable[tuple[str, str]]:
    head = text.partition("\n\n")[0]
    said = dict(re.findall(r"^(Name|Version): (.*)$", head, re.MULTILINE))
    if "Name" in said and "Version" in said:
        name = re.sub(r"[-_.]+", "-", said["Name"].strip()).lower()
        yield name, said["Version"].strip()
        if wheel := _WHEELS.fullmatch(name):
            yield wheel[1], said["Version"].strip()
