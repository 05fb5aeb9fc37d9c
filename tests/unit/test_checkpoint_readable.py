"""Which environments read a checkpoint: by what is known, by trying it, and never by not knowing."""

import json
import pickle
import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bedplate.act import checkpoint as act
from bedplate.act.checkpointcopy import convert
from bedplate.cli.main import bedplate
from bedplate.decide.checkpointchanges import all_changes
from bedplate.decide.checkpointnames import transformer_engine
from bedplate.decide.checkpointreadable import by_files, by_loading, stack_of
from bedplate.decide.lockdoc import LockDocument, lock_text, parse_lock
from bedplate.ledger.store import Ledger
from bedplate.model.checkpoint import Answer, Layout, Level, Mark, Stack
from bedplate.model.event import Event
from bedplate.model.faults import BadInput, Refused
from bedplate.sources.checkpoint import inspect
from bedplate.sources.site import Site, open_site
from unit.lock_sample import document, set_at
from unit.simulation import lock_site, record_lock
from unit.site_sample import write_site

SAVED = Path(__file__).with_name("goldens") / "checkpoints"
NEW, OLD = SAVED / "0.19.2", SAVED / "0.18.2"
TORCH = "2.13.0a0+8145d630e8"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return open_site(write_site(tmp_path / "site"))


def locked(site: Site, megatron: str | None, torch: str | None = TORCH) -> LockDocument:
    """Environment A, whose image holds these."""
    made: Any = set_at(document(), "spec_sha256", site.environment("A").spec_sha256)
    made["config"]["values"] |= {
        name: version for name, version in (("image_megatron_core", megatron), ("image_torch", torch)) if version
    }
    lock = parse_lock(lock_text(made), "A.lock.json")
    site.lock_path("A").write_text(lock_text(made))
    record_lock(site, lock)
    return lock


def test_what_the_build_found_in_the_image_counts_before_what_a_person_wrote(site: Site) -> None:
    made: Any = set_at(document(), "image/versions", {"megatron-core": "0.19.2"})
    made["config"]["values"] |= {"image_megatron_core": "0.18.2", "image_torch": TORCH}
    assert stack_of(parse_lock(lock_text(made), "A.lock.json")) == Stack("0.19.2", TORCH)


def events(site: Site) -> list[Event]:
    with Ledger.read(site.ledger_url) as ledger:
        return [event for event in ledger.events() if event.kind.startswith("checkpoint.")]


def ran(site: Site, *words: str | Path) -> Result:
    return CliRunner().invoke(bedplate, ["--site", str(site.root), *map(str, words)])


# --- the table


@pytest.mark.parametrize(
    ("path", "megatron", "torch", "answer", "says"),
    [
        (NEW, "0.19.2", TORCH, Answer.YES, "reads it"),
        (NEW, "0.19.0", "2.9.1", Answer.YES, "reads it"),
        (NEW, "0.18.2", TORCH, Answer.NO, "common.pt does not exist"),
        (NEW, "0.14.0", TORCH, Answer.NO, "Megatron-LM#5160"),
        (NEW, "0.17.0rc0", TORCH, Answer.UNKNOWN, "not known"),
        (NEW, "0.19.0rc1", TORCH, Answer.UNKNOWN, "not known"),
        (NEW, "0.20.0", TORCH, Answer.UNKNOWN, "not known"),
        (NEW, None, TORCH, Answer.UNKNOWN, "which Megatron Core the image holds is not recorded"),
        (NEW, "0.19.2", None, Answer.UNKNOWN, "which torch the image holds is not recorded"),
        (NEW, "0.19.2", "2.3.1", Answer.UNKNOWN, "StorageMeta"),
        (NEW, "0.19.2", "2.2.0", Answer.NO, "StorageMeta"),
        (NEW, "0.18.2", None, Answer.NO, "common.pt does not exist"),
        (NEW, "main", TORCH, Answer.UNKNOWN, "not known"),
        (OLD, "0.18.2", TORCH, Answer.YES, "reads it"),
        (OLD, "0.19.2", TORCH, Answer.YES, "reads it"),
        (OLD, "0.14.0", TORCH, Answer.YES, "reads it"),
        (OLD, "0.13.0", TORCH, Answer.UNKNOWN, "not known"),
    ],
)
def test_what_is_known_decides(path: Path, megatron: str | None, torch: str | None, answer: Answer, says: str) -> None:
    verdict = by_files(inspect(path), Stack(megatron, torch), all_changes())
    assert verdict.answer is answer
    assert says in " ".join(verdict.reasons)
    assert bool(verdict.remedy) is (answer is not Answer.YES)


