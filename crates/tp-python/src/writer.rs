//! The writer of a ring.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tp_core::clock::monotonic_ns;
use tp_core::layout::MAX_DIMS;
use tp_core::region::BaseDirs;
use tp_core::ring::ClaimError;
use tp_core::slot::FrameHeader;
use tp_core::tensor::{Dtype, MajorOrder, ProgressUnit, Tensor};

use crate::address::RingAddress;
use crate::buffers::Incoming;
use crate::claim::Claim;
use crate::errors;
use crate::fork::Owner;

/// Copies at least this long release the GIL; below, releasing costs as much as the copy.
pub const RELEASE_GIL_BYTES: usize = 32 << 10;

/// Wakes every sleeping reader.
const WAKE_ALL: u32 = i32::MAX as u32;

/// The ring's writer, shared with the claims it handed out. None once closed.
#[derive(Clone)]
pub struct SharedWriter(Arc<Mutex<Option<tp_core::ring::RingWriter>>>);

impl SharedWriter {
    /// Locks without holding the GIL while waiting: whoever holds the lock may need the GIL to go on.
    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, Option<tp_core::ring::RingWriter>> {
        match self.0.try_lock() {
            Ok(guard) => guard,
            // A panic can't happen between two stores of the writer; its state is whole.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                py.detach(|| drop(self.0.lock()));
                self.lock(py)
            }
        }
    }

    /// Runs `use_writer` unless the writer is closed.
    pub fn with<T>(
        &self,
        py: Python<'_>,
        use_writer: impl FnOnce(&mut tp_core::ring::RingWriter) -> Result<T, ClaimError>,
    ) -> PyResult<T> {
        let mut guard = self.lock(py);
        let writer = guard.as_mut().ok_or_else(|| errors::closed(py, "ring writer"))?;
        use_writer(writer).map_err(|failure| errors::claim(py, &failure))
    }

    /// Runs `use_writer` without the GIL.
    fn with_detached<T: Send>(
        &self,
        py: Python<'_>,
        use_writer: impl FnOnce(&mut tp_core::ring::RingWriter) -> Result<T, ClaimError> + Send,
    ) -> PyResult<T> {
        let result = py.detach(|| {
            let mut guard = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            guard.as_mut().map(use_writer)
        });
        result
            .ok_or_else(|| errors::closed(py, "ring writer"))?
            .map_err(|failure| errors::claim(py, &failure))
    }

    /// Gives a claim up, if that is still possible.
    pub fn abort(&self, claim: &tp_core::ring::Claim) {
        let mut guard = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(writer) = guard.as_mut() {
            let _ = writer.abort(claim);
        }
    }
}

/// The one writer of a ring.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct RingWriter {
    writer: SharedWriter,
    owner: Owner,
    address: RingAddress,
    max_payload_bytes: u32,
}

impl RingWriter {
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.owner.check(py, "ring writer")
    }
}

#[pymethods]
impl RingWriter {
    #[new]
    #[pyo3(signature = (address, *, base_dirs))]
    fn new(py: Python<'_>, address: &RingAddress, base_dirs: Vec<PathBuf>) -> PyResult<Self> {
        let open = || tp_core::ring::RingWriter::open(&address.0, &BaseDirs::open(&base_dirs)?);
        let writer = py.detach(open).map_err(|failure| errors::region(py, &failure))?;
        Ok(Self {
            max_payload_bytes: writer.max_payload_bytes(),
            writer: SharedWriter(Arc::new(Mutex::new(Some(writer)))),
            owner: Owner::here(),
            address: address.clone(),
        })
    }

    /// Copies an array into the next slot, commits it and rings the doorbell.
    #[pyo3(signature = (array, *, dtype = None, timestamp_ns = None, meta_version = 0, ring = true))]
    fn publish(
        &self,
        array: &Bound<'_, PyAny>,
        dtype: Option<i16>,
        timestamp_ns: Option<u64>,
        meta_version: u32,
        ring: bool,
    ) -> PyResult<u64> {
        let py = array.py();
        self.check(py)?;
        let incoming = Incoming::new(array, dtype.map(|number| parse_dtype(py, number)).transpose()?)?;
        let bytes = incoming.len_bytes();
        let header = FrameHeader {
            tensor: incoming.tensor,
            values_len_bytes: bytes.min(u32::MAX.into()) as u32,
            timestamp_ns: timestamp_ns.unwrap_or_else(monotonic_ns),
            meta_version,
        };
        let publish = |writer: &mut tp_core::ring::RingWriter| {
            let seq =
                writer.publish_with(bytes, &header, |writer, claim| incoming.copy_into(writer, claim))?;
            if ring {
                writer.ring(WAKE_ALL);
            }
            Ok(seq)
        };
        if bytes as usize >= RELEASE_GIL_BYTES {
            self.writer.with_detached(py, publish)
        } else {
            self.writer.with(py, publish)
        }
    }

