"""Who may use the cluster: the account tree of accounts.yml, as people write it.

The file belongs to the site, as fleet.yml does: people come and go between two environments.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bedplate.model.faults import BadInput, Fault
from bedplate.model.schema import Strict, checked, nearest
from bedplate.model.text import Document, read_yaml

QOS = ("training", "small", "spare")  # what comes first, comes first; decide/accounts.py says how
ROOT = "root"  # Slurm's own account, above all others
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


@dataclass(frozen=True)
class Account:
    name: str
    description: str
    parent: str
    qos: tuple[str, ...]
    default_qos: str
    users: tuple[str, ...]


class _Account(Strict):
    description: str = ""
    parent: str = ROOT
    qos: list[str] = []  # noqa: RUF012  pydantic copies it
    default_qos: str | None = None
    users: list[str] = []  # noqa: RUF012


class _Accounts(Strict):
    accounts: dict[str, _Account]


def parse_accounts(text: str, file: str) -> tuple[Account, ...]:
    """Read accounts.yml: accounts, each after its parent.

    Raises:
        BadInput: every fault of the file.
    """
    document = read_yaml(text, file)
    result = checked(_Accounts, document)
    faults = [*document.faults, *result.faults]
    said: Mapping[str, _Account] = result.value.accounts if result.value else {}
    for name, account in said.items():
        faults += _faults(name, account, said, document)
    if faults:
        raise BadInput(faults)
    return tuple(_ordered(said))


def _faults(name: str, account: _Account, known: Mapping[str, _Account], document: Document) -> Iterator[Fault]:
    place = ("accounts", name)
    if not _NAME.fullmatch(name) or name == ROOT:
        yield document.fault(place, f'"{name}" is no name of an account', "lower-case letters, digits, _ and -")
    for at, user in enumerate(account.users):
        if not _NAME.fullmatch(user) or account.users.index(user) != at:
            yield document.fault((*place, "users", at), f'"{user}" is no name of a user, or stands there twice')
    if account.parent != ROOT and account.parent not in known:
        remedy = nearest(account.parent, [ROOT, *known])
        yield document.fault((*place, "parent"), f'no account "{account.parent}"', remedy)
    elif name in _above(name, known):
        yield document.fault(
            (*place, "parent"), f"{name} is its own parent, by way of {account.parent}", "cut the circle"
        )
    for at, qos in enumerate(account.qos):
        if qos not in QOS:
            yield document.fault((*place, "qos", at), f'no QOS "{qos}"', nearest(qos, QOS))
    if not account.qos:
        yield document.fault(place, "no qos: nobody in it could run a job", f"name some of {', '.join(QOS)}")
    elif account.default_qos is not None and account.default_qos not in account.qos:
        found = f'"{account.default_qos}" is not among qos'
        yield document.fault((*place, "default_qos"), found, f"one of {', '.join(account.qos)}")


def _above(name: str, known: Mapping[str, _Account]) -> list[str]:
    """The accounts above one, nearest first; as far as they are known, and once around a circle."""
    found: list[str] = []
    while name in known and known[name].parent not in found:
        name = known[name].parent
        found.append(name)
    return found


def _ordered(said: Mapping[str, _Account]) -> Iterator[Account]:
    for name in sorted(said, key=lambda name: (len(_above(name, said)), name)):
        account = said[name]
        yield Account(
            name, account.description or name, account.parent, tuple(account.qos),
            account.default_qos or account.qos[0], tuple(account.users),
        )  # fmt: skip
