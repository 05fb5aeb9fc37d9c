"""An installation as the ledger has it, and what a boot server answers: functions of events, a request, and the time.

Invariants
- A node that is not armed, or whose arming is over, boots its own disk. No request arms a node.
- A token opens one installation of one node: another token is refused, and so is the same one once the machine has
  reported from its first boot. Only a token's hash is ever recorded.
- A seed goes to one address, and to nobody after the machine has told its inventory: a seed that is asked for later
  is a replay.
- A machine that comes back to the network before it reported is held: it boots its own disk until it is armed anew.
- Nothing is wiped before its inventory fits: a difference ends the installation, and disarms.
- After its first word a machine may say once more how its first boot ended, by the same token; nothing else.
- What was in flight when the server was killed is folded from the ledger again: nothing is kept elsewhere.

Example: fold_installs([armed n1]) -> n1 is armed; boot_answer(n1, now) -> INSTALL and the draft of `netboot.asked`;
with that recorded and its seed fetched, the same question gets HELD.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qsl, unquote

from bedplate.model.event import Draft, Event

NODE = "node:"
KINDS = (
    *(
        f"netboot.{word}"
        for word in (
            "armed", "disarmed", "asked", "fetched", "held", "seeded", "inventory", "stage", "uploaded", "phoned",
            "finished", "confirmed", "refused",
        )
    ),
    "node.done", "node.verified",  # of rollouts and verifications: the last two steps of an installation
)  # fmt: skip
# Firmware asks again within a boot, when a transfer fails; a machine that starts again takes longer than this.
SAME_BOOT_S = 180
# From the fetched seed to the first boot: an installation over a slow mirror took under one hour; 6 for the slowest.
INSTALL_LIMIT_S = 6 * 3600
LONGEST_PATH = 2048
MOST_UPLOADS = 8
MOST_BYTES = {"report": 1 << 20, "inventory": 4 << 20, "phone": 64 << 10, "finished": 64 << 10, "upload": 64 << 20}
INSTALLED_STAGE = "bedplate/installed"  # what autoinstall/node.py tells last, before the machine starts again
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
_NODE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,128}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
SEED_FILES = ("user-data", "meta-data", "vendor-data", "network-config")


class Phase(StrEnum):
    """Where a node's installation is, in its order; the last four are ends that need a person."""

    IDLE = "not armed"
    ARMED = "armed"
    BOOTING = "asked"
    SEEDED = "seed fetched"
    CHECKED = "inventory fits"
    INSTALLING = "installing"
    INSTALLED = "installed"
    REPORTED = "first boot"
    FINISHED = "cloud-init finished"
    CONFIRMED = "host key confirmed"
    CONVERGED = "converged"
    VERIFIED = "verified"
    BROKEN = "first boot failed"
    STOPPED = "stopped"
    FAILED = "failed"
    HELD = "held"


OPEN = frozenset(
    {Phase.ARMED, Phase.BOOTING, Phase.SEEDED, Phase.CHECKED, Phase.INSTALLING, Phase.INSTALLED, Phase.FAILED}
)
"""Phases in which the token of the arming is still good for something."""

AFTER = frozenset({Phase.REPORTED, Phase.FINISHED, Phase.CONFIRMED, Phase.CONVERGED, Phase.VERIFIED, Phase.BROKEN})
"""Phases of a machine that has reported from its first boot."""


@dataclass(frozen=True)
class Install:
    """One node's last installation."""

    phase: Phase = Phase.IDLE
    environment: str | None = None
    name: str | None = None
    token_sha256: str | None = None
    until: str | None = None
    armed_by: str | None = None
    asked_at: str | None = None
    fetched_at: str | None = None
    seed_address: str | None = None
    seeded_at: str | None = None
    stage: str | None = None
    why: str | None = None
    host_key: str | None = None
    address: str | None = None
    uploads: int = 0
    since: str | None = None
    finished_at: str | None = None
    errors: tuple[str, ...] = ()
    """What cloud-init could not do at the first boot."""
    confirmed_at: str | None = None
    converged_at: str | None = None
    verified_at: str | None = None


def fold_installs(events: Iterable[Event], known: Mapping[str, Install] | None = None) -> dict[str, Install]:
    """Installations by node, from events in their order; kinds that are not known change nothing."""
    nodes = dict(known or {})
    for event in events:
        if event.kind in KINDS:
            for subject in event.subjects:
                if subject.startswith(NODE):
                    name = subject.removeprefix(NODE)
                    nodes[name] = _after(nodes.get(name, Install()), event)
    return nodes


