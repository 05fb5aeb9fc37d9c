"""The fleet: which machines a site has, where they stand, and what they are for.

Two files say it: `fleet.yml` is what people decide (groups, kinds, networks), `nodes.csv` what procurement
delivers per machine (serial, MACs, rack). Every machine stands in both; their faults are reported together.
"""

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from bedplate.model.bmc import Bmc, BmcShape
from bedplate.model.faults import BadInput, Fault
from bedplate.model.netboot import Netboot, NetbootShape
from bedplate.model.nodes import expand
from bedplate.model.schema import Checked, Strict, checked, nearest, wrong
from bedplate.model.text import Document, read_yaml

GROUPS = ("reference", "training", "spare", "cpu", "controller", "login", "services")
COLUMNS = ("name", "serial", "boot_mac", "nic_macs", "bmc_address", "rack", "position")
OPTIONAL_COLUMNS = ("bond_macs", "boot_disk_serials", "data_disk_serials")

# A node's name is its host name (RFC 1123), in lower case.
_NODE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_WORD = re.compile(r"[a-z][a-z0-9_]*")  # becomes part of an Ansible group's name
_SERIAL = re.compile(r"[\x21-\x7e]+")
_DISK_SERIAL = re.compile(r"[A-Za-z0-9._-]{4,64}")  # nothing that a glob reads otherwise; shorter ones fit others too
_LEDGER = re.compile(r"[a-z][a-z0-9+]*://.*")
_PASSWORD = re.compile(r"://[^/?#]*:[^/?#]*@|[?&]password=")  # of a database, in its address


@dataclass(frozen=True)
class Node:
    name: str
    serial: str
    boot_mac: str
    nic_macs: tuple[str, ...]
    bmc_address: str
    address: str
    rack: str
    position: int
    groups: tuple[str, ...]
    kind: str
    partition: str | None
    line: int | None = field(default=None, compare=False, repr=False)  # in nodes.csv
    bond_macs: tuple[str, ...] = ()
    """Ports that are one bond with the one that boots."""
    boot_disk_serials: tuple[str, ...] = ()
    data_disk_serials: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kind:
    name: str
    model: str
    architecture: str
    bond: str | None = None
    """The mode in which the management ports of these nodes are one bond."""


@dataclass(frozen=True)
class Ssh:
    user: str
    port: int
    known_hosts: str
    identity_file: str


@dataclass(frozen=True)
class Fleet:
    site: str
    example: bool
    ledger: str
    ssh: Ssh
    nodes: Mapping[str, Node]
    """In the order of nodes.csv."""
    groups: Mapping[str, tuple[str, ...]]
    kinds: Mapping[str, Kind]
    racks: Mapping[str, int]
    """Positions per rack."""
    networks: Mapping[str, IPv4Network]
    document: Document = field(compare=False, repr=False)
    csv_file: str = field(default="nodes.csv", compare=False)
    gateway: str | None = None
    dns: tuple[str, ...] = ()
    ntp: tuple[str, ...] = ()
    netboot: Netboot | None = None
    bmc: Bmc | None = None
    power: Mapping[str, str] = field(default_factory=dict)
    """Power domain per rack, of those racks that say one: what one failed feed takes with it."""

    def nodes_of(self, kinds: Collection[str]) -> list[Node]:
        """The nodes of some kinds, in the order of nodes.csv."""
        return [node for node in self.nodes.values() if node.kind in kinds]


# --- the border of fleet.yml ----------------------------------------------------------------------


def _address(value: str) -> str:
    try:
        IPv4Address(value)
    except ValueError:
        raise wrong(f'"{value}" is no IPv4 address', "four numbers from 0 to 255, with dots") from None
    return value


def _network(value: str) -> str:
    try:
        IPv4Network(value)
    except ValueError as fault:
        raise wrong(f'"{value}" is no network: {fault}', "ADDRESS/LENGTH, with no bits beyond the length") from None
    return value


def _word(value: str) -> str:
    if not _WORD.fullmatch(value):
        raise wrong(f'"{value}" is no name here', "lower-case letters, digits and _, beginning with a letter")
    return value


def _host_list(value: str) -> str:
    try:
        _expand(value)
    except ValueError as fault:
        raise wrong(f'"{value}" is no host list: {fault}', "for example gpu[001-640] or n1,n3") from None
    return value


