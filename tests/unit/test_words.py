"""What plays are asked with (-e): a word that nothing reads, or that says nothing, is refused before all else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bedplate.act import controllerlock
from bedplate.doors import site as site_door
from bedplate.doors.words import count, refuse_unread, truth
from bedplate.model.faults import BadInput, Refused
from bedplate.sources import checkout
from unit.simulation import Simulation
from unit.site_sample import replace_in

WORDS = frozenset({"target", "recheck", "failure_budget"})


def asked(site: Path, playbook: str, *words: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), f"playbooks/{playbook}.yml", *words],
        cwd=checkout.root(), text=True, capture_output=True, check=False, timeout=120,
        env=os.environ | {
            "ANSIBLE_INVENTORY": str(site / "fleet.yml"), "ANSIBLE_NOCOLOR": "1", "COLUMNS": "1000",
            "ANSIBLE_CONFIG": str(checkout.root() / "ansible.cfg"), **(env or {}),
        },
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Simulation:
    return Simulation(tmp_path_factory.mktemp("words"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("playbook", "words", "said"),
    [
        ("rollout", ["target=A", "nodes=n8"], "-e nodes: a rollout reads no such variable (did you mean --limit n8 ?)"),
        ("rollback", ["target=A", "limit=n[1-2]"], "(did you mean --limit n1,n2 ?)"),
        ("site", ["env=A"], "(did you mean -e target=A ?)"),
        ("rollout", ["target=A", "reinstall=true"], "it reads accept, approve, approved_by, failure_budget, "),
        ("reinstall", ["target=A", "approved_by=Ann", "repair=false"], "a reinstallation reads no such variable"),
        ("verify", ["hosts=n8"], "-e hosts: a verification reads no such variable (did you mean --limit n8 ?)"),
        ("verify", ["target=AA"], 'environments: no environment "AA" (there: A)'),
        ("rollout", ["target=A", "recheck=maybe"], "-e recheck=maybe: it may be true or false"),
        ("site", ["target=A", "repair=nope"], "-e repair=nope: it may be true or false"),
        ("rollout", ["target=A", "failure_budget=lots"], "-e failure_budget=lots: it may be a number of nodes, 0 or"),
    ],
)
def test_it_is_refused_with_what_to_say_and_nothing_is_recorded(
    sim: Simulation, playbook: str, words: list[str], said: str
) -> None:
    code, out = asked(sim.root, playbook, *(part for word in words for part in ("-e", word)))
    assert code != 0, out
    assert said in out
    assert "TASK [" not in out
    assert sim.world().rollouts == {}
    assert not (sim.root / controllerlock.LOCK_FILE).exists()


@pytest.mark.slow
@pytest.mark.parametrize(("chosen", "said"), [(True, "-i $BEDPLATE_SITE/fleet.yml"), (False, "-i SITE/fleet.yml")])
def test_who_set_the_commands_variable_is_told_what_ansible_wants(tmp_path: Path, chosen: bool, said: str) -> None:
    sim = Simulation(tmp_path)
    replace_in(sim.root / "fleet.yml", "site: sample", "site: sample\nexample: true")
    env = {"BEDPLATE_SITE": str(tmp_path) if chosen else ""}
    for playbook in ("rollout", "verify"):
        code, out = asked(sim.root, playbook, "-e", "target=A", env=env)
        assert code != 0, out
        assert f"ansible-playbook {said}" in out
        assert "--site" not in out


def test_words_of_roles_of_the_wiring_of_ansible_and_of_the_site_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_door, "parsed", [tmp_path])
    variables = tmp_path / "group_vars" / "all"
    variables.mkdir(parents=True)
    (variables / "own.yml").write_text('rack_word: 1  # for nodes\nansible_port: "{{ port_word | default(22) }}"\n')
    # kernel_held: an option of a role alone; slurm_munge_key: of the wiring
    for name in (
        "target",
        "kernel_held",
        "slurm_munge_key",
        "ansible_port",
        "rack_word",
        "port_word",
        "bedplate_reboot_timeout_s",
    ):
        refuse_unread({name: "x"}, WORDS, "a rollout")
    with pytest.raises(Refused, match="-e nodes"):
        refuse_unread({"nodes": "x"}, WORDS, "a rollout")


@pytest.mark.parametrize(
    ("name", "said", "meant"),
    [
        ("failure_bugdet", "0", ' (did you mean "failure_budget"?)'),
        ("kernel_hold", "x", ' (did you mean "kernel_held"?)'),
        ("bedplate_reboot_timeout", "9", ' (did you mean "bedplate_reboot_timeout_s"?)'), ("bedplate_plan", "{}", ""),
        ("nodes", "a b;c", " (did you mean --limit n1,n2 ?)"), ("check", "true", " (did you mean --check ?)"),
        ("zzz", "x", ""),
    ],
)  # fmt: skip
def test_what_was_meant_is_guessed(name: str, said: str, meant: str) -> None:
    with pytest.raises(Refused) as caught:
        refuse_unread({name: said}, WORDS, "a rollout")
    assert str(caught.value) == (
        f"-e {name}: a rollout reads no such variable{meant}; it reads failure_budget, recheck, target"
    )


def test_values() -> None:
    assert [truth("recheck", said) for said in (True, "yes", "on", 1, "True")] == [True] * 5
    assert [truth("recheck", said) for said in (False, "no", "off", 0, "False")] == [False] * 5
    assert [count("failure_budget", said) for said in (0, "3", -1)] == [0, 3, -1]
    for said in ("", "maybe", None, 2):
        with pytest.raises(BadInput, match="true or false"):
            truth("recheck", said)
    for wrong in ("lots", "1.5", True, "10%", ""):
        with pytest.raises(BadInput, match="number of nodes"):
            count("failure_budget", wrong)
