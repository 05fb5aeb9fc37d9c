"""Lookup `bedplate_words`: what a play is asked with (-e) is refused where nothing reads it, or where it says nothing.

Ansible takes any variable in silence (ansible#77159): one letter, and the policy's budget holds; one word that is a
command's and not the playbook's, and a rollout to one node is one to the fleet.
"""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from ansible import context
from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.lookup import LookupBase
from ansible.utils.vars import load_extra_vars

from bedplate.doors import site as site_door
from bedplate.model.faults import BadInput, BedplateError, Refused
from bedplate.model.nodes import expand
from bedplate.sources import checkout

LISTING = ("listhosts", "listtasks", "listtags")
OPEN = "ansible_"  # Ansible's own
OF_A_VERIFICATION = frozenset({"target"})
# What the commands of Bedplate and other playbooks call what is called otherwise here.
OTHERWISE = {
    **dict.fromkeys(("nodes", "node", "limit", "hosts", "host"), ("--limit {}", "n1,n2")),
    **dict.fromkeys(("env", "environment"), ("-e target={}", "ENVIRONMENT")), "check": ("--check", ""),
}  # fmt: skip
NEAR = 0.8
_DEFINED = re.compile(r"^[\"']?([A-Za-z_]\w*)[\"']?\s*:", re.MULTILINE)
_TEMPLATE = re.compile(r"\{[{%].*?[%}]\}", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")


class LookupModule(LookupBase):
    """The hosts of a play that is no rollout: all, once what it is asked with can be."""

    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[Any]:  # noqa: ARG002
        if context.CLIARGS.get("syntax"):
            return ["all"]
        try:
            refuse_unread(load_extra_vars(self._loader), OF_A_VERIFICATION, "a verification")
            site = site_door.current()
            if not any(context.CLIARGS.get(option) for option in LISTING):
                site_door.refuse_example(site, "verify nodes")
            if terms[0]:
                site.lock(str(terms[0]))
        except BedplateError as fault:
            raise AnsibleError(str(fault)) from None
        return ["all"]


def refuse_unread(given: Mapping[str, Any], words: Collection[str], what: str) -> None:
    """Refuse a word of -e that nothing reads.

    words: what the playbook reads by itself.

    Raises:
        Refused: neither playbook nor roles nor the site's own variables read it; with what was probably meant.
    """
    for name, said in given.items():
        if name in words or name.startswith(OPEN) or name in _of_roles():
            continue
        if name in {word for root in site_door.parsed for word in _of_site(root)}:
            continue
        raise Refused(
            f"-e {name}: {what} reads no such variable{_meant(name, said, words)}; it reads {', '.join(sorted(words))}"
        )


def _meant(name: str, said: object, words: Collection[str]) -> str:
    if name in OTHERWISE:
        form, example = OTHERWISE[name]
        return f" (did you mean {form.format(_plain(said) or example)} ?)"
    near = difflib.get_close_matches(name, words, n=1) or difflib.get_close_matches(name, _of_roles(), 1, NEAR)
    return f' (did you mean "{near[0]}"?)' if near else ""


def _plain(said: object) -> str:
    """What was said as one word for a shell, a host list as names; empty where it is something else."""
    try:
        text = ",".join(expand(str(said)))
    except ValueError:
        return ""
    return text if re.fullmatch(r"[A-Za-z0-9_.,-]{1,200}", text) else ""


@cache
def _of_roles() -> frozenset[str]:
    """The options of roles, and what the wiring sets for them."""
    found = set[str]()
    for path in checkout.root().glob("roles/*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            found |= (entry.get("options") or {}).keys()
    for path in checkout.root().glob("playbooks/group_vars/all/*.yml"):
        found |= set(_DEFINED.findall(path.read_text()))
    return frozenset(found)


@cache
def _of_site(root: Path) -> frozenset[str]:
    """What a site's own variables set or read: Ansible loads those that lie beside fleet.yml."""
    found = set[str]()
    for path in _variables(root):
        text = path.read_text(errors="replace")
        found |= set(_DEFINED.findall(text))
        for template in _TEMPLATE.findall(text):
            found |= set(_NAME.findall(template))
    return frozenset(found)


def _variables(root: Path) -> Iterator[Path]:
    for folder in ("group_vars", "host_vars"):
        yield from (path for path in (root / folder).rglob("*") if path.is_file())


def truth(name: str, said: object) -> bool:
    """What a word says that is true or false.

    Raises:
        BadInput: it says neither.
    """
    try:
        return bool(boolean(said))
    except TypeError:
        raise BadInput(f"-e {name}={said}: it may be true or false (or yes, no, on, off, 1, 0)") from None


def count(name: str, said: object) -> int:
    """What a word says that is a number of nodes.

    Raises:
        BadInput: it is none.
    """
    if not re.fullmatch(r"-?[0-9]{1,9}", str(said)):
        raise BadInput(f"-e {name}={said}: it may be a number of nodes, 0 or more")
    return int(str(said))
