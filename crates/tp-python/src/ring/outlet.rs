//! The part of a producer that runs for every frame.
//!
//! An [`Outlet`] is what the producer's session (on the agent's thread) and its [`FrameSender`] (on the program's)
//! have in common: which ring is written now, what frames say of the metadata, and what was counted. Rings come and go
//! with leases; the outlet stays.

use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use tp_core::clock::{monotonic_ns, realtime_ns};

use super::claim::Claim;
use super::layout::{LastLayout, dtype_of};
use super::writer::{FrameArguments, RingWriter};
use crate::border::{call_back, lock};
use crate::errors;

/// What was published, over all rings.
#[derive(Debug, Default)]
pub struct PublishCounts {
    /// Frames.
    pub frames: AtomicU64,
    /// Bytes of their payloads.
    pub bytes: AtomicU64,
    /// Frames that no pool could hold.
    pub too_large: AtomicU64,
    /// Claims that were given up.
    pub aborted: AtomicU64,
    /// Descriptors that went out.
    pub descriptors_sent: AtomicU64,
    /// Nobody subscribes: the frame is in the ring all the same (decision M13).
    pub descriptors_skipped: AtomicU64,
    /// Subscribers do not keep up, or the publication is gone.
    pub descriptors_dropped: AtomicU64,
    /// When the last frame was published, CLOCK_MONOTONIC.
    pub published_ns: AtomicU64,
}

#[derive(Default)]
struct Shared {
    writer: Mutex<Option<Py<RingWriter>>>,
    meta_version: AtomicU32,
    /// The metadata has changed since: ask for the version before the next frame.
    meta_changed: AtomicBool,
    observed: AtomicBool,
    counts: Arc<PublishCounts>,
}

/// Where the frames of a producer go.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct Outlet(Arc<Shared>);

impl Outlet {
    /// For writers to count in.
    pub fn counts(&self) -> Arc<PublishCounts> {
        Arc::clone(&self.0.counts)
    }
}

impl Shared {
    fn writer<'py>(&self, py: Python<'py>) -> Option<Bound<'py, RingWriter>> {
        lock(py, &self.writer).as_ref().map(|writer| writer.bind(py).clone())
    }
}

#[pymethods]
impl Outlet {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    #[getter]
    fn get_writer<'py>(&self, py: Python<'py>) -> Option<Bound<'py, RingWriter>> {
        self.0.writer(py)
    }

    #[setter]
    fn set_writer(&self, py: Python<'_>, writer: Option<Py<RingWriter>>) {
        let replaced = std::mem::replace(&mut *lock(py, &self.0.writer), writer);
        drop(replaced);
    }

    /// The next frame asks for the version of the metadata.
    fn on_metadata_change(&self) {
        self.0.meta_changed.store(true, Release);
    }

    #[getter]
    fn get_observed(&self) -> bool {
        self.0.observed.load(Relaxed)
    }

    #[setter]
    fn set_observed(&self, observed: bool) {
        self.0.observed.store(observed, Relaxed);
    }

    #[getter]
    fn frames(&self) -> u64 {
        self.0.counts.frames.load(Relaxed)
    }

    #[getter]
    fn bytes(&self) -> u64 {
        self.0.counts.bytes.load(Relaxed)
    }

    #[getter]
    fn too_large(&self) -> u64 {
        self.0.counts.too_large.load(Relaxed)
    }

    #[getter]
    fn aborted(&self) -> u64 {
        self.0.counts.aborted.load(Relaxed)
    }

    #[getter]
    fn descriptors_sent(&self) -> u64 {
        self.0.counts.descriptors_sent.load(Relaxed)
    }

    #[getter]
    fn descriptors_skipped(&self) -> u64 {
        self.0.counts.descriptors_skipped.load(Relaxed)
    }

    #[getter]
    fn descriptors_dropped(&self) -> u64 {
        self.0.counts.descriptors_dropped.load(Relaxed)
    }

    #[getter]
    fn published_ns(&self) -> u64 {
        self.0.counts.published_ns.load(Relaxed)
    }
}

