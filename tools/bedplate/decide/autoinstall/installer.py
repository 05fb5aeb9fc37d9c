"""The `autoinstall` section: every key that the installer has, and what may not be left to its defaults."""

import re
from typing import Any

from bedplate.decide.autoinstall import storage
from bedplate.decide.autoinstall.cloudconfig import APT_SHARED, HOSTNAME, PASSWORD_LOGIN, URL, USER_DATA
from bedplate.decide.autoinstall.commands import COMMANDS
from bedplate.decide.autoinstall.credentials import PASSWORD_HASH, SSH_KEYS, USERNAME
from bedplate.decide.autoinstall.findings import Report, texts
from bedplate.decide.autoinstall.network import NETWORK
from bedplate.decide.autoinstall.shapes import (
    UNCHECKED,
    Either,
    Flag,
    Items,
    Keys,
    Later,
    Names,
    Null,
    Number,
    Shape,
    Text,
    Told,
    examine,
    word,
)  # fmt: skip
from bedplate.model.text import Path

_PACKAGE = Text(r"[a-z0-9][a-z0-9+.-]+([=/][A-Za-z0-9.+~:-]+|\^)?", "a package, package=version or task^")
# linux-image-6.8.0-138-generic, Debian's linux-image-6.12.48+deb13-amd64; not linux-image-generic or linux-generic
_EXACT_KERNEL = re.compile(r"linux-image-(unsigned-)?[0-9]+\.[0-9]+\.[0-9]+(-[0-9]+|\+deb[0-9]+)[a-z0-9.+-]*")


def _reporter(report: Report, path: Path, handler: dict[str, Any]) -> None:
    if handler.get("type") == "webhook" and "endpoint" not in handler:
        report.add("reporting", path, "a webhook without an endpoint", "add endpoint")


_REPORTER = Keys(
    {
        "type": word("print", "webhook", "journald", "log", "none", rule="reporting"),
        "identifier": Text(),
        "timeout": Number(1, 3600),
        "retries": Items(Number(0, 3600)),
        "endpoint": URL,
        "level": word("DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL"),
        **dict.fromkeys(("consumer_key", "token_key"), Text()),
        **dict.fromkeys(
            ("consumer_secret", "token_secret"), Told("secret", "an OAuth secret", "a one-time token in the URL")
        ),
    },
    required=("type",),
    judge=_reporter,
)


def _apt(report: Report, path: Path, apt: dict[str, Any]) -> None:
    if apt.get("fallback") != "abort":
        said = f"fallback: {apt['fallback']}" if "fallback" in apt else "without fallback"
        report.add(
            "apt-fallback",
            (*path, "fallback"),
            f"{said}: a broken mirror becomes an installation from the ISO",
            "abort",
        )
    if apt.get("geoip") is not False:
        report.add("apt-mirror", (*path, "geoip"), "the mirror is looked up by place", "geoip: false")
    if apt.get("preserve_sources_list") is True:
        found = "the sources of the ISO stay beside the mirror"
        report.add("apt-mirror", (*path, "preserve_sources_list"), found, "false")
    if "primary" in apt and "mirror-selection" in apt:
        report.add("conflict", (*path, "primary"), "both primary and mirror-selection", "keep mirror-selection")
    selection = apt.get("mirror-selection")
    primary = selection.get("primary") if isinstance(selection, dict) else apt.get("primary")
    if not primary:
        report.add("apt-mirror", path, "no mirror is named", "mirror-selection: {primary: [{uri: …}]}")
    for index, entry in enumerate(primary if isinstance(primary, list) else ()):
        if entry == "country-mirror":
            report.add("apt-mirror", (*path, "mirror-selection", "primary", index), "a country mirror", "uri: …")


_APT = Keys(
    APT_SHARED
    | {
        "primary": APT_SHARED["security"],
        "mirror-selection": Keys(
            {"primary": Items(Either(word("country-mirror"), Keys({"uri": URL, "arches": Items(Text())}, ("uri",))))}
        ),
        "geoip": Flag(),
        "disable_components": Items(word("universe", "multiverse", "restricted", "contrib", "non-free")),
        "preferences": Items(
            Keys(
                {"package": Text(), "pin": Text(r"(version|release|origin) .+", "version …, release … or origin …"),
                 "pin-priority": Number(-32768, 32767)},
                ("package", "pin", "pin-priority"),
            )
        ),
        "fallback": word("abort", "continue-anyway", "offline-install"),
    },
    judge=_apt,
)  # fmt: skip


def _kernel(report: Report, path: Path, kernel: dict[str, Any]) -> None:
    if "package" in kernel and "flavor" in kernel:
        report.add("conflict", path, "both package and flavor", "keep package")
    elif "flavor" in kernel:
        report.add("kernel-pin", path, "a flavor is another kernel next month", "package: linux-image-VERSION-generic")
    elif isinstance(package := kernel.get("package"), str) and not _EXACT_KERNEL.fullmatch(package):
        report.add("kernel-pin", (*path, "package"), f'"{package[:60]}" is not one exact kernel', "linux-image-VERSION")
    elif "package" not in kernel:
        report.add("missing-key", path, '"package" is missing', "linux-image-VERSION-generic")


_INSTALL = Keys({"install": Flag()})
_TOKEN = Keys({"token": Told("secret", "a token in a seed", "attach with Ansible, after the installation")})

