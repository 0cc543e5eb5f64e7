//! Aeron's media driver inside this process.

use std::ffi::{CStr, CString, c_int};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rusteron_media_driver::bindings as c;
use rustix::fs::{FlockOperation, flock};

use crate::cnc::{LIFE_LOCK_FILE, driver_status, read_counters};
use crate::error::{Error, aeron_error};
use crate::process::{OwnerProcess, with_signals_blocked};
use crate::sync::lock;

/// What a media driver puts into its directory; anything else there is somebody's data.
const DRIVER_FILES: [&str; 5] = ["cnc.dat", "loss-report.dat", "publications", "images", LIFE_LOCK_FILE];
/// Aeron cuts longer paths silently; room is left for the names below the directory.
const MAX_DIR_BYTES: usize = 3800;
/// Aeron's counters of how far a publication may go, and how far it was sent to other hosts.
const PUBLISHER_LIMIT: i32 = c::AERON_COUNTER_PUBLISHER_LIMIT_TYPE_ID as i32;
const SENDER_POSITION: i32 = c::AERON_COUNTER_SENDER_POSITION_TYPE_ID as i32;
/// A driver that ends waits no longer than this for its sender.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_millis(250);
const LAST_WORDS_PAUSE: Duration = Duration::from_millis(1);

/// How the media driver's work is spread over threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadingMode {
    /// One thread does everything.
    Shared,
    /// One thread for the conductor, one for sender and receiver.
    SharedNetwork,
    /// One thread each for conductor, sender and receiver.
    Dedicated,
}

/// How a media driver runs. What is `None` stays as Aeron has it, by its own environment variables or defaults.
#[derive(Debug, Clone)]
pub struct MediaDriverOptions {
    /// The Aeron directory.
    pub dir: String,
    /// Replace what a dead driver left in the directory, instead of refusing to start.
    pub dir_delete_on_start: bool,
    /// Remove the directory at a clean end.
    pub dir_delete_on_shutdown: bool,
    /// Spread of the work over threads.
    pub threading_mode: ThreadingMode,
    /// Name of Aeron's idle strategy for all threads, and its arguments.
    pub idle_strategy: (String, Option<String>),
    /// How often time-outs are looked at; the finest grain of every other time here.
    pub timer_interval: Duration,
    /// A client that shows no life for this long is dropped.
    pub client_liveness: Option<Duration>,
    /// A receiver on another host that says nothing for this long is not there.
    pub publication_connection: Option<Duration>,
    /// An untethered subscriber may hold back a publication this long ...
    pub untethered_window_limit: Option<Duration>,
    /// ... stays this long in its old place ...
    pub untethered_linger: Option<Duration>,
    /// ... and rests this long before it may join again.
    pub untethered_resting: Option<Duration>,
    /// Bytes of one of the three terms of a UDP publication.
    pub term_buffer_bytes: Option<usize>,
    /// Bytes of one of the three terms of an IPC publication.
    pub ipc_term_buffer_bytes: Option<usize>,
    /// Whether terms take memory only when they are written to.
    pub sparse_terms: Option<bool>,
    /// Bytes for the values of counters, 128 each; their descriptions take four times as much.
    pub counter_values_bytes: Option<usize>,
}

struct Raw {
    /// Released by the kernel when the process dies, however it dies.
    _life_lock: File,
    driver: NonNull<c::aeron_driver_t>,
    context: NonNull<c::aeron_driver_context_t>,
}

// SAFETY: the C driver's own threads do its work; ours only starts and closes it, once, whichever thread that is.
unsafe impl Send for Raw {}

struct Inner {
    raw: Mutex<Option<Raw>>,
    dir: String,
    owner: OwnerProcess,
}

/// A media driver that runs on threads of this process until it is closed or the last clone is dropped.
#[derive(Clone)]
pub struct MediaDriver {
    inner: Arc<Inner>,
}

