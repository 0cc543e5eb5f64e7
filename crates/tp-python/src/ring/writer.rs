//! The writer of a ring.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tp_aeron::{ExclusivePublication, OfferError, OwnerProcess};
use tp_core::clock::monotonic_ns;
use tp_core::hot::FrameDescriptor;
use tp_core::ring::ClaimError;
use tp_core::slot::FrameHeader;
use tp_core::tensor::{Dtype, Tensor};

use super::address::{BaseDirPaths, RingAddress};
use super::buffers::Incoming;
use super::claim::{Claim, PoolMemory};
use super::layout::{Layout, parse_dtype, parse_order, parse_shape};
use super::outlet::{Outlet, PublishCounts};
use super::{arrays, check_owner};
use crate::aeron::AeronPublication;
use crate::border::{lock, released};
use crate::errors;

/// Copies at least this long release the GIL; below, releasing costs as much as the copy.
pub const RELEASE_GIL_BYTES: usize = 32 << 10;

/// The kernel counts the sleepers that it wakes with a sign.
const MOST_SLEEPERS: u32 = i32::MAX as u32;

/// What goes with a frame besides its tensor.
#[derive(Clone, Copy)]
pub struct FrameArguments {
    /// When it was taken.
    pub timestamp_ns: u64,
    /// Version of the metadata.
    pub meta_version: u32,
    /// Trace of the frame.
    pub trace_id: Option<u64>,
    /// Wake the readers?
    pub ring: bool,
}

/// The writer of a ring and where its descriptors go.
pub struct Publisher {
    /// The ring.
    pub ring: tp_core::ring::RingWriter,
    /// Its pools, for arrays to keep mapped.
    pools: Vec<Py<PoolMemory>>,
    descriptors: Option<ExclusivePublication>,
    stamp_descriptors: bool,
    counts: Arc<PublishCounts>,
}

impl Publisher {
    /// Tells the world of a committed frame: the descriptor first, then the bell (decision M18).
    pub fn announce(&mut self, seq: u64, bytes: u32, frame: FrameArguments) {
        let counts = &self.counts;
        count(&counts.frames, 1);
        count(&counts.bytes, bytes.into());
        let now_ns = monotonic_ns();
        counts.published_ns.store(now_ns, Relaxed);
        if let Some(descriptors) = &self.descriptors {
            let geometry = self.ring.geometry();
            let descriptor = FrameDescriptor {
                stream_id: geometry.stream_id,
                epoch: geometry.epoch,
                seq,
                timestamp_ns: self.stamp_descriptors.then_some(now_ns),
                meta_version: Some(frame.meta_version),
                trace_id: frame.trace_id,
            };
            let ended = match descriptors.offer(&descriptor.encode()) {
                Ok(_) => &counts.descriptors_sent,
                Err(OfferError::NotConnected) => &counts.descriptors_skipped,
                // A producer never waits for consumers, and the ring is the truth: count and go on.
                Err(_) => &counts.descriptors_dropped,
            };
            count(ended, 1);
        }
        if frame.ring {
            self.ring.ring_all(now_ns);
        }
    }
}

