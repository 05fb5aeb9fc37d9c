"""What clusters of others lost nodes and jobs by, held against what our roles write."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bedplate.decide.render import JINJA
from bedplate.model.fleet import Fleet
from bedplate.sources import checkout
from bedplate.sources.site import open_site
from unit.test_slurm_conf import lines, models, rendered

ROLES = checkout.root() / "roles"
SLURM_COMMANDS = re.compile(r"\b(scontrol|squeue|sinfo|srun|sbatch|sacct|sacctmgr|scancel)\b")


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return open_site(Path(checkout.root()) / "inventory").fleet


def settings(text: str) -> dict[str, str]:
    """KEY=value of the lines that have one setting."""
    return dict(line.split("=", 1) for line in text.splitlines() if re.fullmatch(r"[A-Za-z]+=\S+", line))


def files(role: str) -> dict[str, str]:
    """Path on the node -> template, of a role."""
    return {entry["path"]: entry["template"] for entry in yaml.safe_load((ROLES / role / "files.yml").read_text())}


def tasks(role: str, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((ROLES / role / "tasks" / f"{name}.yml").read_text())
    return found


def programs(text: str) -> str:
    """A script without its comments."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("#", "{#", "{%")))


# --- slurm.conf ------------------------------------------------------------------------------------


def test_a_node_that_booted_by_itself_is_not_used_again_until_somebody_looked(fleet: Fleet) -> None:
    """nhc#81, #115: idle before its check ran. 1: only a node that was silent comes back; 2: whichever registers."""
    conf = settings(rendered("slurm.conf", fleet, models()))
    assert conf["ReturnToService"] == "1"
    assert int(conf["ResumeTimeout"]) >= 900, "the default of 60 s gives an eight-GPU machine up while it boots"


def test_every_node_is_looked_at_whatever_it_does_and_not_all_at_once(fleet: Fleet) -> None:
    conf = settings(rendered("slurm.conf", fleet, models()))
    assert set(conf["HealthCheckNodeState"].split(",")) == {"ANY", "CYCLE"}
    assert conf["HealthCheckProgram"] in files("slurm_node")
    assert int(conf["HealthCheckInterval"]) > 60, "longer than one may last"


def test_a_prolog_that_fails_drains_before_the_job_starts(fleet: Fleet) -> None:
    conf = settings(rendered("slurm.conf", fleet, models()))
    assert "Contain" in conf["PrologFlags"].split(","), "it implies Alloc: not only at the first step"
    assert conf["JobRequeue"] == "1"


def test_the_directory_of_running_jobs_is_the_same_in_every_environment(fleet: Fleet) -> None:
    """ansible-slurm-appliance#994: SlurmdSpoolDir changed below running jobs ends them."""
    one = rendered("slurm.conf", fleet, models())
    other = rendered("slurm.conf", fleet, models(), values={"slurm_config_overrides": "yes"})
    assert settings(one)["SlurmdSpoolDir"] == settings(other)["SlurmdSpoolDir"] == "/var/lib/slurm/slurmd"


def test_a_gpu_that_is_lost_is_missed_and_none_is_looked_for(fleet: Fleet) -> None:
    """Detection that finds seven of eight would make seven the right number; NVML is in few builds."""
    assert lines(rendered("gres.conf", fleet, models()), "AutoDetect=") == ["AutoDetect=off"]


def test_memory_that_a_firmware_update_takes_drains_nobody(fleet: Fleet) -> None:
    """openhpc#92: 128517 MiB became 128516."""
    found = [int(size) for size in re.findall(r"RealMemory=(\d+)", rendered("slurm.conf", fleet, models()))]
    had = sorted(model.memory_mib for model in models().values() if model.memory_mib)
    for there, known in zip(sorted(found), had, strict=True):
        assert there <= known * 0.985
        assert there >= known * 0.95, "and no more than that is lost to jobs"


# --- configless ------------------------------------------------------------------------------------


def test_no_line_of_the_plug_in_stack_is_an_include_or_optional(fleet: Fleet) -> None:
    """soperator#2058, pyxis#95: the job runs on the host, and its exit code is 0."""
    for packages in ([], [{"name": "nvslurm-plugin-pyxis", "version": "0.24.0-1"}]):
        text = rendered("plugstack.conf", fleet, models(), packages=packages)
        words = [line.split()[0] for line in text.splitlines() if line.strip() and not line.startswith("#")]
        assert words == ["required"] * len(packages)


def test_a_container_name_of_another_job_is_nobodys_image(fleet: Fleet) -> None:
    """With a name that is there Pyxis ignores the image: after a way back the job would run the one that was left."""
    (line,) = lines(rendered("plugstack.conf", fleet, models()), "required")
    assert "container_scope=job" in line.split()


def test_what_the_controllers_hand_out_no_node_has_of_its_own() -> None:
    """A local slurm.conf beats configless; an empty gres.conf won the race of a start (soperator#1192)."""
    (looked,) = [task for task in tasks("slurm_node", "configure") if "ansible.builtin.find" in task]
    removed = set(looked["ansible.builtin.find"]["patterns"])
    handed_out = {Path(path).name for path in files("slurm_controller")}
    assert {"slurm.conf", "gres.conf", "plugstack.conf"} <= handed_out
    assert handed_out <= removed
    assert "topology.yaml" in removed, "from 25.05 on it beats topology.conf"
    assert not removed & {Path(path).name for path in files("slurm_node")}


# --- order -----------------------------------------------------------------------------------------


