"""What a plan will do, in words and seconds: the differences nodes will see, and how long batches took before."""

import datetime
from collections.abc import Collection, Iterable, Sequence

from bedplate.decide.plan import Plan
from bedplate.model.event import Event

MINIMUM_S = 0.1
MINUTE_S = 60
ENDS = frozenset({"node.done", "node.failed", "node.unreachable"})
TIMED = ENDS | {"batch.admitted"}  # the kinds that seconds_a_batch looks at


def seconds_a_batch(events: Iterable[Event]) -> float | None:
    """The mean time from the admission of a batch to the end of its last node; None: no history."""
    began: dict[tuple[str, int], str] = {}
    ended: dict[tuple[str, int], str] = {}
    current: dict[str, tuple[str, int]] = {}
    for event in events:
        rollout = next((s for s in event.subjects if s.startswith("rollout:")), None)
        if rollout is None:
            continue
        if event.kind == "batch.admitted":
            current[rollout] = (rollout, int(event.body["batch"]))
            began[current[rollout]] = event.at
        elif event.kind in ENDS and rollout in current:
            ended[current[rollout]] = event.at
    spans = [_seconds(began[key], ended[key]) for key in began if key in ended]
    return sum(spans) / len(spans) if spans else None


def expected_duration_s(plan: Plan, history: float | None, soak_s: int = 0) -> float | None:
    """How long the plan should take, soak between its batches included; None where nothing like it was ever done."""
    if history is None:
        return None
    return round(max(MINIMUM_S, history) * len(plan.batches) + soak_s * max(0, len(plan.batches) - 1), 1)


def seconds_left(
    spans: Sequence[float], elapsed_s: float | None, waiting: int, history: float | None, soak_s: int = 0
) -> float | None:
    """How long a rollout will go on; None: neither it nor any before it has ended a batch.

    spans: of its own batches that ended, which say more than history does; elapsed_s: of the batch in flight, if one
    is; waiting: batches that did not begin.
    """
    mean = sum(spans) / len(spans) if spans else history
    if mean is None:
        return None
    in_flight = 0.0 if elapsed_s is None else max(0.0, mean - elapsed_s)
    return in_flight + waiting * (mean + soak_s)


def span(seconds: float) -> str:
    """For a person: 45 s, 12 min, 3 h 20 min."""
    if seconds < 2 * MINUTE_S:
        return f"{seconds:.0f} s"
    minutes = round(seconds / MINUTE_S)
    if minutes < 2 * MINUTE_S:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def leaving(runs: Collection[str | None], target: str) -> list[str]:
    """The environments that nodes leave, most common first."""
    counts: dict[str, int] = {}
    for identity in runs:
        if identity and identity != target:
            counts[identity] = counts.get(identity, 0) + 1
    return sorted(counts, key=lambda identity: -counts[identity])


def _seconds(start: str, end: str) -> float:
    moment = datetime.datetime.fromisoformat
    return (moment(end) - moment(start)).total_seconds()
