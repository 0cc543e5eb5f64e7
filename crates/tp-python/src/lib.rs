//! Native module.
use pyo3::prelude::*;
#[pymodule]
mod _native {
    use super::*;
    #[pyfunction]
    fn probe() -> i64 {
        tp_aeron::version() + tp_aeron::driver_probe() as i64
    }
}
