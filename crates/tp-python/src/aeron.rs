//! Aeron for Python: thin classes over `tp-aeron`, which keeps the promises about closing, threads and forks.

mod client;
mod descriptors;
mod drain;
mod media_driver;
mod publication;
mod subscription;

use pyo3::prelude::*;
use tp_aeron::Error;

pub use client::{AeronClient, AeronCounter};
pub use descriptors::{DescriptorFeed, DescriptorLog};
pub use drain::{AeronDrain, Inbox, Pulse};
pub use media_driver::{AeronMediaDriver, aeron_counters, aeron_driver_status};
pub use publication::AeronPublication;
pub use subscription::AeronSubscription;

use crate::errors;

/// The version of Aeron that is built in.
#[pyfunction]
pub fn aeron_version() -> String {
    tp_aeron::aeron_version()
}

/// The Python error for an error of `tp-aeron`.
pub fn raise(py: Python<'_>, error: Error) -> PyErr {
    let message = error.to_string();
    let (class, hint) = match &error {
        Error::NoMediaDriver { dir, .. } => (
            &errors::NO_MEDIA_DRIVER,
            Some(format!(
                "start one with `tpool up --aeron-dir {dir}`; `tpool media run` does so without an SHM driver"
            )),
        ),
        Error::NotPermitted { .. } => (
            &errors::NO_MEDIA_DRIVER,
            Some(
                "run as the user who started it, or share it with a group: start it under `umask 007`, \
                 and set shm.permissions = \"group\""
                    .to_owned(),
            ),
        ),
        Error::DriverActive { dir, .. } => (
            &errors::TRANSPORT,
            Some(format!("connect to it with aeron_dir={dir:?}, or choose another directory")),
        ),
        Error::Directory { .. } => (&errors::TRANSPORT, Some("choose another directory".to_owned())),
        Error::Channel { .. } => (
            &errors::CHANNEL,
            Some(
                "is the address this host's, and the port free? `tpool doctor` looks at addresses".to_owned(),
            ),
        ),
        Error::Timeout { .. } => (
            &errors::NO_MEDIA_DRIVER,
            Some("`tpool media status` shows whether the media driver is alive".to_owned()),
        ),
        Error::Closed(_) => (&errors::CLOSED, None),
        Error::Forked(what) => {
            (&errors::FORKED, Some(format!("make the {what} in the child, or start processes with `spawn`")))
        }
        Error::ClientLost { .. } => (
            &errors::AERON_CLIENT_LOST,
            Some(
                "connect again; a process that was stopped or starved for seconds loses its client"
                    .to_owned(),
            ),
        ),
        Error::InvalidArgument(_) => (&errors::TRANSPORT, None),
        Error::Aeron { .. } => (&errors::TRANSPORT, None),
    };
    class.new_err(py, message, hint.as_deref())
}
