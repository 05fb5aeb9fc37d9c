"""The health service over simulated nodes and a simulated Slurm, with a real ledger; killed at every point."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from bedplate.act.healthservice import Looking, Service, resume
from bedplate.decide.healthwatch import CHANGED, DRAINED, LEFT, RETURNED, STOPPED, seconds
from bedplate.decide.slurmnodes import SlurmNode
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
from bedplate.model.faults import NodesFailed, Refused
from bedplate_agent.sinks import Result
from bedplate_agent.verdict import ERROR, FAIL, PASS, Finding


class Killed(BaseException):
    """What a process sees of its own kill -9: nothing further."""


class World:
    """Nodes with verdicts, and a Slurm that keeps its rules; both forget nothing when the service dies."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self.fails: dict[str, str] = {}  # node -> check, or "" where it says nothing
        self.fails_a_whole_look: set[str] = set()
        self.reasons: dict[str, str] = {}
        self.flags: dict[str, set[str]] = {}
        self.now_s, self.turn = time.time(), 0  # the ledger's clock is the real one
        self.slurm_answers = True
        self.behind_our_back: dict[str, str] = {}  # what somebody sets between our look and our drain
        self.asked: list[tuple[str, str]] = []
        self.kill_at: int | None = None  # the call at which the service is killed, counted from 0
        self.calls = 0

    def _call(self) -> None:
        if self.kill_at == self.calls:
            raise Killed
        self.calls += 1

    # --- nodes

    def result(self, name: str, *, whole: bool = False) -> Result:
        run = f"{'whole' if whole else 'timer'}{self.turn:07d}"
        check = self.fails.get(name)
        if whole and name in self.fails_a_whole_look:
            check = "gpu.attendance"
        verdict = PASS if check is None else FAIL if check else ERROR
        return Result(name, verdict, (Finding(verdict, "it is so", check=check or "gpu.count"),), run)

    def reports(self, names: Sequence[str]) -> list[tuple[int, Result]]:
        self._call()
        return [(int(self.now_s) - 60, self.result(name)) for name in names]

    def look(self, names: Sequence[str]) -> list[Result]:
        self._call()
        return [self.result(name, whole=True) for name in names]

    # --- Slurm

    def nodes(self) -> Mapping[str, SlurmNode]:
        self._call()
        if not self.slurm_answers:
            raise NodesFailed("slurmctld on svc does not answer: no route to host")
        return {
            name: SlurmNode(
                name, frozenset({"IDLE", *self.flags.get(name, ()), *({"DRAIN"} if name in self.reasons else ())}),
                self.reasons.get(name, ""),
            )
            for name in self.names
        }  # fmt: skip

    def drain(self, reasons: Mapping[str, str]) -> Mapping[str, str]:
        said = {}
        for name, reason in reasons.items():
            self._call()
            self.reasons |= {name: self.behind_our_back.pop(name)} if name in self.behind_our_back else {}
            said[name] = "somebody else's reason stands there by now" if name in self.reasons else ""
            if not said[name]:
                self.reasons[name] = reason
                self.asked.append(("drain", name))
        return said

    def resume(self, reasons: Mapping[str, str]) -> Mapping[str, str]:
        for name, reason in reasons.items():
            self._call()
            assert self.reasons[name] == reason
            del self.reasons[name]
            self.asked.append(("resume", name))
        return dict.fromkeys(reasons, "")

    def later(self, seconds: float = 60) -> None:
        self.now_s += seconds
        self.turn += 1


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(f"sqlite:///{tmp_path}/ledger.sqlite3") as opened:
        yield opened


def start(ledger: Ledger, world: World, told: list[str] | None = None) -> Service:
    """A service as a fresh process has it."""
    told = [] if told is None else told
    return Service(ledger, world, world, world.names, tell=told.append, say=lambda _: None, now=lambda: world.now_s)


def kinds(ledger: Ledger, *wanted: str) -> list[tuple[str, str]]:
    return [(event.kind, event.subjects[0]) for event in ledger.events(kinds=wanted)]


EIGHT = [f"n{number}" for number in range(1, 9)]
FLEET = [f"gpu{number:03d}" for number in range(1, 661)]


def test_a_node_that_fails_is_drained_with_our_reason_and_returns_after_a_whole_look(ledger: Ledger) -> None:
    world = World(EIGHT)
    service = start(ledger, world)
    world.fails["n3"] = "gpu.remap_pending"
    service.round()
    assert world.reasons == {"n3": "HC:gpu.remap_pending timer0000000"[:60]}
    world.later()
    service.round()
    assert world.reasons.keys() == {"n3"}
    world.later()
    del world.fails["n3"]
    world.fails_a_whole_look.add("n3")
    service.round()
    assert world.reasons.keys() == {"n3"}, "its timer finds it well, a whole look does not"
    world.fails_a_whole_look.clear()
    service.round()
    assert world.reasons.keys() == {"n3"}, "one whole look for each look of its timer"
    world.later()
    service.round()
    assert world.reasons == {}
    assert kinds(ledger, DRAINED, RETURNED) == [(DRAINED, "node:n3"), (RETURNED, "node:n3")]
    assert len(kinds(ledger, CHANGED)) == 2, "an event for each change, and not for each round"