impl MediaDriver {
    /// Starts a media driver; when this returns, clients can connect.
    ///
    /// # Errors
    /// [`Error::DriverActive`] when a live one serves the directory, [`Error::Directory`] when it holds anything that
    /// is not a media driver's, [`Error::Aeron`] for values that Aeron refuses.
    pub fn start(options: &MediaDriverOptions) -> Result<Self, Error> {
        let dir = options.dir.as_str();
        let _one_at_a_time = StartLock::acquire(dir)?;
        prepare_directory(dir, options.dir_delete_on_start)?;
        let mut context = Context::new()?;
        context.configure(options)?;
        let mut driver = ptr::null_mut();
        // SAFETY: the context is valid and configured; on success the driver borrows it until it is closed.
        if unsafe { c::aeron_driver_init(&mut driver, context.raw.as_ptr()) } < 0 {
            return Err(aeron_error("starting the media driver"));
        }
        let started = hold_life_lock(dir).and_then(|life_lock| {
            // SAFETY: the driver was initialised just now. Its threads inherit the blocked signals.
            match with_signals_blocked(|| unsafe { c::aeron_driver_start(driver, false) }) {
                0.. => Ok(life_lock),
                _ => Err(aeron_error("starting the media driver's threads")),
            }
        });
        let life_lock = started.inspect_err(|_| {
            // SAFETY: closes what was started of it; nobody else has seen it.
            unsafe { c::aeron_driver_close(driver) };
        })?;
        let raw = Mutex::new(Some(Raw {
            _life_lock: life_lock,
            driver: NonNull::new(driver).expect("a started driver"),
            context: context.keep(options.dir_delete_on_shutdown),
        }));
        Ok(Self { inner: Arc::new(Inner { raw, dir: dir.to_owned(), owner: OwnerProcess::current() }) })
    }

    /// The Aeron directory.
    pub fn dir(&self) -> &str {
        &self.inner.dir
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        !self.inner.owner.is_current() || lock(&self.inner.raw).is_none()
    }

    /// Ends the media driver; its clients notice within a second. Does nothing when called again.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    pub fn close(&self) -> Result<(), Error> {
        self.inner.owner.check("media driver")?;
        self.inner.close();
        Ok(())
    }
}