def test_nothing_that_is_not_whole_and_nothing_unheard_of_is_readable(tmp_path: Path) -> None:
    stack = Stack("0.19.2", TORCH)
    found = inspect(NEW)
    assert by_files(replace(found, entries=()), stack, all_changes()).answer is Answer.NO
    for layout in set(Layout) - {Layout.TORCH_DIST}:
        assert by_files(replace(found, layout=layout), stack, all_changes()).answer is Answer.UNKNOWN
    assert by_files(found, stack, ()).answer is Answer.UNKNOWN
    damaged = Path(shutil.copytree(NEW, tmp_path / "damaged"))
    (damaged / "__0_0.distcp").unlink()
    verdict = by_files(inspect(damaged), stack, all_changes())
    assert verdict.answer is Answer.NO
    assert "is not there" in verdict.reasons[0]


def test_optimizer_states_that_may_be_flattened_are_not_known_to_later_releases() -> None:
    found = inspect(OLD)
    assert {Mark.OPTIMIZER, Mark.CONTENT_METADATA} <= found.marks
    for marks in (found.marks - {Mark.CONTENT_METADATA}, found.marks | {Mark.FLATTENED}):
        older = replace(found, marks=frozenset(marks))
        assert by_files(older, Stack("0.18.2", TORCH), all_changes()).answer is Answer.UNKNOWN
        assert by_files(older, Stack("0.14.0", TORCH), all_changes()).answer is Answer.YES


def test_classes_that_weights_only_refuses_are_not_known_to_0_19() -> None:
    found = replace(inspect(OLD), names=("megatron.core.models.Other",))
    assert by_files(found, Stack("0.19.2", TORCH), all_changes()).answer is Answer.UNKNOWN
    assert by_files(found, Stack("0.18.2", TORCH), all_changes()).answer is Answer.YES


@pytest.mark.parametrize(
    ("changed", "old", "new"),
    [
        ({}, Answer.YES, Answer.YES),
        ({"async": True}, Answer.NO, Answer.YES),
        ({"sharded_backend_version": 2}, Answer.UNKNOWN, Answer.UNKNOWN),
        ({"common_backend_version": 2}, Answer.UNKNOWN, Answer.UNKNOWN),
    ],
)
def test_keys_and_versions_of_metadata_json_count(
    tmp_path: Path, changed: dict[str, Any], old: Answer, new: Answer
) -> None:
    path = Path(shutil.copytree(OLD, tmp_path / "saved"))
    said = json.loads((path / "metadata.json").read_text())
    (path / "metadata.json").write_text(json.dumps(said | changed))
    found = inspect(path)
    assert found.whole
    answers = [by_files(found, Stack(version, TORCH), all_changes()).answer for version in ("0.18.2", "0.19.2")]
    assert answers == [old, new]


def test_the_version_in_metadata_json_did_not_change_with_the_layout() -> None:
    old, new = (json.loads((path / "metadata.json").read_text()) for path in (OLD, NEW))
    assert old["sharded_backend_version"] == new["sharded_backend_version"] == 1
    assert Mark.COMMON_STATE in inspect(NEW).marks - inspect(OLD).marks


