//! The hot messages as Python objects.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tp_core::hot;

use crate::errors;

/// Runs `decode` on the bytes of `message`, which is usually a `bytes` object.
fn with_bytes<T>(message: &Bound<'_, PyAny>, decode: impl FnOnce(&[u8]) -> T) -> PyResult<T> {
    if let Ok(bytes) = message.cast::<PyBytes>() {
        return Ok(decode(bytes.as_bytes()));
    }
    let buffer = pyo3::buffer::PyBuffer::<u8>::get(message)?;
    Ok(decode(&buffer.to_vec(message.py())?))
}

/// One frame is there.
#[pyclass(frozen, eq, get_all, module = "tensor_pool._native")]
#[derive(Clone, PartialEq, Eq)]
pub struct FrameDescriptor {
    stream_id: u32,
    epoch: u64,
    seq: u64,
    timestamp_ns: Option<u64>,
    meta_version: Option<u32>,
    trace_id: Option<u64>,
}

impl From<hot::FrameDescriptor> for FrameDescriptor {
    fn from(descriptor: hot::FrameDescriptor) -> Self {
        let hot::FrameDescriptor { stream_id, epoch, seq, timestamp_ns, meta_version, trace_id } = descriptor;
        Self { stream_id, epoch, seq, timestamp_ns, meta_version, trace_id }
    }
}

#[pymethods]
impl FrameDescriptor {
    #[new]
    #[pyo3(signature = (*, stream_id, epoch, seq, timestamp_ns = None, meta_version = None, trace_id = None))]
    fn new(
        stream_id: u32,
        epoch: u64,
        seq: u64,
        timestamp_ns: Option<u64>,
        meta_version: Option<u32>,
        trace_id: Option<u64>,
    ) -> Self {
        Self { stream_id, epoch, seq, timestamp_ns, meta_version, trace_id }
    }

    /// Reads a framed message; `None` when it is something else.
    #[staticmethod]
    fn decode(message: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        Ok(with_bytes(message, hot::FrameDescriptor::decode)?.map(Self::from))
    }

    /// The framed message.
    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let Self { stream_id, epoch, seq, timestamp_ns, meta_version, trace_id } = *self;
        PyBytes::new(
            py,
            &hot::FrameDescriptor { stream_id, epoch, seq, timestamp_ns, meta_version, trace_id }.encode(),
        )
    }

    fn __repr__(&self) -> String {
        format!("FrameDescriptor(stream_id={}, epoch={}, seq={})", self.stream_id, self.epoch, self.seq)
    }
}

/// Part of a frame is there.
#[pyclass(frozen, eq, get_all, module = "tensor_pool._native")]
#[derive(Clone, PartialEq, Eq)]
pub struct FrameProgress {
    stream_id: u32,
    epoch: u64,
    seq: u64,
    payload_bytes_filled: u64,
    state: u8,
}

const STATES: [hot::ProgressState; 4] = [
    hot::ProgressState::Unknown,
    hot::ProgressState::Started,
    hot::ProgressState::Progress,
    hot::ProgressState::Complete,
];

#[pymethods]
impl FrameProgress {
    #[new]
    #[pyo3(signature = (*, stream_id, epoch, seq, payload_bytes_filled, state))]
    fn new(
        py: Python<'_>,
        stream_id: u32,
        epoch: u64,
        seq: u64,
        payload_bytes_filled: u64,
        state: u8,
    ) -> PyResult<Self> {
        if usize::from(state) >= STATES.len() {
            return Err(errors::MALFORMED_MESSAGE.new_err(
                py,
                format!("{state} is not a progress state"),
                None,
            ));
        }
        Ok(Self { stream_id, epoch, seq, payload_bytes_filled, state })
    }

    /// Reads a framed message; `None` when it is something else.
    #[staticmethod]
    fn decode(message: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let found = with_bytes(message, hot::FrameProgress::decode)?;
        Ok(found.map(|p| Self {
            stream_id: p.stream_id,
            epoch: p.epoch,
            seq: p.seq,
            payload_bytes_filled: p.payload_bytes_filled,
            state: p.state as u8,
        }))
    }

    /// The framed message.
    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let Self { stream_id, epoch, seq, payload_bytes_filled, state } = *self;
        let state = STATES[usize::from(state)];
        PyBytes::new(py, &hot::FrameProgress { stream_id, epoch, seq, payload_bytes_filled, state }.encode())
    }

    fn __repr__(&self) -> String {
        format!(
            "FrameProgress(stream_id={}, epoch={}, seq={}, payload_bytes_filled={}, state={})",
            self.stream_id, self.epoch, self.seq, self.payload_bytes_filled, self.state
        )
    }
}
