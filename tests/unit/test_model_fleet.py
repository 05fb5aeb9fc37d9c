"""The fleet of a site: fleet.yml and nodes.csv."""

# ruff: noqa: E501  messages stand as they are printed

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.model.faults import BadInput
from bedplate.model.fleet import COLUMNS, parse_fleet
from unit.site_sample import FLEET, NODES


def faults(fleet: str = FLEET, nodes: str = NODES) -> list[str]:
    try:
        parse_fleet(fleet, nodes)
    except BadInput as fault:
        return [str(each) for each in fault.faults]
    return []


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


def test_a_node_is_what_both_files_say_of_it() -> None:
    fleet = parse_fleet(FLEET, NODES)
    node = fleet.nodes["n1"]
    assert (node.serial, node.address, node.bmc_address) == ("LAB-1", "10.77.0.11", "10.78.0.11")
    assert (node.rack, node.position, node.line) == ("r01", 1, 3)
    assert (node.groups, node.kind, node.partition) == (("reference", "training"), "gpu", "training")
    assert node.nic_macs == ("02:00:00:00:01:01", "02:00:00:00:01:02")
    assert fleet.nodes["ctl"].partition is None


def test_addresses_of_a_range_follow_one_by_one() -> None:
    fleet = parse_fleet(FLEET, NODES)
    assert [fleet.nodes[f"n{i}"].address for i in range(1, 9)] == [f"10.77.0.{10 + i}" for i in range(1, 9)]


def test_nodes_stand_in_the_order_of_the_table() -> None:
    lines = NODES.splitlines(keepends=True)
    fleet = parse_fleet(FLEET, lines[0] + "".join(reversed(lines[1:])))
    assert list(fleet.nodes)[:2] == ["n8", "n7"]
    assert fleet.groups["training"] == ("n6", "n5", "n4", "n3", "n2", "n1")
    assert [node.name for node in fleet.nodes_of(["controller"])] == ["ctl"]


def test_racks_are_a_host_list_of_racks() -> None:
    assert parse_fleet(FLEET, NODES).racks == {"r01": 42, "r02": 42}


def test_a_site_is_no_example_unless_it_says_so() -> None:
    assert not parse_fleet(FLEET, NODES).example
    assert parse_fleet(FLEET + "example: true\n", NODES).example


def test_a_group_may_be_empty() -> None:
    fleet = parse_fleet(FLEET + '  login: {nodes: "", kind: gpu}\n', NODES)
    assert fleet.groups["login"] == ()