def test_the_controller_starts_anew_before_the_nodes_hear_of_it() -> None:
    """openhpc#199: restarted in the other order, nodes are INVALID until slurmd starts once more."""
    names = [task["name"] for task in tasks("slurm_controller", "run")]
    assert names == [
        "Run slurmctld",
        "Give the nodes the configuration",
        "Refuse a configuration that nodes do not fit",
    ]


def test_slurmd_starts_after_the_fabric_and_what_keeps_the_gpus_awake() -> None:
    text = JINJA.from_string((ROLES / "slurm_node/templates/ordering.conf.j2").read_text()).render({})
    (after,) = [line for line in text.splitlines() if line.startswith("After=")]
    assert {"nvidia-fabricmanager.service", "nvidia-persistenced.service"} <= set(after.removeprefix("After=").split())
    assert files("slurm_node")["/etc/systemd/system/slurmd.service.d/bedplate.conf"] == "ordering.conf.j2"


def test_plug_in_and_runtime_are_there_before_slurmd_and_come_in_one_transaction_with_it() -> None:
    """`required` means that a slurmd beside a plug-in of another release does not start."""
    about = yaml.safe_load((ROLES / "slurm_node/role.yml").read_text())
    assert {"slurm", "pyxis", "enroot"} <= set(about["after"])
    for role in ("pyxis", "enroot", "slurm_node", "pyxis_importer"):
        for path in (ROLES / role / "tasks").glob("*.yml"):
            assert "packages" not in [
                task.get("ansible.builtin.import_role", {}).get("name") for task in yaml.safe_load(path.read_text())
            ], f"{role} installs by itself"


def test_slurms_user_is_there_before_packages_that_make_none() -> None:
    names = [task["name"] for task in tasks("slurm", "install")]
    last = names.index("Slurm, Pyxis and Enroot in one transaction")
    assert names.index("Make Slurm's group") < names.index("Make Slurm's user") < last
    assert names.index("Keep what only the new versions will read") < last, "the dump of the accounting comes first"


# --- prolog, epilog, health check ------------------------------------------------------------------


def test_no_prolog_epilog_or_check_asks_slurm_anything() -> None:
    """Slurm's guide: it may hang on the slurmctld that waits for it. nhc#159: a check before registration hung."""
    found = []
    for path in ROLES.glob("*/files.yml"):
        for entry in yaml.safe_load(path.read_text()):
            if re.match(r"/etc/slurm/(prolog|epilog|health)\.d/", entry["path"]):
                text = programs((path.parent / "templates" / entry["template"]).read_text())
                found.append(entry["path"])
                assert not SLURM_COMMANDS.search(text), entry["path"]
    assert len(found) >= 5


def test_nobody_reads_tables_that_slurm_cuts() -> None:
    """sinfo doubles columns and cuts reasons after 20 characters; one that hung drained whole batches (nhc#161)."""
    root = checkout.root()
    places = [root / "tools", root / "playbooks", root / "roles"]
    texts = {
        path: path.read_text() for place in places for path in place.rglob("*") if path.suffix in (".py", ".yml", ".j2")
    }
    assert len(texts) > 300
    called = re.compile(r"""["'\[ (]sinfo["', ]+(-|,|\])|\bsinfo -""")
    for path, text in texts.items():
        assert not called.search(programs(text).replace("`sinfo -R`", "")), path
    for module in ("bedplate_slurm_nodes", "bedplate_slurm_registered"):
        text = (root / f"playbooks/library/{module}.py").read_text()
        assert '"scontrol", "show", "nodes", "--json"' in text, module
    assert 'SHOW = "scontrol show nodes --json"' in (root / "tools/bedplate/decide/slurmnodes.py").read_text()


def test_nobody_lets_slurm_reboot_a_node_into_service() -> None:
    """nextstate=RESUME clears the drain's reason, and the node is idle before a check ran (nhc#84)."""
    root = checkout.root()
    said = re.compile(r"scontrol[\"', ]+reboot.*", re.IGNORECASE)
    places = [
        *root.glob("docs/**/*.md"),
        *root.glob("roles/**/*.*"),
        *root.glob("playbooks/**/*.*"),
        *root.glob("tools/**/*.py"),
    ]
    found = [match for path in places if path.is_file() for match in said.findall(path.read_text(errors="replace"))]
    assert found, "the runbook has one"
    assert all("nextstate=DOWN" in command for command in found)


# --- enroot ----------------------------------------------------------------------------------------


def test_enroots_configuration_is_keys_and_values_without_an_equals_sign() -> None:
    text = JINJA.from_string((ROLES / "enroot/templates/enroot.conf.j2").read_text()).render({"values": {}})
    found = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert len(found) >= 8
    assert all(re.fullmatch(r"ENROOT_[A-Z_]+ \S.*", line) for line in found)


def test_every_user_has_directories_of_their_own_and_none_on_a_share() -> None:
    """enroot#154, aws-samples#20: one data or runtime path for many is locks that fail and images that break."""
    for values in ({}, {"enroot_directory": "/raid/enroot"}):
        text = JINJA.from_string((ROLES / "enroot/templates/enroot.conf.j2").read_text()).render({"values": values})
        paths = dict(line.split(" ", 1) for line in text.splitlines() if re.match("ENROOT_[A-Z]+_PATH ", line))
        assert set(paths) == {f"ENROOT_{kind}_PATH" for kind in ("RUNTIME", "CACHE", "DATA", "TEMP")}
        assert all(path.endswith("user-$(id -u)") for path in paths.values())
        assert len(set(paths.values())) == 4
        assert paths["ENROOT_RUNTIME_PATH"].startswith("/run/")
        below = values.get("enroot_directory", "/var/lib/enroot")
        assert all(path.startswith(f"{below}/") for name, path in paths.items() if name != "ENROOT_RUNTIME_PATH")
