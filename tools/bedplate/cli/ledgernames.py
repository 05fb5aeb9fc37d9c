"""How people name an environment to the commands of the ledger."""

import re
from collections.abc import Mapping

from bedplate.model.faults import BadInput


def environments(word: str, names: Mapping[str, str], *, asked: str = "", elsewhere: bool = False) -> set[str]:
    """Identities that a name, NAME@DIGITS as `log` prints it, or the beginning of an identity means.

    names: identity -> name. asked: the option before the word in a message. elsewhere: a whole identity counts although
    its lock was recorded in another ledger.

    Raises:
        BadInput: there is none.
    """
    name, _, digits = word.rpartition("@")
    digits = digits.removeprefix("sha256:")
    found = {identity for identity, known in names.items() if known == word}
    if re.fullmatch(r"[0-9a-f]{4,64}", digits):
        found |= {
            identity
            for identity, known in names.items()
            if identity.removeprefix("sha256:").startswith(digits) and name in ("", known)
        }
        if elsewhere and len(digits) == 64:  # noqa: PLR2004  all of it
            found.add(f"sha256:{digits}")
    if not found:
        known = ", ".join(sorted(set(names.values()))) or "none"
        raise BadInput(f"{asked}{word}: the ledger knows no such environment (it knows: {known})")
    return found
