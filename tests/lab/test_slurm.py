"""Slurm for real: controllers and nodes installed by the roles, jobs in their image, and changes that respect them."""

import base64
import json
import re
import shlex
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from bedplate.process import Finished
from lab import healthparts, slurmparts
from lab.places import CHECKOUT, CONTROLLER, SERVICES_HOST, SITE, Places
from lab.run import inside, on
from lab.slurm import PATIENCE_S, accounted, idle, image, job, node, runs, shell, user, wait_for

pytestmark = pytest.mark.lab(minutes=25)
NODES = ("n1", "n2", "n3", "n4")  # n1 and n2 are of training, n3 and n4 of spare
RUNBOOKS = sorted((CHECKOUT / "docs/operations").glob("*.md"))


def bedplate(*words: str, check: bool = True) -> Finished:
    return on(CONTROLLER, ["bedplate", *words], check=check, timeout_s=1800)


def playbook(name: str, *words: str, check: bool = True) -> tuple[int, str]:
    done = on(CONTROLLER, ["ansible-playbook", f"playbooks/{name}.yml", *words], check=False, timeout_s=1800)
    assert not check or done.code == 0, done.out[-4000:] + done.err[-2000:]
    return done.code, done.out + done.err


def events(after: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(bedplate("ledger", "log", "--json").out)
    return [event for event in found if event["id"] > after]


def failed(name: str) -> str:
    """Why a node failed last, as the ledger has it."""
    mine = [e for e in events() if e["kind"] == "node.failed" and f"node:{name}" in e["subjects"]]
    return str(mine[-1]["body"]["why"])


def write_environment(name: str, changes: Mapping[str, str] | None = None) -> None:
    """A with other layers left out: what is tried here is the scheduler. changes: text -> its replacement."""
    text = on(CONTROLLER, ["cat", f"{SITE}/environments/A.yml"]).out
    text = text.replace("environment: A\n", f"environment: {name}\n")
    text = text.replace("canary: 1, small: 2", "canary: 4, small: 4")  # one batch: what batches do is tried elsewhere
    for layer in ("driver", "fabric", "container"):
        left_out = f'  {layer}: {{unmanaged: "the scheduler is tried"}}'
        text = re.sub(rf"^  {layer}: .*$", left_out, text, flags=re.MULTILINE)
    for old, new in (changes or {}).items():
        assert old in text, text
        text = text.replace(old, new)
    on(CONTROLLER, ["tee", f"{SITE}/environments/{name}.yml"], stdin=text)


@pytest.fixture(scope="module")
def cluster(lab: Places) -> Places:
    """S on the services host, N1 on the nodes; N2 differs in a value."""
    if on(CONTROLLER, ["test", "-e", f"{SITE}/environments/N2.lock.json"], check=False).code:  # else it is a kept lab
        write_environment("N1")
        write_environment("N2", {'nccl_debug: "WARN"': 'nccl_debug: "INFO"'})
        for verb in ("build", "push", "import"):
            bedplate("image", verb, "A")
        for name in ("S", "N1", "N2"):
            bedplate("lock", name)
        bedplate("image", "place", "N1")
        before_its_controllers = bedplate("rollout", "N1", "--yes", check=False)
        assert before_its_controllers.code != 0
        assert "bedplate rollout S" in before_its_controllers.err
    bedplate("rollout", "N1", "S", "--yes")  # the controllers first, whatever the order of the words
    return lab


def test_nodes_are_idle_with_eight_gpus_and_no_configuration_of_their_own(cluster: Places) -> None:
    idle(*NODES)
    assert shell(SERVICES_HOST, "sinfo -h -N -o '%N %G' | sort -u").out.split("\n")[:-1] == [
        f"{name} gpu:b200:8" for name in NODES
    ]
    for name in NODES:
        assert shell(name, "ls /etc/slurm/*.conf", check=False).out == ""


def test_jobs_of_two_nodes_print_the_os_release_of_their_image(cluster: Places) -> None:
    squashfs = image()
    assert re.fullmatch(r"/var/lib/bedplate/images/sha256-[0-9a-f]{64}\.sqsh", squashfs)
    done = user("alice", f"srun -t1 -N2 --container-image={squashfs} cat /etc/os-release")
    assert done.out.count('VARIANT="Bedplate lab image a"') == 2
    assert "VARIANT" not in user("alice", "srun -t1 -N2 cat /etc/os-release").out
    mounts = "--container-mounts=/etc/bedplate:/mnt"
    mounted = user("alice", f"srun -t1 -w n2 --container-image={squashfs} {mounts} cat /mnt/node.conf")
    assert "NODE=n2\n" in mounted.out
    missing = user("alice", "srun -t1 -w n2 --container-image=/none.sqsh true", check=False)
    assert missing.code != 0
    assert "/none.sqsh: No such file or directory" in missing.err


def test_an_image_is_asked_for_by_digest_and_a_node_without_it_gets_no_job(cluster: Places) -> None:
    lock = json.loads(on(CONTROLLER, ["cat", f"{SITE}/environments/N1.lock.json"]).out)
    squashfs, name = image(), lock["image"]["reference"].replace("/", "#", 1)
    done = user("alice", f"srun -t1 -N2 --container-image={shlex.quote(name)} cat /etc/os-release")
    assert done.out.count('VARIANT="Bedplate lab image a"') == 2
    by_tag = shlex.quote(name.partition("@")[0] + ":1")
    refused = user("alice", f"srun -t1 -w n2 --container-image={by_tag} true", check=False)
    assert refused.code != 0
    assert f"ask for --container-image={name}" in refused.err
    on("n2", ["mv", squashfs, f"{squashfs}.away"])
    try:
        shell("n2", "/etc/slurm/healthcheck.sh", check=False)
        state, reason = node("n2")
        assert "DRAIN" in state
        assert reason.startswith(f"health: 30-bedplate-image: bedplate: {squashfs} is not there")
    finally:
        on("n2", ["mv", f"{squashfs}.away", squashfs])
        shell(SERVICES_HOST, "scontrol update nodename=n2 state=resume", check=False)
    idle("n2")
    again = user("alice", f"srun -t1 -w n2 --container-image={shlex.quote(name)} cat /etc/os-release")
    assert 'VARIANT="Bedplate lab image a"' in again.out


def test_a_job_has_the_gpus_that_it_was_given_and_no_others(cluster: Places) -> None:
    tried = 'for i in 0 1 2 3 4 5 6 7; do head -c1 /dev/nvidia$i 2>&1 | sed "s/.*: //"; done'
    done = user("alice", f"srun -t1 -w n1 --gres=gpu:2 bash -c {shlex.quote(tried)}")
    said = done.out.splitlines()
    # No driver is behind the stand-ins: who may open one is told that.
    assert said.count("No such device or address") == 2
    assert said.count("Operation not permitted") == 6


def test_prologs_make_enroots_directories_for_the_user_alone(cluster: Places) -> None:
    user("alice", "srun -t1 -w n1 true")
    for path in ("/run/enroot/user-2000", "/var/lib/enroot/data-user-2000", "/var/lib/enroot/cache-user-2000"):
        assert on("n1", ["stat", "--format=%U %a", path]).out == "alice 700\n"


def test_accounting_names_account_qos_and_gpus_of_a_job(cluster: Places) -> None:
    with job("alice", "sleep 1", "--nodelist=n1", "--gres=gpu:2", "--time=1") as number:
        wait_for("it ended", lambda: accounted(number, "State") == "COMPLETED")
    assert accounted(number, "Account,User,QOS,State,ExitCode") == "main|alice|training|COMPLETED|0:0"
    assert "gres/gpu=2" in accounted(number, "AllocTRES")
    nobody = user("bob", "srun -t1 -A main true", check=False)
    assert nobody.code != 0
    assert "Invalid account" in nobody.err


def test_a_job_on_the_spares_gives_way_to_main_training_and_is_queued_again(cluster: Places) -> None:
    shell(SERVICES_HOST, "sacctmgr -i modify qos spare set gracetime=0")
    try:
        spare = ("--partition=spare", "--nodes=2", "--gres=gpu:8", "--time=10")
        with job("bob", "sleep 600", *spare) as number:
            done = user("alice", "srun -t1 -p spare -A main --qos=training -N2 --gres=gpu:8 hostname")
            assert sorted(done.out.split()) == ["n3", "n4"]
            restarts = f"scontrol show job {number} | grep -o 'Restarts=[0-9]*'"
            assert shell(SERVICES_HOST, restarts).out.strip() == "Restarts=1"
    finally:
        shell(SERVICES_HOST, "sacctmgr -i modify qos spare set gracetime=120")


@pytest.mark.parametrize(("environment", "machine"), [("S", SERVICES_HOST), ("N1", "n2")])
def test_a_second_converge_changes_nothing(cluster: Places, environment: str, machine: str) -> None:
    bedplate("rollout", environment, "--yes", "--nodes", machine)  # wherever other tests left it
    _, out = playbook("site", "-e", f"target={environment}", "--limit", machine)
    recap = out.partition("PLAY RECAP")[2]
    assert recap.count("changed=0") == 1, re.findall(r"TASK.*\n(?:(?!TASK).*\n)*?changed.*", out)


def test_check_mode_predicts_what_converge_does_and_does_nothing(cluster: Places) -> None:
    bedplate("rollout", "N1", "--yes", "--nodes", "n2")  # wherever other tests left it
    beats = ("/etc/slurm/slurm.conf", "/etc/slurm/gres.conf")  # also where it is empty
    shell("n2", f"echo '# by hand' > {beats[0]}; : > {beats[1]}; rm /etc/slurm/prolog.d/50-enroot")
    shell(SERVICES_HOST, "sacctmgr -i modify qos small set priority=7")
    shell(SERVICES_HOST, "sed -i s/^ResumeTimeout.*/ResumeTimeout=60/ /etc/slurm/slurm.conf")
    for environment, limit in (("N1", "n2"), ("S", SERVICES_HOST)):
        changes = []
        for mode in (["--check"], []):
            _, out = playbook("site", "-e", f"target={environment}", "--limit", limit, *mode)
            tasks = re.findall(r"^TASK \[(.*?)\] \*+\n((?:(?!TASK|PLAY).*\n)*)", out, re.MULTILINE)
            changes.append({name for name, said in tasks if "changed: " in said})
            if mode and limit == "n2":
                assert on("n2", ["ls", *beats]).code == 0
        assert changes[0] == changes[1]
        assert changes[0]
    assert on("n2", ["ls", *beats], check=False).out == ""
    assert "small|100" in shell(SERVICES_HOST, "sacctmgr -nP show qos format=name,priority").out
    assert "ResumeTimeout           = 1800 sec" in shell("n1", "scontrol show config | grep ResumeTimeout").out
    idle("n2")
    assert shell("n2", "sinfo -h -n n2 -N -o %G | sort -u").out == "gpu:b200:8\n"


def test_a_change_waits_for_the_job_of_a_node_and_the_job_is_not_harmed(cluster: Places) -> None:
    two, limited = ("n1", "n2"), ["-e", "target=N2", "--limit", "n1,n2"]
    bedplate("rollout", "N1", "--yes", "--nodes", "n1,n2")
    last = events()[-1]["id"]
    with job("alice", "sleep 45; exit 0", "--nodelist=n1", "--gres=gpu:8", "--time=10") as number:
        running = subprocess.Popen(
            inside(CONTROLLER).argv(["ansible-playbook", "playbooks/rollout.yml", *limited]),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        wait_for("n1 draining", lambda: node("n1")[0] & {"DRAIN"} or running.poll() is not None)
        state, reason = node("n1")
        assert {"DRAIN"} <= state
        assert reason.startswith("bedplate: rollout ")
        assert shell("n1", "cat /etc/nccl.conf").out.endswith("NCCL_DEBUG=WARN\n"), "changed under a job"
        out = running.communicate(timeout=1800)[0]
        assert running.returncode == 0, out[-3000:]
        assert accounted(number, "State,ExitCode") == "COMPLETED|0:0"
    assert runs(number) == ["COMPLETED"], "it ran once"
    ended = {s for e in events(last) if e["kind"] == "node.done" for s in e["subjects"] if s.startswith("node:")}
    assert ended == {f"node:{name}" for name in two}
    idle(*two)
    assert all(on(name, ["cat", "/etc/nccl.conf"]).out.endswith("NCCL_DEBUG=INFO\n") for name in two)


def test_a_job_that_does_not_end_in_time_is_named_and_its_node_goes_on_as_it_was(cluster: Places) -> None:
    changes = {'drain_timeout_s: "120"': 'drain_timeout_s: "5"', 'nccl_debug: "WARN"': 'nccl_debug: "TRACE"'}
    write_environment("N3", changes)
    bedplate("lock", "N3")
    before = on("n2", ["cat", "/etc/nccl.conf"]).out
    with job("alice", "sleep 600", "--nodelist=n2", "--job-name=llama", "--time=20") as number:
        code, _ = playbook("rollout", "-e", "target=N3", "--limit", "n2", check=False)
        assert code != 0
        assert failed("n2") == f"n2 still runs {number} alice llama after 5 s: nothing was changed on it"
        assert not node("n2")[0] & {"DRAIN", "DOWN"}, "it is not drained for nothing"
        # Slurm calls a resumed node "not responding" until it has heard of it again.
        wait_for("n2 works on its job", lambda: node("n2")[0] == {"MIXED"})
        assert on("n2", ["cat", "/etc/nccl.conf"]).out == before
        assert accounted(number, "State") == "RUNNING"
    bedplate("rollout", "N1", "--yes", "--nodes", "n2")
    idle("n2")


def test_a_node_that_fails_after_its_soak_gets_no_more_jobs_and_keeps_the_one_that_it_has(cluster: Places) -> None:
    changes = {"canary: 4, small: 4": "canary: 1, small: 1, soak_s: 45", 'nccl_debug: "WARN"': 'nccl_debug: "TRACE"'}
    write_environment("N4", changes)
    bedplate("lock", "N4")
    last = events()[-1]["id"]
    running = subprocess.Popen(
        inside(CONTROLLER).argv(["ansible-playbook", "playbooks/rollout.yml", "-e", "target=N4", "--limit", "n1,n2"]),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip

    def done() -> list[str]:
        return [s[5:] for e in events(last) if e["kind"] == "node.done" for s in e["subjects"] if s[:5] == "node:"]

    wait_for("the canary is done", lambda: done() or running.poll() is not None)
    (canary,) = done()
    with job("alice", "sleep 600", f"--nodelist={canary}", "--gres=gpu:8", "--time=20") as number:
        shell(canary, "echo '# by hand' >> /etc/nccl.conf")
        out = running.communicate(timeout=1800)[0]
        assert running.returncode != 0
        assert f"{canary} stays drained" in out, out[-3000:]
        state, reason = node(canary)
        assert "DRAIN" in state
        assert reason.startswith("bedplate: rollout ")
        assert accounted(number, "State") == "RUNNING"
    assert done() == [canary], "the batch behind it did not begin"
    bedplate("rollout", "N1", "--yes", "--nodes", "n1,n2")
    idle("n1", "n2")


def test_a_node_that_somebody_else_drained_is_changed_and_stays_drained(cluster: Places) -> None:
    shell(SERVICES_HOST, "scontrol update nodename=n3 state=drain reason='rma 4711: fan'")
    shell("n3", "echo '# by hand' >> /etc/nccl.conf")
    try:
        _, out = playbook("site", "-e", "target=N1", "--limit", "n3")
        state, reason = node("n3")
        assert {"IDLE", "DRAIN"} <= state
        assert reason == "rma 4711: fan"
        assert "left drained: rma 4711: fan (root)" in out
        assert on("n3", ["cat", "/etc/nccl.conf"]).out.endswith("NCCL_DEBUG=WARN\n")
    finally:
        shell(SERVICES_HOST, "scontrol update nodename=n3 state=resume")


def test_a_node_with_seven_of_eight_gpus_gets_no_job_is_named_and_not_given_back(cluster: Places) -> None:
    on("n4", ["rm", "/dev/nvidia7"])
    submit = "sbatch --parsable --partition=spare --nodelist=n4 --time=1 --output=/dev/null --wrap true"
    number = user("bob", submit).out.strip()
    wait_for("Slurm's drain", lambda: "DRAIN" in node("n4")[0])
    assert node("n4")[1] == "Prolog error"
    assert f"job {number}: /dev/nvidia7 is missing" in shell("n4", "journalctl -q -t bedplate-prolog -o cat").out
    shown = shell(SERVICES_HOST, f"scontrol show job {number}").out
    assert "JobState=PENDING Reason=launch_failed_requeued_held" in shown, "it is queued again"
    assert "Restarts=1" in shown
    shell(SERVICES_HOST, f"scancel {number}; scontrol update nodename=n4 state=resume")
    code, _ = playbook("site", "-e", "target=N1", "--limit", "n4", check=False)
    assert code != 0
    assert "n4 has 7 of 8 GPUs: /dev/nvidia7 is missing" in failed("n4")
    state, reason = node("n4")
    assert "DRAIN" in state
    assert reason.startswith("bedplate: rollout")
    on("n4", ["systemd-tmpfiles", "--create", "--boot", "/etc/tmpfiles.d/lab-stand-in-gpus.conf"])
    bedplate("rollout", "N1", "--yes", "--nodes", "n4")
    idle("n4")


# As on a node whose slurmd was told of the devices that there are.
SEVEN = """
cp /run/slurm/conf/*.conf /etc/slurm/
sed -i 's/nvidia.0-7./nvidia[0-6]/' /etc/slurm/gres.conf
sed -i 's/^SLURMD_OPTIONS.*//' /etc/default/slurmd
systemctl restart slurmd
"""


def test_slurms_own_drain_of_a_node_that_lost_a_gpu_is_not_lifted(cluster: Places) -> None:
    """Slurm says "gres/gpu count reported lower than configured"; repaired or not, that drain is not ours."""
    on("n4", ["rm", "/dev/nvidia7"])
    try:
        shell("n4", SEVEN)
        wait_for("Slurm's drain", lambda: "gres/gpu count reported lower than configured (7 < 8)" in node("n4")[1])
    finally:
        on("n4", ["systemd-tmpfiles", "--create", "--boot", "/etc/tmpfiles.d/lab-stand-in-gpus.conf"])
    _, out = playbook("site", "-e", "target=N1", "--limit", "n4")
    state, reason = node("n4")
    assert "DRAIN" in state, "it was repaired, and by Slurm's word it stays drained"
    assert "INVALID_REG" not in state
    assert "gres/gpu count" in reason
    assert "left drained: gres/gpu count reported lower" in out
    shell(SERVICES_HOST, "scontrol update nodename=n4 state=resume")
    idle("n4")


def test_a_plug_in_of_another_slurm_is_refused_before_any_node_changes(cluster: Places) -> None:
    fitting, other = (
        f'nvslurm-plugin-pyxis: "{version}"' for version in (slurmparts.PYXIS, slurmparts.PYXIS_FOR_OTHER)
    )
    write_environment("X", {fitting: other})
    refused = bedplate("lock", "X", check=False)
    assert refused.code != 0
    assert "PYXIS-ABI" in refused.err
    assert "was built for Slurm 25.05" in refused.err
    lifted = 'exceptions: [{rule: PYXIS-ABI, reason: "to see what the nodes say", approved_by: Ann}]'
    write_environment("Y", {fitting: other, "\nrollout:": f"\n{lifted}\n\nrollout:"})
    bedplate("lock", "Y")
    before, last = [shell(name, "dpkg -l | sha256sum").out for name in NODES], events()[-1]["id"]
    refused = bedplate("rollout", "Y", "--yes", "--nodes", "n2", check=False)
    assert refused.code != 0
    assert "was built for Slurm 25.05" in refused.out + refused.err
    assert [shell(name, "dpkg -l | sha256sum").out for name in NODES] == before
    assert not [e for e in events(last) if e["kind"] == "step.ended" and e["body"]["step"].startswith("Drain")]
    idle(*NODES)
    bedplate("rollout", "N1", "--yes", "--nodes", "n2")


def test_a_node_that_could_run_no_image_is_refused_with_the_way_to_mend_it(cluster: Places) -> None:
    """n1: too little room for Enroot; n2: another plug-in; n3: Enroot's directory is a share."""
    plugin, enroot = f"/{slurmparts.PLUGIN}", "/var/lib/enroot"
    wrong = next(cluster.cache.glob("spank-*/other.so")).read_bytes()
    shell("n1", f"mkdir -p {enroot}; mount -t tmpfs -o size=64k tmpfs {enroot}")
    on("n2", ["cp", "-p", plugin, "/root/kept.so"])
    on("n2", ["sh", "-c", f"base64 --decode > {plugin}"], stdin=base64.b64encode(wrong).decode())
    share = f"#!/bin/sh\necho Avail Type Mounted on\necho 1000000000000 nfs4 {enroot}\n"
    on("n3", ["sh", "-c", "cat > /usr/local/bin/df; chmod 755 /usr/local/bin/df"], stdin=share)
    three = ("n1", "n2", "n3")
    try:
        code, _ = playbook("site", "-e", "target=N1", "--limit", ",".join(three), check=False)
        assert code != 0
        assert re.search(f"^{enroot} lies on tmpfs with [0-9]+ bytes free, mounted at {enroot}; it needs", failed("n1"))
        assert "somebody put another file there (run: apt-get install --reinstall nvslurm-plugin-pyxis=" in failed("n2")
        assert f"{enroot} lies on nfs4 with 1000000000000 bytes free" in failed("n3")
        assert [node(name)[0] for name in three] == [{"IDLE"}] * 3
    finally:
        shell("n1", f"umount {enroot}")
        on("n2", ["mv", "/root/kept.so", plugin])
        on("n3", ["rm", "/usr/local/bin/df"])
    bedplate("rollout", "N1", "--yes", "--nodes", ",".join(three))


def test_without_controllers_nothing_begins(cluster: Places) -> None:
    on(SERVICES_HOST, ["systemctl", "stop", "slurmctld"])
    try:
        code, _ = playbook("site", "-e", "target=N1", "--limit", "n1", check=False)
        assert code != 0
        assert "slurmctld on svc does not answer, and nodes cannot be drained without it" in failed("n1")
    finally:
        on(SERVICES_HOST, ["systemctl", "start", "slurmctld"])
    bedplate("rollout", "N1", "--yes", "--nodes", "n1")
    idle("n1")


def test_the_database_listens_to_its_own_machine_and_its_password_is_nowhere_else(cluster: Places) -> None:
    listening = shell(SERVICES_HOST, "ss -Hltn 'sport = :3306'").out.split()
    assert listening[3] == "127.0.0.1:3306"
    assert on(SERVICES_HOST, ["stat", "--format=%U %a", "/etc/slurm/slurmdbd.conf"]).out == "slurm 600\n"
    for secret in ("munge.key", "slurmdbd.password"):
        text = on(CONTROLLER, ["cat", f"{SITE}/secrets/{secret}"]).out.strip()
        found = shell(CONTROLLER, f"grep -rlF {shlex.quote(text)} {SITE} /var/log /tmp /root", check=False).out.split()
        assert found == [f"{SITE}/secrets/{secret}"]
        for host in (SERVICES_HOST, "n1"):
            search = f"grep -rlF {shlex.quote(text)} /etc /var/log /tmp /root"
            said = shell(host, f"{search}; journalctl | grep -cF {shlex.quote(text)}", check=False)
            places = {"munge.key": "/etc/munge/munge.key", "slurmdbd.password": "/etc/slurm/slurmdbd.conf"}
            own = [places[secret]] if secret == "munge.key" or host == SERVICES_HOST else []
            assert said.out.split() == [*own, "0"]


def blocks() -> list[tuple[str, str, str]]:
    """Runbook, machine and commands of each fenced block that says where it is typed."""
    found = []
    for page in RUNBOOKS:
        for host, script in re.findall(r"^```bash on=(\w+)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
            found.append((page.stem, host, script))
    return found


@pytest.mark.parametrize(("page", "host", "script"), blocks(), ids=[f"{b[0]}-{i}" for i, b in enumerate(blocks())])
def test_the_commands_of_the_runbooks_do_what_they_say(cluster: Places, page: str, host: str, script: str) -> None:
    machine = {"controller": CONTROLLER, "services": SERVICES_HOST, "node": "n1"}[host]
    done = on(machine, ["bash", "-euc", script], check=False, timeout_s=PATIENCE_S)
    assert done.code == 0, f"docs/operations/{page}.md: {script}{done.out}{done.err}"


@pytest.fixture(scope="module")
def version(cluster: Places) -> str:
    """Slurm's version on the controllers; S2 is locked, which has a later one."""
    text = on(CONTROLLER, ["cat", f"{SITE}/environments/S.yml"]).out
    there: str = re.findall(r'slurmctld: "([^"]+)"', text)[0]
    text = text.replace("environment: S\n", "environment: S2\n").replace("suite: a", "suite: b")
    on(CONTROLLER, ["tee", f"{SITE}/environments/S2.yml"], stdin=text.replace(there, there + slurmparts.LATER))
    bedplate("lock", "S2")
    return there


# mariadb-dump where the disk is full just before its end.
HALF = """\
#!/bin/sh
/usr/bin/mariadb-dump "$@" || exit
for word; do case $word in --result-file=*) truncate --size=-100 "${word#*=}" ;; esac; done
"""


def test_half_a_dump_upgrades_nothing_and_accounting_goes_on(version: str) -> None:
    fake = "/usr/local/bin/mariadb-dump"
    on(SERVICES_HOST, ["sh", "-c", f"cat > {fake}; chmod 755 {fake}"], stdin=HALF)
    try:
        refused = bedplate("rollout", "S2", "--yes", check=False)
    finally:
        on(SERVICES_HOST, ["rm", fake])
    assert refused.code != 0
    assert "slurm_acct_db.sql.part is not whole: nothing was upgraded" in failed(SERVICES_HOST)
    assert shell(SERVICES_HOST, "dpkg-query -W -f='${Version}' slurmdbd").out == version
    assert shell(SERVICES_HOST, "systemctl is-active mariadb slurmdbd slurmctld").out == "active\n" * 3
    assert "SlurmdTimeout           = 300 sec" in shell("n1", "scontrol show config | grep SlurmdTimeout").out


def test_an_upgrade_of_the_controllers_keeps_database_state_and_jobs(version: str) -> None:
    with job("alice", "sleep 600", "--nodelist=n1", "--gres=gpu:1", "--time=30") as number:
        bedplate("rollout", "S2", "--yes")
        assert shell(SERVICES_HOST, "dpkg-query -W -f='${Version}' slurmdbd").out == version + slurmparts.LATER
        dumps = shell(
            SERVICES_HOST, "cd /var/lib/bedplate/slurm-dumps; stat -c '%a %n' *; tail -n1 */*.sql; ls */*.tar"
        ).out
        assert f"700 slurmctld-{version}+slurmdbd-{version}\n" in dumps
        assert "Dump completed" in dumps
        assert f"slurmdbd-{version}" in dumps
        assert "slurmctld.tar" in dumps
        assert "SlurmdTimeout           = 300 sec" in shell("n1", "scontrol show config | grep SlurmdTimeout").out
        assert accounted(number, "State") == "RUNNING"
        assert shell("n1", f"squeue -h -j {number} -o %T").out == "RUNNING\n"
    bedplate("rollout", "S", "--yes")


# --- the machine that people log in to ----------------------------------------------------------------------

NETBOOT = """\
netboot:
  server: 10.77.0.10
  interface: host0
  addressing: dhcp
  live: live-boot
  image: {name: root.squashfs, sha256: "sha256:NOTHING"}
  kernel: {name: vmlinuz, sha256: "sha256:NOTHING"}
  initrd: {name: initrd.img, sha256: "sha256:NOTHING"}
  command_line: []
""".replace("NOTHING", "0" * 64)
OWN_SITE = "/srv/bedplate/site"


@pytest.fixture(scope="module")
def login(cluster: Places) -> str:
    """C: the operators' own machine, with Slurm's commands, as the boot server, and looking at itself; locked."""
    shell(CONTROLLER, "id bedplate || useradd --system --no-create-home bedplate; mkdir -p /srv/bedplate")
    index = "http://archive.lab:8080/dists/a/main/binary-$(dpkg --print-architecture)/Packages"
    (version,) = re.findall(r"^Package: dnsmasq-base$.*?^Version: (\S+)$", shell(CONTROLLER, f"curl -s {index}").out,
                            re.MULTILINE | re.DOTALL)  # fmt: skip
    text = on(CONTROLLER, ["cat", f"{SITE}/environments/N1.yml"]).out
    packages = re.search(r"^  scheduler: .*$", text, re.MULTILINE)
    assert packages
    slurm = dict(re.findall(r'(slurmd|slurm-client|munge): "(\S+?)"', packages[0]))
    asked = f'sackd: "{slurm["slurmd"]}", slurm-client: "{slurm["slurm-client"]}", munge: "{slurm["munge"]}"'
    values = f'health_interval_s: "300", boot_server: {CONTROLLER}, boot_server_program: /usr/local/bin/bedplate'
    for pattern, new in (
        (r"environment: N1$", "environment: C"),
        (r"kinds: \[gpu\]", "kinds: [controller]"),
        (r"models: \[lab-gpu8\]", "models: [lab-controller]"),
        (r"release: trixie, packages: {.*}}", f'release: trixie, packages: {{dnsmasq-base: "{version}"}}}}'),
        (r"^  scheduler: .*$", f"  scheduler: {{controller: S, packages: {{{asked}}}}}"),
        (r"^  image: .*$", '  image: {unmanaged: "no job runs here"}'),
        (r"values: {", f"values: {{{values}, "),
    ):
        assert re.search(pattern, text, re.MULTILINE), (pattern, text)
        text = re.sub(pattern, new.replace("\\", r"\\"), text, count=1, flags=re.MULTILINE)
    on(CONTROLLER, ["tee", f"{SITE}/environments/C.yml"], stdin=text)
    on(CONTROLLER, ["tee", f"{SITE}/models/lab-controller.health.yml"],
       stdin="model: lab-controller\nunsaid: a stand-in has no such part\n")  # fmt: skip
    silent = bedplate("health", "--nodes", CONTROLLER, check=False)
    assert (silent.code, "kernel.xid journalctl said nothing" in silent.err) == (4, True), (
        "a host has no kernel log: silence is no health"
    )
    healthparts.say(cluster, CONTROLLER, healthparts.messages())
    shell(CONTROLLER, f"cp -r {SITE} {OWN_SITE}")
    on(CONTROLLER, ["tee", "-a", f"{OWN_SITE}/fleet.yml"], stdin=NETBOOT)
    shell(CONTROLLER, f"chown -R bedplate: {OWN_SITE}")
    bedplate("lock", "C")
    return "C"


def test_the_operators_machine_is_login_and_boot_server_and_a_second_converge_changes_nothing(login: str) -> None:
    bedplate("rollout", login, "--yes")
    assert on(CONTROLLER, ["sinfo", "--noheader", "--format=%R"]).out.split(), "by sackd, without files of its own"
    for unit in ("sackd", "bedplate-netboot", "bedplate-netboot-dnsmasq", "bedplate-health.timer"):
        assert on(CONTROLLER, ["systemctl", "is-active", unit]).out.strip() == "active"
    on(CONTROLLER, ["systemctl", "start", "bedplate-health.service"], check=False)
    looked = on(CONTROLLER, ["/usr/local/libexec/bedplate-health-verdict"], check=False)
    assert looked.code == 0, looked.out + looked.err
    for mode in ([], ["--check"]):
        _, out = playbook("site", "-e", f"target={login}", "--limit", CONTROLLER, *mode)
        recap = out.partition("PLAY RECAP")[2]
        assert recap.count("changed=0") == 1, re.findall(r"TASK.*\n(?:(?!TASK).*\n)*?changed.*", out)


def test_check_mode_predicts_what_converge_does_to_the_operators_machine(login: str) -> None:
    shell(CONTROLLER, "touch /etc/slurm/slurm.conf; rm /etc/bedplate/dnsmasq.conf /etc/bedplate/health.json")
    changes = []
    for mode in (["--check"], []):
        _, out = playbook("site", "-e", f"target={login}", "--limit", CONTROLLER, *mode)
        tasks = re.findall(r"^TASK \[(.*?)\] \*+\n((?:(?!TASK|PLAY).*\n)*)", out, re.MULTILINE)
        changes.append({name for name, said in tasks if "changed: " in said})
    assert changes[0] == changes[1]
    assert len(changes[0]) >= 3
