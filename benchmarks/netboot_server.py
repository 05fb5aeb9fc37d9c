"""What the boot server does when many machines are switched on at once.

    python benchmarks/netboot_server.py [--machines 300] [--at-once 100] [--reports 40] [--json]

Machines of the example site, armed, each telling its whole story over HTTP: boot script, four files of the seed,
inventory, the installer's reports, the last word, first boot. All of it is recorded in a ledger that is synced to disk.
The image itself is not fetched: that is the disk's and the network's speed. Machines and server share this computer.
"""

import argparse
import http.client
import json
import resource
import shutil
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from bedplate.act.arming import arm, armed_files  # noqa: E402
from bedplate.act.bootserver import BootServer, serving  # noqa: E402
from bedplate.decide.netboot.protocol import KINDS, Phase, fold_installs  # noqa: E402
from bedplate.ledger.store import Ledger  # noqa: E402
from bedplate.sources.site import open_site  # noqa: E402
from unit.autoinstall_sample import KEY  # noqa: E402
from unit.netboot_sample import recipe  # noqa: E402

DEADLINE_S = 300


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--machines", type=int, default=300)
    parser.add_argument("--at-once", type=int, default=100)
    parser.add_argument("--reports", type=int, default=40, help="of the installer, for each machine")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bedplate-benchmark-") as folder:
        found = measure(Path(folder), given.machines, given.at_once, given.reports)
    if given.json:
        print(json.dumps(found, indent=2, sort_keys=True))
        return
    for name, value in found.items():
        print(f"{name}: {value:.3f}" if isinstance(value, float) else f"{name}: {value}")


def measure(folder: Path, machines: int, at_once: int, reports: int) -> dict[str, Any]:
    root = folder / "site"
    shutil.copytree(ROOT / "inventory", root)
    text = (root / "fleet.yml").read_text()
    (root / "fleet.yml").write_text(text.replace("example: true", "example: false"))
    site = open_site(root)
    made = recipe(site)
    nodes = made.nodes([f"gpu{number:03d}" for number in range(1, machines + 1)])
    files = {f"nodes/{n.name}/{name}": text.encode() for n in nodes for name, text in made.files(n).items()}
    place = folder / "netboot"
    with Ledger.open(site.ledger_url) as ledger:
        began = time.perf_counter()
        until = datetime.now(UTC) + timedelta(hours=4)
        arm(ledger, place, files, made.index(nodes), until=until, approved_by="benchmark")
        arming = time.perf_counter() - began
        cpu, began = _cpu(), time.perf_counter()
        with serving(BootServer(site, place, ledger), "127.0.0.1", 0) as port, ThreadPoolExecutor(at_once) as pool:
            told = list(pool.map(lambda node: story(port, node, made.expected(node), place, reports), nodes))
        took, cpu = time.perf_counter() - began, _cpu() - cpu
        phases = fold_installs(ledger.events(kinds=KINDS))
        recorded = ledger.head()[0]
    asked = sorted(second for each in told for second in each)
    return {
        "machines": machines, "at_once": at_once, "requests": len(asked), "events": recorded,
        "reported": sum(phases[node.name].phase is Phase.REPORTED for node in nodes),
        "arming_s": arming, "wall_s": took, "cpu_s": cpu, "requests_per_s": len(asked) / took,
        "answer_median_s": statistics.median(asked), "answer_95th_s": asked[int(len(asked) * 0.95)],
        "answer_longest_s": asked[-1],
    }  # fmt: skip


def story(port: int, node: Any, expected: dict[str, Any], place: Path, reports: int) -> list[float]:
    """One machine from power-on to its host key; seconds of each answer."""
    files = armed_files(place, node.name)
    assert files is not None  # noqa: S101
    path = f"{node.name}/{files.token}"
    disks = [{"name": f"sd{at}", "serial": serial} for at, serial in enumerate(node.boot_disk_serials)]
    disks += [{"name": f"nvme{at}", "serial": "X"} for at in range((expected["disks"] or len(disks)) - len(disks))]
    nics = [{"mac": mac} for mac in (*expected["macs"], *expected["nic_macs"])]
    found = {"dmi": {"product_serial": node.serial}, "disks": disks, "nics": nics}
    stages = [{"name": f"subiquity/Install/{at}/x", "event_type": "start"} for at in range(reports)]
    stages.append({"name": "bedplate/installed", "event_type": "finish", "result": "SUCCESS"})
    asks: list[tuple[str, str, bytes | None]] = [
        ("GET", "/boot/ipxe?" + urlencode({"serial": node.serial, "mac": node.boot_mac}), None),
        *(
            ("GET", f"/seed/{path}/{name}", None)
            for name in ("meta-data", "user-data", "vendor-data", "network-config")
        ),
        ("POST", f"/inventory/{path}", json.dumps({"found": found}).encode()),
        *(("POST", f"/report/{path}", json.dumps(stage).encode()) for stage in stages),
        ("POST", f"/phone/{path}", urlencode({"pub_key_ed25519": KEY}).encode()),
    ]
    seconds = []
    for method, target, body in asks:
        began = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
        connection.request(method, target, body)
        status = connection.getresponse().status
        connection.close()
        assert status == http.HTTPStatus.OK, (node.name, target, status)  # noqa: S101
        seconds.append(time.perf_counter() - began)
    return seconds


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
