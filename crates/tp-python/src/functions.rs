//! Small functions.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use tp_core::drops::DropReason;
use tp_core::layout::TABLES;
use tp_core::uri::{RegionUri, UriError};

use crate::border::{SharedBytes, buffer_of, released};
use crate::errors;

fn uri_error(py: Python<'_>, what: &str, failure: &UriError) -> PyErr {
    let message = format!("{what:?} is not a region URI: {failure}");
    errors::REGION_URI.new_err(py, message, Some(errors::URI_HINT))
}

/// Takes a region URI apart: `(path, require_hugepages)`.
#[pyfunction]
pub fn parse_region_uri(py: Python<'_>, uri: &str) -> PyResult<(String, bool)> {
    let parsed = RegionUri::parse(uri).map_err(|failure| uri_error(py, uri, &failure))?;
    Ok((parsed.path, parsed.require_hugepages))
}

/// The region URI of a path.
#[pyfunction]
#[pyo3(signature = (path, *, require_hugepages = false))]
pub fn format_region_uri(py: Python<'_>, path: &str, require_hugepages: bool) -> PyResult<String> {
    RegionUri::format(path, require_hugepages).map_err(|failure| uri_error(py, path, &failure))
}

/// CRC32C of a contiguous buffer, continuing `crc`.
#[pyfunction]
#[pyo3(signature = (data, crc = 0, /))]
pub fn crc32c(py: Python<'_>, data: &Bound<'_, PyAny>, crc: u32) -> PyResult<u32> {
    let buffer = buffer_of(data)?;
    if !buffer.is_c_contiguous() {
        return Err(errors::TENSOR_LAYOUT.new_err(py, "the buffer is not contiguous", None));
    }
    let source = SharedBytes::of(&buffer);
    let sum = || {
        let mut crc = crc;
        source.for_each_block(|block| crc = tp_core::crc::crc32c_append(crc, block));
        crc
    };
    Ok(if source.len() >= 1 << 16 { released(py, sum) } else { sum() })
}

/// The offsets that Rust uses, for the comparison with the schemas:
/// `[(message, schema id, template id, block length, [(field, offset, size), ...]), ...]`.
#[pyfunction]
pub fn hot_layouts(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let tables = TABLES.iter().map(|table| {
        let fields: Vec<_> =
            table.fields.iter().map(|field| (field.name, field.offset, field.size)).collect();
        (table.message, table.schema_id, table.template_id, table.block_length, fields)
    });
    PyList::new(py, tables.collect::<Vec<_>>())
}

/// The names of all drop reasons.
pub fn drop_reasons(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    PyTuple::new(py, DropReason::ALL.iter().map(|reason| reason.label()))
}
