"""Where a lab keeps its state, what it calls its things and which addresses it uses: no other module knows."""

import hashlib
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bedplate.model.faults import BadInput

DEFAULT_STATE = Path("/var/lib/bedplate-lab")
CHECKOUT = Path(__file__).resolve().parents[2]
CONTROLLER = "ctl"
SERVICES_HOST = "svc"  # Slurm's controllers and what else serves the nodes
GUEST = "k1"  # the one machine with a kernel of its own, where there is one (guest.py)
BRIDGE_ADDRESS = "10.77.0.1"  # archive and registry listen here, in the lab's own network namespace
ARCHIVE_PORT = 8080
REGISTRY_PORT = 5443
SITE = Path("/var/lib/bedplate/site")  # in the controller host
MAX_NODES = 200  # addresses .11 to .210


@dataclass(frozen=True)
class Places:
    """One lab on this machine. `name` is the prefix of its namespaces, cgroups and units."""

    state: Path
    name: str
    cache: Path

    @cached_property
    def live(self) -> Path:
        """What one lab from `up` to `down` owns; gone afterwards."""
        return self.state / "live"

    @property
    def record(self) -> Path:
        return self.live / "lab.json"

    @property
    def lock(self) -> Path:
        return self.state / "lock"

    @property
    def claim(self) -> Path:
        """Says whose the name is: namespaces and cgroups carry it, and know no state directory."""
        return Path("/run/bedplate-lab") / self.name

    @property
    def logs(self) -> Path:
        return self.live / "logs"

    @property
    def kept_registry(self) -> Path:
        """The registry's storage of a lab that ended and kept it: the next one begins with it."""
        return self.state / "registry"

    def host(self, name: str) -> Path:
        return self.live / "hosts" / name

    def namespace(self, host: str | None = None) -> str:
        """The network namespace of a host; without one, the namespace of the bridge."""
        return self.name if host is None else f"{self.name}-{host}"


def places() -> Places:
    """The lab that the environment names; another state directory is another lab, with a name of its own."""
    state = Path(os.environ.get("BEDPLATE_LAB", DEFAULT_STATE)).resolve()
    if any(character in str(state) for character in ":,\\ \n"):
        raise BadInput(f"BEDPLATE_LAB={state}: an overlay takes no path with a colon, comma, backslash or space")
    cache = Path(os.environ.get("BEDPLATE_LAB_CACHE", state / "cache")).resolve()
    own = "bplab" if state == DEFAULT_STATE else f"bplab{hashlib.sha256(bytes(state)).hexdigest()[:4]}"
    name = os.environ.get("BEDPLATE_LAB_NAME", own)
    if not re.fullmatch("[a-z][a-z0-9]{0,14}", name):
        raise BadInput(f"BEDPLATE_LAB_NAME={name}: at most 15 lower-case letters and digits, beginning with a letter")
    return Places(state, name, cache)


FIXED = {SERVICES_HOST: 9, CONTROLLER: 10, GUEST: 230}  # last part of the address


def address(host: str) -> str:
    """10.77.0.9 and .10 for services and controller, 10.77.0.11 and up for the nodes."""
    return f"10.77.0.{FIXED[host] if host in FIXED else 10 + int(host[1:])}"


def mac(host: str) -> str:
    """The MAC of host0, locally administered: the one nodes.csv calls boot_mac."""
    return f"02:bd:00:00:00:{int(address(host).rpartition('.')[2]):02x}"


def node_names(count: int) -> list[str]:
    return [f"n{number}" for number in range(1, count + 1)]
