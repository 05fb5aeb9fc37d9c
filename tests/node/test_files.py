"""Configuration files of the lock, byte for byte; the frozen archive as the only source, and no pins but the lock's."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from bedplate.observe.expectation import Expectation
from bedplate.observe.observed import NotUnderstood, Observed

PINS = re.compile(r"/etc/apt/(preferences|preferences\.d/([\w-]+|[\w.-]+\.pref))")  # what apt reads


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


@pytest.mark.layer("os")
def test_nothing_is_pinned_beside_the_lock(node: str, host: Any) -> None:
    """A pin above ours makes another version of a package that the lock does not name itself."""
    # ls ends with 2 where one of them is absent; echo tells that from a question that was not answered.
    found = host.run("ls -d /etc/apt/preferences /etc/apt/preferences.d/* 2>/dev/null; echo end")
    *lines, end = found.stdout.splitlines() or [""]
    if end != "end":
        raise NotUnderstood(f"the question for pins ended with {found.rc}: {found.stderr.strip()[-200:]}")
    places = sorted(line for line in lines if PINS.fullmatch(line))
    beside = [place for place in places if place != "/etc/apt/preferences.d/bedplate.pref"]
    assert not beside, f"pins beside the lock: {', '.join(beside)}"
