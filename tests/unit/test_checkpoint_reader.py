"""What lies in a checkpoint is told without running any of it, whatever the bytes are."""

import io
import json
import os
import pickle
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bedplate.cli.main import bedplate
from bedplate.decide.checkpointmetadata import read_metadata, without_common_state
from bedplate.decide.checkpointnames import foreign
from bedplate.decide.checkpointpickle import Made, Name, Pairs, Unreadable, read, write
from bedplate.model.checkpoint import Inspection, Layout, Mark
from bedplate.model.faults import BadInput, DifferencesFound
from bedplate.sources.checkpoint import inspect

SAVED = Path(__file__).with_name("goldens") / "checkpoints"
NEW, OLD = SAVED / "0.19.2", SAVED / "0.18.2"


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[Path], Path]:
    def copy(source: Path, name: str = "iter_0000007") -> Path:
        return Path(shutil.copytree(source, tmp_path / name))

    return copy


def told(found: Inspection) -> str:
    return "\n".join(map(str, found.faults))


def ran(*words: str | Path) -> Result:
    return CliRunner().invoke(bedplate, ["checkpoint", *map(str, words)])


# --- real ones


@pytest.mark.parametrize(("path", "writer"), [(NEW, "0.19 or later"), (OLD, "0.18 or earlier")])
def test_a_real_checkpoint_is_whole_and_its_keys_are_known(path: Path, writer: str) -> None:
    found = inspect(path)
    assert found.whole, told(found)
    assert found.layout is Layout.TORCH_DIST
    assert found.iteration == 7
    assert found.written_by["Megatron Core"].startswith(writer)
    assert found.parallel == {"tensor": "1", "pipeline": "1", "data": "1", "ranks": "1"}
    tensors = {entry.key: (entry.shape, entry.dtype) for entry in found.entries if entry.kind == "tensor"}
    assert tensors == {
        "model.weight": ((3, 4), "float32"), "model.bias": ((5,), "bfloat16"),
        "optimizer.state.exp_avg.weight": ((3, 4), "float32"),
    }  # fmt: skip
    objects = {entry.key for entry in found.entries if entry.kind == "object"}
    assert objects == {"rng_state/shard_0_1"} | ({"common_state/shard_0_1"} if path == NEW else set())
    assert not found.foreign
    assert all(entry.size_bytes for entry in found.entries)


def test_the_command_prints_a_table_and_json() -> None:
    done = ran("inspect", NEW)
    assert done.exit_code == 0
    assert "model.weight\ttensor\t3x4\tfloat32" in done.output
    document = json.loads(ran("inspect", NEW, "--json").output)
    assert (document["layout"], document["whole"], document["iteration"]) == ("torch_dist", True, 7)


def test_the_checkpoint_that_the_record_names_is_looked_at(copied: Callable[[Path], Path]) -> None:
    path = copied(NEW)
    record = path.parent / "latest_checkpointed_iteration.txt"
    record.write_text("7")
    assert inspect(path.parent).path == str(path)
    record.write_text("8")
    assert "names iter_0000008, which is not there" in told(inspect(path.parent))
    for damaged in ("", "../..", "7\n8", "\x00", "9" * 70):
        record.write_text(damaged)
        found = inspect(path.parent)
        assert not found.whole
        assert "names no checkpoint" in told(found)


def test_the_record_of_the_training_program_is_followed_and_compared(copied: Callable[..., Path]) -> None:
    path = copied(NEW, "step-00000007")
    assert "complete.json: is not there" in told(inspect(path))
    files = {file.name: file.stat().st_size for file in path.iterdir()}
    record = {"step": 7, "files": files, "layout": {"tensor": 2, "stages": [2, 2], "replicas": 4}}
    (path / "complete.json").write_text(json.dumps(record))
    (path.parent / "latest-complete.json").write_text('{"checkpoint": "step-00000007", "step": 7}')
    found = inspect(path.parent)
    assert found.whole, told(found)
    assert found.parallel["pipeline"] == "2"
    (path / "complete.json").write_text(json.dumps({**record, "files": {**files, ".metadata": 1, "gone": 5}}))
    assert "complete.json says 1 bytes" in told(inspect(path))
    assert "gone: is not there" in told(inspect(path))
    (path.parent / "latest-complete.json").write_text('{"checkpoint": "../step-00000007"}')
    assert "names no checkpoint" in told(inspect(path.parent))


