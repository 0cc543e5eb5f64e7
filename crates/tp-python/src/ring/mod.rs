//! Rings for Python: thin classes over `tp-core`.

mod address;
mod arrays;
mod buffers;
mod claim;
mod dlpack;
mod frame;
mod gather;
mod inlet;
mod keeper;
mod layout;
mod messages;
mod outlet;
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
pub use inlet::{FrameReceiver, Handled, Inlet};
pub use keeper::RingKeeper;
pub use messages::{FrameDescriptor, FrameProgress};
pub use outlet::{FrameSender, Outlet};
pub use prefix::FramePrefix;
pub use reader::{RingReader, wait_any};
pub use watcher::{BellFd, BellWatcher};
pub use writer::{FrameArguments, Publisher, RingWriter, SharedPublisher};

/// Raises `ForkedProcessError` in a child of the process that made `what`.
#[inline]
fn check_owner(py: Python<'_>, owner: OwnerProcess, what: &'static str) -> PyResult<()> {
    if owner.is_current() { Ok(()) } else { Err(errors::forked(py, what)) }
}
