//! A connection to a media driver, and the life of everything that is made through it.

use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::time::{Duration, Instant};

use rusteron_client::bindings as c;

use crate::cnc::driver_status;
use crate::counters::Counter;
use crate::error::{Error, aeron_error, last_error, shorten};
use crate::images::{ImageLog, Retired};
use crate::process::{OwnerProcess, with_signals_blocked};
use crate::publication::{ExclusivePublication, Publication};
use crate::subscription::{AssemblyLimits, Subscription};
use crate::sync::{lock, read, write};

/// Errors of the conductor that nobody asked for are forgotten from the oldest on.
const MAX_RECORDED_ERRORS: usize = 64;
/// The first sleep of an idle client's thread is the longest divided by this.
const IDLE_STEPS: u64 = 16;
/// How often the answer to a request is looked for.
const ANSWER_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// How often the reason for a sudden end is looked for.
const REASON_POLLS: usize = 50;

/// How a client runs.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The Aeron directory of the media driver.
    pub dir: String,
    /// Shown by Aeron's tools beside the client's id; at most 100 bytes.
    pub name: String,
    /// A media driver that shows no life for this long is dead.
    pub driver_timeout: Duration,
    /// How often the client shows life and looks for the driver's.
    pub keepalive_interval: Duration,
    /// The longest time that the client's thread sleeps between two looks. It comes near that step by step, so that
    /// what is asked in a row is answered fast while an idle client costs next to nothing.
    pub idle_sleep: Duration,
}

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
struct ErrorLog {
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
    let error = ConductorError {
        code,
        message: shorten(&message.to_string_lossy()),
    };
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

/// The C client's settings. They own the mapping of `cnc.dat`, in which counters live.
struct Context {
    raw: NonNull<c::aeron_context_t>,
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
    fn new(options: &ClientOptions, errors: &Arc<ErrorLog>) -> Result<Self, Error> {
        let invalid = |what: &str, text: &str| {
            Error::InvalidArgument(format!("{what} contains a NUL byte: {text:?}"))
        };
        let dir = CString::new(options.dir.as_str())
            .map_err(|_| invalid("the Aeron directory", &options.dir))?;
        let name = CString::new(options.name.as_str())
            .map_err(|_| invalid("the client's name", &options.name))?;
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
        let context = Self {
            raw: NonNull::new(raw).expect("a new context"),
            owner: OwnerProcess::current(),
        };
        // SAFETY: the context is valid and unused; strings are copied. The error log outlives the client.
        let results = unsafe {
            [
                c::aeron_context_set_dir(raw, dir.as_ptr()),
                c::aeron_context_set_client_name(raw, name.as_ptr()),
                c::aeron_context_set_driver_timeout_ms(
                    raw,
                    options.driver_timeout.as_millis().max(1) as u64,
                ),
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

/// A handle whose C object dies with the client.
pub(crate) trait Child: Send + Sync {
    /// Forgets the C object, which the client is about to free. Returns when no thread uses it any more.
    fn forget(&self);
}

pub(crate) struct Core {
    /// Gone once the client is closed. Whoever calls the C client holds this for reading.
    aeron: RwLock<Option<NonNull<c::aeron_t>>>,
    children: Mutex<Vec<Weak<dyn Child>>>,
    image_logs: Mutex<HashMap<u64, Arc<ImageLog>>>,
    retired_logs: Retired,
    next_log_id: AtomicU64,
    errors: Arc<ErrorLog>,
    /// Dropped after the client was closed. Only kept for what it owns.
    _context: Context,
    pub(crate) owner: OwnerProcess,
    dir: String,
    client_id: i64,
}

// SAFETY: the raw pointer is only used under the lock; the calls made through it may come from any thread, they hand
// commands to the conductor thread through a queue for many producers.
unsafe impl Send for Core {}
// SAFETY: as above.
unsafe impl Sync for Core {}

impl Core {
    /// Runs `call` with the C client, unless it was closed or this is a forked child.
    fn with_aeron<T>(
        &self,
        call: impl FnOnce(*mut c::aeron_t) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.owner.check("Aeron client")?;
        match *read(&self.aeron) {
            Some(aeron) => call(aeron.as_ptr()),
            None => Err(Error::Closed("Aeron client")),
        }
    }

    /// Runs `close_child` unless the client is closed, which then frees the child by itself.
    pub(crate) fn while_open(&self, close_child: impl FnOnce(bool)) {
        let aeron = read(&self.aeron);
        close_child(aeron.is_some());
    }

    /// Why the C client closed a handle that its owner did not close.
    pub(crate) fn lost(&self) -> Error {
        // The conductor closes handles a moment before it says why.
        let mut fatal = lock(&self.errors.state).fatal.clone();
        for _ in 0..REASON_POLLS {
            if fatal.is_some() {
                break;
            }
            std::thread::sleep(ANSWER_POLL_INTERVAL);
            fatal = lock(&self.errors.state).fatal.clone();
        }
        match fatal {
            Some(error) if error.code == c::AERON_CLIENT_ERROR_DRIVER_TIMEOUT as i32 => {
                Error::NoMediaDriver {
                    dir: self.dir.clone(),
                    reason: error.message,
                }
            }
            Some(error) => Error::ClientLost {
                reason: error.message,
            },
            None => Error::ClientLost {
                reason: "it closed its handles".to_owned(),
            },
        }
    }

    fn close(&self) {
        let Some(aeron) = write(&self.aeron).take() else {
            return;
        };
        // From here on nothing new can be added and no child can be closed through the C client.
        let children = std::mem::take(&mut *lock(&self.children));
        for child in children.iter().filter_map(Weak::upgrade) {
            child.forget();
        }
        // SAFETY: taken out of the only place that held it, and no handle refers to its objects any more. Ends the
        // conductor thread and frees every C object of this client.
        unsafe { c::aeron_close(aeron.as_ptr()) };
        lock(&self.image_logs).clear();
    }

    fn add_child(&self, child: Weak<dyn Child>) {
        let mut children = lock(&self.children);
        if children.len() == children.capacity() {
            children.retain(|known| known.strong_count() > 0);
        }
        children.push(child);
    }

    fn new_image_log(&self) -> Arc<ImageLog> {
        let log = ImageLog::new(
            self.next_log_id.fetch_add(1, Ordering::Relaxed),
            Arc::clone(&self.retired_logs),
        );
        let mut logs = lock(&self.image_logs);
        for retired in lock(&self.retired_logs).drain(..) {
            logs.remove(&retired);
        }
        logs.insert(log.id, Arc::clone(&log));
        log
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.owner.is_current() {
            self.close();
        } else {
            // The conductor thread that uses it exists in the parent only, and so does what it would free here.
            std::mem::forget(std::mem::take(
                &mut *self.image_logs.get_mut().unwrap_or_else(|e| e.into_inner()),
            ));
        }
    }
}

/// A client of a media driver. The last clone that is dropped, with all publications, subscriptions and counters made
/// through it, closes it.
#[derive(Clone)]
pub struct Client {
    core: Arc<Core>,
}

impl Client {
    /// Connects to the media driver of a directory, which must be alive now.
    ///
    /// # Errors
    /// [`Error::NoMediaDriver`] tells what was found instead of a live media driver.
    pub fn connect(options: &ClientOptions) -> Result<Self, Error> {
        // Asked here, with plain reads: the C code maps and trusts the file, and waits without end in some states.
        let status = driver_status(&options.dir)?;
        if !status.is_alive(options.driver_timeout) {
            return Err(Error::NoMediaDriver {
                dir: options.dir.clone(),
                reason: status.why_dead(),
            });
        }
        let errors = Arc::new(ErrorLog::default());
        let context = Context::new(options, &errors)?;
        let mut aeron = ptr::null_mut();
        // SAFETY: the context is configured; on success the client borrows it until it is closed.
        if unsafe { c::aeron_init(&mut aeron, context.raw.as_ptr()) } < 0 {
            let (_, reason) = last_error();
            // Not closed: in this state the context may name a mapping that was given back already, and giving it
            // back twice could hit a mapping that another thread made in between.
            std::mem::forget((context, errors));
            return Err(Error::NoMediaDriver {
                dir: options.dir.clone(),
                reason,
            });
        }
        // SAFETY: the client was initialised just now. Its thread inherits the blocked signals.
        if with_signals_blocked(|| unsafe { c::aeron_start(aeron) }) < 0 {
            let error = aeron_error("starting the Aeron client's thread");
            // SAFETY: nobody else has seen it.
            unsafe { c::aeron_close(aeron) };
            return Err(error);
        }
        // SAFETY: a valid client.
        let client_id = unsafe { c::aeron_client_id(aeron) };
        Ok(Self {
            core: Arc::new(Core {
                aeron: RwLock::new(NonNull::new(aeron)),
                children: Mutex::default(),
                image_logs: Mutex::default(),
                retired_logs: Retired::default(),
                next_log_id: AtomicU64::new(0),
                errors,
                _context: context,
                owner: OwnerProcess::current(),
                dir: options.dir.clone(),
                client_id,
            }),
        })
    }

    /// The Aeron directory.
    pub fn dir(&self) -> &str {
        &self.core.dir
    }

    /// The id under which the media driver knows this client.
    pub fn client_id(&self) -> i64 {
        self.core.client_id
    }

    /// Whether it was closed, by its owner or because the media driver is gone.
    pub fn is_closed(&self) -> bool {
        // SAFETY: the pointer is valid while with_aeron runs the call.
        self.core
            .with_aeron(|aeron| Ok(unsafe { c::aeron_is_closed(aeron) }))
            .unwrap_or(true)
    }

    /// What the client's thread ran into lately, oldest first. Forgets what it returns.
    pub fn take_errors(&self) -> Vec<ConductorError> {
        if !self.core.owner.is_current() {
            return Vec::new();
        }
        lock(&self.core.errors.state).recent.drain(..).collect()
    }

    /// Says why the client can't be used any more, if so.
    ///
    /// # Errors
    /// [`Error::NoMediaDriver`] or [`Error::ClientLost`] after the client gave up, [`Error::Closed`] after `close`.
    pub fn check(&self) -> Result<(), Error> {
        self.core.with_aeron(|aeron| {
            // SAFETY: the pointer is valid while with_aeron runs the call.
            if unsafe { c::aeron_is_closed(aeron) } {
                Err(self.core.lost())
            } else {
                Ok(())
            }
        })
    }

    /// Starts to add an exclusive publication, which only this handle writes to.
    ///
    /// # Errors
    /// As for [`Self::check`].
    pub fn add_exclusive_publication(
        &self,
        channel: &str,
        stream_id: i32,
    ) -> Result<Adding<ExclusivePublication>, Error> {
        Adding::start(&self.core, channel, (), |aeron, channel, pending| {
            // SAFETY: valid pointers, see Adding::start; the channel is copied.
            unsafe { c::aeron_async_add_exclusive_publication(pending, aeron, channel, stream_id) }
        })
    }

    /// Starts to add a publication that other clients may share.
    ///
    /// # Errors
    /// As for [`Self::check`].
    pub fn add_publication(
        &self,
        channel: &str,
        stream_id: i32,
    ) -> Result<Adding<Publication>, Error> {
        Adding::start(&self.core, channel, (), |aeron, channel, pending| {
            // SAFETY: as above.
            unsafe { c::aeron_async_add_publication(pending, aeron, channel, stream_id) }
        })
    }

    /// Starts to add a subscription.
    ///
    /// # Errors
    /// As for [`Self::check`].
    pub fn add_subscription(
        &self,
        channel: &str,
        stream_id: i32,
        limits: AssemblyLimits,
    ) -> Result<Adding<Subscription>, Error> {
        self.check()?;
        let log = self.core.new_image_log();
        let clientd = log.as_clientd();
        Adding::start(
            &self.core,
            channel,
            (log, limits),
            |aeron, channel, pending| {
                // SAFETY: as above; the client keeps the log behind clientd alive until it is retired.
                unsafe {
                    c::aeron_async_add_subscription(
                        pending,
                        aeron,
                        channel,
                        stream_id,
                        Some(crate::images::on_available_image),
                        clientd,
                        Some(crate::images::on_unavailable_image),
                        clientd,
                    )
                }
            },
        )
    }

    /// Starts to add a counter. Key and label are as [`Counter`] says.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a key or label that is too long; else as for [`Self::check`].
    pub fn add_counter(
        &self,
        type_id: i32,
        key: &[u8],
        label: &str,
    ) -> Result<Adding<Counter>, Error> {
        crate::counters::check_sizes(key, label)?;
        Adding::start(&self.core, "", (), |aeron, _channel, pending| {
            // SAFETY: as above; key and label are copied.
            unsafe {
                c::aeron_async_add_counter(
                    pending,
                    aeron,
                    type_id,
                    key.as_ptr(),
                    key.len(),
                    label.as_ptr().cast(),
                    label.len(),
                )
            }
        })
    }

    /// Closes the client and everything made through it; takes some milliseconds. Does nothing when called again.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    pub fn close(&self) -> Result<(), Error> {
        self.core.owner.check("Aeron client")?;
        self.core.close();
        Ok(())
    }
}

type AsyncAdd = c::aeron_client_registering_resource_stct;

/// What can be added to a client.
pub(crate) trait Addable: Sized {
    type Raw;
    /// What the handle needs beside the C object.
    type Extra;
    const WHAT: &'static str;
    const POLL: unsafe extern "C" fn(*mut *mut Self::Raw, *mut AsyncAdd) -> c_int;
    const REMOVE: unsafe extern "C" fn(
        i64,
        *mut c::aeron_t,
        c::aeron_notification_t,
        *mut c_void,
    ) -> c_int;
    /// Called by the C code when an abandoned request is forgotten.
    fn on_removed(_extra: &Self::Extra) -> (c::aeron_notification_t, *mut c_void) {
        (None, ptr::null_mut())
    }
    fn build(
        core: &Arc<Core>,
        raw: NonNull<Self::Raw>,
        extra: Self::Extra,
    ) -> (Self, Weak<dyn Child>);
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
    fn start(
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
            let registration_id =
                unsafe { c::aeron_async_add_subscription_get_registration_id(pending) };
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
                    let (handle, child) =
                        T::build(&core, NonNull::new(raw).expect("what was added"), extra);
                    core.add_child(child);
                    Ok(Some(handle))
                }
                _ => {
                    self.pending = None;
                    Err(self.refusal())
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
        Error::Timeout {
            what: T::WHAT,
            timeout_ms: timeout.as_millis(),
        }
    }

    /// Translates the error that the media driver answered with.
    fn refusal(&self) -> Error {
        let (code, message) = last_error();
        match u32::try_from(-i64::from(code)) {
            Ok(c::AERON_CLIENT_ERROR_DRIVER_TIMEOUT) => Error::NoMediaDriver {
                dir: self.core.dir.clone(),
                reason: message,
            },
            // Invalid, not openable, unknown host; and what Aeron did not classify, mostly parameters out of range.
            Ok(1 | 4 | 9 | 11) if !self.channel.is_empty() => Error::Channel {
                channel: self.channel.clone(),
                reason: message,
            },
            _ => Error::Aeron {
                what: T::WHAT,
                code,
                message,
            },
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
