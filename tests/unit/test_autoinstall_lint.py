"""The lint of autoinstall: each thing that an installer accepts in silence is a finding, and a good file has none."""

# ruff: noqa: E501  messages stand as they are printed

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.decide.autoinstall.cloudconfig import CLOUD
from bedplate.decide.autoinstall.findings import Finding
from bedplate.decide.autoinstall.installer import AUTOINSTALL
from bedplate.decide.autoinstall.lint import Kind, accepted, kind_of, lint, lint_seed
from bedplate.decide.autoinstall.rules import RULES
from unit.autoinstall_sample import GOOD, HASH, KEY

SCHEMAS = Path(__file__).resolve().parents[3] / "shared" / "schemas"
needs_schemas = pytest.mark.skipif(not SCHEMAS.is_dir(), reason="the upstream schemas are not beside this checkout")


def found(text: str, name: str = "user-data", release: Any = "24.04") -> list[Finding]:
    return list(lint(text.encode(), name, release=release).findings)


def rules(text: str, name: str = "user-data") -> set[str]:
    return {finding.rule for finding in found(text, name)}


def changed(old: str, new: str) -> str:
    assert old in GOOD, old
    return GOOD.replace(old, new, 1)


def test_a_good_file_has_no_finding() -> None:
    assert found(GOOD) == []


@needs_schemas
def test_the_good_file_passes_the_schemas_of_the_installer_and_of_cloud_init() -> None:
    data = yaml.safe_load(GOOD)
    jsonschema.validate(data["autoinstall"], json.loads((SCHEMAS / "autoinstall-noble.json").read_text()))
    cloud = json.loads((SCHEMAS / "cloud-config-v1.json").read_text())
    jsonschema.validate(data["autoinstall"]["user-data"], cloud)


