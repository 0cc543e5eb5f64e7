//! Rings for Python: thin classes over `tp-core`.

mod address;
mod buffers;
mod claim;
mod dlpack;
mod frame;
mod gather;
mod keeper;
mod messages;
mod numpy;
mod prefix;
mod reader;
mod watcher;
mod writer;

use pyo3::prelude::*;
use tp_aeron::OwnerProcess;

use crate::errors;

pub use address::{RingAddress, create_ring};
pub use claim::Claim;
pub use frame::Frame;
pub use keeper::RingKeeper;
pub use messages::{FrameDescriptor, FrameProgress};
pub use prefix::FramePrefix;
pub use reader::{RingReader, wait_any};
pub use watcher::{BellFd, BellWatcher};
pub use writer::RingWriter;

/// Raises `ForkedProcessError` in a child of the process that made `what`.
#[inline]
fn check_owner(py: Python<'_>, owner: OwnerProcess, what: &'static str) -> PyResult<()> {
    if owner.is_current() { Ok(()) } else { Err(errors::forked(py, what)) }
}