    /// Takes the next slot for a tensor that is written in place.
    #[pyo3(signature = (shape, dtype, *, order = "C", seq = None, timestamp_ns = None, meta_version = 0, progress_unit = 0))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only in Python")]
    fn claim(
        slf: &Bound<'_, Self>,
        shape: Vec<i64>,
        dtype: i16,
        order: &str,
        seq: Option<u64>,
        timestamp_ns: Option<u64>,
        meta_version: u32,
        progress_unit: u8,
    ) -> PyResult<Claim> {
        let (py, this) = (slf.py(), slf.get());
        this.check(py)?;
        let refuse = |what: String| errors::error(py, "TensorLayoutError", what, None);
        let order = match order {
            "C" => MajorOrder::Row,
            "F" => MajorOrder::Column,
            other => return Err(refuse(format!("order {other:?} is neither \"C\" nor \"F\""))),
        };
        let unit = ProgressUnit::from_wire(progress_unit)
            .ok_or_else(|| refuse(format!("{progress_unit} is not a progress unit")))?;
        if shape.len() > MAX_DIMS {
            return Err(refuse(format!("{} dimensions; at most {MAX_DIMS} fit", shape.len())));
        }
        let dims: Result<Vec<i32>, _> = shape.iter().map(|dim| i32::try_from(*dim)).collect();
        let dims = dims.map_err(|_| refuse(format!("shape {shape:?} does not fit 31 bits")))?;
        let tensor = Tensor::new(parse_dtype(py, dtype)?, order, unit, &dims, &[])
            .map_err(|reason| errors::layout(py, reason, &format!("shape {shape:?}")))?;
        let bytes = tensor.extent_bytes();
        let (claim, pool) = this.writer.with(py, |writer| {
            let claim = writer.claim(bytes, seq)?;
            Ok((claim, writer.pool(&claim)))
        })?;
        let header = FrameHeader {
            tensor,
            values_len_bytes: claim.values_len_bytes,
            timestamp_ns: timestamp_ns.unwrap_or_else(monotonic_ns),
            meta_version,
        };
        Ok(Claim::new(this.writer.clone(), this.owner, claim, header, pool))
    }

    /// Raises the activity time stamp and wakes up to `wake` sleeping readers (all by default).
    #[pyo3(signature = (wake = None))]
    fn ring(&self, py: Python<'_>, wake: Option<u32>) -> PyResult<()> {
        self.check(py)?;
        self.writer.with(py, |writer| {
            writer.ring(wake.map_or(WAKE_ALL, |count| count.min(WAKE_ALL)));
            Ok(())
        })
    }

    /// Says that the ring is alive, without waking anybody.
    fn refresh_activity(&self, py: Python<'_>) -> PyResult<()> {
        self.check(py)?;
        self.writer.with(py, |writer| {
            writer.refresh_activity();
            Ok(())
        })
    }

    /// Touches every page now rather than in the first frames.
    fn prefault(&self, py: Python<'_>) -> PyResult<()> {
        self.check(py)?;
        self.writer.with_detached(py, |writer| {
            writer.prefault();
            Ok(())
        })
    }

    #[getter]
    fn next_seq(&self, py: Python<'_>) -> PyResult<u64> {
        self.check(py)?;
        self.writer.with(py, |writer| Ok(writer.next_seq()))
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
    fn closed(&self, py: Python<'_>) -> bool {
        self.writer.lock(py).is_none()
    }

    /// Unmaps the ring. Arrays of open claims stay valid, but can't be committed any more.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.check(py)?;
        drop(self.writer.lock(py).take());
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

fn parse_dtype(py: Python<'_>, number: i16) -> PyResult<Dtype> {
    let unknown =
        || errors::error(py, "TensorLayoutError", format!("{number} is not the number of a dtype"), None);
    Dtype::from_wire(number).ok_or_else(unknown)
}
