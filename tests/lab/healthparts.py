"""What a lab node needs so that its health checks have something to look at: recorded answers of a healthy machine.

Labelled stand-ins for nvidia-smi and its driver's files, a tree of adapters in the lab's sysfs, a kernel that reports
into the node's own journal, a small disk of its own. Everything else that is looked at is real: systemd, chrony, munge,
Slurm, mounts. `lay` puts the healthy baseline onto a node, after each of its boots.
"""

from collections.abc import Mapping
from functools import cache

from bedplate.process import run
from lab import machine
from lab.controller import write
from lab.places import SERVICES_HOST, Places
from lab.run import on
from lab.standins import LABEL, PARTS
from unit.health.replays import replay

BASE = "base-b200-580"
ADAPTERS = ("mlx5_0", "mlx5_3")  # of the recording: two, as the lab's hardware model has
FOLDER = "/var/lib/lab-health"
DISK = "/data"
DISK_BYTES = "1m"
SHARE = "/share"  # what a file server would bring
ANSWERS = ("smi", "nvlink_status", "nvlink_errors", "topology", "p2p")
TIME = {"10.77.0.8": 0, "10.77.0.7": 40}  # addresses of the services host -> seconds that their server is ahead
RIGHT, WRONG = TIME

# Of a stand-in everything that nobody writes down here is skipped, with `unsaid` as the reason.
PROFILE = f"""\
model: lab-gpu8
unsaid: a stand-in has no such part
expect:
  gpu.mig: {{is: Disabled, source: the recording}}
  gpu.compute_mode: {{is: Default, source: the recording}}
  gpu.pcie_width: {{is: 16, source: the recording}}
  gpu.pcie_generation: {{is: 5, source: the recording}}
  nvlink.links: {{is: 18, source: the recording}}
  topology.near_adapters: {{is: 1, source: the recording}}
  fabric.grace_s: {{is: 1, source: a node of the lab boots in seconds}}
  ib.pkeys: {{is: ["0xffff"], source: the recording}}
  ib.pcie_width: {{is: "16", source: the recording}}
  ib.pcie_speed: {{is: 32.0 GT/s PCIe, source: the recording}}
  host.mounts: {{is: [/, {DISK}, {SHARE}], source: the lab}}
  host.mounts_read_only: {{is: [], source: none}}
  host.writes: {{is: [/tmp], source: the lab}}
limits:
  gpu.temperature_margin: {{unit: C, fail_below: "0", warn_below: "5", source: the recording}}
  gpu.memory_temperature: {{unit: C, warn_above: "95", source: the recording}}
  gpu.memory: {{unit: MiB, fail_below: "180000", source: the recording}}
  gpu.power_limit: {{unit: W, fail_below: "1000", source: the recording}}
  nvlink.rate: {{unit: GB/s, fail_below: "53", source: the recording}}
  nvlink.ber: {{warn_above: "0.000001", source: the recording}}
  nvlink.errors: {{warn_above: "100", source: the recording}}
  ib.rate: {{unit: Gb/s, fail_below: "400", source: the recording}}
  ib.flaps: {{warn_above: "1", fail_above: "4", source: the recording}}
  ib.recoveries: {{warn_above: "2", fail_above: "10", source: the recording}}
  ib.symbol_error: {{warn_above: "10", source: the recording}}
  ib.port_rcv_errors: {{warn_above: "10", source: the recording}}
  ib.local_link_integrity_errors: {{warn_above: "0", source: the recording}}
  ib.VL15_dropped: {{warn_above: "100", source: the recording}}
  ib.excessive_buffer_overrun_errors: {{warn_above: "0", source: the recording}}
  host.space: {{unit: "%", warn_above: "99.9", fail_above: "99.95", source: the machine of the lab may be rather full}}
  host.inodes: {{unit: "%", warn_above: "99", fail_above: "99.9", source: the lab}}
  host.write: {{unit: ms, fail_above: "60000", source: the machine of the lab may be busy}}
  host.resolve: {{unit: ms, fail_above: "60000", source: the machine of the lab may be busy}}
  time.stratum: {{fail_above: "15", source: RFC 5905}}
  time.offset: {{unit: ms, fail_above: "2000", source: the machine of the lab may be busy}}
  time.dispersion: {{unit: ms, fail_above: "60000", source: the machine of the lab may be busy}}
skip:
  fabric.log: a stand-in has no NVLSM
  gpu.burn: there is no GPU to load
  gpu.throttle_counters: there is no GPU to load
  gpu.step: there is no driver that would give a task its own card
since:
  gpu.repair_pending: {{branch: 590, source: the recording}}
"""


@cache
def listing(probe: str) -> Mapping[str, str]:
    """A recorded listing: path -> what stands there."""
    rows = (line.split("\t") for line in replay(BASE).raws[probe].out.splitlines()[:-1])
    return {row[0]: row[1] for row in rows}


def messages() -> list[str]:
    """The kernel messages of a healthy boot."""
    import json  # noqa: PLC0415

    lines = replay(BASE).raws["journal"].out.splitlines()[:-1]
    return [str(json.loads(line)["MESSAGE"]) for line in lines]


def furnish(places: Places, node: str) -> None:
    """Programs and answers, as files in the node's root."""
    root = places.host(node) / "root"
    library = "usr/local/lib/lab-health"
    for name, place in (("nvidia-smi-replay", "usr/local/bin/nvidia-smi"), ("time-server", f"{library}/time-server")):
        write(root / place, (PARTS / name).read_text(), mode=0o755)
    for probe in ANSWERS:
        answer(places, node, probe, replay(BASE).raws[probe].out)