def test_a_common_pt_beside_the_common_state_is_read_by_both(tmp_path: Path) -> None:
    """What 0.19 writes, with the common.pt that the copy gets: old readers take the file, and so does 0.19."""
    path = Path(shutil.copytree(NEW, tmp_path / "both"))
    shutil.copy(convert(NEW, "0.18", tmp_path / "copy").path + "/common.pt", path)
    found = inspect(path)
    assert found.whole, found.faults
    for version in ("0.14.0", "0.18.2", "0.19.2"):
        assert by_files(found, Stack(version, TORCH), all_changes()).answer is Answer.YES


def test_what_the_optimizer_was_sharded_by_is_shown() -> None:
    """dp_reshardable, the default: another number of replicas may load it, another tensor or pipeline size may not."""
    for path in (OLD, NEW):
        assert inspect(path).written_by["content distrib_optim_sharding_type"] == "dp_reshardable"


def resaved(path: Path, content: dict[str, Any] | None) -> Path:
    """A copy of a checkpoint whose common state says something else of its content, or nothing."""
    shutil.copytree(OLD, path)
    state = {"iteration": 7, "checkpoint_version": 3.0} | ({"content_metadata": content} if content else {})
    with zipfile.ZipFile(OLD / "common.pt") as old, zipfile.ZipFile(path / "common.pt", "w") as new:
        for name in old.namelist():
            pickled = pickle.dumps(state, protocol=2) if name.endswith("/data.pkl") else old.read(name)
            new.writestr(name, pickled)
    return path


def test_a_checkpoint_without_content_metadata_is_shown_as_that_and_not_known_to_later_releases(tmp_path: Path) -> None:
    """Megatron-Bridge#4828: what read it took None for a dictionary, and ended with a TypeError."""
    found = inspect(resaved(tmp_path / "old", None))
    assert found.whole, found.faults
    assert not [name for name in found.written_by if name.startswith("content ")]
    verdict = by_files(found, Stack("0.18.2", TORCH), all_changes())
    assert verdict.answer is Answer.UNKNOWN
    assert "may be flattened (saved until 0.14)" in " ".join(verdict.reasons)
    assert "--level load" in verdict.remedy


@pytest.mark.parametrize("single", [True, False])
def test_whether_local_shards_were_saved_one_by_one_is_shown(tmp_path: Path, single: bool) -> None:
    """Model-Optimizer#431: the default is another one since 0.15, and so is what lies in the files."""
    content = {"distrib_optim_sharding_type": "dp_reshardable", "singleton_local_shards": single}
    found = inspect(resaved(tmp_path / "saved", content))
    assert found.written_by["content singleton_local_shards"] == str(single)
    assert by_files(found, Stack("0.18.2", TORCH), all_changes()).answer is Answer.YES


def test_whether_the_layers_are_transformer_engines_is_shown(tmp_path: Path) -> None:
    """Megatron-LM#900: a model with other layers than were saved meets unexpected keys _extra_state, or misses them."""
    assert "layers" not in inspect(OLD).written_by
    path = Path(shutil.copytree(OLD, tmp_path / "saved"))
    data = (path / ".metadata").read_bytes()
    old, new = b"optimizer.state.exp_avg.weight", b"decoder.layers.00._extra_state"
    assert old in data
    (path / ".metadata").write_bytes(data.replace(old, new))
    found = inspect(path)
    assert found.whole, found.faults
    assert found.written_by["layers"] == "of Transformer Engine: 1 key _extra_state"
    assert "of Transformer Engine: 1 key _extra_state" in CliRunner().invoke(
        bedplate, ["checkpoint", "inspect", str(path)]
    ).stdout  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (["a._extra_state", "b._extra_state/shard_0_1", "c.weight"], "of Transformer Engine: 2 keys _extra_state"),
        (["_extra_state_of_mine", "a._extra_stated", "a.weight"], None),
        ([], None),
    ],
)
def test_keys_of_transformer_engine_are_known_by_their_end(keys: list[str], says: str | None) -> None:
    assert transformer_engine(keys) == says


def test_every_change_says_where_it_is_known_from() -> None:
    changes = all_changes()
    assert len({change.id for change in changes}) == len(changes) > 4
    for change in changes:
        assert change.source
        assert change.program in {"megatron_core", "torch"}
        change.answer("0.18.2")  # its ranges are ranges


