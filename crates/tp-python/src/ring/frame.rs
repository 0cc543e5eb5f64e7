//! A frame in Python's hands.

use std::ffi::c_int;
use std::sync::Arc;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tp_aeron::OwnerProcess;
use tp_core::drops::{DropCounters, DropReason};
use tp_core::ring::Borrowed;
use tp_core::slot::FrameRecord;
use tp_core::tensor::MajorOrder;

use super::buffers::{Target, View};
use super::check_owner;
use super::writer::RELEASE_GIL_BYTES;
use super::{dlpack, numpy};
use crate::border::released;
use crate::errors;

/// Where the payload is.
pub enum Payload {
    /// In shared memory, where the producer may overwrite it any time.
    Borrowed(Borrowed),
    /// In private memory, whole and checked.
    Owned(FrameRecord, AlignedBytes),
}

impl Payload {
    fn record(&self) -> &FrameRecord {
        match self {
            Self::Borrowed(frame) => frame.record(),
            Self::Owned(record, _) => record,
        }
    }

    fn data(&self) -> *mut u8 {
        match self {
            // Nobody looks at the address of an empty tensor, but it must not be null.
            Self::Borrowed(frame) => {
                frame.payload().unwrap_or(std::ptr::NonNull::<u64>::dangling().as_ptr().cast()).cast_mut()
            }
            Self::Owned(_, bytes) => bytes.words.as_ptr().cast_mut().cast(),
        }
    }
}

/// Private memory, aligned for every element type.
pub struct AlignedBytes {
    words: Vec<u64>,
    len: usize,
}

impl AlignedBytes {
    /// Of `len` zeros.
    pub fn new(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(8)], len }
    }
}

impl AsMut<[u8]> for AlignedBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the words have at least `len` initialised bytes.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.len) }
    }
}

/// One frame: what it is, and a read-only view of its payload.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct Frame {
    payload: Payload,
    view: View,
    owner: OwnerProcess,
    stream_id: u32,
    epoch: u64,
    /// Of the reader that found it, so that a frame overwritten while in use is counted there.
    drops: Arc<DropCounters>,
    usable_bytes: Option<u32>,
}

impl Frame {
    pub(crate) fn new(
        payload: Payload,
        owner: OwnerProcess,
        stream_id: u32,
        epoch: u64,
        drops: Arc<DropCounters>,
    ) -> Self {
        let view = View::of(&payload.record().header.tensor);
        Self { payload, view, owner, stream_id, epoch, drops, usable_bytes: None }
    }

    /// A frame of which only the first bytes are there yet.
    pub(crate) fn provisional(self, usable_bytes: u32) -> Self {
        Self { usable_bytes: Some(usable_bytes), ..self }
    }

    fn record(&self) -> &FrameRecord {
        self.payload.record()
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        check_owner(py, self.owner, "frame")
    }

    fn len(&self) -> usize {
        self.record().header.values_len_bytes as usize
    }

    /// Copies and checks; counts and tells when the frame was overwritten.
    fn copy_checked(&self, py: Python<'_>, target: &Target) -> bool {
        let copy = || match &self.payload {
            Payload::Borrowed(frame) => frame.copy_to(target.bytes(self.len())),
            Payload::Owned(_, bytes) => {
                // SAFETY: initialised, and nobody writes to it any more.
                let from = unsafe { std::slice::from_raw_parts(bytes.words.as_ptr().cast(), bytes.len) };
                target.bytes(self.len()).copy_from_slice(from);
                true
            }
        };
        let whole = if self.len() >= RELEASE_GIL_BYTES { released(py, copy) } else { copy() };
        if !whole {
            self.drops.count(DropReason::ChangedWhileReading);
        }
        whole
    }

    fn overwritten(&self, py: Python<'_>) -> PyErr {
        let message = format!("frame {} was overwritten while it was in use", self.record().seq);
        let hint = "copy() it first, work faster, or give the stream more slots";
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
        matches!(self.payload, Payload::Borrowed(_))
    }

    /// For a frame that is still being written: how many bytes from the start mean something. Else `None`.
    #[getter]
    fn usable_bytes(&self) -> Option<u32> {
        self.usable_bytes
    }

    /// Is the payload still the frame's? Ask after using it.
    fn still_valid(&self, py: Python<'_>) -> PyResult<bool> {
        self.check(py)?;
        Ok(match &self.payload {
            Payload::Borrowed(frame) => frame.still_valid(),
            Payload::Owned(..) => true,
        })
    }

    /// A read-only array over the payload, without a copy.
    #[getter]
    fn array<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        numpy::view(slf.as_any())
    }

    /// A private array with the frame's values.
    fn copy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.check(py)?;
        let header = &self.record().header;
        let empty = numpy::empty_like(py, &header.tensor, &self.view, header.values_len_bytes)?;
        let target = Target::new(&empty.memory, self.len())?;
        if self.copy_checked(py, &target) { Ok(empty.array) } else { Err(self.overwritten(py)) }
    }

    /// Copies the payload's bytes into a writable, contiguous buffer; false when the frame was overwritten meanwhile.
    fn copy_into(&self, py: Python<'_>, out: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.check(py)?;
        let target = Target::new(out, self.len())?;
        Ok(self.copy_checked(py, &target))
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        numpy::view(slf.as_any())
    }

    /// Raises `FrameOverwrittenError` when what was computed can't be trusted (and nothing else was raised).
    #[pyo3(signature = (kind, *_rest))]
    fn __exit__(&self, py: Python<'_>, kind: &Bound<'_, PyAny>, _rest: &Bound<'_, PyTuple>) -> PyResult<()> {
        if self.still_valid(py)? {
            return Ok(());
        }
        self.drops.count(DropReason::ChangedWhileReading);
        if kind.is_none() { Err(self.overwritten(py)) } else { Ok(()) }
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        this.check(slf.py())?;
        // SAFETY: the view comes from the interpreter; payload and shape live as long as this object.
        unsafe { this.view.export(view, flags, this.payload.data(), true, slf.clone().into_any()) }
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
        this.check(py)?;
        let refuse = |why: &'static str| Err(pyo3::exceptions::PyBufferError::new_err(why));
        if stream.is_some_and(|stream| !stream.is_none())
            || dl_device.is_some_and(|device| device != dlpack::DEVICE)
        {
            return refuse("frames live in host memory");
        }
        if copy == Some(true) {
            return refuse("frames are exported without a copy; use copy() first");
        }
        dlpack::capsule(slf.as_any(), &this.record().header.tensor, this.payload.data(), max_version)
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
