"""Which images read what others save: tried for every pair, recorded, and told before a way back is lost.

No Megatron is here: a stand-in for the Python of an image saves and reads as the releases that it names do. The real
ones are tried in images/training/tests/test_checkpoint_matrix.py.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bedplate.act import checkpointtiny
from bedplate.act.imagepython import Mount, NotHere, image_python
from bedplate.act.rollout import Readiness
from bedplate.cli.main import bedplate
from bedplate.decide import checkpointmatrix as decide
from bedplate.decide.checkpointchanges import all_changes
from bedplate.decide.checkpointmatrix import Pair
from bedplate.decide.checkpointreadable import by_loading
from bedplate.decide.lockdoc import LockDocument, lock_text, parse_lock
from bedplate.ledger.store import Ledger
from bedplate.model.checkpoint import Answer, Stack
from bedplate.model.event import Draft, Event
from bedplate.model.faults import BadInput, Refused
from bedplate.sources.site import Site, open_site
from unit.lock_sample import digest, document, set_at
from unit.simulation import record_lock
from unit.site_sample import ENVIRONMENT, write_site

SAVED = Path(__file__).with_name("goldens") / "checkpoints"
TORCH = "2.13.0a0+8145d630e8"
COMMON_FILE = "CheckpointingException: Common file common.pt does not exist"

STAND_IN = '''\
#!{python}
"""Stand-in: the Python of an image with Megatron Core {megatron}, as far as layouts go."""
import json, pathlib, shutil, sys
program, verb, paths = sys.argv[1], sys.argv[2], sys.argv[3:]
assert program == "-" and "dist_checkpointing" in sys.stdin.read()
for path in map(pathlib.Path, paths):
    said = {{"path": str(path), "megatron_core": {megatron!r}, "torch": {torch!r}, "unable": "", "faults": []}}
    if verb == "save":
        shutil.copytree({saves!r}, path, dirs_exist_ok=True)
    elif {old} and not (path / "common.pt").exists():
        said |= {{"faults": [{fault!r}], "read": {{}}}}
    else:
        said["read"] = {{"common": 3, "tensors": 3, "objects": 1, "keys": 4, "bytes": 106}}
    print("a banner of the image")
    print("bedplate-checkpoint: " + json.dumps(said))
'''


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A holds Megatron Core 0.18.2, B 0.19.2; C is another environment of A's image."""
    root = write_site(tmp_path / "site")
    for name in "BC":
        (root / f"environments/{name}.yml").write_text(
            ENVIRONMENT.replace("environment: A\n", f"environment: {name}\n")
        )
    made = open_site(root)
    for name, megatron, image in (("A", "0.18.2", "5"), ("B", "0.19.2", "e"), ("C", "0.18.2", "5")):
        lock(made, name, megatron, image)
    return made


def lock(site: Site, name: str, megatron: str | None, image: str, torch: str | None = TORCH) -> LockDocument:
    made: Any = set_at(document(), "spec_sha256", site.environment(name).spec_sha256)
    made["environment"] = name
    made["image"] |= {"manifest_digest": digest(image), "reference": f"registry.lab:5443/lab/small@{digest(image)}"}
    values = {"image_megatron_core": megatron, "image_torch": torch}
    made["config"]["values"] |= {key: value for key, value in values.items() if value}
    site.lock_path(name).write_text(lock_text(made))
    found = parse_lock(lock_text(made), f"{name}.lock.json")
    record_lock(site, found)
    return found


def stand_in(folder: Path, megatron: str, **changes: object) -> str:
    path = folder / f"python-{megatron}-{len(list(folder.iterdir()))}"
    told: dict[str, object] = {
        "python": sys.executable, "megatron": megatron, "torch": TORCH, "fault": COMMON_FILE,
        "old": megatron < "0.19", "saves": str(SAVED / ("0.18.2" if megatron < "0.19" else "0.19.2")),
    }  # fmt: skip
    path.write_text(STAND_IN.format(**(told | changes)))
    path.chmod(0o755)
    return str(path)


def ran(site: Site, *words: str) -> Result:
    return CliRunner().invoke(bedplate, ["--site", str(site.root), *words])


def events(site: Site) -> list[Event]:
    with Ledger.read(site.ledger_url) as ledger:
        return list(ledger.events(kinds=[decide.EVENT]))


def both(tmp_path: Path) -> list[str]:
    return ["--python", f"A={stand_in(tmp_path, '0.18.2')}", "--python", f"B={stand_in(tmp_path, '0.19.2')}"]


