"""What a ledger of a million events costs: to verify, to ask, to append to.

    python benchmarks/ledger.py [--events 1000000] [--folder DIR] [--url URL | --postgresql] [--json]

Two years of 660 nodes: each is verified and collected daily, every week a rollout takes all of them to another
environment in ten batches. Questions are measured inside the process (the kept projection is up to date), and as
whole commands, from the start of the interpreter to its end. Appends are one event each, synced to disk.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import batched
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from bedplate.decide.ledgerquestions import chain_of
from bedplate.ledger import store
from bedplate.ledger.comparison import Comparison
from bedplate.ledger.projection import projection, world
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import sha256
from bedplate.model.event import Draft
from unit.ledger_sample import write_site
from unit.postgres_server import server

NODES = [f"gpu{number:03}" for number in range(1, 661)]
ENVIRONMENTS = {f"2026.{number:02}": sha256(str(number).encode()) for number in range(1, 25)}
BATCHES, STEPS = 10, ("preflight", "drain", "base", "kernel", "driver", "fabric", "slurm", "image", "reboot", "verify")
START = 1_790_000_000  # seconds: the first event
REPEATS = 20
FAILURES = 100  # one change in so many fails
WRITERS = 8
APPENDS_S = 8.0  # how long each measurement of appends lasts


def drafts() -> Iterator[Draft]:
    """Events without end: days of verification, and a rollout every seventh."""
    choose = random.Random(8)  # noqa: S311
    for name, identity in ENVIRONMENTS.items():
        document = {"environment": name, "packages": {"gpu": {f"package-{n}": {"version": "1.0"} for n in range(50)}}}
        yield Draft("lock.resolved", (f"environment:{name}",), {"environment": name, "document": document}, identity)
    runs = dict.fromkeys(NODES, next(iter(ENVIRONMENTS)))
    day = 0
    while True:
        if day % 7 == 0:
            target = list(ENVIRONMENTS)[day // 7 % len(ENVIRONMENTS)]
            yield from rollout(day // 7 + 1, target, choose)
            runs = dict.fromkeys(NODES, target)
        for node in NODES:
            yield verified(node, runs[node])
            digest = sha256(runs[node].encode())
            said = {"same_as": 1, "facts_sha256": digest, "time": "2026-11-30T00:00:00Z"}
            yield Draft("node.collected", (f"node:{node}",), said)
        day += 1


def rollout(number: int, target: str, choose: random.Random) -> Iterator[Draft]:
    identity, about = ENVIRONMENTS[target], (f"rollout:{number}", f"environment:{target}")
    parts = [NODES[first::BATCHES] for first in range(BATCHES)]
    plan = {"batches": [{"name": str(n), "nodes": part} for n, part in enumerate(parts)]}
    yield Draft("rollout.started", about, {"environment": target, "plan": plan}, identity)
    for n, part in enumerate(parts):
        yield Draft("batch.admitted", (*about, *(f"node:{x}" for x in part)), {"batch": n, "name": str(n)}, identity)
        for step in STEPS:
            yield Draft("step.ended", (*about, *(f"node:{x}" for x in part)), {"step": step, "result": "ok"}, identity)
        for node in part:
            yield Draft(**{**vars(verified(node, target)), "subjects": (*about, f"node:{node}")})
            if choose.randrange(100) == 0:
                yield Draft("node.failed", (*about, f"node:{node}"), {"step": "reboot", "why": "no answer"}, identity)
            else:
                yield Draft("node.done", (*about, f"node:{node}"), {"manifest_sha256": sha256(b"m")}, identity)
    yield Draft("rollout.ended", about, {"nodes": {"done": len(NODES)}}, identity)


def verified(node: str, environment: str) -> Draft:
    facts = {fact: sha256(f"{environment} {fact}".encode()) for fact in ("files", "packages", "image", "units")}
    body = {"verdict": "PASS", "facts": facts, "why": "", "checks": 60}
    return Draft("node.verified", (f"node:{node}", f"environment:{environment}"), body, ENVIRONMENTS[environment])


def made(url: str, count: int) -> float:
    """Append events until there are as many; returns the seconds that it took."""
    began = time.perf_counter()
    clock = iter(range(START * 1000, START * 1000 + count * 100, 63))  # a million in 730 days: one in 63 ms and more

    def now() -> str:
        ms = START * 1000 + (next(clock) - START * 1000) * 1000
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)) + f".{ms % 1000:03}000Z"

    real, store._now = store._now, now  # noqa: SLF001
    try:
        with Ledger.open(url, actor="bench@ctl") as book:
            there = book.head()[0]
            events = drafts()
            for _ in range(there):
                next(events)
            for part in batched(events, 5000):
                missing = count - there
                book.append(*part[:missing])
                there += len(part[:missing])
                if there >= count:
                    break
    finally:
        store._now = real  # noqa: SLF001
    return time.perf_counter() - began


def timed(work: Callable[[], object]) -> tuple[float, float, float]:
    """Median, worst and median of the CPU of several runs, in ms."""
    spent, cpu = [], []
    for _ in range(REPEATS):
        began, used = time.perf_counter(), time.process_time()
        work()
        spent.append((time.perf_counter() - began) * 1000)
        cpu.append((time.process_time() - used) * 1000)
    return round(median(spent), 1), round(max(spent), 1), round(median(cpu), 1)


def questions(book: Ledger) -> dict[str, tuple[float, float, float]]:
    """ms inside the process, projection opened each time: name -> median, worst, CPU."""
    head = book.head()[0]
    middle = dict(book.moments(head // 2, head // 2))[head // 2]
    target = next(iter(ENVIRONMENTS.values()))

    def at() -> object:
        with projection(book) as kept:
            moment = kept.moment(book, middle)
            return [kept.changes(node, until=moment.event, last=1) for node in kept.nodes()]

    def at_one() -> object:
        with projection(book) as kept:
            return kept.changes("gpu017", until=kept.moment(book, middle).event, last=1)

    def who() -> object:
        with projection(book) as kept:
            return [n for n in kept.nodes() if any(c.runs == target for c in kept.changes(n, last=1))]

    def who_then() -> object:
        with projection(book) as kept:
            until = kept.moment(book, middle).event
            return [n for n in kept.nodes() if any(c.runs == target for c in kept.changes(n, until=until, last=1))]

    def explain() -> object:
        with projection(book) as kept:
            began, ended, ids = chain_of(kept.changes("gpu017"), kept.latest("gpu017"))
            about = book.events(after=began, until=ended or kept.head[0], subject="node:gpu017") if began else ()
            return list(book.chosen(ids).values()), list(about)

    return {
        "which environment did one node run at a time": timed(at_one),
        "which environments did 660 nodes run at a time": timed(at),
        "which nodes run an environment": timed(who),
        "which nodes ran an environment at a time": timed(who_then),
        "why is a node in this state": timed(explain),
        "the state of all nodes and rollouts (plan, status)": timed(lambda: world(book)),
        "one event by its number, judged": timed(lambda: book.event(head // 2)),
        "every lock that was recorded": timed(lambda: list(book.events(kinds=["lock.resolved"]))),
    }


def commands(root: Path, middle: str) -> dict[str, tuple[float, float]]:
    """Seconds of whole commands, and of their CPU: medians of five."""
    found = {}
    for words in (["at", middle, "--nodes", "gpu017"], ["at", middle], ["who", "2026.01"], ["explain", "gpu017"]):
        spent, cpu = [], []
        for _ in range(5):
            began, used = time.perf_counter(), sum(os.times()[2:4])
            program = [sys.executable, "-m", "bedplate", "--site", str(root), "ledger", *words, "--json"]
            subprocess.run(program, check=True, stdout=subprocess.DEVNULL)
            spent.append(time.perf_counter() - began)
            cpu.append(sum(os.times()[2:4]) - used)
        found["bedplate ledger " + " ".join(words)] = round(median(spent), 2), round(median(cpu), 2)
    return found


def appends(url: str, writers: int) -> float:
    """Events a second, each appended and synced by itself, by so many processes at once."""
    program = (
        "import sys, time\nfrom bedplate.ledger.store import Ledger\nfrom bedplate.model.event import Draft\n"
        "with Ledger.open(sys.argv[1]) as book:\n"
        "    print(flush=True)\n    sys.stdin.readline()\n    end, n = time.monotonic() + float(sys.argv[2]), 0\n"
        "    while time.monotonic() < end:\n"
        "        book.append(Draft('step.ended', ('node:gpu001',), {'step': 'base', 'result': 'ok', 'n': n})); n += 1\n"
        "    print(n)\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program, url, str(APPENDS_S)], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
        for _ in range(writers)
    ]  # fmt: skip
    for one in running:
        assert one.stdout  # noqa: S101
        one.stdout.readline()
    began = time.perf_counter()
    for one in running:
        assert one.stdin  # noqa: S101
        one.stdin.write("\n")
        one.stdin.flush()
    total = sum(int(one.communicate()[0]) for one in running)
    return round(total / (time.perf_counter() - began), 1)


def measured(url: str, root: Path, events: int) -> dict[str, Any]:
    result: dict[str, Any] = {"events": events, "filled_s": round(made(url, events), 1)}
    with Ledger.read(url) as book:
        if book.cache is not None:
            began = time.perf_counter()
            with projection(book):
                pass
            result["projection_folded_s"] = round(time.perf_counter() - began, 1)
            result["projection_bytes"] = book.cache.stat().st_size if book.cache.exists() else 0
        began, used = time.perf_counter(), time.process_time()
        with Comparison(url, book) as kept:
            found = book.examine(heads=kept.heads)
            wrong = kept.wrong()
        result["verify_s"] = round(time.perf_counter() - began, 1)
        result["verify_cpu_s"] = round(time.process_time() - used, 1)
        if found.damage or wrong or found.events < events:
            raise SystemExit(f"the ledger does not verify: {found.damage[:3]} {wrong[:3]}")
        result["questions_ms"] = questions(book)
        middle = dict(book.moments(events // 2, events // 2))[events // 2]
    result["commands_s"] = commands(root, middle[:19])
    result["appends_per_s"] = {"1 writer": appends(url, 1), f"{WRITERS} writers": appends(url, WRITERS)}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where the ledger lies, and is kept; default: a temporary one")
    parser.add_argument("--url", help="a ledger elsewhere: postgresql://…; it is filled up")
    parser.add_argument("--postgresql", action="store_true", help="in a server of its own, with Debian's settings")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bedplate-ledger-") as temporary, ExitStack() as opened:
        folder = asked.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        url = asked.url or f"sqlite:///{folder.resolve()}/ledger.sqlite3"
        if asked.postgresql:
            url = opened.enter_context(server(configuration="")).database("ledger")
        write_site(folder, url)
        result = measured(url, folder, asked.events)
    if asked.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{result['events']} events, {os.cpu_count()} processors; filled in {result['filled_s']} s")
    print(f"verify, with the kept projection: {result['verify_s']} s, CPU {result['verify_cpu_s']} s")
    print(f"folded anew: {result.get('projection_folded_s', '-')} s")
    for name, (middle, worst, cpu) in result["questions_ms"].items():
        print(f"  {name:<52} {middle:>8} ms  (worst {worst}, CPU {cpu})")
    for name, (seconds, cpu) in result["commands_s"].items():
        print(f"  {name:<52} {seconds:>8} s   (CPU {cpu})")
    for name, rate in result["appends_per_s"].items():
        print(f"  appends, {name:<43} {rate:>8} a second")


if __name__ == "__main__":
    main()
