"""How to make an environment again on bare machines: its inputs, where each is by its hash, the commands in order.

SITE, EXPORT, FILES, DIR, NAME and VAULT are all that a person fills in: a directory for the site, the export of the
ledger and its files, the boot server's directory, who gives the word, and the file with the vault's password.
"""

from collections.abc import Iterator, Mapping

from bedplate.decide.acceptancegate import REFERENCE
from bedplate.decide.document import Commands, Part, Section, Table
from bedplate.decide.handoverlist import AGAIN, accepted
from bedplate.decide.handoverrecord import Record
from bedplate.decide.ledgerfiles import SITE
from bedplate.decide.lockdoc import LockDocument
from bedplate.model.event import Event
from bedplate.model.layers import Layer
from bedplate.model.nodes import fold

B = "bedplate --site SITE"
RUN = ("training-code", "dependency-lock", "training-config", "tokenizer", "sample-data", "launch-command",
       "pass-criteria", "test-log")  # fmt: skip
WORDS = (
    "SITE: a directory, empty at first. EXPORT, FILES: the export of the ledger and its files. DIR: the boot server's "
    "directory. NAME: who gives the word. VAULT: the file with the password of vault.yml. A command that finds other "
    "bytes than these refuses, and says which. In the checkout, `tools/setup` makes what it needs, and "
    ".venv/bin/bedplate is bedplate."
)
NO_RECORD = "not on record"
CHANGED = {True: ", with changes that are in no commit", None: ", whether changed is not known"}


def again(record: Record, lock: LockDocument) -> Section:
    """The section: inputs, then what to do with them."""
    on = record.on(lock)
    nodes = f"'{fold(on)}'" if on else "NODES"
    parts: list[Part] = [
        "What is needed, and where it is found:",
        Table(("input", "which bytes", "where"), tuple(_inputs(record, lock))), WORDS,
        "First the record and the site. Exit code 0 of the import: the record is whole.", Commands((
            f"{B} ledger import EXPORT --files FILES",
            f"{B} ledger verify --head {record.head[0]}:{record.head[1]} --files --offline",
            f"{B} ledger recover {lock.name}",
            f"{B} check",
        )),
        "Put the secrets into SITE now. Then the bytes: a lock that is the recorded one, packages and image by hash.",
        Commands(tuple(_bytes(lock))),
    ]  # fmt: skip
    parts += _bare(record, lock, nodes)
    parts += [
        "Then the environment onto the machines, and the proof.",
        Commands(tuple(_rollout(record, lock, nodes))),
        f"It is the same when `bedplate ledger who` names the nodes under {lock.identity}, verified.",
    ]
    return Section(f"{lock.name}: {AGAIN}", tuple(parts), level=3)


def _inputs(record: Record, lock: LockDocument) -> Iterator[tuple[str, str, str]]:
    archive = lock.document["archive"]
    yield "the record", f"head {record.head[0]} {record.head[1]}", "bedplate ledger export EXPORT --files FILES"
    yield "Bedplate", *_program(record, lock)
    yield "the lock", lock.identity, f"{record.lock_event(lock.identity)}; environments/{lock.name}.lock.json"
    yield "what was asked for", lock.spec_sha256, f"environments/{lock.name}.yml, among the site's files"
    if kept := record.site_files(lock):
        yield "the site's files", f"{len(kept)} files, see files and logs", f"event {kept[0].event}, role {SITE}"
    else:
        yield "the site's files", NO_RECORD, f"where they still are: bedplate lock {lock.name}"
    suite = f"{archive['url']} {archive['suite']} {' '.join(archive['components'])}".strip()
    yield "package archive", f"InRelease {archive['inrelease_sha256']}", f"{suite}{_published(record, lock)}"
    yield "key of the archive", archive["key_sha256"], "keys/, among the site's files"
    if (image := lock.image) is not None:
        lost = f"lost there: bedplate image build {lock.name}, where that gives this digest again"
        yield "image", image.manifest_digest, f"registry: {image.reference}; {lost}"
        yield "artifact of the image", image.squashfs_sha256, "made again by bedplate image import, the same by hash"
    netboot = record.fleet.netboot
    for file in () if netboot is None else (netboot.image, netboot.kernel, netboot.initrd):
        yield f"installer: {file.name}", file.sha256, f"DIR/files/{file.name}{_archived(record, file.sha256)}"
    if netboot is not None:
        yield "boot loaders", "no hash is on record", "DIR/tftp, DIR/files: docs/netboot.md, Loaders"
    for (model, name), digest in _profiles(record, lock).items():
        where = f"bedplate ledger file {digest}" if _kept(record, digest) else "not kept with the ledger"
        yield f"profile of the acceptance: {name}", digest, f"{where}; it is acceptance/{model}.yml of the site"
    for role in RUN:
        for one in record.of(lock, role):
            yield f"{role}: {one.name}", one.sha256, f"event {one.event}; bedplate ledger file {one.sha256}"
    yield "secrets", "in no record, on purpose", "; ".join(_secrets(record, lock))


def _program(record: Record, lock: LockDocument) -> tuple[str, str]:
    """Which Bedplate locked it, as far as that is on record."""
    event = record.resolved.get(lock.identity)
    said = {} if event is None else dict(event.body.get("bedplate") or {})
    check = "bedplate lock refuses templates that are not those of the config layer"
    if event is None or not said.get("commit"):
        return "a checkout whose templates have the hashes of the config layer", f"no commit is on record; {check}"
    changed = CHANGED.get(said["modified"], "")
    way = f"event {event.id}; git checkout {said['commit']}; {check}"
    return f"{said['version']}, commit {said['commit']}{changed}", way


