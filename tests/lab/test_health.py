"""Faults of every kind on eight real hosts: each is found, drained for, and gone after its repair; too many stop it.

Slurm, systemd, chrony, journald, mounts and ssh are real; what GPUs and adapters say is recorded (healthparts).
"""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bedplate.process import Finished
from lab import faults, healthparts, lifecycle
from lab.places import CONTROLLER, SERVICES_HOST, SITE, Places, node_names
from lab.run import on
from lab.slurm import idle, node, shell, wait_for
from lab.steps import Steps

pytestmark = pytest.mark.lab(minutes=7)
NODES = node_names(8)  # n7 and n8 are spares
PATIENCE_S = 1800  # a busy machine
ROUNDS = 4


def bedplate(*words: str, check: bool = True) -> Finished:
    return on(CONTROLLER, ["bedplate", *words], check=check, timeout_s=PATIENCE_S)


def service(*, code: int = 0) -> str:
    """A round of the health service; what it said."""
    done = bedplate("health", "service", "--once", check=False)
    assert done.code == code, done.out + done.err
    return done.out + done.err


def everywhere(names: Sequence[str], script: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: shell(name, script), names))


def look(*names: str) -> None:
    """What the timer does every few minutes, now."""
    # Where a child is stuck in the kernel systemd gives up waiting for it, and says so; the verdict is written by then.
    everywhere(names, "systemctl start bedplate-health.service || grep -q ^end= /run/bedplate-health/verdict")


def broken(places: Places, name: str, *kinds: str, mend: bool = False) -> None:
    for kind in kinds:
        faults.apply(places, name, kind, mend=mend)


def drained() -> dict[str, str]:
    """Node -> the check in its reason, of those that are drained."""
    found = {}
    for name in NODES:
        state, reason = node(name)
        if "DRAIN" in state:
            assert len(reason) <= 60
            match = re.fullmatch(r"HC:([a-z0-9._]+)(?::\S+)? [0-9a-f]{12}", reason)
            assert match, reason
            found[name] = match[1]
    return found


def settles(expected: Mapping[str, str], *looked_at: str) -> None:
    """Timer and service a few times over, as they run: a look that times out on a busy machine decides nothing."""
    said = []
    for _ in range(ROUNDS):
        look(*looked_at)
        said.append(service())
        if (found := drained()) == expected:
            return
    raise AssertionError(f"drained: {found}, and not {dict(expected)}\n" + "\n".join(said))


def events(kind: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(bedplate("ledger", "log", "--json", "--kind", kind).out)
    return found


def lay_all(places: Places) -> None:
    healthparts.serve_time(places)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: healthparts.lay(places, name), NODES))


@pytest.fixture(scope="module")
def fleet(lab_places: Places) -> Iterator[Places]:
    """Eight nodes with Slurm and the agent's timer, each with the healthy baseline; the service is run by the tests."""
    import os  # noqa: PLC0415

    kept = os.environ.get("BEDPLATE_LAB_KEEP") == "1"
    # Kept: a host with a failed unit is no reason for a new lab.
    if not (kept and lifecycle.status(lab_places).state != "down"):
        lifecycle.up(lab_places, Steps(print), nodes=len(NODES), fresh=True)
    if on(CONTROLLER, ["test", "-e", f"{SITE}/environments/H.lock.json"], check=False).code:
        text = on(CONTROLLER, ["cat", f"{SITE}/environments/A.yml"]).out
        # Health is what is tried: the layers of driver, containers and image are left out. Nobody waits for the timer.
        for old, new in (
            (r"environment: A$", "environment: H"), (r"canary: 1, small: 2, batch: 4", "canary: 8, small: 8, batch: 8"),
            (r"^  (driver|fabric|container|image): .*$", r'  \1: {unmanaged: "health is tried"}'),
            (r"values: {", 'values: {health_interval_s: "600", '),
        ):  # fmt: skip
            text, count = re.subn(old, new, text, flags=re.MULTILINE)
            assert count, old
        on(CONTROLLER, ["tee", f"{SITE}/environments/H.yml"], stdin=text)
        on(CONTROLLER, ["tee", f"{SITE}/models/lab-gpu8.health.yml"], stdin=healthparts.PROFILE)
        for name in ("S", "H"):
            bedplate("lock", name)
        bedplate("rollout", "S", "--yes")
        lay_all(lab_places)  # a rollout of H asks each node how it is
        bedplate("rollout", "H", "--yes")
    lay_all(lab_places)
    yield lab_places
    if not kept:
        lifecycle.down(lab_places, Steps(print), purge=False)


def test_healthy_nodes_have_a_fresh_verdict_and_nobody_is_drained(fleet: Places) -> None:
    look(*NODES)
    for name in NODES:
        verdict = on(name, ["/etc/slurm/healthcheck.sh"], check=False)
        assert verdict.code == 0, verdict.err
    service()
    assert drained() == {}
    idle(*NODES)


