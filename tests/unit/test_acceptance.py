"""`bedplate node accept`: nodes behind real ssh, with stand-ins for Slurm, Docker and the program (acceptance_node)."""

import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from shlex import quote
from typing import Any

import paramiko
import pytest
import yaml
from click.testing import CliRunner, Result

from bedplate.act import acceptance
from bedplate.act.acceptance import Wanted, accept
from bedplate.cli.accept import accept as command
from bedplate.decide import acceptancescripts as scripts
from bedplate.decide.acceptance import (
    ACCEPTED,
    ANSWERED,
    FAILED,
    PASSED,
    QUESTIONS,
    REFUSED,
    UNKNOWN,
    Answered,
    Asked,
    check,
    event,
    judged,
    read_profile,
    refusal,
)
from bedplate.decide.ledgerfiles import ATTACHED
from bedplate.decide.lockdoc import lock_text
from bedplate.ledger.filestore import FileStore
from bedplate.ledger.store import Ledger
from bedplate.ledger.story import summary
from bedplate.model.canonical import canonical, sha256
from bedplate.model.event import Event, body_bytes, check_draft
from bedplate.model.faults import BadInput
from bedplate.sources.site import Site, open_site
from unit import acceptance_node
from unit.lock_sample import document, set_at
from unit.site_sample import replace_in, write_site
from unit.sshd import Sshd, run_with_sh, sshd
from unit.story import A, Story

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("n1", "n2")
IMAGE = b"a squashfs"
PROFILE = yaml.safe_load((ROOT / "images/training/profiles/cpu.yml").read_text())
PROGRAMS = ("sbatch", "squeue", "scancel", "srun", "docker", "nvidia-smi", "enroot", "systemd-run", "systemctl")


