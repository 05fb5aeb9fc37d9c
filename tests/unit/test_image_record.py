import json
import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.decide.buildrecord import (
    Base,
    Builder,
    BuildRecord,
    Squashfs,
    Stage,
    Wheel,
    definition_sha256,
    parse_record,
    record_text,
)
from bedplate.decide.squashfs import squashfs_faults
from bedplate.model.faults import BadInput
from unit.lock_sample import digest

HEX = "8" * 64
SQUASHFS = Squashfs(
    f"sha256:{HEX}", 4096, f"artifacts/sha256-{HEX}.sqsh", "enroot 4.1.2", "-comp zstd", "docker://r.lab#a@x"
)
BUILT = BuildRecord(
    name="lab-small",
    definition_sha256=digest("1"),
    repository="registry.lab:5443/lab/small",
    base=Base("registry.lab:5443/base/debian", digest("2"), digest("a")),
    builder=Builder("buildah", "1.39.3", {"skopeo": "1.18.0"}),
    index_digest=None,
    manifest_digest=digest("3"),
    config_digest=digest("4"),
    media_type="application/vnd.docker.distribution.manifest.v2+json",
    built_at="2026-11-02T09:14:03Z",
)
PUSHED = BUILT.pushed("2026-11-02T09:15:00Z")
IMPORTED = PUSHED.imported(SQUASHFS, "2026-11-02T09:16:00Z")


@pytest.mark.parametrize(
    ("record", "stage"), [(BUILT, Stage.BUILT), (PUSHED, Stage.PUSHED), (IMPORTED, Stage.IMPORTED)]
)
def test_a_record_is_written_and_read_back_in_every_stage(record: BuildRecord, stage: Stage) -> None:
    text = record_text(record)
    assert parse_record(text, "builds/lab-small.json") == record
    assert text.endswith("}\n")
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"
    assert record.stage is stage


def test_what_was_added_later_is_read_back_and_leaves_the_hash_of_earlier_records_alone() -> None:
    assert not {"wheels"} & BUILT.document().keys()
    assert "index_digest" not in BUILT.document()["base"]
    different = {"a/b.py": {"wheel": digest("5"), "commit": digest("6")}}
    wheels = (
        Wheel("megatron-core", "0.19.2", digest("7"), "4 files are the same, 1 differ", 4, different, ("a/c.so",)),
        Wheel("megatron-core", "0.19.2", None, "not compared: the wheel was not given"),
    )
    later = replace(BUILT, wheels=wheels, base=replace(BUILT.base, index_digest=digest("2")))
    assert parse_record(record_text(later), "builds/lab-small.json") == later


def test_a_record_knows_what_it_was_in_earlier_stages() -> None:
    assert [IMPORTED.as_of(stage) for stage in Stage] == [BUILT, PUSHED, IMPORTED]


def test_pushing_forgets_the_squashfs_and_importing_needs_a_push() -> None:
    assert IMPORTED.pushed("2026-11-03T00:00:00Z").squashfs is None
    with pytest.raises(ValueError, match="push it first"):
        BUILT.imported(SQUASHFS, "2026-11-03T00:00:00Z")


def changed(**changes: Any) -> str:
    return json.dumps({**IMPORTED.document(), **changes})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "no JSON"),
        ("[]", "no build record but list"),
        ("[" * 100_000, "no JSON"),
        (changed(schema=3), "schema"),
        (changed(schema=1), "schema 1, which an earlier bedplate wrote"),
        (changed(manifest_digest="sha256:12"), "manifest_digest"),
        (changed(manifest_digest=digest("3") + "\n"), "manifest_digest"),
        (changed(config_digest=None), "config_digest"),
        (changed(built_at="yesterday"), "built_at"),
        (changed(extra=1), "extra"),
        (changed(squashfs=None), "only one of the two"),
        (changed(imported_at=None), "only one of the two"),
        (changed(pushed_at=None), "imported_at without pushed_at"),
        (changed(squashfs={**IMPORTED.document()["squashfs"], "size": 1.5}), "squashfs.size"),
        (changed(squashfs={**IMPORTED.document()["squashfs"], "path": "../x"}), "squashfs.path"),
        (changed(squashfs={**IMPORTED.document()["squashfs"], "sha256": digest("9")}), "squashfs.path is not named"),
    ],
)
def test_a_damaged_record_is_a_fault(text: str, found: str) -> None:
    with pytest.raises(BadInput, match=found) as caught:
        parse_record(text, "builds/lab-small.json")
    assert all(fault.remedy for fault in caught.value.faults)


