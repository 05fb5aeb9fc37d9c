"""The block size of a squashfs: size, patch of a change of code, and what it costs to make and to read.

    python benchmarks/squashfs_blocks.py TREE [--blocks 128K,256K,512K,1M] [--json]

As root (a mount). TREE is copied twice into a temporary directory, beside it or where TMPDIR says; the second copy has
five of its .py files edited and one added, as a change of code has. The options are those of `bedplate image import`,
the patch is made as `bedplate image place` makes it. "Scattered" reads 2,000 of its files in random order from a fresh
mount: the backing file is in memory then, so what is measured is decompressing whole blocks for small files. Seconds
are of CPU.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bedplate.decide.distribution.patches import window
from bedplate.decide.images.compression import squash_options

EPOCH = {"SOURCE_DATE_EPOCH": "1735689600"}
EDITED, SCATTERED = 5, 2000


def cpu(act: Callable[[], object]) -> float:
    """Seconds of CPU of this process and its children: other jobs of the machine do not count."""
    began = os.times()
    act()
    ended = os.times()
    return round(sum(ended[:4]) - sum(began[:4]), 1)


def call(*words: str | Path, env: dict[str, str] | None = None) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True, env={**os.environ, **(env or {})})


def change(tree: Path) -> None:
    """Edit files of code, as a commit does: a line in the middle; and add one."""
    code = sorted(path for path in tree.rglob("*.py") if path.is_file() and path.stat().st_size > 2000)  # noqa: PLR2004
    for path in random.Random(1).sample(code, EDITED):  # noqa: S311  the same ones each time
        data = path.read_bytes()
        path.unlink()  # a hard link would change both
        path.write_bytes(data[: len(data) // 2] + b"\n# edited\n" + data[len(data) // 2 :])
    (code[0].parent / "added_by_the_benchmark.py").write_text("print('added')\n" * 100)


def scattered(squashfs: Path, place: Path) -> float:
    place.mkdir(exist_ok=True)
    squashfs.read_bytes()  # into memory
    call("mount", "-o", "loop,ro", squashfs, place)
    try:
        names = sorted(path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
        chosen = random.Random(2).sample(names, min(SCATTERED, len(names)))  # noqa: S311
        return cpu(lambda: [path.open("rb").read(4096) for path in chosen])
    finally:
        call("umount", place)


def measured(block: str, old: Path, new: Path, work: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"block": block}
    options = [*squash_options(block).split(), "-all-root", "-noappend", "-no-progress", "-quiet"]
    before, after, patch, again, out = (work / name for name in ("old.sqsh", "new.sqsh", "patch", "again", "unpacked"))
    for tree, file in ((old, before), (new, after)):
        file.unlink(missing_ok=True)
        row["make_s"] = cpu(partial(call, "mksquashfs", tree, file, *options, env=EPOCH))
    base: list[str | Path] = ["-B", str(window(before.stat().st_size)), "-s", before]
    row["patch_s"] = cpu(partial(call, "xdelta3", "-e", "-f", "-1", "-A", *base, after, patch))
    row["apply_s"] = cpu(partial(call, "xdelta3", "-d", "-f", *base, patch, again))
    if again.read_bytes() != after.read_bytes():
        raise SystemExit(f"blocks of {block}: what xdelta3 made of its patch is another file")
    row["unpack_s"] = cpu(partial(call, "unsquashfs", "-no-progress", "-dest", out, after))
    shutil.rmtree(out)
    row["scattered_s"] = scattered(after, work / "mounted")
    row["size"], row["patch"] = after.stat().st_size, patch.stat().st_size
    return row


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("--blocks", default="128K,256K,512K,1M")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bedplate-benchmark-") as place:
        work = Path(place)
        for name in ("old", "new"):
            call("cp", "-a", "--no-preserve=links", given.tree, work / name)
        change(work / "new")
        rows = [measured(block, work / "old", work / "new", work) for block in given.blocks.split(",")]
    if given.json:
        print(json.dumps(rows, indent=2))
        return
    print("| block | size, MB | made in, s | patch, MB | of the size | made in, s | applied in, s | unpacked in, s |"
          " scattered, s |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['block']} | {row['size'] / 1e6:.1f} | {row['make_s']} | {row['patch'] / 1e6:.2f} |"
            f" {row['patch'] / row['size']:.2%} | {row['patch_s']} | {row['apply_s']} | {row['unpack_s']} |"
            f" {row['scattered_s']} |"
        )


if __name__ == "__main__":
    main()
