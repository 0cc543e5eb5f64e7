//! The classes of `tensor_pool.errors`, raised from Rust.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

/// A class of `tensor_pool.errors`, looked up by name when it is first raised.
pub struct ErrorClass {
    name: &'static str,
    class: PyOnceLock<Py<PyType>>,
}

/// Use after `close`.
pub static CLOSED: ErrorClass = ErrorClass::new("ClosedError");
/// A handle of the parent in a forked child.
pub static FORKED: ErrorClass = ErrorClass::new("ForkedProcessError");
/// No media driver, or it died.
pub static NO_MEDIA_DRIVER: ErrorClass = ErrorClass::new("NoMediaDriverError");
/// Aeron refuses a channel.
pub static CHANNEL: ErrorClass = ErrorClass::new("ChannelError");
/// Aeron could not do what was asked.
pub static TRANSPORT: ErrorClass = ErrorClass::new("TransportError");

impl ErrorClass {
    /// The class of this name; nothing is looked up before it is raised.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            class: PyOnceLock::new(),
        }
    }

    /// An error of this class, with a line that says what to try.
    pub fn new_err(&self, py: Python<'_>, message: impl Into<String>, hint: Option<&str>) -> PyErr {
        // Whatever goes wrong on the way is itself the error to raise.
        self.build(py, message.into(), hint)
            .unwrap_or_else(|error| error)
    }

    fn build(&self, py: Python<'_>, message: String, hint: Option<&str>) -> PyResult<PyErr> {
        let class = self.class.get_or_try_init(py, || {
            let class = py.import("tensor_pool.errors")?.getattr(self.name)?;
            Ok::<_, PyErr>(class.cast_into::<PyType>()?.unbind())
        })?;
        let keywords = PyDict::new(py);
        keywords.set_item("hint", hint)?;
        Ok(PyErr::from_value(
            class.bind(py).call((message,), Some(&keywords))?,
        ))
    }
}
