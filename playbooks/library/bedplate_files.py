#!/usr/bin/python
"""Every file of a role in one round trip: whole or not at all, checked against its hash."""

from __future__ import annotations

import hashlib
import os
import tempfile

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: bedplate_files
short_description: Write rendered files, byte for byte, in one round trip
description:
  - ansible.builtin.copy takes two or three round trips for a file, a task for each; this takes one for all of them.
  - A file is written beside its place, synced and renamed. Directories that are missing are made, 0755.
  - All contents are checked against their sha256 before the first file is touched.
options:
  files:
    description: What to write.
    type: list
    elements: dict
    required: true
    suboptions:
      path: {description: Where., type: path, required: true}
      mode: {description: Octal mode., type: str, required: true}
      content: {description: The bytes, UTF-8., type: str, required: true}
      sha256: {description: Their sha256; C(sha256:) and 64 hex digits., type: str, required: true}
author: [Bedplate]
"""

EXAMPLES = r"""
- name: Write the files
  bedplate_files:
    files:
      - {path: /etc/nccl.conf, mode: "0644", content: "NCCL_DEBUG=WARN\n", sha256: "sha256:…"}
"""

RETURN = r"""
written: {description: The paths that were written., returned: always, type: list}
"""


def found(path: str) -> tuple[bytes | None, str | None, bool]:
    """The bytes, the mode, and whether it is a plain file of root; None where there is nothing to read."""
    try:
        about = os.lstat(path)
        with open(path, "rb") as handle:
            data = handle.read()
    except FileNotFoundError:
        return None, None, True
    plain = os.path.isfile(path) and not os.path.islink(path) and (about.st_uid, about.st_gid) == (0, 0)
    return data, f"{about.st_mode & 0o7777:04o}", plain


def write(path: str, data: bytes, mode: int) -> None:
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    handle, temp = tempfile.mkstemp(dir=folder, prefix=".bedplate-")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fchown(out.fileno(), 0, 0)
            os.fchmod(out.fileno(), mode)
            os.fsync(out.fileno())
        os.rename(temp, path)
    except BaseException:
        os.unlink(temp)
        raise


def main() -> None:
    one = {
        key: {"type": "path" if key == "path" else "str", "required": True}
        for key in ("path", "mode", "content", "sha256")
    }
    module = AnsibleModule(
        {"files": {"type": "list", "elements": "dict", "required": True, "options": one}}, supports_check_mode=True
    )
    files = module.params["files"]
    damaged = [f["path"] for f in files if "sha256:" + hashlib.sha256(f["content"].encode()).hexdigest() != f["sha256"]]
    if damaged:
        module.fail_json(msg=f"contents arrived with another sha256 than they were sent with: {', '.join(damaged)}")
    written, differences = [], []
    for file in files:
        path, data = file["path"], file["content"].encode()
        before, mode, plain = found(path)
        if before == data and mode == file["mode"] and plain:
            continue
        written.append(path)
        differences.append({
            "before_header": f"{path} {mode or 'absent'}", "after_header": f"{path} {file['mode']}",
            "before": (before or b"").decode(errors="replace"), "after": file["content"],
        })  # fmt: skip
        if not module.check_mode:
            write(path, data, int(file["mode"], 8))
    module.exit_json(changed=bool(written), written=written, diff=differences)


if __name__ == "__main__":
    main()
