"""The root of ``tpool``: which commands there are, and what happens when one fails.

Commands are imported when they run. ``tpool --help`` therefore imports none of them, and a command that can't
be imported harms nobody but itself.
"""

from __future__ import annotations

import difflib
import os
import sys
from importlib import import_module, util
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tensor_pool.errors import TensorPoolError
from tensor_pool.ops.cli import exit_codes, failures

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["COMMANDS", "run", "tpool"]

COMMANDS: Final = {
    "demo": ("tensor_pool.ops.cli.demo:demo", "Pass tensors between two processes, now."),
    "up": ("tensor_pool.ops.cli.up:up", "Start everything that a host needs, in one process."),
    "doctor": ("tensor_pool.ops.cli.doctor:doctor", "Say what would go wrong here, and how to fix it."),
    "streams": ("tensor_pool.ops.cli.streams:streams", "List the streams of the SHM driver."),
    "info": ("tensor_pool.ops.cli.stream.info:info", "Tell all there is to know of one stream."),
    "hz": ("tensor_pool.ops.cli.stream.rates:hz", "Measure how fast and how evenly frames come."),
    "bw": ("tensor_pool.ops.cli.stream.rates:bw", "Measure how many bytes a second a stream carries."),
    "delay": ("tensor_pool.ops.cli.stream.rates:delay", "Measure how old frames are when they come."),
    "drops": ("tensor_pool.ops.cli.stream.drops:drops", "Say who loses frames, and why."),
    "snap": ("tensor_pool.ops.cli.stream.snap:snap", "Save the newest frame as a picture or an array."),
    "record": ("tensor_pool.ops.cli.recording.record:record", "Record streams into a directory."),
    "recordings": (
        "tensor_pool.ops.cli.recording.verify:recordings",
        "List what recordings hold, and copy them.",
    ),
    "verify": (
        "tensor_pool.ops.cli.recording.verify:verify",
        "Check a recording, and repair what a crash left.",
    ),
    "replay": ("tensor_pool.ops.cli.recording.replay:replay", "Publish a recording as its streams came."),
    "export": ("tensor_pool.ops.cli.recording.export:export", "Write a recording as files of other formats."),
    "pipeline": ("tensor_pool.ops.cli.pipeline.run:pipeline", "Run jobs over recordings with Spark."),
    "clients": ("tensor_pool.ops.cli.clients:clients", "List who reads and who writes."),
    "leases": ("tensor_pool.ops.cli.clients:leases", "List the leases of the SHM driver."),
    "revoke": ("tensor_pool.ops.cli.clients:revoke", "End a lease."),
    "driver": ("tensor_pool.ops.cli.driver:driver", "Run and look at the SHM driver."),
    "bridge": ("tensor_pool.ops.cli.bridge:bridge", "Carry streams between hosts."),
    "limit": ("tensor_pool.ops.cli.limit:limit", "Publish a stream again, with fewer frames a second."),
    "discover": ("tensor_pool.ops.cli.discover:discover", "Find streams, here and on other hosts."),
    "discovery": ("tensor_pool.ops.cli.discovery:discovery", "Run a registry of streams of many hosts."),
    "services": ("tensor_pool.ops.cli.control:services", "List services, and what they can be told."),
    "send": ("tensor_pool.ops.cli.control:send", "Tell a service something, and see its echo."),
    "events": ("tensor_pool.ops.cli.control:events", "Show what services tell."),
    "supervisor": (
        "tensor_pool.ops.cli.supervisor:supervisor",
        "Watch consumers, and move those that can't keep up.",
    ),
    "tap": ("tensor_pool.ops.cli.tap:tap", "Show the messages that pass by."),
    "shm": ("tensor_pool.ops.cli.shm:shm", "Look into shared memory, verify it, clean it up."),
    "counters": ("tensor_pool.ops.cli.counters:counters", "List the counters of everybody on this host."),
    "errors": ("tensor_pool.ops.cli.errors:errors", "List errors of the media driver and of agents."),
    "bench": ("tensor_pool.ops.cli.bench:bench", "Measure how fast this machine could go."),
    "media": ("tensor_pool.ops.cli.media:media", "Run and look at Aeron media drivers."),
    "wire": ("tensor_pool.ops.cli.wire:wire", "Decode and encode messages."),
    "config": ("tensor_pool.ops.cli.config:config", "Show, check, explain and write configuration."),
    "completion": ("tensor_pool.ops.cli.completion:completion", "Print the completion script of a shell."),
    "version": ("tensor_pool.ops.cli.version:version", "Print the version; --verbose for bug reports."),
}
"""The commands: where each is defined and what it does in one line, in the order of the help text."""


class _PipeClosedError(Exception):
    """Nobody reads standard output any more."""


class LazyGroup(click.Group):
    """A group that imports a command when it runs; commands whose module is not there are not listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The commands whose modules exist."""
        return [name for name, (target, _) in COMMANDS.items() if _module_exists(target)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the table's help, without importing them."""
        rows = [(name, COMMANDS[name][1]) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; a closed pipe becomes an exception that click does not turn into exit code 1."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, where a closed pipe can still be handled
        except BrokenPipeError as e:
            raise _PipeClosedError from e
        return result

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Say what is missing when a command needs a package that is not installed, and what was meant."""
        try:
            if args[0] not in (known := self.list_commands(ctx)):
                for meant in difflib.get_close_matches(args[0], known, n=1):
                    ctx.fail(f"No such command {args[0]!r}. Did you mean {meant!r}?")
            return super().resolve_command(ctx, args)
        except ModuleNotFoundError as e:
            raise TensorPoolError(
                f"tpool {args[0]} needs the module {e.name}, which is not installed",
                hint="pip install 'shm-tensor-pool[cli]', or the extra that this command belongs to",
            ) from e


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="shm-tensor-pool", prog_name="tpool", message="%(prog)s %(version)s")
def tpool(*, debug: bool) -> None:
    """Tensors between processes over shared memory and Aeron.

    Data goes to standard output, logs and errors to standard error. Exit codes: 0 ok, 1 problems found,
    2 wrong usage or configuration, 3 no driver.
    """
    del debug  # run() looks at it, because it is needed when this function is never reached


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and say how it ended; every failure becomes a message and an exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if sys.stdout is None:  # closed by who started us, as services are: what nobody reads is no error
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    try:
        result = tpool.main(args=arguments, prog_name="tpool", standalone_mode=False)
    except _PipeClosedError:
        # The reader has seen enough. The interpreter's own flush at exit would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.BROKEN_PIPE
    except Exception as e:
        return failures.report(e, with_traceback=_wants_traceback(arguments))
    return result if type(result) is int else exit_codes.OK


def _wants_traceback(arguments: Sequence[str]) -> bool:
    """Whether --debug stands before the command; looked up by hand, because parsing may be what failed."""
    options = []
    for argument in arguments:
        if not argument.startswith("-"):
            break
        options.append(argument)
    return "--debug" in options


def _module_exists(target: str) -> bool:
    try:
        return util.find_spec(target.partition(":")[0]) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False
