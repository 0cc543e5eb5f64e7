//! A frame in Python's hands.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use tp_core::drops::DropReason;
use tp_core::ring::{AnyFrame, Geometry};
use tp_core::slot::FrameRecord;
use tp_core::tensor::MajorOrder;

use super::buffers::{Target, View};
use super::messages::FrameDescriptor;
use super::reader::RingReader;
use super::writer::RELEASE_GIL_BYTES;
use super::{arrays, dlpack};
use crate::border::released;
use crate::errors;

/// One frame: what it is, and a read-only view of its payload.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct Frame {
    frame: AnyFrame,
    view: View,
    /// What it was read with.
    reader: Py<RingReader>,
    /// Whether it was whole after its first use (decision M17).
    judged: OnceLock<bool>,
    /// Was it counted as a drop?
    dropped: AtomicBool,
    info: OnceLock<Py<PyAny>>,
}

impl Frame {
    pub(crate) fn new(frame: AnyFrame, reader: Py<RingReader>) -> Self {
        let view = View::of(&frame.record().header.tensor);
        let (judged, dropped) = (OnceLock::new(), AtomicBool::new(false));
        Self { frame, view, reader, judged, dropped, info: OnceLock::new() }
    }

    /// The frame itself, while its ring may be believed.
    pub(crate) fn source(&self) -> Option<&AnyFrame> {
        (!self.is_revoked()).then_some(&self.frame)
    }

    /// The numbers of its ring.
    pub(crate) fn geometry(&self) -> &Geometry {
        self.reader.get().geometry()
    }

    /// Notes whether it was whole after its use.
    pub(crate) fn judge_after(&self, valid: bool) {
        self.judge_use(valid);
    }

    /// What it was read with.
    pub(super) fn ring(&self) -> &RingReader {
        self.reader.get()
    }

    /// The first judgement counts.
    fn judge(&self, valid: bool) -> bool {
        let reader = self.reader.get();
        if self.judged.set(valid).is_ok() {
            reader.received().count_judged(valid);
        }
        if !valid && !self.is_revoked() {
            reader.note_lost(self.record().seq);
        }
        valid
    }

    /// Like `judge`, and a frame that was lost in its first use counts as a drop, once.
    fn judge_use(&self, valid: bool) -> bool {
        self.judge(valid);
        let was_whole = self.judged.get() == Some(&true);
        if !valid && !was_whole && !self.is_revoked() && !self.dropped.swap(true, Ordering::Relaxed) {
            self.reader.get().count_drop(DropReason::ChangedWhileReading);
        }
        valid
    }

    /// What became of a frame whose ring was given up can't be known any more.
    pub(super) fn judge_unless_closed(&self, py: Python<'_>) {
        if self.judged.get().is_none() && !self.reader.get().closed(py) {
            self.judge(self.is_valid());
        }
    }

    /// Does the frame lie in a ring that must not be looked at any more? A private copy never does.
    fn is_revoked(&self) -> bool {
        self.borrowed() && self.reader.get().is_revoked()
    }

    /// Whether what was computed from the frame counts.
    fn is_valid(&self) -> bool {
        !self.is_revoked() && self.frame.still_valid()
    }

    /// What programs do first with a frame: they look at an array, and ask whether it was whole. Nothing is counted.
    pub(super) fn rehearse(slf: &Bound<'_, Self>) {
        if slf.get().is_valid() {
            let _ = Self::view(slf, false).and_then(|array| array.get_item(0));
        }
    }

