"""What the documentation shows runs, and prints what it says; `doc_pages` has the rules."""

from __future__ import annotations

import doctest
import sys

import pytest

from doc_pages import DOCS, docs_pages
from doc_programs import LONGEST_S, named, run, run_shell_lines

PAGES = docs_pages()
SEPARATOR = "--- end of block ---\n"


@pytest.mark.timeout(LONGEST_S + 20)
@pytest.mark.parametrize("page", named([page for page in PAGES if page.examples]))
def test_python_blocks_run_in_order_and_print_what_is_shown(page, tmp_path):
    steps = page.examples
    script = "".join(f"{step.code}\nprint({SEPARATOR.strip()!r})\n" for step in steps)
    (tmp_path / "page.py").write_text(script, encoding="utf-8")
    status, printed, complaints = run([sys.executable, "page.py"], tmp_path)
    assert status == 0, complaints
    parts = printed.split(SEPARATOR)[: len(steps)]
    checker = doctest.OutputChecker()
    for step, got in zip(steps, parts, strict=True):
        if step.prints is not None:
            assert checker.check_output(step.prints, got, doctest.ELLIPSIS), f"printed:\n{got}"


@pytest.mark.timeout(2 * LONGEST_S)
@pytest.mark.parametrize(
    "page",
    named([page for page in PAGES if page.shell_lines and not page.path.is_relative_to(DOCS / "tutorial")]),
)
def test_shown_programs_do_what_the_page_says(page, tmp_path):
    """Those of tutorials take as long as all others together: see `test_docs_tutorials`."""
    run_shell_lines(page, tmp_path)


def test_every_shown_program_is_used():
    for page in PAGES:
        for name in page.files:
            assert any(name in line for line in page.shell_lines), f"{page.name}: nothing runs {name}"
