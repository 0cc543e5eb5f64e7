"""The pages of the documentation, taken apart for the tests that hold them to the code.

What a page can ask for:

- All blocks marked ``python`` are one script, run in their order. A block marked ``text title="prints"``
  behind one says what it prints; ``...`` stands for anything.
- A block marked ``python title="camera.py"`` (or another language) is a file of that name. It runs only where
  a comment says so: ``<!-- run: python camera.py $DIR -->`` is a line for the shell, ``$DIR`` an empty
  directory in shared memory, ``$ROOT`` the repository, and the status must be 0.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GENERATED = {DOCS / "reference" / "conformance.md"}

_BLOCK = re.compile(
    r"^```(?P<language>[\w-]+)(?P<options>[^\n]*)\n(?P<body>.*?)^```$", flags=re.DOTALL | re.MULTILINE
)


class Block(NamedTuple):
    """A fenced block."""

    language: str
    title: str | None
    body: str


class Example(NamedTuple):
    """A step of a page's script, and what it prints where the page says so."""

    code: str
    prints: str | None


class Page:
    """One page of Markdown."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path.relative_to(ROOT))
        self.text = path.read_text(encoding="utf-8")
        self.prose = _BLOCK.sub("", self.text)

    @property
    def blocks(self) -> list[Block]:
        return [
            Block(found["language"], _title(found["options"]), found["body"])
            for found in _BLOCK.finditer(self.text)
        ]

    @property
    def examples(self) -> list[Example]:
        steps: list[Example] = []
        for block in self.blocks:
            if block.language == "python" and block.title is None:
                steps.append(Example(block.body, None))
            elif block.language == "text" and block.title == "prints":
                assert steps, f"{self.name}: nothing prints {block.body!r}"
                assert steps[-1].prints is None, f"{self.name}: two outputs for one block"
                steps[-1] = steps[-1]._replace(prints=block.body)
        return steps

    @property
    def files(self) -> dict[str, str]:
        return {block.title: block.body for block in self.blocks if block.title and block.title != "prints"}

    @property
    def shell_lines(self) -> list[str]:
        return re.findall(r"<!-- run: (.+?) -->", self.prose, flags=re.DOTALL)

    @property
    def commands(self) -> list[str]:
        """What the page tells people to type: in consoles behind a $, in indented code, in code spans."""
        typed = [
            line.removeprefix("$ ")
            for block in self.blocks
            if block.language == "console"
            for line in block.body.splitlines()
            if line.startswith("$ ")
        ]
        indented = re.findall(r"^ {4}(\S.*)$", self.prose, flags=re.MULTILINE)
        return typed + indented + re.findall(r"`([^`\n]+)`", self.prose)

    @property
    def links(self) -> list[str]:
        """Targets of links and pictures that are not elsewhere on the web."""
        return re.findall(r"\]\((?!https?:)([^)\s]+)\)", self.prose)

    @property
    def anchors(self) -> set[str]:
        """The ids that headings get."""
        headings = re.findall(r"^#+ (.+)$", self.prose, flags=re.MULTILINE)
        plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
        return {re.sub(r"[\s-]+", "-", words) for words in plain}


def _title(options: str) -> str | None:
    found = re.search(r'title="([^"]+)"', options)
    return found[1] if found else None


def docs_pages() -> list[Page]:
    """The pages of the documentation that people wrote."""
    return [Page(path) for path in sorted(DOCS.rglob("*.md")) if path not in GENERATED]


def repository_pages() -> list[Page]:
    """The pages at the top of the repository."""
    return [Page(path) for path in sorted(ROOT.glob("*.md"))]
