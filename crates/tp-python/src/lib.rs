//! The native module `tensor_pool._native`: PyO3 glue over `tp-core` and `tp-aeron`, registration only.
//!
//! Nothing is opened at import, and nothing here has a default: those are Python's.

mod aeron;
mod border;
mod errors;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use super::aeron::{
        AeronClient, AeronCounter, AeronMediaDriver, AeronPublication, AeronSubscription,
        aeron_counters, aeron_driver_status, aeron_version,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        border::watch_interpreter_exit(module.py())
    }
}
