"""Traps of the installer that stand in no schema: what comes before a seed, what a default does, what nobody pinned."""

# ruff: noqa: E501  messages stand as they are printed

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.decide.autoinstall.lint import Kind, lint
from bedplate.decide.autoinstall.rules import RULES
from unit.autoinstall_sample import GOOD, HASH

NETWORK = GOOD[GOOD.index("  network:\n") : GOOD.index("  apt:\n")]
STORAGE = GOOD[GOOD.index("    config:\n") : GOOD.index("  identity:\n")]
PINS = '    preferences: [{package: "linux-*", pin: "version 6.8.0-138.138", pin-priority: 1001}]\n'
SUITES = "    disable_suites: [security, updates]\n"


def told(text: str, name: str = "user-data") -> list[str]:
    return [str(finding) for finding in lint(text.encode(), name).findings]


CASES = [
    # what stands there, what is written instead, all that is told
    (NETWORK, "", "user-data:8: autoinstall: no network section: DHCP on every en* and eth*, which the installed system asks as another client (network: ports by match.macaddress and set-name) [nic-by-name]"),
    (NETWORK, "  network: null\n", "user-data:8: autoinstall: no network section: DHCP on every en* and eth*, which the installed system asks as another client (network: ports by match.macaddress and set-name) [nic-by-name]"),
    ("test -e /sys/class/net", "sed -i s/a/b/ /autoinstall.yaml", "user-data:70: autoinstall.early-commands[0][2]: /autoinstall.yaml is read again after the early-commands (leave it alone) [rewritten]"),
    ("  - path: /run/hello\n", "  - path: /autoinstall.yaml\n", "user-data:3: write_files[0].path: /autoinstall.yaml comes before the `autoinstall` of this file (write it below `autoinstall`) [rewritten]"),
    ("    geoip: false\n", '    geoip: false\n    sources: {x: {keyid: ABCD1234, source: "deb http://a b c"}}\n', "user-data:38: autoinstall.apt.sources.x: a key by its id: a key server has to answer during the installation, and is believed (key: | and the raw key) [apt-unsigned]"),
    ("preserve_sources_list: false", "preserve_sources_list: true", "user-data:38: autoinstall.apt.preserve_sources_list: the sources of the ISO stay beside the mirror (false) [apt-mirror]"),
    (PINS + "", "", None),
    (SUITES + PINS, "", "user-data:8: autoinstall: updates run before the first boot, and nothing holds them (apt.preferences, or disable_suites: [security, updates]) [updates-pin]"),
    (STORAGE, '    layout: {name: lvm, match: {serial: "*SN-1*"}}\n', "user-data:44: autoinstall.storage.layout: lvm without sizing-policy: all leaves part of the disk unused (add it) [lvm-scaled]"),
    (STORAGE, '    layout: {name: lvm, sizing-policy: all, match: {serial: "*SN-1*"}}\n', None),
    ('match: {serial: "*SN-1*"}', 'match: {serial: "*SN-1*", install-media: true}', "user-data:45: autoinstall.storage.config[0].match.install-media: the disk that the installer runs from (remove it) [disk-identity]"),
    ('match: {serial: "*SN-1*"}', 'match: [{serial: "*SN-1*"}, {}]', 'user-data:45: autoinstall.storage.config[0].match[1]: an empty match takes an arbitrary disk (match: {serial: "*SERIAL*"}) [match]'),
    ("  drivers: {install: false}\n", "  drivers: {install: true}\n", "user-data:14: autoinstall.drivers.install: third-party drivers are installed unless drivers.install is false (drivers: {install: false}) [deterministic]"),
    ("  codecs: {install: false}\n", "", "user-data:8: autoinstall: codecs are installed unless codecs.install is false (codecs: {install: false}) [deterministic]"),
    ("  refresh-installer: {update: false}\n", "", "user-data:8: autoinstall: the installer may refresh itself (refresh-installer: {update: false}) [installer-refresh]"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "all_told"), CASES)
def test_a_trap_is_told_with_its_place_and_what_to_do(old: str, new: str, all_told: str | None) -> None:
    assert old in GOOD, old
    assert told(GOOD.replace(old, new, 1)) == ([all_told] if all_told else [])


def test_another_file_that_a_boot_line_names_comes_before_the_seed() -> None:
    line = 'linux /v ip=dhcp BOOTIF=$m subiquity.autoinstallpath=/cdrom/a.yaml autoinstall "ds=nocloud;s=http://a/s/" ---\n'
    assert told(line, "grub.cfg") == [
        "grub.cfg:1: subiquity.autoinstallpath=/cdrom/a.yaml comes before the seed (remove it) [rewritten]"
    ]


