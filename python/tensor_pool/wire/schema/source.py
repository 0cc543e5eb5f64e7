"""Reads the XML of a schema into a small tree, and from its elements what the compiler asks for.

A schema is read each time the package is imported, so this stands directly on expat, which needs a third of
a millisecond to import. Document types are refused: they are where XML gets expensive and dangerous.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn
from xml.parsers import expat

from tensor_pool.errors import SchemaError

if TYPE_CHECKING:
    from tensor_pool.wire.schema.layout import Primitive

__all__ = ["Element", "SchemaSource", "parse_xml"]

_MAX_DEPTH: Final = 32
_MAX_DIGITS: Final = 20  # of a 64-bit number

# Attributes that any element may have; they explain and change no byte.
_EXPLANATORY: Final = frozenset({"description"})


class Element:
    """One XML element: its tag without the namespace, attributes, children, text and line.

    Example:
        >>> root = parse_xml("<types><type name='a'/></types>", "example.xml")
        >>> root.tag, root.children[0].attributes, root.children[0].line
        ('types', {'name': 'a'}, 1)
    """

    __slots__ = ("attributes", "children", "line", "tag", "text")

    def __init__(self, tag: str, attributes: dict[str, str], line: int) -> None:
        self.tag = tag
        self.attributes = attributes
        self.line = line
        self.children: list[Element] = []
        self.text = ""


def parse_xml(xml: str | bytes, source: str) -> Element:
    """The root element of a document.

    Args:
        xml: The document.
        source: What errors call it, usually a file name.

    Raises:
        SchemaError: Not well-formed, nested too deeply, or with a document type.
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    roots: list[Element] = []
    open_elements: list[Element] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        if len(open_elements) == _MAX_DEPTH:
            raise SchemaError(
                f"{source}:{parser.CurrentLineNumber}: nested more than {_MAX_DEPTH} levels deep"
            )
        element = Element(name.rpartition(" ")[2], attributes, parser.CurrentLineNumber)
        (open_elements[-1].children if open_elements else roots).append(element)
        open_elements.append(element)

    def end(_name: str) -> None:
        open_elements.pop()

    def text(content: str) -> None:
        open_elements[-1].text += content

    def refuse_document_type(*_: object) -> None:
        raise SchemaError(f"{source}: a schema has no document type", hint="remove the <!DOCTYPE ...> line")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = refuse_document_type
    try:
        parser.Parse(xml, True)
    except expat.ExpatError as e:
        raise SchemaError(f"{source}:{e.lineno}: not well-formed XML: {expat.ErrorString(e.code)}") from None
    except SchemaError:
        raise
    except (ValueError, LookupError) as e:  # text or an encoding declaration that expat can't work with
        raise SchemaError(f"{source}: not readable as XML: {e}") from None
    return roots[0]


class SchemaSource:
    """Reads attributes of elements of one schema file.

    Args:
        name: What errors call the file.

    Example:
        >>> source = SchemaSource("example.xml")
        >>> source.number(parse_xml('<field id="7"/>', source.name), "id", maximum=65535)
        7
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def refuse(self, element: Element, problem: str, *, hint: str | None = None) -> NoReturn:
        """Raises a SchemaError that names the file, the line and the element."""
        label = element.attributes.get("name", "")
        raise SchemaError(f"{self.name}:{element.line}: <{element.tag}> {label}: {problem}", hint=hint)

    def allow(self, element: Element, *attributes: str, children: tuple[str, ...] = ()) -> None:
        """Refuses attributes and children that the compiler would otherwise have to ignore."""
        for attribute in element.attributes:
            if attribute not in attributes and attribute not in _EXPLANATORY:
                self.refuse(element, f"attribute {attribute!r} is not allowed here")
        for child in element.children:
            if child.tag not in children:
                self.refuse(child, f"not allowed inside <{element.tag}>")

    def identifier(self, element: Element) -> str:
        """The attribute ``name``."""
        name = element.attributes.get("name", "")
        if not (name.isidentifier() and name.isascii()):
            self.refuse(element, "needs a name made of letters, digits and underscores")
        return name

    def number(self, element: Element, attribute: str, *, maximum: int, default: int | None = None) -> int:
        """A non-negative number in an attribute."""
        text = element.attributes.get(attribute)
        if text is None and default is not None:
            return default
        if text is None:
            self.refuse(element, f"needs the attribute {attribute!r}")
        value = self.parse(element, text)
        if not 0 <= value <= maximum:
            self.refuse(element, f"{attribute} {value} is not between 0 and {maximum}")
        return value

    def value_of(self, element: Element, text: str, primitive: Primitive) -> int:
        """A number that must fit a primitive."""
        value = self.parse(element, text)
        if not primitive.minimum <= value <= primitive.maximum:
            self.refuse(element, f"{value} does not fit {primitive.name}")
        return value

    def parse(self, element: Element, text: str) -> int:
        """A decimal number, perhaps negative."""
        text = text.strip()
        digits = text.removeprefix("-")
        if not (digits.isdecimal() and digits.isascii() and len(digits) <= _MAX_DIGITS):
            self.refuse(element, f"{text!r} is not a whole number")
        return int(text)