    /// An array over the payload.
    fn view<'py>(slf: &Bound<'py, Self>, writable: bool) -> PyResult<Bound<'py, PyAny>> {
        let this = slf.get();
        // SAFETY: the payload is as long as the tensor, and mapped as long as the frame lives. (The mapping itself is
        // read-only, whatever the array says: writing to it is a fault, not a data race.)
        unsafe { arrays::view(slf.clone().into_any(), &this.view, this.data(), writable) }
    }

    /// An error unless the payload may be looked at.
    fn check_readable(&self, py: Python<'_>) -> PyResult<()> {
        self.check(py)?;
        // What is known to be lost is not handed out. What is handed out may be lost the moment after.
        if self.is_valid() {
            return Ok(());
        }
        self.judge_use(false);
        Err(self.overwritten(py))
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
        self.reader.get().check_for(py, "frame")
    }

    fn len(&self) -> usize {
        self.record().header.values_len_bytes as usize
    }

    /// Bytes up to the end of the last element; what the payload has behind them is padding (decision M4).
    fn extent(&self) -> usize {
        self.record().header.tensor.extent_bytes() as usize
    }

    /// Copies as much as fits, checks and judges.
    fn copy_checked(&self, py: Python<'_>, target: &mut [u8]) -> bool {
        if self.is_revoked() {
            return self.judge(false);
        }
        let len = self.len().min(target.len());
        let mut copy = || self.frame.copy_to(&mut target[..len]);
        let whole = if len >= RELEASE_GIL_BYTES { released(py, copy) } else { copy() };
        self.judge_use(whole && !self.is_revoked())
    }

    fn overwritten(&self, py: Python<'_>) -> PyErr {
        let seq = self.record().seq;
        let (message, hint) = if self.is_revoked() {
            (
                format!(
                    "the ring of frame {seq} was given up while the frame was in use: \
                     its epoch or our lease ended"
                ),
                "nobody vouches for it any more, overwritten or not: catch this and poll again, or copy() it",
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
        self.reader.get().identity().0
    }

    #[getter]
    fn epoch(&self) -> u64 {
        self.reader.get().identity().1
    }

    #[getter]
    pub(super) fn seq(&self) -> u64 {
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
        arrays::dtype_name(self.record().header.tensor.dtype)
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
        Ok(self.judge(self.is_valid()))
    }

    /// A read-only array over the payload, without a copy.
    #[getter]
    fn array<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().check_readable(slf.py())?;
        Self::view(slf, false)
    }

    /// Like `array`, but not marked read-only: for libraries that know no such mark. Writing to it ends the program.
    #[getter]
    fn unmarked_array<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().check_readable(slf.py())?;
        Self::view(slf, true)
    }

    /// A private array with the frame's values.
    fn copy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.check_readable(py)?;
        let header = &self.record().header;
        let mut copy = arrays::empty_like(py, &header.tensor, &self.view)?;
        if self.copy_checked(py, copy.bytes()) { Ok(copy.array) } else { Err(self.overwritten(py)) }
    }

    /// Copies as much of the payload as fits into a writable, contiguous buffer, which must have room for all elements;
    /// false when the frame was overwritten meanwhile.
    fn copy_into(&self, py: Python<'_>, out: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.check(py)?;
        let mut target = Target::new(out, self.extent())?;
        Ok(self.copy_checked(py, target.bytes()))
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::array(slf)
    }

    /// Raises `FrameOverwrittenError` when what was computed can't be trusted (and nothing else was raised).
    #[pyo3(signature = (kind, _value = None, _traceback = None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.check(py)?;
        if self.judge_use(self.is_valid()) {
            return Ok(());
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

    /// NumPy asks this before it asks for the buffer, and takes errors for what they are.
    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        arrays::converted(Self::array(slf)?, dtype, copy)
    }

    /// The frame as a PyTorch tensor.
    #[pyo3(signature = (device = None, *, copy = true))]
    fn torch<'py>(
        slf: &Bound<'py, Self>,
        device: Option<Bound<'py, PyAny>>,
        copy: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let options = PyDict::new(py);
        options.set_item("device", device)?;
        options.set_item("copy", copy)?;
        py.import("tensor_pool.interop.torch")?.getattr("from_frame")?.call((slf,), Some(&options))
    }

    /// What is known of the frame besides its values.
    #[getter]
    fn info<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static DESCRIBE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let (py, this) = (slf.py(), slf.get());
        if let Some(info) = this.info.get() {
            return Ok(info.bind(py).clone());
        }
        let info = DESCRIBE.import(py, "tensor_pool.pool.frame", "describe")?.call1((slf,))?;
        Ok(this.info.get_or_init(|| info.unbind()).bind(py).clone())
    }

    /// What its descriptor said, if that was received.
    #[getter]
    fn descriptor(&self, py: Python<'_>) -> PyResult<Option<FrameDescriptor>> {
        let reader = self.reader.get();
        match reader.received().descriptors(py) {
            Some(log) => log.get().find_unless_closed(py, reader.identity().1, self.seq()),
            None => Ok(None),
        }
    }

    #[getter]
    fn reader(&self, py: Python<'_>) -> Py<RingReader> {
        self.reader.clone_ref(py)
    }

    #[getter]
    fn get_registration<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.reader.get().received().registration(py)
    }

    #[setter]
    fn set_registration(&self, py: Python<'_>, registration: Option<Py<PyAny>>) {
        self.reader.get().received().set_registration(py, registration);
    }

    fn __repr__(&self) -> String {
        format!(
            "<Frame {} of stream {}: {} {:?}>",
            self.record().seq,
            self.stream_id(),
            self.dtype(),
            self.view.shape()
        )
    }
}