def test_a_hash_that_a_heredoc_took_to_pieces_and_a_password_in_clear_are_told_apart() -> None:
    """`$6$salt$hash` in double quotes of a shell: `$6` and `$abcdefgh` are replaced by nothing."""
    lost = "$6$abcdefghijklmnop$/rest".replace("$6", "").replace("$abcdefghijklmnop", "").replace("$/", "/") + "0" * 80
    assert [line.partition(": ")[2] for line in told(GOOD.replace(f"'{HASH}'", f"'{lost}'"))] == [
        "autoinstall.identity.password: the tail of a hash: a shell replaced its $6$… (quote the heredoc: <<'EOF') [password-hash]"
    ]
    assert [line.rpartition(" [")[2] for line in told(GOOD.replace(f"'{HASH}'", "'hunter2'"))] == ["password-plain]"]
    assert "hunter2" not in "".join(told(GOOD.replace(f"'{HASH}'", "'hunter2'")))


@pytest.mark.parametrize(
    ("said", "rule", "part"),
    [
        ("0644", "yaml-trap", "the number 420"), ("12:34:56", "yaml-trap", "the number 45296"),
        ("0012", "yaml-trap", "the number 10"), ("yes", "yaml-trap", "the truth value true"),
        ("1234567890", "type", 'put it in quotes: "1234567890"'), ("1.10", "yaml-trap", "the number 1.1"),
        ("1e3", "type", ""), ("2026-11-30", "yaml-trap", "a date"), ("null", "type", ""),
    ],
)  # fmt: skip
def test_a_serial_number_that_yaml_reads_as_something_else_is_told(said: str, rule: str, part: str) -> None:
    lines = told(GOOD.replace('match: {serial: "*SN-1*"}', f"match: {{serial: {said}}}", 1))
    if said == "1e3":  # YAML 1.1 wants a sign and a dot: it stays text, and is told as a serial that is no glob
        assert [line.rpartition(" [")[2] for line in lines] == ["disk-serial]"]
        return
    assert [line for line in lines if f"[{rule}]" in line and part in line], lines


def test_what_a_person_may_accept_is_what_is_no_fault_of_the_file() -> None:
    assert RULES["rewritten"].policy
    assert RULES["lvm-scaled"].policy


# --- properties ------------------------------------------------------------------------------------------------

WORDS = st.text("abcdefghijklmnopqrstuvwxyz-_", min_size=1, max_size=12)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
OTHERS: dict[Kind, tuple[str, Any]] = {
    Kind.AUTOINSTALL: ("", yaml.safe_load(GOOD)["autoinstall"]),
    Kind.META_DATA: ("", {"instance-id": "n1-a", "local-hostname": "n1"}),
    Kind.VENDOR_DATA: ("#cloud-config\n", {"package_update": False, "phone_home": {"url": "http://a/"}}),
    Kind.NETWORK: ("", {"network": yaml.safe_load(GOOD)["autoinstall"]["network"]}),
}
FREE = {"ethernets", "bonds", "reporting"}  # their keys are the writer's own names


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where mappings with closed keys stand."""
    found = [path] if isinstance(value, dict) and (not path or path[-1] not in FREE) else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += places(item, (*path, key))
    return found


CHOICES = [(kind, place) for kind, (_, data) in OTHERS.items() for place in places(data)]


@pytest.mark.parametrize("kind", OTHERS)
def test_the_files_that_are_changed_below_are_good(kind: Kind) -> None:
    head, data = OTHERS[kind]
    assert lint((head + yaml.safe_dump(data)).encode(), "x", kind=kind).findings == ()


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(choice=st.sampled_from(CHOICES), key=WORDS, value=VALUES)
def test_no_other_file_of_a_seed_with_an_unknown_key_passes(
    choice: tuple[Kind, tuple[Any, ...]], key: str, value: Any
) -> None:
    kind, place = choice
    head, data = OTHERS[kind]
    data = here = yaml.safe_load(yaml.safe_dump(data))
    for part in place:
        here = here[part]
    here[f"zz{key}"] = value
    findings = lint((head + yaml.safe_dump(data)).encode(), "x", kind=kind).findings
    assert any(f"zz{key}" in str(finding) for finding in findings), yaml.safe_dump(data)