/// There is one writer at a time, and it holds the publisher: no need for an addition that others could disturb.
fn count(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

/// The publisher, shared with the claims it handed out.
#[derive(Clone)]
pub struct SharedPublisher(Arc<Shared>);

struct Shared {
    /// None once closed.
    publisher: Mutex<Option<Publisher>>,
    counts: Arc<PublishCounts>,
}

impl SharedPublisher {
    /// Runs `work` unless the writer is closed. `work` must not run Python code: see `border::lock`.
    pub fn with<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Publisher) -> Result<T, ClaimError>,
    ) -> PyResult<T> {
        // The guard is gone before anything is raised.
        let result = lock(py, &self.0.publisher).as_mut().map(work);
        translate(py, result)
    }

    /// Runs `work` without the interpreter's lock.
    fn with_released<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Publisher) -> Result<T, ClaimError> + Send,
    ) -> PyResult<T> {
        let result = released(py, || self.with_detached(work));
        translate(py, result)
    }

    fn is_closed(&self, py: Python<'_>) -> bool {
        lock(py, &self.0.publisher).is_none()
    }

    /// Runs `work` unless the writer is closed, for threads without the interpreter's lock.
    pub fn with_detached<T>(&self, work: impl FnOnce(&mut Publisher) -> T) -> Option<T> {
        let mut guard = self.0.publisher.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        guard.as_mut().map(work)
    }

    /// Gives a claim up, if that is still possible, and counts it.
    pub fn abort(&self, claim: &tp_core::ring::Claim) {
        let mut guard = self.0.publisher.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(publisher) = guard.as_mut() {
            let _ = publisher.ring.abort(claim);
        }
        count(&self.0.counts.aborted, 1);
    }
}

/// None: the writer is closed.
fn translate<T>(py: Python<'_>, result: Option<Result<T, ClaimError>>) -> PyResult<T> {
    let result = result.ok_or_else(|| errors::closed(py, "ring writer"))?;
    result.map_err(|failure| errors::claim(py, &failure))
}

/// The one writer of a ring.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct RingWriter {
    publisher: SharedPublisher,
    owner: OwnerProcess,
    address: RingAddress,
    max_payload_bytes: u32,
    counts: Arc<PublishCounts>,
}

impl RingWriter {
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        check_owner(py, self.owner, "ring writer")
    }

    /// Before anything is copied or claimed: too large is too large whatever else is wrong.
    fn check_size(&self, py: Python<'_>, bytes: u64, tensor: &Tensor) -> PyResult<()> {
        if bytes <= self.max_payload_bytes.into() {
            return Ok(());
        }
        count(&self.counts.too_large, 1);
        let dtype = arrays::dtype_name(tensor.dtype);
        Err(errors::too_large(py, bytes, self.max_payload_bytes, dtype, tensor.shape()))
    }

    /// Copies an array into the next slot and tells of it; its sequence number.
    pub fn publish_frame(
        &self,
        array: &Bound<'_, PyAny>,
        dtype: Option<Dtype>,
        frame: FrameArguments,
    ) -> PyResult<u64> {
        let py = array.py();
        self.check(py)?;
        let incoming = Incoming::new(array, dtype)?;
        let bytes = incoming.len_bytes();
        self.check_size(py, bytes, &incoming.tensor)?;
        let header = FrameHeader {
            tensor: incoming.tensor,
            values_len_bytes: bytes as u32,
            timestamp_ns: frame.timestamp_ns,
            meta_version: frame.meta_version,
        };
        let large = bytes as usize >= RELEASE_GIL_BYTES;
        let packed = if large { released(py, || incoming.pack()) } else { incoming.pack() };
        let publish = |publisher: &mut Publisher| {
            let copy = |ring: &mut tp_core::ring::RingWriter, claim: &_| {
                incoming.copy_into(ring, claim, packed.as_deref());
            };
            let seq = publisher.ring.publish_with(bytes, &header, copy)?;
            publisher.announce(seq, header.values_len_bytes, frame);
            Ok(seq)
        };
        if large { self.publisher.with_released(py, publish) } else { self.publisher.with(py, publish) }
    }

    /// The writer, for native code that fills slots without crossing into Python.
    pub fn shared(&self) -> SharedPublisher {
        self.publisher.clone()
    }

    /// Takes the next slot, or that of `seq`.
    pub fn claim_slot(
        &self,
        py: Python<'_>,
        layout: Arc<Layout>,
        seq: Option<u64>,
        frame: FrameArguments,
    ) -> PyResult<Claim> {
        self.check(py)?;
        let bytes = layout.tensor.extent_bytes();
        self.check_size(py, bytes, &layout.tensor)?;
        let (claim, memory) = self.publisher.with(py, |publisher| {
            let claim = publisher.ring.claim(bytes, seq)?;
            // Whoever sleeps wakes up while the slot is filled; it must see that by then.
            publisher.ring.ring_ahead();
            Ok((claim, publisher.pools[claim.pool].clone_ref(py)))
        })?;
        Ok(Claim::new(self.publisher.clone(), self.owner, claim, layout, frame, memory))
    }
}