NODE_ROWS = [
    # what stands there, what is written instead, every fault that is told
    (",LAB-2,", ",LAB-1,", ["nodes.csv:4: serial LAB-1 stands there twice, first in line 3 (correct one of the two)"]),
    (
        "n2,LAB-2",
        "n1,LAB-2",
        [
            "fleet.yml:19: groups.training.nodes: no row in nodes.csv for n2 (add it, or shorten the list)",
            "nodes.csv:4: name n1 stands there twice, first in line 3 (correct one of the two)",
        ],
    ),
    (
        "02:00:00:00:02:00,",
        "02:00:00:00:01:00,",
        ["nodes.csv:4: MAC 02:00:00:00:01:00 stands there twice, first in line 3 (correct one of the two)"],
    ),
    (
        "02:00:00:00:02:00,",
        "02:00:00:00:01:02,",
        ["nodes.csv:4: MAC 02:00:00:00:01:02 stands there twice, first in line 3 (correct one of the two)"],
    ),
    (
        "02:00:00:00:02:02",
        "02:00:00:00:02:01",
        ["nodes.csv:4: MAC 02:00:00:00:02:01 stands there twice, in this line (correct one of the two)"],
    ),
    (
        "10.78.0.12",
        "10.78.0.11",
        ["nodes.csv:4: BMC address 10.78.0.11 stands there twice, first in line 3 (correct one of the two)"],
    ),
    ("10.78.0.12", "10.79.0.12", ["nodes.csv:4: bmc_address 10.79.0.12 is outside 10.78.0.0/24 (choose one inside)"]),
    (
        "10.78.0.12",
        "10.78.0",
        ['nodes.csv:4: bmc_address "10.78.0" is no IPv4 address (four numbers from 0 to 255, with dots)'],
    ),
    ("r01,2", ",2", ["nodes.csv:4: node n2 stands in no rack (name its rack)"]),
    ("r01,2", "r03,2", ['nodes.csv:4: unknown rack "r03" (did you mean "r02"?)']),
    (
        "r01,2",
        "r01,1",
        ["nodes.csv:4: place r01 position 1 stands there twice, first in line 3 (correct one of the two)"],
    ),
    (
        "r01,2",
        "r01,43",
        ["nodes.csv:4: position 43 in rack r01, which has 42 (correct the position, or the rack's positions)"],
    ),
    ("r01,2", "r01,0", ['nodes.csv:4: position "0" is no position (a whole number from 1, the lowest unit it fills)']),
    (
        "02:00:00:00:02:00,",
        "02-00-00-00-02-0A,",
        ['nodes.csv:4: boot_mac "02-00-00-00-02-0A" is no MAC address (write 02:00:00:00:02:0a)'],
    ),
    (
        "02:00:00:00:02:00,",
        "02:00:00:00:02,",
        ['nodes.csv:4: boot_mac "02:00:00:00:02" is no MAC address (six pairs of hexadecimal digits, with colons)'],
    ),
    (
        "02:00:00:00:02:00,",
        "ff:ff:ff:ff:ff:ff,",
        ['nodes.csv:4: boot_mac "ff:ff:ff:ff:ff:ff" belongs to no single machine (read it from the machine again)'],
    ),
    ("LAB-2", "", ['nodes.csv:4: serial "" is no serial number (as on the machine, without spaces)']),
    (",r01,2", ",r01", ["nodes.csv:4: 6 fields, the header has 7 (one value per column)"]),
    (
        "n2,LAB-2",
        "n_2,LAB-2",
        ['nodes.csv:4: name "n_2" is no host name (lower-case letters, digits and -, at most 63)'],
    ),
    (
        "n2,LAB-2",
        'n2,"LAB-2',
        ["nodes.csv:10: no CSV: unexpected end of data (fields separated by commas, one node per line)"],
    ),
    (
        "name,serial",
        "name,seriall",
        [
            'nodes.csv:1: column "serial" is missing (the header is name,serial,boot_mac,nic_macs,bmc_address,rack,position)',
            'nodes.csv:1: unknown column "seriall" (did you mean "serial"?)',
        ],
    ),
    (
        "n8,LAB-8,02:00:00:00:08:00,02:00:00:00:08:01 02:00:00:00:08:02,10.78.0.18,r02,4\n",
        "",
        ["fleet.yml:20: groups.spare.nodes: no row in nodes.csv for n8 (add it, or shorten the list)"],
    ),
    (
        "n8,LAB-8,02:00:00:00:08:00,",
        "n9,LAB-8,02:00:00:00:08:00,",
        [
            "fleet.yml:20: groups.spare.nodes: no row in nodes.csv for n8 (add it, or shorten the list)",
            "nodes.csv:10: node n9 has no address (add it to networks.management.addresses)",
            "nodes.csv:10: node n9 is in no group (add it in fleet.yml)",
        ],
    ),
]


@pytest.mark.parametrize(("old", "new", "expected"), NODE_ROWS, ids=[f"{c[0]}->{c[1]}"[:50] for c in NODE_ROWS])
def test_a_fault_of_the_table_is_told_with_its_line_and_nothing_else(old: str, new: str, expected: list[str]) -> None:
    assert faults(nodes=changed(NODES, old, new)) == expected


