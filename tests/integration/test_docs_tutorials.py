"""What tutorials show runs; a file of its own, so that other pages need not wait for it."""

from __future__ import annotations

import pytest

from doc_pages import DOCS, docs_pages
from doc_programs import LONGEST_S, run_shell_lines

TUTORIALS = [page for page in docs_pages() if page.path.is_relative_to(DOCS / "tutorial")]
LONG = {"camera-to-training-set"}
"""Starts Spark again and again: a minute and a half of two cores. `make faults` runs it; what it uses is
tested with Spark, one by one."""


@pytest.mark.timeout(2 * LONGEST_S)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.path.stem, marks=[pytest.mark.slow] if page.path.stem in LONG else [])
        for page in TUTORIALS
        if page.shell_lines
    ],
)
def test_shown_programs_do_what_the_tutorial_says(page, tmp_path):
    run_shell_lines(page, tmp_path)
