"""The site's vault: decrypted by ansible-vault into this process, never onto a disk."""

import sys
from pathlib import Path

from bedplate import process
from bedplate.model.bmc import Logins, parse_logins
from bedplate.model.faults import BadInput, Fault
from bedplate.model.netboot import Secrets, parse_secrets
from bedplate.sources.site import shown

_HEADER = b"$ANSIBLE_VAULT;"
DEADLINE_S = 120.0


def netboot_secrets(root: Path, password_file: Path | None) -> Secrets:
    """What seeds get of a site's vault.yml; password_file: else what Ansible's own settings say.

    Raises:
        BadInput: there is none, it is not encrypted, it cannot be decrypted, or lacks a key.
    """
    return parse_secrets(_decrypted(root, password_file), shown(root / "vault.yml"))


def bmc_logins(root: Path, password_file: Path | None) -> Logins:
    """Who logs in to the BMCs, out of a site's vault.yml.

    Raises:
        BadInput: there is none, it is not encrypted, it cannot be decrypted, or lacks a key.
    """
    return parse_logins(_decrypted(root, password_file), shown(root / "vault.yml"))


def _decrypted(root: Path, password_file: Path | None) -> str:
    path = root / "vault.yml"
    try:
        begins = path.read_bytes()[: len(_HEADER)]
    except OSError as fault:
        remedy = "make it: ansible-vault create vault.yml (docs/site.md has its keys)"
        raise BadInput([Fault(shown(path), None, f"cannot be read: {fault.strerror}", remedy)]) from fault
    if begins != _HEADER:
        remedy = f"ansible-vault encrypt {shown(path)}"
        raise BadInput([Fault(shown(path), 1, "not encrypted: hashes and keys stand in a vault", remedy)])
    beside = Path(sys.executable).with_name("ansible-vault")
    argv: list[str | Path] = [beside if beside.exists() else "ansible-vault", "view"]
    argv += ["--vault-password-file", password_file] if password_file else []
    done = process.run([*argv, path], check=False, timeout_s=DEADLINE_S, stdin="")
    if done.code:
        # What ansible-vault says of a failure names files; it never holds what it decrypted.
        said = done.err.strip().splitlines()[-1:] or ["ansible-vault failed"]
        remedy = "name the password: --vault-password-file FILE"
        raise BadInput([Fault(shown(path), None, f"cannot be decrypted: {said[0][:200]}", remedy)])
    return done.out
