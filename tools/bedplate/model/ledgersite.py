"""How a site keeps its ledger honest: who signs its head, and where signed heads are kept (ledger.yml)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bedplate.model.faults import BadInput, Fault
from bedplate.model.schema import Strict, checked
from bedplate.model.text import Document, read_yaml

NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
PRINCIPAL = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True)
class Place:
    """Where signed heads are kept: a git repository, or a directory (HOST:/DIR by ssh, or a path).

    kind: git or directory; branch: of a git repository.
    """

    name: str
    kind: str
    where: str
    branch: str = "main"


@dataclass(frozen=True)
class LedgerSite:
    """key: a private key, or the public one of an agent's; signers: allowed signers, as ssh-keygen(1) reads them.

    Paths are relative to the site.
    """

    key: str | None = None
    principal: str | None = None
    signers: str | None = None
    places: tuple[Place, ...] = ()


class _Signing(Strict):
    key: str
    principal: str
    signers: str


class _Place(Strict):
    name: str
    git: str | None = None
    directory: str | None = None
    branch: str = "main"


class _Ledger(Strict):
    signing: _Signing
    anchors: list[_Place] = []  # noqa: RUF012  pydantic copies it


def parse_ledger_site(text: str, file: str) -> LedgerSite:
    """Read ledger.yml.

    Raises:
        BadInput: every fault of the file.
    """
    document = read_yaml(text, file)
    result = checked(_Ledger, document)
    said = result.value
    faults = [*document.faults, *result.faults, *(_faults(said, document) if said else [])]
    if faults or said is None:
        raise BadInput(faults)
    places = tuple(
        Place(one.name, "git" if one.git else "directory", one.git or one.directory or "", one.branch)
        for one in said.anchors
    )
    return LedgerSite(said.signing.key, said.signing.principal, said.signing.signers, places)


def _faults(said: _Ledger, document: Document) -> Iterator[Fault]:
    if not PRINCIPAL.fullmatch(said.signing.principal):
        found = f'"{said.signing.principal}" is no principal'
        yield document.fault(("signing", "principal"), found, "a word as in the file of signers: ctl@site")
    names = [one.name for one in said.anchors]
    for at, one in enumerate(said.anchors):
        place = ("anchors", at)
        if not NAME.fullmatch(one.name) or names.index(one.name) != at:
            yield document.fault((*place, "name"), f'"{one.name}" is no name, or stands there twice', "a-z, 0-9 and -")
        if (one.git is None) == (one.directory is None):
            yield document.fault(place, "names not one place", "either git: or directory:")
        where = one.git or one.directory or "x"
        if where.startswith("-") or not where.isprintable():
            yield document.fault(place, f'"{where}" is no place', "a repository, HOST:/DIRECTORY, or a path")
