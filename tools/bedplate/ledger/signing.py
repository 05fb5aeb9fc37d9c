"""Signatures by OpenSSH's keys: ssh-keygen -Y sign and verify."""

import tempfile
from pathlib import Path

from bedplate.decide.ledgeranchor import NAMESPACE
from bedplate.model.faults import BadInput, BedplateError
from bedplate.process import ProcessFailed, run

TIMEOUT_S = 60.0  # a key in an agent or a token may ask its owner


def sign(data: bytes, key: Path) -> str:
    """The armoured signature of data.

    Raises:
        BadInput: there is no such key, or it cannot sign.
    """
    if not key.exists():
        raise BadInput(f"ledger.yml: signing.key: no such file: {key} (make one: ssh-keygen -t ed25519 -f {key})")
    try:
        words = ["ssh-keygen", "-Y", "sign", "-q", "-n", NAMESPACE, "-f", str(key)]
        return run(words, stdin=data.decode(), timeout_s=TIMEOUT_S).out
    except ProcessFailed as fault:
        raise BadInput(f"ledger.yml: signing.key: {key} cannot sign: {fault}") from fault


def holds(data: bytes, signature: str, *, principal: str, signers: Path) -> str | None:
    """None where a signature of data by principal holds; else why it does not.

    Raises:
        BadInput: there is no file of signers.
        BedplateError: ssh-keygen is not there.
    """
    if not signers.exists():
        raise BadInput(
            f"ledger.yml: signing.signers: no such file: {signers} "
            '(one line: PRINCIPAL namespaces="bedplate-ledger" and the public key)'
        )
    with tempfile.NamedTemporaryFile("w", suffix=".sig", encoding="utf-8") as file:
        file.write(signature)
        file.flush()
        words: list[str | Path] = ["ssh-keygen", "-Y", "verify", "-n", NAMESPACE, "-f", signers]
        words += ["-I", principal, "-s", file.name]
        done = run(words, stdin=data.decode(), check=False, timeout_s=TIMEOUT_S)
    if done.code == 127:  # noqa: PLR2004  what a shell says of a missing program
        raise BedplateError(f"no program ssh-keygen: {done.err} (install openssh-client)")
    return None if done.code == 0 else " ".join((done.out + done.err).split()) or f"ssh-keygen ended with {done.code}"