#[pymethods]
impl RingWriter {
    #[new]
    #[pyo3(signature = (address, *, base_dirs, descriptors = None, stamp_descriptors = false, outlet = None))]
    fn new(
        py: Python<'_>,
        address: &RingAddress,
        base_dirs: BaseDirPaths,
        descriptors: Option<&Bound<'_, PyAny>>,
        stamp_descriptors: bool,
        outlet: Option<&Outlet>,
    ) -> PyResult<Self> {
        arrays::load(py)?;
        let descriptors = descriptors.map(publication).transpose()?;
        let open = || tp_core::ring::RingWriter::open(&address.0, &base_dirs.open()?);
        let ring = released(py, open).map_err(|failure| errors::region(py, &failure))?;
        let max_payload_bytes = ring.max_payload_bytes();
        let pools = ring.pools().map(|pool| PoolMemory::new(py, pool)).collect::<PyResult<_>>()?;
        let counts = outlet.map(Outlet::counts).unwrap_or_default();
        let publisher =
            Publisher { ring, pools, descriptors, stamp_descriptors, counts: Arc::clone(&counts) };
        Ok(Self {
            publisher: SharedPublisher(Arc::new(Shared {
                publisher: Mutex::new(Some(publisher)),
                counts: Arc::clone(&counts),
            })),
            owner: OwnerProcess::current(),
            address: address.clone(),
            max_payload_bytes,
            counts,
        })
    }

    /// Copies an array into the next slot, commits it, sends its descriptor and rings the doorbell.
    #[pyo3(signature = (array, dtype = None, timestamp_ns = None, meta_version = 0, trace_id = None, ring = true))]
    fn publish(
        &self,
        array: &Bound<'_, PyAny>,
        dtype: Option<i16>,
        timestamp_ns: Option<u64>,
        meta_version: u32,
        trace_id: Option<u64>,
        ring: bool,
    ) -> PyResult<u64> {
        let dtype = dtype.map(|number| parse_dtype(array.py(), number)).transpose()?;
        let timestamp_ns = timestamp_ns.unwrap_or_else(monotonic_ns);
        self.publish_frame(array, dtype, FrameArguments { timestamp_ns, meta_version, trace_id, ring })
    }

    /// Takes the next slot for a tensor that is written in place.
    #[pyo3(signature = (shape, dtype, order = "C", seq = None, timestamp_ns = None, meta_version = 0, trace_id = None, progress_unit = 0))]
    #[expect(clippy::too_many_arguments, reason = "most have defaults in Python")]
    fn claim(
        &self,
        shape: &Bound<'_, PyAny>,
        dtype: i16,
        order: &str,
        seq: Option<u64>,
        timestamp_ns: Option<u64>,
        meta_version: u32,
        trace_id: Option<u64>,
        progress_unit: u8,
    ) -> PyResult<Claim> {
        let py = shape.py();
        let (dtype, order) = (parse_dtype(py, dtype)?, parse_order(py, order)?);
        let timestamp_ns = timestamp_ns.unwrap_or_else(monotonic_ns);
        let frame = FrameArguments { timestamp_ns, meta_version, trace_id, ring: true };
        let layout = Layout::new(py, &parse_shape(shape)?, dtype, order, progress_unit)?;
        self.claim_slot(py, Arc::new(layout), seq, frame)
    }

