"""Whether a Python package may be added to an image: what it would replace of the image's own, what it would change.

The question is put to a resolver (sources/uv.py) twice: once with exactly the core packages that the image has, once
with a free hand. A package that fits the first way leaves the core as it is. One that fits only the second way replaces
what the second answer has other versions of: PyPI's torch 2.13.0, say, for the image's 2.13.0a0+8145d630e8, which is an
earlier version by PEP 440, though it was built from a later commit.
"""

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from bedplate.decide.images.core import is_core
from bedplate.model.faults import BadInput, Fault
from bedplate.model.image import CUDA

_SPEC = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(\[[A-Za-z0-9._, -]*\])?\s*"
    r"((===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]+\s*(,\s*(===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]+\s*)*)?"
    r"(;[^;\n]+)?"
)
_PINNED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)[^#]*(#\s*via\s+(?P<via>.*))?")
NCCL = "nccl"
_NO_PACKAGES = (CUDA, NCCL)  # names in `expects` that are found elsewhere than among Python's packages


@dataclass(frozen=True)
class Resolved:
    """One package of an answer; via: who wants it, as the resolver names them."""

    name: str
    version: str
    via: tuple[str, ...] = ()


@dataclass(frozen=True)
class Replaced:
    """One core package that would not stay as it is; has: what the image has, None: nobody says."""

    name: str
    has: str | None
    would: str
    via: tuple[str, ...]

    def __str__(self) -> str:
        by = f" (wanted by {', '.join(self.via)})" if self.via else ""
        if self.has is None:
            return f"would bring {self.name} {self.would} over the image's own, whose version nobody says{by}"
        return f"would replace {self.name} {self.has} by {self.would}{by}"


@dataclass(frozen=True)
class Change:
    """One package of the lock: was None: it is new; becomes None: it goes."""

    name: str
    was: str | None
    becomes: str | None


def normal(name: str) -> str:
    """A package's name as indexes write it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_specs(specs: Iterable[str]) -> dict[str, str]:
    """Requirements by the names of their packages.

    Raises:
        BadInput: every one that is no name with versions.
    """
    faults, found = [], {}
    for spec in specs:
        read = _SPEC.fullmatch(spec.strip())
        if read is None:
            what = "is no package of an index with versions"
            remedy = "NAME, NAME==1.2, NAME>=1,<2; what lies in git is a layer of kind source"
            faults.append(Fault(f'"{spec}"', None, what, remedy))
        elif normal(read["name"]) in found:
            faults.append(Fault(f'"{spec}"', None, f"{normal(read['name'])} is asked for twice", "once is enough"))
        else:
            found[normal(read["name"])] = spec.strip()
    if faults:
        raise BadInput(faults)
    return found


def image_has(expects: Mapping[str, str]) -> dict[str, str]:
    """The Python packages of an image whose versions its definition says."""
    return {normal(name): version for name, version in expects.items() if name not in _NO_PACKAGES}


def others(requirements: Iterable[str], has: Collection[str]) -> list[str]:
    """The requirements of a project without those that the image brings itself."""
    kept = []
    for requirement in requirements:
        read = re.match(r"[A-Za-z0-9._-]+", requirement)
        name = normal(read[0]) if read else ""
        if not is_core(name) and name not in has:
            kept.append(requirement)
    return kept


def read_answer(text: str) -> list[Resolved]:
    """What `uv pip compile --annotation-style line` printed."""
    found = []
    for line in text.splitlines():
        if read := _PINNED.match(line.strip()):
            via = tuple(each.strip() for each in (read["via"] or "").split(",") if each.strip())
            found.append(
                Resolved(normal(read["name"]), read["version"], tuple(v for v in via if not v.startswith("-r")))
            )
    return found


def replaced(answer: Iterable[Resolved], expects: Mapping[str, str]) -> list[Replaced]:
    """The core packages of an answer that are not what the image has; those first whose version it says."""
    has = image_has(expects)
    found = []
    for each in answer:
        known = has.get(each.name) or (expects.get(NCCL) if each.name.startswith("nvidia-nccl-") else None)
        if (is_core(each.name) or each.name in has) and known != each.version:
            found.append(Replaced(each.name, known, each.version, each.via))
    return sorted(found, key=lambda each: (each.has is None, each.name))


def locked(text: str, file: str) -> dict[str, str]:
    """Names and versions of a uv.lock; several versions of one package stand behind each other.

    Raises:
        BadInput: it is none.
    """
    try:
        packages = tomllib.loads(text).get("package", [])
        found: dict[str, list[str]] = {}
        for package in packages:
            found.setdefault(normal(package["name"]), []).append(str(package.get("version", "")))
    except (tomllib.TOMLDecodeError, TypeError, KeyError, AttributeError) as fault:
        raise BadInput([Fault(file, None, f"no lock of uv: {fault}", "write it: uv lock")]) from fault
    return {name: " ".join(sorted(versions)) for name, versions in found.items()}


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[Change]:
    """What is another version, new or gone, by name."""
    return [
        Change(name, before.get(name), after.get(name))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
