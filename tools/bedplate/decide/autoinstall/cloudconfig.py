"""cloud-config: the sections that a machine's first boot needs, closed; the others are not looked into, and said so.

Key sets are those of cloud-init's own schema, schema-cloud-config-v1.json.
"""

from typing import Any

from bedplate.decide.autoinstall.commands import COMMANDS
from bedplate.decide.autoinstall.credentials import PASSWORD_HASH, SSH_KEYS, USERNAME, hash_fault
from bedplate.decide.autoinstall.findings import Report
from bedplate.decide.autoinstall.network import netplan_mode
from bedplate.decide.autoinstall.shapes import (
    UNCHECKED,
    Either,
    Flag,
    Items,
    Keys,
    Names,
    Null,
    Number,
    Shape,
    Text,
    Told,
    word,
)  # fmt: skip
from bedplate.model.text import Path

HOSTNAME = Text(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?", "letters, digits and -, at most 63", longest=63)
_FQDN = Text(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", "a host name with its domain", longest=253)
URL = Text(r"https?://[^\s/]+(/\S*)?", "http://… or https://…", longest=2048)
_PLAIN = Told("password-plain", "a password in clear", "hashed_passwd: made with openssl passwd -6")
_GROUPS = Either(Text(), Items(Text()))


def _no_upgrade(report: Report, path: Path, value: bool) -> None:
    if value:
        report.add("deterministic", path, "packages are upgraded at the first boot", "false, or remove it")


class _Upgrade(Flag):
    def check(self, report: Report, path: Path, value: Any) -> None:
        _no_upgrade(report, path, value)


class _PasswordLogin:
    wanted = "true or false"

    def fits(self, value: Any) -> bool:
        return isinstance(value, bool)

    def check(self, report: Report, path: Path, value: Any) -> None:
        if value:
            report.add("ssh-password", path, "login by password over ssh", "false")


PASSWORD_LOGIN = _PasswordLogin()


def _old(name: str, shape: Shape) -> dict[str, Shape]:
    """A key in its present spelling, and in the one with hyphens, which is deprecated."""
    hyphens = name.replace("_", "-")
    return {name: shape, hyphens: Told("deprecated", f"{hyphens} is deprecated", name)}


_USER_KEYS: dict[str, Shape] = {
    "name": USERNAME, "doas": Items(Text()), "expiredate": Text(), "gecos": Text(), "groups": _GROUPS,
    "homedir": Text(), "inactive": Text(), "shell": Text("/.*", "an absolute path"),
    "passwd": PASSWORD_HASH, "snapuser": UNCHECKED, "system": Flag(), "uid": Number(0, 2**31 - 1),
    "sudo": Either(Text(), Items(Text()), Null(), Flag()),
    **_old("lock_passwd", Flag()), **_old("no_create_home", Flag()), **_old("no_log_init", Flag()),
    **_old("no_user_group", Flag()), **_old("hashed_passwd", PASSWORD_HASH), **_old("plain_text_passwd", _PLAIN),
    **_old("create_groups", Flag()), **_old("primary_group", Text()), **_old("selinux_user", Text()),
    **_old("ssh_authorized_keys", SSH_KEYS), **_old("ssh_import_id", UNCHECKED), **_old("ssh_redirect_user", Flag()),
}  # fmt: skip
_USER = Keys(_USER_KEYS, required=("name",))
_USERS = Items(Either(word("default"), _USER))


def _account(report: Report, path: Path, value: dict[str, Any]) -> None:
    kind, password = value.get("type", "hash"), value.get("password")
    if kind == "RANDOM":
        report.add("password-plain", (*path, "type"), "a random password is written to the console", "a hash")
    elif kind == "text":
        report.add("password-plain", (*path, "type"), "a password in clear", "type: hash")
    elif isinstance(password, str) and (fault := hash_fault(password)):
        report.add(fault[0], (*path, "password"), fault[1], fault[2])


def _chpasswd_line(report: Report, path: Path, value: str) -> None:
    for line in value.splitlines():
        if line.strip() and (fault := hash_fault(line.partition(":")[2].strip())):
            report.add(fault[0], path, fault[1], fault[2])


_CHPASSWD = Keys(
    {
        "expire": Flag(),
        "users": Items(Keys({"name": Text(), "type": word("hash", "text", "RANDOM"), "password": Text()},
                            ("name",), judge=_account)),
        "list": Either(Text(judge=_chpasswd_line), Items(Text(judge=_chpasswd_line))),
    }
)  # fmt: skip


def _written(report: Report, path: Path, file: dict[str, Any]) -> None:
    netplan_mode(report, path, file)
    content = file.get("content")
    if isinstance(content, str) and file.get("encoding") in (None, "text/plain"):
        first = content.partition("\n")[0].split()
        if first[:1] in (["#!/bin/sh"], ["#!/usr/bin/sh"]):
            report.script((*path, "content"), content)
        elif first[:1] in (["#!/bin/bash"], ["#!/usr/bin/bash"]) or first[:2] == ["#!/usr/bin/env", "bash"]:
            report.script((*path, "content"), content, "bash")


_FILE = Keys(
    {
        "path": Text("/.*", "an absolute path", longest=4095),
        "content": Text(empty=True),
        "owner": Text(r"[a-z_][a-z0-9_-]*(:[a-z_][a-z0-9_-]*)?", "user:group"),
        "permissions": Text("0?[0-7]{3,4}", 'in quotes, for example "0644"'),
        "encoding": word("gz", "gzip", "gz+base64", "gzip+base64", "gz+b64", "gzip+b64", "b64", "base64", "text/plain"),
        "append": Flag(), "defer": Flag(), "source": UNCHECKED,
    },
    required=("path",),
    judge=_written,
)  # fmt: skip
_MIRROR = Items(Keys({"arches": Items(Text()), "uri": URL, "search": Items(URL), "search_dns": Flag(), "keyid": Text(),
                      "key": Text(), "keyserver": Text()}, ("arches",)))  # fmt: skip


def signed(report: Report, path: Path, text: str) -> None:
    """A source may not say that it needs no signature."""
    low = text.lower()
    if "trusted=yes" in low.replace(" ", "") or "trusted:yes" in low.replace(" ", "") or "allow-insecure" in low:
        report.add("apt-unsigned", path, "a source that needs no signature", "sign it, and name the key")


def _source(report: Report, path: Path, source: dict[str, Any]) -> None:
    text = source.get("source")
    if isinstance(text, str) and "key" not in source and "signed-by" not in text.lower():
        found = "a source without a key"
        if "keyid" in source:
            found = "a key by its id: a key server has to answer during the installation, and is believed"
        report.add("apt-unsigned", path, found, "key: | and the raw key")


APT_SOURCES = Names(
    Keys(
        {"source": Text(judge=signed), "key": Text(), "keyid": Text(), "keyserver": Text(), "filename": Text(),
         "append": Flag()},
        judge=_source,
    ),
    longest=128,
)  # fmt: skip
APT_SHARED: dict[str, Shape] = {
    "preserve_sources_list": Flag(),
    "disable_suites": Items(Text()),
    "add_apt_repo_match": Text(),
    "debconf_selections": Names(Text()),
    "sources_list": Text(judge=signed),
    "conf": Text(),
    "proxy": URL, "http_proxy": URL, "https_proxy": URL, "ftp_proxy": Text(),
    "security": _MIRROR,
    "sources": APT_SOURCES,
}  # fmt: skip
_NTP = Keys(
    {
        "pools": Items(_FQDN), "servers": Items(_FQDN), "peers": Items(_FQDN), "allow": Items(Text()),
        "ntp_client": Text(), "enabled": Flag(), "config": UNCHECKED,
    }
)  # fmt: skip
_PHONE_HOME = Keys(
    {
        "url": URL,
        "post": Either(
            word("all"),
            Items(word("pub_key_rsa", "pub_key_ecdsa", "pub_key_ed25519", "instance_id", "hostname", "fqdn")),
        ),
        "tries": Number(1, 1000),
    },
    required=("url",),
)
_POWER = Keys(
    {
        "delay": Either(Number(), Text(r"now|\+?[0-9]+", "now, or minutes")),
        "mode": word("poweroff", "reboot", "halt"),
        "message": Text(), "timeout": Number(), "condition": Either(Text(), Flag(), Items(Text())),
    },
    required=("mode",),
)  # fmt: skip
_OUTPUT = Either(Text(), Items(Text()), Keys({"output": Text(), "error": Text()}))

CLOUD: dict[str, Shape] = {
    "allow_public_ssh_keys": Flag(),
    "apt": Keys(APT_SHARED | {"primary": _MIRROR}),
    "apt_pipelining": Either(Number(), Flag(), Text()),
    "authkey_hash": Text(),
    "bootcmd": COMMANDS,
    "ca_certs": Keys({"remove_defaults": Flag(), "trusted": Items(Text())}),
    "chpasswd": _CHPASSWD,
    "create_hostname_file": Flag(),
    "disable_ec2_metadata": Flag(),
    "disable_root": Flag(),
    "disable_root_opts": Text(),
    "final_message": Text(),
    "fqdn": _FQDN,
    "growpart": Keys({"mode": Either(word("auto", "growpart", "gpart", "off"), Flag()), "devices": Items(Text()),
                      "ignore_growroot_disabled": Flag()}),
    "grub_dpkg": Keys({"enabled": Flag(), "grub-pc/install_devices": Text(),
                       "grub-pc/install_devices_empty": Either(Flag(), Text()), "grub-efi/install_devices": Text()}),
    "hostname": HOSTNAME,
    "keyboard": Keys({"layout": Text(), "model": Text(), "variant": Text(), "options": Text()}, ("layout",)),
    "locale": Either(Flag(), Text()),
    "locale_configfile": Text(),
    "manage_etc_hosts": Either(Flag(), word("localhost", "template")),
    "manage_resolv_conf": Flag(),
    "mounts": Items(Items(Text(empty=True), least=1)),
    "mount_default_fields": Items(Either(Text(empty=True), Null())),
    "no_ssh_fingerprints": Flag(),
    "ntp": Either(_NTP, Null()),
    "output": Keys(dict.fromkeys(("all", "init", "config", "final"), _OUTPUT)),
    "package_reboot_if_required": Flag(),
    "package_update": Flag(),
    "package_upgrade": _Upgrade(),
    "packages": Items(Either(Text(), Items(Text(), least=1))),
    "password": _PLAIN,
    "phone_home": _PHONE_HOME,
    "power_state": _POWER,
    "prefer_fqdn_over_hostname": Flag(),
    "preserve_hostname": Flag(),
    "resize_rootfs": Either(Flag(), word("noblock")),
    "resolv_conf": Keys({"nameservers": Items(Text()), "searchdomains": Items(Text()), "domain": Text(),
                         "sortlist": Items(Text()), "options": UNCHECKED}),
    "runcmd": COMMANDS,
    "ssh": Keys({"emit_keys_to_console": Flag()}, ("emit_keys_to_console",)),
    "ssh_authorized_keys": SSH_KEYS,
    "ssh_deletekeys": Flag(),
    "ssh_fp_console_blacklist": Items(Text()),
    "ssh_genkeytypes": Items(word("ecdsa", "ed25519", "rsa")),
    "ssh_key_console_blacklist": Items(Text()),
    "ssh_keys": Told("secret", "host keys in a seed", "let the machine make them (ssh_genkeytypes)"),
    "ssh_publish_hostkeys": Keys({"enabled": Flag(), "blacklist": Items(Text())}),
    "ssh_pwauth": PASSWORD_LOGIN,
    "ssh_quiet_keygen": Flag(),
    "swap": Keys({"filename": Text(), "size": Either(word("auto"), Number(), Text()),
                  "maxsize": Either(Number(), Text())}),
    "timezone": Text(r"[A-Za-z0-9_+/-]+", "for example Etc/UTC"),
    "user": Either(USERNAME, _USER),
    "users": _USERS,
    "write_files": Items(_FILE),
}  # fmt: skip
_NOT_LOOKED_INTO = (
    "ansible", "apk_repos", "byobu_by_default", "ca-certs", "chef", "cloud_config_modules", "cloud_final_modules",
    "cloud_init_modules", "device_aliases", "disk_setup", "drivers", "fan", "fs_setup",
    "groups", "landscape", "launch-index",
    "lxd", "mcollective", "merge_how", "merge_type", "migrate", "puppet", "random_seed", "reporting",
    "rh_subscription", "rpi", "rsyslog", "salt_minion", "snap", "spacewalk", "ssh_import_id", "system_info",
    "ubuntu_advantage", "ubuntu_pro", "updates", "vendor_data", "version", "wireguard", "yum_repo_dir", "yum_repos",
    "zypper",
)  # fmt: skip
_OLD = {
    "apt_reboot_if_required": "package_reboot_if_required", "apt_update": "package_update",
    "apt_upgrade": "package_upgrade", "grub-dpkg": "grub_dpkg",
}  # fmt: skip
CLOUD |= dict.fromkeys(_NOT_LOOKED_INTO, UNCHECKED)
CLOUD |= {name: Told("deprecated", f"{name} is deprecated", new) for name, new in _OLD.items()}

# In the installed system: `autoinstall.user-data`.
USER_DATA = Keys(CLOUD)
