"""What a node is told so that it accepts itself: shell scripts for its `sh -s`, by Slurm, Enroot or Docker.

One folder on the node for each acceptance:
  run/        the program's own: profile, host-devices.txt, reference.json; then record.json and its logs
  material/   the small data, where no other is given: the image's program writes it, and then only reads it
  ended       how the program ended, written last; job.txt what it said
The program in the container sees run and data where its profile says, the data read-only.

Enroot alone is for a node that is drained, to which Slurm gives no job; Docker for the first machine, before there is
anything else. The same program, the same words.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from shlex import quote, split

from bedplate.decide.acceptance import QUESTIONS, Profile

PLACE = "/var/lib/bedplate/acceptance"
PROGRAM = "/usr/local/bin/bedplate-train"  # where the image has it: Slurm looks names up on the host
SPARE_S = 900.0  # beyond the questions: the container starts, the data is written and hashed
PROFILE, DEVICES, REFERENCE, RECORD = "profile.yml", "host-devices.txt", "reference.json", "record.json"
WAITING, RUNNING, ENDED, GONE = "waiting", "running", "ended", "gone"


@dataclass(frozen=True)
class Work:
    """One acceptance on one node. image: what the engine takes; data: a folder of the node, None: the small one."""

    id: str
    node: str
    profile: Profile
    image: str
    partition: str | None = None  # of Slurm's; None: its default
    data: str | None = None
    reference: bool = False
    mounts: tuple[str, ...] = ()  # further ones, SOURCE:TARGET or SOURCE:TARGET:ro, of all steps
    user: str | None = None  # who submits; None: who logs in
    options: tuple[str, ...] = ()  # further words for sbatch, or for docker run
    place: str = PLACE
    questions: tuple[str, ...] = QUESTIONS

    @property
    def folder(self) -> str:
        return f"{self.place}/{self.id}"

    @property
    def limit_s(self) -> float:
        return self.profile.limit_s + SPARE_S

    @property
    def data_folder(self) -> str:
        return self.data or f"{self.folder}/material"

    @property
    def words(self) -> list[str]:
        """The program's, as it runs in the container."""
        run = PurePosixPath(self.profile.run)
        words = [PROGRAM, "accept", str(run / PROFILE), "--record", str(run / RECORD)]
        words += ["--host-devices", str(run / DEVICES)]
        words += ["--questions", ",".join(self.questions)] if self.questions != QUESTIONS else []
        return words + (["--reference", str(run / REFERENCE)] if self.reference else [])


def prepare(work: Work, files: Mapping[str, bytes]) -> str:
    """Make the folder, with these files in run; and ask the host, not a container, which devices it has."""
    texts = "".join(
        f"base64 -d > run/{quote(name)} <<'END'\n{base64.encodebytes(data).decode()}END\n"
        for name, data in files.items()
    )
    owner = f"chown -R {quote(work.user)} .\n" if work.user else ""
    data = f"[ -d {quote(work.data)} ] || {{ echo no {quote(work.data)} >&2; exit 66; }}\n" if work.data else ""
    # Without an answer there is no file, and the program says what that means.
    return f"""set -eu
umask 022
{data}mkdir -p {quote(work.folder)}/run {quote(work.folder)}/material
cd {quote(work.folder)}
{texts}if nvidia-smi -L > {DEVICES}.part 2> devices.err; then mv {DEVICES}.part run/{DEVICES}; fi
{owner}"""


def artifact(work: Work) -> str:
    """Prints size and sha256 of the node's own copy of the image, if it is there; reads only."""
    file = quote(work.image)
    return f"[ -f {file} ] && [ ! -L {file} ] || exit 0\nset -- $(sha256sum < {file})\necho $(stat -c %s {file}) $1\n"