class Fleet:
    """A site with a lock, and two nodes; what each does is its scenario."""

    def __init__(self, root: Path) -> None:
        self.root = write_site(root / "site")
        self.roots = {name: root / name for name in NAMES}
        self.servers: dict[str, Sshd] = {}
        text = set_at(document(), "image/squashfs_sha256", sha256(IMAGE))
        (self.root / "environments/A.lock.json").write_text(lock_text(set_at(text, "image/squashfs_size", len(IMAGE))))
        for name, node in self.roots.items():
            (node / "bin").mkdir(parents=True)
            for program in PROGRAMS:
                script = (
                    f'#!/bin/sh\n# UNIT STAND-IN\nNODE_ROOT={node} exec {sys.executable} {node}/bin/.{program} "$@"\n'
                )
                (node / "bin" / program).write_text(script)
                (node / "bin" / program).chmod(0o755)
                (node / "bin" / f".{program}").symlink_to(acceptance_node.__file__)
            images = node / "images"
            images.mkdir()
            (images / f"sha256-{hashlib.sha256(IMAGE).hexdigest()}.sqsh").write_bytes(IMAGE)
            self.scenario(name)
        self.profile()

    @property
    def site(self) -> Site:
        return open_site(self.root)

    def profile(self, **changes: Any) -> Path:
        """Of the site, for the nodes' model; JSON is YAML."""
        path = self.root / "acceptance" / "lab-gpu8.yml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({**PROFILE, **changes}))
        return path

    def scenario(self, name: str, **how: Any) -> None:
        (self.roots[name] / "scenario.json").write_text(json.dumps({"node": name, **how}))

    def answer(self, name: str, channel: paramiko.Channel, command: str) -> None:
        """The node's own /var/lib/bedplate is a folder of ours."""
        node = self.roots[name]
        there = f"PATH={quote(str(node / 'bin'))}:$PATH {command}"
        run_with_sh(channel, f"sed 's#/var/lib/bedplate#{node}#g' | {there}")

    def calls(self, name: str, program: str) -> list[list[str]]:
        lines = (self.roots[name] / "calls").read_text().splitlines()
        return [words[1:] for words in map(json.loads, lines) if words[0] == program]

    def folder(self, name: str) -> list[Path]:
        return sorted((self.roots[name] / "acceptance").glob("*"))

    def events(self) -> list[Event]:
        with Ledger.read(self.site.ledger_url) as ledger:
            return [event for event in ledger.events() if event.kind != ATTACHED]

    def attached(self) -> list[Event]:
        with Ledger.read(self.site.ledger_url) as ledger:
            return list(ledger.events(kinds=[ATTACHED]))

    def ask(self, *names: str, **how: Any) -> dict[str, Answered]:
        wanted = Wanted("A", how.pop("engine", "slurm"), interval_s=0.1, **how)
        return {row.node: row.answered for row in accept(self.site, names or NAMES, wanted, width=8)}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    with ExitStack() as stack:
        port = 0
        for number, name in enumerate(NAMES, 1):
            folder = tmp_path / f"{name}-ssh"
            folder.mkdir()
            if port:  # one key opens both
                (folder / "id_ed25519").write_bytes(made.servers["n1"].identity_file.read_bytes())
                (folder / "id_ed25519").chmod(0o600)

            def handle(channel: paramiko.Channel, command: str, name: str = name) -> None:
                made.answer(name, channel, command)

            made.servers[name] = stack.enter_context(sshd(folder, handle, address=f"127.0.3.{number}", port=port))
            port = made.servers[name].port
        (made.root / "known_hosts").write_text("".join(s.known_hosts.read_text() for s in made.servers.values()))
        file = made.root / "fleet.yml"
        replace_in(file, "10.77.0.0/24", "127.0.3.0/24")
        replace_in(file, '"ctl": 10.77.0.10', '"ctl": 127.0.3.200')
        replace_in(file, '"n[1-8]": 10.77.0.11', '"n[1-8]": 127.0.3.1')
        replace_in(file, "/root/.ssh/id_ed25519, port: 22", f"{made.servers['n1'].identity_file}, port: {port}")
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["slurm", "enroot", "docker"])
def test_a_machine_that_answers_everything_is_accepted_and_its_record_is_kept_by_hash(
    fleet: Fleet, engine: str
) -> None:
    found = fleet.ask(engine=engine)
    assert {name: each.verdict for name, each in found.items()} == dict.fromkeys(NAMES, PASSED), found
    recorded = fleet.events()
    assert [each.kind for each in recorded] == [ACCEPTED, ACCEPTED]
    for each in recorded:
        body = each.body
        assert each.environment == fleet.site.lock("A").identity
        assert each.subjects == (f"node:{body['machine']}", "environment:A")
        kept = fleet.root / "acceptances" / body["id"]
        assert sha256((kept / "run/record.json").read_bytes()) == body["record_sha256"]
        for name, digest in body["logs"].items():
            assert sha256((kept / name).read_bytes()) == digest
        assert {"job.txt", "run/profile.yml", "run/host-devices.txt"} <= set(body["logs"])
        (stored,) = [event for event in fleet.attached() if event.subjects == each.subjects]
        assert (stored.environment, stored.body["role"]) == (each.environment, "acceptance-log")
        assert {file["name"]: file["sha256"] for file in stored.body["files"]} == body["logs"]
        store = FileStore(fleet.site.ledger_files_path)
        assert all(sha256(store.get(digest).read_bytes()) == digest for digest in body["logs"].values())
        assert "run/acceptance-1/machine/log.txt" in body["logs"]
        assert body["profile"]["sha256"] == sha256(canonical(body_profile(kept))).removeprefix("sha256:")
        assert body["profile"]["document"]["learning"]["fp32"] == "0.0002"
        assert body["questions"]["exchange"]["checks"] == [
            {"check": "of exchange", "passed": True, "error": "1.25e-7", "tolerance": "0.0002"}
        ]
        assert body["stand_in"] is True
        assert summary(each) == "A, profile cpu, a stand-in"
    for name in NAMES:
        assert fleet.folder(name) == [], "an accepted node keeps nothing of it"


def body_profile(kept: Path) -> Any:
    return json.loads((kept / "run/profile.yml").read_text())


