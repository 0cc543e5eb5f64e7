//! A slot that is written in place.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use tp_aeron::OwnerProcess;
use tp_core::layout::payload_offset;
use tp_core::region::Mapping;
use tp_core::slot::FrameHeader;

use super::arrays;
use super::check_owner;
use super::layout::Layout;
use super::writer::{FrameArguments, SharedPublisher};
use crate::border::{call_back, lock};
use crate::errors;

/// A slot that is being filled. Committed or aborted exactly once.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct Claim {
    publisher: SharedPublisher,
    owner: OwnerProcess,
    claim: tp_core::ring::Claim,
    layout: Arc<Layout>,
    frame: FrameArguments,
    /// Keeps the payload mapped, also after the writer is closed.
    memory: Py<PoolMemory>,
    finished: AtomicBool,
    /// The array that was handed out: made read-only once the slot is no longer ours.
    array: Mutex<Option<Py<PyAny>>>,
    /// Somebody in Python who follows what becomes of it, and rings the bell in our stead.
    observer: Option<Py<PyAny>>,
    /// Does the ring belong to a lease, which may end meanwhile?
    leased: bool,
}

/// Keeps a pool mapped for arrays. Not the claim itself: that keeps its array, and they would keep each other.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct PoolMemory(Arc<Mapping>);

impl PoolMemory {
    /// Of one pool; one is enough for all arrays.
    pub fn new(py: Python<'_>, pool: &Arc<Mapping>) -> PyResult<Py<Self>> {
        Py::new(py, Self(Arc::clone(pool)))
    }
}

impl Claim {
    pub(crate) fn new(
        publisher: SharedPublisher,
        owner: OwnerProcess,
        claim: tp_core::ring::Claim,
        layout: Arc<Layout>,
        frame: FrameArguments,
        memory: Py<PoolMemory>,
    ) -> Self {
        let (finished, array) = (AtomicBool::new(false), Mutex::default());
        Self {
            publisher,
            owner,
            claim,
            layout,
            frame,
            memory,
            finished,
            array,
            observer: None,
            leased: false,
        }
    }

    /// Where the payload is filled in.
    fn address(&self) -> *mut u8 {
        let offset = payload_offset(self.claim.index, self.claim.stride_bytes);
        self.memory.get().0.address_mut(offset, self.claim.values_len_bytes as usize)
    }

    /// What the slot will say of the frame.
    fn header(&self) -> FrameHeader {
        FrameHeader {
            tensor: self.layout.tensor,
            values_len_bytes: self.claim.values_len_bytes,
            timestamp_ns: self.frame.timestamp_ns,
            meta_version: self.frame.meta_version,
        }
    }

    /// The claim of a producer with a lease. What happens to it is told to `observer`, which must not keep it.
    pub(crate) fn leased(mut self, observer: Option<Py<PyAny>>) -> Self {
        self.observer = observer;
        self.leased = true;
        self
    }

    /// Who is told of what happens to it.
    pub(crate) fn observer<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.observer.as_ref().map(|observer| observer.bind(py).clone())
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        check_owner(py, self.owner, "claim")
    }

    /// An error unless the payload may be written.
    fn check_writable(&self, py: Python<'_>) -> PyResult<()> {
        self.check(py)?;
        if self.finished() {
            let message = format!("the claim of seq {} was committed or aborted already", self.claim.seq);
            return Err(errors::CLAIM.new_err(py, message, Some("claim the next slot")));
        }
        Ok(())
    }

    /// From here on the slot belongs to the readers, or to the next frame.
    fn finish(&self, py: Python<'_>) {
        self.finished.store(true, Ordering::Release);
        if let Some(array) = lock(py, &self.array).take() {
            arrays::make_read_only(array.bind(py));
        }
    }

    fn committed(&self, py: Python<'_>, ring: bool) -> PyResult<u64> {
        self.check_writable(py)?;
        let frame = FrameArguments { ring, ..self.frame };
        let committed = self.publisher.with(py, |publisher| {
            publisher.ring.commit(&self.claim, &self.header())?;
            publisher.announce(self.claim.seq, self.claim.values_len_bytes, frame);
            Ok(())
        });
        match committed {
            Err(error) if errors::CLOSED.is_class_of(py, &error) => {
                self.give_up(py);
                Err(self.lost(py))
            }
            committed => {
                committed?;
                self.finish(py);
                Ok(self.claim.seq)
            }
        }
    }

    /// The ring went away under the claim.
    fn lost(&self, py: Python<'_>) -> PyErr {
        if !self.leased {
            return errors::closed(py, "ring writer");
        }
        let message = format!(
            "frame {} was lost: the producer was closed, or its lease ended, while it was filled",
            self.claim.seq
        );
        let hint = "claim the next slot: a producer that is open gets another lease by itself";
        errors::LEASE_LOST.new_err(py, message, Some(hint))
    }

    /// Aborts; what became of a ring that is closed already does not matter any more.
    fn give_up(&self, py: Python<'_>) {
        self.publisher.abort(&self.claim);
        self.finish(py);
    }
}

