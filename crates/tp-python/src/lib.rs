//! The native module `tensor_pool._native`: PyO3 glue only, no policy.
//!
//! Rules of the border: nothing is opened at import; the GIL is released for whatever takes time; calls
//! that block come back at least every 100 ms to let signals in; every handle raises
//! `ForkedProcessError` in a forked child and `ClosedError` after `close()`.

mod address;
mod buffers;
mod claim;
mod dlpack;
mod errors;
mod fork;
mod frame;
mod functions;
mod messages;
mod numpy;
mod reader;
mod writer;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::address::{RingAddress, create_ring};
    #[pymodule_export]
    use super::claim::Claim;
    #[pymodule_export]
    use super::frame::Frame;
    #[pymodule_export]
    use super::functions::{crc32c, format_region_uri, hot_layouts, parse_region_uri};
    #[pymodule_export]
    use super::messages::{FrameDescriptor, FrameProgress};
    #[pymodule_export]
    use super::reader::{RingReader, wait_any};
    #[pymodule_export]
    use super::writer::RingWriter;
    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Log lines of the Rust crates become records of Python's logging.
        pyo3_log::init();
        module.add("DROP_REASONS", functions::drop_reasons(module.py())?)
    }
}