FLEET_KEYS = [
    ("site: sample\n", "", ['fleet.yml:1: "site" is missing (add it)']),
    (
        "plugin: bedplate\nsite: sample",
        "site: sample\nplugin: bedplate",
        ["fleet.yml:2: plugin: stands below other keys (make it the first key: Ansible looks there)"],
    ),
    ("plugin: bedplate", "plugin: fleet", ["fleet.yml:1: plugin: found \"fleet\" (one of: 'bedplate')"]),
    ("ledger:", "leger:", ['fleet.yml:3: unknown key "leger" (did you mean "ledger"?)']),
    (
        "kind: gpu, partition: training",
        "kynd: gpu, partition: training",
        ['fleet.yml:19: groups.training: unknown key "kynd" (did you mean "kind"?)'],
    ),
    ("  training:", "  trainig:", ['fleet.yml:19: groups: unknown key "trainig" (did you mean "training"?)']),
    (
        "  controller: {nodes",
        "  debug: {nodes",
        [
            'fleet.yml:21: groups: unknown key "debug" (known: reference, training, spare, cpu, controller, login, services)'
        ],
    ),
    ("port: 22", 'port: "22"', ['fleet.yml:4: ssh.port: found "22", wanted a whole number']),
    ("port: 22", "port: 0", ["fleet.yml:4: ssh.port: found the number 0, wanted at least 1"]),
    (
        "site: sample",
        "site: sample\nexample: yes",
        ['fleet.yml:3: example: yes without quotes is the truth value true (write true, or in quotes "yes")'],
    ),
    ("site: sample", "site: 7", ['fleet.yml:2: site: found the number 7, wanted text (put it in quotes: "7")']),
    (
        "sqlite:///ledger.sqlite3",
        "ledger.sqlite3",
        ['fleet.yml:3: ledger: "ledger.sqlite3" is no ledger address (for example sqlite:///ledger.sqlite3)'],
    ),
    (
        "sqlite:///ledger.sqlite3",
        "postgresql://ctl:Tr0ub4dor@db.example/bedplate",
        ["fleet.yml:3: ledger: the address has a password in it (put it into ~/.pgpass: docs/ledger.md)"],
    ),
    (
        "sqlite:///ledger.sqlite3",
        "postgresql://ctl@db.example/bedplate?password=Tr0ub4dor",
        ["fleet.yml:3: ledger: the address has a password in it (put it into ~/.pgpass: docs/ledger.md)"],
    ),
    (
        '"n[1-6]"',
        '"n[1-6"',
        [
            'fleet.yml:19: groups.training.nodes: "n[1-6" is no host list: missing bracket: "n[1-6" (for example gpu[001-640] or n1,n3)'
        ],
    ),
    (
        '"n[1-6]"',
        '"n[1-999999999]"',
        [
            'fleet.yml:19: groups.training.nodes: "n[1-999999999]" is no host list: more than 100000 nodes (for example gpu[001-640] or n1,n3)'
        ],
    ),
    (
        '"n[1-6]"',
        '"@training"',
        [
            'fleet.yml:19: groups.training.nodes: "@training" is no host list: groups (@, *) have no meaning here (for example gpu[001-640] or n1,n3)'
        ],
    ),
    (
        '"n[1-6]"',
        '"N[1-6]"',
        [
            'fleet.yml:19: groups.training.nodes: "N[1-6]" is no host list: "N1" is no host name (for example gpu[001-640] or n1,n3)'
        ],
    ),
    (
        '"n[1-8]": 10.77.0.11',
        '"n[1-8]": 10.76.0.11',
        [
            'fleet.yml:10: networks.management.addresses["n[1-8]"]: address 10.76.0.11 is outside 10.77.0.0/24 (choose one inside)'
        ],
    ),
    (
        '"n[1-8]": 10.77.0.11',
        '"n[1-8]": 10.77.0.250',
        [
            'fleet.yml:10: networks.management.addresses["n[1-8]"]: 8 addresses from 10.77.0.250 end at 10.77.1.1, beyond 10.77.0.0/24 (begin lower, or enlarge the network)'
        ],
    ),
    (
        '"n[1-8]": 10.77.0.11',
        '"n[1-8]": 10.77.0.248',
        [
            'fleet.yml:10: networks.management.addresses["n[1-8]"]: 8 addresses from 10.77.0.248 in 10.77.0.0/24 hold its broadcast address (leave out its first and last address)'
        ],
    ),
    (
        '"ctl": 10.77.0.10',
        '"ctl": 10.77.0.0',
        [
            "fleet.yml:9: networks.management.addresses.ctl: 1 addresses from 10.77.0.0 in 10.77.0.0/24 hold the network's own address (leave out its first and last address)"
        ],
    ),
    (
        '"ctl": 10.77.0.10',
        '"ctl": 10.77.0.12',
        [
            'fleet.yml:10: networks.management.addresses["n[1-8]"]: one address for two nodes: 10.77.0.12 of n2 and ctl (give each range its own addresses)'
        ],
    ),
    (
        '"ctl": 10.77.0.10',
        '"ctl,n8": 10.77.0.9',
        ['fleet.yml:10: networks.management.addresses["n[1-8]"]: a second address for n8 (keep one)'],
    ),
    (
        '"n[1-8]": 10.77.0.11',
        '"n[1-7]": 10.77.0.11',
        ["nodes.csv:10: node n8 has no address (add it to networks.management.addresses)"],
    ),
    (
        '"n[1-8]": 10.77.0.11',
        '"n[1-9]": 10.77.0.11',
        [
            'fleet.yml:10: networks.management.addresses["n[1-9]"]: no row in nodes.csv for n9 (add it, or shorten the list)'
        ],
    ),
    (
        "10.77.0.10",
        "10.77.0.256",
        [
            'fleet.yml:9: networks.management.addresses.ctl: "10.77.0.256" is no IPv4 address (four numbers from 0 to 255, with dots)'
        ],
    ),
    (
        "cidr: 10.77.0.0/24",
        "cidr: 10.77.0.1/24",
        [
            'fleet.yml:7: networks.management.cidr: "10.77.0.1/24" is no network: 10.77.0.1/24 has host bits set (ADDRESS/LENGTH, with no bits beyond the length)'
        ],
    ),
    (
        "10.78.0.0/24",
        "10.76.0.0/14",
        [
            "fleet.yml:11: networks.bmc.cidr: 10.76.0.0/14 overlaps the management network 10.77.0.0/24 (separate the two: BMCs are reset through theirs)"
        ],
    ),
    ("  bmc: {cidr: 10.78.0.0/24}\n", "", ['fleet.yml:5: networks: "bmc" is missing (add it)']),
    (
        "architecture: amd64",
        "architecture: x86",
        ["fleet.yml:13: kinds.gpu.architecture: found \"x86\" (one of: 'amd64' or 'arm64')"],
    ),
    (
        "kind: gpu, partition: spare",
        "kind: gpus, partition: spare",
        ['fleet.yml:20: groups.spare.kind: unknown kind "gpus" (did you mean "gpu"?)'],
    ),
    (
        "partition: spare",
        "partition: training",
        [
            'fleet.yml:20: groups.spare.partition: the spares are in the training partition "training" (give them a partition of their own)'
        ],
    ),
    (
        '"n[7-8]"',
        '"n[6-8]"',
        ["fleet.yml:20: groups.spare.nodes: node n6 is a spare and in training (keep it in one of them)"],
    ),
    (
        "reference: {nodes: n1}",
        "reference: {nodes: n8}",
        ["fleet.yml:20: groups.spare.nodes: node n8 is a spare and in reference (keep it in one of them)"],
    ),
    (
        "reference: {nodes: n1}",
        "reference: {nodes: n1, kind: controller}",
        ["nodes.csv:3: node n1 has 2 kinds: controller (reference), gpu (training) (keep it in one of these groups)"],
    ),
    (
        "reference: {nodes: n1}",
        "reference: {nodes: n1, partition: x}",
        ["nodes.csv:3: node n1 has 2 partitions: x (reference), training (training) (keep it in one of these groups)"],
    ),
    (
        "nodes: ctl, kind: controller",
        "nodes: ctl",
        ["nodes.csv:2: node ctl has no kind: controller say none (put it in a group with a kind)"],
    ),
    ('"n[1-6]"', '"n[1-5]"', ["nodes.csv:8: node n6 is in no group (add it in fleet.yml)"]),
    (
        '  "r[01-02]": {positions: 42}',
        '  "r[01-02]": {positions: 42}\n  r02: {positions: 48}',
        ["fleet.yml:17: racks.r02: r02 stands in r[01-02] too (name each rack once)"],
    ),
    (
        "positions: 42",
        "positions: many",
        ['fleet.yml:16: racks["r[01-02]"].positions: found "many", wanted a whole number'],
    ),
    (
        "groups:",
        "groups: []\nold:",
        [
            "fleet.yml:17: groups: found a list, wanted a mapping",
            'fleet.yml:18: unknown key "old" (known: plugin, site, example, ledger, ssh, networks, kinds, racks, groups, netboot, bmc)',
        ],
    ),
]


