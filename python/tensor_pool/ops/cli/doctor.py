"""``tpool doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.options import config_options, format_option
from tensor_pool.ops.cli.output import print_rows, print_text
from tensor_pool.ops.doctor.finding import counted

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat
    from tensor_pool.ops.doctor import Finding

__all__ = ["doctor", "print_advice"]


@click.command()
@format_option()
@config_options
@click.pass_context
def doctor(ctx: click.Context, config: Config, output_format: OutputFormat) -> None:
    """Say what would go wrong on this machine, and how to fix it.

    Looks at shared memory, limits, huge pages, processors, kernel, namespaces, clocks, versions, the media
    driver, the SHM driver, and what a configured bridge needs. Changes nothing. Exit codes: 0 when there
    are only warnings, 1 when something does not work.

    \b
    Examples:
      tpool doctor
      tpool doctor --aeron-dir /dev/shm/lab --format json | jq '.[] | select(.status != "ok")'
    """  # noqa: D301 - click's mark for text that stays as it is
    from tensor_pool.ops.doctor import examine  # noqa: PLC0415 - the help text needs none of it
    from tensor_pool.ops.doctor.look import look  # noqa: PLC0415

    findings = examine(look(config))
    print_rows(map(_row, findings), ["status", "check", "found"], output_format)
    if output_format == "table":
        print_advice(findings)
    ctx.exit(exit_codes.PROBLEMS if _count(findings, "problem") else exit_codes.OK)


def _row(finding: Finding) -> dict[str, Any]:
    return {
        "check": finding.check,
        "status": finding.status,
        "found": finding.found,
        "try": finding.advice,
    }


def print_advice(findings: list[Finding]) -> None:
    """What to do stands below the table, worst first: beside it no line would fit a terminal."""
    for status in ("problem", "warning"):
        for finding in findings:
            if finding.status == status:
                click.echo()
                print_text(f"{status}: {finding.check}: {finding.found}")
                print_text(f"  try: {finding.advice}", indent=" " * len("  try: "))
    for finding in findings:
        if finding.status == "ok" and finding.advice:
            click.echo()
            print_text(f"tip: {finding.check}: {finding.advice}")
    totals = (counted(_count(findings, status), status) for status in ("problem", "warning"))
    click.echo(f"\n{', '.join(totals)}")


def _count(findings: list[Finding], status: str) -> int:
    return sum(finding.status == status for finding in findings)