@pytest.mark.slow
def test_the_job_is_alone_on_its_node_in_its_image_with_the_data_read_only(fleet: Fleet) -> None:
    fleet.profile(devices={"kind": "gpu", "count": 8})
    assert fleet.ask("n1", options=("--reservation=new",))["n1"].accepted
    (submitted,) = fleet.calls("n1", "sbatch")
    assert {"--exclusive", "--nodelist=n1", "--gres=gpu:8", "--reservation=new", "--time=121"} <= set(submitted)
    assert "--partition=training" in submitted
    make, asked = fleet.calls("n1", "srun")
    image = f"--container-image={fleet.roots['n1']}/images/sha256-{hashlib.sha256(IMAGE).hexdigest()}.sqsh"
    assert image in make
    assert image in asked
    mounts = next(word for word in asked if word.startswith("--container-mounts="))
    assert "/material:/data:ro," in mounts
    assert mounts.endswith("/run:/run/bedplate-train")


@pytest.mark.slow
def test_a_failed_question_refuses_one_node_and_says_what_to_look_at_and_the_other_is_accepted(fleet: Fleet) -> None:
    fleet.scenario("n2", fail="exchange")
    found = fleet.ask()
    assert found["n1"].accepted
    assert (found["n2"].verdict, found["n2"].why) == (FAILED, "exchange: rank 3: wrong sum")
    assert found["n2"].look_at == "the cable of rank 3"
    kinds = {each.subjects[0]: each for each in fleet.events()}
    assert kinds["node:n2"].kind == REFUSED
    answers = kinds["node:n2"].body["questions"]
    assert [answers[name]["verdict"] for name in acceptance_node.QUESTIONS] == [
        "passed", "passed", "failed", "not asked", "not asked",
    ]  # fmt: skip
    assert len(fleet.folder("n2")) == 1, "what is to be looked at stays there"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"silent": True}, "no record: the program ended with 1"),
        ({"member": {"machine": "n7"}}, "it speaks of the machine n7"),
        ({"member": {"logs": {"/run/bedplate-train/other.txt": "0" * 64}}}, "other.txt did not come back"),
        ({"member": {"logs": {"/run/bedplate-train/acceptance-1/machine/log.txt": "0" * 64}}}, "has another hash"),
        ({"member": {"stand_in": False}}, "what it says of stand-ins"),
        ({"member": {"verdict": "failed"}}, "every question passed, and the verdict is failed"),
        ({"member": {"questions": {}}}, "its record cannot be read: KeyError: 'devices'"),
    ],
)
def test_a_record_that_is_not_what_was_asked_is_no_pass(fleet: Fleet, how: dict[str, Any], why: str) -> None:
    fleet.scenario("n1", **how)
    found = fleet.ask("n1")["n1"]
    assert found.verdict == UNKNOWN
    assert why in found.why
    assert [each.kind for each in fleet.events()] == [REFUSED]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["slurm", "enroot", "docker"])
def test_a_program_that_does_not_come_back_is_ended(fleet: Fleet, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "SPARE_S", 1.0)
    fleet.profile(limits=dict.fromkeys(PROFILE["limits"], 0.01))
    monkeypatch.setattr(acceptance, "LATE_S", 1.0)
    fleet.scenario("n1", hang=True)
    found = fleet.ask("n1", engine=engine)["n1"]
    assert found.verdict == UNKNOWN
    assert "ended; its last words: compute: passed" in found.why
    ends, job = {
        "slurm": ("scancel", "job-7"), "enroot": ("systemctl", "unit"), "docker": ("docker", "container"),
    }[engine]  # fmt: skip
    assert fleet.calls("n1", ends)
    assert not acceptance_node.alive(fleet.roots["n1"], job)
    (left,) = fleet.folder("n1")
    assert not (left / "enroot").exists(), "an unpacked image of 25 GB is nobody's"


RETURN = ("devices", "compute", "exchange")


