"""How a rollout of an environment goes: its batches, its budget, its times, and what becomes of a failed node."""

import re
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from bedplate.model.schema import Strict, said, wrong
from bedplate.model.window import REMEDY, Window, parse_window

PERCENT = re.compile(r"(\d{1,3})%")
NAMES = ("canary", "small", "rest")  # of batches, in their order; "recovery" comes before them
ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*")
DAY_S = 86400

Size = int | str  # nodes, or "10%" of the nodes that were asked for


@dataclass(frozen=True)
class Policy:
    """canary, small, batch: nodes in the first batch, in the second, and at most in each other, or a percentage.

    growth: whether the others are as large as `batch` at once, or grow up to it by `small`, or by doubling.
    rack_limit, power_limit: nodes of one rack, and of one power domain, in one batch at most; 0: no limit.
    soak_s: seconds between a batch's end and the next one, whose beginning needs the batch before still healthy.
    windows: when a batch may begin, on the clock of `timezone`. approvals: batches that wait for a person's word.
    failed_node: what is to become of a node that fails: leave it drained, roll it back, replace it by a spare.
    node_deadline_s: seconds of work on one node, waiting for its jobs apart, after which it has failed.
    acceptance: whether reference nodes must have accepted the environment where they are stand-ins, too.
    node_questions: of the acceptance, those that each changed node answers before it returns; None: what the fleet's
    reference nodes mean for it (decide/acceptancegate.py).
    """

    canary: Size
    small: Size
    batch: Size
    failure_budget: int
    growth: str = "fixed"
    rack_limit: int = 0
    power_limit: int = 0
    soak_s: int = 0
    windows: tuple[Window, ...] = ()
    timezone: str = "UTC"
    approvals: tuple[str, ...] = ()
    failed_node: str = "leave"
    node_deadline_s: int = 7200
    acceptance: str = "by-fleet"
    node_questions: tuple[str, ...] | None = None

    def as_dict(self) -> dict[str, Any]:
        """What the ledger keeps of it."""
        return asdict(self) | {
            "windows": [window.text for window in self.windows],
            "approvals": list(self.approvals),
            "node_questions": self.node_questions if self.node_questions is None else list(self.node_questions),
        }


def nodes_of(size: Size, total: int) -> int:
    """How many nodes a size is: a percentage is rounded down, and is at least one node."""
    if isinstance(size, int):
        return size
    return max(1, total * int(size.rstrip("%")) // 100)


# --- the border -----------------------------------------------------------------------------------


def _size(value: object) -> Size:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise wrong(f"found {said(value)}, wanted a number of nodes, or a percentage such as 10%")
    if isinstance(value, int):
        if value < 1:
            raise wrong(f"found the number {value}, wanted at least 1")
        return value
    share = PERCENT.fullmatch(value)
    if share is None or not 1 <= int(share[1]) <= 100:  # noqa: PLR2004  percent
        raise wrong(f'"{value}" is no size of a batch', "a number of nodes, or a percentage from 1% to 100%")
    return value


def _window(value: str) -> str:
    try:
        parse_window(value)
    except ValueError as fault:
        raise wrong(str(fault), REMEDY) from None
    return value


def _zone(value: str) -> str:
    if not ZONE.fullmatch(value):
        raise wrong(f'"{value}" is no time zone', 'as "UTC" or "Europe/Berlin"')
    return value


def _once(value: list[str]) -> list[str]:
    twice = sorted({word for word in value if value.count(word) > 1})
    if twice:
        raise wrong(f'"{twice[0]}" stands there twice', "keep one")
    return value


BatchSize = Annotated[Size, BeforeValidator(_size)]
Limit = Annotated[int, Field(ge=1)]


class PolicyShape(Strict):
    canary: BatchSize
    small: BatchSize
    batch: BatchSize
    failure_budget: Annotated[int, Field(ge=0)]
    growth: Literal["fixed", "linear", "exponential"] = "fixed"
    rack_limit: Limit | None = None
    power_limit: Limit | None = None
    soak_s: Annotated[int, Field(ge=0, le=DAY_S)] = 0
    windows: Annotated[list[Annotated[str, AfterValidator(_window)]], AfterValidator(_once)] = Field(default=[])
    timezone: Annotated[str, AfterValidator(_zone)] = "UTC"
    approvals: Annotated[list[Literal["canary", "small", "rest"]], AfterValidator(_once)] = Field(default=[])
    failed_node: Literal["leave", "rollback", "replace"] = "leave"
    node_deadline_s: Annotated[int, Field(ge=60, le=DAY_S)] = 7200
    acceptance: Literal["by-fleet", "required"] = "by-fleet"
    node_questions: (
        Annotated[list[Literal["devices", "compute", "exchange", "resume", "learning"]], AfterValidator(_once)] | None
    ) = None

    def policy(self) -> Policy:
        return Policy(
            canary=self.canary, small=self.small, batch=self.batch, failure_budget=self.failure_budget,
            growth=self.growth, rack_limit=self.rack_limit or 0, power_limit=self.power_limit or 0,
            soak_s=self.soak_s, windows=tuple(parse_window(text) for text in self.windows), timezone=self.timezone,
            approvals=tuple(self.approvals), failed_node=self.failed_node, node_deadline_s=self.node_deadline_s,
            acceptance=self.acceptance,
            node_questions=None if self.node_questions is None else tuple(self.node_questions),
        )  # fmt: skip
