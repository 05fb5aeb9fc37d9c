"""Question 3, by nccl-tests where the image has them: the same sums by a program that is not ours.

One process for all devices of the machine, one run a size; its own table is read by the names of its columns.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

PROGRAM = "all_reduce_perf"
_ROW = re.compile(r"\s*[0-9]+\s+[0-9]+\s+[a-z]")
type Run = Callable[[Sequence[str], float], tuple[int, str]]


def present() -> bool:
    return shutil.which(PROGRAM) is not None


def measured(sizes: Sequence[int], count: int, limit_s: float, run: "Run | None" = None) -> list[dict[str, Any]]:
    """Each size as `machine.larger` tells it.

    Raises:
        ValueError: a run failed, or said something else than a table that ends well.
    """
    found = []
    for size in sizes:
        words = [PROGRAM, "-g", str(count), "-b", str(size), "-e", str(size), "-c", "1"]
        returned, said = (run or _run)(words, limit_s)
        if returned:
            raise ValueError(f"{' '.join(words)} ended with {returned}: {said.strip()[-500:]}")
        found.append(row(said, size, count))
    return found


def row(text: str, size: int, count: int) -> dict[str, Any]:
    """The row of one size: out of place and in place, the slower of the two; right only if none was wrong.

    Raises:
        ValueError: it is no such table.
    """
    lines = text.splitlines()
    header = next((line.split()[1:] for line in lines if re.match(r"#\s+size\s+count\s+type", line)), [])
    rows = [line.split() for line in lines if _ROW.match(line) and not line.startswith("#")]
    bounds = re.search(r"^#\s*Out of bounds values : ([0-9]+) (OK|FAILED)", text, re.MULTILINE)
    ranks = {match[1] for match in re.finditer(r"^#\s+Rank\s+([0-9]+)\s", text, re.MULTILINE)}
    if (
        len(rows) != 1
        or len(rows[0]) != len(header)
        or not bounds
        or not re.search(r"^# Avg bus bandwidth", text, re.MULTILINE)
    ):
        raise ValueError(f"{PROGRAM} said no table with one size: {text.strip()[-500:]}")
    if len(ranks) != count:
        raise ValueError(f"{PROGRAM} had {len(ranks)} ranks, the profile has {count} devices")

    def column(name: str) -> list[str]:
        return [rows[0][at] for at, each in enumerate(header) if each == name]

    wrong = column("#wrong") or column("error")
    speeds, times = [float(v) for v in column("busbw")], [float(v) for v in column("time")]
    if int(rows[0][0]) != size or not speeds or not times:
        raise ValueError(f"{PROGRAM} measured {rows[0][0]} bytes, {size} were asked for")
    right = bounds[1] == "0" and bool(wrong) and all(re.fullmatch(r"0(\.0+|e[+-]?0+)?", each) for each in wrong)
    return {"bytes": size, "seconds": max(times) / 1e6, "bus_gb_per_s": min(speeds), "right": right}


def _run(words: Sequence[str], limit_s: float) -> tuple[int, str]:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise ValueError(f"{' '.join(words)}: {fault}") from fault
    return done.returncode, done.stdout + done.stderr