def test_every_pair_is_tried_shown_and_recorded(site: Site, tmp_path: Path) -> None:
    done = ran(site, "checkpoint", "matrix", *both(tmp_path))
    assert done.exit_code == 0, done.output
    assert "B reads what A, C saves" not in done.output
    assert f"A, C reads what B saves: no: {COMMON_FILE}" in done.output
    event = events(site)[0]
    assert event.subjects == ("environment:A", "environment:C", "environment:B")
    assert [(pair["writer"], pair["reader"], pair["answer"]) for pair in event.body["pairs"]] == [
        (digest("5"), digest("5"), "yes"), (digest("5"), digest("e"), "yes"),
        (digest("e"), digest("5"), "no"), (digest("e"), digest("e"), "yes"),
    ]  # fmt: skip
    assert event.body["images"][digest("e")] == {
        "environments": ["B"], "megatron_core": "0.19.2", "torch": TORCH,
    }  # fmt: skip
    said = json.loads(ran(site, "checkpoint", "matrix", "A", "B", *both(tmp_path), "--json").stdout)
    assert said["pairs"] == event.body["pairs"]
    assert said["event"] == events(site)[1].id
    assert "checkpoint.matrix" in ran(site, "ledger", "log", "--kind", "checkpoint").output


def test_what_could_not_be_tried_is_unknown_recorded_and_no_pass(site: Site, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    cases: list[tuple[str, str, int]] = [
        (stand_in(tmp_path, "0.19.0"), "the loader ran with Megatron Core 0.19.0, the environment has 0.19.2", 3),
        (stand_in(tmp_path, "0.19.2", saves=str(tmp_path / "empty")), "no checkpoint of a known layout", 2),
        ("/nowhere/python3", "it could not run", 3),
        ("false", "it ended with 1 and without an answer", 3),
        (sys.executable, "no torch and Megatron Core that can be used", 3),
    ]
    for python, says, unknown in cases:
        words = ["--python", f"A={stand_in(tmp_path, '0.18.2')}", "--python", f"B={python}"]
        done = ran(site, "checkpoint", "matrix", "A", "B", *words)
        assert isinstance(done.exception, Refused), done.output
        assert f"of {unknown} of 4 pairs nothing is known" in str(done.exception)
        pairs = events(site)[-1].body["pairs"]
        b_reads_a = "unknown" if unknown == 3 else "yes"
        assert [pair["answer"] for pair in pairs] == ["yes", b_reads_a, "unknown", "unknown"], says
        assert says in " ".join(pairs[2]["reasons"]), pairs


def test_without_images_on_this_machine_nothing_is_known(site: Site) -> None:
    done = ran(site, "checkpoint", "matrix")
    assert isinstance(done.exception, Refused)
    assert "here is no image" in done.output
    assert {pair["answer"] for pair in events(site)[0].body["pairs"]} == {"unknown"}


def test_an_image_whose_versions_nobody_recorded_is_not_tried_with_any_python(site: Site, tmp_path: Path) -> None:
    lock(site, "B", None, "e")
    ran(open_site(site.root), "checkpoint", "matrix", "A", "B", *both(tmp_path))
    assert "any image could answer" in " ".join(events(site)[0].body["pairs"][3]["reasons"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["A", "C"], "A, C have one image: there is nothing to compare"),
        (["A", "D"], "D"),
        (["A", "B", "--python", "C=x"], "--python C: no environment of this matrix: A, B"),
        (["A", "B", "--python", "x"], "write ENV=COMMAND"),
        (["A", "B", "--python", "A="], "write ENV=COMMAND"),
        (["A", "B", "--python", "A='"], "No closing quotation"),
    ],
)
def test_what_makes_no_matrix_is_bad_input(site: Site, words: Sequence[str], says: str) -> None:
    done = ran(site, "checkpoint", "matrix", *words)
    assert isinstance(done.exception, BadInput), done.output
    assert says in str(done.exception)
    assert not events(site)


# --- what it means for a way back


def locks(**images: tuple[str | None, str]) -> list[LockDocument]:
    """Environments by name: version of Megatron Core, letter of the image's digest."""
    made = []
    for name, (megatron, image) in images.items():
        changed: Any = document()
        changed["environment"] = name
        changed["image"] |= {"manifest_digest": digest(image), "reference": f"r.lab/i@{digest(image)}"}
        changed["config"]["values"] |= {"image_torch": TORCH} | ({"image_megatron_core": megatron} if megatron else {})
        made.append(parse_lock(lock_text(changed), f"{name}.lock.json"))
    return made