def _after(now: Install, event: Event) -> Install:  # noqa: C901, PLR0911, PLR0912  a table of kinds
    body = event.body
    match event.kind:
        case "netboot.armed":
            return Install(
                Phase.ARMED, event.environment, _text(body, "environment"), _text(body, "token_sha256"),
                _text(body, "until"), event.actor, since=event.at,
            )  # fmt: skip
        case "netboot.disarmed" if now.phase is not Phase.IDLE:
            return Install(Phase.IDLE, why=_text(body, "why"), since=event.at)
        case "netboot.asked" if now.phase in (Phase.ARMED, Phase.BOOTING) and body.get("answer") == "install":
            return replace(now, phase=Phase.BOOTING, asked_at=now.asked_at or event.at, since=event.at)
        case "netboot.fetched" if now.phase is Phase.BOOTING and now.fetched_at is None:
            return replace(now, fetched_at=event.at, stage="kernel fetched", since=event.at)
        case "netboot.held" if now.phase in OPEN:
            return replace(now, phase=Phase.HELD, why=_text(body, "why"), since=event.at)
        case "netboot.seeded" if now.phase in (Phase.ARMED, Phase.BOOTING, Phase.SEEDED):
            return replace(
                now, phase=Phase.SEEDED, seed_address=now.seed_address or _text(body, "address"),
                seeded_at=now.seeded_at or event.at, stage=None, since=event.at,
            )  # fmt: skip
        case "netboot.inventory" if now.phase in OPEN:
            if wrong := body.get("differences"):
                why = "; ".join(map(str, wrong)) if isinstance(wrong, list) else str(wrong)
                return replace(now, phase=Phase.STOPPED, why=why, since=event.at)
            return replace(now, phase=Phase.CHECKED, since=event.at) if now.phase is Phase.SEEDED else now
        case "netboot.stage" if now.phase in OPEN and now.phase not in (Phase.ARMED, Phase.BOOTING):
            return _staged(now, event)
        case "netboot.uploaded":
            return replace(now, uploads=now.uploads + 1)
        case "netboot.phoned" if now.phase in OPEN:
            return replace(
                now, phase=Phase.REPORTED, host_key=_text(body, "host_key"), address=_text(body, "address"),
                why=None, since=event.at,
            )  # fmt: skip
        case _ if now.phase in AFTER:
            return _onward(now, event)
        case _:
            return now


def _onward(now: Install, event: Event) -> Install:
    """After the first word: each step once, whatever order they come in; the phase is the furthest of them."""
    body = event.body
    match event.kind:
        case "netboot.finished" if now.finished_at is None:
            errors = _texts(body, "errors")
            if not errors and body.get("status") != "done":
                errors = (f"cloud-init: {_text(body, 'status')}",)
            why = "; ".join((*errors, *(f"recoverable: {each}" for each in _texts(body, "recoverable")))) or None
            now = replace(now, finished_at=event.at, errors=errors, why=why)
        case "netboot.confirmed" if now.confirmed_at is None and _text(body, "host_key") == now.host_key:
            now = replace(now, confirmed_at=event.at)
        case "node.done" if now.converged_at is None and event.environment == now.environment:
            now = replace(now, converged_at=event.at)
        case "node.verified" if (
            now.verified_at is None and event.environment == now.environment and body.get("verdict") == "PASS"
        ):
            now = replace(now, verified_at=event.at)
        case _:
            return now
    phase = _furthest(now)
    return now if phase is now.phase else replace(now, phase=phase, since=event.at)


def _furthest(now: Install) -> Phase:
    if now.converged_at and now.verified_at:
        return Phase.VERIFIED
    if now.errors:
        return Phase.BROKEN
    if now.converged_at:
        return Phase.CONVERGED
    if now.confirmed_at and now.finished_at:
        return Phase.CONFIRMED
    return Phase.FINISHED if now.finished_at else Phase.REPORTED


def _staged(now: Install, event: Event) -> Install:
    body = event.body
    stage = _text(body, "name")
    if body.get("result") == "FAIL":
        return replace(now, phase=Phase.FAILED, stage=stage, why=_text(body, "description"), since=event.at)
    if now.phase is Phase.FAILED:
        return now  # what the installer says after a failure ends nothing
    done = stage == INSTALLED_STAGE and body.get("event_type") == "finish"
    phase = Phase.INSTALLED if done else Phase.INSTALLING
    if now.phase is Phase.SEEDED or (now.phase is Phase.INSTALLED and not done):
        phase = now.phase  # before its inventory nothing is installed, whatever is reported
    return replace(now, phase=phase, stage=stage, since=event.at)


