"""Documentation is part of the change: every command has help, an example and a page; links and commands exist."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*/README.md"))]

spec = importlib.util.spec_from_file_location("reference", Path(__file__).with_name("reference.py"))
assert spec is not None
assert spec.loader is not None
reference = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reference)
COMMANDS = reference.commands(reference.bedplate, "bedplate")


@pytest.mark.slow
def test_the_page_of_commands_is_what_the_commands_say() -> None:
    written = (ROOT / "docs/commands.md").read_text()
    # In a process of its own: click keeps the help options that a command had first, in whatever test that was.
    said = subprocess.run(
        [sys.executable, ROOT / "tests/docs/reference.py"], stdout=subprocess.PIPE, text=True, check=True
    )
    assert written == said.stdout, "run: python tests/docs/reference.py > docs/commands.md"


def test_the_page_of_checks_is_what_the_checks_say() -> None:
    said = subprocess.run(
        [sys.executable, ROOT / "tests/docs/checks.py"], stdout=subprocess.PIPE, text=True, check=True
    )
    assert (ROOT / "docs/checks.md").read_text() == said.stdout, "run: python tests/docs/checks.py > docs/checks.md"


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[path for path, _ in COMMANDS])
def test_every_command_has_help_with_an_example_and_json(path: str, command: click.Command) -> None:
    assert command.help is not None
    assert "Example:" in command.help or "Examples:" in command.help
    names = {name for option in command.params for name in option.opts}
    assert "--json" in names or path == "bedplate lab shell"  # a shell prints what its command prints


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page}: {target}"


def known(words: list[str]) -> bool:
    return any(" ".join(words[:n]) in dict(COMMANDS) for n in (2, 3))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_the_documentation_exist(page: Path) -> None:
    for line in re.findall(r"(?:^ {4}|`)(bedplate [a-z][^`\n#]*)", page.read_text(), re.MULTILINE):
        words = line.split()
        groups = {path.split()[1] for path, _ in COMMANDS if len(path.split()) == 3}
        verbs = words[2].split("|") if len(words) > 2 and words[1] in groups else [""]
        for noun in words[1].split("|"):
            for verb in verbs:
                if verb.startswith(("-", "…", "[")) or (noun in groups and not verb):
                    continue
                assert known(["bedplate", noun, *([verb] if verb else [])]), f"{page.name}: {line}"


def test_the_readme_leads_to_every_page() -> None:
    readme = (ROOT / "README.md").read_text()
    pages = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    assert {page for page in pages if f"({page})" not in readme} == set()


def test_ci_runs_the_command_of_the_readme() -> None:
    readme, ci = (ROOT / "README.md").read_text(), (ROOT / ".ci/run").read_text()
    assert "    tools/test " in readme
    assert "\nexec tools/test\n" in ci
    for name in ("tools/demo", "tools/test", ".ci/run", "tools/setup"):
        subprocess.run(["bash", "-n", ROOT / name], check=True)
        assert (ROOT / name).stat().st_mode & 0o111


def test_nothing_at_the_top_level_surprises_a_newcomer() -> None:
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert found <= {
        "inventory", "playbooks", "roles", "autoinstall", "images", "tools", "tests", "ansible.cfg", "pyproject.toml",
        "README.md", "CHANGELOG.md", "LICENSE", "docs", "benchmarks", "uv.lock",
    }  # fmt: skip