class Slurm:
    """A job on the node, alone there; its steps run in the image by the container option of Pyxis."""

    name = "slurm"

    def submit(self, work: Work) -> str:
        """Prints the number of the job. Submitted on the node itself: what a job prints lies there anyway."""
        words = [
            "sbatch", "--parsable", f"--job-name=accept-{work.node}", f"--nodelist={work.node}", "--nodes=1",
            "--ntasks=1", "--exclusive", "--mem=0", f"--time={-(-int(work.limit_s) // 60)}", "--chdir=/",
            f"--output={work.folder}/job.txt", *([f"--partition={work.partition}"] if work.partition else []),
            *gpus(work), *work.options, f"{work.folder}/job.sh",
        ]  # fmt: skip
        as_user = f"runuser -u {quote(work.user)} -- " if work.user else ""
        return f"""set -eu
cat > {quote(work.folder)}/job.sh <<'JOB'
{self.job(work)}JOB
{as_user}{joined(words)}
"""

    def job(self, work: Work) -> str:
        """What sbatch starts on the node: the data where none was given, then the questions; how they ended, last."""
        run = f"{work.folder}/run:{work.profile.run}"
        make = ""
        if work.data is None:
            writes = self._step(work, f"{work.data_folder}:{work.profile.data}")
            make = f"{writes} {PROGRAM} material {quote(work.profile.data)} && "
        asked = f"{self._step(work, f'{work.data_folder}:{work.profile.data}:ro', run)} {joined(work.words)}"
        return f"""#!/bin/sh
{make}{asked}
{_ended(work)}"""

    @staticmethod
    def _step(work: Work, *mounts: str) -> str:
        # All processors of the job for one task: the program starts the ranks itself.
        words = ["srun", "--nodes=1", "--ntasks=1", "--cpu-bind=none", f"--container-image={work.image}"]
        inside = quote(f"--container-mounts={','.join((*mounts, *work.mounts))}")
        return f'{joined(words)} --cpus-per-task="$SLURM_CPUS_ON_NODE" {inside}'

    def look(self, work: Work, handle: str) -> str:
        """Prints one word of this module and a reason; then the last line that the job said."""
        # Asked before looking at the file: a job that ends in between has left it.
        return f"""job=$(squeue -h -j {quote(handle)} -o '%T %r' 2>&1) || case $job in
*"Invalid job id"*) job= ;;
*) echo "$job" >&2; exit 75 ;;
esac
if [ -s {quote(work.folder)}/ended ]; then echo {ENDED} $(cat {quote(work.folder)}/ended)
elif [ -z "$job" ]; then echo {GONE}
else case $job in PENDING*) echo {WAITING} "$job" ;; *) echo {RUNNING} "$job" ;; esac
fi
{_said(work)}"""

    def cancel(self, work: Work, handle: str) -> str:  # noqa: ARG002  Docker wants both
        """End the job, and wait until it is gone: nothing of it may still write."""
        return f"""scancel {quote(handle)}
for i in $(seq 60); do [ -n "$(squeue -h -j {quote(handle)} 2>/dev/null)" ] || exit 0; sleep 1; done
echo job {quote(handle)} does not end >&2; exit 1
"""

    def collect(self, work: Work) -> str:
        return _collect(work)