# --- who asks -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Machines:
    """The machines that the boot server has files for; index: what `bedplate render netboot` wrote."""

    by_serial: Mapping[str, str]
    by_mac: Mapping[str, str]

    @classmethod
    def of(cls, index: Mapping[str, Any]) -> "Machines":
        nodes: Mapping[str, Any] = index["nodes"]
        return cls(
            {entry["serial"]: name for name, entry in nodes.items()},
            {mac: name for name, entry in nodes.items() for mac in entry["macs"]},
        )

    def named(self, serial: str, mac: str) -> tuple[str | None, str]:
        """The node that a serial number and a MAC are of, else None and why; an empty serial leaves it to the MAC."""
        serial, mac = serial.strip(), mac.strip().lower().replace("-", ":")
        of_serial, of_mac = self.by_serial.get(serial), self.by_mac.get(mac)
        if of_serial and (of_mac in (None, of_serial)) and (of_mac or not _MAC.fullmatch(mac)):
            return of_serial, ""
        if of_serial and of_mac:
            return None, f"serial {serial[:64]} is of {of_serial}, MAC {mac} of {of_mac}: a swapped cable or adapter"
        if of_serial:
            return None, f"serial {serial[:64]} is of {of_serial}, MAC {mac[:20]} of no port of it"
        if of_mac and serial:
            return None, f"MAC {mac} is of {of_mac}, which has another serial than {serial[:64]!r}"
        if of_mac:
            return of_mac, ""
        return None, f"no machine has serial {serial[:64]!r} and MAC {mac[:20]!r}"


# --- what is asked --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """A request that is what it should be. what: boot, seed, files, report, inventory, upload, phone, finished."""

    what: str
    node: str = ""
    token: str = ""
    name: str = ""
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Refusal:
    status: int
    why: str


_BOOT_FILES = {"boot.ipxe", "local.ipxe"}
_BY_METHOD = {
    "GET": {"boot", "seed", "files"},
    "HEAD": {"files"},
    "POST": {"report", "inventory", "phone", "finished"},
    "PUT": {"upload"},
}


def parse_request(method: str, target: str) -> Request | Refusal:  # noqa: C901, PLR0911  one refusal each
    """What a request line asks for, or why it is none that anybody here answers."""
    if len(target) > LONGEST_PATH:
        return Refusal(414, "the path is too long")
    path, _, query = target.partition("?")
    try:
        words = [unquote(word, errors="strict") for word in path.split("/")[1:]]
        given = dict(parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=16))
    except (UnicodeDecodeError, ValueError):
        return Refusal(400, "the path is no text")
    if not path.startswith("/") or any(
        word in ("", ".", "..") or re.search(r"[/\\\x00-\x1f\x7f]", word) for word in words
    ):
        return Refusal(400, "the path leads elsewhere")
    if method == "GET" and len(words) == 1 and words[0] in _BOOT_FILES:
        return Request("menu", name=words[0])
    known = {what for of in _BY_METHOD.values() for what in of}
    if words[0] not in known:
        return Refusal(404, "nothing is there")
    if words[0] not in _BY_METHOD.get(method, ()):
        return Refusal(405, f"{method} is not for {words[0]}")
    what, rest = words[0], words[1:]
    if what == "boot":
        return Request("boot", query=given) if rest == ["ipxe"] else Refusal(404, "nothing is there")
    if what == "files":
        named = len(rest) == 1 and _FILE_NAME.fullmatch(rest[0])
        return Request("files", name=rest[0]) if named else Refusal(404, "nothing is there")
    wanted = 3 if what in ("seed", "upload") else 2
    if len(rest) != wanted or not _NODE_NAME.fullmatch(rest[0]) or not _TOKEN.fullmatch(rest[1]):
        return Refusal(404, "nothing is there")
    name = rest[2] if wanted == 3 else ""  # noqa: PLR2004
    if (what == "seed" and name not in SEED_FILES) or (what == "upload" and not _FILE_NAME.fullmatch(name)):
        return Refusal(404, "nothing is there")
    return Request(what, rest[0], rest[1], name)


