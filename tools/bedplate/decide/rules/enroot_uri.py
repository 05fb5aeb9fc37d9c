"""Enroot understands the form in which images are named.

Before 4.0.0 the registry stands before `#`, and a digest after `:`; what looks like Docker's form is either refused or
taken for something on Docker Hub. `docker://HOST#PATH:sha256:…` is understood by all.
"""

import re
from collections.abc import Iterator

from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import at_least

URI = re.compile(r"docker://[^\s\"',]+")
# src/docker.sh, 3.5.0
_OLD = re.compile(r"docker://(?:[^@#/\s]+@)?(?:[^#\s]+#)?[a-z0-9/._-]+(?::[A-Za-z0-9._:-]+)?")
# src/docker.sh, 4.0.0: the registry stands before # or, with a dot or a port in it, before /
_NEW = re.compile(
    r"docker://(?:[^@#/\s]+@)?(?:[^#\s]+#|[^/#\s]*[.:][^/#\s]*/)?"
    r"[a-z0-9/._-]+(?::[A-Za-z0-9._:-]+)?(?:@sha256:[A-Za-z0-9]+)?"
)
_REGISTRY = re.compile(r"docker://(?:[^@#/\s]+@)?[^/#\s]*[.:][^/#\s]*/")
FIRST, ALWAYS = "4.0.0", "3.0"


def minimum(uri: str) -> str | None:
    """The first Enroot that understands a URI; None: none does."""
    if uri.count("#") > 1 or not _NEW.fullmatch(uri):
        return None
    # 3.5 reads what stands before @ as a user, and a registry before / as a directory of Docker Hub.
    return ALWAYS if _OLD.fullmatch(uri) and "@sha256:" not in uri and not _REGISTRY.match(uri) else FIRST


def _check(subject: Subject) -> Iterator[Finding]:
    enroot = subject.first("enroot", "enroot-hardened")
    if enroot is None:
        return
    for text, place in subject.texts():
        for uri in URI.findall(text):
            first = minimum(uri)
            if first is None:
                yield fault(
                    place, f"config {uri}: no Enroot understands it, {enroot} included",
                    "write docker://HOST#PATH:sha256:…, in small letters",
                )  # fmt: skip
            elif not at_least(enroot.version, first):
                yield fault(
                    place, f"config {uri} is understood from Enroot {first} on, and {enroot}",
                    "write docker://HOST#PATH:sha256:…, or ask for a newer enroot",
                )  # fmt: skip


RULE = Rule(
    id="ENROOT-URI",
    title="Enroot understands the form in which images are named",
    layers=(Layer.SCHEDULER, Layer.CONFIG),
    source="NVIDIA/enroot src/docker.sh of 3.5.0 and 4.0.0 (commits f29a45c, f380b11); InferenceX#3346",
    check=_check,
)