@pytest.mark.slow
def test_some_questions_are_a_look_at_a_node_and_no_acceptance_and_a_failed_one_ends_the_one_it_had(
    fleet: Fleet,
) -> None:
    fleet.ask("n1", "n2")
    fleet.scenario("n2", fail="compute")
    found = fleet.ask(engine="enroot", questions=RETURN)
    assert {name: each.verdict for name, each in found.items()} == {"n1": PASSED, "n2": FAILED}
    told = {str(each.body["machine"]): each for each in fleet.events()[2:]}
    assert (told["n1"].kind, told["n2"].kind) == (ANSWERED, REFUSED)
    assert told["n1"].body["asked"] == list(RETURN)
    assert told["n1"].body["questions"]["learning"] == {"verdict": "not asked", "seconds": "1.5", "checks": [
        {"check": "of learning", "passed": False, "error": "1.25e-7", "tolerance": "0.0002"},
    ]}  # fmt: skip
    assert summary(told["n1"]) == "devices, compute, exchange; A, profile cpu, a stand-in"
    counts = {name: acceptance.latest(fleet.site, name) for name in NAMES}
    assert {name: each and each.kind for name, each in counts.items()} == {"n1": ACCEPTED, "n2": REFUSED}
    (started,) = fleet.calls("n1", "systemd-run")
    assert "--property=LimitMEMLOCK=infinity" in started
    assert f"--unit={'bedplate-accept-' + str(told['n1'].body['id'])}" in started


@pytest.mark.slow
def test_what_a_controller_that_was_killed_left_running_is_ended_first(fleet: Fleet) -> None:
    node = fleet.roots["n1"]
    left = node / "acceptance" / "n1-20260101T000000.000000" / "enroot" / "data"
    left.mkdir(parents=True)
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as orphan:
        (node / "unit").write_text(str(orphan.pid))
        assert fleet.ask("n1", engine="enroot", questions=RETURN)["n1"].verdict == PASSED
        assert fleet.calls("n1", "systemctl")[0] == ["stop", "bedplate-accept-*"]
        assert orphan.wait(timeout=60) == -signal.SIGKILL, "two at once share the GPUs"
    assert not left.exists()


@pytest.mark.slow
def test_a_record_that_answers_other_questions_than_were_asked_is_no_pass(fleet: Fleet) -> None:
    fleet.scenario("n1", member={"asked": ["devices"]})
    found = fleet.ask("n1", questions=RETURN)["n1"]
    assert found.verdict == UNKNOWN
    assert "it answers devices, and was asked devices, compute, exchange" in found.why


@pytest.mark.slow
def test_the_command_takes_questions_in_any_order_and_none_that_nobody_knows(fleet: Fleet) -> None:
    done = said(fleet, "n1", "--env", "A", "--interval", "0.2", "--engine", "enroot", "--questions", "exchange,devices")
    assert done.exit_code == 0, done.output
    assert "n1\tanswered\tpassed\tnot asked\tpassed\tnot asked\tnot asked\t" in done.output
    unpacked = fleet.calls("n1", "enroot")[0]
    assert unpacked[:2] == ["create", "--name=image"], "as Pyxis does: a node has no squashfuse"
    asked = fleet.calls("n1", "enroot")[2]
    assert asked[asked.index("--questions") + 1] == "devices,exchange"
    bad = said(fleet, "n1", "--env", "A", "--questions", "devices,bandwidth")
    assert isinstance(bad.exception, BadInput)
    assert "no question is called 'bandwidth' (there are devices, compute" in str(bad.exception)


@pytest.mark.slow
def test_a_job_that_never_starts_is_taken_out_of_the_queue(fleet: Fleet) -> None:
    fleet.scenario("n1", stuck=True)
    found = fleet.ask("n1", queue_s=1.0)["n1"]
    assert found.verdict == UNKNOWN
    assert "did not start within 1 s (PENDING Resources)" in found.why
    assert fleet.calls("n1", "scancel") == [["7"]]