@pytest.mark.parametrize(("old", "new", "expected"), FLEET_KEYS, ids=[f"{c[0]}->{c[1]}"[:50] for c in FLEET_KEYS])
def test_a_fault_of_the_fleet_is_told_with_its_line_and_nothing_else(old: str, new: str, expected: list[str]) -> None:
    assert faults(fleet=changed(FLEET, old, new)) == expected


def test_faults_of_both_files_are_told_together() -> None:
    told = faults(changed(FLEET, "n[7-8]", "n[6-8]"), changed(NODES, "LAB-2", "LAB-1"))
    assert [line.split(":")[0] for line in told] == ["fleet.yml", "nodes.csv"]


def test_a_fleet_that_is_no_yaml_does_not_hide_the_faults_of_the_table() -> None:
    told = faults("plugin: [", changed(NODES, "LAB-2", "LAB-1"))
    assert len(told) == 2


@pytest.mark.parametrize("text", ["", "- a\n", "7\n", "null\n", "text\n"])
def test_what_is_no_mapping_is_one_fault(text: str) -> None:
    assert faults(fleet=text)[0].startswith("fleet.yml:1: found ")


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_a_table_without_a_header_says_what_the_header_is(text: str) -> None:
    assert faults(nodes=text) == [f"nodes.csv:1: no header (begin with the line {','.join(COLUMNS)})"]


