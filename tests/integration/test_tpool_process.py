"""``tpool`` as a process: exit codes, streams, signals, pipes, missing packages."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TPOOL = [sys.executable, "-c", "from tensor_pool.ops.cli import main; main()"]


def tpool(
    *arguments: str, directory: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TPOOL, *arguments],
        capture_output=True,
        text=True,
        cwd=directory,
        env={**os.environ, **variables},
        timeout=60,
        check=False,
    )


def test_data_goes_to_standard_output_and_errors_to_standard_error(tmp_path: Path) -> None:
    good = tpool("config", "show", "--format", "json", directory=tmp_path)
    bad = tpool("config", "show", directory=tmp_path, TENSOR_POOL__LOG__LEVEL="loud")

    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.splitlines()[1] == "   at: environment TENSOR_POOL__LOG__LEVEL"


def test_the_package_itself_is_the_command() -> None:
    module = subprocess.run(
        [sys.executable, "-m", "tensor_pool", "version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (module.returncode, module.stdout) == (0, tpool("version").stdout)


def with_trial_command(body: str) -> list[str]:
    """A ``tpool`` with one more command, `trial`."""
    script = f"""
import sys, time, click
from tensor_pool.ops.cli import root
from tensor_pool.ops.cli.output import print_rows

@click.command
def trial():
    {body}

module = type(sys)("trial")
module.__spec__, module.trial = sys.__spec__, trial
sys.modules["trial"] = module
root.COMMANDS["trial"] = ("trial:trial", "A trial.")
sys.exit(root.run(["trial"]))
"""
    return [sys.executable, "-c", script]


def test_a_closed_pipe_is_no_traceback() -> None:
    process = subprocess.Popen(
        with_trial_command("print_rows(({'n': n} for n in range(1_000_000)), ['n'], 'jsonl')"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == '{"n": 0}\n'
    process.stdout.close()

    assert process.wait(timeout=60) == 141
    assert process.stderr.read() == ""
    process.stderr.close()


def test_ctrl_c_ends_a_command_quietly_with_130() -> None:
    process = subprocess.Popen(
        with_trial_command("print('ready', flush=True); time.sleep(60)"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert err.strip() == ""


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; {TPOOL[2]}"
    done = subprocess.run(
        [sys.executable, "-c", script, "version"], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 2
    assert done.stderr == f"error: tpool needs {missing}: pip install 'shm-tensor-pool[cli]'\n"


def test_shell_completion_answers(tmp_path: Path) -> None:
    done = tpool(
        directory=tmp_path, _TPOOL_COMPLETE="bash_complete", COMP_WORDS="tpool config ", COMP_CWORD="2"
    )

    assert done.returncode == 0
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == {
        "check",
        "explain",
        "init",
        "show",
    }


def on_terminal(command: list[str], **variables: str) -> str:
    """What a command prints to a pseudo-terminal."""
    controller, terminal = os.openpty()
    try:
        subprocess.run(command, stdout=terminal, env={**os.environ, **variables}, timeout=60, check=True)
        os.close(terminal)
        text = b""
        while chunk := _read(controller):
            text += chunk
    finally:
        os.close(controller)
    return text.decode()


def _read(controller: int) -> bytes:
    try:
        return os.read(controller, 65_536)
    except OSError:  # EIO: the terminal's other end is closed and everything is read
        return b""


def test_a_real_terminal_gets_weight_but_with_no_color_nothing_coloured() -> None:
    command = with_trial_command("print_rows([{'name': '[bold]camera'}], ['name'], 'table')")
    environment = {"TERM": "xterm-256color", "COLUMNS": "80"}
    plain = on_terminal(command, **environment, NO_COLOR="1")

    assert "[bold]camera" in plain
    assert "\x1b[1m" in on_terminal(command, **environment)
    assert not any(f"\x1b[3{colour}" in plain for colour in range(8))
