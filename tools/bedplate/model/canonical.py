"""Canonical JSON (RFC 8785) and the sha256 that identifies a document by it."""

import hashlib
import re

import rfc8785

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def canonical(document: object) -> bytes:
    """The RFC 8785 bytes of a document; floats have no place in one.

    Raises:
        ValueError: the document holds something JSON has no exact form for.
    """
    try:
        return rfc8785.dumps(document)  # type: ignore[no-any-return]
    except rfc8785.CanonicalizationError as fault:
        raise ValueError(f"no canonical form: {fault}") from fault


def sha256(data: bytes) -> str:
    """`sha256:` and 64 hex digits of bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def identity(document: object) -> str:
    """The sha256 of a document's canonical form."""
    return sha256(canonical(document))