# --- what the loader says

SAID = {
    "megatron_core": "0.18.2", "torch": TORCH, "unable": "", "faults": [],
    "read": {"common": 3, "keys": 4, "tensors": 3, "objects": 1, "bytes": 106},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "answer", "says"),
    [
        ({}, Answer.YES, "loaded the common state, 3 tensors and 1 objects of 4 keys, 106 bytes"),
        ({"megatron_core": "0.18.2+abc123"}, Answer.YES, "loaded"),
        ({"faults": ["CheckpointingException: no"]}, Answer.NO, "CheckpointingException"),
        ({"unable": "no torch"}, Answer.UNKNOWN, "no torch"),
        ({"megatron_core": "0.19.2"}, Answer.UNKNOWN, "the environment has 0.18.2"),
        ({"torch": None}, Answer.UNKNOWN, "ran with torch None"),
        ({"read": {}}, Answer.UNKNOWN, "loaded nothing"),
        ({"read": {**SAID["read"], "tensors": 0}}, Answer.UNKNOWN, "loaded nothing"),  # type: ignore[dict-item]
        ({"read": {**SAID["read"], "common": 0}}, Answer.UNKNOWN, "loaded nothing"),  # type: ignore[dict-item]
        ({"faults": None}, Answer.UNKNOWN, "nothing that can be understood"),
        ({"read": None}, Answer.UNKNOWN, "nothing that can be understood"),
    ],
)
def test_what_the_loader_says_is_judged(changed: dict[str, Any], answer: Answer, says: str) -> None:
    verdict = by_loading({**SAID, **changed}, Stack("0.18.2", TORCH))
    assert verdict.answer is answer
    assert says in " ".join(verdict.reasons)


# --- the command, and the ledger


@pytest.mark.parametrize(
    ("megatron", "kind", "code"),
    [("0.19.2", "readable", 0), ("0.18.2", "unreadable", 3), (None, "unknown", 3)],
)
def test_a_verdict_is_recorded_and_shown_by_the_log(site: Site, megatron: str | None, kind: str, code: int) -> None:
    lock = locked(site, megatron)
    done = ran(site, "checkpoint", "readable", NEW, "A", "--json")
    assert isinstance(done.exception, Refused) is bool(code)
    said = json.loads(done.stdout)
    event = events(site)[0]
    assert event.kind == f"checkpoint.{kind}"
    assert event.environment == lock.identity
    assert event.subjects == (f"checkpoint:{NEW}", "environment:A")
    assert event.body["reasons"] == said["reasons"]
    assert event.body["fingerprint"] == inspect(NEW).fingerprint
    assert f"checkpoint.{kind}" in ran(site, "ledger", "log", "--kind", "checkpoint").output


def test_without_a_lock_nothing_is_judged(site: Site) -> None:
    done = ran(site, "checkpoint", "readable", NEW, "A")
    assert isinstance(done.exception, BadInput)
    assert not events(site)


def test_without_the_image_on_this_machine_load_is_unknown_and_says_so(site: Site) -> None:
    locked(site, "0.19.2")
    judged = act.readable(site, "A", NEW, Level.LOAD)
    assert judged.verdict.answer is Answer.UNKNOWN
    assert "here is no image" in judged.verdict.reasons[0]
    assert "--python" in judged.verdict.remedy


def test_a_python_without_megatron_makes_load_unknown(site: Site) -> None:
    locked(site, None, None)
    judged = act.readable(site, "A", NEW, Level.LOAD, python=[sys.executable])
    assert "any image could answer" in judged.verdict.reasons[0]
    locked(site, "0.19.2")
    judged = act.readable(open_site(site.root), "A", NEW, Level.LOAD, python=[sys.executable])
    assert judged.verdict.answer is Answer.UNKNOWN
    assert "no torch and Megatron Core" in judged.verdict.reasons[0]
    assert events(site)[1].body["command"][0] == sys.executable


