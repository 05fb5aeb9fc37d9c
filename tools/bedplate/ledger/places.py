"""Where signed heads are kept, out of reach of who writes the ledger: a git repository, or a directory elsewhere.

What makes it out of reach is the other side's: a repository that refuses to be rewritten
(receive.denyNonFastForwards, receive.denyDeletes), a directory on a host where the controller's key may only add.
A place here only ever adds; it never changes what is there.
"""

import shlex
import tempfile
from pathlib import Path

from bedplate.decide.ledgeranchor import Anchor, Held, held
from bedplate.model.faults import BedplateError
from bedplate.model.ledgersite import Place
from bedplate.process import ProcessFailed, run

TIMEOUT_S = 120.0
ATTEMPTS = 5  # at a push: another controller may push between our fetch and our push
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20")
DIGITS = 12


def read(place: Place, site: str) -> Held:
    """What a place holds of a site.

    Raises:
        BedplateError: it cannot be read.
    """
    try:
        text = _git_read(place, site) if place.kind == "git" else _directory_read(place, site)
    except ProcessFailed as fault:
        raise BedplateError(f"anchors at {place.name}: cannot be read: {fault}") from fault
    return held(place.name, site, text)


def add(place: Place, anchor: Anchor) -> None:
    """Add an anchor to a place.

    Raises:
        BedplateError: the place did not take it.
    """
    try:
        if place.kind == "git":
            _git_add(place, anchor)
        else:
            _directory_add(place, anchor)
    except ProcessFailed as fault:
        raise BedplateError(f"anchors at {place.name}: was not taken: {fault}") from fault


# --- git ---------------------------------------------------------------------------------------------


def _git(*words: str | Path, check: bool = True) -> str:
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(Path.home()), "GIT_TERMINAL_PROMPT": "0",
        "GIT_SSH_COMMAND": shlex.join(SSH), "LC_ALL": "C",
    }  # fmt: skip
    return run(["git", *words], env=environment, timeout_s=TIMEOUT_S, check=check).out


def _clone(place: Place, folder: Path) -> Path:
    copy = folder / "copy"
    _git("init", "-q", "-b", place.branch, copy)
    _git("-C", copy, "remote", "add", "origin", place.where)
    # ls-remote tells a repository that has no such branch yet from one that cannot be reached.
    if _git("-C", copy, "ls-remote", "--heads", "origin", place.branch).strip():
        _git("-C", copy, "fetch", "-q", "origin", place.branch)
        _git("-C", copy, "reset", "-q", "--hard", "FETCH_HEAD")
    return copy


def _git_read(place: Place, site: str) -> str:
    with tempfile.TemporaryDirectory(prefix="bedplate-anchors-") as folder:
        file = _clone(place, Path(folder)) / f"{site}.jsonl"
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""


def _git_add(place: Place, anchor: Anchor) -> None:
    for attempt in range(ATTEMPTS):
        with tempfile.TemporaryDirectory(prefix="bedplate-anchors-") as folder:
            copy = _clone(place, Path(folder))
            with (copy / f"{anchor.site}.jsonl").open("a+", encoding="utf-8", errors="replace") as file:
                file.seek(0)
                # A last line that lost its end is one damaged line; the next one is not to be glued to it.
                torn = file.read()[-1:] not in ("", "\n")
                file.write("\n" * torn + anchor.line())
            _git("-C", copy, "add", f"{anchor.site}.jsonl")
            who = ("-c", f"user.name={anchor.principal}", "-c", "user.email=", "-c", "commit.gpgsign=false")
            _git(*who, "-C", copy, "commit", "-q", "-m", f"{anchor.site}: event {anchor.id}")
            try:
                _git("-C", copy, "push", "-q", "origin", f"HEAD:refs/heads/{place.branch}")
            except ProcessFailed:
                if attempt == ATTEMPTS - 1:
                    raise
            else:
                return


# --- a directory, here or by ssh -----------------------------------------------------------------------


def _shell(place: Place, script: str, *, stdin: str | None = None) -> str:
    """Run a script in the directory of a place; cd failing is a failure of the whole."""
    host, colon, folder = place.where.partition(":")
    here = not colon or "/" in host
    script = f"cd -- {shlex.quote(place.where if here else folder)} && {script}"
    words = ["sh", "-c", script] if here else [*SSH, "--", host, f"sh -c {shlex.quote(script)}"]
    return run(words, stdin=stdin or "", timeout_s=TIMEOUT_S).out


def _directory_read(place: Place, site: str) -> str:
    prefix = shlex.quote(site)
    # echo: a file that lost its end is one damaged line; the next one is not to be glued to it.
    return _shell(place, f'for f in {prefix}-*.json; do [ ! -f "$f" ] || {{ cat -- "$f" && echo; }} || exit 1; done')


def _directory_add(place: Place, anchor: Anchor) -> None:
    name = f"{anchor.site}-{anchor.id:012}-{anchor.sha256.removeprefix('sha256:')[:DIGITS]}.json"
    part = shlex.quote(f".{name}.part")
    # ln refuses a name that is taken: nothing that is there is ever replaced, and nothing half-written has the name.
    script = f"cat > {part} && sync {part} && ln {part} {shlex.quote(name)} && rm -f {part}"
    _shell(place, script, stdin=anchor.line())