class Enroot:
    """The node's own Enroot in a unit of systemd, from the artifact, without the scheduler."""

    name = "enroot"
    ROOT = "image"  # what it calls the unpacked one

    def submit(self, work: Work) -> str:
        """Prints the name of the unit, which ends with everything that it started."""
        unit = f"bedplate-accept-{work.id}"
        words = [
            "systemd-run", "--quiet", "--collect", f"--unit={unit}", f"--property=RuntimeMaxSec={int(work.limit_s)}",
            "--property=LimitMEMLOCK=infinity", "--property=LimitSTACK=67108864",
            *([f"--uid={work.user}"] if work.user else []), *work.options, "sh", f"{work.folder}/job.sh",
        ]  # fmt: skip
        # One of a controller that was killed has nobody who ends it, and has the GPUs until its time is up.
        return f"""set -eu
umask 022
systemctl stop 'bedplate-accept-*' 2> /dev/null || :
rm -rf {quote(work.place)}/*/enroot
cd {quote(work.folder)}
printf '#!/bin/sh\nexec "$@"\n' > rc
cat > job.sh <<'JOB'
{self.job(work)}JOB
mkdir -p enroot
{f"chown {quote(work.user)} enroot" if work.user else ":"}
{joined(words)}
echo {quote(unit)}
"""

    def job(self, work: Work) -> str:
        """The image unpacked, the data where none was given, then the questions; how they ended, last."""
        run = f"{work.folder}/run:{work.profile.run}"
        make = ""
        if work.data is None:
            make = f"{self._step(work, f'{work.data_folder}:{work.profile.data}')} "
            make += f"{PROGRAM} material {quote(work.profile.data)} && "
        asked = f"{self._step(work, f'{work.data_folder}:{work.profile.data}:ro', run)} {joined(work.words)}"
        # Its directories are this job's: those of users are made by Slurm's prologs. Each its own: Enroot lays a tmpfs
        # over that of the runtime (runtime::_start of src/runtime.sh).
        places = " ".join(
            f"ENROOT_{name}_PATH={quote(work.folder)}/enroot/{name.lower()}" for name in ("RUNTIME", "DATA", "CACHE")
        )
        # As Pyxis does: a squashfs is only started as it is with squashfuse, which Enroot's package merely suggests.
        unpack = joined(["enroot", "create", f"--name={self.ROOT}", work.image])
        return f"""export {places}
exec > {quote(work.folder)}/job.txt 2>&1
{unpack} && {make}{asked}
{_ended(work, f"rm -rf {quote(work.folder)}/enroot")}"""

    @classmethod
    def _step(cls, work: Work, *mounts: str) -> str:
        words = ["enroot", "start", f"--rc={work.folder}/rc"]
        words += ["--env=NVIDIA_VISIBLE_DEVICES=all"] if work.profile.kind == "gpu" else []
        words += [f"--mount={_fstab(mount)}" for mount in (*mounts, *work.mounts)]
        return joined([*words, cls.ROOT])

    def look(self, work: Work, handle: str) -> str:
        """Prints one word of this module and a reason; then the last line that the program said."""
        # Asked before looking at the file: a unit that ends in between has left it.
        return f"""unit=$(systemctl is-active {quote(handle)} 2>&1) || :
if [ -s {quote(work.folder)}/ended ]; then echo {ENDED} $(cat {quote(work.folder)}/ended)
else case $unit in
active|activating|deactivating|reloading) echo {RUNNING} "$unit" ;;
inactive|failed|unknown) echo {GONE} ;;
*) echo "$unit" >&2; exit 75 ;;
esac
fi
{_said(work)}"""

    def cancel(self, work: Work, handle: str) -> str:  # noqa: ARG002  as the others
        """End everything of it, and wait until it is gone."""
        return f"systemctl stop {quote(handle)}\n"

    def collect(self, work: Work) -> str:
        """The unpacked image goes also where the job was ended: 25 GB that nobody looks at."""
        return f"rm -rf {quote(work.folder)}/enroot\n" + _collect(work)


def _fstab(mount: str) -> str:
    """SOURCE:TARGET or SOURCE:TARGET:ro as Enroot takes it: the fields of fstab with colons between."""
    source, target, *read_only = mount.split(":")
    return f"{source}:{target}:none:x-create=auto,rbind" + (",ro" if read_only else "")