def test_a_table_from_a_spreadsheet_may_begin_with_a_mark_and_end_lines_its_own_way() -> None:
    assert faults(nodes="\ufeff" + NODES.replace("\n", "\r\n")) == []


def test_660_nodes_are_read_in_less_than_a_second() -> None:
    site = Path(__file__).parents[2] / "inventory"
    texts = [(site / name).read_text() for name in ("fleet.yml", "nodes.csv")]
    start = time.monotonic()
    fleet = parse_fleet(*texts)
    assert time.monotonic() - start < 30
    assert len(fleet.nodes_of(["gpu"])) == 660


PIECES = st.sampled_from(
    [
        *FLEET.splitlines(keepends=True),
        "groups:\n",
        '  training: {nodes: "n[1-"}\n',
        "  - x\n",
        "racks: 1\n",
        "\t",
        "{",
        "n[1-8]",
    ]
)
ROWS = st.sampled_from([*NODES.splitlines(keepends=True), "n9,,,\n", '"', ",", "\r", "\x00", "n1"])


@given(st.lists(PIECES, max_size=25).map("".join), st.lists(ROWS, max_size=12).map("".join))
def test_no_two_files_get_anything_out_of_the_reader_but_a_fleet_or_bad_input(fleet: str, nodes: str) -> None:
    assert isinstance(faults(fleet, nodes), list)


@given(st.text(max_size=300), st.text(max_size=300))
def test_no_text_gets_anything_out_of_the_reader_but_bad_input(fleet: str, nodes: str) -> None:
    with pytest.raises(BadInput):
        parse_fleet(fleet, nodes)


@given(st.text(alphabet="n0123[]-,!&^/@* ", max_size=25))
def test_no_host_list_gets_anything_out_of_the_reader_but_a_fleet_or_bad_input(hosts: str) -> None:
    assert isinstance(faults(FLEET.replace('"n[1-6]"', f'"{hosts}"')), list)