CASES = [
    # what stands there, what is written instead, the rule, a part of what is told
    ("#cloud-config", "# cloud-config", "header", "the first line is"),
    ("#cloud-config", "#cloud-config ", "header", "the first line is"),
    ("#cloud-config\n", "\n#cloud-config\n", "header", "the first line is"),
    ("autoinstall:\n", "autoinstal:\n", "autoinstall", "no `autoinstall` in it"),
    ("autoinstall:\n", "autoinstal:\n", "unknown-key", 'did you mean "autoinstall"'),
    ("autoinstall:\n", "late-commands: [a]\nautoinstall:\n", "autoinstall", "stands beside it"),
    ("  version: 1\n", "", "missing-key", '"version" is missing'),
    ("  version: 1\n", '  version: "1"\n', "type", "wanted a whole number"),
    ("late-commands:", "late_commands:", "unknown-key", 'did you mean "late-commands"'),
    ("storage:\n", "storge:\n", "unknown-key", 'did you mean "storage"'),
    ("storage:\n", "storge:\n", "storage-by-size", "no storage section"),
    ("match: {serial:", "match: {serail:", "match", 'did you mean "serial"'),
    ('match: {serial: "*SN-1*"}', "match: {}", "match", "an empty match"),
    ('match: {serial: "*SN-1*"}', "match: []", "value", "a list of 0"),
    ('match: {serial: "*SN-1*"}', 'match: {serial: "*"}', "match", "matches every disk"),
    ('match: {serial: "*SN-1*"}', "match: {size: largest}", "storage-by-size", "chosen by its size"),
    ('match: {serial: "*SN-1*"}', "match: {ssd: true}", "disk-identity", "may fit a data disk"),
    ('match: {serial: "*SN-1*"}', "match: {size: larges}", "match", "one of: largest, smallest"),
    ('match: {serial: "*SN-1*"}', "match: {serial: SN-1}", "disk-serial", 'serial: "*SN-1*"'),
    ('match: {serial: "*SN-1*"}', "match: {serial: 123456}", "type", 'put it in quotes: "123456"'),
    ('match: {serial: "*SN-1*"}', "match: {serial: 0012}", "yaml-trap", "the number 10"),
    ('match: {serial: "*SN-1*"}', "path: /dev/sda", "disk-identity", "may be another disk"),
    ('match: {serial: "*SN-1*"}, ', "", "disk-identity", "not identified"),
    ('match: {serial: "*SN-1*"}', "serial: SN-1", "disk-serial", "the whole ID_SERIAL"),
    ("    config:\n", "    layout: {name: lvm, match: {serial: '*A*'}}\n    config:\n", "conflict", "config is dropped"),
    ("    config:\n", "    layuot: {}\n    config:\n", "unknown-key", 'did you mean "layout"'),
    ("devices: [part0, part1]", "devices: [part0, part9]", "storage", 'nothing above has the id "part9"'),
    ("devices: [part0, part1]", "devices: [part0]", "storage", "at least 2"),
    ("id: part1", "id: part0", "storage", 'a second "part0"'),
    ("path: /}", "path: /srv}", "storage", "nothing is mounted at /"),
    ("type: raid", "type: riad", "value", 'did you mean "raid"'),
    ("type: raid", "type: zpool", "unchecked-key", "cannot look into"),
    ("label: root", "label: a-label-that-is-too-long", "size", "the file system takes 16"),
    ("fallback: abort", "fallback: offline-install", "apt-fallback", "becomes an installation from the ISO"),
    ("    fallback: abort\n", "", "apt-fallback", "without fallback"),
    ("fallback: abort", "fallback: offline", "value", "one of: abort"),
    ("geoip: false", "geoip: true", "apt-mirror", "looked up"),
    ('{uri: "http://archive.lab:8080/"}', "country-mirror", "apt-mirror", "a country mirror"),
    ("    geoip: false\n", '    geoip: false\n    sources: {x: {source: "deb http://a b c"}}\n', "apt-unsigned", "without a key"),
    ("    geoip: false\n", '    geoip: false\n    sources: {x: {key: k, source: "deb [trusted=yes] http://a b c"}}\n', "apt-unsigned", "no signature"),
    ("package: linux-image-6.8.0-138-generic", "flavor: hwe", "kernel-pin", "another kernel next month"),
    ("package: linux-image-6.8.0-138-generic", "package: linux-image-generic", "kernel-pin", "not one exact kernel"),
    ("kernel: {", "kernel: {flavor: ga, ", "conflict", "both package and flavor"),
    ("refresh-installer: {update: false}", "refresh-installer: {update: true}", "installer-refresh", "may refresh"),
    ("search_drivers: false", "search_drivers: true", "deterministic", "drivers are searched"),
    ("  oem: {install: false}\n", "", "deterministic", "OEM packages"),
    ("  locale:", "  interactive-sections: [network]\n  locale:", "interactive", "waits for a person"),
    ("type: webhook", "type: webhok", "reporting", "one of: print, webhook, journald"),
    ("type: webhook", "type: rsyslog", "reporting", "one of: print, webhook, journald"),
    ('endpoint: "http://10.0.0.1:8080/report/n1", ', "", "reporting", "without an endpoint"),
    ("updates: security", "updates: none", "value", "one of: security, all"),
    ("shutdown: reboot", "shutdown: halt", "value", "one of: reboot, poweroff"),
    ("hostname: n1", "hostname: 12", "type", 'put it in quotes: "12"'),
    ("hostname: n1", "hostname: n_1", "value", "letters, digits and -"),
    ("hostname: n1", "hostname: n1\n    groups: [sudo]", "key-too-new", "no such key"),
    ("username: ops", "username: root", "username", "a user of every new system"),
    (f"'{HASH}'", "secret", "password-plain", "a password in clear"),
    (f"'{HASH}'", '"/abcdefghijkl/' + "0" * 80 + '"', "password-hash", "a shell replaced its $6$"),
    (f"'{HASH}'", "$6$abcdefgh$" + "a" * 86 + " # of ops", "yaml-comment", "is a comment"),
    (f"'{HASH}'", "$6$abcdefgh$" + "a" * 60, "password-hash", "begins like a hash, and is none"),
    (f"'{HASH}'", "$1$abcdefgh$" + "a" * 22, "password-hash", "a MD5 hash"),
    (f"['{KEY}']", "[ssh-ed25519 AAAA]", "ssh-key", "no ssh-ed25519 key"),
    (f"['{KEY}']", "[from file]", "ssh-key", "no type of key"),
    ("allow-pw: false", 'allow-pw: "yes"', "type", "wanted true or false"),
    ("allow-pw: false", "allow-pw: yes", "yaml-trap", "the truth value true"),
    ("allow-pw: false", "allow-pw: true", "ssh-password", "login by password"),
    ("dhcp-identifier: mac", "dhcp-identifier: duid", "dhcp-identifier", "without `dhcp-identifier: mac`"),
    ("        set-name: mgmt0\n", "", "nic-by-name", "without a set-name"),
    ('match: {macaddress: "02:00:00:00:01:00"}', "wakeonlan: true", "nic-by-name", "not matched by MAC"),
    ('"02:00:00:00:01:00"', '"02:00:00:00:01:0A"', "value", "lower case"),
    ('"02:00:00:00:01:00"', "12:34:56:12:34:56", "yaml-trap", "the number"),
    ('"02:00:00:00:01:09"', '"02:00:00:00:01:00"', "network", "a second interface with MAC"),
    ("interfaces: [mgmt0, mgmt1]", "interfaces: [mgmt0, mgmt2]", "network", 'no interface "mgmt2"'),
    ('        nameservers: {addresses: ["10.0.0.1"]}\n', "", "static-dns", "without name servers"),
    ('"10.0.0.5/24"', '"10.0.0.5"', "value", "has no length"),
    ("        routes:", "        gateway4: 10.0.0.1\n        routes:", "deprecated", "routes: [{to: default"),
    ("    version: 2\n", "", "missing-key", '"version" is missing'),
    ("mode: 802.3ad", "mode: lacp", "value", "one of: balance-rr"),
    ("mode: 802.3ad", "mode: 802.3ad, lacp_rate: fast", "unknown-key", 'did you mean "lacp-rate"'),
    ("  late-commands:\n", '  late-commands:\n    - ""\n', "command", "an empty command"),
    ("  late-commands:\n", "  late-commands:\n    - []\n", "command", "without a program"),
    ("  late-commands:\n", '  late-commands:\n    - ["echo hello"]\n', "command-list", "the name of one program"),
    ("  late-commands:\n", '  late-commands:\n    - [echo, a, ">", b]\n', "command-list", "not an operator"),
    ("  late-commands:\n", "  late-commands:\n    - curtin in-target -- echo a > /etc/b\n", "redirect", "writes to the installer"),
    ("  late-commands:\n", "  late-commands:\n    - curtin in-target -- echo a | tee /etc/b\n", "redirect", "a pipe behind in-target"),
    ("  late-commands:\n", "  late-commands:\n    - curtin in-target ls -l\n", "in-target", "without --"),
    ("  late-commands:\n", "  late-commands:\n    - [curtin, in-target, ls]\n", "in-target", "without --"),
    ("  late-commands:\n", "  late-commands: echo hi\n  x:\n", "type", "wanted a list"),
    ("    timezone: Etc/UTC\n", "    timezone: Etc/UTC\n    ntp: {severs: [a]}\n", "unknown-key", 'did you mean "servers"'),
    ("    timezone: Etc/UTC\n", "    timezon: Etc/UTC\n", "unknown-key", 'did you mean "timezone"'),
    ("    timezone: Etc/UTC\n", "    password: secret\n", "password-plain", "a password in clear"),
    ("    timezone: Etc/UTC\n", "    users: [{name: a, plain_text_passwd: b}]\n", "password-plain", "a password in clear"),
    ("    timezone: Etc/UTC\n", "    chpasswd: {list: 'a:b'}\n", "password-plain", "a password in clear"),
    ("    timezone: Etc/UTC\n", "    chpasswd: {users: [{name: a, type: text, password: b}]}\n", "password-plain", "a password in clear"),
    ("    timezone: Etc/UTC\n", "    ssh_keys: {ed25519_private: x}\n", "secret", "host keys"),
    ("    timezone: Etc/UTC\n", "    chef: {}\n", "unchecked-key", "cannot look into"),
    ("    timezone: Etc/UTC\n", "    package_upgrade: true\n", "deterministic", "upgraded at the first boot"),
    ("    timezone: Etc/UTC\n", "    runcmd: ['curl http://a:b@c/']\n", "secret", "a password in a URL"),
    ("    timezone: Etc/UTC\n", "    write_files: [{path: /a, content: '-----BEGIN OPENSSH PRIVATE KEY-----'}]\n", "secret", "a private key"),
    ("    timezone: Etc/UTC\n", "    write_files: [{path: /a, permissions: 0644}]\n", "yaml-trap", "the number 420"),
    ("    timezone: Etc/UTC\n", "    write_files: [{path: /etc/netplan/a.yaml, permissions: '0644'}]\n", "netplan-mode", "permissions 0644"),
    ("    timezone: Etc/UTC\n", "    yes: 1\n", "yaml-trap", "the truth value true"),
    ("    timezone: Etc/UTC\n", "    timezone: Etc/UTC\n    timezone: Etc/UTC\n", "duplicate-key", "stands here twice"),
    ("    timezone: Etc/UTC\n", "    timezone: *x\n", "yaml", "an alias"),
    ("  shutdown: reboot\n", "  shutdown: reboot\n  ubuntu-pro: {token: C123}\n", "secret", "a token"),
    ("    swap: {size: 0}\n", "    swap: {sise: 0}\n", "unknown-key", 'did you mean "size"'),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "rule", "part"), CASES, ids=[f"{c[2]}: {c[1].strip()[:40]}" for c in CASES])
