//! A frame in Python's hands.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tp_aeron::OwnerProcess;
use tp_core::drops::{DropCounters, DropReason};
use tp_core::ring::AnyFrame;
use tp_core::slot::FrameRecord;
use tp_core::tensor::MajorOrder;

use super::buffers::{Target, View};
use super::check_owner;
use super::writer::RELEASE_GIL_BYTES;
use super::{dlpack, numpy};
use crate::border::released;
use crate::errors;

/// One frame: what it is, and a read-only view of its payload.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct Frame {
    frame: AnyFrame,
    view: View,
    owner: OwnerProcess,
    stream_id: u32,
    epoch: u64,
    /// Of the reader that found it, so that a frame overwritten while in use is counted there.
    drops: Arc<DropCounters>,
    /// Set by that reader when the ring must not be believed, or touched, any more.
    revoked: Arc<AtomicBool>,
}

impl Frame {
    pub(crate) fn new(
        frame: AnyFrame,
        owner: OwnerProcess,
        stream_id: u32,
        epoch: u64,
        drops: Arc<DropCounters>,
        revoked: Arc<AtomicBool>,
    ) -> Self {
        let view = View::of(&frame.record().header.tensor);
        Self { frame, view, owner, stream_id, epoch, drops, revoked }
    }

    /// Does the frame lie in a ring that must not be looked at any more? A private copy never does.
    fn is_revoked(&self) -> bool {
        self.borrowed() && self.revoked.load(Ordering::Acquire)
    }

    /// Whether what was computed from the frame counts.
    fn is_valid(&self) -> bool {
        !self.is_revoked() && self.frame.still_valid()
    }

    /// An error unless the payload may be looked at.
    fn check_readable(&self, py: Python<'_>) -> PyResult<()> {
        self.check(py)?;
        if self.is_revoked() { Err(self.overwritten(py)) } else { Ok(()) }
    }

    fn record(&self) -> &FrameRecord {
        self.frame.record()
    }

    /// Address of the payload. Nobody looks at that of an empty tensor, but it must not be null.
    fn data(&self) -> *mut u8 {
        let nowhere = std::ptr::NonNull::<u64>::dangling().as_ptr().cast_const().cast();
        self.frame.payload().unwrap_or(nowhere).cast_mut()
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        check_owner(py, self.owner, "frame")
    }

    fn len(&self) -> usize {
        self.record().header.values_len_bytes as usize
    }

    /// Bytes up to the end of the last element; what the payload has behind them is padding (decision M4).
    fn extent(&self) -> usize {
        self.record().header.tensor.extent_bytes() as usize
    }

    /// Copies and checks; counts and tells when the frame was overwritten.
    fn copy_checked(&self, py: Python<'_>, target: &Target) -> bool {
        if self.is_revoked() {
            return false;
        }
        let len = self.len().min(target.len());
        let copy = || self.frame.copy_to(target.bytes(len));
        let whole = if len >= RELEASE_GIL_BYTES { released(py, copy) } else { copy() };
        if !whole {
            self.drops.count(DropReason::ChangedWhileReading);
        }
        whole && !self.is_revoked()
    }

    fn overwritten(&self, py: Python<'_>) -> PyErr {
        let seq = self.record().seq;
        let (message, hint) = if self.is_revoked() {
            (
                format!("the ring of frame {seq} was given up while the frame was in use"),
                "copy() frames that must outlive their stream's epoch",
            )
        } else {
            (
                format!("frame {seq} was overwritten while it was in use"),
                "copy() it first, work faster, or give the stream more slots",
            )
        };
        errors::FRAME_OVERWRITTEN.new_err(py, message, Some(hint))
    }
}

#[pymethods]
impl Frame {
    #[getter]
    fn stream_id(&self) -> u32 {
        self.stream_id
    }

    #[getter]
    fn epoch(&self) -> u64 {
        self.epoch
    }

    #[getter]
    fn seq(&self) -> u64 {
        self.record().seq
    }

    #[getter]
    fn timestamp_ns(&self) -> u64 {
        self.record().header.timestamp_ns
    }

    #[getter]
    fn meta_version(&self) -> u32 {
        self.record().header.meta_version
    }

    /// NumPy's name of the element type.
    #[getter]
    fn dtype(&self) -> &'static str {
        numpy::dtype_name(self.record().header.tensor.dtype)
    }

    /// The element type as the wire numbers it.
    #[getter]
    fn wire_dtype(&self) -> i16 {
        self.record().header.tensor.dtype as i16
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

    /// "C" for row-major, "F" for column-major.
    #[getter]
    fn order(&self) -> &'static str {
        if self.record().header.tensor.order == MajorOrder::Row { "C" } else { "F" }
    }

    /// Length of the payload.
    #[getter]
    fn nbytes(&self) -> usize {
        self.len()
    }

    /// Is the payload still in shared memory?
    #[getter]
    fn borrowed(&self) -> bool {
        matches!(self.frame, AnyFrame::Borrowed(_))
    }

    /// Is the payload still the frame's? Ask after using it.
    fn still_valid(&self, py: Python<'_>) -> PyResult<bool> {
        self.check(py)?;
        Ok(self.is_valid())
    }

    /// A read-only array over the payload, without a copy.
    #[getter]
    fn array<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        // Asked here too: NumPy makes something else of an object whose buffer it can't have.
        slf.get().check_readable(slf.py())?;
        numpy::view(slf.as_any())
    }

    /// A private array with the frame's values.
    fn copy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.check_readable(py)?;
        let header = &self.record().header;
        let empty = numpy::empty_like(py, &header.tensor, &self.view)?;
        let target = Target::new(&empty.memory, self.extent())?;
        if self.copy_checked(py, &target) { Ok(empty.array) } else { Err(self.overwritten(py)) }
    }

    /// Copies as much of the payload as fits into a writable, contiguous buffer, which must have room for all elements;
    /// false when the frame was overwritten meanwhile.
    fn copy_into(&self, py: Python<'_>, out: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.check(py)?;
        let target = Target::new(out, self.extent())?;
        Ok(self.copy_checked(py, &target))
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::array(slf)
    }

    /// Raises `FrameOverwrittenError` when what was computed can't be trusted (and nothing else was raised).
    #[pyo3(signature = (kind, *_rest))]
    fn __exit__(&self, py: Python<'_>, kind: &Bound<'_, PyAny>, _rest: &Bound<'_, PyTuple>) -> PyResult<()> {
        if self.still_valid(py)? {
            return Ok(());
        }
        if !self.is_revoked() {
            self.drops.count(DropReason::ChangedWhileReading);
        }
        if kind.is_none() { Err(self.overwritten(py)) } else { Ok(()) }
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        this.check_readable(slf.py())?;
        // SAFETY: the view comes from the interpreter; payload and shape live as long as this object.
        unsafe { this.view.export(view, flags, this.data(), true, slf.clone().into_any()) }
    }

    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        this.check_readable(py)?;
        let refuse = |why: &'static str| Err(pyo3::exceptions::PyBufferError::new_err(why));
        if stream.is_some_and(|stream| !stream.is_none())
            || dl_device.is_some_and(|device| device != dlpack::DEVICE)
        {
            return refuse("frames live in host memory");
        }
        if copy == Some(true) {
            return refuse("frames are exported without a copy; use copy() first");
        }
        dlpack::capsule(slf.as_any(), &this.record().header.tensor, this.data(), max_version)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::DEVICE
    }

    fn __repr__(&self) -> String {
        format!(
            "<Frame {} of stream {}: {} {:?}>",
            self.record().seq,
            self.stream_id,
            self.dtype(),
            self.view.shape()
        )
    }
}
