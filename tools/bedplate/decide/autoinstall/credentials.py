"""Passwords and keys in a file: hashes that are hashes, public keys that are keys, nothing that is secret."""

import base64
import binascii
import re
from typing import Any

from bedplate.decide.autoinstall.findings import Report, texts
from bedplate.decide.autoinstall.shapes import Items, Text
from bedplate.model.text import Path

# crypt(5): what glibc and libxcrypt of Ubuntu and Debian can check, and what is strong enough to be fetched over HTTP.
_CRYPT64 = r"[./0-9A-Za-z]"
_STRONG = (
    rf"\$6\$(rounds=[1-9][0-9]{{3,8}}\$)?{_CRYPT64}{{8,16}}\${_CRYPT64}{{86}}",
    rf"\$5\$(rounds=[1-9][0-9]{{3,8}}\$)?{_CRYPT64}{{8,16}}\${_CRYPT64}{{43}}",
    rf"\$y\${_CRYPT64}+\${_CRYPT64}{{1,86}}\${_CRYPT64}{{43}}",
    rf"\$gy\${_CRYPT64}+\${_CRYPT64}{{1,86}}\${_CRYPT64}{{43}}",
    rf"\$2[aby]\$(1[0-9]|2[0-9]|3[01])\${_CRYPT64}{{53}}",
)
_WEAK = {"$1$": "MD5", "$md5": "MD5", "$3$": "NTHASH", "$sha1": "SHA-1", "_": "DES"}
LOCKED = ("!", "*", "!!", "!*")  # shadow(5): no password fits
_MAKE = "make it with: openssl passwd -6"

_KEY_TYPES = (
    "ssh-ed25519", "sk-ssh-ed25519@openssh.com", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
    "sk-ecdsa-sha2-nistp256@openssh.com", "ssh-rsa",
)  # fmt: skip
_KEY_BYTES = {"ssh-ed25519": 51, "ecdsa-sha2-nistp256": 104, "ecdsa-sha2-nistp384": 136, "ecdsa-sha2-nistp521": 172}
RSA_LEAST_BYTES = 256 + 20  # 2048 bits, and the lengths around them

# Users of a new system (base-passwd, and what the server image brings) and names that mean something to it.
_TAKEN = frozenset({
    "root", "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp", "proxy", "www-data", "backup",
    "list", "irc", "gnats", "nobody", "systemd-network", "systemd-resolve", "systemd-timesync", "messagebus", "syslog",
    "uuidd", "tcpdump", "sshd", "landscape", "pollinate", "fwupd-refresh", "usbmux", "adm", "admin", "sudo", "plugdev",
    "lxd", "installer",
})  # fmt: skip
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_PRIVATE = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY")
_URL_SECRET = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@", re.IGNORECASE)


def hash_fault(value: str) -> tuple[str, str, str] | None:
    """Rule, found, remedy of a text that should be a password hash; None if it is a good one."""
    if value in LOCKED or any(re.fullmatch(pattern, value) for pattern in _STRONG):
        return None
    weak = next((name for prefix, name in _WEAK.items() if value.startswith(prefix)), None)
    if weak and len(value) > 8:  # noqa: PLR2004  a plain text that begins with _ is one
        return "password-hash", f"a {weak} hash", _MAKE
    if value.startswith("$"):
        return "password-hash", f"begins like a hash, and is none ({len(value)} characters)", _MAKE
    if value.startswith("/") or re.fullmatch(rf"{_CRYPT64}{{60,}}", value):
        return "password-hash", "the tail of a hash: a shell replaced its $6$…", "quote the heredoc: <<'EOF'"
    return "password-plain", "a password in clear", _MAKE


def _password(report: Report, path: Path, value: str) -> None:
    if fault := hash_fault(value):
        report.add(fault[0], path, fault[1], fault[2])


def key_fault(value: str) -> str | None:  # noqa: PLR0911  one reason each
    """Why a text is no line of authorized_keys with one public key; None if it is."""
    if "\n" in value.strip() or "\r" in value:
        return "more than one line"
    words = value.split()
    at = next((index for index, word in enumerate(words) if word in _KEY_TYPES), None)
    if at is None:
        return f"no type of key (known: {', '.join(_KEY_TYPES)})"
    if at + 1 >= len(words):
        return "no key behind its type"
    kind = words[at]
    try:
        blob = base64.b64decode(words[at + 1], validate=True)
    except (binascii.Error, ValueError):
        return "the key is no base64"
    inner = kind.encode()
    if blob[: 4 + len(inner)] != len(inner).to_bytes(4) + inner:
        return f"the key is no {kind} key"
    if kind in _KEY_BYTES and len(blob) != _KEY_BYTES[kind]:
        return f"{len(blob)} bytes, a {kind} key has {_KEY_BYTES[kind]}"
    if kind == "ssh-rsa" and len(blob) < RSA_LEAST_BYTES:
        return "an RSA key of fewer than 2048 bits"
    return None


def _ssh_key(report: Report, path: Path, value: str) -> None:
    if fault := key_fault(value):
        report.add("ssh-key", path, f"no public key: {fault}", "the one line of id_ed25519.pub")


def _username(report: Report, path: Path, value: str) -> None:
    if value in _TAKEN:
        report.add("username", path, f'"{value}" is a user of every new system', "choose another name")
    elif not _USER.fullmatch(value):
        report.add("username", path, f'"{value[:60]}" is no user name', "a-z, 0-9, _ and -, at most 32")


def secrets(report: Report, data: Any) -> None:
    """Secrets by their look, wherever they stand."""
    for path, text in texts(data):
        if _PRIVATE.search(text):
            report.add("secret", path, "a private key", "make it on the machine, or bring it with Ansible")
        if _URL_SECRET.search(text):
            report.add("secret", path, "a password in a URL", "remove it")


PASSWORD_HASH = Text(judge=_password, remedy=_MAKE)
USERNAME = Text(judge=_username)
SSH_KEYS = Items(Text(judge=_ssh_key))