@pytest.mark.parametrize(
    ("program", "answer", "says"),
    [
        ("print('bedplate-checkpoint: ' + json.dumps(SAID))", Answer.YES, "3 tensors"),
        ("print('bedplate-checkpoint: {')", Answer.UNKNOWN, "without an answer"),
        ("print('bedplate-checkpoint: []')", Answer.UNKNOWN, "without an answer"),
        ("sys.exit('no GPU driver')", Answer.UNKNOWN, "no GPU driver"),
        (None, Answer.UNKNOWN, "could not run"),
    ],
)
def test_the_answer_of_a_program_in_the_image_counts(
    site: Site, tmp_path: Path, program: str | None, answer: Answer, says: str
) -> None:
    locked(site, "0.18.2")
    stand_in = tmp_path / "image-python"
    if program is not None:
        stand_in.write_text(f"#!{sys.executable}\nimport json, sys\nSAID = {SAID!r}\nsys.stdin.read()\n{program}\n")
        stand_in.chmod(0o755)
    judged = act.readable(site, "A", OLD, Level.LOAD, python=[str(stand_in)])
    assert judged.verdict.answer is answer
    assert says in " ".join(judged.verdict.reasons)


def test_a_checkpoint_that_names_something_strange_is_never_loaded(site: Site, tmp_path: Path) -> None:
    locked(site, "0.18.2")
    path = Path(shutil.copytree(OLD, tmp_path / "strange"))
    data = (path / ".metadata").read_bytes()
    (path / ".metadata").write_bytes(data.replace(b"\x8c\x05torch", b"\x8c\x05posix").replace(b"Size", b"kill"))
    started = tmp_path / "started"
    judged = act.readable(site, "A", path, Level.LOAD, python=["touch", str(started)])
    assert judged.verdict.answer is Answer.NO
    assert "nothing was loaded" in judged.verdict.remedy
    assert not started.exists()


def test_python_without_load_is_bad_input(site: Site) -> None:
    locked(site, "0.19.2")
    for words in (["--python", "python3"], ["--level", "load", "--python", "'"]):
        assert isinstance(ran(site, "checkpoint", "readable", NEW, "A", *words).exception, BadInput)
    assert not events(site)


# --- rollback


def test_a_rollback_is_refused_where_a_checkpoint_cannot_be_read(site: Site) -> None:
    locked(site, "0.18.2")
    done = ran(site, "rollback", "A", "--yes", "--checkpoint", NEW, "--checkpoint", OLD)
    assert isinstance(done.exception, Refused)
    assert f"checkpoint {NEW}: readable: no" in str(done.exception)
    assert str(OLD) not in str(done.exception)
    assert "bedplate checkpoint convert" in str(done.exception)
    assert [event.kind for event in events(site)] == ["checkpoint.unreadable", "checkpoint.readable"]


def test_a_rollback_is_refused_where_nobody_knows(site: Site) -> None:
    lock_site(site, "A")
    done = ran(site, "rollback", "A", "--yes", "--checkpoint", OLD)
    assert isinstance(done.exception, Refused)
    assert "readable: unknown" in str(done.exception)


