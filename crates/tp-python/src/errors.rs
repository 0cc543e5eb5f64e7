//! Errors of the Rust crates as classes of `tensor_pool.errors`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use tp_core::drops::DropReason;
use tp_core::region::RegionError;
use tp_core::ring::ClaimError;

/// An error of class `class` in `tensor_pool.errors`.
pub fn error(py: Python<'_>, class: &str, message: impl Into<String>, hint: Option<&str>) -> PyErr {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let make = || -> PyResult<PyErr> {
        let module =
            MODULE.get_or_try_init(py, || py.import("tensor_pool.errors").map(Bound::unbind))?.bind(py);
        let options = PyDict::new(py);
        options.set_item("hint", hint)?;
        Ok(PyErr::from_value(module.getattr(class)?.call((message.into(),), Some(&options))?))
    };
    // If even that fails, the reason why is the best there is to raise.
    make().unwrap_or_else(|failure| failure)
}

/// `ClosedError` for `what`.
pub fn closed(py: Python<'_>, what: &str) -> PyErr {
    error(py, "ClosedError", format!("the {what} is closed"), None)
}

/// `ForkedProcessError` for `what`.
pub fn forked(py: Python<'_>, what: &str) -> PyErr {
    let hint = "open it again in the child process";
    error(
        py,
        "ForkedProcessError",
        format!("the {what} belongs to the process that this one was forked from"),
        Some(hint),
    )
}

/// A region that can't be made, opened or trusted.
pub fn region(py: Python<'_>, failure: &RegionError) -> PyErr {
    let (class, hint) = match failure {
        RegionError::Uri { .. } => {
            ("RegionUriError", Some("region URIs look like shm:file?path=/dev/shm/..."))
        }
        RegionError::Full { .. } => {
            ("RegionFullError", Some("use fewer or smaller slots, or free memory there (df -h shows it)"))
        }
        RegionError::NotContained { .. } => {
            ("RegionError", Some("if the path is yours, add its directory to the allowed base directories"))
        }
        RegionError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            ("RegionError", Some("the files belong to another user: compare owner, group and mode"))
        }
        _ => ("RegionError", None),
    };
    error(py, class, failure.to_string(), hint)
}

/// A frame that can't be written.
pub fn claim(py: Python<'_>, failure: &ClaimError) -> PyErr {
    let (class, hint) = match failure {
        ClaimError::TooLarge { .. } => {
            ("FrameTooLargeError", Some("give the stream a pool with a larger stride (max_bytes=...)"))
        }
        ClaimError::Tensor(_) | ClaimError::Extent { .. } => ("TensorLayoutError", None),
        ClaimError::Open(_) => {
            ("ClaimError", Some("claims are committed in the order in which they were made"))
        }
        _ => ("ClaimError", None),
    };
    error(py, class, failure.to_string(), hint)
}

/// A tensor that can't be described in a slot.
pub fn layout(py: Python<'_>, reason: DropReason, what: &str) -> PyErr {
    error(py, "TensorLayoutError", format!("{what} can't be described in a slot: {}", reason.label()), None)
}
