"""A health profile: what a healthy machine of a model shows, each figure with where it comes from.

models/NAME.health.yml, beside the hardware model of that name. What the hardware model, the lock and the fleet say
already is not repeated here; decide/healthexpect.py puts the four together.

    expect:                                # what must be so
      gpu.pcie_width: {is: 16, source: "HGX B200 data sheet"}
    limits:                                # numbers: bounds in their unit, as text, since YAML's 0.1 is no exact number
      nvlink.rate: {unit: GB/s, fail_below: "53", implausible_above: "60", source: "…", unverified: true}
    skip:                                  # checks that make no sense on this model, with the reason
      kernel.sxid: its NVSwitches are no PCI devices
    unsaid: a laboratory machine           # skip, for this reason, each check of which nobody says what it expects
    since:                                 # checks whose answer the driver gives from a branch on
      gpu.repair_pending: {branch: 590, source: "…"}
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from bedplate.model.faults import BadInput, Fault
from bedplate.model.schema import Strict, checked, wrong
from bedplate.model.text import Document, read_yaml

SUFFIX = ".health.yml"
BOUNDS = ("fail_below", "warn_below", "warn_above", "fail_above", "implausible_above")
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?")

type Value = str | int | list[str]


@dataclass(frozen=True)
class Expected:
    """What must be so, and who says that; unverified: not read on such a machine."""

    value: Value
    source: str
    unverified: bool = False


@dataclass(frozen=True)
class Limit:
    """Bounds of a number; driver, nccl, samples: what was measured with, and on how many machines."""

    unit: str
    bounds: Mapping[str, str]
    source: str
    unverified: bool = False
    driver: str | None = None
    nccl: str | None = None
    samples: int | None = None


@dataclass(frozen=True)
class HealthProfile:
    model: str
    expect: Mapping[str, Expected] = field(default_factory=dict)
    limits: Mapping[str, Limit] = field(default_factory=dict)
    skip: Mapping[str, str] = field(default_factory=dict)
    since: Mapping[str, int] = field(default_factory=dict)
    unsaid: str = ""
    """Why checks are skipped of which nobody says what they expect; empty: that is a fault."""


def _text(value: str) -> str:
    if not value.strip():
        raise wrong("found no text", "say where it comes from")
    return value


def _decimal(value: str) -> str:
    if not _DECIMAL.fullmatch(value):
        raise wrong(f'"{value}" is no decimal number', 'like "53.1"')
    return value


Text = Annotated[str, AfterValidator(_text)]
Decimal = Annotated[str, AfterValidator(_decimal)]


class _Expected(Strict):
    is_: Annotated[Value, Field(alias="is")]
    source: Text
    unverified: bool = False


class _Limit(Strict):
    unit: str = ""
    fail_below: Decimal | None = None
    warn_below: Decimal | None = None
    warn_above: Decimal | None = None
    fail_above: Decimal | None = None
    implausible_above: Decimal | None = None
    source: Text
    unverified: bool = False
    driver: Text | None = None
    nccl: Text | None = None
    samples: Annotated[int, Field(ge=1)] | None = None


class _Since(Strict):
    branch: Annotated[int, Field(ge=1)]
    source: Text


class _Profile(Strict):
    model: str
    expect: dict[str, _Expected] = {}  # noqa: RUF012  pydantic copies it
    limits: dict[str, _Limit] = {}  # noqa: RUF012
    skip: dict[str, Text] = {}  # noqa: RUF012
    since: dict[str, _Since] = {}  # noqa: RUF012
    unsaid: Text | None = None


def parse_health_profile(text: str, file: str, *, name: str | None = None) -> HealthProfile:
    """Read models/NAME.health.yml.

    Raises:
        BadInput: every fault of the file.
    """
    document = read_yaml(text, file)
    result = checked(_Profile, document)
    faults = [*document.faults, *result.faults]
    said = result.value
    if said is not None:
        if name is not None and said.model != name:
            found = f'"{said.model}" in a file named {name}{SUFFIX}'
            faults.append(document.fault(("model",), found, "rename one of the two"))
        faults += _order(said, document)
    if faults or said is None:
        raise BadInput(faults)
    return HealthProfile(
        said.model,
        {name: Expected(one.is_, one.source, one.unverified) for name, one in said.expect.items()},
        {name: _limit(one) for name, one in said.limits.items()},
        dict(said.skip),
        {check: one.branch for check, one in said.since.items()},
        said.unsaid or "",
    )


def _limit(said: _Limit) -> Limit:
    return Limit(said.unit, _bounds(said), said.source, said.unverified, said.driver, said.nccl, said.samples)


def _bounds(said: _Limit) -> dict[str, str]:
    found: dict[str, Any] = {bound: getattr(said, bound) for bound in BOUNDS}
    return {bound: value for bound, value in found.items() if value is not None}


def _order(said: _Profile, document: Document) -> Iterator[Fault]:
    """Bounds must lie in the order of BOUNDS: a floor above the ceiling would fail every node."""
    for name, limit in said.limits.items():
        bounds = _bounds(limit)
        if not bounds:
            yield document.fault(("limits", name), "has no bound", f"add one of {', '.join(BOUNDS)}")
        values = [float(value) for value in bounds.values()]
        if values != sorted(values):
            yield document.fault(("limits", name), f"its bounds are not in the order {', '.join(bounds)}", "sort them")