impl Inner {
    fn close(&self) {
        let Some(raw) = lock(&self.raw).take() else {
            return;
        };
        let_last_words_out(&self.dir);
        // SAFETY: taken out of the only place that held them, so they are closed once: the driver first, since it
        // uses the context until its threads have ended.
        unsafe {
            if c::aeron_driver_close(raw.driver.as_ptr()) == 0 {
                c::aeron_driver_context_close(raw.context.as_ptr());
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.owner.is_current() {
            self.close();
        }
    }
}

/// Aeron drops what was published to other hosts and not sent yet, such as the goodbye of who has just closed.
fn let_last_words_out(dir: &str) {
    let deadline = Instant::now() + LAST_WORDS_TIMEOUT;
    while has_words_left(dir) && Instant::now() < deadline {
        thread::sleep(LAST_WORDS_PAUSE);
    }
}

/// May any publication have more to send? What is still open may: the limit of such a one with receivers is always ahead.
/// Once it was closed, and the driver has noticed, its limit is where it ended.
fn has_words_left(dir: &str) -> bool {
    let counters = read_counters(dir).unwrap_or_default();
    let of_type = |type_id| counters.iter().filter(move |counter| counter.type_id == type_id);
    of_type(PUBLISHER_LIMIT).any(|limit| {
        of_type(SENDER_POSITION)
            .any(|sent| sent.registration_id == limit.registration_id && sent.value < limit.value)
    })
}

/// The driver's settings, closed unless a running driver took them over.
struct Context {
    raw: NonNull<c::aeron_driver_context_t>,
    kept: bool,
}

impl Context {
    fn new() -> Result<Self, Error> {
        let mut raw = ptr::null_mut();
        // SAFETY: fills the pointer on success. Reads the environment, so it fails for values Aeron can't parse.
        if unsafe { c::aeron_driver_context_init(&mut raw) } < 0 {
            return Err(aeron_error("configuring the media driver"));
        }
        Ok(Self { raw: NonNull::new(raw).expect("a new context"), kept: false })
    }

    fn configure(&mut self, options: &MediaDriverOptions) -> Result<(), Error> {
        let context = self.raw.as_ptr();
        let dir = c_string("the Aeron directory", &options.dir)?;
        let (strategy, arguments) = &options.idle_strategy;
        let strategy = c_string("the idle strategy", strategy)?;
        let arguments =
            arguments.as_deref().map(|text| c_string("the idle strategy's arguments", text)).transpose()?;
        let mode = match options.threading_mode {
            ThreadingMode::Shared => c::aeron_threading_mode_t::AERON_THREADING_MODE_SHARED,
            ThreadingMode::SharedNetwork => c::aeron_threading_mode_t::AERON_THREADING_MODE_SHARED_NETWORK,
            ThreadingMode::Dedicated => c::aeron_threading_mode_t::AERON_THREADING_MODE_DEDICATED,
        };
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: the context is valid and not yet used by a driver; strings are copied by the calls.
        unsafe {
            accept(c::aeron_driver_context_set_dir(context, dir.as_ptr()))?;
            // The directory was checked and belongs to a dead driver. Left to itself Aeron would trust the bytes of
            // its cnc.dat, and write the old driver's error log into the parent directory.
            accept(c::aeron_driver_context_set_dir_delete_on_start(context, true))?;
            accept(c::aeron_driver_context_set_dir_delete_on_shutdown(context, false))?;
            accept(c::aeron_driver_context_set_dir_warn_if_exists(context, false))?;
            accept(c::aeron_driver_context_set_print_configuration(context, false))?;
            accept(c::aeron_driver_context_set_threading_mode(context, mode))?;
            set_idle_strategies(context, &strategy, arguments.as_deref())?;
            accept(c::aeron_driver_context_set_timer_interval_ns(context, nanos(options.timer_interval)))?;
            if let Some(time) = options.client_liveness {
                accept(c::aeron_driver_context_set_client_liveness_timeout_ns(context, nanos(time)))?;
                // Aeron wants blocked publications unblocked later than dead clients noticed.
                let unblock = c::aeron_driver_context_get_publication_unblock_timeout_ns(context);
                let unblock = unblock.max(nanos(time + time / 2));
                accept(c::aeron_driver_context_set_publication_unblock_timeout_ns(context, unblock))?;
            }
            if let Some(time) = options.publication_connection {
                accept(c::aeron_driver_context_set_publication_connection_timeout_ns(context, nanos(time)))?;
            }
            if let Some(time) = options.untethered_window_limit {
                accept(c::aeron_driver_context_set_untethered_window_limit_timeout_ns(context, nanos(time)))?;
            }
            if let Some(time) = options.untethered_linger {
                accept(c::aeron_driver_context_set_untethered_linger_timeout_ns(context, nanos(time)))?;
            }
            if let Some(time) = options.untethered_resting {
                accept(c::aeron_driver_context_set_untethered_resting_timeout_ns(context, nanos(time)))?;
            }
            if let Some(bytes) = options.term_buffer_bytes {
                accept(c::aeron_driver_context_set_term_buffer_length(context, bytes))?;
            }
            if let Some(bytes) = options.ipc_term_buffer_bytes {
                accept(c::aeron_driver_context_set_ipc_term_buffer_length(context, bytes))?;
            }
            if let Some(bytes) = options.counter_values_bytes {
                accept(c::aeron_driver_context_set_counters_buffer_length(context, bytes))?;
            }
            if let Some(sparse) = options.sparse_terms {
                accept(c::aeron_driver_context_set_term_buffer_sparse_file(context, sparse))?;
            }
        }
        Ok(())
    }

    /// Hands the context to a running driver, which from now on may remove the directory when it ends.
    fn keep(mut self, delete_on_shutdown: bool) -> NonNull<c::aeron_driver_context_t> {
        self.kept = true;
        // SAFETY: valid; only read when the context is closed.
        unsafe { c::aeron_driver_context_set_dir_delete_on_shutdown(self.raw.as_ptr(), delete_on_shutdown) };
        self.raw
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.kept {
            // SAFETY: no driver uses it. It never removes the directory here, which may be another driver's by now.
            unsafe { c::aeron_driver_context_close(self.raw.as_ptr()) };
        }
    }
}

fn accept(result: c_int) -> Result<(), Error> {
    if result < 0 { Err(aeron_error("configuring the media driver")) } else { Ok(()) }
}

/// One idle strategy for every thread the driver may have.
///
/// # Safety
/// `context` must be valid and not yet used by a driver.
unsafe fn set_idle_strategies(
    context: *mut c::aeron_driver_context_t,
    strategy: &CStr,
    arguments: Option<&CStr>,
) -> Result<(), Error> {
    let arguments = arguments.map_or(ptr::null(), CStr::as_ptr);
    let strategy = strategy.as_ptr();
    // SAFETY: as promised by the caller; strings are copied. Arguments go first: setting the name reads them.
    unsafe {
        accept(c::aeron_driver_context_set_shared_idle_strategy_init_args(context, arguments))?;
        accept(c::aeron_driver_context_set_shared_idle_strategy(context, strategy))?;
        accept(c::aeron_driver_context_set_sharednetwork_idle_strategy_init_args(context, arguments))?;
        accept(c::aeron_driver_context_set_sharednetwork_idle_strategy(context, strategy))?;
        accept(c::aeron_driver_context_set_conductor_idle_strategy_init_args(context, arguments))?;
        accept(c::aeron_driver_context_set_conductor_idle_strategy(context, strategy))?;
        accept(c::aeron_driver_context_set_sender_idle_strategy_init_args(context, arguments))?;
        accept(c::aeron_driver_context_set_sender_idle_strategy(context, strategy))?;
        accept(c::aeron_driver_context_set_receiver_idle_strategy_init_args(context, arguments))?;
        accept(c::aeron_driver_context_set_receiver_idle_strategy(context, strategy))?;
        accept(c::aeron_driver_context_set_native_resource_agent_idle_strategy_init_args(
            context, arguments,
        ))?;
        accept(c::aeron_driver_context_set_native_resource_agent_idle_strategy(context, strategy))
    }
}

fn c_string(what: &str, text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::InvalidArgument(format!("{what} contains a NUL byte: {text:?}")))
}

/// Refuses a directory that a live driver serves or that holds anything but a driver's files: starting removes it.
fn prepare_directory(dir: &str, replace: bool) -> Result<(), Error> {
    let unusable = |reason: String| Error::Directory { dir: dir.to_owned(), reason };
    match driver_status(dir) {
        Ok(status) if status.is_alive(ACTIVE_TIMEOUT) => {
            return Err(Error::DriverActive { dir: dir.to_owned(), pid: status.pid });
        }
        _ => {}
    }
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(unusable(e.to_string())),
    };
    for entry in entries {
        let name = entry.map_err(|e| unusable(e.to_string()))?.file_name();
        if !DRIVER_FILES.iter().any(|known| name == *known) {
            return Err(unusable(format!("it holds {name:?}, which is not a media driver's")));
        }
        if !replace {
            return Err(unusable("a media driver that ended left its files there".to_owned()));
        }
    }
    Ok(())
}

