//! The bridge's work for every chunk; everything else of it is Python.

mod receiver;
mod sender;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tp_core::bridge::Lost;

pub use receiver::ChunkReceiver;
pub use sender::ChunkSender;

/// The names of all reasons for which something is lost.
pub fn losses(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    PyTuple::new(py, Lost::ALL.iter().map(|reason| reason.label()))
}
