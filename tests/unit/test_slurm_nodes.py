"""Drain and return of a batch, against a Slurm that behaves: what is ours, what is others', what jobs do."""

import json
import os
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from unit.programs import ansible_module

OURS = "bedplate: rollout 7 to B"
EARLIER = "bedplate: rollout 3 to A"


def module() -> ModuleType:
    return ansible_module("slurm_nodes")


class Slurm:
    """Nodes with flags and a reason; a job ends after so many looks at its node."""

    def __init__(self, **nodes: tuple[str, str]) -> None:
        self.nodes: dict[str, dict[str, Any]] = {
            name: {"state": state.split("+"), "reason": reason} for name, (state, reason) in nodes.items()
        }
        self.meanwhile: dict[str, tuple[str, str]] = {}  # what somebody does while jobs are waited for
        self.looks_until_end: dict[str, int] = {}
        self.looks_until_seen: dict[str, int] = {}
        self.commands: list[str] = []

    def __call__(self, *words: str) -> str:
        if words[:3] == ("scontrol", "show", "nodes"):
            self._time_passes()
            shown = [{"name": name, "reason_set_by_user": "root", **node} for name, node in self.nodes.items()]
            return json.dumps({"nodes": shown})
        if words[0] == "squeue":
            return "17 alice llama\n"
        settings = dict(word.split("=", 1) for word in words[2:])
        self.commands.append(" ".join(words[2:]))
        for name in settings["nodename"].split(","):
            node = self.nodes[name]
            flags = [flag for flag in node["state"] if flag not in ("DRAIN", "DOWN")] or ["IDLE"]
            if settings["state"] == "drain":
                node |= {"state": [*node["state"], "DRAIN"], "reason": settings["reason"]}
            else:
                node |= {"state": flags, "reason": ""}
        return ""

    def _time_passes(self) -> None:
        if self.commands:
            while self.meanwhile:
                name, (state, reason) = self.meanwhile.popitem()
                self.nodes[name] |= {"state": state.split("+"), "reason": reason}
        for waiting, flags in ((self.looks_until_end, {"ALLOCATED", "MIXED", "COMPLETING"}),
                               (self.looks_until_seen, {"NOT_RESPONDING", "INVALID_REG"})):  # fmt: skip
            for name in list(waiting):
                waiting[name] -= 1
                if waiting[name] <= 0:
                    del waiting[name]
                    kept = [flag for flag in self.nodes[name]["state"] if flag not in flags]
                    self.nodes[name]["state"] = kept if set(kept) & {"IDLE", "DOWN"} else ["IDLE", *kept]

    def states(self) -> dict[str, str]:
        return {name: f"{'+'.join(node['state'])} {node['reason']}".strip() for name, node in self.nodes.items()}


def asked(slurm: Slurm, monkeypatch: pytest.MonkeyPatch, state: str, *, check: bool = False) -> dict[str, Any]:
    loaded = module()
    monkeypatch.setattr(loaded, "slurm", slurm)
    clock = iter(range(10_000))
    monkeypatch.setattr(loaded, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))
    given = {"nodes": [*slurm.nodes, "new"], "state": state, "reason": OURS, "ours": "bedplate:", "patience_s": 20}
    act = loaded.drain if state == "drained" else loaded.give_back
    changed, nodes = act(SimpleNamespace(params=given, check_mode=check))
    return {"changed": changed, **nodes}


def test_a_batch_is_drained_in_one_command_and_others_drains_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Slurm(
        n1=("IDLE", ""),
        n2=("IDLE+DRAIN", "rma 4711"),
        n3=("UNKNOWN", ""),
        n4=("IDLE+DRAIN", "bedplate: rollout 6 to B"),
    )
    found = asked(slurm, monkeypatch, "drained")
    assert slurm.commands == [f"nodename=n1,n3 state=drain reason={OURS}"]
    assert slurm.states()["n2"] == "IDLE+DRAIN rma 4711"
    assert {name: found[name]["drain"] for name in slurm.nodes} == {
        "n1": "ours",
        "n2": "theirs",
        "n3": "ours",
        "n4": "ours",
    }
    assert "slurmctld does not know new" in found["new"]["trouble"]
    assert [name for name in slurm.nodes if found[name]["trouble"]] == []


