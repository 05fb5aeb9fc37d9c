"""The one that drains: reads what nodes found of themselves, and has Slurm keep jobs away from those that failed.

- What is remembered is in the ledger and in Slurm: a process that is killed at any moment is followed by one that
  knows the same (decide/healthwatch.py). A decision is recorded before it is carried out.
- A node returns after a look of its own at everything that may be asked of an idle node, which this process makes when
  the node's timer finds it well and its jobs have ended.
- Slurm or a ledger that does not answer is no reason to do anything: the round is over, and the next one tries again.
- One at a time for a ledger.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bedplate.decide import healthwatch
from bedplate.decide.fold import NOTHING, Status, World
from bedplate.decide.fold import fold as fold_events
from bedplate.decide.healthdrain import DRAIN, UNDRAIN, Watch, chosen, decide, most
from bedplate.decide.healthfleet import compared
from bedplate.decide.slurmnodes import SlurmNode
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
from bedplate.model.faults import BedplateError, NodesFailed, Refused
from bedplate.model.nodes import fold
from bedplate_agent.sinks import PREFIX, Result, rows
from bedplate_agent.verdict import PASS, WARN


class Scheduler(Protocol):
    """What is asked of Slurm; act/slurm.py for real."""

    def nodes(self) -> Mapping[str, SlurmNode]: ...
    def drain(self, reasons: Mapping[str, str]) -> Mapping[str, str]: ...
    def resume(self, reasons: Mapping[str, str]) -> Mapping[str, str]: ...


class Eyes(Protocol):
    """What is asked of nodes; observe/healthreports.py for real."""

    def reports(self, names: Sequence[str]) -> list[tuple[int, Result]]:
        """What their timers wrote last: when, and what."""
        ...

    def look(self, names: Sequence[str]) -> list[Result]:
        """Everything that may be asked of an idle node, now."""
        ...


class Looking:
    """Slurm as it is, and nothing done to it: for a dry run."""

    def __init__(self, real: Scheduler, say: Callable[[str], None]) -> None:
        self._real, self._say = real, say

    def nodes(self) -> Mapping[str, SlurmNode]:
        return self._real.nodes()

    def drain(self, reasons: Mapping[str, str]) -> Mapping[str, str]:
        for name, reason in reasons.items():
            self._say(f"would drain {name}: {reason}")
        return dict.fromkeys(reasons, "")

    def resume(self, reasons: Mapping[str, str]) -> Mapping[str, str]:
        for name in reasons:
            self._say(f"would return {name}")
        return dict.fromkeys(reasons, "")


@dataclass
class Service:
    """Rounds over a fleet. tell: for a person, at once; say: for the log."""

    ledger: Ledger
    scheduler: Scheduler
    eyes: Eyes
    fleet: Sequence[str]
    tell: Callable[[str], None]
    say: Callable[[str], None]
    now: Callable[[], float] = time.time
    watch: Watch = field(default_factory=Watch)
    world: World = NOTHING
    trouble: str = ""
    tried: dict[str, str] = field(default_factory=dict)  # node -> the run of its timer after which it did not return

    def read(self) -> None:
        """Catch up with the ledger."""
        events = list(self.ledger.events(after=self.world.head))
        self.watch, self.world = healthwatch.watch(events, self.watch), fold_events(events, self.world)

    def round(self) -> bool:
        """Look, decide, record, act. False: who was asked did not answer, and nothing was done."""
        try:
            self.read()
            known = self.scheduler.nodes()
            self._round(known)
        except BedplateError as fault:
            if str(fault) != self.trouble:
                self.tell(f"nothing is drained or returned: {fault}")
            self.trouble = str(fault)
            return False
        if self.trouble:
            self.say("there is an answer again")
        self.trouble = ""
        return True

    def _round(self, known: Mapping[str, SlurmNode]) -> None:
        names = [name for name in self.fleet if name in known]
        if not names:
            raise NodesFailed(f"Slurm knows none of {fold(self.fleet)}")
        timed = self.eyes.reports(names)
        when = {result.node: at for at, result in timed}
        results = {result.node: result for result in compared([result for _, result in timed])}
        busy = {name for name in names if self.world.state(name).status is Status.IN_DOUBT}
        # What was looked at before its last change ended says nothing of what it is now.
        current = [(when[name], result) for name, result in results.items() if when[name] > self._changed_s(name)]
        drained = {name: known[name].reason for name in names if known[name].out or known[name].reason}
        step = decide(
            self.watch, now_s=int(self.now()), fleet=len(names), results=current, drained=drained, busy=busy,
        )  # fmt: skip
        self.ledger.append(*healthwatch.drafts(self.watch, step, results, fleet=len(names)))
        for text in healthwatch.told(step):
            self.tell(text)
        self._drain(chosen(step.actions, DRAIN), results)
        self._give_back(chosen(step.actions, UNDRAIN), known, results)
        self.read()

    def _changed_s(self, name: str) -> int:
        at = self.world.state(name).at
        return healthwatch.seconds(at) if at else 0

    def _drain(self, reasons: Mapping[str, str], results: Mapping[str, Result]) -> None:
        for name, why in self.scheduler.drain(reasons).items():
            if why:
                self._left(name, f"drain for {reasons[name]}", why)
            else:
                told = rows([results[name]])
                self.say(f"drained {name}: {reasons[name]}" + (f" ({told[0][4]})" if told else ""))

    def _give_back(
        self, reasons: Mapping[str, str], known: Mapping[str, SlurmNode], results: Mapping[str, Result]
    ) -> None:
        ready = [
            name for name in reasons
            if known[name].whole and not known[name].busy and self.tried.get(name) != results[name].run
        ]  # fmt: skip
        if not ready:
            return
        for name in ready:
            self.tried[name] = results[name].run
        passed = {}
        for result in self.eyes.look(ready):
            if result.verdict in (PASS, WARN):
                passed[result.node] = result
            else:
                told = rows([result])
                why = f"{told[0][2]}: {told[0][4]}" if told else ""
                self.say(f"{result.node} stays drained: its timer finds it well, a whole look {result.verdict}: {why}")
        back = {name: reasons[name] for name in sorted(passed)}
        self.ledger.append(*(
            Draft(healthwatch.RETURNED, (f"node:{name}",), {"reason": reason, "run": passed[name].run})
            for name, reason in back.items()
        ))  # fmt: skip
        for name, why in self.scheduler.resume(back).items():
            if why:
                self._left(name, "return", why)
            else:
                self.say(f"returned {name}, which was drained for {back[name]}")

    def _left(self, name: str, asked: str, why: str) -> None:
        self.say(f"{name} is left as it is ({asked}): {why}")
        self.ledger.append(Draft(healthwatch.LEFT, (f"node:{name}",), {"asked": asked, "why": why}))


def resume(ledger: Ledger, *, approved_by: str, reason: str) -> str:
    """Let the service drain again; what had stopped it.

    Raises:
        Refused: nothing has.
    """
    state = healthwatch.watch(ledger.events(kinds=healthwatch.KINDS))
    if not state.tripped:
        raise Refused("the breaker has not tripped: there is nothing to resume")
    body = {"approved_by": approved_by, "reason": reason, "why": state.tripped}
    ledger.append(Draft(healthwatch.RESUMED, ("health:breaker",), body))
    return state.tripped


def summary(state: Watch, known: Mapping[str, SlurmNode], fleet: int) -> str:
    ours = sorted(name for name, node in known.items() if node.reason.startswith(PREFIX))
    return (
        f"{fleet} nodes, {len(ours)} of them drained by us{': ' + fold(ours) if ours else ''}; "
        f"at most {most(fleet)} may newly fail one check within ten minutes"
        + (f"; STOPPED, nothing is drained: {state.tripped}" if state.tripped else "")
    )