def answer(places: Places, node: str, probe: str, text: str) -> None:
    """What nvidia-smi says from now on."""
    place = places.host(node) / "root" / FOLDER.lstrip("/") / "answers" / probe
    write(place.with_name(f".{probe}"), text)
    place.with_name(f".{probe}").replace(place)


def lay(places: Places, node: str) -> None:
    """The healthy baseline of a boot: the driver's files, adapters, a disk, and what a kernel says when it boots."""
    furnish(places, node)
    lines = ["set -eu", "driver=/proc/driver/nvidia/gpus ib=/sys/class/infiniband"]
    gpus: dict[str, list[str]] = {}
    for key, value in listing("gpu_files").items():
        place, _, what = key.removeprefix("proc/").partition("/")
        if key.startswith("proc/0"):
            gpus.setdefault(place, []).append(f"{what}: {value}")
    for bus, said in gpus.items():
        text = "\\n".join(said)
        lines += [f"mkdir -p $driver/{bus}; printf '{text}\\n' > $driver/{bus}/information"]
    for key, value in listing("infiniband").items():
        name, _, what = key.partition("/")
        if name in ADAPTERS and what != "nvswitch_management":
            path = f"$ib/{name}/{what.replace('pci/', 'device/')}"
            lines.append(f"mkdir -p {path.rpartition('/')[0]}; echo '{value}' > {path}")
    lines += [
        f"echo '{LABEL}' > $driver/LABEL",
        "[ -e /dev/nvidia-uvm ] || mknod -m 666 /dev/nvidia-uvm c 511 0",
        f"mkdir -p {DISK} {SHARE} {FOLDER}",
        f"mountpoint -q {DISK} || mount -t tmpfs -o size={DISK_BYTES} lab-stand-in {DISK}",
        f"mountpoint -q {SHARE} || mount -t tmpfs -o size={DISK_BYTES} lab-stand-in {SHARE}",
        f"rm -f {FOLDER}/hung {FOLDER}/lost",
    ]  # fmt: skip
    on(node, ["sh", "-c", "\n".join(lines)], lab=places, timeout_s=120)
    say(places, node, messages())
    follow(places, node, RIGHT)


def serve_time(places: Places) -> None:
    """Two time servers on the services host: one that is right, and one that is not."""
    furnish(places, SERVICES_HOST)
    for server, ahead_s in TIME.items():
        unit = f"lab-time-{ahead_s}"
        script = f"""
ip address show dev host0 | grep -q ' {server}/' || ip address add {server}/24 dev host0
systemctl is-active --quiet {unit} || systemd-run --quiet --unit={unit} --collect \
  /usr/local/lib/lab-health/time-server {server} {ahead_s}"""
        on(SERVICES_HOST, ["sh", "-euc", script], lab=places)


def follow(places: Places, node: str, server: str) -> None:
    """The node's chronyd has this server, also one that is installed later.

    It runs with -x, as everywhere in the lab: the machine's clock stays.
    """
    folder = "/run/systemd/system/chrony.service.d"
    script = f"""
mkdir -p {folder} {FOLDER}
cat > {FOLDER}/time-of-the-lab <<'END'
#!/bin/sh
sed 's/^server .*/server {server} iburst/; s/^makestep.*//' /etc/chrony/chrony.conf > /run/lab-chrony.conf
END
chmod 755 {FOLDER}/time-of-the-lab
printf '[Service]\nExecStartPre=+{FOLDER}/time-of-the-lab\nExecStart=\n' > {folder}/server.conf
echo 'ExecStart=!/usr/sbin/chronyd -F 1 -x -f /run/lab-chrony.conf' >> {folder}/server.conf
systemctl daemon-reload
[ -e /etc/chrony/chrony.conf ] || exit 0
systemctl restart chrony
chronyc waitsync 120 0 0 0.5 > /dev/null"""
    on(node, ["sh", "-euc", script], lab=places, timeout_s=180)


def say(places: Places, node: str, lines: list[str]) -> None:
    """Kernel messages, into the journal of the node."""
    program = "usr/local/lib/lab-health/kernel-messages"
    write(places.host(node) / "root" / program, (PARTS / "kernel-messages").read_text(), mode=0o755)
    text = "".join(f"{line}\n" for line in lines)
    on(node, [f"/{program}"], stdin=text, lab=places, timeout_s=120)


def unmount_share(places: Places, node: str) -> str:
    """End the file server that does not answer: who waits for it gets an error, and a mount that answers is back."""
    machine.kill(places, [stale_name(node)])
    again = f"mount -t tmpfs -o size={DISK_BYTES} lab-stand-in {SHARE}"
    on(node, ["sh", "-c", f"umount -l {SHARE}; mountpoint -q {SHARE} || {again}"], lab=places)
    return f"{SHARE} answers again"


def stale_name(node: str) -> str:
    return f"stale-{node}"


def stale_share(places: Places, node: str) -> str:
    """Mount a file system over the share whose server reads requests and answers none."""
    init = machine.init_of(places, node)
    assert init is not None, "the node runs"
    log = places.logs / f"{stale_name(node)}.log"
    log.unlink(missing_ok=True)
    on(node, ["sh", "-c", f"umount {SHARE} 2>/dev/null || true"], lab=places)
    machine.start(places, stale_name(node), ["python3", str(PARTS / "stale-mount"), str(init), SHARE], log=log)
    run(["sh", "-c", f"for i in $(seq 600); do grep -q mounted {log} && exit 0; sleep 0.1; done; cat {log}; exit 1"])
    return f"{SHARE} is mounted, and its server answers nothing any more"
