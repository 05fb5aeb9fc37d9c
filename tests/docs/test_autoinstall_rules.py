"""The page of the lint's rules is what the rules say."""

from pathlib import Path

from bedplate.decide.autoinstall.rules import page


def test_the_page_of_rules_is_what_the_rules_say() -> None:
    written = (Path(__file__).resolve().parents[2] / "docs/autoinstall-lint.md").read_text()
    assert written == page(), "run: python tests/docs/autoinstall_rules.py > docs/autoinstall-lint.md"
