"""The files by which Enroot starts a container: what an image's configuration becomes in its file tree.

As docker::configure in Enroot's src/docker.sh (3.5.0, 4.1.2) writes them: /etc/rc starts the entry point, /etc/rc.local
is the user's, /etc/fstab has the volumes, /etc/environment the variables. A label with several lines stays a comment,
line by line; what stands in double quotes is escaped.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

_RC_LOCAL = """\
# This file is sourced by /etc/rc when the container starts.
# It can be used to manipulate the entrypoint or the command of the container.
"""


def files(config: Mapping[str, Any]) -> dict[str, str]:
    """The files by their paths, of an image's configuration (image-spec config.md)."""
    runs = config.get("config") or {}
    return {
        "etc/environment": _lines(runs.get("Env") or ()),
        "etc/fstab": _lines(
            f"${{ENROOT_ROOTFS}}{each} {each} none x-create=dir,bind,rw,nosuid,nodev"
            for each in sorted(runs.get("Volumes") or ())
        ),
        "etc/rc": _rc(runs),
        "etc/rc.local": _RC_LOCAL,
    }


def work_directory(config: Mapping[str, Any]) -> str:
    """Where a container begins, as a path of the tree: Enroot makes it where it is missing."""
    return posixpath.normpath("/" + ((config.get("config") or {}).get("WorkingDir") or "/")).strip("/")


def _rc(runs: Mapping[str, Any]) -> str:
    labels = "".join(
        f"# {key} {line}\n"
        for key, value in (runs.get("Labels") or {}).items()
        for line in (str(value).splitlines() or [""])
    )
    place = re.sub(r'([\\"$`])', r"\\\1", runs.get("WorkingDir") or "/")
    entry, command = runs.get("Entrypoint") or [], runs.get("Cmd") or []
    if not entry and not command:
        command = ["/bin/sh"]
    return (
        f"{labels}{chr(10) if labels else ''}"
        f'mkdir -p "{place}" 2> /dev/null\n'
        f'cd "{place}" && unset OLDPWD || exit 1\n'
        "\nif [ -s /etc/rc.local ]; then\n    . /etc/rc.local\nfi\n"
        f'\nif [ $# -gt 0 ]; then\n    exec {_words(entry)} "$@"\n'
        f"else\n    exec {_words(entry)} {_words(command)}\nfi\n"
    )


def _words(words: Sequence[str]) -> str:
    """As bash's @Q writes them, which POSIX shells read too."""
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)


def _lines(lines: Any) -> str:
    return "".join(f"{line}\n" for line in lines)
