"""Which roles a machine gets, and in which order: said by each role itself, in roles/ROLE/role.yml.

A role applies where the environment manages its layer and, if the role names packages, where the lock has one of
them for that kind of node (and one of `beside`, too), and if it names values, where the environment sets one of them.
Order: layers, then `after` within a layer, then names. A role without a role.yml is not chosen by anybody: playbooks
or other roles use it.

Example of a role.yml:
    layer: scheduler
    packages: [slurmd, slurm-smd-slurmd]
    beside: [munge]                  # and one of these
    after: [enroot]
    preflight: true                  # has tasks/preflight.yml, which may refuse a node and changes nothing
    units: [slurmd.service]          # what must run afterwards
    modules: [ib_umad]               # kernel modules that a kernel must have before a node boots it
    replaces: [nvidia-driver-.*]     # what may not stay: installed members that the lock does not have are purged
    values: [log_server]             # only where the environment sets one of these values
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from bedplate.decide.lockdoc import LockDocument
from bedplate.model.faults import BadInput, Fault
from bedplate.model.layers import Layer
from bedplate.model.schema import Strict, checked, nearest
from bedplate.model.text import Document, parse_yaml

DECLARATION = re.compile(r"roles/([a-z0-9_]+)/role\.yml")
_LAYERS = list(Layer)


@dataclass(frozen=True)
class Role:
    """What a role says of itself."""

    name: str
    layer: Layer
    packages: tuple[str, ...] = ()
    """Names or fnmatch patterns; empty: it applies wherever the layer is managed."""
    beside: tuple[str, ...] = ()
    """Names or patterns, as in packages: one of these must be there as well."""
    after: tuple[str, ...] = ()
    preflight: bool = False
    units: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    """Regular expressions over names of packages."""


class _Role(Strict):
    layer: str
    packages: list[str] = []  # noqa: RUF012  pydantic copies it
    beside: list[str] = []  # noqa: RUF012
    after: list[str] = []  # noqa: RUF012
    preflight: bool = False
    units: list[str] = []  # noqa: RUF012
    modules: list[str] = []  # noqa: RUF012
    values: list[str] = []  # noqa: RUF012
    replaces: list[str] = []  # noqa: RUF012


def declared(sources: Mapping[str, bytes]) -> list[Role]:
    """Every role with a role.yml, in order; sources: path in the checkout -> bytes.

    Raises:
        BadInput: every fault of every role.yml, circles of `after` among them.
    """
    faults: list[Fault] = []
    roles: dict[str, Role] = {}
    documents: dict[str, Document] = {}
    for path, data in sorted(sources.items()):
        if match := DECLARATION.fullmatch(path):
            try:
                documents[match[1]] = parse_yaml(data.decode(errors="replace"), path)
                roles[match[1]] = _role(match[1], documents[match[1]])
            except BadInput as fault:
                faults += fault.faults
    for role in roles.values():
        for index, other in enumerate(role.after):
            document = documents[role.name]
            if other not in roles:
                if other not in documents:
                    faults.append(document.fault(("after", index), f'no role "{other}"', nearest(other, roles)))
            elif _LAYERS.index(roles[other].layer) > _LAYERS.index(role.layer):
                found = f"{other} is of layer {roles[other].layer}, which comes after {role.layer}"
                faults.append(document.fault(("after", index), found, "leave it out"))
    if faults:
        raise BadInput(faults)
    return list(_ordered(roles, documents))


def applicable(roles: Iterable[Role], lock: LockDocument, kind: str) -> list[Role]:
    """Those of the roles that a kind of node gets, in the order given.

    Raises:
        BadInput: the lock is not for that kind.
    """
    names = lock.packages(kind).keys()
    return [
        role
        for role in roles
        if lock.unmanaged(role.layer) is None
        and all(_has_one(wanted, names) for wanted in (role.packages, role.beside))
        and _has_one(role.values, lock.values)
    ]


def _has_one(patterns: tuple[str, ...], names: Iterable[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def _role(name: str, document: Document) -> Role:
    result = checked(_Role, document)
    said, faults = result.value, [*document.faults, *result.faults]
    if said is not None and said.layer not in _LAYERS:
        faults.append(document.fault(("layer",), f'unknown layer "{said.layer}"', nearest(said.layer, _LAYERS)))
    for index, pattern in enumerate(said.replaces if said else ()):
        try:
            re.compile(pattern)
        except re.error as fault:
            faults.append(document.fault(("replaces", index), f"{pattern!r} is no regular expression: {fault}"))
    if faults or said is None:
        raise BadInput(faults)
    return Role(
        name, Layer(said.layer), tuple(said.packages), tuple(said.beside), tuple(said.after), said.preflight,
        tuple(said.units), tuple(said.modules), tuple(said.values), tuple(said.replaces),
    )  # fmt: skip


def _ordered(roles: Mapping[str, Role], documents: Mapping[str, Document]) -> Iterator[Role]:
    for layer in Layer:
        waiting = {name: role for name, role in sorted(roles.items()) if role.layer is layer}
        while waiting:
            ready = next((role for role in waiting.values() if not waiting.keys() & set(role.after)), None)
            if ready is None:
                circle = ", ".join(waiting)
                raise BadInput([documents[next(iter(waiting))].fault(("after",), f"a circle of roles: {circle}")])
            yield waiting.pop(ready.name)