def size_refusal(what: str, length: str | None) -> Refusal | None:
    """Whether a body of this length is taken; what has no length is not read."""
    if length is None or not re.fullmatch(r"[0-9]{1,15}", length):
        return Refusal(411, "say how long it is")
    return Refusal(413, f"more than {MOST_BYTES[what]} bytes") if int(length) > MOST_BYTES[what] else None


# --- what is answered -----------------------------------------------------------------------------------------


class Boot(StrEnum):
    INSTALL = "install"
    LOCAL = "local"
    HELD = "held"


def armed(install: Install, now: datetime) -> bool:
    """Whether an installation may begin."""
    return install.phase in (Phase.ARMED, Phase.BOOTING, Phase.SEEDED) and not _over(install.until, now)


def boot_answer(install: Install, now: datetime) -> tuple[Boot, str]:  # noqa: PLR0911  one phase each
    """What a machine boots that asks, and why."""
    if install.phase is Phase.HELD:
        return Boot.HELD, install.why or "held"
    if install.phase in (Phase.ARMED, Phase.BOOTING) and _over(install.until, now):
        return Boot.LOCAL, f"armed until {install.until}"
    if install.phase is Phase.ARMED:
        return Boot.INSTALL, ""
    if install.phase is Phase.BOOTING:
        if install.asked_at and _age_s(install.asked_at, now) <= SAME_BOOT_S:
            return Boot.INSTALL, ""
        return Boot.HELD, "it was given the installer before, and came back without having fetched its seed"
    if install.phase in (Phase.SEEDED, Phase.CHECKED, Phase.INSTALLING):
        return Boot.HELD, f"it came back to the network before it had reported (last: {install.stage or install.phase})"
    return Boot.LOCAL, install.phase


def token_refusal(install: Install, token: str, now: datetime) -> Refusal | None:
    """Whether a token opens anything of this installation; compared in constant time."""
    digest = hash_token(token)
    if install.token_sha256 is None or not hmac.compare_digest(digest, install.token_sha256):
        return Refusal(403, "the token is of no arming of this node")
    if install.phase not in OPEN:
        return Refusal(410, f"the token was used: {install.phase}")
    if install.seeded_at is None and _over(install.until, now):
        return Refusal(410, f"armed until {install.until}")
    if install.seeded_at is not None and _age_s(install.seeded_at, now) > INSTALL_LIMIT_S:
        return Refusal(410, f"the installation began {install.seeded_at}, and did not end")
    return None


def seed_refusal(install: Install, token: str, address: str, now: datetime) -> Refusal | None:
    """Whether a seed is given to an address."""
    if refusal := token_refusal(install, token, now):
        return refusal
    if not armed(install, now):
        return Refusal(410, f"the seed was fetched: {install.phase}")
    if install.seed_address not in (None, address):
        return Refusal(403, f"the seed went to {install.seed_address}")
    return None


def inventory_refusal(install: Install, token: str, now: datetime) -> Refusal | None:
    """Whether an inventory is taken; it may be told again while nothing else was."""
    if refusal := token_refusal(install, token, now):
        return refusal
    if install.phase not in (Phase.SEEDED, Phase.CHECKED):
        return Refusal(409, f"no inventory now: {install.phase}")
    return None


def upload_refusal(install: Install, token: str, now: datetime) -> Refusal | None:
    """Whether a file is taken; a machine that was stopped may still say why."""
    if install.phase is Phase.STOPPED and install.token_sha256 is not None:
        install = replace(install, phase=Phase.FAILED)
    if refusal := token_refusal(install, token, now):
        return refusal
    return Refusal(429, f"{MOST_UPLOADS} files are enough") if install.uploads >= MOST_UPLOADS else None


def phone_refusal(install: Install, token: str, now: datetime) -> Refusal | None:
    """Whether a first boot is believed: once, from a machine that told its inventory."""
    if refusal := token_refusal(install, token, now):
        return refusal
    if install.phase not in (Phase.CHECKED, Phase.INSTALLING, Phase.INSTALLED):
        return Refusal(409, f"nothing was installed: {install.phase}")
    return None


def finished_refusal(install: Install, token: str, now: datetime) -> Refusal | None:
    """Whether the end of a first boot is believed: once, from a machine that has reported from it."""
    if install.phase is Phase.REPORTED and install.finished_at is None:
        install = replace(install, phase=Phase.INSTALLED)  # all that its token still opens
    elif install.phase in OPEN:
        refusal = token_refusal(install, token, now)
        return refusal or Refusal(409, f"no first boot yet: {install.phase}")
    return token_refusal(install, token, now)


_HOST_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]{60,80}={0,2}( [\x21-\x7e ]*)?")


