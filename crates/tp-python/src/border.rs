//! Crossing between Python and native code: who holds the interpreter's lock, signals, and the interpreter's end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PySystemExit, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyMemoryView};
use tp_aeron::OwnerProcess;
use tp_core::copy::{Locality, racy_copy};

/// Signals are looked for at least this often inside a call that waits.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Longer time-outs than this mean for ever.
const LONGEST_TIMEOUT_S: f64 = 1e9;
/// Between two looks at what is waited for.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(1);
/// How long the interpreter's end waits for threads to come back from native code.
const EXIT_PATIENCE: Duration = Duration::from_secs(1);

static EXITING: AtomicBool = AtomicBool::new(false);
/// Threads that are in native code without the interpreter's lock.
static RELEASED: AtomicUsize = AtomicUsize::new(0);

/// Threads that are in Python code which native code called.
static CALLING_BACK: AtomicUsize = AtomicUsize::new(0);

struct CallingThread;

impl Drop for CallingThread {
    fn drop(&mut self) {
        CALLING_BACK.fetch_sub(1, Ordering::SeqCst);
    }
}

struct ReleasedThread;

impl Drop for ReleasedThread {
    fn drop(&mut self) {
        RELEASED.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs `work` without the interpreter's lock.
///
/// Once the interpreter is exiting the lock is kept instead: Python before 3.14 ends a thread that asks for it back by
/// unwinding its stack, and what that does to Rust frames is undefined.
pub fn released<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    RELEASED.fetch_add(1, Ordering::SeqCst);
    let _counted = ReleasedThread;
    if EXITING.load(Ordering::SeqCst) { work() } else { py.detach(work) }
}

/// Runs `work` with the interpreter's lock for a moment, inside of `released`; not any more once the interpreter is exiting.
pub fn attached(work: impl FnOnce(Python<'_>)) {
    // The exit waits for whoever is inside of `released`, so this can't be unwound either.
    if !EXITING.load(Ordering::SeqCst) {
        Python::attach(work);
    }
}

/// Runs Python code for somebody who called native code.
///
/// While the interpreter exits, Python before 3.14 ends a thread that waits for its lock by unwinding its stack, and so
/// the native frames below that code. Nothing is called any more then, and the exit waits for what was called before.
pub fn call_back<T>(call: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    // With the interpreter's lock, like the exit: nobody gets in between the question and the count.
    check_not_exiting()?;
    CALLING_BACK.fetch_add(1, Ordering::SeqCst);
    let _counted = CallingThread;
    call()
}

/// Repeats `attempt` without the interpreter's lock until it gives something or `timeout` has passed; lets Ctrl-C in.
///
/// # Errors
/// What `attempt` fails with, translated by `raise`; what a signal handler raised; `SystemExit` when the interpreter exits.
pub fn wait_for<T: Send, E: Send>(
    py: Python<'_>,
    timeout: Duration,
    raise: impl Fn(Python<'_>, E) -> PyErr,
    mut attempt: impl FnMut() -> Result<Option<T>, E> + Send,
) -> PyResult<Option<T>> {
    let deadline = Instant::now().checked_add(timeout);
    loop {
        let attempts_end = Instant::now() + SIGNAL_CHECK_INTERVAL;
        let (found, timed_out) = released(py, || {
            loop {
                let found = attempt();
                let now = Instant::now();
                let timed_out = deadline.is_some_and(|deadline| now >= deadline);
                let give_back = timed_out || now >= attempts_end || EXITING.load(Ordering::SeqCst);
                if give_back || !matches!(found, Ok(None)) {
                    return (found, timed_out);
                }
                std::thread::sleep(ATTEMPT_INTERVAL);
            }
        });
        match found {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => {}
            Err(error) => return Err(raise(py, error)),
        }
        py.check_signals()?;
        if timed_out {
            return Ok(None);
        }
        check_not_exiting()?;
    }
}

/// Sleeps up to `timeout` seconds in slices without the interpreter's lock; `sleep` says whether it was woken.
/// Lets Ctrl-C in, and asks `go_on` between slices whether what is waited for still exists.
///
/// # Errors
/// What a signal handler or `go_on` raised; `SystemExit` when the interpreter exits; a time-out that is no number.
pub fn sleep_in_slices(
    py: Python<'_>,
    timeout: f64,
    go_on: impl Fn() -> PyResult<()>,
    sleep: impl Fn(Duration) -> bool + Sync,
) -> PyResult<bool> {
    if timeout.is_nan() {
        return Err(PyValueError::new_err("timeout is not a number"));
    }
    let timeout = Duration::from_secs_f64(timeout.clamp(0.0, LONGEST_TIMEOUT_S));
    let start = Instant::now();
    loop {
        let left = timeout.saturating_sub(start.elapsed());
        let woken = released(py, || sleep(left.min(SIGNAL_CHECK_INTERVAL)));
        py.check_signals()?;
        if woken || left <= SIGNAL_CHECK_INTERVAL {
            return Ok(woken);
        }
        check_not_exiting()?;
        go_on()?;
    }
}

/// Ends a thread that would go on waiting: daemon threads are all that is left by then. `SystemExit` does so without
/// a traceback that nobody can do anything about.
#[pyfunction]
pub fn check_not_exiting() -> PyResult<()> {
    if EXITING.load(Ordering::SeqCst) { Err(PySystemExit::new_err(())) } else { Ok(()) }
}

/// Locks `mutex` without holding the interpreter's lock while waiting: whoever holds the mutex may need it.
///
/// The rule that makes this safe: nobody runs Python code while holding the mutex, not even to make an
/// exception. Garbage collection may run anywhere in Python code, and drop a handle that wants the mutex.
pub fn lock<'m, T: Send>(py: Python<'_>, mutex: &'m Mutex<T>) -> MutexGuard<'m, T> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            // What the mutex protects is whole after every store, also if a panic came in between.
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => released(py, || drop(mutex.lock())),
        }
    }
}

