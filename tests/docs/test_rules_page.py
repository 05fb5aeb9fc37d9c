"""The page of rules is what the rules say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_rules_is_what_the_rules_say() -> None:
    said = subprocess.run([sys.executable, ROOT / "tests/docs/rules.py"], stdout=subprocess.PIPE, text=True, check=True)
    assert (ROOT / "docs/rules.md").read_text() == said.stdout, "run: python tests/docs/rules.py > docs/rules.md"
