"""The storage section: which disks, and what is made of them; nothing may be left to chance."""

import re
from collections.abc import Iterator
from typing import Any

from bedplate.decide.autoinstall.findings import Report
from bedplate.decide.autoinstall.shapes import (
    UNCHECKED,
    Either,
    Flag,
    Items,
    Keys,
    Number,
    Shape,
    Text,
    Told,
    word,
)  # fmt: skip
from bedplate.model.schema import nearest
from bedplate.model.text import Path

# subiquity/models/storage.py, _make_matchers: what is not in this list matches everything.
_STABLE_PATH = ("/dev/disk/by-id/", "/dev/disk/by-path/")
_SECRET = Told("secret", "a passphrase in clear", "use the TPM, or encrypt after the installation")
_GLOB_ALL = re.compile(r"[*?]*")


def _by_path(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(_STABLE_PATH)


def _match(report: Report, path: Path, match: dict[str, Any]) -> None:
    if not match:
        report.add("match", path, "an empty match takes an arbitrary disk", 'match: {serial: "*SERIAL*"}')
        return
    for key, value in match.items():
        if isinstance(value, str) and _GLOB_ALL.fullmatch(value):
            report.add("match", (*path, key), f'"{value}" matches every disk', "write what is the disk's own")
    if "size" in match:
        report.add("storage-by-size", (*path, "size"), "a disk chosen by its size", 'match: {serial: "*SERIAL*"}')
    if match.get("install-media") is True:
        report.add("disk-identity", (*path, "install-media"), "the disk that the installer runs from", "remove it")
    serial, identified = match.get("serial"), "serial" in match or "id_path" in match
    if not identified and not _by_path(match.get("path")):
        found = f"{', '.join(match)} may fit a data disk as well"
        report.add("disk-identity", path, found, 'add serial: "*SERIAL*", or id_path')
    if isinstance(serial, str) and not (serial.startswith("*") and serial.endswith("*")):
        found = f'"{serial[:60]}" is compared with MODEL_SERIAL, not with the serial number alone'
        report.add("disk-serial", (*path, "serial"), found, f'serial: "*{serial.strip("*")[:60]}*"')


_MATCH_KEYS: dict[str, Shape] = {
    "serial": Text(), "model": Text(), "vendor": Text(), "path": Text(), "id_path": Text(), "devpath": Text(),
    "ssd": Flag(), "size": word("largest", "smallest", rule="match"), "install-media": Flag(),
}  # fmt: skip
_ONE_MATCH = Keys(_MATCH_KEYS, rule="match", judge=_match)
MATCH = Either(_ONE_MATCH, Items(_ONE_MATCH, least=1))


def _layout(report: Report, path: Path, layout: dict[str, Any]) -> None:
    if "match" not in layout and layout.get("reset-partition-only") is not True:
        report.add("storage-by-size", path, "a layout without a match takes the largest disk", "add match.serial")
    if layout.get("name") == "lvm" and layout.get("sizing-policy") != "all":
        report.add("lvm-scaled", path, "lvm without sizing-policy: all leaves part of the disk unused", "add it")


_LAYOUT = Keys(
    {
        "name": word("lvm", "direct", "zfs", "hybrid", rule="layout"),
        "match": MATCH,
        "sizing-policy": word("scaled", "all"),
        "mode": word("reformat_disk", "use_gap", "erase_install"),
        "ptable": word("gpt", "msdos"),
        "password": _SECRET,
        "recovery-key": UNCHECKED,
        "encrypted": Flag(),
        "reset-partition": Either(Flag(), Number(1), Text(r"[0-9]+(\.[0-9]+)?[KMGT]?", "for example 12G")),
        "reset-partition-only": Flag(),
    },
    required=("name",),
    judge=_layout,
)

_ID = Text(r"[A-Za-z0-9._:-]+", "letters, digits and ._:-", longest=128)
_SIZE = Either(
    Number(-1), Text(r"-1|[1-9][0-9]*(\.[0-9]+)?([KMGT]B?|B)?|[1-9][0-9]?(\.[0-9]+)?%|100%", "1G, 512M, 50% or -1")
)
_WIPE = word("superblock", "superblock-recursive", "zero", "random", "pvremove")
_UUID = Text("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "a UUID")
_PTABLE = word("gpt", "msdos", "dos", "vtoc", "unsupported")
_FILESYSTEMS = ("btrfs", "ext2", "ext3", "ext4", "f2fs", "fat", "fat12", "fat16", "fat32", "vfat", "jfs", "ntfs",
                "reiserfs", "swap", "xfs", "zfsroot", "iso9660")  # fmt: skip
_LABEL_BYTES = {"ext2": 16, "ext3": 16, "ext4": 16, "xfs": 12, "vfat": 11, "fat": 11, "fat12": 11, "fat16": 11,
                "fat32": 11, "swap": 16, "btrfs": 255}  # fmt: skip
_LEVELS = ("raid0", "raid1", "raid4", "raid5", "raid6", "raid10", "container", "linear", "mirror", "stripe",
           "0", "1", "4", "5", "6", "10")  # fmt: skip
_LEAST_DEVICES = {"1": 2, "raid1": 2, "mirror": 2, "5": 3, "raid5": 3, "6": 4, "raid6": 4, "10": 2, "raid10": 2}


def _disk(report: Report, path: Path, disk: dict[str, Any]) -> None:
    if "match" in disk:
        return
    if isinstance(serial := disk.get("serial"), str):
        found = f'"{serial[:60]}" is compared with the whole ID_SERIAL, MODEL_SERIAL'
        report.add("disk-serial", (*path, "serial"), found, f'match: {{serial: "*{serial[:60]}*"}}')
    elif "serial" not in disk and "wwn" not in disk and not _by_path(disk.get("path")):
        found = "a disk that is not identified: an arbitrary one is taken"
        if "path" in disk:
            found = f'"{str(disk["path"])[:60]}" may be another disk after the next start'
        report.add("disk-identity", path, found, 'match: {serial: "*SERIAL*"}')


def _format(report: Report, path: Path, action: dict[str, Any]) -> None:
    label, most = action.get("label"), _LABEL_BYTES.get(str(action.get("fstype")))
    if isinstance(label, str) and most and len(label.encode()) > most:
        report.add("size", (*path, "label"), f"{len(label.encode())} bytes, the file system takes {most}", "shorten it")


def _raid(report: Report, path: Path, action: dict[str, Any]) -> None:
    devices, least = action.get("devices"), _LEAST_DEVICES.get(str(action.get("raidlevel")))
    if isinstance(devices, list) and least and len(devices) < least:
        report.add(
            "storage", (*path, "devices"), f"{len(devices)} devices, this level has at least {least}", "add them"
        )


def _action(keys: dict[str, Shape], required: tuple[str, ...], judge: Any = None) -> Keys:
    common: dict[str, Shape] = {"type": Text(), "id": _ID, "preserve": Flag()}
    return Keys(common | keys, ("type", "id", *required), judge=judge)


# curtin/block/schemas.py, with what the installer adds to it (match, sizes in words).
_ACTIONS: dict[str, Keys] = {
    "disk": _action(
        {
            "match": MATCH, "serial": Text(), "wwn": Text(), "path": Text(), "model": Text(), "name": Text(),
            "ptable": _PTABLE, "wipe": _WIPE, "grub_device": Flag(), "multipath": Text(), "device_id": Text(),
            "nvme_controller": Text(),
        },
        (),
        _disk,
    ),
    "partition": _action(
        {
            "device": Text(), "size": _SIZE, "number": Number(1, 128), "name": Text(),
            "offset": Either(Number(), Text()), "wipe": _WIPE, "uuid": _UUID, "resize": Flag(),
            "grub_device": Flag(), "multipath": Text(), "path": Text(),
            "flag": word("bios_grub", "boot", "extended", "home", "linux", "logical", "lvm", "mbr", "msftres", "prep",
                         "raid", "swap", ""),
            "partition_type": Text(), "partition_name": Text(longest=36), "attrs": Items(Text()),
        },
        ("device", "size"),
    ),
    "format": _action(
        {
            "volume": Text(), "fstype": word(*_FILESYSTEMS), "label": Text(), "uuid": Text(), "name": Text(),
            "extra_options": Items(Text()),
        },
        ("volume", "fstype"),
        _format,
    ),
    "mount": _action(
        {
            "device": Text(), "path": Text(r"/.*|none|", "an absolute path", empty=True), "fstype": Text(),
            "options": Text(r"\S*", "without spaces", empty=True), "spec": Text(),
            "freq": Either(Number(0, 9), Text("[0-9]")), "passno": Either(Number(0, 9), Text("[0-9]")),
        },
        ("path",),
    ),
    "raid": _action(
        {
            "name": Text(longest=32), "raidlevel": Either(word(*_LEVELS), Number(0, 10)),
            "devices": Items(Text(), least=1), "spare_devices": Items(Text()), "mdname": Text(),
            "metadata": Text(), "path": Text(), "ptable": _PTABLE,
            "wipe": _WIPE, "container": Text(), "uuid": Text(),
        },
        ("name", "raidlevel"),
        _raid,
    ),
    "lvm_volgroup": _action(
        {"name": Text(longest=127), "devices": Items(Text(), least=1), "uuid": _UUID}, ("name", "devices")
    ),
    "lvm_partition": _action(
        {"name": Text(longest=127), "volgroup": Text(), "size": _SIZE, "wipe": _WIPE, "path": Text()},
        ("name", "volgroup"),
    ),
    "dm_crypt": _action(
        {"dm_name": Text(), "volume": Text(), "keyfile": Text(), "key": _SECRET, "path": Text(),
         "options": Items(Text())},
        ("dm_name", "volume"),
    ),
}  # fmt: skip
_UNCHECKED_ACTIONS = ("bcache", "zpool", "zfs", "dasd", "nvme_controller", "device")
_REFERENCES = ("device", "volume", "volgroup", "nvme_controller", "container")
_LISTS = ("devices", "spare_devices")


class Action:
    """One action of `config`, by its type."""

    wanted = "a mapping"

    def fits(self, value: Any) -> bool:
        return isinstance(value, dict)

    def check(self, report: Report, path: Path, value: Any) -> None:
        kind = value.get("type")
        if not isinstance(kind, str):
            report.add("missing-key", path, "an action without a type", f"one of: {', '.join(_ACTIONS)}")
        elif kind in _UNCHECKED_ACTIONS:
            report.add(
                "unchecked-key", path, f'an action "{kind}", which this lint cannot look into', "use md, lvm, ext4"
            )
        elif kind not in _ACTIONS:
            report.add("value", (*path, "type"), f'"{kind[:60]}" is no action', nearest(kind, _ACTIONS))
        else:
            _ACTIONS[kind].check(report, path, value)


def _config(report: Report, path: Path, actions: list[Any]) -> None:
    """What one action says of another: ids once, references backwards, one root."""
    seen: dict[str, str] = {}
    mounts: set[str] = set()
    for index, action in enumerate(actions):
        if not isinstance(action, dict):
            continue
        place = (*path, index)
        for key, name in _named(action):
            if name not in seen:
                report.add("storage", (*place, key), f'nothing above has the id "{name[:60]}"', nearest(name, seen))
        if isinstance(identity := action.get("id"), str):
            if identity in seen:
                report.add("storage", (*place, "id"), f'a second "{identity[:60]}"', "ids are unique")
            seen.setdefault(identity, str(action.get("type")))
        if action.get("type") == "mount" and isinstance(where := action.get("path"), str):
            if where in mounts and where.startswith("/"):
                report.add("storage", (*place, "path"), f"a second mount of {where[:60]}", "one is enough")
            mounts.add(where)
    if actions and "/" not in mounts:
        report.add("storage", path, "nothing is mounted at /", "add a mount with path: /")


def _named(action: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The ids that an action names, each with its key."""
    for key in (*_REFERENCES, *_LISTS):
        value = action.get(key)
        yield from ((key, name) for name in (value if isinstance(value, list) else [value]) if isinstance(name, str))


_GRUB = Keys(
    {
        "reorder_uefi": Flag(), "reorder_uefi_force_fallback": Flag(), "update_nvram": Flag(),
        "probe_additional_os": Flag(),
        "remove_duplicate_entries": Flag(), "replace_linux_default": Flag(), "terminal": Text(),
        "install_devices": Items(Text()),
    }
)  # fmt: skip
_SWAP = Keys({"size": Either(Number(), Text()), "maxsize": Either(Number(), Text()), "filename": Text()})
_STORAGE = Keys(
    {
        "version": Number(1, 2),
        "layout": _LAYOUT,
        "config": Items(Action(), judge=_config),
        "swap": _SWAP,
        "grub": _GRUB,
    }
)


class Storage:
    """The whole section."""

    wanted = "a mapping"

    def fits(self, value: Any) -> bool:
        return isinstance(value, dict)

    def check(self, report: Report, path: Path, value: Any) -> None:
        if "layout" in value and "config" in value:
            report.add("conflict", (*path, "config"), "both layout and config: config is dropped", "keep one")
        elif not value.get("layout") and not value.get("config"):
            report.add("storage-by-size", path, "no layout and no config: the largest disk is taken", "add one")
        _STORAGE.check(report, path, value)


STORAGE = Storage()


def absent(report: Report, path: Path) -> None:
    """No storage section at all."""
    report.add("storage-by-size", path, "no storage section: the largest disk is taken", "add storage")
