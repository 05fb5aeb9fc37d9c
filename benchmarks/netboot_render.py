"""What rendering the installation of a fleet costs, and what its lint costs, apart from each other.

    python benchmarks/netboot_render.py [--nodes 660 10000] [--linted 60] [--json]

The GPU machines of the example site, repeated up to each number, with a lock of three kinds: six files for each node
and the files of the boot server, in memory. Reading the site and writing to a disk are not in it. The lint is measured
on some of the nodes and told per node.
"""

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from bedplate.decide.autoinstall.lint import lint  # noqa: E402
from bedplate.decide.netboot.recipe import NODE_FILES, Recipe  # noqa: E402
from bedplate.model.fleet import Node  # noqa: E402
from unit.netboot_sample import recipe  # noqa: E402


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[660, 10_000])
    parser.add_argument("--linted", type=int, default=60, help="nodes whose files are linted")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = {
        "rendering": [rendering(recipe(), count) for count in given.nodes],
        "lint": linting(recipe(), given.linted),
    }
    print(json.dumps(found, indent=2, sort_keys=True) if given.json else table(found))


def fleet_of(made: Recipe, count: int) -> list[Node]:
    """As many nodes as wanted, each with a name, serials and MACs of its own."""
    model = made.fleet.nodes["gpu001"]
    return [
        dataclasses.replace(
            model,
            name=f"gpu{number:05d}",
            serial=f"EXAMPLE-{number:06d}",
            boot_mac=f"02:00:00:{number >> 16:02x}:{number >> 8 & 255:02x}:{number & 255:02x}",
            boot_disk_serials=(f"EXM2A{number:06d}", f"EXM2B{number:06d}"),
        )
        for number in range(1, count + 1)
    ]


def rendering(made: Recipe, count: int) -> dict[str, Any]:
    nodes = fleet_of(made, count)
    made.fleet = dataclasses.replace(made.fleet, nodes={node.name: node for node in nodes})
    wall, cpu = time.perf_counter(), time.process_time()
    size = sum(len(text) for node in made.nodes() for text in made.files(node).values())
    size += sum(len(text) for text in made.common().values())
    index = made.index(nodes)
    return {
        "nodes": count, "files": count * len(NODE_FILES), "bytes": size, "indexed": len(index["nodes"]),
        "wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu,
    }  # fmt: skip


def linting(made: Recipe, count: int) -> dict[str, Any]:
    nodes = fleet_of(made, count)
    files = [(name, text.encode()) for node in nodes for name, text in made.files(node).items()]
    wall, cpu = time.perf_counter(), time.process_time()
    findings = sum(len(lint(data, name).findings) for name, data in files)
    return {
        "nodes": count,
        "findings": findings,
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
    }


def table(found: dict[str, Any]) -> str:
    lines = [
        f"rendering {each['nodes']} nodes: {each['cpu_s']:.2f} s of CPU, {each['wall_s']:.2f} s on the clock;"
        f" {each['files']} files, {each['bytes'] / 1e6:.0f} MB"
        for each in found["rendering"]
    ]
    lint_ = found["lint"]
    each = 1000 * lint_["cpu_s"] / lint_["nodes"]
    return "\n".join(
        [*lines, f"lint: {each:.0f} ms of CPU per node, {lint_['findings']} findings in {lint_['nodes']} nodes"]
    )


if __name__ == "__main__":
    main()