def test_a_save_after_the_one_that_the_tracker_names_never_ended(copied: Callable[[Path], Path]) -> None:
    path = copied(NEW)
    (path.parent / "latest_checkpointed_iteration.txt").write_text("6")
    assert "its save never ended" in told(inspect(path))


# --- damage


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda p: (p / "__0_0.distcp").unlink(), "__0_0.distcp: is not there, and holds 5 shards"),
        (lambda p: (p / ".metadata").unlink(), ".metadata: is not there, and shards are: the save never ended"),
        (lambda p: os.truncate(p / "__0_0.distcp", 100), "has 100 bytes, .metadata says"),
        (lambda p: os.truncate(p / "__0_0.distcp", 20_000), "is larger than what was saved"),
        (lambda p: (p / "__0_0.distcp").write_bytes(bytes(11921)), "is no archive of torch (5 of 5 shards)"),
        (lambda p: (p / "__1_0.distcp").write_bytes(b"x"), "__1_0.distcp: is not in .metadata"),
        (lambda p: (p / ".metadata").write_bytes(b""), ".metadata: no pickle"),
        (lambda p: (p / "metadata.json").write_text("{"), "metadata.json: no JSON"),
        (lambda p: (p / "metadata.json").write_text('{"sharded_backend": "zarr"}'), "sharded_backend is 'zarr'"),
        (lambda p: [f.unlink() for f in p.iterdir()], "no checkpoint of a known layout"),
        (lambda p: os.mkfifo(p / "__2_0.distcp"), "__2_0.distcp: is no regular file"),
        (lambda p: (p / "__2_0.distcp").symlink_to("/dev/zero"), "__2_0.distcp: is a symbolic link"),
    ],
)  # fmt: skip
def test_damage_is_told(copied: Callable[[Path], Path], damage: Callable[[Path], Any], says: str) -> None:
    path = copied(NEW)
    damage(path)
    found = inspect(path)
    assert not found.whole
    assert says in told(found)
    done = ran("inspect", path)
    assert isinstance(done.exception, DifferencesFound)
    assert says in done.output


def test_without_common_state_in_either_form_the_save_never_ended(copied: Callable[[Path], Path]) -> None:
    path = copied(OLD)
    (path / "common.pt").unlink()
    assert "neither common.pt nor the key common_state" in told(inspect(path))


def test_hashes_are_compared_when_they_are_asked_for(copied: Callable[[Path], Path]) -> None:
    path = copied(NEW)
    (path / "integrity.json").write_text(json.dumps({"algorithm": "sha256", "files": {".metadata": "0" * 64, "x": ""}}))
    assert inspect(path).whole
    found = told(inspect(path, hashes=True))
    assert ".metadata: does not have the sha256" in found
    assert "'x' is not there" in found


def test_what_is_not_there_is_bad_input(tmp_path: Path) -> None:
    for path in (tmp_path / "gone", tmp_path / ("x" * 300), Path("/dev/null"), Path("a\0b")):
        with pytest.raises(BadInput, match="name the checkpoint's directory"):
            inspect(path)


def test_metadata_cut_off_at_every_place_is_unreadable() -> None:
    data = (NEW / ".metadata").read_bytes()
    for length in range(len(data)):
        with pytest.raises(Unreadable):
            read_metadata(data[:length])