def host_key(said: str) -> str | None:
    """The public host key in a machine's report, type and key alone; None if it is none."""
    line = said.strip()
    return " ".join(line.split()[:2]) if _HOST_KEY.fullmatch(line) else None


# Longer than this in a phase is worth a look: minutes of firmware, of the live system's start, of an installation.
_LONG_S = {
    Phase.BOOTING: 15 * 60, Phase.SEEDED: 10 * 60, Phase.CHECKED: 10 * 60, Phase.INSTALLING: 30 * 60,
    Phase.INSTALLED: 20 * 60, Phase.REPORTED: 30 * 60,
}  # fmt: skip


def stuck(install: Install, now: datetime) -> str:
    """What to say of an installation that does not go on, or cannot; nothing where all is well."""
    if install.phase in (Phase.STOPPED, Phase.FAILED, Phase.HELD, Phase.BROKEN):
        return "needs a person"
    if install.phase is Phase.ARMED and _over(install.until, now):
        return "expired"
    age = _age_s(install.since, now) if install.since else 0
    return f"stuck for {int(age // 60)} min" if age > _LONG_S.get(install.phase, float("inf")) else ""


# --- what is recorded -------------------------------------------------------------------------------------------


def hash_token(token: str) -> str:
    return "sha256:" + hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def arming(
    node: str, install: Mapping[str, str], *, token: str, until: datetime, wipes: Sequence[str], approved_by: str
) -> Draft:
    """The event that arms a node; install: name and identity of the environment."""
    body = {
        "environment": install["name"], "token_sha256": hash_token(token), "until": stamp(until), "wipes": list(wipes),
        "approved_by": approved_by,
    }  # fmt: skip
    return Draft("netboot.armed", (f"{NODE}{node}", f"environment:{install['name']}"), body, install["identity"])


def recorded(kind: str, node: str, install: Install, **body: Any) -> Draft:
    """An event of an installation."""
    return Draft(f"netboot.{kind}", (f"{NODE}{node}",), body, install.environment)


def refused(refusal: Refusal, *, asked: str, address: str, node: str | None = None) -> Draft:
    """The event of a request that was not answered; a token never stands in it."""
    subjects = (f"{NODE}{node}",) if node else (f"address:{address}",)
    body = {"asked": asked[:200], "address": address, "status": refusal.status, "why": refusal.why[:500]}
    return Draft("netboot.refused", subjects, body)


# Levels of the installer's contexts that go into the ledger, as subiquity/Install/install; all go into the node's log.
_QUIET = 3


def noteworthy(report: Mapping[str, Any]) -> bool:
    """Whether a report of the installer is a step of its own: a machine sends some hundred."""
    return report.get("result") not in (None, "SUCCESS") or str(report.get("name", "")).count("/") < _QUIET


def stage_body(report: Mapping[str, Any]) -> dict[str, str]:
    """What of a report is recorded: text, cut to a length."""
    keys = ("name", "event_type", "result", "level", "description")
    return {key: str(report[key])[:500] for key in keys if report.get(key) is not None}


def stamp(moment: datetime) -> str:
    """UTC with microseconds, as the ledger writes it."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def _over(until: str | None, now: datetime) -> bool:
    """A time that cannot be read is over."""
    moment = _moment(until or "")
    return moment is None or now > moment


def _age_s(since: str, now: datetime) -> float:
    moment = _moment(since)
    return float("inf") if moment is None else (now - moment) / timedelta(seconds=1)


def _text(body: Mapping[str, object], key: str) -> str | None:
    value = body.get(key)
    return None if value is None else str(value)


def _texts(body: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = body.get(key)
    return tuple(map(str, value)) if isinstance(value, list) else ()


def finished_body(document: Mapping[str, Any]) -> dict[str, Any]:
    """What of a machine's word on its first boot is recorded: text, cut to a length."""
    cut = {
        key: [str(each)[:500] for each in value[:20]] if isinstance(value := document.get(key), list) else []
        for key in ("errors", "recoverable")
    }
    return {"status": str(document.get("status"))[:40], **cut}


def lasted(install: Install, now: datetime) -> str:
    """How long it is in its phase: 3 min, 2 h 5 min, 4 d."""
    if install.since is None or (age := _age_s(install.since, now)) == float("inf"):
        return ""
    minutes = int(age // 60)
    if minutes < 60:  # noqa: PLR2004
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes < 24 * 60 else f"{minutes // (24 * 60)} d"
