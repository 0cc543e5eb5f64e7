"""Tables of the documentation that the code itself knows best: written by this tool, checked by a test.

A page marks the place with ``<!-- table: NAME -->`` and ``<!-- end of table -->``; everything between the two
is replaced.

    python tools/doc_tables.py            rewrite what is out of date
    python tools/doc_tables.py --check    only say what is out of date, and fail
"""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import re
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from tensor_pool import errors as tensor_pool_errors
from tensor_pool import wire
from tensor_pool.bridging.mapping import BridgeMapping
from tensor_pool.config.keys import section_keys, struct_keys
from tensor_pool.config.registry import SECTIONS, section_type
from tensor_pool.runtime import CounterType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tensor_pool.config.keys import Key

_MARKED = re.compile(r"(<!-- table: ([a-z-]+) -->\n).*?(<!-- end of table -->)", flags=re.DOTALL)


def _table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    def line(cells: Iterable[object]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"

    names = list(columns)
    return "\n".join([line(names), "|" + "---|" * len(names), *(line(row) for row in rows)])


def _unwrapped(text: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def configuration() -> str:
    """Every key of every section, as the config package describes it."""
    parts = []
    for section in SECTIONS:
        rows = [
            (f"`{key.name}`", _default(key), key.allowed, key.doc) for key in section_keys(section).values()
        ]
        description = _unwrapped(inspect.getdoc(section_type(section)) or "")
        parts += [f"## {section}", description, _table(("key", "default", "allowed", "meaning"), rows)]
    return "\n\n".join(parts)


def bridge_mapping() -> str:
    """Every key of a mapping of the bridge."""
    docs = _attribute_docs(BridgeMapping)
    rows = [
        (f"`{key.name}`", _default(key), key.allowed, docs[key.name])
        for key in struct_keys(BridgeMapping, "bridge.mappings").values()
    ]
    return _table(("key", "default", "allowed", "meaning"), rows)


def _attribute_docs(struct: type) -> dict[str, str]:
    """The texts below the attributes of a class, which Python itself forgets."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for attribute, text in itertools.pairwise(definition.body):
        match attribute, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(told))):
                found[name] = " ".join(told.split())
    return found


def _default(key: Key) -> str:
    if key.is_required:
        return "required"
    shown = key.show(key.default)
    return f"`{shown}`" if shown else "empty"


def counters() -> str:
    """Every kind of counter with its Aeron type id."""
    return _table(
        ("type id", "name", "counts"), [(kind.type_id, f"`{kind.label}`", kind.doc) for kind in CounterType]
    )


def errors() -> str:
    """The tree of errors, as it is drawn in the module."""
    lines = (inspect.getdoc(tensor_pool_errors) or "").splitlines()
    start = lines.index("::") + 2
    tree = lines[start : lines.index("", start)]
    return "```text\n" + inspect.cleandoc("\n" + "\n".join(tree)) + "\n```"


def messages() -> str:
    """Every message with its numbers; the dialects of one message stand together."""
    rows = []
    for struct in wire.message_types():
        purpose = " ".join((inspect.getdoc(struct) or "").split("\n\n")[0].split())
        for layout in wire.message_layouts(struct):
            numbers = (layout.schema_id, layout.template_id, layout.block_length)
            rows.append((*numbers, f"`{struct.__name__}`", purpose))
    return _table(("schema", "template", "block", "struct", "purpose"), sorted(rows))


TABLES: dict[str, Callable[[], str]] = {
    "bridge-mapping": bridge_mapping,
    "configuration": configuration,
    "counters": counters,
    "errors": errors,
    "messages": messages,
}
"""The tables by the names that pages mark them with."""


def refreshed(text: str) -> str:
    """The text of a page with all its tables as the code has them now."""
    return _MARKED.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", text)


def stale_pages(docs: Path) -> dict[Path, str]:
    """The pages whose tables are out of date, with what they should be."""
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(docs.rglob("*.md"))}
    wanted = {path: refreshed(text) for path, text in pages.items()}
    return {path: text for path, text in wanted.items() if text != pages[path]}


def main(argv: list[str] | None = None) -> int:
    """Run the tool; 1 when it only checked and something is out of date."""
    parser = argparse.ArgumentParser(description="Write the tables of the documentation.")
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--docs", type=Path, default=Path(__file__).parents[1] / "docs")
    arguments = parser.parse_args(argv)
    stale = stale_pages(arguments.docs)
    for path, text in stale.items():
        print(f"{path}: {'out of date' if arguments.check else 'written'}")
        if not arguments.check:
            path.write_text(text, encoding="utf-8")
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