@pytest.mark.parametrize(("path", "name"), [(NEW, "__0_0.distcp"), (OLD, "common.pt"), (OLD, "metadata.json")])
def test_a_file_cut_off_anywhere_is_told(copied: Callable[[Path], Path], path: Path, name: str) -> None:
    copy = copied(path)
    data = (copy / name).read_bytes()
    for length in range(0, len(data), max(1, len(data) // 60)):
        (copy / name).write_bytes(data[:length])
        found = inspect(copy)
        assert not found.whole, length
        assert name in told(found)


LOOSE = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@LOOSE
@given(places=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=8))
@pytest.mark.parametrize(("path", "name"), [(NEW, ".metadata"), (NEW, "__0_0.distcp"), (OLD, "common.pt")])
def test_changed_bytes_never_crash_it(tmp_path: Path, path: Path, name: str, places: list[tuple[int, int]]) -> None:
    copy = tmp_path / "copy"
    if not copy.exists():
        shutil.copytree(path, copy)
    data = bytearray((path / name).read_bytes())
    for place, value in places:
        data[place % len(data)] = value
    (copy / name).write_bytes(data)
    json.dumps(inspect(copy).as_dict())


@LOOSE
@given(data=st.binary(max_size=300), name=st.sampled_from([".metadata", "common.pt", "metadata.json", "complete.json"]))
def test_random_bytes_in_place_of_a_file_are_told(tmp_path: Path, data: bytes, name: str) -> None:
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(OLD, copy)
    (copy / name).write_bytes(data)
    assert not inspect(copy).whole


# --- hostile


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def archive(data: bytes, **members: bytes) -> bytes:
    """A file as torch.save writes it."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as made:
        made.writestr("archive/data.pkl", data)
        for name, content in members.items():
            made.writestr(f"archive/data/{name.removeprefix('n')}", content)
    return held.getvalue()


@pytest.mark.parametrize("protocol", range(6))
def test_a_bomb_is_named_and_does_not_go_off(copied: Callable[[Path], Path], tmp_path: Path, protocol: int) -> None:
    path, crater = copied(OLD), tmp_path / "crater"
    (path / "common.pt").write_bytes(archive(pickle.dumps({"iteration": 7, "x": Bomb(crater)}, protocol)))
    found = inspect(path)
    assert [name.rpartition(".")[2] for name in found.foreign] == ["mkdir"]
    assert Mark.FOREIGN in found.marks
    assert "what no known writer names" in told(found)
    (path / ".metadata").write_bytes(pickle.dumps(Bomb(crater), protocol))
    assert ".metadata: no Metadata" in told(inspect(path))
    assert not crater.exists()


@pytest.mark.parametrize(
    "name",
    ["os.system", "torch.hub.load", "torch.load", "builtins.eval", "numpy.load", "torch._utils.x", "megatron.core.f",
     "torch.utils.collect_env.run", "torch.distributed.checkpoint.format_utils.dcp_to_torch_save"],
)  # fmt: skip
def test_names_of_functions_are_foreign(name: str) -> None:
    assert foreign([name, "torch.Size", "torch.FloatStorage", "torch.float8_e4m3fn"]) == (name,)


def test_knots_and_doublings_end(tmp_path: Path) -> None:
    doublings = (b"h%ch%c\x86q%c0" % (i, i, i + 1) for i in range(200))  # each a pair of the one before: 2^200 leaves
    value, _ = read(b"\x80\x02K\x01q\x000" + b"".join(doublings) + b"h\xc8.")
    with pytest.raises(Unreadable, match="grows beyond"):
        write(value, 10_000)
    with pytest.raises(Unreadable, match="at the end"):
        read(b"\x80\x02K\x01K\x02.")
    with pytest.raises(Unreadable, match="grows beyond"):
        write(read(b"\x80\x02]q\x00h\x00a.")[0], 10_000)
    deep, _ = read(b"\x80\x02K\x01" + b"\x85" * 200_000 + b".")
    with pytest.raises(Unreadable, match="grows beyond"):
        write(deep, 1000)
    path = tmp_path / "mp_rank_00"
    path.mkdir()
    (path / "model_optim_rng.pt").write_bytes(archive(b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s."))
    assert "there is nothing in it" in told(inspect(tmp_path))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x80\x02\x8b\xff\xff\xff\x7f.", "no pickle"), (b"\x80\x02\x82\x01.", "EXT1"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"), (b"\x80\x02h\x07.", "never had"), (b"\x80\x02t.", "mark"),
        (b"\x80\x02Nb.", "no"), (b"(K\x01d.", "without a value"),
        (b"\x80\x02\x8a\x40" + b"\x7f" * 64 + b".", "bits"), (b"", "no pickle"), (b"N", "no pickle"),
        (b"\x80\xff.", "0 values"),
        (b"c" + b"a" * 600 + b"\nb\n.", "no name"),
    ],
)  # fmt: skip
def test_what_no_checkpoint_has_is_unreadable(data: bytes, says: str) -> None:
    with pytest.raises(Unreadable, match=says):
        read(data)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../outside", "..", "", "a\0b", "a//b", "a\\..\\b"])
def test_a_name_that_leads_out_of_the_checkpoint_is_not_opened(
    copied: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = copied(NEW)
    (path.parent / "outside").write_bytes((path / "__0_0.distcp").read_bytes())
    root, _ = read((path / ".metadata").read_bytes())
    for _, info in root.get("storage_data").items:
        info.state.items[:] = [(key, name if key == "relative_path" else value) for key, value in info.state.items]
    (path / ".metadata").write_bytes(write(root, 100_000))
    opened: list[str] = []
    original = os.open

    def watched(file: Any, *words: Any, **named: Any) -> int:
        opened.append(str(file))
        return original(file, *words, **named)

    monkeypatch.setattr(os, "open", watched)
    found = inspect(path)
    assert "no path inside the checkpoint: not opened" in told(found)
    assert opened
    assert all(Path(file).resolve().is_relative_to(path) for file in opened)


def test_a_key_that_would_steer_a_terminal_is_printed_without_it(copied: Callable[[Path], Path]) -> None:
    path = copied(NEW)
    data = (path / ".metadata").read_bytes().replace(b"model.weight", b"model\x1b[2Jght")
    (path / ".metadata").write_bytes(data)
    output = ran("inspect", path).output
    assert "\x1b" not in output
    assert "model?[2Jght" in output


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=400))
def test_any_bytes_are_a_value_or_unreadable(data: bytes) -> None:
    for attempt in (data, b"\x80\x04" + data + b"."):
        try:
            read(attempt)
        except Unreadable:
            continue


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**100), 2**100) | st.floats(allow_nan=False) | st.text(),
    lambda below: st.lists(below) | st.dictionaries(st.text(), below) | st.tuples(below, below),
    max_leaves=25,
)


def back(value: Any) -> Any:
    """Plain Python of what was read."""
    if isinstance(value, Pairs):
        return {key: back(item) for key, item in value.items}
    if isinstance(value, tuple | list):
        return type(value)(back(item) for item in value)
    return value


@settings(max_examples=80, deadline=None)
@given(value=PLAIN, protocol=st.integers(0, 5))
def test_plain_values_are_read_and_written_as_pickle_does(value: Any, protocol: int) -> None:
    found, names = read(pickle.dumps(value, protocol))
    assert back(found) == value
    assert not names
    assert pickle.loads(write(found, 1_000_000)) == value  # noqa: S301  our own bytes


def test_objects_are_read_as_what_would_make_them() -> None:
    found, names = read(pickle.dumps(Fraction(3)))
    assert isinstance(found, Made)
    assert isinstance(found.of, Name)
    assert names == {f"{Fraction.__module__}.Fraction"}
    assert back(found.state) == {"numerator": 3}


class Fraction:
    def __init__(self, numerator: int) -> None:
        self.numerator = numerator


def test_metadata_without_the_common_state_keeps_all_else() -> None:
    data = (NEW / ".metadata").read_bytes()
    before, after = read_metadata(data), read_metadata(without_common_state(data))
    assert not after.wrong
    assert [e for e in before.entries if e.key != "common_state/shard_0_1"] == list(after.entries)
    assert [s for s in before.stored if s.key != "common_state/shard_0_1"] == list(after.stored)
    assert b"common_state" not in without_common_state(data)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b"K\x03K\x04\x86", b"K\x03K\x05\x86", "numbers"),
        (b"model.bias", b"model.bark", "twice|is no key|no file is said"),
    ],
)
def test_metadata_that_disagrees_with_itself_is_told(old: bytes, new: bytes, says: str) -> None:
    data = (NEW / ".metadata").read_bytes()
    assert old in data
    wrong = read_metadata(data.replace(old, new, 1)).wrong
    assert any(word in " ".join(wrong) for word in says.split("|")), wrong


# --- other layouts


def tensor_pickle(storage: str, numbers: int, shape: tuple[int, ...]) -> bytes:
    """A state dictionary with one tensor, as torch pickles it."""
    sizes = b"(" + b"".join(b"K" + bytes([n]) for n in shape) + b"t"
    return (
        b"\x80\x02}X\x06\x00\x00\x00weightctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\n"
        + storage.encode() + b"\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK" + bytes([numbers]) + b"tQK\x00"
        + sizes + sizes + b"\x89ccollections\nOrderedDict\n)RtRs."
    )  # fmt: skip


def test_files_of_ranks_are_read(tmp_path: Path) -> None:
    for rank in ("mp_rank_00_000", "mp_rank_01_000", "mp_rank_00_001", "mp_rank_01_001"):
        (tmp_path / rank).mkdir()
        data = archive(tensor_pickle("FloatStorage", 12, (3, 4)), n0=bytes(48))
        (tmp_path / rank / "model_optim_rng.pt").write_bytes(data)
    found = inspect(tmp_path)
    assert found.whole, told(found)
    assert found.layout is Layout.LEGACY
    assert found.parallel == {"tensor": "2", "pipeline": "2"}
    assert {(e.key, e.shape, e.dtype, e.size_bytes) for e in found.entries} >= {
        ("mp_rank_01_001:weight", (3, 4), "float32", 48)
    }
    for damaged, says in (
        (archive(tensor_pickle("FloatStorage", 12, (3, 4)), n0=bytes(40)), "40 bytes of numbers, where 48 are said"),
        (archive(tensor_pickle("FloatStorage", 12, (3, 4))), "its numbers, data/0, are not in the file"),
        (archive(tensor_pickle("FloatStorage", 12, (3, 5)), n0=bytes(48)), "needs more than its 48 bytes"),
        (data[:-30], "no whole file of torch.save"),
        (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "no whole file of torch.save"),
    ):
        (tmp_path / "mp_rank_00_000" / "model_optim_rng.pt").write_bytes(damaged)
        assert says in told(inspect(tmp_path))


def safetensors(header: Any, numbers: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + numbers


def test_safetensors_are_read(tmp_path: Path) -> None:
    def tensor(*shape: int) -> dict[str, Any]:
        return {"dtype": "F32", "shape": shape, "data_offsets": [0, 48]}

    whole = {"__metadata__": {"format": "pt"}, "w": tensor(3, 4)}
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors(whole, bytes(48)))
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"w": "model.safetensors"}}')
    assert inspect(tmp_path).whole, told(inspect(tmp_path))
    assert inspect(path).whole
    for data, says in (
        (safetensors(whole, bytes(40)), "its header says"),
        (safetensors({"w": tensor(3)}, bytes(48)), "48 bytes for the shape"),
        (safetensors({"w": tensor(-3)}, bytes(48)), "no dtype, shape"),
        (safetensors([], b""), "no object"), (b"\xff" * 20, "no header"), (b"", "no header"),
    ):  # fmt: skip
        path.write_bytes(data)
        assert says in told(inspect(tmp_path)), says
    path.write_bytes(safetensors({}, b""))
    assert "'w', in 'model.safetensors', is not there" in told(inspect(tmp_path))


def test_an_archive_that_grows_is_not_read_to_its_end(
    copied: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied(OLD)
    monkeypatch.setattr("bedplate.sources.checkpoint.LARGEST_PICKLE_BYTES", 5000)
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("archive/data.pkl", bytes(10_000_000))
    (path / "common.pt").write_bytes(held.getvalue())
    assert "larger than any of a checkpoint" in told(inspect(path))
