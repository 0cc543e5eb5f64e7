"""The schema compiler: SBE XML in, layouts out."""

from tensor_pool.wire.schema.compiler import (
    SCHEMA_NAMES,
    Schema,
    compile_schema,
    compiled_layout,
    load_schema,
)
from tensor_pool.wire.schema.layout import (
    BlockLayout,
    ConstantLayout,
    DataLayout,
    EnumLayout,
    FieldLayout,
    GroupLayout,
    MessageLayout,
    Primitive,
    snake_case,
)

__all__ = [
    # compiling
    "SCHEMA_NAMES",
    "Schema",
    "compile_schema",
    "compiled_layout",
    "load_schema",
    # what comes out
    "BlockLayout",
    "ConstantLayout",
    "DataLayout",
    "EnumLayout",
    "FieldLayout",
    "GroupLayout",
    "MessageLayout",
    "Primitive",
    "snake_case",
]
