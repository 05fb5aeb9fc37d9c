"""UNIT STAND-IN for what a node has: Slurm's commands, docker, enroot, systemd's, nvidia-smi, the program in the image.

Called under those names (links to this file) with NODE_ROOT, the node's own root. Jobs are real processes, mounts are
a table that the program's paths are looked up in; the record is of the real one's shape, with made-up numbers.
scenario.json in the root: fail: the question that fails; hang: it never ends; silent: no record; member: value, put
into the record; stuck: the job stays in the queue.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

QUESTIONS = ("devices", "compute", "exchange", "resume", "learning")
type Scenario = dict[str, Any]


def main() -> int:
    name, words = Path(sys.argv[0]).name.lstrip("."), sys.argv[1:]
    root = Path(os.environ["NODE_ROOT"])
    with (root / "calls").open("a") as calls:
        calls.write(json.dumps([name, *words]) + "\n")
    found = root / "scenario.json"
    scenario = json.loads(found.read_text()) if found.exists() else {}
    work = {
        "sbatch": sbatch, "squeue": squeue, "scancel": scancel, "srun": srun, "docker": docker, "nvidia-smi": smi,
        "enroot": enroot, "systemd-run": systemd_run, "systemctl": systemctl,
    }  # fmt: skip
    return work[name](root, scenario, words)


def option(words: list[str], name: str) -> str:
    return next((word.partition("=")[2] for word in words if word.startswith(f"--{name}=")), "")


def behind_options(words: list[str]) -> list[str]:
    """From the first word that is no option."""
    return words[next(n for n, word in enumerate(words) if not word.startswith("--")) :]


def smi(root: Path, scenario: Scenario, words: list[str]) -> int:
    print("".join(f"GPU {n}: STAND-IN (UUID: GPU-0000{n})\n" for n in range(8)), end="")
    return 0


def start(root: Path, name: str, words: list[str], output: str | Path) -> None:
    with Path(output).open("ab") as out:
        job = subprocess.Popen(words, stdout=out, stderr=out, start_new_session=True)
    (root / name).write_text(str(job.pid))


def alive(root: Path, name: str) -> bool:
    try:
        pid = int((root / name).read_text())
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, ValueError):
        return False


def sbatch(root: Path, scenario: Scenario, words: list[str]) -> int:
    if scenario.get("stuck"):
        (root / "job-7").write_text("none")
    else:
        os.environ["SLURM_CPUS_ON_NODE"] = "8"
        start(root, "job-7", ["sh", words[-1]], option(words, "output"))
    print(7)
    return 0


def squeue(root: Path, scenario: Scenario, words: list[str]) -> int:
    if scenario.get("stuck") and (root / "job-7").exists():
        print("PENDING Resources")
    elif alive(root, "job-7"):
        print("RUNNING None")
    return 0


def scancel(root: Path, scenario: Scenario, words: list[str]) -> int:
    if alive(root, "job-7"):
        os.killpg(int((root / "job-7").read_text()), signal.SIGKILL)
    (root / "job-7").unlink(missing_ok=True)
    return 0


def srun(root: Path, scenario: Scenario, words: list[str]) -> int:
    image = option(words, "container-image")
    if not Path(image).is_file():
        print(f"pyxis: {image}: No such file", file=sys.stderr)
        return 1
    mounts = [mount.split(":") for mount in option(words, "container-mounts").split(",")]
    return program(scenario, behind_options(words), mounts)


def systemd_run(root: Path, scenario: Scenario, words: list[str]) -> int:
    start(root, "unit", behind_options(words), root / "unit.log")
    return 0


def systemctl(root: Path, scenario: Scenario, words: list[str]) -> int:
    runs = alive(root, "unit")
    if words[0] == "is-active":
        print("active" if runs else "inactive")
        return 0 if runs else 3
    if words[0] == "stop" and runs:
        os.killpg(int((root / "unit").read_text()), signal.SIGKILL)
    return 0


def enroot(root: Path, scenario: Scenario, words: list[str]) -> int:
    runtime, data = (Path(os.environ[f"ENROOT_{name}_PATH"]) for name in ("RUNTIME", "DATA"))
    assert runtime not in (data, *data.parents), "a tmpfs is laid over it"
    root_name = option(words, "name") or behind_options(words[1:])[0]
    if words[0] == "create":
        (image,) = behind_options(words[1:])
        (data / root_name).mkdir(parents=True)
        shutil.copy(image, data / root_name)
        return 0
    assert words[0] == "start"
    assert Path(option(words, "rc")).read_text() == '#!/bin/sh\nexec "$@"\n'
    mounts = []
    for word in words:
        if word.startswith("--mount="):
            source, target, kind, options = word.partition("=")[2].split(":")
            assert (kind, options.removesuffix(",ro")) == ("none", "x-create=auto,rbind")
            mounts.append([source, target, *(["ro"] if options.endswith(",ro") else [])])
    assert (data / root_name).is_dir(), "this node has no squashfuse, as no lock has it"
    return program(scenario, behind_options(words[1:])[1:], mounts)


def docker(root: Path, scenario: Scenario, words: list[str]) -> int:
    verb, rest = words[0], words[1:]
    if verb == "run":
        mounts = [word.partition("=")[2].split(":") for word in rest if word.startswith("--volume=")]
        inside = behind_options(rest)[1:]
        if "--detach" not in rest:
            return program(scenario, inside, mounts)
        me = [sys.executable, str(Path(__file__).resolve()), json.dumps([scenario, inside, mounts])]
        code = f"{' '.join(map(repr, me))}; echo $? > {root}/code"
        start(root, "container", ["sh", "-c", code], root / "container.log")
        print("0123456789ab")
    elif verb == "inspect":
        if not (root / "container").exists():
            print("Error: No such object", file=sys.stderr)
            return 1
        ended = (root / "code").exists() and not alive(root, "container")
        print(f"exited {(root / 'code').read_text().strip()}" if ended else "running 0")
    elif verb == "logs":
        print((root / "container.log").read_text(), end="")
    elif verb == "rm":
        if alive(root, "container"):
            os.killpg(int((root / "container").read_text()), signal.SIGKILL)
        (root / "container").unlink(missing_ok=True)
    return 0


def program(scenario: Scenario, words: list[str], mounts: list[list[str]]) -> int:
    """`bedplate-train material` and `accept`, as far as files go."""

    def place(path: str) -> tuple[Path, bool]:
        for mount in mounts:
            if path == mount[1] or path.startswith(mount[1] + "/"):
                return Path(mount[0] + path.removeprefix(mount[1])), mount[2:] == ["ro"]
        raise FileNotFoundError(path)

    if words[1] == "material":
        folder, read_only = place(words[2])
        assert not read_only
        (folder / "manifest.json").write_text("{}")
        return 0
    given = dict(zip(words[3::2], words[4::2], strict=True))
    profile, _ = place(words[2])
    if scenario.get("hang"):
        print("compute: passed", flush=True)
        time.sleep(3600)
    text = profile.read_bytes()
    document = json.loads(text)  # YAML that is JSON, too
    data, read_only = place(document["paths"]["data"])
    assert read_only
    assert (data / "manifest.json").is_file()
    assert place(given["--host-devices"])[0].read_text().count("GPU-0000") == 8
    reference = place(given["--reference"])[0].read_bytes() if "--reference" in given else None
    log, _ = place(document["paths"]["run"] + "/acceptance-1/machine/log.txt")
    log.parent.mkdir(parents=True)
    log.write_text("rank 0: well\n")
    bad = scenario.get("fail")
    record: dict[str, Any] = {
        "schema": 1, "kind": "acceptance", "machine": scenario["node"], "started_at": "a", "ended_at": "b",
        "profile": {
            "file_sha256": sha256(text), "document": document, "sha256": sha256(canonical(document)),
        },
        "inputs": {"manifest_sha256": "1" * 64, "reference_sha256": reference and sha256(reference)},
        "versions": {"torch": "2.13.0"}, "not_proven": ["NCCL"], "stand_in": document["devices"]["kind"] == "stand-in",
        "questions": {}, "verdict": "failed" if bad else "passed",
        "logs": {f"{document['paths']['run']}/acceptance-1/machine/log.txt": sha256(log.read_bytes())},
    }  # fmt: skip
    chosen = given.get("--questions", ",".join(QUESTIONS)).split(",")
    record["asked"] = [name for name in QUESTIONS if name in chosen]
    for name in QUESTIONS:
        stopped = "failed" in str(record["questions"]) or name not in chosen
        state = "failed" if name == bad else "not asked" if stopped else "passed"
        record["questions"][name] = {"verdict": state, "seconds": 1.5, "checks": [
            {"check": f"of {name}", "passed": state == "passed", "error": 1.25e-7, "tolerance": 0.0002},
        ]}  # fmt: skip
        if state == "failed":
            record["questions"][name] |= {"said": "rank 3: wrong sum", "look_at": "the cable of rank 3"}
    record |= scenario.get("member", {})
    if not scenario.get("silent"):
        place(given["--record"])[0].write_bytes(canonical(record) + b"\n")
    print(f"{record['verdict']}; record", flush=True)
    return 1 if bad or scenario.get("silent") else 0


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def canonical(document: object) -> bytes:
    import rfc8785  # noqa: PLC0415  the node's commands start without it

    return bytes(rfc8785.dumps(document))


if __name__ == "__main__":
    if Path(sys.argv[0]).suffix == ".py":  # a container of ours: the stand-in for docker started it
        sys.exit(program(*json.loads(sys.argv[1])))
    sys.exit(main())
