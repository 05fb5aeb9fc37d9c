"""One BMC: asked and told, through Redfish or IPMI. Passwords stand in no argv, no message and no record."""

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import requests
import sushy
import sushy.auth
import sushy.exceptions
import urllib3

from bedplate import process
from bedplate.decide.power import Action
from bedplate.model.bmc import Login
from bedplate.model.faults import BedplateError

CONNECT_S, READ_S = 10, 60
SETTLE_S = 120.0  # from the command to the state: power supplies and BMCs take up to a minute
LOOK_S = 2.0
IPMI_S = 60.0
# It reports each failure by itself as well, on stderr; the outcome says it once.
logging.getLogger("sushy").addHandler(logging.NullHandler())


class Unanswered(BedplateError):
    """A BMC gave no answer, or another one than was asked for."""

    exit_code = 4


@dataclass(frozen=True)
class Said:
    """What a BMC says of its machine; power: on, off, or what it calls something else."""

    power: str
    serial: str | None
    firmware: str | None = None


class Machine(Protocol):
    by: str

    def look(self) -> Said:
        """Ask.

        Raises:
            Unanswered: no answer.
        """

    def order(self, action: Action, *, power: str, uefi: bool) -> None:
        """Tell; power: the state it is in.

        Raises:
            Unanswered: it was not taken.
        """


class Redfish:
    """Through Redfish; serial: chooses the system where a BMC has several (an HGX baseboard is one of its own)."""

    by = "redfish"

    def __init__(self, url: str, login: Login, *, verify: str | bool, serial: str) -> None:
        self.url, self.login, self.verify, self.serial = url, login, verify, serial
        self._system: Any = None

    def look(self) -> Said:
        with _plainly(self.login):
            if self._system is None:
                self._system = self._found()
            else:
                self._system.refresh(force=True)
            system = self._system
            power = {"on": "on", "off": "off"}.get(
                str(getattr(system.power_state, "value", system.power_state)).lower(), str(system.power_state)
            )
            return Said(power, system.serial_number or None, system.bios_version or None)

    def _found(self) -> Any:
        # Basic authentication: a session for each question fills the BMC's table of sessions.
        root = sushy.Sushy(
            self.url, auth=sushy.auth.BasicAuth(self.login.user, self.login.password), verify=self.verify,
            server_side_retries=2, server_side_retries_delay=2, connect_timeout=CONNECT_S, read_timeout=READ_S,
        )  # fmt: skip
        systems = root.get_system_collection().get_members()
        own = [each for each in systems if (each.serial_number or "").strip() == self.serial]
        if len(own) == 1 or len(systems) == 1:
            return (own or systems)[0]
        named = ", ".join(f"{each.identity}: {each.serial_number}" for each in systems)
        raise Unanswered(f"{len(systems)} systems, none with serial {self.serial} ({named or 'none at all'})")

    def order(self, action: Action, *, power: str, uefi: bool) -> None:
        with _plainly(self.login):
            if action is Action.NETBOOT:
                self._system.set_system_boot_options(
                    target=sushy.BOOT_SOURCE_TARGET_PXE, enabled=sushy.BOOT_SOURCE_ENABLED_ONCE,
                    mode=sushy.BOOT_SOURCE_MODE_UEFI if uefi else sushy.BOOT_SOURCE_MODE_BIOS,
                )  # fmt: skip
            if action is Action.OFF:
                self._system.reset_system(sushy.RESET_FORCE_OFF)
            elif power == "off":
                self._system.reset_system(sushy.RESET_ON)
            elif action in (Action.CYCLE, Action.NETBOOT):
                self._system.reset_system(sushy.RESET_FORCE_RESTART)


class Ipmi:
    """Through ipmitool; its password goes by the environment (-E)."""

    by = "ipmi"

    def __init__(self, address: str, login: Login, *, serial: str) -> None:
        self.address, self.login, self.serial = address, login, serial

    def _tool(self, *words: str) -> str:
        argv = ["ipmitool", "-I", "lanplus", "-H", self.address, "-U", self.login.user, "-E", "-N", "5", "-R", "3"]
        environment = dict(os.environ) | {"IPMITOOL_PASSWORD": self.login.password, "LC_ALL": "C"}
        environment.pop("IPMI_PASSWORD", None)  # it would come first
        try:
            return process.run([*argv, *words], env=environment, timeout_s=IPMI_S, stdin="").out
        except process.ProcessFailed as fault:
            raise Unanswered(_without(str(fault), self.login)) from None

    def look(self) -> Said:
        said = self._tool("chassis", "power", "status").strip().lower()
        power = {"chassis power is on": "on", "chassis power is off": "off"}.get(said, said[:80])
        serials = _fru_serials(self._tool("fru", "print", "0"))
        return Said(power, self.serial if self.serial in serials else next(iter(serials), None))

    def order(self, action: Action, *, power: str, uefi: bool) -> None:
        if action is Action.NETBOOT:
            self._tool("chassis", "bootdev", "pxe", *(["options=efiboot"] if uefi else []))
        if action is Action.OFF:
            self._tool("chassis", "power", "off")
        elif power == "off":
            self._tool("chassis", "power", "on")
        elif action in (Action.CYCLE, Action.NETBOOT):
            self._tool("chassis", "power", "cycle")


def settled(machine: Machine, wanted: str | None) -> Said:
    """What it says once it is in a state, or after SETTLE_S; without a state, what it says now."""
    end = time.monotonic() + SETTLE_S
    while True:
        said = machine.look()
        if wanted is None or said.power == wanted or time.monotonic() > end:
            return said
        time.sleep(LOOK_S)


def _fru_serials(text: str) -> list[str]:
    """Serial numbers of machine and chassis in `ipmitool fru print`: ` Product Serial        : ABC`."""
    pairs = [line.partition(":") for line in text.splitlines()]
    return [
        value.strip()
        for key, _, value in pairs
        if key.strip() in ("Product Serial", "Chassis Serial") and value.strip()
    ]


class _plainly:  # noqa: N801  reads as what it does
    """Turns what the library raises into a sentence without a password."""

    def __init__(self, login: Login) -> None:
        self.login = login

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: object) -> None:
        faults = (sushy.exceptions.SushyError, requests.RequestException, urllib3.exceptions.HTTPError, OSError)
        if isinstance(fault, faults):
            raise Unanswered(_without(" ".join(str(fault).split())[:500], self.login)) from None


def _without(text: str, login: Login) -> str:
    return text.replace(login.password, "***") if login.password else text


def ca_file(root: Path, verify: str | bool) -> str | bool:
    """What TLS is verified with.

    Raises:
        Unanswered: the file is not there.
    """
    if verify is False or verify == "system":
        return verify is not False
    path = root / str(verify)
    if not path.is_file():
        raise Unanswered(f"{path}: no file of CA certificates (bmc.verify of fleet.yml)")
    return str(path)
