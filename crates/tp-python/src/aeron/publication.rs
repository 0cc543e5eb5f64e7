//! Sending.

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tp_aeron::{ExclusivePublication, OfferError};

use super::raise;
use crate::border::{SharedBytes, buffer_of, released};
use crate::errors;

/// Below this length copying a message is quicker than giving the interpreter's lock away and asking for it back.
const RELEASE_BYTES: usize = 64 << 10;

/// An exclusive publication.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct AeronPublication {
    pub(crate) publication: ExclusivePublication,
}

impl AeronPublication {
    /// The publication, for native code that sends without crossing into Python.
    pub fn handle(&self) -> ExclusivePublication {
        self.publication.clone()
    }

    /// Runs `send` over the bytes of any object with a contiguous buffer.
    fn send(
        &self,
        message: &Bound<'_, PyAny>,
        send: impl Fn(&ExclusivePublication, &[u8]) -> Result<i64, OfferError> + Send + Sync,
    ) -> PyResult<i64> {
        let py = message.py();
        let result = if let Ok(bytes) = message.cast::<PyBytes>() {
            let bytes = bytes.as_bytes();
            if bytes.len() < RELEASE_BYTES {
                send(&self.publication, bytes)
            } else {
                released(py, || send(&self.publication, bytes))
            }
        } else {
            let buffer = buffer_of(message)?;
            if !buffer.is_c_contiguous() {
                return Err(PyBufferError::new_err("a message must be contiguous in memory"));
            }
            // Others may write to it meanwhile (it may be a frame in shared memory): send a copy of our own.
            let shared = SharedBytes::of(&buffer);
            let mut bytes = Vec::with_capacity(shared.len());
            shared.for_each_block(|block| bytes.extend_from_slice(block));
            released(py, || send(&self.publication, &bytes))
        };
        match result {
            Ok(position) => Ok(position),
            Err(OfferError::NotConnected) => Ok(-1),
            Err(OfferError::BackPressured) => Ok(-2),
            Err(OfferError::AdminAction) => Ok(-3),
            Err(OfferError::MaxPositionExceeded) => Ok(-5),
            Err(OfferError::Closed) => Err(raise(py, tp_aeron::Error::Closed("publication"))),
            Err(error @ OfferError::TooLong { max, .. }) => {
                let hint = if max < self.publication.constants().max_message_bytes {
                    "offer() sends longer messages, in pieces"
                } else {
                    "a longer term-length of the channel allows longer messages, up to 16 MiB"
                };
                Err(errors::TRANSPORT.new_err(py, error.to_string(), Some(hint)))
            }
            Err(OfferError::Error(error)) => Err(raise(py, error)),
        }
    }
}

#[pymethods]
impl AeronPublication {
    fn offer(&self, message: &Bound<'_, PyAny>) -> PyResult<i64> {
        self.send(message, ExclusivePublication::offer)
    }

    fn try_claim(&self, message: &Bound<'_, PyAny>) -> PyResult<i64> {
        self.send(message, |publication, bytes| {
            publication.try_claim(bytes.len(), |claimed| claimed.copy_from_slice(bytes))
        })
    }

    #[getter]
    fn channel(&self) -> &str {
        &self.publication.constants().channel
    }

    #[getter]
    fn stream_id(&self) -> i32 {
        self.publication.constants().stream_id
    }

    #[getter]
    fn session_id(&self) -> i32 {
        self.publication.constants().session_id
    }

    #[getter]
    fn max_message_bytes(&self) -> usize {
        self.publication.constants().max_message_bytes
    }

    #[getter]
    fn max_payload_bytes(&self) -> usize {
        self.publication.constants().max_payload_bytes
    }

    #[getter]
    fn term_bytes(&self) -> usize {
        self.publication.constants().term_bytes
    }

    #[getter]
    fn connected(&self, py: Python<'_>) -> PyResult<bool> {
        self.publication.is_connected().map_err(|e| raise(py, e))
    }

    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<i64> {
        self.publication.position().map_err(|e| raise(py, e))
    }

    /// Messages and bytes sent, refusals for want of subscribers and of room, rotations met, other failures.
    #[getter]
    fn counts(&self) -> (u64, u64, u64, u64, u64, u64) {
        let counts = self.publication.counts();
        (
            counts.sent,
            counts.sent_bytes,
            counts.not_connected,
            counts.back_pressured,
            counts.admin_actions,
            counts.failed,
        )
    }

    #[getter]
    fn closed(&self) -> bool {
        self.publication.is_closed()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        released(py, || self.publication.close()).map_err(|e| raise(py, e))
    }

    fn revoke(&self, py: Python<'_>) -> PyResult<()> {
        released(py, || self.publication.revoke()).map_err(|e| raise(py, e))
    }
}
