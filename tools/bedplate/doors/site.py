"""The site of this Ansible process: the directory of the fleet.yml that the inventory plug-in read."""

import os
from functools import cache
from pathlib import Path

from bedplate.model.faults import Refused
from bedplate.sources.site import Site, open_site

parsed: list[Path] = []  # filled by the inventory plug-in, in the main process, before anything else runs


@cache
def _open(root: Path) -> Site:
    return open_site(root)


def current() -> Site:
    """The one site of this run.

    Raises:
        Refused: the inventory has no fleet.yml, or more than one.
    """
    roots = sorted(set(parsed))
    if len(roots) != 1:
        found = ", ".join(map(str, roots)) or "none"
        raise Refused(f"a run has one site, found: {found} (run: ansible-playbook -i SITE/fleet.yml …)")
    return _open(roots[0])


def refuse_example(site: Site, doing: str) -> None:
    """Refuse what would contact a node of the example site: Ansible chooses a site by its inventory alone.

    Raises:
        Refused: the site says `example: true`.
    """
    chosen = os.environ.get("BEDPLATE_SITE")
    if chosen and Path(chosen).resolve() != site.root:
        site.refuse_example(
            doing, "Ansible does not read BEDPLATE_SITE: ansible-playbook -i $BEDPLATE_SITE/fleet.yml …"
        )
    site.refuse_example(doing, "choose your site: ansible-playbook -i SITE/fleet.yml …")