/// Makes and locks the file whose lock tells others that the driver lives.
fn hold_life_lock(dir: &str) -> Result<File, Error> {
    let path = Path::new(dir).join(LIFE_LOCK_FILE);
    let held = File::create(&path).and_then(|file| {
        // Waits for those who look whether it is locked, which takes them microseconds.
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    });
    held.map_err(|e| Error::Directory { dir: dir.to_owned(), reason: format!("{}: {e}", path.display()) })
}

/// A driver that was silent for longer than this is dead; Aeron's own limit.
const ACTIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Keeps two processes from starting a driver on one directory in the same moment: each would find no live driver
/// and remove the other's files. Held from the check until the driver shows life.
struct StartLock {
    path: PathBuf,
    _file: File,
}

impl StartLock {
    fn acquire(dir: &str) -> Result<Self, Error> {
        let unusable = |reason: String| Error::Directory { dir: dir.to_owned(), reason };
        if dir.len() > MAX_DIR_BYTES || !Path::new(dir).is_absolute() {
            return Err(unusable(format!("an absolute path of at most {MAX_DIR_BYTES} bytes is needed")));
        }
        let path = PathBuf::from(format!("{}.lock", dir.trim_end_matches('/')));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|e| unusable(e.to_string()))?;
        }
        let open = || OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        loop {
            let file = open().map_err(|e| unusable(format!("{}: {e}", path.display())))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(unusable("another process is starting a media driver there".to_owned()));
                }
                Err(e) => return Err(unusable(e.to_string())),
            }
            // The file may have been removed between opening and locking it; then the lock guards nothing.
            let locked = file.metadata().map(|found| found.ino()).ok();
            let present = fs::metadata(&path).map(|found| found.ino()).ok();
            if locked.is_some() && locked == present {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for StartLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
