"""The files of an image's definition: images/DIR of a site, as bytes, and as the context of a build."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bedplate.model.faults import BadInput, Fault

IMAGE_FILE = "image.yml"


@dataclass(frozen=True)
class DefinitionFiles:
    """files: every file but image.yml, by its path in the directory; executable: which of them are."""

    image_yml: str
    files: Mapping[str, bytes]
    executable: frozenset[str]

    def write_context(self, folder: Path) -> None:
        """Write the files where a builder takes them from, with the same modes on every machine.

        So what was hashed is what is built, whatever the umask of the checkout, and whoever edits it meanwhile.
        """
        folder.mkdir()
        for path, data in self.files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            target.chmod(0o755 if path in self.executable else 0o644)
        for directory, _, _ in os.walk(folder):
            Path(directory).chmod(0o755)


def read_definition(folder: Path, *, shown: str) -> DefinitionFiles:
    """Read a definition's directory; shown: its name in messages.

    Raises:
        BadInput: it holds something that is no plain file, or that cannot be read. Every one is named.
    """
    faults: list[Fault] = []
    files: dict[str, bytes] = {}
    executable = set()
    for directory, inner, names in os.walk(folder):
        links = [name for name in inner if (Path(directory) / name).is_symlink()]
        for name in sorted([*names, *links]):
            path = Path(directory) / name
            inside = path.relative_to(folder).as_posix()
            try:
                mode = path.lstat().st_mode
                if not stat.S_ISREG(mode):
                    found = "a symbolic link" if stat.S_ISLNK(mode) else "no plain file"
                    faults.append(Fault(f"{shown}/{inside}", None, found, "put the file itself there"))
                    continue
                files[inside] = path.read_bytes()
            except OSError as fault:
                faults.append(Fault(f"{shown}/{inside}", None, f"cannot be read: {fault.strerror}"))
                continue
            if mode & stat.S_IXUSR:
                executable.add(inside)
    if IMAGE_FILE not in files and not faults:
        faults.append(Fault(f"{shown}/{IMAGE_FILE}", None, "no such file"))
    if faults:
        raise BadInput(faults)
    text = files.pop(IMAGE_FILE).decode(errors="replace")  # a wrong byte is a fault of site.image()
    return DefinitionFiles(text, files, frozenset(executable - {IMAGE_FILE}))