@pytest.mark.slow
def test_an_interrupt_ends_the_jobs_and_leaves_what_is_known_in_the_ledger(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.scenario("n2", hang=True)
    hung = fleet.roots["n2"]

    def interrupt(row: acceptance.Row) -> None:
        until = time.monotonic() + 60
        while not acceptance_node.alive(hung, "job-7") and time.monotonic() < until:
            time.sleep(0.05)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        accept(fleet.site, NAMES, Wanted("A", "slurm", interval_s=0.1), width=2, report=interrupt)
    assert not acceptance_node.alive(hung, "job-7")
    kinds = {each.subjects[0]: (each.kind, each.body["why"]) for each in fleet.events()}
    assert kinds["node:n1"] == (ACCEPTED, "")
    assert kinds["node:n2"][0] == REFUSED
    assert "interrupted" in kinds["node:n2"][1]


@pytest.mark.slow
def test_an_image_that_is_another_is_not_started(fleet: Fleet) -> None:
    file = fleet.roots["n1"] / "images" / f"sha256-{hashlib.sha256(IMAGE).hexdigest()}.sqsh"
    file.write_bytes(b"a squashed")
    found = fleet.ask("n1")["n1"]
    assert found.verdict == UNKNOWN
    assert "is not there, or is not what the lock says (run: bedplate image place A --nodes n1)" in found.why


@pytest.mark.slow
def test_the_reference_machine_is_the_one_that_was_accepted(fleet: Fleet) -> None:
    with pytest.raises(BadInput, match="--reference n1: it was not accepted"):
        fleet.ask("n2", reference="n1")
    fleet.ask("n1")
    assert fleet.ask("n2", reference="n1")["n2"].accepted
    first, second = fleet.events()
    assert second.body["reference"] == "n1"
    assert f"sha256:{second.body['reference_sha256']}" == first.body["record_sha256"]
    record = fleet.root / "acceptances" / first.body["id"] / "run/record.json"
    record.write_bytes(record.read_bytes() + b" ")
    with pytest.raises(BadInput, match="is not what event 1 recorded"):
        fleet.ask("n2", reference="n1")


@pytest.mark.slow
def test_the_command_tells_each_node_and_ends_with_4_if_one_is_refused(fleet: Fleet) -> None:
    fleet.scenario("n2", fail="compute")
    done = said(fleet, "n1", "n2", "--env", "A", "--interval", "0.2")
    assert done.exit_code == 1
    assert "not accepted: n2" in str(done.exception)
    assert "n1\taccepted\tpassed\tpassed\tpassed\tpassed\tpassed\t" in done.output
    assert "n2\tREFUSED\tpassed\tfailed\tnot asked" in done.output
    assert "n2: compute: rank 3: wrong sum" in done.output
    shown = said(fleet, "n[1-2]", "--show").output
    assert "n1: accepted at " in shown
    assert "n2: REFUSED at " in shown
    assert "\tof devices\tpassed\terror 1.25e-7, tolerance 0.0002" in shown
    assert "n3: never asked" in said(fleet, "n3", "--show").output
    listed = json.loads(said(fleet, "n1", "--show", "--json").stdout)
    assert listed["nodes"]["n1"]["kind"] == ACCEPTED


def said(fleet: Fleet, *words: str) -> Result:
    return CliRunner().invoke(command, words, obj=fleet.root)


@pytest.mark.slow
def test_a_node_of_which_the_ledger_knows_no_environment_wants_one(fleet: Fleet) -> None:
    done = said(fleet, "n1")
    assert isinstance(done.exception, BadInput)
    assert "say which with --env" in str(done.exception)


# --- decided without a node ------------------------------------------------------------------------


def asked(**changes: Any) -> Asked:
    text = (ROOT / "images/training/profiles/cpu.yml").read_text()
    given: dict[str, Any] = {
        "id": "n1-1", "node": "n1", "engine": "slurm", "environment": "A", "identity": "sha256:" + "a" * 64,
        "image": {"name": "train"}, "profile": read_profile(text, "cpu.yml"),
    }  # fmt: skip
    return Asked(**given | changes)


@pytest.mark.parametrize("name", ["cpu", "hgx-b200"])
def test_the_shipped_profiles_are_read(name: str) -> None:
    path = ROOT / "images/training/profiles" / f"{name}.yml"
    found = read_profile(path.read_text(), path.name)
    assert (found.name, found.count, found.limit_s, found.data) == (name, 8, 6360.0, "/data")
    assert found.file_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "text", ["", "[]", "a: [", "name: x", "name: x\ndevices: 3\nlimits: {}\npaths: {}", json.dumps({
        **PROFILE, "paths": {**PROFILE["paths"], "data": "/a:b"}
    }), json.dumps({**PROFILE, "limits": {"devices": float("inf")}})],
)  # fmt: skip
def test_what_is_no_profile_is_refused_before_a_node_is_asked(text: str) -> None:
    with pytest.raises(BadInput, match=r"p\.yml: no "):
        read_profile(text, "p.yml")


