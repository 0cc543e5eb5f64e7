//! The client and its counters.

use std::time::Duration;

use pyo3::prelude::*;
use tp_aeron::{Adding, AssemblyLimits, Client, ClientOptions, Counter, Error};

use super::publication::AeronPublication;
use super::raise;
use super::subscription::AeronSubscription;
use crate::border::{released, wait_for};

/// Waits for the answer to a request; dropping the request abandons it.
macro_rules! added {
    ($py:ident, $adding:expr, $timeout_ns:ident) => {{
        let mut adding: Adding<_> = $adding.map_err(|e| raise($py, e))?;
        let timeout = Duration::from_nanos($timeout_ns);
        match wait_for($py, timeout, raise, || adding.poll())? {
            Some(added) => added,
            None => return Err(raise($py, adding.timed_out(timeout))),
        }
    }};
}

/// A client of a media driver.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct AeronClient {
    pub(crate) client: Client,
}

#[pymethods]
impl AeronClient {
    #[new]
    #[pyo3(signature = (*, aeron_dir, name, connect_timeout_ns, driver_timeout_ns, keepalive_interval_ns, idle_sleep_ns))]
    fn new(
        py: Python<'_>,
        aeron_dir: String,
        name: String,
        connect_timeout_ns: u64,
        driver_timeout_ns: u64,
        keepalive_interval_ns: u64,
        idle_sleep_ns: u64,
    ) -> PyResult<Self> {
        let options = ClientOptions {
            dir: aeron_dir,
            name,
            driver_timeout: Duration::from_nanos(driver_timeout_ns),
            keepalive_interval: Duration::from_nanos(keepalive_interval_ns),
            idle_sleep: Duration::from_nanos(idle_sleep_ns),
        };
        let mut absent = None;
        let connected = wait_for(py, Duration::from_nanos(connect_timeout_ns), raise, || {
            match Client::connect(&options) {
                Ok(client) => Ok(Some(client)),
                // One may be about to start: look again until the time is over.
                Err(error @ Error::NoMediaDriver { .. }) => {
                    absent = Some(error);
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        })?;
        match (connected, absent) {
            (Some(client), _) => Ok(Self { client }),
            (None, Some(error)) => Err(raise(py, error)),
            (None, None) => unreachable!("every attempt gives a client or an error"),
        }
    }

    #[getter]
    fn aeron_dir(&self) -> &str {
        self.client.dir()
    }

    #[getter]
    fn client_id(&self) -> i64 {
        self.client.client_id()
    }

    #[getter]
    fn closed(&self) -> bool {
        self.client.is_closed()
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.client.check().map_err(|e| raise(py, e))
    }

    fn take_errors(&self) -> Vec<(i32, String)> {
        self.client.take_errors().into_iter().map(|error| (error.code, error.message)).collect()
    }

    fn add_publication(
        &self,
        py: Python<'_>,
        channel: &str,
        stream_id: i32,
        timeout_ns: u64,
    ) -> PyResult<AeronPublication> {
        let publication = added!(py, self.client.add_exclusive_publication(channel, stream_id), timeout_ns);
        Ok(AeronPublication { publication })
    }

    fn add_subscription(
        &self,
        py: Python<'_>,
        channel: &str,
        stream_id: i32,
        max_message_bytes: usize,
        max_total_bytes: usize,
        timeout_ns: u64,
    ) -> PyResult<AeronSubscription> {
        let limits = AssemblyLimits { max_message_bytes, max_total_bytes };
        let subscription = added!(py, self.client.add_subscription(channel, stream_id, limits), timeout_ns);
        Ok(AeronSubscription { subscription })
    }

    fn add_counter(
        &self,
        py: Python<'_>,
        type_id: i32,
        key: &[u8],
        label: &str,
        timeout_ns: u64,
    ) -> PyResult<AeronCounter> {
        let counter = added!(py, self.client.add_counter(type_id, key, label), timeout_ns);
        Ok(AeronCounter { counter })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        released(py, || self.client.close()).map_err(|e| raise(py, e))
    }
}

/// A counter that every process can read.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct AeronCounter {
    counter: Counter,
}

#[pymethods]
impl AeronCounter {
    #[getter]
    fn counter_id(&self) -> i32 {
        self.counter.counter_id()
    }

    #[getter]
    fn closed(&self) -> bool {
        self.counter.is_closed()
    }

    fn add(&self, py: Python<'_>, amount: i64) -> PyResult<i64> {
        self.counter.add(amount).map_err(|e| raise(py, e))
    }

    fn set(&self, py: Python<'_>, value: i64) -> PyResult<()> {
        self.counter.set(value).map_err(|e| raise(py, e))
    }

    fn get(&self, py: Python<'_>) -> PyResult<i64> {
        self.counter.get().map_err(|e| raise(py, e))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        released(py, || self.counter.close()).map_err(|e| raise(py, e))
    }
}
