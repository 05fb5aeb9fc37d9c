"""One file to eight nodes over links of a fixed rate: seconds and source bytes of each way to move it.

    python benchmarks/distribution.py [--nodes 8] [--racks 2] [--mbit 40] [--mib 64] [--only torrent,http] [--json]

As root. A source and nodes in network namespaces of their own, every link limited both ways (tbf); each node is an ssh
server with a directory of its own, and the engines are those of `bedplate image place`, hashes, syncs and renames
included. Beside them, as far as they are installed: curl from one server, uftp, and sbcast in a Slurm of its own
(slurmctld, slurmd, slurm-client, munge; started and ended here), with each width of its tree.

The limit is size / link. Source bytes are what the source's interface sent, headers and all; "counted" is what
the engine said. Nothing outside the namespaces is touched; they are gone afterwards.
"""

import argparse
import hashlib
import json
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from bedplate.act.distribution.engine import Job  # noqa: E402
from bedplate.act.distribution.engines import ENGINES  # noqa: E402
from bedplate.act.distribution.payload import DIRECTORY, Delivery, Payload  # noqa: E402
from bedplate.decide.distribution.engines import Engine  # noqa: E402
from bedplate.decide.distribution.slowness import Patience  # noqa: E402
from bedplate.process import ProcessFailed, run  # noqa: E402
from bedplate.ssh import Target  # noqa: E402
from lab import linkslurm  # noqa: E402
from lab.links import Links, started  # noqa: E402
from lab.linkslurm import slurm  # noqa: E402
from unit.sshd import run_with_sh, sshd  # noqa: E402

PORT = 2222
MEMORY = Path("/dev/shm")  # one disk under all nodes would be measured instead of the links
PATIENT = Patience(least_s=900, still_s=900, floor=1)  # everything is to come to its end


@dataclass(frozen=True)
class Line:
    """times of the limit and of naive fan-out are ratios of seconds; source and counted are ratios of the size."""

    way: str
    seconds: float
    times_limit: float
    source: float
    counted: float | None
    right: int
    nodes: int


@dataclass(frozen=True)
class Counted:
    """Bytes that an engine says it sent, if it does; seconds from its start until the slowest node had the file."""

    sent: int | None
    seconds: float


@dataclass
class Bench:
    links: Links
    folder: Path
    file: Path
    mbit: float

    @property
    def size(self) -> int:
        return self.file.stat().st_size

    @property
    def limit_s(self) -> float:
        return self.size * 8 / (self.mbit * 1e6)

    def disk(self, node: str) -> Path:
        return self.folder / "disks" / node

    def fresh(self) -> None:
        shutil.rmtree(self.folder / "disks", ignore_errors=True)
        for node in self.links.nodes:
            self.disk(node).mkdir(parents=True)

    def measure(self, way: str, move: Callable[[], Counted | None]) -> Line:
        """Move the file by `move`; it returns what it measured itself, where it is our own."""
        self.fresh()
        time.sleep(1)
        before, began = self.links.sent_by_source(), time.monotonic()
        counted = move()
        seconds, sent = time.monotonic() - began, self.links.sent_by_source() - before
        if counted:
            seconds = counted.seconds
        wanted = hashlib.sha256(self.file.read_bytes()).digest()
        right = sum(wanted in _digests(self.disk(node)) for node in self.links.nodes)
        said = None if counted is None or counted.sent is None else round(counted.sent / self.size, 2)
        return Line(
            way, round(seconds, 1), round(seconds / self.limit_s, 2), round(sent / self.size, 2), said, right,
            len(self.links.nodes),
        )  # fmt: skip


def _digests(folder: Path) -> set[bytes]:
    return {hashlib.sha256(path.read_bytes()).digest() for path in folder.rglob("*") if path.is_file()}


# --- the engines of the product -------------------------------------------------------------------


def engine(bench: Bench, which: Engine, *, width: int = 8) -> Counted:
    """What `bedplate image place` does with a file, by one engine, in a process of the source's namespace."""
    argv = [sys.executable, __file__, "--move", str(bench.folder), str(bench.file), which.value, str(width)]
    done = run(bench.links.inside(bench.links.source, [*argv, json.dumps(bench.links.racks)]), timeout_s=3600)
    found: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    if found["failed"]:
        print(f"{which}: {found['failed']}", file=sys.stderr)
    return Counted(int(found["sent"]), float(found["seconds"]))


