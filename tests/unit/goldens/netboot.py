"""Write the goldens anew, for a change that is meant: python tests/unit/goldens/netboot.py; then read their diff."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))

from unit.netboot_sample import OF_MODEL, recipe  # noqa: E402


def main() -> None:
    """One node for each model, and what they have in common."""
    made = recipe()
    folder = Path(__file__).with_name("netboot")
    for model, name in OF_MODEL.items():
        (folder / model).mkdir(parents=True, exist_ok=True)
        for file, text in made.files(made.fleet.nodes[name]).items():
            (folder / model / file).write_text(text)
    (folder / "common").mkdir(exist_ok=True)
    for file, text in made.common().items():
        lines = [
            line
            for line in text.splitlines(keepends=True)
            if not line.startswith("dhcp-host=") or re.search(r",(gpu001|cpu01|ctl1),", line)
        ]
        (folder / "common" / file.rpartition("/")[2]).write_text("".join(lines))


if __name__ == "__main__":
    main()
