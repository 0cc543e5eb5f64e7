//! The settings of a C client, and what its own thread reports.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusteron_client::bindings as c;

use crate::client::ClientOptions;
use crate::error::{Error, aeron_error, shorten};
use crate::process::OwnerProcess;
use crate::sync::lock;

/// Errors of the conductor that nobody asked for are forgotten from the oldest on.
const MAX_RECORDED_ERRORS: usize = 64;
/// The first sleep of an idle client's thread is the longest divided by this.
const IDLE_STEPS: u64 = 16;
/// How often, and how long apart, the reason for a sudden end is looked for.
const REASON_POLLS: usize = 50;
const REASON_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Something that the client's own thread ran into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConductorError {
    /// Aeron's error code.
    pub code: i32,
    /// Aeron's own words.
    pub message: String,
}

/// What the conductor thread reports. Its default handler would end the process instead.
#[derive(Default)]
pub(crate) struct ErrorLog {
    state: Mutex<ErrorState>,
}

#[derive(Default)]
struct ErrorState {
    recent: VecDeque<ConductorError>,
    /// The error after which the C client can't be used any more.
    fatal: Option<ConductorError>,
}

unsafe extern "C" fn on_conductor_error(clientd: *mut c_void, code: c_int, message: *const c_char) {
    // SAFETY: the client keeps the log alive until its conductor thread has ended; the message is valid meanwhile.
    let (log, message) = unsafe { (&*clientd.cast::<ErrorLog>(), CStr::from_ptr(message)) };
    let error = ConductorError { code, message: shorten(&message.to_string_lossy()) };
    let mut state = lock(&log.state);
    let is_fatal = [
        c::AERON_CLIENT_ERROR_DRIVER_TIMEOUT,
        c::AERON_CLIENT_ERROR_CLIENT_TIMEOUT,
        c::AERON_CLIENT_ERROR_CONDUCTOR_SERVICE_TIMEOUT,
        c::AERON_CLIENT_ERROR_BROADCAST_RECEIVER_ILLEGAL_STATE,
    ]
    .contains(&(code as u32));
    if is_fatal && state.fatal.is_none() {
        state.fatal = Some(error.clone());
    }
    if state.recent.len() == MAX_RECORDED_ERRORS {
        state.recent.pop_front();
    }
    state.recent.push_back(error);
}

impl ErrorLog {
    pub(crate) fn take(&self) -> Vec<ConductorError> {
        lock(&self.state).recent.drain(..).collect()
    }

    /// The error that ended the client. The conductor closes handles a moment before it says why, so a reader that
    /// found its handle closed may have to wait that moment.
    pub(crate) fn await_fatal(&self) -> Option<ConductorError> {
        for _ in 0..REASON_POLLS {
            if let Some(fatal) = lock(&self.state).fatal.clone() {
                return Some(fatal);
            }
            std::thread::sleep(REASON_POLL_INTERVAL);
        }
        None
    }
}

/// The C client's settings. They own the mapping of `cnc.dat`, in which counters live.
pub(crate) struct Context {
    pub(crate) raw: NonNull<c::aeron_context_t>,
    owner: OwnerProcess,
}

// SAFETY: written only before the client starts; afterwards it is kept for what it owns and closed by its last holder.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        if self.owner.is_current() {
            // SAFETY: the last holder; the client that used it was closed before.
            unsafe { c::aeron_context_close(self.raw.as_ptr()) };
        }
    }
}

impl Context {
    pub(crate) fn new(options: &ClientOptions, errors: &Arc<ErrorLog>) -> Result<Self, Error> {
        let invalid =
            |what: &str, text: &str| Error::InvalidArgument(format!("{what} contains a NUL byte: {text:?}"));
        let dir =
            CString::new(options.dir.as_str()).map_err(|_| invalid("the Aeron directory", &options.dir))?;
        let name =
            CString::new(options.name.as_str()).map_err(|_| invalid("the client's name", &options.name))?;
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let longest = options.idle_sleep.max(Duration::from_micros(IDLE_STEPS));
        let shortest = longest.as_micros() / u128::from(IDLE_STEPS);
        let idle = format!("1-1-{shortest}us-{}us", longest.as_micros());
        let idle = CString::new(idle).expect("no NUL");
        let mut raw = ptr::null_mut();
        // SAFETY: fills the pointer on success.
        if unsafe { c::aeron_context_init(&mut raw) } < 0 {
            return Err(aeron_error("configuring the Aeron client"));
        }
        let context = Self { raw: NonNull::new(raw).expect("a new context"), owner: OwnerProcess::current() };
        // SAFETY: the context is valid and unused; strings are copied. The error log outlives the client.
        let results = unsafe {
            [
                c::aeron_context_set_dir(raw, dir.as_ptr()),
                c::aeron_context_set_client_name(raw, name.as_ptr()),
                c::aeron_context_set_driver_timeout_ms(raw, options.driver_timeout.as_millis().max(1) as u64),
                c::aeron_context_set_keepalive_interval_ns(raw, nanos(options.keepalive_interval)),
                c::aeron_context_set_idle_sleep_duration_ns(raw, nanos(options.idle_sleep)),
                c::aeron_context_set_idle_strategy_init_args(raw, idle.as_ptr()),
                c::aeron_context_set_idle_strategy(raw, c"backoff".as_ptr()),
                c::aeron_context_set_error_handler(
                    raw,
                    Some(on_conductor_error),
                    Arc::as_ptr(errors).cast_mut().cast(),
                ),
            ]
        };
        if results.iter().any(|result| *result < 0) {
            return Err(aeron_error("configuring the Aeron client"));
        }
        Ok(context)
    }
}
