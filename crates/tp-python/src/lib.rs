//! The native module `tensor_pool._native`: PyO3 glue over `tp-core` and `tp-aeron`, no policy.
//!
//! Rules of the border: nothing is opened at import; the interpreter's lock is released for whatever takes
//! time; calls that block come back at least every 100 ms to let signals in; every handle raises
//! `ForkedProcessError` in a forked child and `ClosedError` after `close()`.

mod aeron;
mod border;
mod bridge;
mod errors;
mod functions;
mod ring;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use super::aeron::{
        AeronClient, AeronCounter, AeronDrain, AeronMediaDriver, AeronPublication, AeronSubscription,
        DescriptorFeed, DescriptorLog, Inbox, Pulse, aeron_counters, aeron_driver_status, aeron_version,
    };
    #[pymodule_export]
    use super::border::check_not_exiting;
    #[pymodule_export]
    use super::bridge::{ChunkReceiver, ChunkSender};
    #[pymodule_export]
    use super::functions::{crc32c, format_region_uri, hot_layouts, parse_region_uri};
    #[pymodule_export]
    use super::ring::{
        BellFd, BellWatcher, Claim, Frame, FrameDescriptor, FramePrefix, FrameProgress, FrameReceiver,
        FrameSender, Inlet, Outlet, RingAddress, RingKeeper, RingReader, RingWriter, create_ring, wait_any,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        border::watch_interpreter_exit(module.py())?;
        module.add("DROP_REASONS", functions::drop_reasons(module.py())?)?;
        module.add("BRIDGE_LOSSES", bridge::losses(module.py())?)
    }
}