class Docker:
    """A container on the node, by its Docker: for the first machine, before there is a Slurm."""

    name = "docker"

    def submit(self, work: Work) -> str:
        """Prints the name of the container. The image is pulled where it is not there."""
        name = f"bedplate-accept-{work.id}"
        make = ""
        if work.data is None:
            words = ["docker", "run", "--rm", f"--volume={work.data_folder}:{work.profile.data}"]
            words += [*(f"--volume={mount}" for mount in work.mounts), work.image]
            make = joined([*words, PROGRAM, "material", work.profile.data]) + f" > {quote(work.folder)}/job.txt 2>&1\n"
        words = [
            "docker", "run", "--detach", f"--name={name}", "--network=host", "--ipc=host", "--uts=host",
            "--ulimit=memlock=-1", "--ulimit=stack=67108864",
            *(["--gpus=all"] if work.profile.kind == "gpu" else []),
            f"--volume={work.data_folder}:{work.profile.data}:ro", f"--volume={work.folder}/run:{work.profile.run}",
            *(f"--volume={mount}" for mount in work.mounts), *work.options, work.image, *work.words,
        ]  # fmt: skip
        return f"set -eu\n{make}{joined(words)} > /dev/null\necho {quote(name)}\n"

    def look(self, work: Work, handle: str) -> str:
        """Prints one word of this module and a reason; then the last line that the container said."""
        form = quote("{{.State.Status}} {{.State.ExitCode}}")
        return f"""if state=$(docker inspect --format {form} {quote(handle)} 2>&1); then case $state in
exited*|dead*) docker logs {quote(handle)} >> {quote(work.folder)}/job.txt 2>&1
  echo ${{state#* }} > {quote(work.folder)}/ended; echo {ENDED} ${{state#* }} ;;
*) echo {RUNNING} "$state" ;;
esac
else case $state in *"o such"*) echo {GONE} ;; *) echo "$state" >&2; exit 75 ;; esac
fi
docker logs --tail 1 {quote(handle)} 2>&1 | tail -n 1
"""

    def cancel(self, work: Work, handle: str) -> str:
        return f"docker logs {quote(handle)} >> {quote(work.folder)}/job.txt 2>&1; docker rm --force {quote(handle)}\n"

    def collect(self, work: Work) -> str:
        return f"docker rm --force bedplate-accept-{quote(work.id)} > /dev/null 2>&1\n" + _collect(work)


type Engine = Slurm | Enroot | Docker
ENGINES: Mapping[str, type[Engine]] = {"slurm": Slurm, "enroot": Enroot, "docker": Docker}


def gpus(work: Work) -> list[str]:
    return [f"--gres=gpu:{work.profile.count}"] if work.profile.kind == "gpu" else []


def _ended(work: Work, cleaning: str = ":") -> str:
    """How the command before it ended: the last that a job writes, and written whole."""
    ended = f"{quote(work.folder)}/ended"
    return f"echo $? > {ended}.part\n{cleaning}\nmv {ended}.part {ended}\n"


def _said(work: Work) -> str:
    return f"tail -n 1 {quote(work.folder)}/job.txt 2>/dev/null || true\n"


def _collect(work: Work) -> str:
    """Record, logs and what was given, as a tar; not the checkpoints."""
    return f"""set -eu
cd {quote(work.folder)}
set --
for f in job.txt devices.err ended run/{RECORD} run/{PROFILE} run/{DEVICES} run/{REFERENCE}; do
  [ ! -f $f ] || set -- "$@" $f
done
find run -type f -name log.txt > logs.list
tar -cf - "$@" --files-from=logs.list
"""


def remove(work: Work) -> str:
    """The folder, when all of it that counts came back: its checkpoints are nobody's."""
    return f"rm -rf {quote(work.folder)}\n"


def seen(text: str) -> tuple[str, str, str]:
    """State, reason and last words, from what `look` printed.

    Raises:
        ValueError: it printed something else.
    """
    first, _, rest = text.partition("\n")
    words = first.split(maxsplit=1)
    if not words or words[0] not in (WAITING, RUNNING, ENDED, GONE):
        raise ValueError(f"said {first[:200]!r} of the job")
    return words[0], words[1] if len(words) > 1 else "", rest.strip()


def joined(words: list[str]) -> str:
    return " ".join(quote(word) for word in words)


def options(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Further words, as a shell would split them."""
    return tuple(word for text in texts for word in split(text))
