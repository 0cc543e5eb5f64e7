"""The documentation agrees with the repository: links, navigation, commands, targets, tables, numbers.

Needs no tool of the documentation. What its pages show as code runs in `test_docs_examples` and
`test_docs_tutorials`.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import click
import pytest

from doc_pages import DOCS, GENERATED, ROOT, Page, docs_pages, repository_pages
from tensor_pool import _native, errors
from tensor_pool.ops.cli.root import tpool

PAGES = docs_pages()
ALL_PAGES = [*PAGES, *repository_pages()]
MKDOCS = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
NAVIGATION = {DOCS / path for path in re.findall(r"^ +- [^:]+: (\S+\.md)$", MKDOCS, flags=re.MULTILINE)}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))


def page_of(*parts: str) -> Page:
    return Page(DOCS.joinpath(*parts))


def first_column(page: Page, heading: str) -> list[str]:
    """The first cells of the table whose header line starts so."""
    _, _, rest = page.prose.partition(heading)
    rows = rest.partition("\n\n")[0].splitlines()[2:]
    return [row.split("|")[1].strip(" `") for row in rows]


# --- pages and links ------------------------------------------------------------------------------


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page():
    written = {page.path for page in PAGES} - {DOCS / "adr" / "0000-template.md"}
    assert written - NAVIGATION == set()
    assert NAVIGATION - written == GENERATED


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in ALL_PAGES])
def test_links_lead_somewhere(page):
    for link in page.links:
        path, _, anchor = link.partition("#")
        target = (page.path.parent / path).resolve() if path else page.path
        assert target in GENERATED or target.exists(), link
        if anchor:
            assert anchor in Page(target).anchors, link
        # Pages of the site can only link to each other.
        assert not page.path.is_relative_to(DOCS) or target.is_relative_to(DOCS), link


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in ALL_PAGES])
def test_named_files_of_the_repository_exist(page):
    folders = "crates|python|tests|tools|docs|bench|examples"
    for path in re.findall(rf"`((?:{folders})/[\w./-]+)`", page.prose):
        assert ROOT / path in GENERATED or (ROOT / path).exists(), path


def test_every_picture_is_shown():
    shown = {(page.path.parent / link).resolve() for page in PAGES for link in page.links}
    assert {path for path in (DOCS / "images").iterdir() if path not in shown} == set()


@pytest.mark.parametrize("path", sorted((DOCS / "images").glob("*.svg")), ids=lambda path: path.name)
def test_pictures_say_what_they_show_and_fetch_nothing(path):
    picture = path.read_text(encoding="utf-8")
    assert 'role="img" aria-label="' in picture
    assert set(re.findall(r"https?://[^\"]+", picture)) == {"http://www.w3.org/2000/svg"}


# --- what people are told to type -----------------------------------------------------------------


def commands(program: str) -> list[object]:
    """Every command line of a program that some page shows, once."""
    found: dict[str, str] = {}
    for page in ALL_PAGES:
        for line in page.commands:
            typed = re.sub(r"^([A-Z_]+=\S+ )+", "", line)  # variables in front of it
            if re.match(rf"{program}( |$)", typed):
                found.setdefault(re.split(r" [|>&]|;", typed)[0], page.name)
    return [pytest.param(line, id=f"{line} ({page})") for line, page in found.items()]


@pytest.mark.parametrize("line", commands("tpool"))
def test_commands_and_their_options_exist(line):
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = tpool
    context = click.Context(tpool)
    options: set[str] = set()
    for word in words:
        options |= {name for parameter in command.get_params(context) for name in parameter.opts}
        if word.startswith("-"):
            assert word.partition("=")[0] in options, word
        elif isinstance(command, click.Group) and word != "...":
            # "tpool wire decode|encode" stands for two commands.
            found = [command.get_command(context, name) for name in word.split("|")]
            assert all(found), word
            command = found[0]


@pytest.mark.parametrize("line", commands("make"))
def test_make_targets_exist(line):
    for word in shlex.split(line, comments=True)[1:]:
        assert word in TARGETS or "=" in word, word


def test_the_checks_above_found_something_to_check():
    assert len(commands("tpool")) > 20
    assert len(commands("make")) > 5


# --- tables -------------------------------------------------------------------------------------------


def test_tables_written_from_the_code_are_up_to_date():
    spec = importlib.util.spec_from_file_location("doc_tables", ROOT / "tools" / "doc_tables.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert set(tool.stale_pages(DOCS)) == set(), "run `python tools/doc_tables.py`"
    marked = [name for page in PAGES for name in re.findall(r"<!-- table: ([a-z-]+) -->", page.text)]
    assert sorted(marked) == sorted(tool.TABLES)


def test_the_table_of_drop_reasons_is_complete():
    assert tuple(first_column(page_of("concepts", "trust.md"), "| reason |")) == _native.DROP_REASONS
    assert f"{len(_native.DROP_REASONS)} drop reasons" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_tree_of_errors_is_that_of_the_classes():
    tree = page_of("reference", "errors.md").blocks[0].body
    parents: list[str] = []
    for line in tree.splitlines():
        depth, name, builtin = re.match(r"([│├└─ ]*)(\w+)\s+(?:\((\w+)\))?", f"{line} ").groups()
        parents[len(depth) // 4 :] = [name]
        bases = [base.__name__ for base in getattr(errors, name).__bases__]
        expected = [parents[-2] if len(parents) > 1 else "Exception", *([builtin] if builtin else [])]
        assert bases == expected, name
    assert set(re.findall(r"\w+Error\b(?!\))", tree)) >= set(errors.__all__)


# --- decisions ----------------------------------------------------------------------------------------


def test_every_decision_that_is_cited_is_on_the_page():
    known = set(
        re.findall(r"^\| ([BMLDRK]\d+) \|", page_of("reference", "decisions.md").text, flags=re.MULTILINE)
    )
    counts = {"B": 16, "M": 18, "L": 11, "D": 21, "R": 10, "K": 9}
    assert known == {f"{letter}{n}" for letter, count in counts.items() for n in range(1, count + 1)}
    for path in sources():
        text = path.read_text(encoding="utf-8")
        for cited in re.findall(r"\bdecisions? ((?:[BMLDRK]\d+(?:, | and | to )?)+)", text):
            assert set(re.findall(r"[BMLDRK]\d+", cited)) <= known, f"{path}: {cited}"
    listed = re.findall(
        r"^decisions = \[(.*)\]", (ROOT / "traceability.toml").read_text(), flags=re.MULTILINE
    )
    assert {number.strip('" ') for line in listed for number in line.split(",")} <= known


def sources() -> list[Path]:
    folders = ("python", "crates", "tests", "docs", "tools", "bench")
    kinds = ("*.py", "*.pyi", "*.rs", "*.md", "*.xml", "*.h")
    found = (path for folder in folders for kind in kinds for path in (ROOT / folder).rglob(kind))
    return [path for path in found if "target" not in path.parts and path not in GENERATED]
