"""The profile: what a node must be, as its controller computed it; the agent only reads it.

{"schema": 1, "node": "gpu001", "model": "hgx-b200", "environment": "2026.11-a", "sha256": "…",
"expect": {"gpu.count": 8, "gpu.name": "NVIDIA B200"},
"limits": {"nvlink.rate": {"fail_below": "53.0", "implausible_above": "60", "unit": "GB/s"}},
"skip": {"kernel.sxid": "its NVSwitches are no PCI devices"}}
"""

from __future__ import annotations

from typing import Any, NamedTuple

from bedplate_agent.verdict import ERROR, FAIL, PASS, WARN

SCHEMA = 1
BOUNDS = ("fail_below", "warn_below", "warn_above", "fail_above", "implausible_above")


class Silent(Exception):
    """The profile does not say what a check needs: nothing can be judged."""


class Held(NamedTuple):
    """A number held against its limits; limit: the bound that it broke."""

    verdict: str
    limit: str
    unit: str
    why: str


class Limits(NamedTuple):
    """Bounds of a number, in its unit; a number beyond `implausible_above` is a wrong measurement, not a good one."""

    unit: str
    bounds: dict[str, float]

    def hold(self, value: float) -> Held:
        above, below = self.bounds.get, self.bounds.get
        if value != value or ((top := above("implausible_above")) is not None and value > top):  # noqa: PLR0124  NaN
            return Held(ERROR, f"{above('implausible_above', 0):g}", self.unit, "is not plausible")
        for bound, verdict in (("fail_below", FAIL), ("warn_below", WARN)):
            if (floor := below(bound)) is not None and value < floor:
                return Held(verdict, f"{floor:g}", self.unit, "is below")
        for bound, verdict in (("fail_above", FAIL), ("warn_above", WARN)):
            if (ceiling := above(bound)) is not None and value > ceiling:
                return Held(verdict, f"{ceiling:g}", self.unit, "is above")
        return Held(PASS, "", self.unit, "")


class Profile:
    def __init__(self, document: Any) -> None:
        """Read a profile.

        Raises:
            ValueError: it is none.
        """
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise ValueError(f"no profile of schema {SCHEMA}")
        for part in ("expect", "limits", "skip"):
            if not isinstance(document.get(part), dict):
                raise ValueError(f'the profile has no "{part}"')  # noqa: TRY004  no fault of a program
        for name, limits in document["limits"].items():
            if not isinstance(limits, dict) or not any(bound in limits for bound in BOUNDS):
                raise ValueError(f"limits of {name}: none of {', '.join(BOUNDS)}")
        self.document = document
        self.node = str(document.get("node", ""))
        self._limits = {name: _limits(name, limits) for name, limits in document["limits"].items()}

    def skipped(self, check: str) -> str | None:
        """Why a check is not made on this kind of node."""
        reason = self.document["skip"].get(check)
        return None if reason is None else str(reason)

    def value(self, name: str) -> Any:
        try:
            found = self.document["expect"][name]
        except KeyError:
            raise Silent(f"the profile does not say {name}") from None
        if found is None:
            raise Silent(f"the profile says nothing for {name}")
        return found

    def text(self, name: str) -> str:
        return str(self._of(name, str))

    def number(self, name: str) -> int:
        return int(self._of(name, int))

    def words(self, name: str) -> list[str]:
        found = self._of(name, list)
        if not all(isinstance(word, str) for word in found):
            raise Silent(f"the profile's {name} is no list of words")
        return list(found)

    def limits(self, name: str) -> Limits:
        try:
            return self._limits[name]
        except KeyError:
            raise Silent(f"the profile has no limits for {name}") from None

    def _of(self, name: str, kind: type) -> Any:
        found = self.value(name)
        if not isinstance(found, kind) or isinstance(found, bool):
            raise Silent(f"the profile's {name} is {found!r}, no {kind.__name__}")
        return found


def _limits(name: str, said: dict[str, Any]) -> Limits:
    try:
        return Limits(str(said.get("unit", "")), {bound: float(said[bound]) for bound in BOUNDS if bound in said})
    except (TypeError, ValueError):
        raise ValueError(f"limits of {name}: not all of them are numbers") from None
