"""What processes write on standard error is passed on until a command was interrupted."""

from __future__ import annotations

import subprocess
import threading

from tensor_pool.ops.cli.pipeline.java_words import java_words
from tensor_pool.testing.waiting import wait_until

CHATTY = "echo first >&2; read line; echo second >&2"


def test_words_are_passed_on_until_nobody_wants_them(capfd):
    is_over = threading.Event()
    with java_words(are_wanted=lambda: not is_over.is_set()):
        chatty = subprocess.Popen(["sh", "-c", CHATTY], stdin=subprocess.PIPE)
    heard = ""

    def has_heard():
        nonlocal heard
        heard += capfd.readouterr().err
        return "first" in heard

    wait_until(has_heard, timeout_s=10)
    is_over.set()
    chatty.communicate(b"\n", timeout=10)
    wait_until(lambda: not any(each.name == "java words" for each in threading.enumerate()), timeout_s=10)
    assert capfd.readouterr().err == ""


def test_our_own_words_are_not_held_up(capfd):
    with java_words(are_wanted=lambda: False):
        pass
    subprocess.run(["sh", "-c", "echo ours >&2"], check=True)
    assert capfd.readouterr().err == "ours\n"
