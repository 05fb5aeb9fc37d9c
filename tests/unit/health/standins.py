"""Programs that print recorded answers, for nodes that have no GPUs: nvidia-smi, journalctl, and whoever is asked."""

from pathlib import Path

from unit.health.replays import replay

SMI = """\
#!/bin/sh
case "$*" in
"-q -x" | "-q -x -d PERFORMANCE") cat {answers}/smi ;;
"nvlink -s") cat {answers}/nvlink_status ;;
"nvlink -e") cat {answers}/nvlink_errors ;;
"topo -m") cat {answers}/topology ;;
*) echo "unknown: $*" >&2; exit 2 ;;
esac
"""
JOURNAL = "#!/bin/sh\ncat {answers}/journal\n"

# Of a stand-in everything that nobody writes down is skipped; these read what a stand-in does not have.
PROFILE = """\
model: lab-gpu8
unsaid: a stand-in has no such part
expect:
  gpu.mig: {is: Disabled, source: test}
  gpu.compute_mode: {is: Default, source: test}
  gpu.pcie_width: {is: 16, source: test}
  gpu.pcie_generation: {is: 5, source: test}
  nvlink.links: {is: 18, source: test}
  topology.near_adapters: {is: 1, source: test}
limits:
  gpu.temperature_margin: {unit: C, fail_below: "0", warn_below: "5", source: test}
  gpu.memory_temperature: {unit: C, warn_above: "95", source: test}
  gpu.memory: {unit: MiB, fail_below: "180000", source: test}
  gpu.power_limit: {unit: W, fail_below: "1000", source: test}
  nvlink.rate: {unit: GB/s, fail_below: "53", source: test}
  nvlink.ber: {warn_above: "0.000001", source: test}
  nvlink.errors: {warn_above: "100", source: test}
skip:
  gpu.count: a stand-in has no /proc/driver
  fabric.log: a stand-in has no NVLSM
  ib.count: a stand-in has no adapters
since:
  gpu.repair_pending: {branch: 590, source: test}
"""


def write_standins(root: Path, base: str = "base-b200-580") -> Path:
    """Programs in root/bin that print what lies in root/answers; returns root/bin."""
    answers, programs = root / "answers", root / "bin"
    for folder in (answers, programs):
        folder.mkdir(parents=True, exist_ok=True)
    for probe in ("smi", "nvlink_status", "nvlink_errors", "topology", "journal"):
        (answers / probe).write_text(replay(base).raws[probe].out, newline="")
    for name, text in (("nvidia-smi", SMI), ("journalctl", JOURNAL)):
        program(programs / name, text.format(answers=answers))
    return programs


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
