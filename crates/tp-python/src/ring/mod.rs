//! Rings for Python: thin classes over `tp-core`.

mod address;
mod buffers;
mod claim;
mod dlpack;
mod frame;
mod messages;
mod numpy;
mod reader;
mod writer;

use pyo3::prelude::*;
use tp_aeron::OwnerProcess;

pub use address::{RingAddress, create_ring};
pub use claim::Claim;
pub use frame::Frame;
pub use messages::{FrameDescriptor, FrameProgress};
pub use reader::{RingReader, wait_any};
pub use writer::RingWriter;

/// Raises `ForkedProcessError` in a child of the process that made `what`.
#[inline]
fn check_owner(py: Python<'_>, owner: OwnerProcess, what: &'static str) -> PyResult<()> {
    owner.check(what).map_err(|error| crate::aeron::raise(py, error))
}
