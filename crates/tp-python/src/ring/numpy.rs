//! The few NumPy functions that the glue calls.
//!
//! NumPy is imported when the first reader or writer is made: not with the module, which must stay cheap, and
//! not with the first frame, which could be overwritten meanwhile.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use tp_core::tensor::{Dtype, MajorOrder, Tensor};

use super::buffers::View;

fn numpy(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Ok(NUMPY.get_or_try_init(py, || py.import("numpy").map(Bound::unbind))?.bind(py))
}

/// Imports NumPy now.
pub fn load(py: Python<'_>) -> PyResult<()> {
    numpy(py).map(drop)
}

/// NumPy's name of an element type.
pub const fn dtype_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::U8 | Dtype::Bytes | Dtype::Bit => "uint8",
        Dtype::I8 => "int8",
        Dtype::U16 => "uint16",
        Dtype::I16 => "int16",
        Dtype::U32 => "uint32",
        Dtype::I32 => "int32",
        Dtype::U64 => "uint64",
        Dtype::I64 => "int64",
        Dtype::F32 => "float32",
        Dtype::F64 => "float64",
        Dtype::Boolean => "bool",
    }
}

/// An array over the buffer that `owner` exports.
pub fn view<'py>(owner: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = owner.py();
    let asarray =
        ASARRAY.get_or_try_init(py, || numpy(py)?.getattr(intern!(py, "asarray")).map(Bound::unbind))?;
    asarray.bind(py).call1((owner,))
}

/// A new array that can hold a copy of a tensor's bytes, strides included.
pub fn empty_like<'py>(py: Python<'py>, tensor: &Tensor, view: &View) -> PyResult<EmptyArray<'py>> {
    let shape = PyTuple::new(py, view.shape())?;
    let empty = numpy(py)?.getattr(intern!(py, "empty"))?;
    if tensor.is_contiguous() {
        let options = PyDict::new(py);
        let order = if tensor.order == MajorOrder::Row { "C" } else { "F" };
        options.set_item(intern!(py, "dtype"), dtype_name(tensor.dtype))?;
        options.set_item(intern!(py, "order"), order)?;
        let array = empty.call((shape,), Some(&options))?;
        return Ok(EmptyArray { memory: array.clone(), array });
    }
    // With gaps the copy keeps them: one block of bytes and an array with the same strides over it.
    let memory = empty.call1((tensor.extent_bytes(), "uint8"))?;
    let options = PyDict::new(py);
    options.set_item("buffer", &memory)?;
    options.set_item("strides", PyTuple::new(py, view.strides())?)?;
    let array = numpy(py)?.getattr("ndarray")?.call((shape, dtype_name(tensor.dtype)), Some(&options))?;
    Ok(EmptyArray { memory, array })
}

/// A new array and the memory behind it.
pub struct EmptyArray<'py> {
    /// What to copy into.
    pub memory: Bound<'py, PyAny>,
    /// What to hand out.
    pub array: Bound<'py, PyAny>,
}