/// Publishes through an outlet. Python's `Producer` is one, and knows what to do where there is no ring.
#[pyclass(frozen, subclass, module = "tensor_pool._native")]
pub struct FrameSender {
    outlet: Arc<Shared>,
    realtime: bool,
    layout: LastLayout,
}

impl FrameSender {
    fn stamp(&self, given: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
        let now = if self.realtime { realtime_ns } else { monotonic_ns };
        Ok(whole("timestamp_ns", given)?.unwrap_or_else(now))
    }

    /// The version that a frame published now refers to.
    fn meta_version(slf: &Bound<'_, Self>) -> PyResult<u32> {
        let outlet = &slf.get().outlet;
        // The mark goes first: what changes after the question sets it again.
        if outlet.meta_changed.load(Relaxed) && outlet.meta_changed.swap(false, Acquire) {
            let version = call_back(|| slf.call_method0(intern!(slf.py(), "_meta_version")))?.extract()?;
            outlet.meta_version.store(version, Relaxed);
        }
        Ok(outlet.meta_version.load(Relaxed))
    }

    /// Runs `work` with the ring of the moment, and again with the next one when that was closed meanwhile.
    fn with_writer<'py, T>(
        slf: &Bound<'py, Self>,
        work: impl Fn(&Bound<'py, RingWriter>) -> PyResult<T>,
    ) -> PyResult<T> {
        let py = slf.py();
        loop {
            let writer = match slf.get().outlet.writer(py) {
                Some(writer) => writer,
                None => call_back(|| slf.call_method0(intern!(py, "_wait_for_writer")))?.cast_into()?,
            };
            match work(&writer) {
                // Not any error of that kind: what is published may be something closed, too.
                Err(error) if errors::CLOSED.is_class_of(py, &error) && writer.get().closed(py) => {
                    call_back(|| slf.call_method1(intern!(py, "_on_closed_writer"), (writer,)))?;
                }
                done => return done,
            }
        }
    }
}

#[pymethods]
impl FrameSender {
    #[new]
    #[pyo3(signature = (outlet, *, realtime = false))]
    fn new(outlet: &Outlet, realtime: bool) -> Self {
        Self { outlet: Arc::clone(&outlet.0), realtime, layout: LastLayout::default() }
    }

    /// Copies an array into the stream and returns its sequence number.
    ///
    /// Args:
    ///     array: Anything with a buffer: NumPy arrays, bytes, memoryviews. Copied before the call returns.
    ///     dtype: What the elements mean, where the buffer doesn't tell; their size stays.
    ///     timestamp_ns: When it was taken; now when left out.
    ///     trace_id: Travels with the frame's descriptor.
    ///     progress: Tell consumers also when the copy begins and ends, for those who wait for that.
    ///
    /// Raises:
    ///     FrameTooLargeError: Larger than every pool of the stream. Counted, nothing is written.
    ///     TensorLayoutError: The wire has no such element type, or not 1 to 8 dimensions.
    ///     LeaseLostError: There is no lease, and none came in time.
    ///     ClosedError: The producer was closed.
    #[pyo3(signature = (array, *, dtype = None, timestamp_ns = None, trace_id = None, progress = false))]
    fn publish(
        slf: &Bound<'_, Self>,
        array: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        timestamp_ns: Option<&Bound<'_, PyAny>>,
        trace_id: Option<&Bound<'_, PyAny>>,
        progress: bool,
    ) -> PyResult<u64> {
        let (py, this) = (slf.py(), slf.get());
        let (trace_id, stamp_ns) = (whole("trace_id", trace_id)?, this.stamp(timestamp_ns)?);
        if progress {
            let arguments = (array, dtype, stamp_ns, trace_id);
            let publish = || slf.call_method1(intern!(py, "_publish_with_progress"), arguments);
            return call_back(publish)?.extract();
        }
        let dtype = dtype.map(dtype_of).transpose()?;
        let (observed, meta_version) = (this.outlet.observed.load(Relaxed), Self::meta_version(slf)?);
        let (writer, seq) = Self::with_writer(slf, |writer| {
            let frame = FrameArguments { timestamp_ns: stamp_ns, meta_version, trace_id, ring: !observed };
            Ok((writer.clone(), writer.get().publish_frame(array, dtype, frame)?))
        })?;
        if observed {
            call_back(|| slf.call_method1(intern!(py, "_on_published"), (writer, seq, stamp_ns, trace_id)))?;
        }
        Ok(seq)
    }

