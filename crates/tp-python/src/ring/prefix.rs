//! The first part of a frame that its producer is still writing.

use std::ffi::c_int;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tp_core::ring::{AlignedBytes, PrefixRead};
use tp_core::slot::FrameRecord;

use super::arrays;
use super::buffers::View;
use super::reader::RingReader;

/// A private copy of what there is of a frame. Not a `Frame`: the rest may never come (decision M5).
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct FramePrefix {
    prefix: PrefixRead,
    bytes: AlignedBytes,
    view: View,
    /// What it was read with.
    reader: Py<RingReader>,
}

impl FramePrefix {
    pub(crate) fn new(prefix: PrefixRead, bytes: AlignedBytes, reader: Py<RingReader>) -> Self {
        let view = View::of(&prefix.record().header.tensor);
        Self { prefix, bytes, view, reader }
    }

    fn record(&self) -> &FrameRecord {
        self.prefix.record()
    }

    fn data(&self) -> *mut u8 {
        self.bytes.as_ref().as_ptr().cast_mut()
    }
}

#[pymethods]
impl FramePrefix {
    #[getter]
    fn seq(&self) -> u64 {
        self.record().seq
    }

    /// How many bytes from the start mean something; the rest of the array is zero.
    #[getter]
    fn usable_bytes(&self) -> u32 {
        self.prefix.usable_bytes
    }

    /// Length of the whole payload.
    #[getter]
    fn nbytes(&self) -> u32 {
        self.record().header.values_len_bytes
    }

    /// NumPy's name of the element type.
    #[getter]
    fn dtype(&self) -> &'static str {
        arrays::dtype_name(self.record().header.tensor.dtype)
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.view.shape())
    }

    /// In bytes.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.view.strides())
    }

    /// A read-only array of the whole shape.
    #[getter]
    fn array<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let this = slf.get();
        // SAFETY: the bytes are a tensor of this shape, and this object's.
        unsafe { arrays::view(slf.clone().into_any(), &this.view, this.data(), false) }
    }

    /// What became of the frame: `"in_progress"`, `"committed"` or `"gone"`.
    fn state(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.reader.get().check_for(py, "frame prefix")?;
        if self.reader.get().is_revoked() {
            return Ok("gone");
        }
        let commit = self.prefix.commit();
        Ok(match commit.seq() == self.record().seq {
            true if commit.is_committed() => "committed",
            true => "in_progress",
            false => "gone",
        })
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        // SAFETY: the view comes from the interpreter; bytes and shape live as long as this object.
        unsafe { this.view.export(view, flags, this.data(), true, slf.clone().into_any()) }
    }

    fn __repr__(&self) -> String {
        let (seq, usable, all) = (self.record().seq, self.prefix.usable_bytes, self.nbytes());
        format!("<FramePrefix of frame {seq}: {usable} of {all} bytes>")
    }
}
