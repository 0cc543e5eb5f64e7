//! Requests to the media driver whose answer is awaited.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rusteron_client::bindings as c;

use crate::error::{Error, aeron_error, last_error};
use crate::lifetime::{Child, Core};

/// How often the answer to a request is looked for.
const ANSWER_POLL_INTERVAL: Duration = Duration::from_millis(1);

type AsyncAdd = c::aeron_client_registering_resource_stct;

/// What can be added to a client.
pub(crate) trait Addable: Sized {
    type Raw;
    /// What the handle needs beside the C object.
    type Extra;
    const WHAT: &'static str;
    const POLL: unsafe extern "C" fn(*mut *mut Self::Raw, *mut AsyncAdd) -> c_int;
    const REMOVE: unsafe extern "C" fn(i64, *mut c::aeron_t, c::aeron_notification_t, *mut c_void) -> c_int;
    /// Called by the C code when an abandoned request is forgotten.
    fn on_removed(_extra: &Self::Extra) -> (c::aeron_notification_t, *mut c_void) {
        (None, ptr::null_mut())
    }
    /// Called when the media driver refused, so that the C code will never use `extra`.
    fn on_refused(_extra: &Self::Extra) {}
    fn build(core: &Arc<Core>, raw: NonNull<Self::Raw>, extra: Self::Extra) -> (Self, Weak<dyn Child>);
}

/// A request to the media driver whose answer is awaited. Dropping it abandons the request.
#[allow(private_bounds)]
pub struct Adding<T: Addable> {
    core: Arc<Core>,
    pending: Option<NonNull<AsyncAdd>>,
    registration_id: i64,
    extra: Option<T::Extra>,
    channel: String,
}

// SAFETY: the pointer is used only by who holds the request, under the client's lock; the C code allows any thread.
unsafe impl<T: Addable> Send for Adding<T> where T::Extra: Send {}

#[allow(private_bounds)]
impl<T: Addable> Adding<T> {
    pub(crate) fn start(
        core: &Arc<Core>,
        channel: &str,
        extra: T::Extra,
        request: impl FnOnce(*mut c::aeron_t, *const c_char, *mut *mut AsyncAdd) -> c_int,
    ) -> Result<Self, Error> {
        let c_channel = CString::new(channel).map_err(|_| Error::Channel {
            channel: channel.to_owned(),
            reason: "it contains a NUL byte".to_owned(),
        })?;
        core.with_aeron(|aeron| {
            // SAFETY: the pointer is valid while with_aeron runs the call.
            if unsafe { c::aeron_is_closed(aeron) } {
                return Err(core.lost());
            }
            let mut pending = ptr::null_mut();
            if request(aeron, c_channel.as_ptr(), &mut pending) < 0 {
                return Err(aeron_error("asking the media driver"));
            }
            // SAFETY: the C code owns the request until an answer was polled; all kinds share one C type, so that one
            // of the functions that read its id serves them all.
            let registration_id = unsafe { c::aeron_async_add_subscription_get_registration_id(pending) };
            let pending = NonNull::new(pending);
            Ok(Self {
                core: Arc::clone(core),
                pending,
                registration_id,
                extra: Some(extra),
                channel: channel.to_owned(),
            })
        })
    }

    /// Looks for the answer; `None` when there is none yet.
    ///
    /// # Errors
    /// [`Error::Channel`] when Aeron refuses the channel, and what [`Client::check`] says. The request is over then.
    pub fn poll(&mut self) -> Result<Option<T>, Error> {
        let core = Arc::clone(&self.core);
        core.with_aeron(|aeron| {
            let Some(pending) = self.pending else {
                return Err(Error::Closed(T::WHAT));
            };
            // SAFETY: the pointer is valid while with_aeron runs the call.
            if unsafe { c::aeron_is_closed(aeron) } {
                return Err(core.lost());
            }
            let mut raw = ptr::null_mut();
            // SAFETY: the request is valid until it was answered or the client closed, which the lock excludes.
            match unsafe { T::POLL(&mut raw, pending.as_ptr()) } {
                0 => Ok(None),
                1 => {
                    self.pending = None;
                    let extra = self.extra.take().expect("used once");
                    let (handle, child) = T::build(&core, NonNull::new(raw).expect("what was added"), extra);
                    core.add_child(child);
                    Ok(Some(handle))
                }
                _ => {
                    self.pending = None;
                    let refusal = self.refusal();
                    if let Some(extra) = self.extra.take() {
                        T::on_refused(&extra);
                    }
                    Err(refusal)
                }
            }
        })
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// [`Error::Timeout`] when there is none in time, else as [`Self::poll`].
    pub fn wait(mut self, timeout: Duration) -> Result<T, Error> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.poll()? {
                Some(added) => return Ok(added),
                None if Instant::now() >= deadline => return Err(self.timed_out(timeout)),
                None => std::thread::sleep(ANSWER_POLL_INTERVAL),
            }
        }
    }

    /// The error to give when `timeout` has passed without an answer.
    pub fn timed_out(&self, timeout: Duration) -> Error {
        Error::Timeout { what: T::WHAT, timeout_ms: timeout.as_millis() }
    }

    /// Translates the error that the media driver answered with.
    fn refusal(&self) -> Error {
        let (code, message) = last_error();
        match u32::try_from(-i64::from(code)) {
            Ok(c::AERON_CLIENT_ERROR_DRIVER_TIMEOUT) => {
                Error::NoMediaDriver { dir: self.core.dir.clone(), reason: message }
            }
            // Invalid, not openable, unknown host; and what Aeron did not classify, mostly parameters out of range.
            Ok(1 | 4 | 9 | 11) if !self.channel.is_empty() => {
                Error::Channel { channel: self.channel.clone(), reason: message }
            }
            _ => Error::Aeron { what: T::WHAT, code, message },
        }
    }
}

impl<T: Addable> Drop for Adding<T> {
    fn drop(&mut self) {
        let (Some(_), Some(extra)) = (self.pending.take(), &self.extra) else {
            return;
        };
        let _ = self.core.with_aeron(|aeron| {
            let (on_removed, clientd) = T::on_removed(extra);
            // SAFETY: a valid client; the conductor thread frees the request, and what it may have made by then.
            unsafe { T::REMOVE(self.registration_id, aeron, on_removed, clientd) };
            Ok(())
        });
    }
}
