"""Configuration files of the lock, byte for byte, and the frozen archive as the only source."""

from collections.abc import Mapping
from typing import Any

import pytest

from bedplate.observe.expectation import Expectation
from bedplate.observe.observed import Observed


def shown(entry: Mapping[str, str] | None) -> str:
    return f"{entry['mode']} {entry['sha256']}" if entry else "absent"


@pytest.mark.layer("config")
def test_configuration_files(node: str, expected: Expectation, observed: Observed) -> None:
    wrong = [
        f"{path} is {shown(observed.files.get(path))}, lock says {shown(entry)}"
        for path, entry in expected.files.items()
        if dict(observed.files.get(path, {})) != dict(entry)
    ]
    assert not wrong, "; ".join(wrong)


@pytest.mark.layer("os")
def test_the_frozen_archive_is_the_only_source(node: str, host: Any) -> None:
    found = host.run("ls /etc/apt/sources.list.d/ /etc/apt/sources.list 2>/dev/null")
    names = sorted(line for line in found.stdout.splitlines() if line.endswith((".list", ".sources")))
    assert names == ["bedplate.sources"], f"package sources: {', '.join(names) or 'none'}"