@pytest.mark.parametrize("flag", ["ALLOCATED", "MIXED", "COMPLETING", "NOT_RESPONDING", "INVALID_REG"])
def test_a_node_with_a_job_or_that_slurm_itself_finds_broken_is_not_returned(ledger: Ledger, flag: str) -> None:
    world = World(EIGHT)
    world.reasons["n3"], world.flags["n3"] = "HC:gpu.count 0123456789ab", {flag}
    service = start(ledger, world)
    service.round()
    assert world.reasons.keys() == {"n3"}
    world.flags.clear()
    service.round()
    assert world.reasons == {}


def test_what_others_drained_stays_whoever_is_well_or_not(ledger: Ledger) -> None:
    world = World(EIGHT)
    others = {"n1": "rma 4711: fan", "n2": "Not responding", "n3": "bedplate: rollout 7 to B", "n4": "hc:x"}
    world.reasons |= others
    world.fails["n1"] = "gpu.count"
    service = start(ledger, world)
    for _ in range(3):
        service.round()
        world.later()
    assert world.reasons == others
    assert world.asked == []


def test_a_reason_that_somebody_sets_in_the_moment_before_our_drain_stays(ledger: Ledger) -> None:
    world = World(EIGHT)
    world.fails["n2"], world.behind_our_back["n2"] = "gpu.count", "memory swap, Ann"
    start(ledger, world).round()
    assert world.reasons == {"n2": "memory swap, Ann"}
    assert kinds(ledger, LEFT) == [(LEFT, "node:n2")]


def test_four_of_eight_trip_the_breaker_and_a_person_is_told(ledger: Ledger) -> None:
    world, told = World(EIGHT), list[str]()
    world.fails = dict.fromkeys(EIGHT[:4], "host.time")
    service = start(ledger, world, told)
    service.round()
    assert world.reasons == {}
    (message,) = told
    assert message == (
        "host.time newly fails on 4 nodes within 10 minutes: n[1-4]. Nothing more is drained until a person has looked "
        "(more than 3 of 8)"
    )
    world.later(3600)
    world.fails["n8"] = "gpu.count"
    service.round()
    assert world.reasons == {}, "nothing more is drained, whatever the check"
    assert resume(ledger, approved_by="ann", reason="NTP is back").startswith("host.time newly fails")
    world.later()
    world.fails = {"n8": "gpu.count"}
    service.round()
    assert world.reasons.keys() == {"n8"}
    with pytest.raises(Refused, match="has not tripped"):
        resume(ledger, approved_by="ann", reason="again")


def test_five_percent_of_660_nodes_stop_it_and_two_percent_do_not(ledger: Ledger) -> None:
    world, told = World(FLEET), list[str]()
    service = start(ledger, world, told)
    world.fails = dict.fromkeys(FLEET[:13], "ib.state")
    service.round()
    assert world.reasons.keys() == set(FLEET[:13])
    assert told == []
    world.later()
    world.fails = dict.fromkeys(FLEET[:33], "ib.state")
    service.round()
    assert world.reasons.keys() == set(FLEET[:13])
    assert len(told) == 1
    assert "ib.state newly fails on 33 nodes" in told[0]
    world.later()
    world.fails = {}
    service.round()
    assert world.reasons == {}, "it drains nobody, and still returns whom it drained"


def test_five_percent_of_660_that_fail_one_check_at_once_are_told_and_none_of_them_is_drained(ledger: Ledger) -> None:
    world, told = World(FLEET), list[str]()
    many = FLEET[100:133]
    world.fails = dict.fromkeys(many, "host.time")
    start(ledger, world, told).round()
    assert world.reasons == {}
    (message,) = told
    assert message == (
        "host.time newly fails on 33 nodes within 10 minutes: gpu[101-133]. Nothing more is drained until a person has "
        "looked (more than 13 of 660)"
    )
    assert kinds(ledger, STOPPED, DRAINED) == [(STOPPED, "health:breaker")]
    assert len(kinds(ledger, CHANGED)) == 33, "what was seen is recorded all the same"
    for name in FLEET[:3]:  # it does not forget, whatever else fails, and whoever ends and starts it
        world.later(1800)
        world.fails[name] = "gpu.count"
        start(ledger, world, told).round()
    assert world.reasons == {}
    assert len(told) == 1
    resume(ledger, approved_by="ann", reason="NTP is back")
    world.later(3600)
    world.fails = {"gpu660": "ib.state"}
    start(ledger, world, told).round()
    assert world.asked == [("drain", "gpu660")]


def test_nodes_that_come_slowly_within_ten_minutes_trip_it_as_well(ledger: Ledger) -> None:
    world, told = World(EIGHT), list[str]()
    service = start(ledger, world, told)
    for name in EIGHT[:3]:
        world.fails[name] = "gpu.count"
        service.round()
        world.later(30)
    world.fails["n4"] = "gpu.count"
    start(ledger, world, told).round()
    assert world.reasons.keys() == set(EIGHT[:3])
    assert len(told) == 1