def test_a_readable_checkpoint_lets_the_rollback_go_on_to_its_other_checks(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked(site, "0.18.2")
    reached: list[str] = []

    def go(_: Site, order: Any, *words: Any, **named: Any) -> Any:
        reached.append(order.environment)
        raise Refused("reached")

    monkeypatch.setattr("bedplate.cli.rollout._run", go)
    assert str(ran(site, "rollback", "A", "--yes", "--checkpoint", OLD).exception) == "reached"
    assert reached == ["A"]


def nothing(_: Path, __: Site) -> None:
    """As it was."""


def another_file(path: Path, _: Site) -> None:
    (path / "spare.json").write_text("{}")


def another_lock(_: Path, site: Site) -> None:
    locked(site, "0.18.2", "2.3.0")


@pytest.mark.parametrize(("changed", "stands"), [(nothing, True), (another_file, False), (another_lock, False)])
def test_a_load_stands_for_the_same_checkpoint_and_environment_only(
    site: Site, tmp_path: Path, changed: Callable[[Path, Site], None], stands: bool
) -> None:
    locked(site, "0.18.2", "2.3.1")
    path = Path(shutil.copytree(OLD, tmp_path / "checkpoint"))
    stand_in, said = tmp_path / "image-python", {**SAID, "torch": "2.3.1"}
    stand_in.write_text(f"#!{sys.executable}\nimport json\nprint('bedplate-checkpoint: ' + json.dumps({said!r}))\n")
    stand_in.chmod(0o755)
    assert act.standing(site, "A", path).verdict.answer is Answer.UNKNOWN
    assert act.readable(site, "A", path, Level.LOAD, python=[str(stand_in)]).verdict.answer is Answer.YES
    changed(path, site)
    found = act.standing(open_site(site.root), "A", path).verdict
    assert (found.answer is Answer.YES) is stands
    assert (found.level is Level.LOAD) is stands


# --- the copy


def test_a_copy_for_0_18_is_whole_and_the_checkpoint_stays(tmp_path: Path) -> None:
    path = Path(shutil.copytree(NEW, tmp_path / "step-00000007"))
    files = {file.name: file.stat().st_size for file in path.iterdir()}
    (path / "complete.json").write_text(json.dumps({"step": 7, "files": files}))
    (path / "integrity.json").write_text(json.dumps({"algorithm": "sha256", "files": {".metadata": "0"}}))
    before = {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.iterdir()}
    made = convert(path, "0.18", tmp_path / "copy")
    assert {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.iterdir()} == before
    assert made.whole
    assert made.iteration == 7
    assert "common_state/shard_0_1" not in {entry.key for entry in made.entries}
    assert inspect(tmp_path / "copy", hashes=True).whole
    stack = Stack("0.18.2", TORCH)
    assert by_files(inspect(path), stack, all_changes()).answer is Answer.NO
    assert by_files(made, stack, all_changes()).answer is Answer.YES
    assert by_files(made, Stack("0.19.2", TORCH), all_changes()).answer is Answer.YES
    record = json.loads((tmp_path / "copy" / "complete.json").read_text())
    assert "common.pt" in record["files"]
    assert (tmp_path / "copy" / "__0_0.distcp").samefile(path / "__0_0.distcp")
    apart = convert(path, "0.18", tmp_path / "apart", copy=True)
    assert apart.whole
    assert not (tmp_path / "apart" / "__0_0.distcp").samefile(path / "__0_0.distcp")
    assert not [name for name in tmp_path.iterdir() if name.name.startswith(".")]


def test_what_cannot_be_converted_is_refused_with_every_fault(site: Site, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    path = Path(shutil.copytree(NEW, tmp_path / "new"))
    cases: list[tuple[list[str | Path], list[str]]] = [
        ([path, "--to", "0.20", "--out", tmp_path / "there"], ["--to: 0.20 is none of", "there: is there already"]),
        ([path, "--to", "0.18", "--out", path / "copy"], ["lies inside the checkpoint"]),
        ([path, "--to", "0.18", "--out", tmp_path / "no" / "copy"], ["no such directory"]),
        ([OLD, "--to", "0.18", "--out", tmp_path / "x"], ["needs no such conversion"]),
        ([tmp_path / "there", "--to", "0.18", "--out", tmp_path / "x"], ["no checkpoint of a known layout"]),
    ]
    for words, says in cases:
        done = ran(site, "checkpoint", "convert", *words)
        assert isinstance(done.exception, BadInput)
        assert all(said in str(done.exception) for said in says), done.exception
    assert not (tmp_path / "x").exists()


def test_a_copy_that_could_not_be_finished_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(data: bytes) -> bytes:
        raise OSError(28, "No space left on device", "common.pt")

    monkeypatch.setattr("bedplate.act.checkpointcopy.common_file", full)
    with pytest.raises(Exception, match="No space left on device"):
        convert(NEW, "0.18", tmp_path / "copy")
    assert not list(tmp_path.iterdir())