def _rack_list(value: str) -> str:
    for name in expand(_host_list(value)):
        _word(name)
    return value


def _ledger(value: str) -> str:
    if not _LEDGER.fullmatch(value):
        raise wrong(f'"{value}" is no ledger address', "for example sqlite:///ledger.sqlite3")
    if _PASSWORD.search(value):  # this file is kept with the ledger, and goes out with its exports
        raise wrong("the address has a password in it", "put it into ~/.pgpass: docs/ledger.md")
    return value


def _expand(text: str) -> list[str]:
    """The names in a host list; an empty one is a group with no nodes."""
    names = expand(text) if text.strip() else []
    for name in names:
        if not _NODE.fullmatch(name):
            raise ValueError(f'"{name}" is no host name')
    return names


Word = Annotated[str, AfterValidator(_word)]
Racks = Annotated[str, AfterValidator(_rack_list)]
HostList = Annotated[str, AfterValidator(_host_list)]
Cidr = Annotated[str, AfterValidator(_network)]


class _Ssh(Strict):
    user: str
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    known_hosts: str
    identity_file: str


Address = Annotated[str, AfterValidator(_address)]


class _Management(Strict):
    cidr: Cidr
    addresses: dict[HostList, Address]
    gateway: Address | None = None
    dns: list[Address] | None = None
    ntp: list[Address] | None = None


class _Bmc(Strict):
    cidr: Cidr


class _Networks(Strict):
    management: _Management | None = None
    bmc: _Bmc | None = None


class _Kind(Strict):
    model: str
    architecture: Literal["amd64", "arm64"]
    bond: Literal["active-backup", "802.3ad"] | None = None


class _Rack(Strict):
    positions: Annotated[int, Field(ge=1, le=100)]
    power: Word | None = None


class _Group(Strict):
    nodes: HostList
    kind: str | None = None
    partition: Word | None = None


class _Groups(Strict):
    reference: _Group | None = None
    training: _Group | None = None
    spare: _Group | None = None
    cpu: _Group | None = None
    controller: _Group | None = None
    login: _Group | None = None
    services: _Group | None = None


class _Fleet(Strict):
    """Everything may be absent here: one missing section must not hide the faults of the others."""

    plugin: Literal["bedplate"] | None = None
    site: Word | None = None
    example: bool = False
    ledger: Annotated[str, AfterValidator(_ledger)] | None = None
    ssh: _Ssh | None = None
    networks: _Networks | None = None
    kinds: dict[Word, _Kind] | None = None
    racks: dict[Racks, _Rack] | None = None
    groups: _Groups | None = None
    netboot: NetbootShape | None = None
    bmc: BmcShape | None = None


_REQUIRED = ("plugin", "site", "ledger", "ssh", "networks", "kinds", "racks", "groups")


# --- the border of nodes.csv ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    """One line of nodes.csv; a field that is wrong is None and has been reported."""

    line: int
    name: str | None
    serial: str | None
    boot_mac: str | None
    nic_macs: tuple[str, ...]
    bmc_address: str | None
    rack: str | None
    position: int | None
    bond_macs: tuple[str, ...] = ()
    boot_disk_serials: tuple[str, ...] = ()
    data_disk_serials: tuple[str, ...] = ()

    @property
    def disks(self) -> tuple[str, ...]:
        return (*self.boot_disk_serials, *self.data_disk_serials)