def test_a_fault_is_found_by_its_rule(old: str, new: str, rule: str, part: str) -> None:
    told = [finding for finding in found(changed(old, new)) if finding.rule == rule and part in str(finding)]
    assert told, [str(finding) for finding in found(changed(old, new))]
    assert told[0].fault.line is not None


def test_a_layout_with_another_name_is_told() -> None:
    text = (
        GOOD[: GOOD.index("    config:")]
        + "    layout: {name: lvmx, match: {serial: '*A*'}}\n"
        + GOOD[GOOD.index("  identity:") :]
    )
    assert [finding.rule for finding in found(text)] == ["layout"]
    assert rules(text.replace(", match: {serial: '*A*'}", "").replace("lvmx", "direct")) == {"storage-by-size"}


def test_several_faults_are_told_at_once_each_with_its_line() -> None:
    text = (
        GOOD.replace("fallback: abort", "fallback: continue-anyway")
        .replace("lacp-rate", "lacp_rate")
        .replace("username: ops", "username: root")
    )
    assert [(finding.fault.line, finding.rule) for finding in found(text)] == [
        (31, "unknown-key"),
        (36, "apt-fallback"),
        (57, "username"),
    ]


def test_a_key_is_known_from_the_release_on_that_has_it() -> None:
    text = changed("hostname: n1", "hostname: n1\n    groups: [sudo]")
    assert found(text, release="26.04") == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (b"\xef\xbb\xbf#cloud-config\n", "text"),
        (b"#cloud-config\n\xff", "text"),
        (b"#cloud-config\r\n", "text"),
        (b"#cloud-config\n\0", "yaml"),
        (b"#cloud-config\n- a\n", "yaml"),
        (b"#cloud-config\na: [\n", "yaml"),
        (b"", "header"),
        (b"#cloud-config\n" + b"# \n" * 200_000, "size"),
        (b"#cloud-config\na: " + b"[" * 5000, "yaml"),
    ],
)
def test_what_is_no_text_or_no_yaml_is_told(text: bytes, rule: str) -> None:
    assert rule in {finding.rule for finding in lint(text, "user-data").findings}


