"""The rules of the lint: what each is, why it is one, and whether a person may accept it.

A rule that is a matter of `policy` can be accepted by name, for one run; the others are faults of the file.
docs/autoinstall-lint.md is this table.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    name: str
    says: str
    why: str
    policy: bool = False


_ALL = (
    # --- the file
    Rule("header", "the first line is exactly `#cloud-config`", "anything else is ignored, and the installer asks"),
    Rule("text", "the file is UTF-8, without NUL and byte order mark", "cloud-init reads byte 0"),
    Rule("size", "nothing is longer than the program that reads it takes", "the rest is cut off in silence"),
    Rule("yaml", "the file is one YAML mapping, without aliases and tags", "who reads it next may read it otherwise"),
    Rule("yaml-trap", "no value that YAML 1.1 turns into something else", "0644 is 420, yes is true"),
    Rule("yaml-comment", "no ` #` after a hash or key without quotes", "the tail of a hash or a key is lost"),
    Rule("duplicate-key", "no key stands twice in one mapping", "the last one wins in silence"),
    Rule("seed", "a seed has user-data, meta-data and vendor-data", "cloud-init passes over a seed without meta-data"),
    # --- keys and values
    Rule("unknown-key", "every key is known, at every level", "the installer ignores a typo, at most with a warning"),
    Rule("unchecked-key", "no section that this lint cannot look into", "what nobody checked has not passed"),
    Rule("missing-key", "what has to be there is there", "the installer stops, or falls back to a default"),
    Rule("type", "every value has its type", "text is not true, and a number is no text"),
    Rule("value", "every value is one that its reader knows", "others are ignored, or stop the installation"),
    Rule("key-too-new", "no key that this release's installer lacks", "lint against the release that is installed"),
    Rule("deprecated", "no key that is on its way out", "the next release refuses it"),
    Rule("autoinstall", "user-data has `autoinstall`, and its keys stand below it", "elsewhere they count for nothing"),
    Rule("conflict", "no two keys that exclude each other", "one of them is dropped"),
    # --- secrets
    Rule("password-plain", "no password stands in clear", "a seed is fetched over HTTP and stays on the disk"),
    Rule("password-hash", "a password hash is one, and a strong one", "nonsense is accepted, and login is impossible"),
    Rule("secret", "no private key, token or passphrase", "a seed is fetched over HTTP and stays on the disk"),
    Rule("ssh-key", "a public key is one", "a stub is accepted, and login is impossible"),
    Rule("username", "the user's name is free on a new system", "root and system users cannot be made"),
    # --- commands
    Rule("command", "a command can be run", "the first one that fails ends the installation"),
    Rule("command-syntax", "the shell can read it (`sh -n`)", "the first one that fails ends the installation"),
    Rule(
        "command-list",
        "a command as a list has one word per item, and no shell operators",
        "a list is run without a shell: `>` would be an argument",
    ),
    Rule("in-target", "`curtin in-target` is followed by `--`", "curtin reads the command's options as its own"),
    Rule(
        "redirect",
        "no redirection or pipe behind `curtin in-target`",
        "it happens in the installer: use [curtin, in-target, --, sh, -c, '...'] or write to /target",
    ),
    # --- disks
    Rule("match", "a disk match has known keys, and is not empty", "an unknown key or {} takes an arbitrary disk"),
    Rule(
        "disk-identity",
        "a disk is named by serial, or by its path in the machine (id_path, /dev/disk/by-…)",
        "model, vendor, ssd and size fit a data disk as well; /dev/sda is another one after each start",
    ),
    Rule("storage-by-size", "no disk is chosen by its size", "the largest disk is a data disk", policy=True),
    Rule(
        "disk-serial",
        'the serial is a glob in a match: serial: "*SERIAL*"',
        "ID_SERIAL holds the model too, MODEL_SERIAL for SATA and MODEL_SERIAL_NSID for NVMe",
        policy=True,
    ),
    Rule("storage", "a storage configuration holds together", "the installer stops halfway, or builds another one"),
    Rule("lvm-scaled", "a layout lvm says `sizing-policy: all`", "root gets half of the disk, or 100 G", policy=True),
    Rule("layout", "the layout is one of lvm, direct, zfs, hybrid", "any other name silently means `direct`"),
    # --- packages, kernel, updates
    Rule("apt-fallback", "`apt.fallback: abort`", "offline-install, the default, hides a broken mirror", True),
    Rule("apt-mirror", "the mirror is named, and not looked up", "geoip and country mirrors differ by the day", True),
    Rule("apt-unsigned", "every source is signed", "whoever answers on the network installs what he likes"),
    Rule("kernel-pin", "`kernel.package` is one exact kernel", "a flavor is another kernel next month", policy=True),
    Rule(
        "updates-pin",
        "updates of the installation cannot bring anything newer: pinned, or their suites disabled",
        "`updates` cannot be turned off; it runs before the first boot",
        policy=True,
    ),
    Rule(
        "deterministic",
        "no driver search, third-party drivers, OEM packages, codecs, package upgrade",
        "what they bring depends on the day and on the machine",
        policy=True,
    ),
    Rule("installer-refresh", "`refresh-installer.update: false`", "another installer than was tested", policy=True),
    Rule(
        "rewritten",
        "nothing writes /autoinstall.yaml, and no boot line names another file",
        "either comes before this file: what was linted is not what is installed",
        policy=True,
    ),
    Rule("interactive", "no interactive sections", "the installer waits, and reports nothing", policy=True),
    Rule("ssh-password", "no login by password over ssh", "keys are enough", policy=True),
    Rule("reporting", "reports go to a place that can be reached", "a handler that is not in the code says nothing"),
    # --- network
    Rule("nic-by-name", "an interface is matched by MAC and has a set-name", "names change with firmware", policy=True),
    Rule("dhcp-identifier", "`dhcp-identifier: mac` with DHCP", "the system asks as another than the installer", True),
    Rule("static-dns", "static addresses come with name servers", "packages cannot be fetched in the target"),
    Rule("network", "the network configuration holds together", "netplan refuses it, after the disk was wiped"),
    Rule("netplan-mode", 'a netplan file has permissions "0600"', "netplan warns, and a later release refuses"),
    # --- boot lines
    Rule("boot-autoinstall", "the kernel's command line has `autoinstall`", "the installer asks, and waits for ever"),
    Rule("boot-seed", "the command line has ds=nocloud;s=URL", "without it there is no seed"),
    Rule("boot-seed-slash", "the seed's URL ends with /", "cloud-init appends user-data to it as it stands"),
    Rule("boot-semicolon", "GRUB: the `;` of ds= is quoted or escaped", "GRUB cuts the command line there"),
    Rule("boot-url", "cloud-config-url=/dev/null beside url=", "cloud-init fetches the ISO a second time into memory"),
    Rule("boot-initrd", "iPXE: initrd= on the command line", "a kernel started by EFI finds no initrd without it"),
    Rule("boot-ip", "ip=dhcp beside url=", "the initrd has no network"),
    Rule("boot-interface", "BOOTIF= names the interface that booted", "the first of ten is another one", policy=True),
)

RULES = {rule.name: rule for rule in _ALL}


def page() -> str:
    """docs/autoinstall-lint.md."""
    rows = "".join(f"| `{rule.name}` | {rule.says} | {rule.why} | {'yes' if rule.policy else ''} |\n" for rule in _ALL)
    return (
        "# The rules of the autoinstall lint\n\n"
        "Generated from `decide/autoinstall/rules.py` by `tests/docs/autoinstall_rules.py`; a test fails when it"
        " differs.\n\n"
        "`bedplate autoinstall lint FILE...` tells every fault with its rule. A rule marked in the last column is a"
        " matter\nof policy: `--accept RULE` accepts it for that run. See [netboot.md](netboot.md).\n\n"
        "| rule | what it wants | because otherwise | can be accepted |\n|---|---|---|---|\n" + rows
    )