def test_every_fault_of_a_record_is_reported() -> None:
    with pytest.raises(BadInput) as caught:
        parse_record(changed(name="", manifest_digest="x", config_digest="x", built_at="x"), "f")
    assert len(caught.value.faults) == 4


@given(st.dictionaries(st.sampled_from(list(IMPORTED.document())), st.none() | st.integers() | st.text(max_size=5)))
def test_any_change_of_a_record_is_read_or_refused(changes: dict[str, object]) -> None:
    try:
        record = parse_record(changed(**changes), "f")
    except BadInput:
        return
    assert parse_record(record_text(record), "f") == record


# --- the definition's identity ---------------------------------------------------------------------

YAML = "name: a\nrepository: r.lab/a\n"
FILES = {"Dockerfile": b"FROM ${BASE}\n", "patch/x.diff": b"1"}


def test_layout_and_comments_of_image_yml_are_no_change() -> None:
    assert definition_sha256(YAML, FILES) == definition_sha256("# why\nrepository:  'r.lab/a'\nname: a\n", FILES)


@pytest.mark.parametrize(
    ("text", "files", "executable"),
    [
        (YAML.replace("r.lab", "s.lab"), FILES, ()),
        (YAML, {**FILES, "patch/x.diff": b"2"}, ()),
        (YAML, {**FILES, "new": b""}, ()),
        (YAML, {"Dockerfile": FILES["Dockerfile"], "patch/y.diff": b"1"}, ()),
        (YAML, FILES, ("patch/x.diff",)),
    ],
)
def test_every_other_change_is_another_definition(text: str, files: dict[str, bytes], executable: tuple[str]) -> None:
    assert definition_sha256(text, files, executable) != definition_sha256(YAML, FILES)


def test_an_unreadable_image_yml_has_no_identity() -> None:
    with pytest.raises(BadInput):
        definition_sha256("name: [", FILES)


# --- squashfs -----------------------------------------------------------------------------------------


def superblock(*, magic: int = 0x73717368, major: int = 4, used: int = 4000) -> bytes:
    return struct.pack("<5I6H8Q", magic, 1, 0, 131072, 0, 6, 17, 0, 1, major, 0, 0, used, *[0] * 6)


@pytest.mark.parametrize(
    ("head", "size", "fault"),
    [
        (superblock(), 4096, None),
        (superblock(used=4096), 4096, None),
        (superblock(), 3999, "cut off"),
        (superblock(magic=0x68737173), 4096, "no squashfs"),
        (superblock(major=3), 4096, "version 3"),
        (b"hsqs", 4, "too short"),
        (b"", 0, "too short"),
    ],
)
def test_a_squashfs_is_known_by_its_superblock(head: bytes, size: int, fault: str | None) -> None:
    faults = squashfs_faults(head, size)
    assert (fault is None and not faults) or (fault is not None and fault in faults[0])


@pytest.mark.skipif(not shutil.which("mksquashfs"), reason="needs squashfs-tools")
def test_a_real_squashfs_is_whole_and_its_cut_off_copy_is_not(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/file").write_bytes(bytes(range(256)) * 1000)
    made = tmp_path / "a.sqsh"
    subprocess.run(
        ["mksquashfs", tmp_path / "tree", made, "-quiet", "-no-progress", "-noD"], check=True, capture_output=True
    )
    data = made.read_bytes()
    assert squashfs_faults(data[:96], len(data)) == []
    assert squashfs_faults(data[:96], len(data) - 8192) != []


def test_a_record_of_another_builder_is_another_record() -> None:
    assert record_text(replace(BUILT, builder=Builder("buildah", "1.40.0", {"skopeo": "1.18.0"}))) != record_text(BUILT)
