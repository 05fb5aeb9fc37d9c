"""The first contact with an installed machine: over ssh, with the host key that it reported and no other."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bedplate.decide.netboot.knownhosts import with_key
from bedplate.decide.netboot.protocol import Install, recorded
from bedplate.ledger.store import Ledger
from bedplate.sources.site import Site
from bedplate.ssh import Target, run_everywhere

ASK_S = 60.0
COMMAND = "cat /proc/sys/kernel/random/boot_id"


def confirm(site: Site, ledger: Ledger, names: Sequence[str], installs: Mapping[str, Install]) -> dict[str, str]:
    """Log in to each and record that its key is the reported one; gives why not, for those that could not be asked.

    The known_hosts of the site may hold older keys of a node: here nothing but the reported key is accepted.
    """
    port = site.fleet.ssh.port
    with tempfile.TemporaryDirectory(prefix="bedplate-keys-") as folder:
        targets = []
        for name in names:
            key, address = installs[name].host_key, site.fleet.nodes[name].address
            if key is None:
                continue
            known = Path(folder) / name
            known.write_text(with_key("", [name, address], key, port=port))
            targets.append(Target(name, address, site.fleet.ssh.user, port, site.identity_path, known))
        why = {}
        for answer in run_everywhere(targets, COMMAND, timeout_s=ASK_S):
            if answer.ok:
                install = installs[answer.name]
                boot = answer.out.decode(errors="replace").strip()[:64]
                ledger.append(recorded("confirmed", answer.name, install, host_key=install.host_key, boot_id=boot))
            else:
                why[answer.name] = answer.why
    return why
