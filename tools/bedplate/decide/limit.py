"""What of Ansible's --limit would not mean what its writer means: host lists of Slurm, names that are no node's.

Ansible reads n[1-2] as the second and third host of a group "n", and leaves out with a warning what it does not know.
"""

import difflib
import fnmatch
import re
from collections.abc import Collection

from bedplate.model.nodes import expand, fold

BUILT_IN = frozenset({"all", "ungrouped", "localhost", "127.0.0.1"})  # Ansible's own
NEAR = 0.4  # "n9" and "n8" are alike by half
_PARTS = re.compile(r"(?:\[[^\[\]]*\]|[^,:\s\[])+|\[")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_COUNTED = re.compile(r"\[[0-9]+(?:-[0-9]*)?\]$")
_HOST_LIST = re.compile(r"[A-Za-z0-9_.-]*(?:\[[0-9,/ -]+\][A-Za-z0-9_.-]*)+")


def refusal(limit: str, hosts: Collection[str], groups: Collection[str], *, complete: bool = True) -> str | None:
    """Why a limit is refused, with what to write instead; None where Ansible reads it as it was meant.

    complete: hosts are all that the run will know, so that another name is nobody's.
    """
    known = {*hosts, *groups}
    instead, lists = list[str](), False
    for part in _PARTS.findall(limit):
        sign = part[0] if part[0] in "!&" else ""
        said = part.removeprefix(sign)
        if _HOST_LIST.fullmatch(said) and (names := _meant(said, known)):
            unknown = [name for name in names if name not in hosts]
            if unknown:
                return _nobody(limit, unknown, known)
            lists = True
            instead.append(_pattern(sign, names))
            continue
        if complete and _NAME.fullmatch(said) and said not in known | BUILT_IN:
            return _nobody(limit, [said], known)
        instead.append(part)
    if not lists:
        return None
    text = ",".join(instead)
    return f"--limit takes Ansible's patterns; '{limit}' is: --limit {text if _plain(text) else f"'{text}'"}"


def _meant(said: str, known: Collection[str]) -> list[str]:
    """The names of a host list; none where Ansible's own reading finds something and this one nothing more."""
    try:
        names = expand(said)
    except ValueError:
        return []
    # A comma ends a pattern, and brackets at its end count members: training[0-2].
    counted = said.partition("[")[0] in known and _COUNTED.search(said) is not None
    shell = set() if "," in said or _COUNTED.search(said) else set(fnmatch.filter(known, said))
    if any(name in known for name in names):
        return [] if shell == set(names) else names
    return [] if counted or shell else names


def _pattern(sign: str, names: Collection[str]) -> str:
    if sign == "&" and len(names) > 1:  # &n1,&n2 would be what both have in common
        return f"&~({'|'.join(re.escape(name) for name in names)})$"
    return ",".join(sign + name for name in names)


def _plain(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9_.,:-]+", text) is not None


def _nobody(limit: str, unknown: Collection[str], known: Collection[str]) -> str:
    near = difflib.get_close_matches(next(iter(unknown)), list(known), n=3, cutoff=NEAR)
    nearest = f"; nearest: {', '.join(near)}" if near else ""
    return f"--limit '{limit}': the fleet has no node {fold(unknown)}, and no such group{nearest}"
