"""What the health service sees of nodes: the reports of their timers, and a whole look at those that may return.

A report is one remote command a node, and starts no program of ours there.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from bedplate.decide.healthdrain import FRESH_S
from bedplate.decide.healthreport import COMMAND, report
from bedplate.decide.healthresult import NoResult, lost
from bedplate.observe.health import WIDTH, ask, new_run
from bedplate.sources.site import Site
from bedplate.ssh import Target, run_everywhere
from bedplate_agent.judging import chosen
from bedplate_agent.probe import IDLE, OUT_OF_BAND, PASSIVE
from bedplate_agent.sinks import Result

DEADLINE_S = 30.0  # of a node: a login and one cat
RETURN_CLASSES = (PASSIVE, OUT_OF_BAND, IDLE)  # all that does not load a node


@dataclass(frozen=True)
class OverSsh:
    """The nodes of a site."""

    site: Site

    def reports(self, names: Sequence[str]) -> list[tuple[int, Result]]:
        return reports(self.site, names)

    def look(self, names: Sequence[str]) -> list[Result]:
        found: list[Result] = []
        ask(self.site, names, run=new_run(), classes=RETURN_CLASSES, report=found.append)
        return found


def reports(site: Site, names: Sequence[str], *, width: int = WIDTH) -> list[tuple[int, Result]]:
    """When each node was looked at (seconds since 1970, by our clock), and what was found; every node has a row."""
    asked = [check.id for check in chosen([PASSIVE])]
    ssh = site.fleet.ssh
    targets = [
        Target(name, site.fleet.nodes[name].address, ssh.user, ssh.port, site.identity_path, site.known_hosts_path)
        for name in names
    ]
    found = []
    for answer in run_everywhere(targets, COMMAND, width=width, timeout_s=DEADLINE_S):
        now_s = int(time.time())
        if not answer.ok:
            found.append((now_s, lost(answer.name, answer.why)))
            continue
        try:
            read = report(answer.out, answer.name, asked, oldest_s=FRESH_S)
            found.append((now_s - read.age_s, read.result))
        except NoResult as fault:
            found.append((now_s, lost(answer.name, str(fault))))
    return found
