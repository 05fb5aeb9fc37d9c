"""A pipe that breaks: that of who reads our output ends us quietly, any other one is a fault that is told."""

import os
import subprocess
import sys

PROGRAM = """
import sys
from bedplate.cli import main as program
import click

@click.command()
def write_much():
    for _ in range(100000):
        click.echo("x" * 100)

@click.command()
def other_pipe():
    import subprocess
    with subprocess.Popen(["true"], stdin=subprocess.PIPE) as process:
        process.wait()
        process.stdin.write(b"for nobody")

program.bedplate.get_command = lambda ctx, name: {"write-much": write_much, "other-pipe": other_pipe}[name]
program.main()
"""


def run(*words: str, stdout: int) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], check=False, stdin=subprocess.DEVNULL, stdout=stdout,
        stderr=subprocess.PIPE, timeout=60,
    )  # fmt: skip


def test_who_reads_no_more_ends_it_quietly() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = run("write-much", stdout=writes)
    finally:
        os.close(writes)
    assert (done.returncode, done.stderr) == (141, b"")


def test_another_pipe_that_breaks_is_told() -> None:
    done = run("other-pipe", stdout=subprocess.PIPE)
    assert done.returncode == 1
    assert b"BrokenPipeError" in done.stderr
    assert done.stderr.endswith(b"internal fault (exit 1): please report the lines above\n")
