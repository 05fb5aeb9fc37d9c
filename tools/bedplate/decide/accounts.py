"""The commands that make Slurm's accounting what accounts.yml says, from what sacctmgr shows of it.

Nothing is deleted: what others added to the database stays, and is not spoken of. So the second time there is nothing
to do.

Three qualities of service, whatever the partition: training may interrupt small and spare, small may interrupt spare;
an interrupted job goes back into the queue. `normal` is Slurm's own, of root.

Example: where Slurm has nothing but its own root, one account of accounts.yml gives `sacctmgr --immediate add cluster
lab`, the three `add qos` and `modify qos`, `add account main cluster=lab ...` and `add user alice account=main ...`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bedplate.model.accounts import QOS, ROOT, Account

SACCTMGR = ("sacctmgr", "--immediate")
SHOW_CLUSTERS = ("sacctmgr", "-nP", "show", "cluster", "format=Cluster")
SHOW_QOS = ("sacctmgr", "-nP", "show", "qos", "format=Name,Priority,Preempt,PreemptMode,GraceTime")
SHOW_ACCOUNTS = ("sacctmgr", "-nP", "show", "account", "format=Account,Descr")
GRACE_S = 120  # between SIGTERM and the end: as long as a checkpoint of a small job takes


def show_associations(cluster: str) -> tuple[str, ...]:
    return ("sacctmgr", "-nP", "show", "assoc", f"cluster={cluster}", "format=Account,ParentName,User,QOS,DefaultQOS")


@dataclass(frozen=True)
class Found:
    """What the four commands above printed."""

    clusters: str
    qos: str
    accounts: str
    associations: str


@dataclass(frozen=True)
class _Qos:
    priority: int
    preempts: tuple[str, ...]
    preempt_mode: str
    grace_s: int


_WANTED: Mapping[str, _Qos] = {
    "spare": _Qos(10, (), "requeue", GRACE_S),
    "small": _Qos(100, ("spare",), "requeue", GRACE_S),
    "training": _Qos(1000, ("normal", "small", "spare"), "cluster", 0),
}


def commands(found: Found, cluster: str, wanted: Sequence[Account]) -> list[list[str]]:
    """What to run, in this order; nothing where all of it is there."""
    return [
        [*SACCTMGR, *words]
        for part in (
            _cluster(found, cluster),
            _qos(found),
            _accounts(found, cluster, wanted),
            _users(found, cluster, wanted),
        )
        for words in part
    ]


def _rows(text: str, columns: int) -> Iterator[list[str]]:
    """The lines of sacctmgr -nP, as cells; a line of another shape is a sign that it is not what was asked for."""
    for line in text.splitlines():
        if line:
            cells = line.split("|")
            if len(cells) != columns:
                raise ValueError(f"sacctmgr printed {line!r}: {len(cells)} columns, expected {columns}")
            yield cells


def _cluster(found: Found, cluster: str) -> Iterator[list[str]]:
    if [cluster] not in list(_rows(found.clusters, 1)):
        yield ["add", "cluster", cluster]


def _qos(found: Found) -> Iterator[list[str]]:
    there = {name: cells for name, *cells in _rows(found.qos, 5)}
    assert set(_WANTED) == set(QOS)  # noqa: S101
    for name, wanted in _WANTED.items():
        if name not in there:
            yield ["add", "qos", name]
        has = there.get(name, ["0", "", "cluster", "00:00:00"])
        changes = []
        if has[0] != str(wanted.priority):
            changes.append(f"priority={wanted.priority}")
        if set(filter(None, has[1].split(","))) != set(wanted.preempts):
            changes.append(f"preempt={','.join(wanted.preempts)}")
        if has[2].lower() != wanted.preempt_mode:
            changes.append(f"preemptmode={wanted.preempt_mode}")
        if _seconds(has[3]) != wanted.grace_s:
            changes.append(f"gracetime={wanted.grace_s}")
        if changes:
            yield ["modify", "qos", name, "set", *changes]


def _accounts(found: Found, cluster: str, wanted: Sequence[Account]) -> Iterator[list[str]]:
    descriptions = dict(_rows(found.accounts, 2))
    there = {
        account: (parent, frozenset(filter(None, qos.split(","))), default)
        for account, parent, user, qos, default in _rows(found.associations, 5)
        if not user
    }
    for account in wanted:
        set_qos = [f"qos={','.join(account.qos)}", f"defaultqos={account.default_qos}"]
        if account.name not in there:
            yield [
                "add", "account", account.name, f"cluster={cluster}", f"parent={account.parent}",
                f"description={account.description}", f"organization={ROOT}", *set_qos,
            ]  # fmt: skip
            continue
        parent, qos, default = there[account.name]
        changes = [f"parent={account.parent}"] if (parent or ROOT) != account.parent else []
        if qos != frozenset(account.qos) or default != account.default_qos:
            changes += set_qos
        if changes:
            yield ["modify", "account", "where", f"name={account.name}", f"cluster={cluster}", "set", *changes]
        # sacctmgr keeps descriptions in lower case.
        if descriptions.get(account.name, "").lower() != account.description.lower():
            yield ["modify", "account", "where", f"name={account.name}", "set", f"description={account.description}"]


def _users(found: Found, cluster: str, wanted: Sequence[Account]) -> Iterator[list[str]]:
    there = {(account, user) for account, _, user, _, _ in _rows(found.associations, 5) if user}
    for account in wanted:
        missing = [user for user in account.users if (account.name, user) not in there]
        if missing:
            yield ["add", "user", ",".join(missing), f"account={account.name}", f"cluster={cluster}"]


def _seconds(text: str) -> int:
    """[DAYS-]HOURS:MINUTES:SECONDS in seconds."""
    days, _, clock = text.rpartition("-")
    seconds = 0
    for part in clock.split(":"):
        seconds = seconds * 60 + int(part or 0)
    return int(days or 0) * 86400 + seconds