def test_a_slurm_that_hangs_is_told_and_nothing_is_sent_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole batches were drained by a sinfo that timed out (mej/nhc#161)."""

    def fail(**said: str) -> None:
        raise RuntimeError(said["msg"])

    (tmp_path / "scontrol").write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\nexec sleep 60\n')
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    loaded = module()
    given = {"nodes": ["n1"], "state": "drained", "reason": OURS, "ours": "bedplate:", "patience_s": 20}
    made = SimpleNamespace(params=given, check_mode=False, fail_json=fail)
    monkeypatch.setattr(loaded, "AnsibleModule", lambda *_, **__: made)
    monkeypatch.setattr(loaded, "DEADLINE_S", 2)
    with pytest.raises(RuntimeError) as caught:
        loaded.main()
    assert str(caught.value) == (
        "Slurm does not answer here: scontrol show nodes --json: Command '('scontrol', 'show', 'nodes', '--json')'"
        " timed out after 2 seconds"
    )
    assert (tmp_path / "asked").read_text() == "show nodes --json\n"


def test_jobs_that_end_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Slurm(n1=("ALLOCATED", ""), n2=("IDLE+COMPLETING", ""))
    slurm.looks_until_end = {"n1": 6, "n2": 3}
    found = asked(slurm, monkeypatch, "drained")
    assert found["n1"]["trouble"] == found["n2"]["trouble"] == ""
    assert slurm.states() == {"n1": f"IDLE+DRAIN {OURS}", "n2": f"IDLE+DRAIN {OURS}"}


def test_a_job_that_does_not_end_is_named_and_its_node_gets_back_what_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Slurm(n1=("MIXED", ""), n2=("IDLE", ""), n3=("ALLOCATED+DRAIN", "rma 4711"))
    found = asked(slurm, monkeypatch, "drained")
    assert found["n1"]["trouble"] == "n1 still runs 17 alice llama after 20 s: nothing was changed on it"
    assert "n3 still runs" in found["n3"]["trouble"]
    assert slurm.states() == {"n1": "MIXED", "n2": f"IDLE+DRAIN {OURS}", "n3": "ALLOCATED+DRAIN rma 4711"}


def test_a_reason_that_somebody_set_while_jobs_were_waited_for_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """An undrain that cancels the drains of others (deepops#804)."""
    slurm = Slurm(n1=("MIXED", ""), n2=("MIXED", ""))
    slurm.meanwhile = {"n1": ("MIXED+DRAIN", "HC:gpu.ecc 0123456789ab")}
    found = asked(slurm, monkeypatch, "drained")
    assert slurm.states() == {"n1": "MIXED+DRAIN HC:gpu.ecc 0123456789ab", "n2": "MIXED"}
    assert {name: found[name]["drain"] for name in ("n1", "n2")} == {"n1": "theirs", "n2": "none"}
    assert "n1 still runs" in found["n1"]["trouble"]


def test_a_node_that_somebody_resumes_while_others_are_waited_for_is_not_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It looks as a drained one: idle, no job, and the next one may come at any moment."""
    slurm = Slurm(n1=("IDLE", ""), n2=("ALLOCATED", ""))
    slurm.meanwhile = {"n1": ("IDLE", "")}
    slurm.looks_until_end = {"n2": 4}
    found = asked(slurm, monkeypatch, "drained")
    assert "n1 is IDLE: somebody resumed it while its batch was waited for" in found["n1"]["trouble"]
    assert found["n2"]["trouble"] == ""
    assert slurm.states() == {"n1": "IDLE", "n2": f"IDLE+DRAIN {OURS}"}


def test_a_node_that_slurm_is_to_reboot_is_not_changed_under_that_reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Slurm(n1=("IDLE+REBOOT_REQUESTED", ""), n2=("IDLE", ""))
    found = asked(slurm, monkeypatch, "drained")
    assert "Slurm was asked to reboot it, and did not within 20 s" in found["n1"]["trouble"]
    assert "scontrol cancel_reboot" in found["n1"]["trouble"]
    assert found["n2"]["trouble"] == ""
    booting = Slurm(n1=("MIXED+REBOOT_REQUESTED+DRAIN", "Reboot ASAP"))
    booting.meanwhile = {"n1": ("IDLE+DRAIN", "Reboot ASAP")}
    booting.commands.append("")
    assert asked(booting, monkeypatch, "drained")["n1"]["trouble"] == "", "once it has booted"


@pytest.mark.parametrize(
    ("by", "state", "reason", "after"),
    [
        ("root", "DOWN", "rma 4711", "DOWN rma 4711"),
        ("root", "IDLE+FAIL", "rma 4711", "IDLE+FAIL rma 4711"),
        ("slurm", "DOWN+NOT_RESPONDING", "Not responding", "IDLE"),  # Slurm's own word is no person's
        ("slurm", "DOWN", "Node unexpectedly rebooted", "IDLE"),  # which a whole and verified rollout disproves
        ("root", "IDLE", "was drained last week", "IDLE"),
    ],
)
def test_a_node_that_a_person_set_down_keeps_its_reason_and_is_not_given_back(
    monkeypatch: pytest.MonkeyPatch, by: str, state: str, reason: str, after: str
) -> None:
    slurm = Slurm(n1=(state, reason))
    slurm.nodes["n1"]["reason_set_by_user"] = by
    found = asked(slurm, monkeypatch, "drained")
    assert (found["n1"]["drain"], found["n1"]["trouble"]) == (
        "ours" if by == "slurm" or state == "IDLE" else "theirs",
        "",
    )
    slurm.looks_until_seen = {"n1": 1}
    assert asked(slurm, monkeypatch, "returned")["n1"]["trouble"] == ""
    assert slurm.states()["n1"] == after


def test_what_was_drained_here_is_given_back_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Slurm(
        n1=("IDLE+DRAIN", OURS), n2=("IDLE+DRAIN", "rma 4711"), n3=("IDLE", ""),
        n4=("IDLE+DRAIN", "gres/gpu count reported lower than configured (7 < 8)"), n5=("DOWN+DRAIN", OURS),
    )  # fmt: skip
    found = asked(slurm, monkeypatch, "returned")
    assert slurm.commands == ["nodename=n1,n5 state=resume"]
    assert slurm.states()["n2"] == "IDLE+DRAIN rma 4711"
    assert "gres/gpu" in slurm.states()["n4"]
    assert not any(found[name]["trouble"] for name in slurm.nodes)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(("reason", "changed"), [("", False), (OURS, False), (EARLIER, True), ("rma 4711", False)])
def test_giving_back_what_this_run_took_is_no_change(
    monkeypatch: pytest.MonkeyPatch, reason: str, *, changed: bool, check: bool
) -> None:
    slurm = Slurm(n1=("IDLE+DRAIN" if reason else "IDLE", reason))
    assert asked(slurm, monkeypatch, "returned", check=check)["changed"] == changed


def test_a_node_that_is_not_heard_of_yet_is_waited_for_and_then_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Slurm(n1=("IDLE+DRAIN+NOT_RESPONDING", OURS))
    slurm.looks_until_seen = {"n1": 5}
    assert asked(slurm, monkeypatch, "returned")["n1"]["trouble"] == ""
    assert slurm.states() == {"n1": "IDLE"}


@pytest.mark.parametrize("flag", ["NOT_RESPONDING", "INVALID_REG"])
def test_a_node_that_is_not_whole_for_slurm_stays_drained(monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
    slurm = Slurm(n1=(f"IDLE+DRAIN+{flag}", OURS))
    found = asked(slurm, monkeypatch, "returned")
    assert found["n1"]["trouble"] == f"n1 is IDLE+DRAIN+{flag} for Slurm: look at slurmd's log on it"
    assert slurm.commands == []


@pytest.mark.parametrize(("state", "node"), [("drained", ("ALLOCATED", "")), ("returned", ("IDLE+DRAIN", EARLIER))])
def test_check_mode_says_that_it_would_and_does_not(
    monkeypatch: pytest.MonkeyPatch, state: str, node: tuple[str, str]
) -> None:
    slurm = Slurm(n1=node)
    assert asked(slurm, monkeypatch, state, check=True)["changed"]
    assert slurm.commands == []
