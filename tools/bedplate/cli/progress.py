"""Draws a rollout while it runs: a live table in a terminal, a line for each change elsewhere; and when it may end."""

import datetime
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from bedplate.cli.whole import pointer
from bedplate.decide.brief import brief, on_one_line
from bedplate.decide.fold import BAD, NodeState, Status, World
from bedplate.decide.forecast import seconds_left, span
from bedplate.decide.plan import Batch, Plan
from bedplate.model.nodes import fold as fold_names

WHY_SHOWN = 200  # characters of a reason; where all of it is follows it
LOST = BAD - {Status.IN_DOUBT}  # while a rollout runs, a node in doubt is one that is being changed


class Progress:
    """follow() is called with the folded ledger while the rollout runs.

    events_of: the events that say why nodes are what they are, for texts that a line has no room for.
    """

    def __init__(
        self, plan: Plan, *, history_s: float | None, soak_s: int, budget: int, quiet: bool,
        events_of: Callable[[Mapping[str, NodeState]], Mapping[str, int]] = lambda _: {},
    ) -> None:  # fmt: skip
        self.events_of = events_of
        self.plan, self.history_s, self.soak_s, self.budget, self.quiet = plan, history_s, soak_s, budget, quiet
        self.live = Live(console=Console(), refresh_per_second=4) if sys.stdout.isatty() and not quiet else None
        self._said: dict[str, str] = {}
        self._began: dict[int, datetime.datetime] = {}
        self._spans: dict[int, float] = {}

    def __enter__(self) -> Self:
        if self.live:
            self.live.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.live:
            self.live.__exit__(None, None, None)

    def follow(self, world: World, number: int) -> None:
        if self.quiet:
            return
        now = datetime.datetime.now(datetime.UTC)
        states = [
            {name: world.state(name) for name in batch.nodes if world.state(name).rollout == number}
            for batch in self.plan.batches
        ]
        ended = [index for index in range(len(states)) if self._time(index, states[index], now)]
        if self.live:
            self.live.update(self.table(states, now))
            return
        for index, batch in enumerate(self.plan.batches):
            self._lines(index, batch, states[index])
            if index in ended:
                click.echo(f"  batch {index + 1}/{len(states)} {batch.name}: {self.ended(index, states, now)}")

    def _time(self, index: int, states: Mapping[str, NodeState], now: datetime.datetime) -> bool:
        """Note when a batch began and ended, by what the ledger says; whether it ended since the last time."""
        if not states or index in self._spans:
            return False
        times = [datetime.datetime.fromisoformat(state.at) for state in states.values() if state.at]
        running = [state for state in states.values() if state.status is Status.IN_DOUBT]
        self._began.setdefault(index, min(times, default=now))
        if running or len(states) < len(self.plan.batches[index].nodes):
            return False
        self._spans[index] = max(0.0, (max(times, default=now) - self._began[index]).total_seconds())
        return True

    def _left_s(self, now: datetime.datetime) -> float | None:
        running = [began for index, began in self._began.items() if index not in self._spans]
        elapsed = max(0.0, (now - min(running)).total_seconds()) if running else None
        waiting = len(self.plan.batches) - len(self._began)
        return seconds_left(list(self._spans.values()), elapsed, waiting, self.history_s, self.soak_s)

    def outlook(self, states: Sequence[Mapping[str, NodeState]], now: datetime.datetime) -> str:
        """How far it is, and when it may end: one line."""
        known = [state for batch in states for state in batch.values()]
        done = sum(state.status is Status.VERIFIED for state in known)
        bad = sum(state.status in LOST for state in known)
        said = f"{done} of {len(self.plan.nodes)} nodes done, {bad} bad, failure budget {self.budget}"
        left = self._left_s(now)
        if left is None:
            return f"{said}; how long it will take is not known yet"
        if not left:
            return said
        until = now + datetime.timedelta(seconds=left)
        return f"{said}; about {span(left)} left, until {until:%H:%M} UTC"

    def ended(self, index: int, states: Sequence[Mapping[str, NodeState]], now: datetime.datetime) -> str:
        """The line at the end of a batch."""
        done = sum(state.status is Status.VERIFIED for state in states[index].values())
        took = f"{done} of {len(states[index])} nodes in {span(self._spans[index])}"
        return f"{took}; {self.outlook(states, now)}"

    def _lines(self, index: int, batch: Batch, states: Mapping[str, NodeState]) -> None:
        for name, state in states.items():
            why = brief(state.why or "", WHY_SHOWN)
            word = str(state.status) + (f" at {state.step!r}: {why}" if why else "")
            if self._said.get(name) != word:
                self._said[name] = word
                shown = "begun" if state.status is Status.IN_DOUBT else word
                if len(on_one_line(state.why or "")) > WHY_SHOWN:
                    shown += pointer(self.events_of({name: state}).get(name))
                click.echo(f"  batch {index + 1}/{len(self.plan.batches)} {batch.name}: {name}: {shown}")

    def table(self, states: Sequence[Mapping[str, NodeState]], now: datetime.datetime) -> Table:
        """What is where; nodes that do the same stand together, for a batch may have a hundred."""
        table = Table(
            "batch", "nodes", "done", "running", "bad", header_style="bold", caption=self.outlook(states, now)
        )
        table.caption_justify = "left"
        for index, batch in enumerate(self.plan.batches):
            here = states[index]
            done = sum(state.status is Status.VERIFIED for state in here.values())
            running = _together({n: s.step or "begun" for n, s in here.items() if s.status is Status.IN_DOUBT})
            bad = _together({n: f"{s.status} at {s.step}" for n, s in here.items() if s.status in LOST})
            table.add_row(f"{index + 1} {batch.name}", fold_names(batch.nodes), str(done), running, bad)
        return table


def _together(words: Mapping[str, str]) -> str:
    by: dict[str, list[str]] = {}
    for name, word in words.items():
        by.setdefault(word, []).append(name)
    return "\n".join(f"{fold_names(names)}: {word}" for word, names in by.items())