def move(folder: Path, file: Path, which: Engine, width: int, racks: dict[str, str]) -> None:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    payload = Payload(file.name, digest, file.stat().st_size, file)
    known_hosts, key = folder / "known_hosts", folder / "keys/id_ed25519"
    targets = [Target(node, Links.address_of(node), "root", PORT, key, known_hosts) for node in racks]
    failed: dict[str, str] = {}
    ends: list[float] = []
    began = time.monotonic()

    def ended(delivery: Delivery) -> None:
        ends.append(time.monotonic() - began)
        if delivery.why:
            failed[delivery.node] = delivery.why

    sent = ENGINES[which](Job(payload, targets, racks, width, patience=PATIENT), ended)
    print(json.dumps({"sent": sent, "failed": failed, "seconds": max(ends)}))


def serve(folder: Path, node: str) -> None:
    """A node: an ssh server whose images are in a directory of its own."""
    disk = str(folder / "disks" / node)
    address = Links.address_of(node)
    place = folder / "keys" / node
    place.mkdir(parents=True)
    shutil.copy(folder / "keys/id_ed25519", place)
    shutil.copy(folder / "keys/id_ed25519.pub", place)
    with sshd(
        place,
        lambda channel, command: run_with_sh(channel, command.replace(DIRECTORY, disk)),
        address=address,
        port=PORT,
    ):
        (place / "ready").touch()
        signal.pause()


@contextmanager
def servers(bench: Bench) -> Iterator[None]:
    keys = bench.folder / "keys"
    keys.mkdir()
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / "id_ed25519"])
    with ExitStack() as stack:
        for node in bench.links.nodes:
            stack.enter_context(
                started(bench.links.inside(node, [sys.executable, __file__, "--serve", str(bench.folder), node]))
            )
        deadline = time.monotonic() + 60
        while any(not (keys / node / "ready").exists() for node in bench.links.nodes):
            if time.monotonic() > deadline:
                raise SystemExit("the nodes' ssh servers did not start")
            time.sleep(0.1)
        lines = [(keys / node / "known_hosts").read_text() for node in bench.links.nodes]
        (bench.folder / "known_hosts").write_text("".join(lines))
        yield


# --- what else there is ---------------------------------------------------------------------------


def naive(bench: Bench) -> None:
    """Everybody fetches from one server at the same time, and nothing is looked at."""
    links = bench.links
    server = [
        sys.executable,
        "-m",
        "http.server",
        "-d",
        str(bench.file.parent),
        "--bind",
        links.address_of(links.source),
        "80",
    ]
    with started(links.inside(links.source, server), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        time.sleep(1)
        url = f"http://{links.address_of(links.source)}/{bench.file.name}"
        with ExitStack() as stack:
            fetching = [
                stack.enter_context(
                    subprocess.Popen(links.inside(node, ["curl", "-sf", "-o", str(bench.disk(node) / "file"), url]))
                )
                for node in links.nodes
            ]
            for process in fetching:
                process.wait()


def uftp(bench: Bench) -> None:
    """Multicast with retransmission of what was lost; checks nothing."""
    links = bench.links
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with ExitStack() as stack:
        for number, node in enumerate(links.nodes, 1):
            receiver = [
                "uftpd",
                "-d",
                "-I",
                "e0",
                "-U",
                f"0x{number:08X}",
                "-D",
                str(bench.disk(node)),
                "-B",
                "4194304",
                "-t",
            ]
            stack.enter_context(started(links.inside(node, receiver), **quiet))
        time.sleep(1)
        hosts = ",".join(f"0x{number:08X}" for number in range(1, len(links.nodes) + 1))
        rate = str(round(bench.mbit * 900))  # kbit/s: what is lost is sent again
        sender = [
            "uftp",
            "-R",
            rate,
            "-r",
            "0.1:0.02:1",
            "-I",
            "e0",
            "-U",
            "0x000000FF",
            "-B",
            "4194304",
            "-H",
            hosts,
            str(bench.file),
        ]
        run(links.inside(links.source, sender), check=False, timeout_s=900)


def sbcast(bench: Bench, *options: str) -> Counted:
    """Slurm's own: a tree that waits for all nodes at each block. The seconds are its own, without the allocation."""
    links, folder = bench.links, bench.folder / "slurm"
    shutil.rmtree(folder, ignore_errors=True)
    # sbcast returns when each node has written the last block.
    timed = 'began=$(date +%s.%N) && sbcast "$@" && echo "$began $(date +%s.%N)"'
    target = folder / "here" / bench.file.name
    argv = ["salloc", "-Q", "-N", str(len(links.nodes)), "sh", "-c", timed, "sh", "--force", *options]
    with slurm(links, {node: bench.disk(node) for node in links.nodes}, folder) as environment:
        inside = links.inside(links.source, [*argv, bench.file, target])
        done = run(inside, env=environment, cwd=Path("/"), timeout_s=900)
    began, ended = map(float, done.out.split())
    return Counted(None, ended - began)


def main() -> None:
    """Measure, print."""
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]), sys.argv[3])
        return
    if sys.argv[1:2] == ["--move"]:
        where, what, which, width, racks = sys.argv[2:]
        move(Path(where), Path(what), Engine(which), int(width), json.loads(racks))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--racks", type=int, default=1)
    parser.add_argument("--mbit", type=float, default=40)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--runs", type=int, default=1, help="the median of so many")
    parser.add_argument("--only", default="", help="ways, with commas")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bedplate-benchmark-", dir=MEMORY if MEMORY.is_dir() else None) as place:
        folder = Path(place)
        (folder / "source").mkdir()
        file = folder / "source" / "file.bin"
        with file.open("wb") as out:
            for _ in range(given.mib):
                out.write(secrets.token_bytes(1 << 20))
        with Links(nodes=given.nodes, racks=given.racks, mbit=given.mbit) as links:
            bench = Bench(links, folder, file, given.mbit)
            with servers(bench):
                lines = measure(bench, [word for word in given.only.split(",") if word], given.runs)
    show(lines, bench_limit=given.mib * (1 << 20) * 8 / (given.mbit * 1e6), as_json=given.json)


