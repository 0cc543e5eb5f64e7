"""The root of the command line: lazy commands, manners, exit codes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tensor_pool import errors
from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.options import FiniteFloat, config_options
from tensor_pool.ops.cli.root import COMMANDS, LazyGroup, run
from tensor_pool.ops.cli.root import tpool as root


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch):
    """Make a function the command `trial`."""

    def install(function) -> None:
        module = type(sys)("command_for_test")
        module.__spec__ = sys.__spec__  # any: find_spec wants one
        module.it = click.command(function)
        monkeypatch.setitem(sys.modules, "command_for_test", module)
        monkeypatch.setitem(COMMANDS, "trial", ("command_for_test:it", "A trial."))

    return install


def raising(error: BaseException):
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(
    "option",
    [
        ("demo", "--rate"),
        ("demo", "--seconds"),
        ("media", "run", "--idle-max-sleep-ms"),
        ("media", "run", "--client-liveness-ms"),
        ("tap", "--seconds"),
        ("streams", "--timeout"),
        ("streams", "--interval"),
    ],
    ids=" ".join,
)
def test_numbers_that_are_none_are_wrong_usage(tpool, option: tuple[str, ...], value: str) -> None:
    outcome = tpool(*option, value)

    assert outcome.code == 2
    assert f"'{value}' is not a finite number" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("streams", "--count", "3"), "--count is for --watch"),
        (("counters", "--interval", "1"), "--interval is for --watch"),
        (("leases", "--watch", "--format", "json"), "a JSON document must have one; add --count"),
        (("tap", "--type", "Nope"), "there is no message 'Nope'"),
        (("tap", "--type", "QosProd"), "there is no message 'QosProd'; did you mean QosProducer"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(tpool, arguments: tuple[str, ...], text: str) -> None:
    outcome = tpool(*arguments)

    assert outcome.code == 2
    assert text in outcome.err


def test_no_command_takes_such_numbers() -> None:
    def options(command: click.Command, path: str) -> Iterator[tuple[str, click.Parameter]]:
        yield from ((f"{path} {option.name}", option) for option in command.params)
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                yield from options(found, f"{path} {name}")

    floats = type(click.FLOAT)
    numbers = {path: o.type for path, o in options(root, "tpool") if isinstance(o.type, floats)}
    assert "tpool hz seconds" in numbers
    assert [path for path, kind in numbers.items() if not isinstance(kind, FiniteFloat)] == []


class TestStandardOutput:
    def test_nobody_wants_it(self) -> None:
        """Services are started like that; there is nothing to complain about."""
        script = "import sys; sys.stdout = None; from tensor_pool.ops.cli import main; main()"
        command = [sys.executable, "-c", script, "version"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
    def test_a_full_disk_is_no_bug_of_ours(self) -> None:
        with Path("/dev/full").open("w") as full:
            command = [sys.executable, "-c", "from tensor_pool.ops.cli import main; main()", "version"]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr.splitlines()[0] == "error: can't write the output: No space left on device"


class TestLaziness:
    def test_help_imports_no_command(self) -> None:
        script = """
