//! Receiving.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use tp_aeron::{Image, ImageEvent, Subscription};

use super::raise;
use crate::border::released;

/// Session id, join time, join position, correlation id, source.
type ImageTuple = (i32, i64, i64, i64, String);

fn image_tuple(image: Image) -> ImageTuple {
    (image.session_id, image.join_time_ns, image.join_position, image.correlation_id, image.source_identity)
}

/// A subscription.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct AeronSubscription {
    pub(crate) subscription: Subscription,
}

/// Messages that were copied out of the log. Python objects are made of them only after the subscription is unlocked:
/// making them may run other people's code (a garbage collection), which may use the subscription.
#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    /// End of each message in `bytes`, its session and position.
    messages: Vec<(usize, i32, i64)>,
}

impl Received {
    fn poll(py: Python<'_>, subscription: &Subscription, limit: usize) -> PyResult<Self> {
        let mut received = Self::default();
        subscription
            .poll_assembled(limit, |message, header| {
                received.bytes.extend_from_slice(message);
                received.messages.push((received.bytes.len(), header.session_id, header.position));
            })
            .map_err(|e| raise(py, e))?;
        Ok(received)
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], i32, i64)> {
        let mut start = 0;
        self.messages.iter().map(move |(end, session_id, position)| {
            let message = &self.bytes[start..*end];
            start = *end;
            (message, *session_id, *position)
        })
    }
}

#[pymethods]
impl AeronSubscription {
    fn poll<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Bound<'py, PyList>> {
        let received = Received::poll(py, &self.subscription, limit)?;
        let list = PyList::empty(py);
        for (message, session_id, position) in received.iter() {
            list.append((PyBytes::new(py, message), session_id, position))?;
        }
        Ok(list)
    }

    fn receive<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Bound<'py, PyList>> {
        let received = Received::poll(py, &self.subscription, limit)?;
        let list = PyList::empty(py);
        for (message, _, _) in received.iter() {
            list.append(PyBytes::new(py, message))?;
        }
        Ok(list)
    }

    #[getter]
    fn connected(&self, py: Python<'_>) -> PyResult<bool> {
        self.subscription.is_connected().map_err(|e| raise(py, e))
    }

    fn images(&self, py: Python<'_>) -> PyResult<Vec<ImageTuple>> {
        let images = self.subscription.images().map_err(|e| raise(py, e))?;
        Ok(images.into_iter().map(image_tuple).collect())
    }

    fn join_time_ns(&self, py: Python<'_>, session_id: i32) -> PyResult<Option<i64>> {
        self.subscription.join_time_ns(session_id).map_err(|e| raise(py, e))
    }

    /// Images that came (true) and went (false) since the last call.
    fn take_image_events(&self, py: Python<'_>) -> PyResult<Vec<(bool, ImageTuple)>> {
        let events = self.subscription.take_image_events().map_err(|e| raise(py, e))?;
        let tuple = |event| match event {
            ImageEvent::Available(image) => (true, image_tuple(image)),
            ImageEvent::Unavailable(image) => (false, image_tuple(image)),
        };
        Ok(events.into_iter().map(tuple).collect())
    }

    #[getter]
    fn abandoned_messages(&self) -> u64 {
        self.subscription.abandoned_messages()
    }

    #[getter]
    fn closed(&self) -> bool {
        self.subscription.is_closed()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        released(py, || self.subscription.close()).map_err(|e| raise(py, e))
    }
}