def measure(bench: Bench, only: Sequence[str], runs: int) -> list[Line]:
    ways: dict[str, tuple[Callable[[], list[str]], Callable[[], Counted | None]]] = {
        "naive": (lambda: _lacking("curl"), lambda: naive(bench)),
        "ssh": (list, lambda: engine(bench, Engine.SSH)),
        "http": (list, lambda: engine(bench, Engine.HTTP)),
        "torrent": (list, lambda: engine(bench, Engine.TORRENT)),
        "uftp": (lambda: _lacking("uftp", "uftpd"), lambda: uftp(bench)),
        "sbcast": (linkslurm.missing, lambda: sbcast(bench)),
        "sbcast --compress": (linkslurm.missing, lambda: sbcast(bench, "--compress")),
        **{
            f"sbcast --fanout={width}": (linkslurm.missing, partial(sbcast, bench, f"--fanout={width}"))
            for width in (2, 1)
        },
    }
    lines = []
    for way, (lacking, act) in ways.items():
        if only and way.partition(" ")[0] not in only:
            continue
        if names := lacking():
            print(f"{way}: not measured, there is no {', '.join(names)}", file=sys.stderr)
            continue
        found = []
        try:
            for _ in range(runs):
                found.append(bench.measure(way, act))
                print(f"{way}: {found[-1].seconds} s", file=sys.stderr)
        except (ProcessFailed, TimeoutError) as fault:
            print(f"{way}: not measured: {str(fault).splitlines()[0]}", file=sys.stderr)
            continue
        middle = statistics.median_low(line.seconds for line in found)
        lines.append(next(line for line in found if line.seconds == middle))
    return lines


def _lacking(*programs: str) -> list[str]:
    return [program for program in programs if shutil.which(program) is None]


def show(lines: list[Line], *, bench_limit: float, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"limit_s": round(bench_limit, 2), "lines": [asdict(line) for line in lines]}, indent=2))
        return
    base = next((line for line in lines if line.way == "naive"), None)
    print(f"limit: {bench_limit:.2f} s\n")
    print("| way | slowest node, s | x limit | x naive | source bytes, x size | counted | right |")
    print("|---|---|---|---|---|---|---|")
    for line in lines:
        ratio = "" if base is None else f"{line.seconds / base.seconds:.2f}"
        counted = "" if line.counted is None else f"{line.counted:.2f}"
        print(
            f"| {line.way} | {line.seconds} | {line.times_limit:.2f} | {ratio} | {line.source:.2f} | {counted} |"
            f" {line.right}/{line.nodes} |"
        )


if __name__ == "__main__":
    main()