/// Has the interpreter call back before it tears itself down, so that no thread is then in native code without its
/// lock. Threads that are not daemons have ended by then.
pub fn watch_interpreter_exit(py: Python<'_>) -> PyResult<()> {
    let owner = OwnerProcess::current();
    let on_exit = PyCFunction::new_closure(py, None, None, move |args, _kwargs| {
        let py = args.py();
        EXITING.store(true, Ordering::SeqCst);
        let deadline = Instant::now() + EXIT_PATIENCE;
        // In a forked child the count is the parent's, of threads that do not exist here.
        let is_busy = || RELEASED.load(Ordering::SeqCst) > 0 || CALLING_BACK.load(Ordering::SeqCst) > 0;
        while owner.is_current() && is_busy() && Instant::now() < deadline {
            py.detach(|| std::thread::sleep(ATTEMPT_INTERVAL));
        }
    })?;
    py.import("atexit")?.call_method1("register", (on_exit,))?;
    Ok(())
}

/// The buffer of an object, shape and strides included.
///
/// Exporters may leave the strides of contiguous memory out (ctypes does), and the shape of one dimension, which PyO3
/// does not take. A memoryview fills them in.
pub fn buffer_of(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    PyUntypedBuffer::get(object).or_else(|failure| {
        if !failure.is_instance_of::<PyBufferError>(object.py()) {
            return Err(failure);
        }
        let view = PyMemoryView::from(object).map_err(|_| failure)?;
        PyUntypedBuffer::get(&view)
    })
}

/// The bytes of a contiguous buffer that others may write to meanwhile: a view of shared memory, or an array that
/// another thread fills. Read through racy copies only.
pub struct SharedBytes {
    start: *const u8,
    len: usize,
}

// SAFETY: only read, by racy copies, while the buffer is held.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    const BLOCK: usize = 64 << 10;

    /// Of a contiguous buffer, which must be held as long as this is used.
    pub fn of(buffer: &PyUntypedBuffer) -> Self {
        Self { start: buffer.buf_ptr().cast(), len: buffer.len_bytes() }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.len
    }

    /// A private copy, block by block.
    pub fn for_each_block(&self, mut each: impl FnMut(&[u8])) {
        let mut block = vec![0; Self::BLOCK.min(self.len)];
        for at in (0..self.len).step_by(Self::BLOCK) {
            let part = &mut block[..Self::BLOCK.min(self.len - at)];
            // SAFETY: inside the buffer, and into memory of our own.
            unsafe {
                racy_copy(part.as_mut_ptr(), self.start.add(at), part.len(), Locality::Cached);
            }
            each(part);
        }
    }
}