def _published(record: Record, lock: LockDocument) -> str:
    archive = lock.document["archive"]
    for event in record.archive:
        body = event.body
        same = (body.get("suite"), body.get("inrelease_sha256")) == (archive["suite"], archive["inrelease_sha256"])
        if event.kind == "archive.published" and same:
            return f", published of snapshot {body.get('snapshot')}, event {event.id}"
    return ""


def _archived(record: Record, digest: str) -> str:
    """Where the archive keeps a file of that hash."""
    for event in record.archive:
        if event.kind == "archive.added" and event.body.get("sha256") == digest:
            return f"; files/{event.body.get('kind')}/{event.body.get('name')} of the archive, event {event.id}"
    return ""


def _secrets(record: Record, lock: LockDocument) -> Iterator[str]:
    yield f"the ssh key {record.fleet.ssh.identity_file} that logs in as {record.fleet.ssh.user}"
    if record.fleet.netboot is None:
        yield f"the host keys of the machines, in {record.fleet.ssh.known_hosts}"
    if record.fleet.netboot is not None:
        yield "vault.yml: netboot_password_hash, netboot_authorized_keys (docs/netboot.md)"
    if record.fleet.bmc is not None:
        yield "vault.yml: bmc_user, bmc_password or bmc_of"
    if lock.unmanaged(Layer.SCHEDULER) is None:
        yield "secrets/munge.key, secrets/slurmdbd.password (docs/slurm.md)"
    yield "what else was in SITE/secrets/, as the registry's certificate and passwords"


def _bytes(lock: LockDocument) -> Iterator[str]:
    yield f"{B} lock {lock.name}    # unchanged, or it says what differs"
    yield f"{B} archive verify    # on the archive's host"
    if lock.image is not None:
        yield f"{B} image import {lock.name}"


def _bare(record: Record, lock: LockDocument, nodes: str) -> list[Part]:
    """Machines without an operating system; nothing is claimed where the site does not say how they get one."""
    netboot = record.fleet.netboot
    if netboot is None:
        said = "How a bare machine gets its operating system is not on record: fleet.yml has no section netboot."
        system = lock.layers[Layer.OS.value]
        asked = f"{system.get('distribution', '?')} {system.get('release', '?')}"
        return [f"{said} Install {asked} on each by other means, with its name, address and the ssh key."]
    start = (
        "start each machine from the network by hand: fleet.yml has no section bmc"
        if record.fleet.bmc is None
        else f"{B} power netboot --nodes {nodes} --approved-by NAME --vault-password-file VAULT"
    )
    commands = (
        f"{B} netboot serve --dir DIR    # on {netboot.server}, in the foreground; as a service: docs/netboot.md",
        f"{B} netboot arm {lock.name} --nodes {nodes} --approved-by NAME --dir DIR --vault-password-file VAULT",
        f"# {start}" if record.fleet.bmc is None else start,
        f"{B} netboot wait --nodes {nodes}    # until the host key of each is confirmed",
    )
    said = "Bare machines get their operating system over the network, each step recorded. This WIPES their boot disks."
    return [said, Commands(commands)]


def _rollout(record: Record, lock: LockDocument, nodes: str) -> Iterator[str]:
    """Reference nodes first: others are refused until an acceptance of one of them passed."""
    for (model, _), digest in _profiles(record, lock).items():
        if _kept(record, digest):
            yield f'install -D -m 644 "$({B} ledger file {digest})" SITE/acceptance/{model}.yml'
    if lock.image is not None:
        yield f"{B} image place {lock.name} --nodes {nodes}"
    of = dict(accepted(record, lock))
    on = record.on(lock)
    first = [name for name in on if REFERENCE in record.fleet.nodes[name].groups]
    if first and first != on:
        yield f"{B} rollout {lock.name} --nodes '{fold(first)}'"
        yield from _accept(lock, {name: event for name, event in of.items() if name in first})
    yield f"{B} rollout {lock.name} --nodes {nodes}"
    yield f"{B} verify {lock.name} --nodes {nodes}"
    yield from _accept(lock, of if first == on else {name: one for name, one in of.items() if name not in first})
    for path in sorted({str(one.body.get("checkpoint")) for one in record.verdicts if _of(one, lock)}):
        yield f"{B} checkpoint readable '{path}' {lock.name}"
    yield f"{B} delivery {lock.name} --nodes {nodes} --keep-logs --out delivery.html"
    yield f"{B} ledger who {lock.identity[:19]}"


def _of(event: Event, lock: LockDocument) -> bool:
    return event.environment == lock.identity


def _accept(lock: LockDocument, of: Mapping[str, Event]) -> Iterator[str]:
    """The acceptances again, by the engine that they had."""
    by: dict[str, list[str]] = {}
    for name, event in of.items():
        by.setdefault(str(event.body.get("engine")), []).append(name)
    for engine, names in sorted(by.items()):
        yield f"{B} node accept '{fold(names)}' --env {lock.name} --engine {engine}"


def _profiles(record: Record, lock: LockDocument) -> dict[tuple[str, str], str]:
    """Model, and name of the profile that its machines were accepted by -> its digest; the last where there are two."""
    found = {}
    for name, event in accepted(record, lock):
        profile = event.body.get("profile") or {}
        if profile.get("file_sha256"):
            model = record.fleet.kinds[record.fleet.nodes[name].kind].model
            found[model, str(profile["name"])] = f"sha256:{profile['file_sha256']}"
    return found


def _kept(record: Record, digest: str) -> bool:
    return any(one.sha256 == digest for one in record.files)
