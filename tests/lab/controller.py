"""What the controller host has beyond its tree: site, keys, credentials, trust in the lab's registry, environment."""

import resource
import secrets
from collections.abc import Mapping
from pathlib import Path

from lab import recipe
from lab.places import CHECKOUT, SITE, Places
from lab.registry import Registry
from lab.trees import CHECKOUT_INSIDE

# What a person and `lab shell` find set. ANSIBLE_INVENTORY: `ansible-playbook playbooks/rollout.yml` needs no -i.
ENVIRONMENT: Mapping[str, str] = {
    "BEDPLATE_SITE": str(SITE),
    "ANSIBLE_CONFIG": str(CHECKOUT_INSIDE / "ansible.cfg"),
    "ANSIBLE_INVENTORY": str(SITE / "fleet.yml"),
    # The checkout is read-only: without a place for compiled code every command compiles all of it again.
    "PYTHONPYCACHEPREFIX": "/var/cache/bedplate/pycache",
    "LANG": "C.UTF-8",
}

STORAGE = """\
[storage]
driver = "overlay"
graphroot = "/var/lib/containers/storage"
runroot = "/run/containers/storage"
"""


def containers_conf() -> str:
    """Engine settings. Where root lacks CAP_SYS_RESOURCE hard limits cannot be raised, and buildah's defaults would."""
    names = (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC))
    limits = [(name, resource.getrlimit(limit)[1]) for name, limit in names]
    texts = ", ".join(f'"{name}={hard}:{hard}"' for name, hard in limits if hard != resource.RLIM_INFINITY)
    return f'[containers]\ndefault_ulimits = [{texts}]\n[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'


SSH = """\
Host *
  StrictHostKeyChecking yes
  UserKnownHostsFile /var/lib/bedplate/site/known_hosts
"""


def nspawn_options(places: Places) -> list[str]:
    """The checkout read-only; container storage on the machine's own file system: overlay cannot lie on overlay."""
    containers = places.live / "containers"
    containers.mkdir(parents=True, exist_ok=True)
    return [f"--bind-ro={CHECKOUT}:{CHECKOUT_INSIDE}", f"--bind={containers}:/var/lib/containers"]


def furnish(root: Path, registry: Registry, files: Mapping[str, str], identity: str) -> None:
    """Write into the controller's root, before it boots. `identity` is the private ssh key of the lab."""
    site = root / SITE.relative_to("/")
    for name, text in files.items():
        write(site / name, text)
    (site / "builds").mkdir(exist_ok=True)
    # What no lock, ledger or repository holds: made anew for each lab.
    write(site / "secrets/munge.key", secrets.token_hex(64) + "\n", mode=0o600)
    write(site / "secrets/slurmdbd.password", secrets.token_urlsafe(24) + "\n", mode=0o600)
    write(root / "root/.ssh/id_ed25519", identity, mode=0o600)
    write(root / "etc/ssh/ssh_config.d/lab.conf", SSH)
    write(root / "root/.config/containers/auth.json", registry.auth_json, mode=0o600)
    write(root / "root/.config/enroot/.credentials", registry.enroot_credentials, mode=0o600)
    write(root / "etc/containers/storage.conf", STORAGE)
    write(root / "etc/containers/containers.conf", containers_conf())
    write(root / "usr/local/share/ca-certificates/lab-registry.crt", registry.certificate)
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    bundle.write_text(bundle.read_text() + registry.certificate)  # what update-ca-certificates would add
    write(root / "root/.gitconfig", recipe.GITCONFIG)
    write(root / "usr/local/bin/enroot", (Path(__file__).with_name("standin") / "enroot").read_text(), mode=0o755)
    write(root / "etc/environment", "".join(f"{name}={value}\n" for name, value in ENVIRONMENT.items()))
    exports = "".join(f"export {name}={value}\n" for name, value in ENVIRONMENT.items())
    write(root / "etc/profile.d/bedplate.sh", exports + f"cd {CHECKOUT_INSIDE}\n")


def write(path: Path, text: str, *, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=mode)
    path.chmod(mode)
    path.write_text(text)