def test_the_section_alone_needs_no_header_and_stands_alone() -> None:
    section = yaml.safe_dump(yaml.safe_load(GOOD)["autoinstall"])
    assert found(section, "autoinstall.yaml") == []
    assert found("autoinstall:\n" + "".join(f"  {line}\n" for line in section.splitlines()), "autoinstall.yaml") == []
    told = found("users: []\nautoinstall: {version: 1}\n", "autoinstall.yaml")
    assert 'autoinstall.yaml:1: users: "users" beside `autoinstall` (nothing else may stand here) [autoinstall]' in map(
        str, told
    )


def test_the_other_files_of_a_seed_have_their_own_rules() -> None:
    assert found("", "meta-data") == []
    assert found("instance-id: n1-abc\nlocal-hostname: n1\n", "seed/meta-data") == []
    assert rules("instance_id: x\n", "meta-data") == {"unknown-key"}
    assert found("", "vendor-data") == []
    assert rules("a: 1\n", "vendor-data") == {"header", "unknown-key"}
    assert found("network: {version: 2, ethernets: {}}\n", "network-config") == []
    assert rules("version: 1\nconfig: []\n", "network-config") == {"value", "unknown-key"}
    assert [str(each) for each in lint_seed(["user-data"], "seed")] == [
        "seed/meta-data: not there (an empty file is enough) [seed]",
        "seed/vendor-data: not there (an empty file is enough) [seed]",
    ]