# One fault a node: what Slurm's reason then names.
FAULTS = {
    "n1": ("seven-gpus", "gpu.count"), "n2": ("fabric-in-progress", "fabric.state"),
    "n3": ("remap-pending", "gpu.remap_pending"), "n4": ("hung-driver", "driver.responds"),
    "n5": ("stale-mount", "host.mounts"), "n6": ("off-the-bus", "kernel.xid"), "n7": ("port-down", "ib.state"),
    "n8": ("clock-off", "host.time"),
}  # fmt: skip


def test_each_fault_is_drained_for_with_its_check_first_and_gone_after_its_repair(fleet: Places) -> None:
    for name, (fault, _) in FAULTS.items():
        broken(fleet, name, fault)
    look(*NODES)
    for name, (_, check) in FAULTS.items():
        began = time.monotonic()
        said = on(name, ["/etc/slurm/healthcheck.sh"], check=False)
        assert (said.code, f"HC:{check}" in said.err) == (1, True), (name, said.err)
        assert time.monotonic() - began < 60, "it reads a file"
    service()
    assert drained() == {name: check for name, (_, check) in FAULTS.items()}
    stuck = on("n5", ["sh", "-c", "ps -eo stat,args | grep -c '^D.*bedplate'"], check=False).out.strip()
    assert stuck != "0", "who asked the stale mount waits in the kernel, and nobody waits for it"
    broken(fleet, "n1", "seven-gpus", mend=True)
    assert service().count("returned") == 0, "nothing was looked at since"
    for name, (fault, _) in FAULTS.items():
        if name not in ("n1", "n6"):
            broken(fleet, name, fault, mend=True)
    # The kernel of this boot still says that a GPU fell off the bus.
    settles({"n6": "kernel.xid"}, *(name for name in NODES if name != "n6"))
    idle(*(name for name in NODES if name != "n6"))


def test_a_repair_begins_with_a_ticket_and_ends_with_a_proof(fleet: Places, tmp_path: Path) -> None:
    said = json.loads(bedplate("node", "ticket", "n6", "--directory", "/root/tickets", "--json").out)
    assert "kernel.xid" in said["title"]
    assert "fallen off the bus" in said["text"]
    listing = on(CONTROLLER, ["tar", "-tzf", f"/root/tickets/{said['bundle']}"]).out
    assert {"ticket.md", "results.jsonl", "slurm.json", "record.json"} <= {
        Path(line).name for line in listing.splitlines()
    }  # fmt: skip
    replayed = on(
        CONTROLLER,
        ["sh", "-c", f"cd /root/tickets && tar -xzf {said['bundle']} && bedplate health --replay n6-*/record"],
        check=False,
    )  # fmt: skip
    assert "kernel.xid" in replayed.out
    refused = bedplate("node", "return", "n6", check=False)
    assert refused.code == 4
    assert "kernel.xid" in refused.err
    broken(fleet, "n6", "off-the-bus", mend=True)
    on("n6", ["sleep", "1"])  # --since speaks of whole seconds
    now = on("n6", ["date", "--utc", "+%Y-%m-%dT%H:%M:%SZ"]).out.strip()
    accepted = bedplate("node", "return", "n6", "--since", now).out
    assert "n6 is whole" in accepted
    assert "returned, it was drained for HC:kernel.xid" in accepted
    look("n6")
    assert on("n6", ["/etc/slurm/healthcheck.sh"], check=False).code == 0, "its timer leaves out what was dealt with"
    service()
    idle("n6")


def test_a_full_disk_drains_and_what_others_drained_stays(fleet: Places) -> None:
    broken(fleet, "n1", "data-full")
    shell(SERVICES_HOST, "scontrol update nodename=n2 state=drain reason='rma 4711: fan'")
    broken(fleet, "n2", "remap-pending")
    look("n1", "n2")
    service()
    assert node("n1")[1].startswith("HC:host.mounts:/data ")
    assert node("n2")[1] == "rma 4711: fan"
    broken(fleet, "n1", "data-full", mend=True)
    broken(fleet, "n2", "remap-pending", mend=True)
    for _ in range(ROUNDS):
        look("n1", "n2")
        service()
        if "DRAIN" not in node("n1")[0]:
            break
    idle("n1")
    assert node("n2")[1] == "rma 4711: fan", "and it does not return what it did not drain"
    shell(SERVICES_HOST, "scontrol update nodename=n2 state=resume")
    idle("n2")


