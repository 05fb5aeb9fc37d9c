"""archive.yml: what it may say, and every fault of it at once."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.model.archive import ArchiveDefinition, Kind, parse_archive
from bedplate.model.faults import BadInput, Fault
from bedplate.sources import checkout
from bedplate.sources.site import open_site
from unit.site_sample import write_site

GOOD: dict[str, Any] = {
    "archive": "sample", "directory": "/srv/archive", "url": "http://archive.lab:8080/", "architectures": ["amd64"],
    "signing": {"user": "archive@example.invalid", "key": "keys/archive.asc"},
    "mirrors": {
        "base": {
            "url": "http://u.invalid/x", "suites": ["noble", "noble-updates"], "components": ["main"],
            "key": "keys/u.asc",
        },
        "flat": {"url": "http://u.invalid/y/", "suites": ["./"], "components": [], "key": "keys/u.asc"},
    },
    "shared": {"lib*": "both are ours"},
    "files": [{"name": "a.iso", "kind": "iso", "sha256": "sha256:" + "1" * 64}],
    "gc": {"keep_days": 7},
}  # fmt: skip


def parsed(data: object) -> ArchiveDefinition:
    text = yaml.safe_dump(copy.deepcopy(data), sort_keys=False, default_flow_style=False)
    return parse_archive(text, "archive.yml")


def changed(place: str, value: object) -> dict[str, Any]:
    data = copy.deepcopy(GOOD)
    *parents, last = place.split("/")
    here: Any = data
    for part in parents:
        here = here[int(part)] if part.isdigit() else here[part]
    key = int(last) if last.isdigit() else last
    if value is ...:
        del here[key]
    else:
        here[key] = value
    return data


def test_a_good_file_is_read_with_its_defaults() -> None:
    found = parsed(GOOD)
    assert found.component == "main"
    assert found.mirrors["base"].architectures == ("amd64",)
    assert found.mirrors["base"].query == ""
    assert found.mirrors["base"].part("noble-updates") == "base@noble-updates"
    assert found.files["a.iso"].kind is Kind.ISO
    assert found.keep_days == 7


@pytest.mark.parametrize(
    ("filter", "exclude", "query"),
    [
        (None, [], ""),
        ("Name (% nvidia-*)\n  | nvlsm", [], "(Name (% nvidia-*) | nvlsm)"),
        (None, ["dkms", "mft*"], "Name (% *), !Name (% dkms), !Name (% mft*)"),
        ("a | b", ["b"], "(a | b), !Name (% b)"),  # brackets: `,` binds closer than `|`
    ],
)
def test_filter_and_exclude_are_one_query(filter: str | None, exclude: list[str], query: str) -> None:  # noqa: A002
    data = changed("mirrors/base/exclude", exclude)
    if filter is not None:
        data["mirrors"]["base"]["filter"] = filter
    assert parsed(data).mirrors["base"].query == query


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        ("directory", "srv/archive", 'directory: "srv/archive" is no directory of the archive'),
        ("directory", "/srv/../etc", "is no directory of the archive"),
        ("url", "ftp://x/", "is no address of an archive"),
        ("architectures", [], "found an empty list"),
        ("architectures", ["x86_64"], '"x86_64" is no architecture known here'),
        ("signing/key", "/etc/key.asc", "is no path inside the site"),
        ("signing/user", " ", "found no line of text"),
        ("signing", {"user": "a"}, '"key" is missing'),
        ("mirrors/base/suites", [], "found an empty list"),
        ("mirrors/base/suites", ["noble", "noble"], '"noble" stands there twice'),
        ("mirrors/base/components", [], "none is named"),
        ("mirrors/flat/components", ["main"], "./ is a flat archive, which has no components"),
        ("mirrors/base/architectures", ["arm64"], "the archive is not for arm64"),
        ("mirrors/base/filter", "Name (% a", "a bracket is never closed"),
        ("mirrors/base/filter", "Name % a)", "a bracket is closed that was never opened"),
        ("mirrors/base/filter", "", "an empty filter"),
        ("mirrors/base/exclude", ["dkms), foo (x"], "is no pattern of package names"),
        ("mirrors/base/filtre", "x", 'unknown key "filtre" (did you mean "filter"?)'),
        ("mirrors/incoming", GOOD["mirrors"]["base"], "is the name of what the team builds"),
        ("mirrors/Base", GOOD["mirrors"]["base"], "is no name here"),
        ("shared/foo", "", "found no line of text"),
        ("files/0/sha256", "sha256:12", "is no digest"),
        ("files/0/kind", "isos", '"isos" is no kind of file (did you mean "iso"?)'),
        ("files/0/name", "../a", "is no file name"),
        ("files", [dict(GOOD["files"][0]), dict(GOOD["files"][0])], '"a.iso" stands there twice, first in line'),
        ("files/0/sha256", "TODO", "is a placeholder"),
        ("gc/keep_days", -1, "keep_days"),
        ("archive", ..., '"archive" is missing'),
    ],
)
def test_what_is_wrong_is_named_at_its_place(place: str, value: object, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        parsed(changed(place, value))
    assert says in str(caught.value)
    assert all(fault.line is not None for fault in caught.value.faults)


def test_all_faults_are_told_at_once() -> None:
    data = changed("directory", "x")
    data["url"] = "no"
    data["mirrors"]["base"]["suites"] = ["noble", "noble"]
    data["mirrors"]["flat"]["components"] = ["main"]
    data["files"][0]["kind"] = "disc"
    data["surplus"] = 1
    with pytest.raises(BadInput) as caught:
        parsed(data)
    assert len(caught.value.faults) >= 5, str(caught.value)
    lines = [fault.line for fault in caught.value.faults]
    assert lines == sorted(lines, key=lambda line: line or 0)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["main", "./", "sha256:1", "/"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
places = st.sampled_from(
    [
        "archive", "directory", "url", "architectures", "signing", "signing/key", "mirrors", "mirrors/base",
        "mirrors/base/suites", "mirrors/base/components", "mirrors/base/filter", "mirrors/base/exclude", "shared",
        "files", "files/0", "files/0/kind", "gc", "gc/keep_days", "other",
    ]
)  # fmt: skip


@settings(deadline=None)
@given(places, values)
def test_whatever_stands_at_a_place_is_read_or_refused_with_faults(place: str, value: object) -> None:
    faults = faults_of(changed(place, value))
    if faults is not None:
        assert faults
        assert all(item.file == "archive.yml" and item.found for item in faults)


def faults_of(data: object) -> list[Fault] | None:
    """None: it is read."""
    try:
        parsed(data)
    except BadInput as fault:
        return fault.faults
    return None


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_archive(text, "archive.yml")


def test_the_example_takes_names_from_one_source_each() -> None:
    path = Path(checkout.root()) / "inventory/archive.yml"
    found = parse_archive(path.read_text(), "inventory/archive.yml")
    assert {"ubuntu", "server-vendor", "nvidia-cuda", "docker", "nvidia-container-toolkit"} == found.mirrors.keys()
    assert set(found.mirrors["ubuntu"].suites) == {"noble", "noble-updates", "noble-security"}
    # what NVIDIA's CUDA repository supplies besides, and other sources too
    cuda = set(found.mirrors["nvidia-cuda"].exclude)
    assert {
        "dkms",
        "nvidia-settings",
        "libxnvctrl*",
        "mft*",
        "nvidia-container-toolkit*",
        "libnvidia-container*",
    } <= cuda


def test_the_check_of_a_site_tells_the_faults_of_its_archive(tmp_path: Path) -> None:
    site = write_site(tmp_path / "site")
    assert not [fault for fault in open_site(site).contents()[1] if "archive.yml" in fault.file]
    (site / "archive.yml").write_text("archive: x\ndirectory: y\n")
    found = [fault.found for fault in open_site(site).contents()[1] if "archive.yml" in fault.file]
    assert 'directory: "y" is no directory of the archive' in found
    assert '"mirrors" is missing' not in found, "an archive may hold the team's own packages alone"
    assert '"signing" is missing' in found