GRUB = 'menuentry x {\n  linux (tftp)/vmlinuz ip=dhcp url=http://a/x.iso cloud-config-url=/dev/null BOOTIF=$m autoinstall "ds=nocloud;s=http://a/seed/n1/" ---\n}\n'
IPXE = "#!ipxe\nkernel http://a/vmlinuz initrd=initrd ip=dhcp url=http://a/x.iso cloud-config-url=/dev/null BOOTIF=01-${net0/mac:hexhyp} autoinstall ds=nocloud;s=http://a/seed/n1/ --- || shell\n"


@pytest.mark.parametrize(("name", "text"), [("grub.cfg", GRUB), ("boot.ipxe", IPXE)])
def test_boot_lines_have_their_rules(name: str, text: str) -> None:
    assert found(text, name) == []
    assert rules(text.replace(" autoinstall", ""), name) == {"boot-autoinstall"}
    assert rules(text.replace("/n1/", "/n1"), name) == {"boot-seed-slash"}
    assert rules(text.replace(" cloud-config-url=/dev/null", ""), name) == {"boot-url"}
    assert rules(text.replace(" ip=dhcp", ""), name) == {"boot-ip"}
    assert rules(text.replace("ds=nocloud;", "dx=nocloud;"), name) == {"boot-seed"}
    assert rules(text.replace("BOOTIF", "XBOOTIF"), name) == {"boot-interface"}
    assert rules(text.replace(" autoinstall", " autoinstall " + "x" * 2048), name) == {"size"}


def test_grub_cuts_at_a_semicolon_and_ipxe_does_not() -> None:
    assert rules(GRUB.replace('"', ""), "grub.cfg") == {"boot-semicolon"}
    assert rules(GRUB.replace('"', "").replace("ds=nocloud;", "ds=nocloud\\;"), "grub.cfg") == set()
    assert rules(IPXE.replace(" initrd=initrd", ""), "boot.ipxe") == {"boot-initrd"}
    assert [finding.fault.line for finding in found(GRUB.replace('"', ""), "grub.cfg")] == [2]


def test_the_boot_of_a_local_disk_is_none_of_the_lints_business() -> None:
    assert found("menuentry x {\n  linux /vmlinuz root=/dev/md0 ro\n}\n", "grub.cfg") == []


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("x/user-data", b"", Kind.USER_DATA), ("n1.meta-data", b"", Kind.META_DATA), ("a.yml", b"#cloud-config\n", Kind.USER_DATA),
        ("a", b"#!ipxe\n", Kind.IPXE), ("a", b"menuentry x {}\n", Kind.GRUB), ("autoinstall.yaml", b"", Kind.AUTOINSTALL),
        ("50-cloud-init.yaml", b"network:\n  version: 2\n", Kind.NETWORK),
    ],
)  # fmt: skip
def test_a_file_is_known_by_its_name_or_by_what_stands_in_it(name: str, data: bytes, kind: Kind) -> None:
    assert kind_of(name, data) is kind


def test_scripts_are_handed_out_for_a_shell_to_read() -> None:
    scripts = lint(GOOD.encode(), "user-data").scripts
    assert [(script.shell, script.place) for script in scripts] == [
        ("sh", "write_files[0].content"), ("sh", "autoinstall.early-commands[0][2]"), ("sh", "autoinstall.late-commands[0]"),
        ("sh", "autoinstall.late-commands[1][5]"), ("sh", "autoinstall.late-commands[2]"), ("sh", "autoinstall.error-commands[0]"),
    ]  # fmt: skip


def test_a_kernel_of_debians_names_is_as_exact_as_one_of_ubuntus() -> None:
    assert found(changed("linux-image-6.8.0-138-generic", "linux-image-6.12.48+deb13-cloud-amd64")) == []


def test_only_a_matter_of_policy_can_be_accepted_and_nothing_else_goes_with_it() -> None:
    findings = found(
        changed("  kernel: {package: linux-image-6.8.0-138-generic}\n", "").replace("username: ops", "username: root")
    )
    assert [finding.rule for finding in accepted(findings, ["kernel-pin"])] == ["username"]