def test_a_spare_takes_the_place_of_a_bad_node_once_it_is_proven(fleet: Places) -> None:
    refused = bedplate("node", "replace", "n3", "n8", "--approved-by", "ann", check=False)
    assert refused.code == 3
    assert "n3 is IDLE for Slurm: drain it first" in refused.err
    broken(fleet, "n3", "remap-pending")
    broken(fleet, "n8", "port-down")
    look("n3")
    service()
    sick = bedplate("node", "replace", "n3", "n8", "--approved-by", "ann", check=False)
    assert sick.code == 3
    assert "n8 is FAIL: ib.state" in sick.err
    broken(fleet, "n8", "port-down", mend=True)
    bedplate("node", "replace", "n3", "n8", "--approved-by", "ann")
    shown = shell(SERVICES_HOST, "sinfo -h -p training -o %N; sinfo -h -p spare -o %N").out
    assert shown.split() == ["n[1-2,4-6,8]", "n[3,7]"]
    fleet_file = on(CONTROLLER, ["cat", f"{SITE}/fleet.yml"]).out
    assert 'training: {nodes: "n[1-2,4-6,8]"' in fleet_file
    (event,) = events("node.replaced")
    assert event["body"]["approved_by"] == "ann"  # type: ignore[index]
    broken(fleet, "n3", "remap-pending", mend=True)
    settles({}, "n3")
    idle("n3")


def test_four_of_eight_with_one_fault_stop_it_and_a_service_killed_with_9_knows_it(fleet: Places) -> None:
    names = NODES[:4]
    for name in names:
        broken(fleet, name, "remap-pending")
    look(*names)
    runs = "nohup bedplate health service --interval 1 > /tmp/service.log 2>&1 & echo $!"
    pid = on(CONTROLLER, ["sh", "-c", runs]).out.strip()
    wait_for("the breaker", lambda: events("health.stopped"))
    wait_for("the message", lambda: "ATTENTION" in on(CONTROLLER, ["cat", "/tmp/service.log"]).out)
    on(CONTROLLER, ["kill", "-9", pid])
    said = on(CONTROLLER, ["cat", "/tmp/service.log"]).out
    assert "gpu.remap_pending newly fails on 4 nodes within 10 minutes: n[1-4]" in said
    assert drained() == {}
    broken(fleet, "n5", "port-down")
    look("n5")
    said = service(code=3)
    assert "nothing is drained since an earlier run: gpu.remap_pending" in said
    assert drained() == {}, "nothing more is drained, whatever the check"
    for name in names:
        broken(fleet, name, "remap-pending", mend=True)
    look(*names)
    bedplate("health", "resume", "--approved-by", "ann", "--reason", "the limit was wrong")
    settles({"n5": "ib.state"}, *NODES[:5])
    broken(fleet, "n5", "port-down", mend=True)
    settles({}, "n5")
    idle(*NODES)


UNIT = "bedplate-health-controller.service"


def looked(*names: str) -> bool:
    look(*names)
    return True


def changes(*words: str) -> list[str]:
    """Tasks that changed the machine that drains, or would have."""
    argv = ["ansible-playbook", "playbooks/site.yml", "-e", "target=C", "--limit", CONTROLLER, *words]
    done = on(CONTROLLER, argv, check=False, timeout_s=PATIENCE_S)
    assert done.code == 0, done.out[-4000:] + done.err[-2000:]
    tasks = re.findall(r"^TASK \[(.*?)\] \*+\n((?:(?!TASK|PLAY).*\n)*)", done.out, re.MULTILINE)
    return [name for name, said in tasks if "changed: " in said]


def test_the_role_runs_the_service_on_the_machine_that_drains_and_nowhere_else(fleet: Places) -> None:
    text = on(CONTROLLER, ["cat", f"{SITE}/environments/S.yml"]).out
    values = {
        "health_controller": CONTROLLER, "health_controller_program": "/usr/local/bin/bedplate",
        "health_controller_site": str(SITE), "health_controller_interval_s": "5",
    }  # fmt: skip
    for old, new in (
        (r"environment: S$", "environment: C"), (r"kinds: .*$", "kinds: [controller]"),
        (r"lab-services", "lab-controller"), (r"values: {.*$", f"values: {json.dumps(values)}}}"),
        (r"^  (os|scheduler): .*$", r'  \1: {unmanaged: "health is tried"}'),
    ):  # fmt: skip
        text, count = re.subn(old, new, text, flags=re.MULTILINE)
        assert count, old
    on(CONTROLLER, ["tee", f"{SITE}/environments/C.yml"], stdin=text)
    bedplate("lock", "C")
    foretold = changes("--check")
    assert on(CONTROLLER, ["systemctl", "cat", UNIT], check=False).code != 0, "check mode wrote something"
    try:
        assert changes() == foretold
        assert "health_controller : Run the health service" in foretold
        assert changes() == [], "a second time"
        runs = on(CONTROLLER, ["systemctl", "show", "-P", "MainPID", UNIT]).out
        refused = bedplate("health", "service", "--once", check=False)
        assert refused.code == 6
        assert "another health service runs beside this ledger" in refused.err
        broken(fleet, "n1", "remap-pending")
        look("n1")
        wait_for("the service drains", lambda: drained() == {"n1": "gpu.remap_pending"})
        broken(fleet, "n1", "remap-pending", mend=True)
        wait_for("the service returns", lambda: looked("n1") and drained() == {})
        idle("n1")
        assert on(CONTROLLER, ["systemctl", "show", "-P", "MainPID", UNIT]).out == runs, "one process, all the time"
    finally:
        on(CONTROLLER, ["systemctl", "disable", "--now", UNIT], check=False)
