"""Find which tests say that they show a requirement, and where sources cite one.

Python tests are parsed, not imported, so that the check is quick and needs nothing built. The price is that
the ids of a marker must be written out as strings; anything else is an error, lest evidence go missing.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCE_SUFFIXES = frozenset({".py", ".pyi", ".rs", ".c", ".h", ".xml"})
RUST_REQ = re.compile(r"\s*///?\s*req:\s*(.+)")
RUST_TEST = re.compile(r"\s*#\[(?:cfg_attr\(.*,\s*)?(?:\w+::)*(?:test|rstest|test_case)\b")
RUST_IGNORE = re.compile(r"\s*#\[ignore\b")
RUST_FUNCTION = re.compile(r"\s*(?:pub(?:\([^)]*\))?\s+)?(?:async\s+)?(?:unsafe\s+)?fn\s+(\w+)")
BRACKETS = re.compile(r"\[([^\[\]\n]+)\]")


@dataclass
class Evidence:
    """Places by requirement id: tests that show it, and comments that cite it."""

    tests: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    citations: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    errors: list[str] = field(default_factory=list)

    def add_test(self, id_: str, test: str) -> None:
        """Note that a test shows a requirement; a second marker on the same test adds nothing."""
        if test not in self.tests[id_]:
            self.tests[id_].append(test)


def collect_evidence(root: Path, prefixes: set[str]) -> Evidence:
    """Read the tests of a repository, and the citations in its sources.

    Args:
        root: The repository.
        prefixes: What ids begin with; brackets that hold anything else are no citations.
    """
    evidence = Evidence()
    trees: dict[str, ast.Module] = {}
    for path in _files(root, "tests", {".py"}):
        place = path.relative_to(root).as_posix()
        try:
            trees[place] = ast.parse(path.read_text(encoding="utf-8"))
        except SyntaxError as error:
            evidence.errors.append(f"{place}:{error.lineno}: not Python: {error.msg}")
    tables = {name for tree in trees.values() for name in parametrizing_names(tree)}
    for place, tree in trees.items():
        PythonMarkers(place, evidence, tables).visit(tree)
    for path in _files(root, "crates", {".rs"}):
        collect_rust(path.read_text(encoding="utf-8"), path.relative_to(root).as_posix(), evidence)
    id_pattern = re.compile(rf"(?:{'|'.join(sorted(prefixes))})-[\w.]+-\d+")
    for folder in ("python", "crates"):
        for path in _files(root, folder, SOURCE_SUFFIXES):
            collect_citations(
                path.read_text(encoding="utf-8"), path.relative_to(root).as_posix(), id_pattern, evidence
            )
    return evidence


def _files(root: Path, folder: str, suffixes: set[str] | frozenset[str]) -> Iterator[Path]:
    """Files below a folder in a stable order, build outputs left out."""
    for path in sorted((root / folder).rglob("*")):
        if path.suffix in suffixes and "target" not in path.relative_to(root).parts and path.is_file():
            yield path


class PythonMarkers(ast.NodeVisitor):
    """Collect `pytest.mark.req(...)` wherever it stands, under the name of what it marks.

    A decorator, a `pytestmark` of a module or class and `marks=` of a `pytest.param` are all calls inside a
    scope, so the scope that encloses the call names the test: the function, the class, the module, or the
    module-level table of parameters. A table shows something only if a test is parametrized with it.

    Args:
        place: The file.
        evidence: Where to note what is found.
        tables: The names that occur in `parametrize` calls, of any file.
    """

    def __init__(self, place: str, evidence: Evidence, tables: set[str]) -> None:
        self.scope = [place]
        self.evidence = evidence
        self.tables = tables

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Functions name tests when pytest would collect them."""
        self._visit_definition(node, "test")

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Classes name all their tests at once."""
        self._visit_definition(node, "Test")

    def visit_Assign(self, node: ast.Assign) -> None:
        """Lists of parameters carry markers of their own; `pytestmark` belongs to the scope around it."""
        self._visit_assignment(node, node.targets[0])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """As `visit_Assign`."""
        self._visit_assignment(node, node.target)

    def visit_Call(self, node: ast.Call) -> None:
        """Note the ids of a marker."""
        if is_req_marker(node):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    self.evidence.add_test(argument.value, "::".join(self.scope))
                else:
                    self._error(node, "ids of a req marker must be written out as strings")
            if not node.args:
                self._error(node, "a req marker without ids")
        self.generic_visit(node)

    def _visit_definition(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, prefix: str
    ) -> None:
        self.scope.append(node.name)
        if not node.name.startswith(prefix) and any(map(is_req_marker, node.decorator_list)):
            self._error(node, f"{node.name} carries a req marker, but pytest does not collect it")
        self.generic_visit(node)
        self.scope.pop()

    def _visit_assignment(self, node: ast.Assign | ast.AnnAssign, target: ast.expr) -> None:
        written = ast.unparse(target)
        name = written.removesuffix("pytestmark").removesuffix(".")
        is_table = len(self.scope) == 1 and name == written
        if is_table and name not in self.tables and any(map(is_req_marker, ast.walk(node))):
            self._error(node, f"{name} carries a req marker, but no test is parametrized with it")
            return
        self.scope += [name] if name else []
        self.generic_visit(node)
        if name:
            self.scope.pop()

    def _error(self, node: ast.stmt | ast.expr, message: str) -> None:
        self.evidence.errors.append(f"{self.scope[0]}:{node.lineno}: {message}")


def parametrizing_names(tree: ast.Module) -> set[str]:
    """The names that occur in calls of `parametrize`: the tables that tests take their parameters from.

    Example:
        >>> parametrizing_names(ast.parse('parametrize = pytest.mark.parametrize("x", CASES)'))
        {'CASES'}
    """
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "parametrize"
    ]
    inside = [node for call in calls for part in (*call.args, *call.keywords) for node in ast.walk(part)]
    return {node.id for node in inside if isinstance(node, ast.Name)} | {
        node.attr for node in inside if isinstance(node, ast.Attribute)
    }


def is_req_marker(node: ast.AST) -> bool:
    """Whether an expression is `pytest.mark.req(...)` or `mark.req(...)`.

    Example:
        >>> is_req_marker(ast.parse('pytest.mark.req("WIRE-9-1")', mode="eval").body)
        True
    """
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "req"):
        return False
    owner = node.func.value
    return (isinstance(owner, ast.Attribute) and owner.attr == "mark") or (
        isinstance(owner, ast.Name) and owner.id == "mark"
    )


def collect_rust(text: str, place: str, evidence: Evidence) -> None:
    """Collect `// req:` comments, which stand among the attributes and comments above a test function.

    An ignored test may have one, but shows nothing: `make test` does not run it.
    """
    ids: list[str] = []
    comment_line, is_test, is_ignored = 0, False, False
    for number, line in enumerate([*text.splitlines(), "}"], start=1):
        if comment := RUST_REQ.match(line):
            ids += [id_.strip() for id_ in comment[1].split(",")]
            comment_line = number
        elif RUST_TEST.match(line):
            is_test = True
        elif RUST_IGNORE.match(line):
            is_ignored = True
        elif not line.strip() or line.lstrip().startswith(("//", "#[")):
            continue
        else:
            function = RUST_FUNCTION.match(line)
            if function and is_test:
                for id_ in [] if is_ignored else ids:
                    evidence.add_test(id_, f"{place}::{function[1]}")
            elif ids:
                evidence.errors.append(f"{place}:{comment_line}: a req comment that is not above a test")
            ids, is_test, is_ignored = [], False, False


def collect_citations(text: str, place: str, id_pattern: re.Pattern[str], evidence: Evidence) -> None:
    """Collect `[WIRE-8.3-2]` and `[WIRE-8.3-2, WIRE-8.3-5]` with their line."""
    for number, line in enumerate(text.splitlines(), start=1):
        for brackets in BRACKETS.findall(line):
            for part in brackets.split(","):
                if id_pattern.fullmatch(part.strip()):
                    evidence.citations[part.strip()].append(f"{place}:{number}")
