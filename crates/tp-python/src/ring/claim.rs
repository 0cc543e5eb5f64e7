//! A slot that is written in place.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyWeakrefMethods, PyWeakrefReference};
use tp_aeron::OwnerProcess;
use tp_core::layout::payload_offset;
use tp_core::region::Mapping;
use tp_core::slot::FrameHeader;

use super::buffers::View;
use super::check_owner;
use super::numpy;
use super::writer::{Announcement, SharedPublisher};
use crate::border::lock;
use crate::errors;

/// A slot that is being filled. Committed or aborted exactly once.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct Claim {
    publisher: SharedPublisher,
    owner: OwnerProcess,
    claim: tp_core::ring::Claim,
    header: FrameHeader,
    trace_id: Option<u64>,
    view: View,
    /// Keeps the payload mapped, also after the writer is closed.
    payload: Payload,
    finished: AtomicBool,
    /// The array that was handed out last: made read-only once the slot is no longer ours.
    array: Mutex<Option<Py<PyWeakrefReference>>>,
}

struct Payload {
    pool: Arc<Mapping>,
    offset: u64,
    len: usize,
}

impl Payload {
    fn address(&self) -> *mut u8 {
        self.pool.address_mut(self.offset, self.len)
    }
}

impl Claim {
    pub(crate) fn new(
        publisher: SharedPublisher,
        owner: OwnerProcess,
        claim: tp_core::ring::Claim,
        header: FrameHeader,
        trace_id: Option<u64>,
        pool: Arc<Mapping>,
    ) -> Self {
        let payload = Payload {
            offset: payload_offset(claim.index, claim.stride_bytes),
            len: claim.values_len_bytes as usize,
            pool,
        };
        let view = View::of(&header.tensor);
        let (finished, array) = (AtomicBool::new(false), Mutex::default());
        Self { publisher, owner, claim, header, trace_id, view, payload, finished, array }
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
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.finished.store(true, Ordering::Release);
        let handed_out = lock(py, &self.array).take();
        if let Some(array) = handed_out.and_then(|weak| weak.bind(py).upgrade()) {
            let options = PyDict::new(py);
            options.set_item(intern!(py, "write"), false)?;
            array.call_method(intern!(py, "setflags"), (), Some(&options))?;
        }
        Ok(())
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
        let py = slf.py();
        // Asked here too: NumPy makes something else of an object whose buffer it can't have.
        slf.get().check_writable(py)?;
        // The same object while anybody holds it, so that all of them become read-only together.
        let handed_out = lock(py, &slf.get().array).as_ref().map(|weak| weak.clone_ref(py));
        if let Some(array) = handed_out.and_then(|weak| weak.bind(py).upgrade()) {
            return Ok(array);
        }
        let array = numpy::view(slf.as_any())?;
        let weak = PyWeakrefReference::new(&array)?.unbind();
        let replaced = lock(py, &slf.get().array).replace(weak);
        drop(replaced);
        Ok(array)
    }

    /// Writes the header now, before the payload is complete, so that readers may follow its progress.
    fn write_header(&self, py: Python<'_>) -> PyResult<()> {
        self.check(py)?;
        self.publisher.with(py, |publisher| publisher.ring.write_header(&self.claim, &self.header))
    }

    /// Publishes the frame; its sequence number.
    #[pyo3(signature = (*, ring = true))]
    fn commit(&self, py: Python<'_>, ring: bool) -> PyResult<u64> {
        self.check(py)?;
        self.publisher.with(py, |publisher| {
            publisher.ring.commit(&self.claim, &self.header)?;
            let what = Announcement { meta_version: self.header.meta_version, trace_id: self.trace_id, ring };
            publisher.announce(self.claim.seq, what);
            Ok(())
        })?;
        self.finish(py)?;
        Ok(self.claim.seq)
    }

    /// Gives the slot up; its sequence number is skipped.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.check(py)?;
        self.publisher.with(py, |publisher| publisher.ring.abort(&self.claim))?;
        self.finish(py)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Commits, or aborts when the block raised. Does nothing when either was done already.
    #[pyo3(signature = (kind, *_rest))]
    fn __exit__(&self, py: Python<'_>, kind: &Bound<'_, PyAny>, _rest: &Bound<'_, PyTuple>) -> PyResult<()> {
        match (self.finished(), kind.is_none()) {
            (true, _) => Ok(()),
            (false, true) => self.commit(py, true).map(drop),
            (false, false) => self.abort(py),
        }
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        this.check_writable(slf.py())?;
        let data = this.payload.address();
        // SAFETY: the view comes from the interpreter; payload and shape live as long as this object.
        unsafe { this.view.export(view, flags, data, false, slf.clone().into_any()) }
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
            self.publisher.abort(&self.claim);
        }
    }
}