AUTOINSTALL: dict[str, Shape] = {
    "version": Number(1, 1),
    "interactive-sections": Items(Text()),
    "early-commands": COMMANDS, "late-commands": COMMANDS, "error-commands": COMMANDS,
    "locale": Text(r"[A-Za-z0-9_.@-]+", "for example en_US.UTF-8"),
    "refresh-installer": Keys({"update": Flag(), "channel": Text()}),
    "keyboard": Keys({"layout": Text(), "variant": Text(empty=True), "toggle": Either(Text(), Null())}, ("layout",)),
    "source": Keys({"search_drivers": Flag(), "id": Text()}),
    "network": NETWORK,
    "proxy": Either(URL, Null()),
    "apt": _APT,
    "storage": storage.STORAGE,
    "identity": Keys(
        {"realname": Text(empty=True), "username": USERNAME, "hostname": HOSTNAME, "password": PASSWORD_HASH,
         "groups": Later(Either(Items(Text()), Keys({"override": Items(Text()), "append": Items(Text())})))},
        ("username", "hostname", "password"),
    ),
    "active-directory": Keys({"admin-name": Text(), "domain-name": Text()}),
    "ubuntu-pro": _TOKEN,
    "ubuntu-advantage": Told("deprecated", "ubuntu-advantage is deprecated", "ubuntu-pro"),
    "ssh": Keys({"install-server": Flag(), "authorized-keys": SSH_KEYS, "allow-pw": PASSWORD_LOGIN}),
    "codecs": _INSTALL, "drivers": _INSTALL,
    "oem": Keys({"install": Either(Flag(), word("auto"))}, ("install",)),
    "snaps": Items(Keys({"name": Text(), "channel": Text(), "classic": Flag()}, ("name",))),
    "debconf-selections": Text(),
    "packages": Items(_PACKAGE),
    "kernel": Keys({"package": Text(), "flavor": Text()}, judge=_kernel),
    "kernel-crash-dumps": Later(Keys({"enabled": Either(Flag(), Null())}, ("enabled",))),
    "timezone": Text(r"[A-Za-z0-9_+/-]+", "for example Etc/UTC"),
    "updates": word("security", "all"),
    "shutdown": word("reboot", "poweroff"),
    "reporting": Names(_REPORTER),
    "user-data": USER_DATA,
    "zdevs": UNCHECKED,
}  # fmt: skip

_SWITCHES = (
    ("source", "search_drivers", "drivers are searched"), ("drivers", "install", "third-party drivers are installed"),
    ("oem", "install", "OEM packages are installed"), ("codecs", "install", "codecs are installed"),
)  # fmt: skip
_REWRITES = re.compile(r"(?<![\w./-])/autoinstall\.yaml\b")
_NEWER_SUITES = {"security", "updates"}


def _section(data: dict[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _absent(report: Report, path: Path, data: dict[str, Any]) -> None:
    """Sections that are not there, and what the installer does then."""
    if "apt" not in data:
        report.add("apt-fallback", path, "no apt section", "apt: {fallback: abort, …}")
    if "kernel" not in data:
        report.add("kernel-pin", path, "no kernel section: the ISO's flavor of the day", "kernel: {package: …}")
    if data.get("network") is None:
        found = "no network section: DHCP on every en* and eth*, which the installed system asks as another client"
        report.add("nic-by-name", path, found, "network: ports by match.macaddress and set-name")
    if "storage" not in data:
        storage.absent(report, path)


def _whole(report: Report, path: Path, data: dict[str, Any]) -> None:
    """What the sections say together, and what none of them says."""
    if "interactive-sections" in data and data["interactive-sections"] != []:
        report.add("interactive", (*path, "interactive-sections"), "the installer waits for a person", "remove it")
    for section, key, means in _SWITCHES:
        given = _section(data, section).get(key)
        if given is not False:
            place = (*path, section, key) if given is not None else path
            report.add(
                "deterministic", place, f"{means} unless {section}.{key} is false", f"{section}: {{{key}: false}}"
            )
    if _section(data, "refresh-installer").get("update") is not False:
        report.add("installer-refresh", path, "the installer may refresh itself", "refresh-installer: {update: false}")
    _absent(report, path, data)
    for place, text in texts(data.get("early-commands"), (*path, "early-commands")):
        if _REWRITES.search(text):
            report.add("rewritten", place, "/autoinstall.yaml is read again after the early-commands", "leave it alone")
    apt = _section(data, "apt")
    suites = apt.get("disable_suites")
    disabled = {suite for suite in suites if isinstance(suite, str)} if isinstance(suites, list) else set()
    if not apt.get("preferences") and not disabled >= _NEWER_SUITES:
        found = "updates run before the first boot, and nothing holds them"
        report.add("updates-pin", path, found, "apt.preferences, or disable_suites: [security, updates]")
    installed = _section(data, "user-data")
    if (
        "identity" not in data
        and "users" not in installed
        and "user" not in installed
        and "active-directory" not in data
    ):
        report.add("missing-key", path, "no identity, and no users in user-data", "nobody could log in")


SECTION = Keys(AUTOINSTALL, ("version",), judge=_whole)


def check_autoinstall(report: Report, path: Path, value: Any) -> None:
    examine(SECTION, report, path, value)
