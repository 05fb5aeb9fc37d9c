"""bedplate-train: check a configuration, run it on this server, accept this machine."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bedplate_train.faults import FAILED, FINISHED, REFUSED, Failed, Refused


def main(words: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(words)
    work: Callable[[argparse.Namespace], int] = given.work
    try:
        return work(given)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return REFUSED
    except Failed as failed:
        print(f"bedplate-train: {failed}", file=sys.stderr)
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bedplate-train", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, work: Callable[[argparse.Namespace], int], said: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=said, description=said)
        made.set_defaults(work=work)
        return made

    one = command("check", check, "Every fault of a configuration; then Megatron's own parser on its arguments.")
    one.add_argument("configuration", type=Path)
    one.add_argument("--no-parser", action="store_true", help="leave Megatron's parser out: no torch is needed")
    one = command("arguments", show_arguments, "Megatron's arguments of a configuration.")
    one.add_argument("configuration", type=Path)
    one.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    one = command("map", show_map, "Which rank sits where and computes what.")
    one.add_argument("configuration", type=Path)
    one.add_argument("--json", action="store_true")
    one = command("run", run, "Start torchrun on this server, once on each; see docs/training.md for the exit status.")
    one.add_argument("configuration", type=Path)
    one = command("compare", compare, "Two runs' states, as --digests of two workers left them; 1 if they differ.")
    one.add_argument("left", type=Path)
    one.add_argument("right", type=Path)
    one = command("material", material, "Write the small data that the acceptance trains on.")
    one.add_argument("directory", type=Path)
    one = command(
        "accept", accept, "The questions that make this machine a reference, in order; a record of the answers."
    )
    one.add_argument("profile", type=Path)
    one.add_argument("--record", type=Path, required=True, help="where the record is written")
    one.add_argument("--host-devices", type=Path, help="what the host sees: the output of nvidia-smi -L there")
    one.add_argument("--reference", type=Path, help="the record of the reference machine, to compare speeds with")
    one.add_argument(
        "--questions", type=lambda text: tuple(text.split(",")),
        help="only these, with a comma between two: a look at a machine, and no acceptance; default: all",
    )  # fmt: skip
    return parser


def check(given: argparse.Namespace) -> int:
    from bedplate_train import shape
    from bedplate_train.configuration import open_configuration

    c = open_configuration(given.configuration)
    if not given.no_parser:
        from bedplate_train import arguments, cpu
        from bedplate_train.worker import quiet

        quiet()
        cpu.enable()
        arguments.parsed(c, "gpu")
    print(
        f"{given.configuration}: {c.name}, {shape.parameters(c) / 1e9:.1f}B parameters on {shape.world(c)} GPUs: "
        f"{shape.replicas(c)} replicas of {c.parallel.pipeline} stages x {c.parallel.tensor} tensor ranks, "
        f"{shape.micro_batches(c)} micro-batches a step" + ("" if given.no_parser else "; Megatron's parser agrees")
    )
    return FINISHED


def show_arguments(given: argparse.Namespace) -> int:
    from bedplate_train import arguments
    from bedplate_train.configuration import open_configuration

    print("\n".join(arguments.flags(open_configuration(given.configuration), given.device)))
    return FINISHED


def show_map(given: argparse.Namespace) -> int:
    from bedplate_train import ranks
    from bedplate_train.configuration import open_configuration

    c = open_configuration(given.configuration)
    chart = ranks.seats(c.machines, c.parallel)
    print(json.dumps(ranks.document(chart)) if given.json else ranks.table(chart))
    return FINISHED


def run(given: argparse.Namespace) -> int:
    from bedplate_train.configuration import open_configuration
    from bedplate_train.launch import launch

    return launch(open_configuration(given.configuration), given.configuration)


def compare(given: argparse.Namespace) -> int:
    from bedplate_train import state
    from bedplate_train.accept.resume import digests

    left, right = digests(given.left, "end"), digests(given.right, "end")
    try:
        found = state.differences(left, right)
    except ValueError as fault:
        raise Failed(str(fault)) from fault
    print(f"{len(left)} ranks, {state.count(left)} values: {state.told(found)}")
    return FAILED if found else FINISHED


def material(given: argparse.Namespace) -> int:
    from bedplate_train import corpus, cpu
    from bedplate_train.accept.profile import TOY
    from bedplate_train.worker import quiet

    quiet()
    cpu.enable()
    print(f"{given.directory}: manifest {corpus.write_toy(given.directory, TOY).identity}")
    return FINISHED


def accept(given: argparse.Namespace) -> int:
    from bedplate_train.accept.questions import QUESTIONS
    from bedplate_train.accept.questions import accept as ask

    return ask(
        given.profile, given.record, host_devices=given.host_devices, reference=given.reference,
        chosen=given.questions or QUESTIONS,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