    /// Raises the activity time stamp and wakes up to `wake` sleeping readers (all by default).
    #[pyo3(signature = (wake = None))]
    fn ring(&self, py: Python<'_>, wake: Option<u32>) -> PyResult<()> {
        self.check(py)?;
        self.publisher.with(py, |publisher| {
            match wake {
                Some(count) => publisher.ring.ring(count.min(MOST_SLEEPERS)),
                None => publisher.ring.ring_all(monotonic_ns()),
            }
            Ok(())
        })
    }

    /// Says that the ring is alive, without waking anybody.
    fn refresh_activity(&self, py: Python<'_>) -> PyResult<()> {
        self.check(py)?;
        self.publisher.with(py, |publisher| {
            publisher.ring.refresh_activity();
            Ok(())
        })
    }

    /// Touches every page now rather than in the first frames, while others may already publish.
    #[pyo3(signature = (lock = false))]
    fn prefault(&self, py: Python<'_>, lock: bool) -> PyResult<()> {
        self.check(py)?;
        let memory = self.publisher.with(py, |publisher| Ok(publisher.ring.memory()))?;
        released(py, || memory.prefault()).map_err(|failure| {
            let message = format!("there is no memory for all {} bytes: {failure}", memory.len_bytes());
            let hint = "use fewer or smaller slots, or free memory there (df -h shows it)";
            errors::REGION_FULL.new_err(py, message, Some(hint))
        })?;
        if !lock {
            return Ok(());
        }
        released(py, || memory.lock()).map_err(|failure| {
            let message = format!("{} bytes can't be locked in memory: {failure}", memory.len_bytes());
            let hint = "raise the limit (`ulimit -l`, LimitMEMLOCK= of a service), or do without the lock";
            errors::REGION.new_err(py, message, Some(hint))
        })
    }

    #[getter]
    fn next_seq(&self, py: Python<'_>) -> PyResult<u64> {
        self.check(py)?;
        self.publisher.with(py, |publisher| Ok(publisher.ring.next_seq()))
    }

    /// Descriptors sent, skipped because nobody subscribes, and dropped.
    #[getter]
    fn descriptor_counts(&self, py: Python<'_>) -> PyResult<(u64, u64, u64)> {
        self.check(py)?;
        let PublishCounts { descriptors_sent, descriptors_skipped, descriptors_dropped, .. } = &*self.counts;
        Ok((
            descriptors_sent.load(Relaxed),
            descriptors_skipped.load(Relaxed),
            descriptors_dropped.load(Relaxed),
        ))
    }

    #[getter]
    fn max_payload_bytes(&self) -> u32 {
        self.max_payload_bytes
    }

    #[getter]
    fn address(&self) -> RingAddress {
        self.address.clone()
    }

    #[getter]
    pub(super) fn closed(&self, py: Python<'_>) -> bool {
        !self.owner.is_current() || self.publisher.is_closed(py)
    }

    /// Unmaps the ring. Arrays of open claims stay valid, but can't be committed any more.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.check(py)?;
        let publisher = lock(py, &self.publisher.0.publisher).take();
        if let Some(mut publisher) = publisher {
            // Python's objects with the interpreter's lock, the rest without.
            publisher.pools.clear();
            released(py, || drop(publisher));
        }
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = if self.closed(py) { "closed" } else { "open" };
        format!("<RingWriter of stream {}, {state}>", self.address.0.geometry.stream_id)
    }
}

/// The native publication, also behind that of `tensor_pool.transport`.
fn publication(given: &Bound<'_, PyAny>) -> PyResult<ExclusivePublication> {
    let behind = given.getattr(intern!(given.py(), "native"));
    let native = behind.as_ref().unwrap_or(given).cast::<AeronPublication>().map_err(|_| {
        let kind = given.get_type().name().map_or("?".to_owned(), |name| name.to_string());
        PyTypeError::new_err(format!("descriptors is a {kind}, not an AeronPublication"))
    })?;
    Ok(native.get().handle())
}