import json, sys
from tensor_pool.ops.cli.root import COMMANDS, run
assert run(["--help"]) == 0
modules = [target.partition(":")[0] for target, _ in COMMANDS.values()]
print(json.dumps([name for name in (*modules, "rich", "msgspec", "numpy") if name in sys.modules]))
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

        assert json.loads(done.stdout.splitlines()[-1]) == []

    def test_help_lists_the_commands_that_are_there(self, tpool) -> None:
        outcome = tpool("--help")

        assert (outcome.code, outcome.err) == (0, "")
        for name in ("config", "completion", "version"):
            assert f"  {name} " in outcome.out
            assert COMMANDS[name][1] in outcome.out

    def test_a_command_whose_module_is_missing_is_not_listed_and_breaks_nothing(
        self, tpool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(COMMANDS, "ghost", ("tensor_pool.no_such_package.ghost:ghost", "Boo."))

        assert "ghost" not in tpool("--help").out
        outcome = tpool("ghost")
        assert outcome.code == 2
        assert "No such command 'ghost'" in outcome.err

    @pytest.mark.parametrize(
        ("typed", "meant"), [("stream", "streams"), ("docter", "doctor"), ("client", "clients")]
    )
    def test_what_was_meant_is_said(self, tpool, typed: str, meant: str) -> None:
        outcome = tpool(typed)

        assert outcome.code == 2
        assert f"No such command {typed!r}. Did you mean {meant!r}?" in outcome.err

    def test_nothing_is_suggested_for_nonsense(self, tpool) -> None:
        outcome = tpool("xyzzy")

        assert outcome.code == 2
        assert "Did you mean" not in outcome.err

    def test_a_command_that_needs_a_missing_package_says_so(
        self, tpool, monkeypatch: pytest.MonkeyPatch, tmp_path
    ) -> None:
        (tmp_path / "needy.py").write_text("import a_package_that_nobody_has\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setitem(COMMANDS, "needy", ("needy:needy", "Needs something."))

        assert "needy" in tpool("--help").out
        outcome = tpool("needy")
        assert outcome.code == 1
        assert "tpool needy needs the module a_package_that_nobody_has" in outcome.err
        assert "pip install" in outcome.err

    def test_every_command_of_ours_is_what_the_table_says(self) -> None:
        group = LazyGroup("tpool")
        context = click.Context(group)

        for name in group.list_commands(context):
            assert isinstance(group.get_command(context, name), click.Command)


class TestFailures:
    def test_an_error_is_three_lines_without_traceback(self, tpool, command) -> None:
        command(raising(errors.RegionError("file is too small", where="/dev/shm/x", hint="ask its producer")))
        outcome = tpool("trial")

        assert outcome.out == ""
        assert outcome.err.splitlines() == [
            "error: file is too small",
            "   at: /dev/shm/x",
            "  try: ask its producer",
        ]

    def test_a_missing_driver_is_told_for_shells_and_with_its_place(
        self, command, tpool, tmp_path: Path
    ) -> None:
        for where in (None, str(tmp_path)):
            error = errors.NoDriverError("nobody on stream 1000", where=where, hint="connect(embedded=True)")
            command(config_options(lambda error=error, **_: raising(error)()))

            what, place, hint = tpool("trial", "--aeron-dir", str(tmp_path)).err.splitlines()
            assert (what, place) == ("error: no SHM driver answers", f"   at: {tmp_path}")
            assert hint.startswith(f"  try: start one with `tpool up --aeron-dir {tmp_path}`")

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (errors.TensorPoolError("x"), 1),
            (errors.RegionError("x"), 1),
            (errors.TransportError("x"), 1),
            (errors.ConfigError("x"), 2),
            (errors.NoDriverError("x"), 3),
            (errors.NoMediaDriverError("x"), 3),
            (ZeroDivisionError("x"), 1),
            (click.ClickException("x"), 1),
            (click.UsageError("x"), 2),
            (click.exceptions.Exit(5), 5),
            (click.Abort(), 1),
            (KeyboardInterrupt(), 130),
        ],
        ids=repr,
    )
    def test_exit_codes(self, tpool, command, error: BaseException, code: int) -> None:
        command(raising(error))

        assert tpool("trial").code == code

    def test_success_is_0_whatever_a_command_returns(self, tpool, command) -> None:
        command(lambda: "done")

        assert tpool("trial").code == 0

    def test_debug_adds_the_traceback(self, tpool, command) -> None:
        command(raising(errors.TensorPoolError("broken")))

        assert "Traceback" not in tpool("trial").err
        outcome = tpool("--debug", "trial")
        assert "Traceback" in outcome.err
        assert outcome.err.splitlines()[-1] == "error: broken"

    def test_a_bug_names_its_place_and_asks_for_a_report(self, tpool, command) -> None:
        command(raising(ZeroDivisionError("by zero")))
        outcome = tpool("trial")

        what, where, hint = outcome.err.splitlines()
        assert what == "error: unexpected ZeroDivisionError: by zero"
        assert "test_cli_root.py:" in where
        assert "tpool version --verbose" in hint

    def test_ctrl_c_is_quiet(self, tpool, command) -> None:
        command(raising(KeyboardInterrupt()))

        assert tpool("trial").err.strip() == ""

    def test_wrong_usage_is_told_in_the_same_form(self, tpool) -> None:
        outcome = tpool("config", "show", "--format", "xml")

        what, where, hint = outcome.err.splitlines()
        assert what.startswith("error: Invalid value for '--format': 'xml'")
        assert where == "   at: tpool config show"
        assert hint == "  try: `tpool config show --help`"

    def test_without_arguments_there_is_help_and_exit_code_2(self, tpool) -> None:
        outcome = tpool()

        assert outcome.code == exit_codes.USAGE
        assert "Usage: tpool" in outcome.err


class TestVersion:
    def test_is_one_line(self, tpool) -> None:
        import tensor_pool

        assert tpool("version") == (0, f"{tensor_pool.__version__}\n", "")

    def test_verbose_has_what_a_bug_report_needs(self, tpool) -> None:
        outcome = tpool("version", "--verbose", "--format", "json")
        facts = json.loads(outcome.out)

        assert {
            "shm-tensor-pool",
            "python",
            "platform",
            "kernel",
            "numpy",
            "msgspec",
            "native module",
        } <= set(facts)
        assert facts["python"].startswith("CPython 3.")
        assert facts["numpy"][0].isdigit()

    def test_json_without_verbose(self, tpool) -> None:
        assert list(json.loads(tpool("version", "--format", "json").out)) == ["shm-tensor-pool"]

    def test_packages_that_are_missing_are_facts_too(self, tpool, monkeypatch: pytest.MonkeyPatch) -> None:
        from importlib import metadata

        import tensor_pool

        def not_found(name: str) -> str:
            raise metadata.PackageNotFoundError(name)

        assert tensor_pool.__version__  # remembered from now on, and so not touched by this test
        monkeypatch.setattr(metadata, "version", not_found)
        outcome = tpool("version", "-v")

        assert outcome.code == 0
        assert "numpy            not installed" in outcome.out


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_prints_a_script(self, tpool, shell: str) -> None:
        outcome = tpool("completion", shell)

        assert outcome.code == 0
        assert f"_TPOOL_COMPLETE={shell}_complete" in outcome.out

    def test_completes_commands_and_options(self) -> None:
        from click.shell_completion import ShellComplete

        complete = ShellComplete(root, {}, "tpool", "_TPOOL_COMPLETE")

        assert [item.value for item in complete.get_completions([], "vers")] == ["version"]
        assert [item.value for item in complete.get_completions(["config"], "ex")] == ["explain"]
        assert "--format" in [item.value for item in complete.get_completions(["config", "show"], "--")]


def test_run_takes_the_arguments_of_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tpool", "version"])

    assert run() == 0
    assert capsys.readouterr().out