#[pymethods]
impl Claim {
    #[getter]
    fn seq(&self) -> u64 {
        self.claim.seq
    }

    #[getter]
    fn nbytes(&self) -> u32 {
        self.claim.values_len_bytes
    }

    #[getter]
    fn finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// The payload as a writable array. Don't keep it: once committed, the memory is everybody's.
    #[getter]
    fn array<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        this.check_writable(py)?;
        // The same object each time, so that nobody has another one when it becomes read-only.
        let handed_out = lock(py, &this.array).as_ref().map(|array| array.bind(py).clone());
        if let Some(array) = handed_out {
            return Ok(array);
        }
        let memory = this.memory.bind(py).clone().into_any();
        // SAFETY: the payload is as long as the tensor, and mapped for writing as long as `memory` lives.
        let array = unsafe { arrays::view(memory, &this.layout.view, this.address(), true)? };
        let replaced = lock(py, &this.array).replace(array.clone().unbind());
        drop(replaced);
        Ok(array)
    }

    /// Writes the header now, before the payload is complete, so that readers may follow its progress.
    fn write_header(&self, py: Python<'_>) -> PyResult<()> {
        self.check(py)?;
        self.publisher.with(py, |publisher| publisher.ring.write_header(&self.claim, &self.header()))
    }

    /// Publishes the frame; its sequence number.
    #[pyo3(signature = (*, ring = true))]
    fn commit(slf: &Bound<'_, Self>, ring: bool) -> PyResult<u64> {
        let (py, this) = (slf.py(), slf.get());
        let Some(observer) = &this.observer else { return this.committed(py, ring) };
        call_back(|| observer.call_method1(py, intern!(py, "before_commit"), (slf,)))?;
        let seq = this.committed(py, false)?;
        call_back(|| observer.call_method1(py, intern!(py, "after_commit"), (slf,)))?;
        Ok(seq)
    }

    /// Gives the slot up; its sequence number is skipped.
    fn abort(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        this.check_writable(py)?;
        this.give_up(py);
        if let Some(observer) = &this.observer {
            call_back(|| observer.call_method1(py, intern!(py, "after_abort"), (slf,)))?;
        }
        Ok(())
    }

    /// Tells consumers how much of the frame is there.
    #[pyo3(signature = (*, rows = None, columns = None, bytes_filled = None))]
    fn progress(
        slf: &Bound<'_, Self>,
        rows: Option<i64>,
        columns: Option<i64>,
        bytes_filled: Option<i64>,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        match &this.observer {
            Some(observer) => {
                let arguments = (slf, rows, columns, bytes_filled);
                call_back(|| observer.call_method1(py, intern!(py, "progress"), arguments)).map(drop)
            }
            None => {
                let hint = "claim it with progress=\"rows\", \"columns\" or True";
                Err(errors::CLAIM.new_err(py, "this slot reports no progress", Some(hint)))
            }
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Commits, or aborts when the block raised. Does nothing when either was done already.
    #[pyo3(signature = (kind, _value = None, _traceback = None))]
    fn __exit__(
        slf: &Bound<'_, Self>,
        kind: &Bound<'_, PyAny>,
        _value: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        match (slf.get().finished(), kind.is_none()) {
            (true, _) => Ok(()),
            (false, true) => Self::commit(slf, true).map(drop).inspect_err(|_| {
                // The block is over: what could not be committed must not block the next slot.
                if !slf.get().finished() {
                    let _ = Self::abort(slf);
                }
            }),
            // What the block raised matters more than what else goes wrong.
            (false, false) => {
                let _ = Self::abort(slf);
                Ok(())
            }
        }
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        this.check_writable(slf.py())?;
        let data = this.address();
        // SAFETY: the view comes from the interpreter; payload and shape live as long as this object.
        unsafe { this.layout.view.export(view, flags, data, false, slf.clone().into_any()) }
    }

    fn __repr__(&self) -> String {
        let state = if self.finished() { "finished" } else { "open" };
        format!("<Claim of seq {}, {} bytes, {state}>", self.claim.seq, self.claim.values_len_bytes)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A claim that was forgotten must not block the ones behind it.
        if !self.finished.load(Ordering::Acquire) && self.owner.is_current() {
            Python::attach(|py| self.give_up(py));
        }
    }
}
