"""What the guide says of the format is what the code writes."""

from __future__ import annotations

from doc_pages import DOCS, Page
from tensor_pool.pipeline.record.consumers import RecordedConsumer
from tensor_pool.pipeline.record.formats import FORMATS
from tensor_pool.pipeline.record.rows import SCHEMA

GUIDE = Page(DOCS / "guides" / "recordings.md")


def first_column(header: str) -> list[str]:
    _, _, rest = GUIDE.prose.partition(header)
    return [row.split("|")[1].strip(" `") for row in rest.partition("\n\n")[0].splitlines()[2:]]


def test_every_column_of_a_segment_is_explained():
    assert first_column("| column |") == SCHEMA.names


def test_every_entry_of_a_consumer_is_explained():
    names = [name.strip(" `") for cell in first_column("| entry |") for name in cell.split(",")]
    assert names == list(RecordedConsumer.__struct_fields__)


def test_every_format_is_explained():
    assert set(first_column("| format |")) == set(FORMATS)