def test_what_is_known_of_versions_speaks_until_a_matrix_does() -> None:
    old, new = locks(A=("0.18.2", "5"), B=("0.19.2", "e"))
    lines = list(decide.warnings({}, new, [old], all_changes()))
    assert len(lines) == 1
    assert lines[0].startswith(
        "checkpoints: runs do not go on after a rollback from B to A: A cannot read the checkpoints of B: "
    )
    assert "common.pt does not exist" in lines[0]
    assert "by their versions; see bedplate checkpoint convert" in lines[0]
    lines = list(decide.warnings({}, old, [new], all_changes()))  # the way back itself
    assert len(lines) == 1
    assert lines[0].startswith(
        "checkpoints: runs saved under B do not go on under A: A cannot read the checkpoints of B: "
    )


def test_a_matrix_beats_what_is_known_of_versions() -> None:
    old, new = locks(A=("0.18.2", "5"), B=("0.19.2", "e"))
    tried = {
        (digest("e"), digest("5")): Pair(digest("e"), digest("5"), Answer.YES, ("loaded",), 7),
        (digest("5"), digest("e")): Pair(digest("5"), digest("e"), Answer.NO, ("KeyError: te",), 7),
    }
    assert list(decide.warnings(tried, new, [old], all_changes())) == [
        (
            "checkpoints: runs saved under A do not go on under B: B cannot read the checkpoints of A: KeyError: te"
            " (event 7; see bedplate checkpoint convert)"
        )
    ]


@pytest.mark.parametrize("version", [None, "0.19.0rc1", "0.20.0", "main"])
def test_what_nobody_knows_is_said_in_both_directions(version: str | None) -> None:
    old, new = locks(A=("0.19.2", "5"), B=(version, "e"))
    lines = list(decide.warnings({}, new, [old], all_changes()))
    assert lines[0].startswith(
        "checkpoints: whether runs go on after a rollback from B to A is not known: nothing was tried"
    )
    assert lines[0].endswith("(run: bedplate checkpoint matrix B A)")
    assert lines[1].startswith("checkpoints: whether runs saved under A go on under B is not known: nothing was tried")
    assert lines[1].endswith("(run: bedplate checkpoint matrix A B)")
    assert len(lines) == 2


def test_one_image_or_none_needs_no_word() -> None:
    one, other = locks(A=(None, "5"), B=(None, "5"))
    assert list(decide.warnings({}, one, [other], all_changes())) == []
    bare = set_at(set_at(document(), "image", None), "layers/image", {"unmanaged": "none"})
    assert list(decide.warnings({}, one, [parse_lock(lock_text(bare), "lock")], all_changes())) == []


def test_an_unknown_of_a_later_matrix_forgets_nothing(site: Site, tmp_path: Path) -> None:
    ran(site, "checkpoint", "matrix", "A", "B", *both(tmp_path))
    ran(site, "checkpoint", "matrix", "A", "B")
    assert len(events(site)) == 2
    known = decide.tried(events(site))
    assert known[digest("e"), digest("5")].answer is Answer.NO
    assert known[digest("e"), digest("5")].event == events(site)[0].id


def run_now(site: Site, environment: LockDocument, *nodes: str) -> None:
    """Record a rollout that ended."""
    subjects = ("rollout:1", f"environment:{environment.name}")
    nodes_too = (*subjects, *(f"node:{name}" for name in nodes))
    plan = {"batches": [{"name": "rest", "nodes": list(nodes)}], "at_target": [], "in_doubt": [], "bad": []}
    verified = {"verdict": "PASS", "facts": {}, "why": ""}
    with Ledger.open(site.ledger_url) as ledger:
        ledger.append(*(
            Draft(kind, named, body, environment.identity)
            for kind, named, body in (
                ("rollout.started", subjects, {"environment": environment.name, "plan": plan}),
                ("batch.admitted", nodes_too, {"batch": 0, "name": "rest"}), ("node.verified", nodes_too, verified),
                ("node.done", nodes_too, {"manifest_sha256": digest("f")}), ("rollout.ended", subjects, {"nodes": {}}),
            )
        ))  # fmt: skip


