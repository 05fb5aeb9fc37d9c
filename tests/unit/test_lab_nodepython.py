"""Code from zip archives is compiled once in lab hosts, and what it does is what it says."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lab import nodepython

pytestmark = pytest.mark.slow  # starts Python


def test_what_a_zip_archive_holds_is_compiled_once_for_each_text(tmp_path: Path) -> None:
    nodepython.compile_once(tmp_path)
    packages = tmp_path / nodepython.PACKAGES
    module = packages / f"{nodepython.NAME}.py"
    module.write_text(module.read_text().replace('f"/var/cache', f'f"{tmp_path}/var/cache'))
    archive = tmp_path / "sent.zip"
    # As `site` does it for a .pth file of the host.
    program = f"import site, sys; site.addsitedir({str(packages)!r}); sys.path.insert(0, {str(archive)!r}); import sent"

    def says(text: str) -> str:
        with zipfile.ZipFile(archive, "w") as sent:
            sent.writestr("sent.py", text)
        return subprocess.run(
            [sys.executable, "-I", "-c", program], check=True, capture_output=True, text=True
        ).stdout.strip()

    def kept() -> list[Path]:
        return sorted(path for path in (tmp_path / "var/cache").rglob("*") if path.is_file())

    assert says("print('one')") == "one"
    (first,) = kept()
    assert says("print('one')") == "one"
    assert kept() == [first]
    assert says("print('two')") == "two", "it is the text that counts, and not the name"
    assert len(kept()) == 2
    first.write_bytes(b"half")
    assert says("print('one')") == "one", "what is damaged is compiled again"
