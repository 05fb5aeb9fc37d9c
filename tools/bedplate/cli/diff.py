"""`bedplate diff`: what differs between two environments, by layer."""

from dataclasses import asdict
from pathlib import Path

import click

from bedplate.act import lock as locks
from bedplate.act.imagevariables import variables
from bedplate.cli.lock import as_dict, said
from bedplate.cli.output import json_option, print_json
from bedplate.decide.baseclaims import Claim, claims
from bedplate.decide.diff import LayerComparison, boots, comparison
from bedplate.decide.lockdoc import LockDocument
from bedplate.decide.wiring import the_driver
from bedplate.model.faults import BadInput, DifferencesFound
from bedplate.sources.site import Site


@click.command()
@click.argument("old", metavar="A")
@click.argument("new", metavar="[B]", required=False)
@click.option("--base", is_flag=True, help="Instead: A's image and nodes against what the image's base says of itself.")
@json_option
@click.pass_obj
def diff(site_path: Path, old: str, new: str | None, base: bool, as_json: bool) -> int:
    """Compare two locks, layer by layer from hardware to launch, the most consequential difference of each first.

    With --base one lock alone: versions that the image's variables claim (NCCL_VERSION, CUDA_DRIVER_VERSION), which are
    its base's words, against those that its files and its nodes' packages have.

    A and B are names of environments, lock files, or identities that the ledger knows (the first 12 hex digits
    are enough). Exit code 0: the nodes get the same bytes; 5: they do not.

    \b
    Examples:
      bedplate diff A B
      bedplate diff old/A.lock.json A
      bedplate diff sha256:1b4f0e985197 B --json
      bedplate diff A --base
    """
    site = Site(site_path)
    if base == (new is not None):
        raise BadInput("name two locks, or one with --base (see: bedplate diff --help)")
    if new is None:
        return _show_base(site, locks.find(site, old), as_json=as_json)
    a, b = locks.find(site, old), locks.find(site, new)
    layers, booted = comparison(a, b), boots(a, b)
    count = sum(len(layer.differences) for layer in layers)
    if as_json:
        print_json({
            "a": _named(a), "b": _named(b), "differences": count, "boots": booted,
            "layers": [_layer(layer) for layer in layers],
        })  # fmt: skip
    else:
        click.echo(f"a  {a.name} {a.identity}\nb  {b.name} {b.identity}")
        for layer in layers:
            _show(layer)
        for kind, reasons in booted.items():
            click.echo(f"nodes of kind {kind} boot on the way from a to b: {'; '.join(reasons)}")
        same = "the nodes get the same bytes" if count == 0 else f"{count} differences"
        click.echo(same)
    return DifferencesFound.exit_code if count else 0


def _show_base(site: Site, lock: LockDocument, *, as_json: bool) -> int:
    wrong, right = list[Claim](), list[Claim]()
    env = variables(site, lock)
    held = dict(lock.image.versions) if lock.image else {}
    for kind in lock.kinds:
        driver = the_driver({name: one.version for name, one in lock.packages(kind).items()})
        unlike, like = claims(env, held | ({"driver": driver} if driver else {}))
        wrong += [one for one in unlike if one not in wrong]
        right += [one for one in like if one not in right]
    if as_json:
        print_json({"a": _named(lock), "differ": list(map(asdict, wrong)), "same": list(map(asdict, right))})
    else:
        for one in wrong:
            where = "nodes" if one.thing == "driver" else "image"
            click.echo(f"{one.thing}: the base says {one.says} ({one.variable}), the {where} {one.has}")
        click.echo(f"{len(wrong)} of {len(wrong) + len(right)} versions that the base speaks of are other ones")
    return DifferencesFound.exit_code if wrong else 0


def _named(lock: LockDocument) -> dict[str, str]:
    return {"environment": lock.name, "identity": lock.identity}


def _layer(layer: LayerComparison) -> dict[str, object]:
    return {
        "layer": layer.layer.value, "unmanaged": list(layer.unmanaged), "same": layer.same,
        "differences": [as_dict(change) for change in layer.differences],
    }  # fmt: skip


def _show(layer: LayerComparison) -> None:
    a, b = layer.unmanaged
    if not layer.differences:
        what = f"unmanaged: {a}" if a else f"the same ({layer.same} items)"
        click.echo(f"{layer.layer}: {what}")
        return
    click.echo(f"{layer.layer}: {len(layer.differences)} differ, {layer.same} the same")
    for change in layer.differences:
        if change.item == "unmanaged":
            click.echo(f"  {_managed(a)} -> {_managed(b)}")
        else:
            click.echo(f"  {said(change)}")


def _managed(reason: str | None) -> str:
    return f"unmanaged ({reason})" if reason else "managed"
