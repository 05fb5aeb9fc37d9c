"""The kernel's rule where the distribution is Debian, whose kernels have other packages than Ubuntu's."""

from pathlib import Path

import pytest

from bedplate.decide.rules import all_rules
from bedplate.decide.subject import subjects
from bedplate.model.environment import parse_environment
from lab.guestsite import Kernels, site_files

OLD = {"linux-image-6.1.0-50-cloud-amd64": "6.1.176-1", "linux-image-cloud-amd64": "6.1.176-1"}
NEW = {"linux-image-6.12.117+deb13-cloud-amd64": "6.12.117-1", "linux-image-cloud-amd64": "6.12.117-1"}


def told(change: tuple[str, str] = ("", "")) -> list[str]:
    """What the rule finds in the environments of the lab's guest, after a change of both."""
    files = site_files(Kernels(Path("/nowhere"), "", OLD, NEW), "ssh-ed25519 AAAA", "ssh-ed25519 AAAA")
    (rule,) = [rule for rule in all_rules() if rule.id == "KERNEL-SET"]
    return [
        finding.found
        for name in ("K1", "K2")
        for subject in subjects(
            parse_environment(files[f"environments/{name}.yml"].replace(*change), f"{name}.yml"), {}
        )
        for finding in rule.judge(subject)
    ]


def test_image_and_metapackage_of_one_version_are_a_whole_kernel() -> None:
    assert told() == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            (', linux-image-cloud-amd64: "6.12.117-1"', ""),
            (
                "kernel linux-image-6.12.117+deb13-cloud-amd64 6.12.117-1 without its metapackage"
                " linux-image-cloud-amd64: a newer one brings another kernel"
            ),
        ),
        (
            ('linux-image-cloud-amd64: "6.12.117-1"', 'linux-image-cloud-amd64: "6.12.120-1"'),
            (
                "kernel linux-image-cloud-amd64 6.12.120-1 brings another release than"
                " kernel linux-image-6.12.117+deb13-cloud-amd64 6.12.117-1"
            ),
        ),
        (
            (', linux-image-cloud-amd64: "6.12.117-1"', ', linux-image-cloud-amd64: "6.12.117-1", dkms: "3.2.2-1"'),
            (
                "kernel linux-image-6.12.117+deb13-cloud-amd64 6.12.117-1 without"
                " linux-headers-6.12.117+deb13-cloud-amd64, from which DKMS builds"
            ),
        ),
    ],
)
def test_what_is_missing_is_told(change: tuple[str, str], expected: str) -> None:
    assert told(change) == [expected]