class _Table:
    """Reads nodes.csv and collects what is wrong with each field."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.faults: list[Fault] = []
        self.readable = True
        self.columns = len(COLUMNS)

    def rows(self, text: str) -> list[_Row]:
        reader = csv.reader(text.removeprefix("\ufeff").splitlines(keepends=True), strict=True)
        rows: list[_Row] = []
        header: list[str] | None = None
        try:
            for cells in reader:
                if not cells:
                    continue
                if header is None:
                    header = cells
                    if not self._good_header(header, reader.line_num):
                        return []
                    continue
                rows.append(self._row(dict(zip(header, cells, strict=False)), len(cells), reader.line_num))
        except csv.Error as fault:
            self._wrong(reader.line_num, f"no CSV: {fault}", "fields separated by commas, one node per line")
            self.readable = False
        if header is None and self.readable:
            self._wrong(1, "no header", f"begin with the line {','.join(COLUMNS)}")
            self.readable = False
        return rows

    def _wrong(self, line: int, found: str, remedy: str) -> None:
        self.faults.append(Fault(self.file, line, found, remedy))

    def _good_header(self, header: list[str], line: int) -> bool:
        for name in sorted(set(header) - {*COLUMNS, *OPTIONAL_COLUMNS}):
            self._wrong(line, f'unknown column "{name}"', nearest(name, (*COLUMNS, *OPTIONAL_COLUMNS)))
        for name in COLUMNS:
            if header.count(name) != 1:
                how = "is missing" if name not in header else "stands there twice"
                self._wrong(line, f'column "{name}" {how}', f"the header is {','.join(COLUMNS)}")
        for name in OPTIONAL_COLUMNS:
            if header.count(name) > 1:
                self._wrong(line, f'column "{name}" stands there twice', "keep one")
        self.readable = sorted(header) == sorted([*COLUMNS, *(name for name in OPTIONAL_COLUMNS if name in header)])
        self.columns = len(header)
        return self.readable

    def _row(self, cells: dict[str, str], count: int, line: int) -> _Row:
        whole = count == self.columns
        if not whole:
            self._wrong(line, f"{count} fields, the header has {self.columns}", "one value per column")
        given = {name: cells.get(name, "") for name in (*COLUMNS, *OPTIONAL_COLUMNS)}
        name: str | None = given["name"]
        if not _NODE.fullmatch(given["name"]):
            self._wrong(line, f'name "{name}" is no host name', "lower-case letters, digits and -, at most 63")
            name = None
        if not whole:  # which value belongs to which column is a guess from here on
            return _Row(line, name, None, None, (), None, None, None)
        serial = given["serial"] if _SERIAL.fullmatch(given["serial"]) else None
        if serial is None:
            self._wrong(line, f'serial "{given["serial"]}" is no serial number', "as on the machine, without spaces")
        rack = given["rack"] or None
        if rack is None:
            self._wrong(line, f"node {name} stands in no rack", "name its rack")
        return _Row(
            line,
            name,
            serial,
            self._mac(given["boot_mac"], "boot_mac", line),
            tuple(mac for text in given["nic_macs"].split() if (mac := self._mac(text, "nic_macs", line))),
            self._bmc(given["bmc_address"], line),
            rack,
            self._position(given["position"], line),
            tuple(mac for text in given["bond_macs"].split() if (mac := self._mac(text, "bond_macs", line))),
            self._disks(given["boot_disk_serials"], "boot_disk_serials", line),
            self._disks(given["data_disk_serials"], "data_disk_serials", line),
        )

    def _disks(self, text: str, column: str, line: int) -> tuple[str, ...]:
        good = []
        for word in text.split():
            if _DISK_SERIAL.fullmatch(word):
                good.append(word)
                continue
            remedy = "as on the disk: 4 to 64 letters, digits and . _ -"
            self._wrong(line, f'{column} "{word}" is no serial number of a disk', remedy)
        return tuple(good)

    def _mac(self, text: str, column: str, line: int) -> str | None:
        if not _MAC.fullmatch(text):
            lower = text.lower().replace("-", ":")
            remedy = f"write {lower}" if _MAC.fullmatch(lower) else "six pairs of hexadecimal digits, with colons"
            self._wrong(line, f'{column} "{text}" is no MAC address', remedy)
            return None
        if int(text[:2], 16) & 1 or text == "00:00:00:00:00:00":
            self._wrong(line, f'{column} "{text}" belongs to no single machine', "read it from the machine again")
            return None
        return text

    def _bmc(self, text: str, line: int) -> str | None:
        try:
            return str(IPv4Address(text))
        except ValueError:
            self._wrong(line, f'bmc_address "{text}" is no IPv4 address', "four numbers from 0 to 255, with dots")
            return None

    def _position(self, text: str, line: int) -> int | None:
        if not re.fullmatch(r"[1-9][0-9]{0,3}", text):
            self._wrong(line, f'position "{text}" is no position', "a whole number from 1, the lowest unit it fills")
            return None
        return int(text)


# --- both together --------------------------------------------------------------------------------


def parse_fleet(fleet_text: str, csv_text: str, *, fleet_file: str = "fleet.yml", csv_file: str = "nodes.csv") -> Fleet:
    """Read fleet.yml and nodes.csv.

    Raises:
        BadInput: every fault of both.
    """
    table = _Table(csv_file)
    rows = table.rows(csv_text)
    faults = [*table.faults, *_duplicates(rows, csv_file)]
    try:
        document = read_yaml(fleet_text, fleet_file)
    except BadInput as unreadable:
        raise BadInput([*faults, *unreadable.faults]) from unreadable
    result = checked(_Fleet, document)
    faults += [*document.faults, *result.faults]
    shape = result.value
    if shape is None:
        raise BadInput(faults)
    faults += _absences(shape, result, document)
    join = _Join(shape, result, document, rows, table)
    faults += join.faults()
    if faults:
        raise BadInput(faults)
    return join.fleet()


def _absences(shape: _Fleet, result: Checked[_Fleet], document: Document) -> Iterator[Fault]:
    for name in _REQUIRED:
        if getattr(shape, name) is None and result.whole(name):
            yield document.fault((), f'"{name}" is missing', "add it")
    if isinstance(document.data, dict) and "plugin" in document.data and next(iter(document.data)) != "plugin":
        yield document.fault(("plugin",), "stands below other keys", "make it the first key: Ansible looks there")
    for name in ("management", "bmc"):
        if shape.networks and getattr(shape.networks, name) is None and result.whole("networks", name):
            yield document.fault(("networks",), f'"{name}" is missing', "add it")


def _duplicates(rows: Iterable[_Row], file: str) -> Iterator[Fault]:
    """What must be unique among all machines; a MAC also among all columns."""
    seen: dict[tuple[str, str], int] = {}
    for row in rows:
        place = f"{row.rack} position {row.position}" if row.rack and row.position else None
        values = [
            ("name", row.name),
            ("serial", row.serial),
            ("BMC address", row.bmc_address),
            ("place", place),
        ]
        macs = (row.boot_mac, *row.nic_macs, *row.bond_macs)
        values += [("MAC", mac) for mac in macs]
        values += [("disk", disk) for disk in row.disks]
        for what, value in values:
            if value is None:
                continue
            first = seen.setdefault((what, value), row.line)
            # The line is compared, not the row: one MAC, or one disk, twice in one line is a fault as well.
            many = {"MAC": macs, "disk": row.disks}.get(what, ())
            if first != row.line or many.count(value) > 1:
                where = "in this line" if first == row.line else f"first in line {first}"
                yield Fault(file, row.line, f"{what} {value} stands there twice, {where}", "correct one of the two")


class _Join:
    """What the two files must agree on; nothing is concluded from what was taken out as faulty."""

    def __init__(
        self, shape: _Fleet, result: Checked[_Fleet], document: Document, rows: list[_Row], table: _Table
    ) -> None:
        self.shape, self.result, self.document, self.rows, self.table = shape, result, document, rows, table
        self.named = {row.name: row for row in reversed(rows) if row.name}
        self.members: dict[str, list[str]] = {}
        for name in GROUPS:
            group: _Group | None = getattr(shape.groups, name, None)
            if group is not None:
                self.members[name] = _expand(group.nodes)
        self.groups_of: dict[str, list[str]] = {}
        for name, nodes in self.members.items():
            for node in nodes:
                self.groups_of.setdefault(node, []).append(name)
        self.rack_lists = {racks: expand(racks) for racks in shape.racks or {}}
        self.racks = {
            name: (shape.racks or {})[racks].positions for racks, names in self.rack_lists.items() for name in names
        }
        self.addresses: dict[str, str] = {}
        # Whether a name that is not in `named` is in no row, and not in one that cannot be read.
        self.complete = table.readable and all(row.name for row in rows)

    def faults(self) -> Iterator[Fault]:
        yield from self._addresses()
        yield from self._groups()
        yield from self._spares()
        yield from self._nodes()
        yield from self._rack_lists()
        yield from self._racks()
        yield from self._bmc()
        yield from self._bonds()
        yield from self._netboot()
        yield from self._out_of_band()

    def fleet(self) -> Fleet:
        """The fleet of files without a fault."""
        shape = self.shape
        assert shape.site and shape.ledger and shape.ssh and shape.networks and shape.kinds and shape.racks  # noqa: S101, PT018
        assert shape.networks.management and shape.networks.bmc  # noqa: S101, PT018
        order = {name: index for index, name in enumerate(row.name for row in self.rows if row.name)}
        return Fleet(
            site=shape.site,
            example=shape.example,
            ledger=shape.ledger,
            ssh=Ssh(shape.ssh.user, shape.ssh.port, shape.ssh.known_hosts, shape.ssh.identity_file),
            nodes={row.name: self._node(row, row.name) for row in self.rows if row.name},
            groups={name: tuple(sorted(nodes, key=order.__getitem__)) for name, nodes in self.members.items()},
            kinds={name: Kind(name, kind.model, kind.architecture, kind.bond) for name, kind in shape.kinds.items()},
            racks=self.racks,
            power={
                name: said
                for racks, names in self.rack_lists.items()
                for name in names
                if (said := shape.racks[racks].power)
            },
            networks={
                "management": IPv4Network(shape.networks.management.cidr),
                "bmc": IPv4Network(shape.networks.bmc.cidr),
            },
            document=self.document,
            csv_file=self.table.file,
            gateway=shape.networks.management.gateway,
            dns=tuple(shape.networks.management.dns or ()),
            ntp=tuple(shape.networks.management.ntp or ()),
            netboot=shape.netboot.value() if shape.netboot else None,
            bmc=shape.bmc.value() if shape.bmc else None,
        )

    def _node(self, row: _Row, name: str) -> Node:
        assert row.serial and row.boot_mac and row.bmc_address and row.rack and row.position  # noqa: S101, PT018
        groups = self.groups_of[name]
        return Node(
            name=name,
            serial=row.serial,
            boot_mac=row.boot_mac,
            nic_macs=row.nic_macs,
            bmc_address=row.bmc_address,
            address=self.addresses[name],
            rack=row.rack,
            position=row.position,
            groups=tuple(groups),
            kind=next(iter(self._said(groups, "kind"))),
            partition=next(iter(self._said(groups, "partition")), None),
            line=row.line,
            bond_macs=row.bond_macs,
            boot_disk_serials=row.boot_disk_serials,
            data_disk_serials=row.data_disk_serials,
        )

    def _row_fault(self, name: str, found: str, remedy: str) -> Fault:
        return Fault(self.table.file, self.named[name].line, found, remedy)

    def _said(self, groups: Iterable[str], what: Literal["kind", "partition"]) -> dict[str, str]:
        """The kinds (or partitions) that groups give, each with the first group that does."""
        values: dict[str, str] = {}
        for name in groups:
            value: str | None = getattr(getattr(self.shape.groups, name), what)
            if value is not None:
                values.setdefault(value, name)
        return values

    def _addresses(self) -> Iterator[Fault]:
        management = self.shape.networks.management if self.shape.networks else None
        if management is None:
            return
        network = IPv4Network(management.cidr)
        owners: dict[IPv4Address, str] = {}
        for hosts, first in management.addresses.items():
            path = ("networks", "management", "addresses", hosts)
            names = _expand(hosts)
            if twice := [name for name in names if name in self.addresses]:
                yield self.document.fault(path, f"a second address for {_some(twice)}", "keep one")
            if fault := _range_fault(network, first, len(names)):
                yield self.document.fault(path, *fault)
                self.addresses |= dict.fromkeys(names, first)  # so that they do not seem to have none
                continue
            given = {name: IPv4Address(first) + offset for offset, name in enumerate(names)}
            clashes = [f"{given[name]} of {name} and {owners[given[name]]}" for name in names if given[name] in owners]
            if clashes:
                found = f"one address for two nodes: {_some(clashes)}"
                yield self.document.fault(path, found, "give each range its own addresses")
            owners |= {address: name for name, address in given.items()}
            self.addresses |= {name: str(address) for name, address in given.items()}
            # Who is in a group as well is reported there: one missing row is one fault.
            absent = [name for name in names if name not in self.named and name not in self.groups_of]
            if absent and self.complete:
                found = f"no row in {self.table.file} for {_some(absent)}"
                yield self.document.fault(path, found, "add it, or shorten the list")
        for name in self.named if self.result.whole("networks", "management", "addresses") else ():
            if name not in self.addresses:
                found = f"node {name} has no address"
                yield self._row_fault(name, found, "add it to networks.management.addresses")

    def _groups(self) -> Iterator[Fault]:
        for name, nodes in self.members.items():
            group: _Group = getattr(self.shape.groups, name)
            kinds = self.shape.kinds if self.result.whole("kinds") else None
            if group.kind is not None and kinds is not None and group.kind not in kinds:
                found, remedy = f'unknown kind "{group.kind}"', nearest(group.kind, kinds)
                yield self.document.fault(("groups", name, "kind"), found, remedy)
            absent = [node for node in nodes if node not in self.named]
            if absent and self.complete:
                found = f"no row in {self.table.file} for {_some(absent)}"
                yield self.document.fault(("groups", name, "nodes"), found, "add it, or shorten the list")

    def _spares(self) -> Iterator[Fault]:
        """A spare takes a place only when it is put there: it belongs to no set of nodes in use."""
        groups = self.shape.groups
        if groups and groups.spare and groups.training and groups.spare.partition is not None:
            partition = groups.spare.partition
            if partition == groups.training.partition:
                found = f'the spares are in the training partition "{partition}"'
                remedy = "give them a partition of their own"
                yield self.document.fault(("groups", "spare", "partition"), found, remedy)
        for node in self.members.get("spare", ()):
            if others := [name for name in self.groups_of[node] if name in ("training", "reference")]:
                found = f"node {node} is a spare and in {' and '.join(others)}"
                yield self.document.fault(("groups", "spare", "nodes"), found, "keep it in one of them")

    def _nodes(self) -> Iterator[Fault]:
        """Each machine is in a group, and its groups say one kind, and at most one partition."""
        if self.shape.groups is None or not self.result.whole("groups"):
            return
        for name in self.named:
            groups = self.groups_of.get(name, [])
            if not groups:
                yield self._row_fault(name, f"node {name} is in no group", f"add it in {self.document.file}")
                continue
            kinds = self._said(groups, "kind")
            if not kinds:
                found = f"node {name} has no kind: {', '.join(groups)} say none"
                yield self._row_fault(name, found, "put it in a group with a kind")
            for what, said in (("kind", kinds), ("partition", self._said(groups, "partition"))):
                if len(said) > 1 and not {"spare", "training"} <= set(groups):  # that has been said already
                    each = ", ".join(f"{value} ({group})" for value, group in said.items())
                    remedy = "keep it in one of these groups"
                    yield self._row_fault(name, f"node {name} has {len(said)} {what}s: {each}", remedy)

    def _rack_lists(self) -> Iterator[Fault]:
        for racks, names in self.rack_lists.items():
            for other, before in self.rack_lists.items():
                if other == racks:
                    break
                if both := [name for name in names if name in before]:
                    found = f"{_some(both)} stands in {other} too"
                    yield self.document.fault(("racks", racks), found, "name each rack once")

    def _racks(self) -> Iterator[Fault]:
        for row in self.rows if self.shape.racks is not None else ():
            if row.rack is None:
                continue
            positions = self.racks.get(row.rack)
            if positions is None:
                if self.result.whole("racks"):
                    remedy = nearest(row.rack, self.racks)
                    yield Fault(self.table.file, row.line, f'unknown rack "{row.rack}"', remedy)
            elif row.position is not None and row.position > positions:
                found = f"position {row.position} in rack {row.rack}, which has {positions}"
                yield Fault(self.table.file, row.line, found, "correct the position, or the rack's positions")

    def _bmc(self) -> Iterator[Fault]:
        networks = self.shape.networks
        if networks is None or networks.bmc is None:
            return
        network = IPv4Network(networks.bmc.cidr)
        for row in self.rows:
            if row.bmc_address and IPv4Address(row.bmc_address) not in network:
                found = f"bmc_address {row.bmc_address} is outside {network}"
                yield Fault(self.table.file, row.line, found, "choose one inside")
        if networks.management and network.overlaps(IPv4Network(networks.management.cidr)):
            found = f"{network} overlaps the management network {networks.management.cidr}"
            yield self.document.fault(
                ("networks", "bmc", "cidr"), found, "separate the two: BMCs are reset through theirs"
            )

    def _bonds(self) -> Iterator[Fault]:
        """A bond has at least two ports, on every node of its kind and on no other."""
        if not self.result.whole("groups") or self.shape.kinds is None or not self.result.whole("kinds"):
            return
        for name, row in self.named.items():
            kind = next(iter(self._said(self.groups_of.get(name, []), "kind")), None)
            bond = self.shape.kinds[kind].bond if kind in self.shape.kinds else None
            if bond and not row.bond_macs:
                found = f"node {name} has no bond_macs, the ports of kind {kind} are a bond ({bond})"
                yield self._row_fault(name, found, "add the MACs of its other management ports")
            if row.bond_macs and not bond and kind in self.shape.kinds:
                found = f"node {name} has bond_macs, kind {kind} says no bond"
                yield self._row_fault(name, found, f"add kinds.{kind}.bond in {self.document.file}")

    def _netboot(self) -> Iterator[Fault]:
        """Kinds whose data disks are asked for are there; what machines need is in the management network."""
        asked = (self.shape.netboot.data_disks if self.shape.netboot else None) or {}
        kinds = self.shape.kinds if self.result.whole("kinds") else None
        for kind in asked if kinds is not None else ():
            if kinds is not None and kind not in kinds:
                path = ("netboot", "data_disks", kind)
                yield self.document.fault(path, f'unknown kind "{kind}"', nearest(kind, kinds))
        management = self.shape.networks.management if self.shape.networks else None
        if management is None:
            return
        network = IPv4Network(management.cidr)
        if management.gateway and IPv4Address(management.gateway) not in network:
            path = ("networks", "management", "gateway")
            yield self.document.fault(path, f"{management.gateway} is outside {network}", "choose one inside")
        if management.gateway and management.gateway in self.addresses.values():
            path = ("networks", "management", "gateway")
            yield self.document.fault(path, f"{management.gateway} is a node's address", "one of the two is wrong")
        if (netboot := self.shape.netboot) is None:
            return
        if IPv4Address(netboot.server) not in network:
            found = f"{netboot.server} is outside {network}: machines find it before they know a gateway"
            yield self.document.fault(("netboot", "server"), found, "give it an address inside")
        if netboot.addressing == "static" and not management.dns:
            found = "static addresses without networks.management.dns"
            yield self.document.fault(("netboot", "addressing"), found, "add dns")

    def _out_of_band(self) -> Iterator[Fault]:
        """Nodes and models that are reached by IPMI are there."""
        if (bmc := self.shape.bmc) is None:
            return
        try:
            names = _expand(bmc.ipmi_nodes)
        except ValueError as fault:
            found = f'"{bmc.ipmi_nodes}" is no host list: {fault}'
            yield self.document.fault(("bmc", "ipmi_nodes"), found, "for example gpu[001-640] or n1,n3")
            names = []
        if (absent := [name for name in names if name not in self.named]) and self.complete:
            found = f"no row in {self.table.file} for {_some(absent)}"
            yield self.document.fault(("bmc", "ipmi_nodes"), found, "add it, or shorten the list")
        models = {kind.model for kind in (self.shape.kinds or {}).values()}
        for at, model in enumerate(bmc.ipmi_models or () if self.result.whole("kinds") else ()):
            if model not in models:
                found = f'no kind is of model "{model}"'
                yield self.document.fault(("bmc", "ipmi_models", at), found, nearest(model, models))


def _range_fault(network: IPv4Network, first: str, count: int) -> tuple[str, str] | None:
    """What is wrong with a range of addresses in a network, and the remedy."""
    start, end = int(IPv4Address(first)), int(IPv4Address(first)) + count - 1
    low, high = int(network.network_address), int(network.broadcast_address)
    if not low <= start <= high:
        return f"address {first} is outside {network}", "choose one inside"
    if end > high:
        last = IPv4Address(min(end, 2**32 - 1))
        return (
            f"{count} addresses from {first} end at {last}, beyond {network}",
            "begin lower, or enlarge the network",
        )
    # In a /31 and a /32 every address is a host's (RFC 3021).
    if network.prefixlen < 31 and (start == low or end == high):  # noqa: PLR2004
        what = "the network's own address" if start == low else "its broadcast address"
        return (
            f"{count} addresses from {first} in {network} hold {what}",
            "leave out its first and last address",
        )
    return None


def _some(names: Collection[str], most: int = 5) -> str:
    """Names for a message; a whole fleet of them helps nobody."""
    listed = ", ".join(list(names)[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"
