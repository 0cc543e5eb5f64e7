//! The media driver, and what a directory tells about one.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tp_aeron::{MediaDriver, MediaDriverOptions, ThreadingMode, driver_status, read_counters};

use super::raise;
use crate::border::released;

/// A media driver on threads of this process.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct AeronMediaDriver {
    driver: MediaDriver,
}

#[pymethods]
impl AeronMediaDriver {
    #[new]
    #[pyo3(signature = (*, aeron_dir, dir_delete_on_start, dir_delete_on_shutdown, threading_mode, idle_strategy,
        idle_arguments, timer_interval_ns, client_liveness_ns, publication_connection_ns, untethered_window_limit_ns, untethered_linger_ns,
        untethered_resting_ns, term_buffer_bytes, ipc_term_buffer_bytes, sparse_terms, counter_values_bytes))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        aeron_dir: String,
        dir_delete_on_start: bool,
        dir_delete_on_shutdown: bool,
        threading_mode: &str,
        idle_strategy: String,
        idle_arguments: Option<String>,
        timer_interval_ns: u64,
        client_liveness_ns: Option<u64>,
        publication_connection_ns: Option<u64>,
        untethered_window_limit_ns: Option<u64>,
        untethered_linger_ns: Option<u64>,
        untethered_resting_ns: Option<u64>,
        term_buffer_bytes: Option<usize>,
        ipc_term_buffer_bytes: Option<usize>,
        sparse_terms: Option<bool>,
        counter_values_bytes: Option<usize>,
    ) -> PyResult<Self> {
        let threading_mode = match threading_mode {
            "shared" => ThreadingMode::Shared,
            "shared_network" => ThreadingMode::SharedNetwork,
            "dedicated" => ThreadingMode::Dedicated,
            other => {
                return Err(PyValueError::new_err(format!("unknown threading mode {other:?}")));
            }
        };
        let options = MediaDriverOptions {
            dir: aeron_dir,
            dir_delete_on_start,
            dir_delete_on_shutdown,
            threading_mode,
            idle_strategy: (idle_strategy, idle_arguments),
            timer_interval: Duration::from_nanos(timer_interval_ns),
            client_liveness: client_liveness_ns.map(Duration::from_nanos),
            publication_connection: publication_connection_ns.map(Duration::from_nanos),
            untethered_window_limit: untethered_window_limit_ns.map(Duration::from_nanos),
            untethered_linger: untethered_linger_ns.map(Duration::from_nanos),
            untethered_resting: untethered_resting_ns.map(Duration::from_nanos),
            term_buffer_bytes,
            ipc_term_buffer_bytes,
            sparse_terms,
            counter_values_bytes,
        };
        let driver = released(py, || MediaDriver::start(&options)).map_err(|e| raise(py, e))?;
        Ok(Self { driver })
    }

    #[getter]
    fn aeron_dir(&self) -> &str {
        self.driver.dir()
    }

    #[getter]
    fn closed(&self) -> bool {
        self.driver.is_closed()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        released(py, || self.driver.close()).map_err(|e| raise(py, e))
    }
}

/// What the media driver of a directory says about itself: pid, start and heartbeat in milliseconds since 1970,
/// nanoseconds after which it drops a client, and whether it showed life within the time-out.
#[pyfunction]
pub fn aeron_driver_status(
    py: Python<'_>,
    aeron_dir: &str,
    timeout_ns: u64,
) -> PyResult<(i64, i64, i64, i64, bool)> {
    let status = driver_status(aeron_dir).map_err(|e| raise(py, e))?;
    let liveness_ns = i64::try_from(status.client_liveness.as_nanos()).unwrap_or(i64::MAX);
    let alive = status.is_alive(Duration::from_nanos(timeout_ns));
    Ok((status.pid, status.start_ms, status.heartbeat_ms, liveness_ns, alive))
}

type CounterTuple = (i32, i32, i64, i64, i64, Py<PyBytes>, String);

/// All counters of the media driver of a directory: counter id, type id, value, registration id, owner, key, label.
#[pyfunction]
pub fn aeron_counters(py: Python<'_>, aeron_dir: &str) -> PyResult<Vec<CounterTuple>> {
    let records = released(py, || read_counters(aeron_dir)).map_err(|e| raise(py, e))?;
    Ok(records
        .into_iter()
        .map(|record| {
            let key = PyBytes::new(py, &record.key).unbind();
            let ids = (record.counter_id, record.type_id);
            (ids.0, ids.1, record.value, record.registration_id, record.owner_id, key, record.label)
        })
        .collect())
}
