//! Doorbells as file descriptors, for event loops.

use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tp_aeron::{OwnerProcess, with_signals_blocked};
use tp_core::bell_watcher::{BellWatcher as Watcher, Watched, duplicate_event, new_event};

use super::check_owner;
use super::reader::RingReader;
use crate::border::{lock, released};
use crate::errors;

/// A thread that watches doorbells.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct BellWatcher {
    watcher: Arc<Watcher>,
    thread: Mutex<Option<JoinHandle<()>>>,
    owner: OwnerProcess,
}

impl BellWatcher {
    const WHAT: &str = "bell watcher";

    fn end(&self, thread: Option<JoinHandle<()>>) {
        self.watcher.close();
        if let Some(thread) = thread {
            // It ends by itself; a panic in it was reported by the panic hook.
            let _ = thread.join();
        }
    }
}

/// What becomes readable: the caller's event file descriptor, or one of our own.
fn event(py: Python<'_>, fd: Option<RawFd>) -> PyResult<OwnedFd> {
    let made = match fd {
        None => new_event(),
        Some(negative) if negative < 0 => return Err(PyValueError::new_err("fd is negative")),
        // SAFETY: only given to the kernel during the call, which tells when there is no such file.
        Some(given) => duplicate_event(unsafe { BorrowedFd::borrow_raw(given) }),
    };
    made.map_err(|error| match (fd, error.kind()) {
        (Some(fd), ErrorKind::InvalidInput) => {
            PyValueError::new_err(format!("file descriptor {fd} can't be a bell: {error}"))
        }
        _ => system_error(py, "no file descriptor for a bell", &error),
    })
}

fn system_error(py: Python<'_>, what: &str, error: &std::io::Error) -> PyErr {
    let hint = "this process may have too many threads or open files (`ulimit -u`, `ulimit -n`)";
    errors::TRANSPORT.new_err(py, format!("{what}: {error}"), Some(hint))
}

#[pymethods]
impl BellWatcher {
    #[new]
    #[pyo3(signature = (*, look_interval_ns = 20_000_000))]
    fn new(py: Python<'_>, look_interval_ns: u64) -> PyResult<Self> {
        let watcher = Arc::new(Watcher::new(Duration::from_nanos(look_interval_ns.max(1_000))));
        let theirs = Arc::clone(&watcher);
        let spawn = || std::thread::Builder::new().name("tp-bells".to_owned()).spawn(move || theirs.run());
        let thread = with_signals_blocked(spawn)
            .map_err(|error| system_error(py, "the watcher's thread can't be started", &error))?;
        Ok(Self { watcher, thread: Mutex::new(Some(thread)), owner: OwnerProcess::current() })
    }

    #[pyo3(signature = (reader, fd = None))]
    fn watch(&self, py: Python<'_>, reader: &RingReader, fd: Option<RawFd>) -> PyResult<BellFd> {
        check_owner(py, self.owner, Self::WHAT)?;
        let awaited = reader.awaited(py)?;
        let watched = Arc::new(Watched::new(awaited.source, event(py, fd)?, awaited.seen, awaited.seq));
        if !self.watcher.add(&watched) {
            return Err(errors::closed(py, Self::WHAT));
        }
        let watcher = Arc::clone(&self.watcher);
        Ok(BellFd { watcher, watched: Mutex::new(Some(watched)), owner: self.owner })
    }

    #[getter]
    fn closed(&self) -> bool {
        !self.owner.is_current() || self.watcher.is_closed()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        check_owner(py, self.owner, Self::WHAT)?;
        let thread = lock(py, &self.thread).take();
        released(py, || self.end(thread));
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}

impl Drop for BellWatcher {
    fn drop(&mut self) {
        let thread = self.thread.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if self.owner.is_current() {
            self.end(thread);
        } else {
            // The thread does not exist in a forked child: it can neither be joined nor detached.
            let _ = ManuallyDrop::new(thread);
        }
    }
}

/// A file descriptor that is readable after a bell rang.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct BellFd {
    watcher: Arc<Watcher>,
    /// None once closed.
    watched: Mutex<Option<Arc<Watched>>>,
    owner: OwnerProcess,
}

impl BellFd {
    const WHAT: &str = "bell's file descriptor";

    fn with<T>(&self, py: Python<'_>, work: impl FnOnce(&Watched) -> T) -> PyResult<T> {
        check_owner(py, self.owner, Self::WHAT)?;
        let result = lock(py, &self.watched).as_deref().map(work);
        result.ok_or_else(|| errors::closed(py, Self::WHAT))
    }
}

#[pymethods]
impl BellFd {
    fn fileno(&self, py: Python<'_>) -> PyResult<RawFd> {
        self.with(py, Watched::raw_fd)
    }

    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Watched::clear)
    }

    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        !self.owner.is_current() || lock(py, &self.watched).is_none()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        check_owner(py, self.owner, Self::WHAT)?;
        if let Some(watched) = lock(py, &self.watched).take() {
            self.watcher.remove(&watched);
        }
        Ok(())
    }
}

impl Drop for BellFd {
    fn drop(&mut self) {
        // In a forked child the watcher's lock may be held for ever.
        let watched = self.watched.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(watched) = watched.filter(|_| self.owner.is_current()) {
            self.watcher.remove(&watched);
        }
    }
}
