//! An ownership-safe layer over Aeron's C client and C media driver.
//!
//! The C API leaves every question of ownership to its caller: handles die with their client, an exclusive
//! publication may be used by one thread at a time, and a subscription too. The types here settle all of that, so
//! that whatever order a program (or a garbage collector) uses and closes them in, the answer is an [`Error`] and
//! never a crash:
//!
//! * every handle is `Send + Sync` and cheap to clone; the last clone that goes closes it;
//! * `close` may be called twice, from any thread, before or after the client or the media driver was closed;
//! * use after `close` gives [`Error::Closed`], use in a forked child [`Error::Forked`], and dropping a handle in a
//!   forked child touches nothing of the parent's;
//! * a media driver that dies is noticed by the client's own thread, and every handle of that client says so.
//!
//! [`Drain`] is the thread that polls subscriptions and shows life whatever the rest of its process does.
//!
//! Two rules for who builds on this crate. Handlers given to `poll` and `try_claim` run while their handle is
//! locked: they must not use that handle again. And a thread must not wait for the lock of a Python interpreter while
//! it is inside one of them, since whoever holds that lock may be waiting for the handle.

mod adding;
mod assembler;
mod client;
mod cnc;
mod conductor;
mod counters;
mod drain;
mod error;
mod images;
mod lifetime;
mod media_driver;
mod process;
mod publication;
mod shims;
mod subscription;
mod sync;

pub use adding::Adding;
pub use client::{Client, ClientOptions};
pub use cnc::{CounterRecord, DriverStatus, driver_status, read_counters};
pub use conductor::ConductorError;
pub use counters::{Counter, MAX_KEY_BYTES, MAX_LABEL_BYTES};
pub use drain::{
    Attachment, Drain, DrainOptions, Filter, Inbox, InboxCounts, InboxLimits, InboxMessage, Interest, Pulse,
    PulseMessage, Receiver,
};
pub use error::{Error, OfferError};
pub use images::{Image, ImageEvent};
pub use media_driver::{MediaDriver, MediaDriverOptions, ThreadingMode};
pub use process::{OwnerProcess, with_signals_blocked};
pub use publication::{ExclusivePublication, OfferCounts, Publication, StreamConstants};
pub use subscription::{AssemblyLimits, Header, Subscription};

/// The version of Aeron that is built in, as its own code states it.
pub fn aeron_version() -> String {
    // SAFETY: returns a pointer to a static string.
    unsafe { std::ffi::CStr::from_ptr(rusteron_client::bindings::aeron_version_text()) }
        .to_string_lossy()
        .into_owned()
}
