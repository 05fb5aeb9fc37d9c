"""Where a site's ledger is, found without reading the site: a question to the ledger needs no fleet of 700 nodes.

One plain line of fleet.yml says it. Wherever that line is anything but plain, the site is read whole, as everywhere.
"""

import re
from pathlib import Path

LINE = re.compile(r"^ledger:.*$", re.MULTILINE)
PLAIN = re.compile(r"ledger: +(sqlite:///[A-Za-z0-9._/-]+|postgresql:[A-Za-z0-9._/@:?=&%+-]+) *")


def ledger_address(root: Path) -> str:
    """The address of the ledger of a site.

    Raises:
        BadInput: there is no site, or its fleet.yml is wrong.
    """
    path = root.resolve() / "fleet.yml"
    try:
        lines = LINE.findall(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        lines = []
    plain = PLAIN.fullmatch(lines[0]) if len(lines) == 1 else None
    if plain is None:
        from bedplate.sources.site import open_site  # noqa: PLC0415  half a second that a question seldom needs

        return open_site(root).ledger_url
    return absolute(plain[1], path.parent)


def absolute(url: str, root: Path) -> str:
    """An address as it stands in fleet.yml, with a relative file in the site."""
    prefix = "sqlite:///"
    if url.startswith(prefix) and not url.startswith(f"{prefix}/") and not url.endswith(":memory:"):
        return f"{prefix}{root / url.removeprefix(prefix)}"
    return url
