"""How a site's BMCs are reached: the `bmc` section of fleet.yml, and the names and passwords of the vault."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from bedplate.model.faults import BadInput, Fault
from bedplate.model.schema import Strict, wrong
from bedplate.model.text import Document, read_vault

USER_KEY, PASSWORD_KEY, OWN_KEY = "bmc_user", "bmc_password", "bmc_of"
SYSTEM = "system"


@dataclass(frozen=True)
class Bmc:
    verify: str | bool
    """A file of CA certificates in the site, `system` for those of this machine, or False: nobody is verified."""
    port: int
    width: int
    ipmi_models: tuple[str, ...]
    ipmi_nodes: str


@dataclass(frozen=True)
class Login:
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class Logins:
    """Who logs in to which BMC: a login for all, and those of single nodes."""

    common: Login | None
    own: Mapping[str, Login]

    def of(self, node: str) -> Login | None:
        return self.own.get(node, self.common)


def _verify(value: str | bool) -> str | bool:
    if value is True or not str(value).strip():
        raise wrong(f'found "{value}"', "a file of CA certificates in the site, system, or false")
    return value


class BmcShape(Strict):
    """The section as it stands in fleet.yml; verify has no default: a person says it."""

    verify: Annotated[str | bool, AfterValidator(_verify)]
    port: Annotated[int, Field(ge=1, le=65535)] = 443
    width: Annotated[int, Field(ge=1, le=256)] = 16
    ipmi_models: list[str] | None = None
    ipmi_nodes: str = ""

    def value(self) -> Bmc:
        return Bmc(self.verify, self.port, self.width, tuple(self.ipmi_models or ()), self.ipmi_nodes)


def parse_logins(text: str, file: str) -> Logins:
    """What a decrypted vault says for BMCs; its other keys are not looked at.

    Raises:
        BadInput: a key is missing, or is not what it should be. Values are never told.
    """
    document, data = read_vault(text, file)
    faults: list[Fault] = []
    common = None
    if USER_KEY in data or PASSWORD_KEY in data:
        common = _login(document, (), data, (USER_KEY, PASSWORD_KEY), faults)
    own: dict[str, Login] = {}
    given = data.get(OWN_KEY, {})
    if not isinstance(given, dict):
        faults.append(document.fault((OWN_KEY,), "no mapping", "node: {user: ..., password: ...}"))
        given = {}
    for node, entry in given.items():
        found = _login(document, (OWN_KEY, str(node)), entry, ("user", "password"), faults)
        if found:
            own[str(node)] = found
    if not faults and common is None and not own:
        faults.append(document.fault((), f"neither {USER_KEY} nor {OWN_KEY}", f"add {USER_KEY} and {PASSWORD_KEY}"))
    if faults:
        raise BadInput(faults)
    return Logins(common, own)


def _login(
    document: Document, path: tuple[str, ...], data: Any, keys: tuple[str, str], faults: list[Fault]
) -> Login | None:
    values = []
    for key in keys:
        value = data.get(key) if isinstance(data, dict) else None
        if not isinstance(value, str) or not value or (*path, key) in document.doubted:
            faults.append(document.fault((*path, key), "no text", "write it in quotes"))
        else:
            values.append(value)
    return Login(values[0], values[1]) if len(values) == len(keys) else None