def _last_s(ledger: Ledger) -> float:
    return float(seconds(list(ledger.events())[-1].at))


def test_a_silent_node_is_told_once_and_keeps_its_jobs(ledger: Ledger) -> None:
    world, told = World(EIGHT), list[str]()
    service = start(ledger, world, told)
    world.fails["n5"] = ""
    for _ in range(3):
        service.round()
        world.later()
    assert world.reasons == {}
    assert told == ["nothing is known of n5: their health checks gave no verdict"]


def test_a_slurm_that_does_not_answer_is_told_once_and_nothing_is_done(ledger: Ledger) -> None:
    world, told = World(EIGHT), list[str]()
    world.fails["n1"], world.slurm_answers = "gpu.count", False
    service = start(ledger, world, told)
    assert [service.round(), service.round()] == [False, False]
    assert len(told) == 1
    assert kinds(ledger, CHANGED, DRAINED) == []
    world.slurm_answers = True
    assert service.round()
    assert world.reasons.keys() == {"n1"}


def test_a_node_in_a_rollout_is_left_alone_and_what_was_seen_before_its_end_is_old(ledger: Ledger) -> None:
    world = World(EIGHT)
    identity = "sha256:" + "1" * 64
    ledger.append(Draft("batch.admitted", ("rollout:1", "node:n2"), {}, identity))
    world.now_s = _last_s(ledger) + 60
    world.fails["n2"] = "driver.responds"
    service = start(ledger, world)
    service.round()
    assert world.reasons == {}
    done = ledger.append(Draft("node.done", ("rollout:1", "node:n2"), {"manifest_sha256": identity}, identity))
    assert done
    world.now_s = _last_s(ledger) + 30  # the last look was a minute ago: in the middle of the change
    service.round()
    assert world.reasons == {}
    world.now_s += 60
    service.round()
    assert world.reasons.keys() == {"n2"}


def test_a_node_with_a_ticket_is_not_returned_before_it_was_proven(ledger: Ledger) -> None:
    world = World(EIGHT)
    world.reasons["n6"] = "HC:gpu.remap_failure:gpu3 0123456789ab"
    ledger.append(Draft("node.ticket", ("node:n6",), {}))
    service = start(ledger, world)
    service.round()
    assert world.reasons.keys() == {"n6"}
    ledger.append(Draft("node.repaired", ("node:n6",), {}))
    service.round()
    assert world.reasons == {}


def story(ledger: Ledger, world: World, told: list[str], *, kill_at: int | None) -> None:
    """Faults that come and go; where it is killed, another process goes on."""
    turns: list[dict[str, str]] = [
        {}, {"n1": "gpu.count"}, {"n1": "gpu.count", "n2": "ib.state"}, {"n2": "ib.state"}, {},
        dict.fromkeys(EIGHT[2:6], "host.time"), {"n8": "gpu.count"},
    ]  # fmt: skip
    world.kill_at = kill_at
    service = start(ledger, world, told)
    for fails in turns:
        world.fails = fails
        while True:
            try:
                service.round()
                break
            except Killed:
                world.kill_at = None
                service = start(ledger, world, told)
        world.later()


def test_a_service_killed_at_any_moment_is_followed_by_one_that_does_the_same(tmp_path: Path) -> None:
    def told_and_done(kill_at: int | None) -> tuple[World, list[str], list[str]]:
        world, told = World(EIGHT), list[str]()
        with Ledger.open(f"sqlite:///{tmp_path}/ledger-{kill_at}.sqlite3") as ledger:
            story(ledger, world, told, kill_at=kill_at)
            stops = [str(event.body["why"]) for event in ledger.events(kinds=[STOPPED])]
            assert start_tripped(ledger, world)
        return world, told, stops

    whole, _, stops = told_and_done(None)
    assert whole.asked == [("drain", "n1"), ("drain", "n2"), ("resume", "n1"), ("resume", "n2")]
    assert len(stops) == 1
    for kill_at in range(whole.calls):
        world, _, stopped = told_and_done(kill_at)
        assert world.kill_at is None, "it was killed"
        assert (world.asked, world.reasons) == (whole.asked, whole.reasons), kill_at
        assert stopped == stops


def start_tripped(ledger: Ledger, world: World) -> bool:
    service = start(ledger, world)
    service.read()
    return bool(service.watch.tripped)


def test_a_dry_run_does_nothing_to_slurm(tmp_path: Path, ledger: Ledger) -> None:
    world, said = World(EIGHT), list[str]()
    world.fails["n1"] = "gpu.count"
    with Ledger.scratch(f"sqlite:///{tmp_path}/ledger.sqlite3") as scratch:
        Service(
            scratch, Looking(world, said.append), world, EIGHT, tell=said.append, say=said.append,
            now=lambda: world.now_s,
        ).round()  # fmt: skip
    assert world.reasons == {}
    assert any(line.startswith("would drain n1: HC:gpu.count") for line in said)
    assert list(ledger.events()) == []
