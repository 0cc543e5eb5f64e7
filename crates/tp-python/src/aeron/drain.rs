//! The drain: native code that receives and shows life while Python does something else.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use tp_aeron::{Drain, DrainOptions, Filter, InboxLimits, Interest, PulseMessage};
use tp_core::message_filter::MessageFilter;

use super::descriptors::DescriptorFeed;
use super::publication::AeronPublication;
use super::raise;
use super::subscription::AeronSubscription;
use crate::border::{released, sleep_in_slices};

/// A thread that polls subscriptions and sends pulses.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct AeronDrain {
    drain: Drain,
}

/// Keeps the messages of these schemas and templates, with one of these texts; nobody is woken for the quiet ones.
fn only(accept: Vec<(u16, u16)>, quiet: &[(u16, u16)], texts: Option<Vec<Vec<u8>>>) -> Filter {
    let interest = |kind: (u16, u16)| if quiet.contains(&kind) { Interest::Later } else { Interest::Now };
    let filter = MessageFilter::new(accept.into_iter().map(|kind| (kind, interest(kind))), texts);
    Box::new(move |message| filter.look(message).unwrap_or(Interest::None))
}

#[pymethods]
impl AeronDrain {
    #[new]
    #[pyo3(signature = (*, name, shortest_pause_ns, longest_pause_ns))]
    fn new(py: Python<'_>, name: String, shortest_pause_ns: u64, longest_pause_ns: u64) -> PyResult<Self> {
        let options = DrainOptions {
            name,
            shortest_pause: Duration::from_nanos(shortest_pause_ns),
            longest_pause: Duration::from_nanos(longest_pause_ns),
        };
        Drain::start(&options).map(|drain| Self { drain }).map_err(|e| raise(py, e))
    }

    #[expect(clippy::too_many_arguments, reason = "keyword-only in Python")]
    #[pyo3(signature = (subscription, *, max_messages, max_bytes, accept = None, quiet = Vec::new(), texts = None))]
    fn inbox(
        &self,
        py: Python<'_>,
        subscription: &AeronSubscription,
        max_messages: usize,
        max_bytes: usize,
        accept: Option<Vec<(u16, u16)>>,
        quiet: Vec<(u16, u16)>,
        texts: Option<Vec<Vec<u8>>>,
    ) -> PyResult<Inbox> {
        let limits = InboxLimits { max_messages, max_bytes };
        let filter = accept.map(|accept| only(accept, &quiet, texts));
        let inbox = self.drain.inbox(subscription.subscription.clone(), limits, filter);
        inbox.map(|inbox| Inbox { inbox }).map_err(|e| raise(py, e))
    }

    fn descriptors(&self, py: Python<'_>, subscription: &AeronSubscription) -> PyResult<DescriptorFeed> {
        DescriptorFeed::attach(&self.drain, subscription.subscription.clone()).map_err(|e| raise(py, e))
    }

    #[pyo3(signature = (publication, message, *, period_ns, timestamp_offset = None))]
    fn pulse(
        &self,
        py: Python<'_>,
        publication: &AeronPublication,
        message: Vec<u8>,
        period_ns: u64,
        timestamp_offset: Option<usize>,
    ) -> PyResult<Pulse> {
        let message = PulseMessage { bytes: message, timestamp_offset };
        let pulse = self.drain.pulse(publication.handle(), message, Duration::from_nanos(period_ns));
        pulse.map(|pulse| Pulse { pulse }).map_err(|e| raise(py, e))
    }

    fn hurry(&self, py: Python<'_>, duration_ns: u64) -> PyResult<()> {
        self.drain.hurry(Duration::from_nanos(duration_ns)).map_err(|e| raise(py, e))
    }

    fn wait(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        // An error ends the sleep; it is raised by the look afterwards.
        let woken = sleep_in_slices(py, timeout, || Ok(()), |slice| self.drain.wait(slice).unwrap_or(true))?;
        self.drain.check().map_err(|e| raise(py, e))?;
        Ok(woken)
    }

    fn wake(&self, py: Python<'_>) -> PyResult<()> {
        self.drain.wake().map_err(|e| raise(py, e))
    }

    #[getter]
    fn rounds(&self) -> u64 {
        self.drain.rounds()
    }

    #[getter]
    fn closed(&self) -> bool {
        self.drain.is_closed()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        released(py, || self.drain.close()).map_err(|e| raise(py, e))
    }
}

/// Where a drain puts the messages of one subscription.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct Inbox {
    inbox: tp_aeron::Inbox,
}

#[pymethods]
impl Inbox {
    fn take<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Bound<'py, PyList>> {
        let taken = self.inbox.take(limit).map_err(|e| raise(py, e))?;
        let list = PyList::empty(py);
        for message in taken {
            list.append((PyBytes::new(py, &message.bytes), message.session_id, message.position))?;
        }
        Ok(list)
    }

    fn __len__(&self) -> usize {
        self.inbox.len()
    }

    #[getter]
    fn received(&self) -> u64 {
        self.inbox.counts().received
    }

    #[getter]
    fn ignored(&self) -> u64 {
        self.inbox.counts().ignored
    }

    #[getter]
    fn overflowed(&self) -> u64 {
        self.inbox.counts().overflowed
    }

    #[getter]
    fn closed(&self) -> bool {
        self.inbox.is_closed()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.inbox.close().map_err(|e| raise(py, e))
    }
}

/// A message that goes out by itself.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct Pulse {
    pulse: tp_aeron::Pulse,
}

#[pymethods]
impl Pulse {
    #[getter]
    fn sent(&self) -> u64 {
        self.pulse.sent()
    }

    #[getter]
    fn failed(&self) -> u64 {
        self.pulse.failed()
    }

    #[getter]
    fn last_sent_ns(&self) -> Option<u64> {
        self.pulse.last_sent_ns()
    }

    #[getter]
    fn stopped(&self) -> bool {
        self.pulse.is_stopped()
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.pulse.stop().map_err(|e| raise(py, e))
    }
}