def test_whatever_came_back_is_an_event_that_the_ledger_takes() -> None:
    for files in ({}, {"run/record.json": b"{"}, {"run/record.json": b"[]\n"}, {"run/record.json": b"{}\n"}):
        found = judged(asked(), files, ended=0, said="well")
        assert found.verdict == UNKNOWN
        made = event(asked(), found)
        assert made.kind == REFUSED
        check_draft(made)
        assert body_bytes(made.body)


def test_the_worst_rank_is_the_number_of_a_check_and_none_is_lost() -> None:
    found = check({
        "check": "matrix product", "failed_ranks": [1], "not_answered_ranks": [],
        "ranks": [{"bf16_error": 0.001, "passed": True}, {"bf16_error": 0.5, "passed": False}],
    })  # fmt: skip
    assert found == {"check": "matrix product", "passed": False, "bf16_error": "0.5", "failed_ranks": [1]}
    lost = {
        "check": "small model",
        "failed_ranks": [0],
        "not_answered_ranks": [],
        "ranks": [{"loss": "nan"}, {"loss": 5.5}],
    }
    assert check(lost)["loss"] == "nan"
    unasked = {"check": "fused operators", "failed_ranks": [], "not_answered_ranks": [0], "ranks": [{}]}
    assert check(unasked)["passed"] is None


@pytest.mark.parametrize(
    ("told", "stands"),
    [
        ([], False),
        ([(REFUSED, QUESTIONS)], True),
        ([(REFUSED, RETURN), (ANSWERED, RETURN)], False),
        ([(REFUSED, ("devices",)), (ANSWERED, RETURN)], False),
        ([(REFUSED, QUESTIONS), (ANSWERED, RETURN)], True),
        ([(REFUSED, None), (ANSWERED, RETURN)], True),
        ([(REFUSED, QUESTIONS), (ACCEPTED, QUESTIONS)], False),
        ([(ACCEPTED, QUESTIONS), (REFUSED, RETURN)], True),
        ([(REFUSED, QUESTIONS), ("node.ticket", None)], False),
        ([(REFUSED, RETURN), (ANSWERED, RETURN), (REFUSED, RETURN)], True),
    ],
)
def test_a_refusal_stands_until_all_that_it_asked_is_answered_well(
    told: list[tuple[str, tuple[str, ...] | None]], stands: bool
) -> None:
    story = Story()
    for kind, asked in told:
        story.tell(kind, ("node:n1",), A, {} if asked is None else {"asked": list(asked)})
    assert (refusal(story.events) is not None) is stands


def test_scripts_take_names_that_a_shell_would_split() -> None:
    profile = asked().profile
    work = scripts.Work("n1-1", "n1", profile, "/images/a.sqsh", data="/lustre/my data", user="o'neill")
    assert "'/lustre/my data'" in scripts.prepare(work, {})
    assert "runuser -u 'o'\"'\"'neill'" in scripts.Slurm().submit(work)
    assert "material" not in scripts.Slurm().job(work).replace("/material", "")


@pytest.mark.parametrize("text", ["", "PENDING\n", "error: x\n"])
def test_an_engine_that_says_something_else_is_not_believed(text: str) -> None:
    with pytest.raises(ValueError, match="of the job"):
        scripts.seen(text)
