"""playbooks/reinstall.yml: a rollout with an installation in it, refused without a person's word."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import yaml

from bedplate.act import controllerlock, rollout
from bedplate.act import lock as locks
from bedplate.cli.main import bedplate
from bedplate.doors import plan as plan_door
from bedplate.doors import site as site_door
from bedplate.doors.plan import refuse_reinstall
from bedplate.model.faults import BadInput, Refused
from bedplate.sources import checkout
from bedplate.sources.site import open_site
from unit.netboot_sample import write_example
from unit.simulation import Simulation
from unit.site_sample import replace_in, write_site

PLAYBOOKS = checkout.root() / "playbooks"


def play(name: str) -> dict[str, Any]:
    document: list[dict[str, Any]] = yaml.safe_load((PLAYBOOKS / name).read_text())
    return document[0]


def test_it_is_a_rollout_with_an_installation_between_drain_and_converge() -> None:
    ours, theirs = play("reinstall.yml"), play("rollout.yml")
    own = [
        {"name": "Install", "ansible.builtin.import_tasks": "steps/install.yml"},
        {"name": "Take the new node", "ansible.builtin.import_tasks": "steps/take.yml"},
    ]
    # A node that is to be installed anew is not left because it is the lock's already.
    left = ("Find nodes that are the lock's already", "Leave a node that is the lock's already")
    assert [task for task in ours["tasks"] if task not in own] == [t for t in theirs["tasks"] if t["name"] not in left]
    assert {task["name"] for task in theirs["tasks"]} > set(left)
    names = [task["name"] for task in ours["tasks"]]
    assert names.index("Drain") < names.index("Install") < names.index("Take the new node") < names.index("Converge")
    apart = {"name", "tasks", "vars"}
    assert {k: v for k, v in ours.items() if k not in apart} == {k: v for k, v in theirs.items() if k not in apart}
    assert "reinstall=true" in ours["vars"]["bedplate_plan"]


def commands(tasks: list[dict[str, Any]]) -> Iterator[str]:
    for task in tasks:
        if command := task.get("ansible.builtin.command"):
            yield command["argv"]
        yield from commands(task.get("block", []))


def test_every_option_of_its_commands_is_one() -> None:
    found = list(commands(yaml.safe_load((PLAYBOOKS / "steps/install.yml").read_text())))
    assert len(found) == 3
    for text in found:
        words = [word.strip().strip("'") for word in text.partition("[")[2].rpartition("]")[0].split(",")]
        group = bedplate.get_command(click.Context(bedplate), words[0])
        assert isinstance(group, click.Group)
        known = {name for option in group.commands[words[1]].params for name in option.opts}
        assert {word for word in words if word.startswith("--")} <= known, text


def test_without_a_persons_word_and_without_the_sections_it_is_refused(tmp_path: Path) -> None:
    root = write_site(tmp_path / "site")
    with pytest.raises(Refused, match="approved_by=NAME"):
        refuse_reinstall(open_site(root), " ")
    with pytest.raises(BadInput, match="no netboot section"):
        refuse_reinstall(open_site(root), "Ann")
    example = write_example(tmp_path / "example")
    with pytest.raises(Refused, match="example"):
        refuse_reinstall(open_site(example), "Ann")
    replace_in(example / "fleet.yml", "example: true", "example: false")
    with pytest.raises(BadInput, match="no bmc section"):
        refuse_reinstall(open_site(example), "Ann")
    (example / "fleet.yml").write_text((example / "fleet.yml").read_text() + "\nbmc: {verify: system}\n")
    refuse_reinstall(open_site(example), "Ann")


def test_it_takes_nodes_that_run_the_target_already_and_the_ledger_says_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = Simulation(tmp_path)
    monkeypatch.setattr(locks, "verify_online", lambda *_: [])
    order = rollout.Order("A", limit={"n1"}, reinstall=True, approved_by="Ann")
    session = rollout.Session(sim.site, order, dry=True)
    started = [event.body for event in session.ledger.events(kinds=["rollout.started"])]
    assert session.plan.nodes == ["n1"]
    assert started[-1]["reinstall"] is True
    assert started[-1]["approved_by"] == "Ann"
    session.ledger.close()


@pytest.mark.parametrize(("said", "reinstall"), [({"reinstall": True}, True), ({}, False)])
def test_the_playbooks_word_reaches_the_rollout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any], reinstall: bool
) -> None:
    sim = Simulation(tmp_path)
    orders: list[rollout.Order] = []
    monkeypatch.setattr(plan_door, "context", SimpleNamespace(CLIARGS={"tags": ("all",)}))
    monkeypatch.setattr(site_door, "current", lambda: sim.site)
    monkeypatch.setattr(plan_door, "refuse_reinstall", lambda *_: None)
    monkeypatch.setattr(rollout, "Session", lambda _site, order, **_: orders.append(order))
    plan_door._open("A", {}, said | {"approved_by": "Ann"})
    assert [order.reinstall for order in orders] == [reinstall]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "why"), [([], "approved_by=NAME"), (["-e", "approved_by=Ann"], "no netboot section")]
)
def test_ansible_refuses_it_before_anything_is_contacted(tmp_path: Path, words: list[str], why: str) -> None:
    sim = Simulation(tmp_path)
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", sim.root / "fleet.yml",
         PLAYBOOKS / "reinstall.yml", "-e", "target=A", *words],
        cwd=checkout.root(), text=True, capture_output=True, check=False,
        env=os.environ | {
            "ANSIBLE_CONFIG": str(checkout.root() / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "COLUMNS": "1000",
        },
    )  # fmt: skip
    assert done.returncode
    assert why in done.stdout + done.stderr
    assert not (sim.root / controllerlock.LOCK_FILE).exists()
