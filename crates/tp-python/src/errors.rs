//! The classes of `tensor_pool.errors`, raised from Rust.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use tp_core::drops::DropReason;
use tp_core::region::RegionError;
use tp_core::ring::ClaimError;

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
/// The media driver gave this process up.
pub static AERON_CLIENT_LOST: ErrorClass = ErrorClass::new("AeronClientLostError");
/// Aeron refuses a channel.
pub static CHANNEL: ErrorClass = ErrorClass::new("ChannelError");
/// Aeron could not do what was asked.
pub static TRANSPORT: ErrorClass = ErrorClass::new("TransportError");
/// A region file that can't be made, opened or trusted.
pub static REGION: ErrorClass = ErrorClass::new("RegionError");
/// Not a region URI.
pub static REGION_URI: ErrorClass = ErrorClass::new("RegionUriError");
/// No room for a region.
pub static REGION_FULL: ErrorClass = ErrorClass::new("RegionFullError");
/// Bytes that are not the message they claim to be.
pub static MALFORMED_MESSAGE: ErrorClass = ErrorClass::new("MalformedMessageError");
/// A tensor that a slot can't describe.
pub static TENSOR_LAYOUT: ErrorClass = ErrorClass::new("TensorLayoutError");
/// Larger than every pool.
pub static FRAME_TOO_LARGE: ErrorClass = ErrorClass::new("FrameTooLargeError");
/// The producer reused the slot.
pub static FRAME_OVERWRITTEN: ErrorClass = ErrorClass::new("FrameOverwrittenError");
/// A lease ended.
pub static LEASE_LOST: ErrorClass = ErrorClass::new("LeaseLostError");
/// An argument that can't be.
pub static CONFIG: ErrorClass = ErrorClass::new("ConfigError");
/// Claims out of order, twice, or too many.
pub static CLAIM: ErrorClass = ErrorClass::new("ClaimError");

const TOO_LARGE_HINT: &str =
    "make the producer with a larger dtype=, shape= or max_bytes= (a ring: with a pool of larger slots)";

impl ErrorClass {
    /// The class of this name; nothing is looked up before it is raised.
    pub const fn new(name: &'static str) -> Self {
        Self { name, class: PyOnceLock::new() }
    }

    /// An error of this class, with a line that says what to try.
    pub fn new_err(&self, py: Python<'_>, message: impl Into<String>, hint: Option<&str>) -> PyErr {
        // Whatever goes wrong on the way is itself the error to raise.
        self.build(py, message.into(), hint).unwrap_or_else(|error| error)
    }

    /// Whether an error is of this class.
    pub fn is_class_of(&self, py: Python<'_>, error: &PyErr) -> bool {
        // A class that was never raised was never looked up either.
        self.class.get(py).is_some_and(|class| error.is_instance(py, class.bind(py)))
    }

    fn build(&self, py: Python<'_>, message: String, hint: Option<&str>) -> PyResult<PyErr> {
        let class = self.class.get_or_try_init(py, || {
            let class = py.import("tensor_pool.errors")?.getattr(self.name)?;
            Ok::<_, PyErr>(class.cast_into::<PyType>()?.unbind())
        })?;
        let keywords = PyDict::new(py);
        keywords.set_item("hint", hint)?;
        Ok(PyErr::from_value(class.bind(py).call((message,), Some(&keywords))?))
    }
}

/// What region URIs look like, for hints.
pub const URI_HINT: &str = "region URIs look like shm:file?path=/dev/shm/...";

/// `ClosedError` for `what`.
pub fn closed(py: Python<'_>, what: &str) -> PyErr {
    CLOSED.new_err(py, format!("the {what} is closed"), None)
}

/// `ForkedProcessError` for `what`.
pub fn forked(py: Python<'_>, what: &str) -> PyErr {
    let message = format!("the {what} belongs to the process that this one was forked from");
    let hint = format!("make the {what} in the child, or start processes with `spawn`");
    FORKED.new_err(py, message, Some(&hint))
}

/// A region that can't be made, opened or trusted.
pub fn region(py: Python<'_>, failure: &RegionError) -> PyErr {
    let (class, hint) = match failure {
        RegionError::Uri { .. } => (&REGION_URI, Some(URI_HINT)),
        RegionError::Full { .. } => {
            (&REGION_FULL, Some("use fewer or smaller slots, or free memory there (df -h shows it)"))
        }
        RegionError::Locked { .. } => (
            &REGION,
            Some("a ring has one writer: close the other one, or give this producer a stream of its own"),
        ),
        RegionError::NotContained { .. } => {
            (&REGION, Some("if the path is yours, add its directory to the allowed base directories"))
        }
        RegionError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            (&REGION, Some("the files belong to another user: compare owner, group and mode"))
        }
        _ => (&REGION, None),
    };
    class.new_err(py, failure.to_string(), hint)
}

/// A frame that no pool can hold; and what was to be written.
pub fn too_large(py: Python<'_>, bytes: u64, largest: u32, dtype: &str, shape: &[u32]) -> PyErr {
    let dims: Vec<_> = shape.iter().map(u32::to_string).collect();
    let failure = ClaimError::TooLarge { bytes, largest };
    FRAME_TOO_LARGE.new_err(py, format!("{failure}: {dtype} {}", dims.join("x")), Some(TOO_LARGE_HINT))
}

/// A frame that can't be written.
pub fn claim(py: Python<'_>, failure: &ClaimError) -> PyErr {
    let (class, hint) = match failure {
        ClaimError::TooLarge { .. } => (&FRAME_TOO_LARGE, Some(TOO_LARGE_HINT)),
        ClaimError::Tensor(_) | ClaimError::Extent { .. } | ClaimError::Length { .. } => {
            (&TENSOR_LAYOUT, None)
        }
        ClaimError::Open(_) => (&CLAIM, Some("claims are committed in the order in which they were made")),
        ClaimError::Full(_) => (&CLAIM, Some("commit or abort one first, or give the stream more slots")),
        _ => (&CLAIM, None),
    };
    class.new_err(py, failure.to_string(), hint)
}

/// A tensor that can't be described in a slot.
pub fn layout(py: Python<'_>, reason: DropReason, what: &str) -> PyErr {
    let message = format!("{what} can't be described in a slot: {}", reason.label());
    TENSOR_LAYOUT.new_err(py, message, None)
}