# --- against the upstream schemas ---------------------------------------------------------------------


@needs_schemas
def test_every_key_of_the_installers_schema_is_known_here_and_the_other_way_round() -> None:
    upstream = set(json.loads((SCHEMAS / "autoinstall-noble.json").read_text())["properties"])
    assert set(AUTOINSTALL) - upstream == {"kernel-crash-dumps", "zdevs"}, "keys that noble's installer does not have"
    assert upstream - set(AUTOINSTALL) == set()


@needs_schemas
def test_every_key_of_cloud_inits_schema_is_looked_into_or_refused() -> None:
    upstream = set(json.loads((SCHEMAS / "cloud-config-v1.json").read_text())["properties"])
    assert upstream - set(CLOUD) == {"autoinstall"}
    assert set(CLOUD) - upstream == set()


# --- properties -----------------------------------------------------------------------------------------

DATA = yaml.safe_load(GOOD)


def mappings(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all mappings in a document."""
    places = [path] if isinstance(value, dict) else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        places += mappings(item, (*path, key))
    return places


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        value = value[part]
    return value


WORDS = st.text("abcdefghijklmnopqrstuvwxyz-_", min_size=1, max_size=12)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(place=st.sampled_from(mappings(DATA)), key=WORDS, value=VALUES)
def test_no_file_with_an_unknown_key_anywhere_passes(place: tuple[Any, ...], key: str, value: Any) -> None:
    data = yaml.safe_load(GOOD)
    key = f"zz{key}"  # in no shape
    at(data, place)[key] = value
    text = "#cloud-config\n" + yaml.safe_dump(data)
    told = found(text)
    names = place in {
        ("autoinstall", "network", "ethernets"),
        ("autoinstall", "network", "bonds"),
        ("autoinstall", "reporting"),
    }
    if names:  # their keys are the writer's own: the value has to be an interface, or a handler
        assert told or isinstance(value, dict)
        return
    assert any(key in str(finding) for finding in told), text


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(place=st.sampled_from(mappings(DATA)), value=VALUES, choice=st.integers(0, 10_000))
def test_whatever_a_value_is_the_lint_ends(place: tuple[Any, ...], value: Any, choice: int) -> None:
    data = yaml.safe_load(GOOD)
    here = at(data, place)
    keys = sorted(here)
    if keys:
        here[keys[choice % len(keys)]] = value
    found("#cloud-config\n" + yaml.safe_dump(data))


@settings(max_examples=80, deadline=None)
@given(value=VALUES, kind=st.sampled_from(list(Kind)))
def test_whatever_a_document_is_the_lint_ends(value: Any, kind: Kind) -> None:
    lint(("#cloud-config\n" + yaml.safe_dump(value)).encode(), "x", kind=kind)


@settings(max_examples=80, deadline=None)
@given(data=st.binary(max_size=200) | st.text(max_size=200).map(str.encode), kind=st.sampled_from(list(Kind)))
def test_whatever_the_bytes_are_the_lint_ends(data: bytes, kind: Kind) -> None:
    lint(data, "x", kind=kind)
    lint(b"#cloud-config\nautoinstall:\n " + data, "x", kind=kind)


@settings(max_examples=80, deadline=None)
@given(line=st.text(" ;\"'\\=abdsnocloud:/$", max_size=80))
def test_whatever_a_boot_line_is_the_lint_ends(line: str) -> None:
    found(f"linux autoinstall {line}", "grub.cfg")
    found(f"#!ipxe\nkernel autoinstall {line}", "x.ipxe")


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(command=st.text(" ;|&<>\n\"'`$()#-\\atrgeincuo/", max_size=60))
def test_whatever_a_command_is_the_lint_ends(command: str) -> None:
    data = yaml.safe_load(GOOD)
    data["autoinstall"]["late-commands"] = [command, ["sh", "-c", command], command.split(" ")]
    found("#cloud-config\n" + yaml.safe_dump(data))


def test_every_rule_has_a_page_entry_and_is_used() -> None:
    source = "".join(
        path.read_text()
        for path in (Path(__file__).parents[2] / "tools/bedplate/decide/autoinstall").glob("*.py")
        if path.name != "rules.py"
    )
    for name in RULES:
        assert f'"{name}"' in source, f"{name} is told by nothing"
