"""The demo's path, for real, and what must be true at each of its steps."""

import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lab.demo import Demo
from lab.places import SERVICES_HOST, Places
from lab.run import inside, on
from lab.slurm import accounted, idle, image, job, node, runs, user, wait_for

pytestmark = pytest.mark.lab(minutes=25)
CTL = "ctl"


def bedplate(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = on(CTL, ["bedplate", *words], check=check, timeout_s=900)
    return subprocess.CompletedProcess(done.argv, done.code, done.out, done.err)


def ask(*words: str) -> Any:
    return json.loads(bedplate(*words, "--json").stdout)


def playbook(name: str, *words: str, check: bool = True) -> tuple[int, str]:
    done = on(CTL, ["ansible-playbook", f"playbooks/{name}.yml", *words], check=False, timeout_s=900)
    assert not check or done.code == 0, done.out[-3000:] + done.err[-2000:]
    return done.code, done.out + done.err


def events(*words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask("ledger", "log", *words)
    return found


def statuses() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = ask("status")["nodes"]
    return {name: state for name, state in found.items() if name not in (CTL, SERVICES_HOST)}


@contextmanager
def beside_a_job(name: str) -> Iterator[None]:
    """A change of all nodes while a job has one of them, which ends a while after its node drains: it is not harmed."""
    on(name, ["rm", "-f", "/tmp/may-end"])
    with job(
        "alice",
        "while [ ! -e /tmp/may-end ]; do sleep 1; done",
        f"--nodelist={name}",
        "--gres=gpu:8",
        "--time=30",
    ) as number:
        seen: list[str] = []

        def let_it_end_when_its_node_drains() -> None:
            wait_for(f"{name} drains", lambda: "DRAIN" in node(name)[0], patience_s=900)
            time.sleep(5)
            seen.append(accounted(number, "State"))
            on(name, ["touch", "/tmp/may-end"])

        watching = threading.Thread(target=let_it_end_when_its_node_drains, daemon=True)
        watching.start()
        yield
        watching.join(timeout=60)
        assert seen == ["RUNNING"], "its node was drained, and it went on"
        assert accounted(number, "State,ExitCode") == "COMPLETED|0:0"
        assert runs(number) == ["COMPLETED"], "it ran once"


def boots(names: list[str]) -> dict[str, str]:
    return {name: on(name, ["cat", "/proc/sys/kernel/random/boot_id"]).out for name in names}


def jobs_print(variant: str) -> None:
    done = user("alice", f"srun -t1 -p training -N2 --container-image={image()} cat /etc/os-release")
    assert done.out.count(f'VARIANT="Bedplate lab image {variant}"') == 2


@pytest.fixture(scope="module")
def demo(lab: Places) -> Demo:
    """The demo on the tests' lab, up to two locked environments with their images on every node."""
    known = [name for name in ask("status")["nodes"] if name not in (CTL, SERVICES_HOST)]
    story = Demo(len(known))
    story.told.nodes = sorted(known)
    if not events("--kind", "lock.resolved"):
        story.images()
        story.locks()
        story.services()
    return story


def test_each_image_has_one_build_record_with_all_its_digests(demo: Demo) -> None:
    for name in "AB":
        record = ask("image", "show", name)
        text = json.dumps(record)
        assert text.count("sha256:") >= 5
        lock = json.loads(on(CTL, ["cat", f"/var/lib/bedplate/site/environments/{name}.lock.json"]).out)
        for key in ("manifest_digest", "config_digest", "squashfs_sha256"):
            assert lock["image"][key] in text


def test_locks_name_every_package_with_version_and_sha256(demo: Demo) -> None:
    lock = json.loads(on(CTL, ["cat", "/var/lib/bedplate/site/environments/A.lock.json"]).out)
    packages = lock["packages"]["gpu"]
    assert {"numactl", "libnuma1", "libc6", "nvidia-driver-570-open", "nvidia-fabricmanager-570"} <= packages.keys()
    assert all(p["sha256"].startswith("sha256:") and p["version"] for p in packages.values())
    assert packages["nvidia-utils-570"]["layer"] == "driver"


def test_the_first_rollout_reaches_every_node_and_records_it(demo: Demo) -> None:
    demo.first()
    assert {state["status"] for state in statuses().values()} == {"verified"}
    assert {state["environment"] for state in statuses().values()} == {"A"}
    verified = [
        e
        for e in events("--kind", "node.verified")
        if e["body"]["verdict"] == "PASS" and e["body"]["environment"] == "A"
    ]
    assert {s for e in verified for s in e["subjects"] if s.startswith("node:")} == {
        f"node:{n}" for n in demo.told.nodes
    }
    assert all(set(e["body"]["facts"]) == {"packages", "files", "image"} for e in verified)


def test_the_same_playbook_again_changes_nothing_and_says_so_for_each_group(demo: Demo) -> None:
    before = len(events())
    _, out = playbook("rollout", "-e", "target=A")
    for group, names in (("training", demo.told.nodes[:-2]), ("spare", demo.told.nodes[-2:])):
        assert f"{group}: {len(names)} of {len(names)} nodes run A already" in out
    assert [e["kind"] for e in events()[before:]] == ["rollout.started", "rollout.ended"]


def test_a_second_converge_of_a_node_of_each_group_changes_nothing(demo: Demo) -> None:
    two = (demo.told.nodes[0], demo.told.nodes[-1])  # of training and of spare
    _, out = playbook("site", "-e", "target=A", "--limit", ",".join(two))
    recap = out.partition("PLAY RECAP")[2]
    assert recap.count("changed=0") == len(two), recap


def test_no_node_has_drifted_from_the_lock_that_it_runs(demo: Demo) -> None:
    done = bedplate("drift", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(demo.told.nodes) + 1} nodes: {len(demo.told.nodes) + 1} as their locks say" in done.stdout
    assert json.loads(bedplate("drift", "--cached", "--json").stdout)["counts"]["drift"] == 0


def test_check_mode_predicts_the_upgrade_and_leaves_no_trace(demo: Demo) -> None:
    before = len(events())
    _, out = playbook("rollout", "-e", "target=B", "--check", "--diff")
    assert "nvidia-driver-580-open=580.126.20-1ubuntu1" in out
    assert "+NCCL_DEBUG=INFO" in out
    assert len(events()) == before
    assert {state["environment"] for state in statuses().values()} == {"A"}
    assert bedplate("verify").returncode == 0


def test_a_broken_node_is_left_out_and_named_and_the_others_are_upgraded(demo: Demo) -> None:
    before = boots(demo.told.nodes)
    with beside_a_job("n2"):
        demo.upgrade()
    victim = demo.victim()
    after = boots(demo.told.nodes)
    assert {name for name in after if after[name] != before[name]} == set(demo.told.nodes) - {victim}
    jobs_print("b")
    states = statuses()
    assert (states[victim]["status"], states[victim]["environment"]) == ("verified", "A"), "rolled back by policy"
    failed = [e["id"] for e in events("--kind", "node.failed") if f"node:{victim}" in e["subjects"]]
    back = [e["id"] for e in events("--kind", "node.done") if f"node:{victim}" in e["subjects"]]
    assert failed, "it failed on the way to B"
    assert back[-1] > failed[-1]
    assert {name: s["environment"] for name, s in states.items() if name != victim} == dict.fromkeys(
        (n for n in demo.told.nodes if n != victim), "B"
    )
    refused = bedplate("verify", "B", "--nodes", victim, check=False)
    assert refused.returncode == 5
    assert "nvidia-driver-580-open" in refused.stdout


def test_a_rollback_makes_every_node_what_it_was_by_hash(demo: Demo) -> None:
    with beside_a_job("n2"):
        demo.back()
    idle(*demo.told.nodes)
    jobs_print("a")
    assert demo.told.equal == dict.fromkeys(demo.told.nodes, True)
    assert {state["environment"] for state in statuses().values()} == {"A"}


def test_a_rollout_that_was_killed_goes_on_with_its_nodes_in_doubt(demo: Demo) -> None:
    way = inside(CTL)
    before = events()[-1]["id"]
    running = subprocess.Popen(
        way.argv(["ansible-playbook", "playbooks/rollout.yml", "-e", "target=B"]),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    finished: set[str] = set()
    in_flight: set[str] = set()
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        now = [e for e in events() if e["id"] > before]
        admitted = [e for e in now if e["kind"] == "batch.admitted"]
        # In the middle of the second batch: a first one has finished, a step of this one has ended.
        if len(admitted) > 1 and any(e["kind"] == "step.ended" and e["id"] > admitted[1]["id"] for e in now):
            finished = {s for e in now if e["kind"] == "node.done" for s in e["subjects"] if s.startswith("node:")}
            in_flight = {s for s in admitted[1]["subjects"] if s.startswith("node:")}
            break
        assert running.poll() is None, "the rollout ended before it could be killed"
        time.sleep(2)  # asking takes a processor that the rollout needs
    # All of ansible-playbook at once, as a crashed controller would lose them.
    pids = on(CTL, ["pgrep", "-f", "bin/ansible-playbook playbooks/rollout.yml"]).out.split()
    on(CTL, ["kill", "-9", *pids], check=False)
    running.wait(timeout=30)
    assert finished
    assert in_flight

    doubt = {f"node:{name}" for name, state in statuses().items() if state["status"] == "in doubt"}
    assert doubt == in_flight
    killed_at = events()[-1]["id"]
    _, out = playbook("rollout", "-e", "target=B")
    after = [e for e in events() if e["id"] > killed_at]
    first = next(e for e in after if e["kind"] == "batch.admitted")
    assert in_flight <= {s for s in first["subjects"] if s.startswith("node:")}, "nodes in doubt are done first"
    for name in in_flight:
        assert name.removeprefix("node:") in out.partition("in doubt, done first:")[2].partition("\n")[0] or "[" in out
    touched = {s for e in after if e["kind"] in ("batch.admitted", "step.ended") for s in e["subjects"]}
    assert not touched & finished, "a finished node was touched again"
    assert {state["environment"] for state in statuses().values()} == {"B"}
    assert {state["status"] for state in statuses().values()} == {"verified"}
    assert "chain intact" in bedplate("ledger", "verify").stdout


def test_a_command_that_outlives_its_killed_controller_is_waited_for(demo: Demo) -> None:
    """No lock of a controller can see what it left running on a node; the node's own lock does."""
    victim = demo.told.nodes[0]
    demo.machine("lab", "break", victim, "slow-package")
    try:
        running = subprocess.Popen(
            inside(CTL).argv(["ansible-playbook", "playbooks/rollout.yml", "-e", "target=A", "--limit", victim]),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + 300
        while on(victim, ["pgrep", "-f", "preinst"], check=False).code:
            assert running.poll() is None, "the rollout ended before the package was being installed"
            assert time.monotonic() < deadline
            time.sleep(0.2)
        pids = on(CTL, ["pgrep", "-f", "bin/ansible-playbook playbooks/rollout.yml"]).out.split()
        on(CTL, ["kill", "-9", *pids], check=False)
        running.wait(timeout=30)
        assert on(victim, ["pgrep", "-f", "preinst"], check=False).code == 0, "the package is still being installed"
        assert statuses()[victim]["status"] == "in doubt"
        _, out = playbook("rollout", "-e", "target=A", "--limit", victim, "-v")
        assert "took_over" in out
        assert "waited_s" in out
        assert statuses()[victim]["status"] == "verified"
    finally:
        demo.machine("lab", "break", victim, "slow-package", "--mend")
    assert bedplate("rollout", "B", "--yes").returncode == 0


def test_a_second_rollout_while_one_runs_is_refused_with_who_and_since_when(demo: Demo) -> None:
    running = subprocess.Popen(
        inside(CTL).argv(["ansible-playbook", "playbooks/site.yml", "-e", "target=B", "--limit", "n1"]),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        before = len(events())
        while len(events()) == before:
            assert running.poll() is None
            time.sleep(0.2)
        refused = bedplate("rollout", "A", "--yes", check=False)
        assert refused.returncode == 6
        assert "another rollout is running: rollout" in refused.stderr
        assert "root@ctl" in refused.stderr
        assert "since 20" in refused.stderr
        code, out = playbook("rollout", "-e", "target=A", check=False)
        assert code != 0
        assert "another rollout is running" in out
    finally:
        assert running.wait(timeout=600) == 0


def test_an_unreachable_node_is_named_and_counted(demo: Demo) -> None:
    victim = demo.told.nodes[-1]
    demo.machine("lab", "break", victim, "unreachable")
    try:
        done = bedplate("verify", check=False)
        assert done.returncode == 4
        rows = [line for line in done.stdout.splitlines() if line.startswith(f"{victim}\t")]
        assert len(rows) == 1, "one row, not one for each check"
        assert "UNREACHABLE" in rows[0]
        assert statuses()[victim]["status"] == "unreachable"
        asked = bedplate("drift", victim, check=False)
        assert asked.returncode == 4, "silence is no agreement"
        assert f"1 not known ({victim})" in asked.stdout
    finally:
        demo.machine("lab", "break", victim, "unreachable", "--mend")
    assert bedplate("verify").returncode == 0


def test_a_file_that_was_edited_by_hand_is_a_difference(demo: Demo) -> None:
    victim = demo.told.nodes[0]
    demo.machine("lab", "break", victim, "wrong-file")
    done = bedplate("verify", "--nodes", victim, check=False)
    assert done.returncode == 5
    assert "/etc/nccl.conf" in done.stdout
    differs = bedplate("drift", victim, check=False)
    assert differs.returncode == 5
    assert "/etc/nccl.conf" in differs.stdout
    demo.machine("lab", "break", victim, "wrong-file", "--mend")
    assert bedplate("verify", "--nodes", victim).returncode == 0


def test_a_node_without_the_image_is_refused_before_it_is_changed(demo: Demo) -> None:
    victim = demo.told.nodes[0]
    demo.machine("lab", "break", victim, "no-artifact")
    try:
        before = events()[-1]["id"]
        done = bedplate("rollout", "B", "--yes", "--recheck", "--nodes", victim, check=False)
        assert done.returncode == 4
        assert "bedplate image place B --nodes" in done.stderr
        steps = {e["body"]["step"] for e in events() if e["id"] > before and e["kind"] == "step.ended"}
        assert not {step for step in steps if step.startswith(("packages", "files", "base"))}
    finally:
        demo.machine("lab", "break", victim, "no-artifact", "--mend")
    assert bedplate("rollout", "B", "--yes", "--nodes", victim).returncode == 0


def test_the_ledger_names_the_event_of_which_one_byte_was_changed(demo: Demo) -> None:
    site = "/tmp/tampered"
    on(CTL, ["sh", "-c", f"rm -rf {site}; cp -r /var/lib/bedplate/site {site}"])
    tables = on(CTL, ["sqlite3", f"{site}/ledger.sqlite3", ".schema"]).out
    assert "TRIGGER" in tables
    trigger = next(
        w
        for line in tables.splitlines()
        if "TRIGGER" in line and "UPDATE" in line
        for w in line.split()
        if "update" in w
    )
    # One byte of the body of event 7: its first letter after {" becomes another.
    change = f"DROP TRIGGER {trigger}; UPDATE event SET body = '{{\"' || 'X' || substr(body, 4) WHERE id = 7;"
    on(CTL, ["sqlite3", f"{site}/ledger.sqlite3", change])
    done = on(CTL, ["bedplate", "--site", site, "ledger", "verify"], check=False)
    assert done.code == 5
    assert "event 7" in done.out + done.err
    assert bedplate("ledger", "verify").returncode == 0, "the real one is untouched"


def test_the_story_can_be_told_from_the_ledger(demo: Demo) -> None:
    demo.story()
    assert demo.told.batches >= 6


def test_a_run_that_is_interrupted_says_where_things_stand(demo: Demo) -> None:
    """Ended by a signal: nodes of the batch in flight are in doubt, nothing else; the next run goes on."""
    running = subprocess.Popen(
        inside(CTL).argv(["bedplate", "rollout", "B", "--yes", "--recheck"]),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    assert running.stdout is not None
    for line in running.stdout:
        if "begun" in line:
            break
    pid = on(CTL, ["pgrep", "-f", "bin/bedplate rollout B"]).out.split()[0]
    on(CTL, ["kill", f"-{signal.SIGTERM.value}", pid])
    running.communicate(timeout=60)
    assert running.returncode == 4
    assert "in doubt" in {state["status"] for state in statuses().values()}
    assert bedplate("rollout", "B", "--yes").returncode == 0
    assert {(state["environment"], state["status"]) for state in statuses().values()} == {("B", "verified")}