def test_a_plan_says_what_a_promotion_loses_before_anything_is_touched(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_now(site, site.lock("A"), "n1", "n2")
    policy = replace(site.environment("B").policy)

    def checked(*_: object, **__: object) -> Readiness:
        nodes = tuple(node for node in site.fleet.nodes.values() if node.name in {"n1", "n2"})
        return Readiness(site, site.lock("B"), nodes, policy, {})

    monkeypatch.setattr("bedplate.cli.prospect.ready", checked)
    said = ran(site, "plan", "B").output
    assert "checkpoints: runs do not go on after a rollback from B to A: A cannot read the checkpoints of B: " in said
    assert "by their versions" in said
    ran(site, "checkpoint", "matrix", "A", "B", *both(tmp_path))
    said = ran(site, "plan", "B").output
    assert f"a rollback from B to A: A cannot read the checkpoints of B: {COMMON_FILE}" in " ".join(said.split())
    found = json.loads(ran(site, "plan", "B", "--json").output)["checkpoints"]
    assert len(found) == 1


# --- what counts as read


class Numbers:
    """Stand-in for a tensor, as far as the tiny checkpoint uses one."""

    def __init__(self, *values: float) -> None:
        self.values = values

    def reshape(self, *_: int) -> "Numbers":
        return self

    def __truediv__(self, by: float) -> "Numbers":
        return Numbers(*(value / by for value in self.values))

    def numel(self) -> int:
        return len(self.values)

    def element_size(self) -> int:
        return 4


class Torch:
    bfloat16 = uint8 = None

    @staticmethod
    def arange(count: float, dtype: object = None) -> Numbers:  # noqa: ARG004  torch's own
        return Numbers(*range(int(count)))

    @staticmethod
    def ones(count: int, dtype: object = None) -> Numbers:  # noqa: ARG004
        return Numbers(*[1] * count)

    @staticmethod
    def zeros_like(other: Numbers) -> Numbers:
        return Numbers(*[0] * other.numel())

    @staticmethod
    def equal(one: Numbers, other: Numbers) -> bool:
        return one.values == other.values


class Lenient:
    """Stand-in for dist_checkpointing: fills some keys, and leaves the others as they were initialised."""

    def __init__(self, *filled: str) -> None:
        self.filled, self.strict = filled, ""

    def load(self, tree: dict[str, Any], _path: str, strict: str) -> dict[str, Any]:
        self.strict = strict
        saved = {**checkpointtiny._numbers(Torch), "rng_state": [checkpointtiny._state(Torch)]}
        kept = {key: saved[key] if key in self.filled else value for key, value in tree.items()}
        return {**kept, "rng_state": saved["rng_state"], "iteration": 7, "args": SimpleNamespace(num_layers=2)}


def test_weights_that_a_load_left_as_they_were_initialised_are_not_read() -> None:
    """Megatron-Bridge#6032: unexpected keys were logged, and the weights of the model were fresh ones."""
    keys = ("model.weight", "model.bias", "optimizer.state.exp_avg.weight")
    for filled in (keys, keys[1:], ()):
        megatron: Any = object.__new__(checkpointtiny._Megatron)
        megatron.checkpoints = checkpoints = Lenient(*filled)
        megatron.tensor = SimpleNamespace(from_rank_offsets=lambda _key, value, **_: value)
        megatron.object = lambda *_, **__: None
        said = {"megatron_core": "0.18.2", "torch": TORCH, "unable": "", **megatron.load(Torch, "/saved")}
        assert checkpoints.strict == "raise_all"
        assert said["faults"] == [f"{key} has other numbers than were saved" for key in keys if key not in filled]
        verdict = by_loading(said, Stack("0.18.2", TORCH))
        assert verdict.answer is (Answer.YES if filled == keys else Answer.NO)


# --- how the Python of an image is started


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_docker_starts_an_image_that_it_holds_by_digest_without_network(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    reference = f"registry.lab:5443/lab/small@{digest('5')}"
    program(programs, "docker", f'[ "$1 $2 $3" = "image inspect {reference}" ]')
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    place = tmp_path / "checkpoint"
    found = image_python(site, site.lock("A"), [Mount(place)])
    assert isinstance(found, tuple)
    assert found[:2] == ("docker", "run")
    assert found[-1] == reference
    assert "--network=none" in found
    assert f"type=bind,src={place},dst={place},readonly" in found
    found = image_python(site, site.lock("A"), [Mount(place, writable=True)])
    assert isinstance(found, tuple)
    assert f"type=bind,src={place},dst={place}" in found
    other = image_python(site, site.lock("B"), [Mount(place)])  # another digest: docker does not hold it
    assert isinstance(other, NotHere)
    assert "neither docker nor podman has" in other.why
    assert isinstance(image_python(site, site.lock("A"), [Mount(Path("/a,readonly=false"))]), NotHere)
