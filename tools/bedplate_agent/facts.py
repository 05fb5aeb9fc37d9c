"""What the node said, understood: a parser's result for each probe, made when a check asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bedplate_agent.parse import parser
from bedplate_agent.parse.text import NotUnderstood
from bedplate_agent.probe import ABANDONED, ABSENT, DONE, DRIVER, LATE, UNASKED, Probe, Raw

DRIVER_SAYS = "driver.responds"
LARGEST = 32 * 1024 * 1024  # characters; the largest real answer is a kernel log of some megabytes


class Unreadable(Exception):
    """A probe told nothing that can be judged; because: the check that says why."""

    def __init__(self, why: str, because: str = "") -> None:
        super().__init__(why)
        self.because = because


class Facts:
    """Raws by probe id, read as facts; the same raws always give the same facts."""

    def __init__(self, raws: Mapping[str, Raw], probes: Mapping[str, Probe]) -> None:
        self.raws = raws
        self.probes = probes
        self._known: dict[str, Any] = {}

    def __getitem__(self, probe: str) -> Any:
        """The facts of a probe.

        Raises:
            Unreadable: there are none.
        """
        if probe not in self._known:
            try:
                self._known[probe] = self._read(probe)
            except Unreadable as why:
                self._known[probe] = why
        found = self._known[probe]
        if isinstance(found, Unreadable):
            raise Unreadable(str(found), found.because)
        return found

    def raw(self, probe: str) -> Raw:
        """What came of a probe, for the check that judges just that."""
        try:
            return self.raws[probe]
        except KeyError:
            raise Unreadable(f"{probe} was not asked") from None

    def _read(self, probe: str) -> Any:
        raw = self.raw(probe)
        asked = self.probes.get(probe)
        if asked is None:
            raise Unreadable(f"{probe} is no probe of this profile")
        try:
            return understood(asked, raw)
        except Unreadable as fault:
            if asked.stage == DRIVER and probe != "smi":
                try:
                    self["smi"]
                except Unreadable as driver:
                    raise Unreadable(str(driver), DRIVER_SAYS) from fault
            unasked = asked.stage == DRIVER and asked.argv[0] == "nvidia-smi" and self._driver_was_late()
            because = fault.because or (DRIVER_SAYS if probe == "smi" or unasked else "")
            raise Unreadable(str(fault), because) from fault

    def _driver_was_late(self) -> bool:
        """Whether driver.responds says why: an answer that is missing only for want of time is told by itself."""
        states = (raw.state for name, raw in self.raws.items() if name in self.probes and self._asks_driver(name))
        return any(state in (LATE, ABANDONED) for state in states)

    def _asks_driver(self, name: str) -> bool:
        probe = self.probes[name]
        return probe.stage == DRIVER and probe.argv[0] == "nvidia-smi"


def understood(probe: Probe, raw: Raw) -> Any:
    """A raw as facts.

    Raises:
        Unreadable: it is not whole, or not understood.
    """
    what = probe.argv[0] if probe.argv else probe.id
    if raw.state == ABSENT:
        raise Unreadable(f"{what}: {raw.why or 'no such program'}")
    if raw.state == UNASKED:
        raise Unreadable(raw.why or "not asked")
    if raw.state != DONE:
        raise Unreadable(f"{what}: {raw.why or raw.state}")
    if raw.code not in probe.codes:
        said = (raw.err.strip() or raw.out.strip()).splitlines()
        raise Unreadable(f"{what} ended with {raw.code}" + (f": {plain(said[-1])}" if said else ""))
    if len(raw.out) > LARGEST:
        raise Unreadable(f"{what} said more than {LARGEST} characters")
    if not raw.out.strip():
        raise Unreadable(f"{what} said nothing")
    if not raw.out.endswith("\n"):
        raise Unreadable(f"{what}: its answer is cut off in the middle of a line")
    if not probe.foreign and not raw.out.isascii():
        letter = next(letter for letter in raw.out if ord(letter) > 127)  # noqa: PLR2004  the end of ASCII
        raise Unreadable(f"{what} said U+{ord(letter):04X}: not the C locale, or damaged")
    try:
        return parser(probe.id)(raw.out)
    except NotUnderstood as fault:
        raise Unreadable(f"{what}: {plain(str(fault))}") from fault


def plain(text: str, longest: int = 200) -> str:
    """A text that steers no terminal and has an end."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:longest])