    /// The next slot, to be filled in place: no copy at all.
    ///
    /// Args:
    ///     shape: The frame's shape; one number is one dimension.
    ///     dtype: The frame's element type.
    ///     order: Memory order of its array.
    ///     timestamp_ns: When it was taken; now when left out.
    ///     trace_id: Travels with the frame's descriptor.
    ///     progress: Let consumers follow while it is filled (`Claim.progress`): in rows, in columns, or in bytes (True).
    ///
    /// Raises:
    ///     FrameTooLargeError: Larger than every pool of the stream.
    ///     ClaimError: All slots are claimed.
    ///     LeaseLostError: There is no lease, and none came in time.
    ///     ClosedError: The producer was closed.
    #[pyo3(signature = (shape, dtype, *, order = "C", timestamp_ns = None, trace_id = None, progress = None))]
    fn claim<'py>(
        slf: &Bound<'py, Self>,
        shape: &Bound<'py, PyAny>,
        dtype: &Bound<'py, PyAny>,
        order: &str,
        timestamp_ns: Option<&Bound<'_, PyAny>>,
        trace_id: Option<&Bound<'_, PyAny>>,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Claim>> {
        let (py, this) = (slf.py(), slf.get());
        let (trace_id, stamp_ns) = (whole("trace_id", trace_id)?, this.stamp(timestamp_ns)?);
        let progress = match progress {
            Some(progress) if progress.is_truthy()? => Some(progress),
            _ => None,
        };
        let layout = this.layout.get(shape, dtype, order)?;
        let meta_version = Self::meta_version(slf)?;
        let is_observed = progress.is_some() || this.outlet.observed.load(Relaxed);
        let claim = Self::with_writer(slf, |writer| {
            let (mut observer, mut layout) = (None, Arc::clone(&layout));
            if is_observed {
                let arguments = (writer, progress, stamp_ns, trace_id);
                let made = call_back(|| slf.call_method1(intern!(py, "_observer"), arguments))?;
                if let Some(unit) = made.getattr(intern!(py, "progress_unit"))?.extract::<Option<u8>>()? {
                    layout = Arc::new(layout.with_progress_unit(py, unit)?);
                }
                observer = Some(made.unbind());
            }
            let frame = FrameArguments { timestamp_ns: stamp_ns, meta_version, trace_id, ring: true };
            let claim = writer.get().claim_slot(py, layout, None, frame)?;
            Bound::new(py, claim.leased(observer))
        })?;
        if let Some(observer) = claim.get().observer(py) {
            call_back(|| observer.call_method1(intern!(py, "after_claim"), (&claim,)))?;
        }
        Ok(claim)
    }
}

/// A number as programs give it, if they do.
fn whole(what: &str, given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<u64>> {
    let Some(given) = given else { return Ok(None) };
    given.extract().map(Some).map_err(|failure: PyErr| {
        let refused = format!(
            "{what}={}: a whole number from 0 to 2**64 - 1",
            given.repr().map_or("?".into(), |r| r.to_string())
        );
        if failure.is_instance_of::<PyTypeError>(given.py()) {
            PyTypeError::new_err(refused)
        } else {
            PyValueError::new_err(refused)
        }
    })
}
