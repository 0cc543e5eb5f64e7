//! Handles know the process that made them.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use pyo3::prelude::*;

use crate::errors;

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> i32;
}

/// Grows in the child of every fork: cheaper to compare than a process id is to ask for.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Relaxed);
}

/// The process that made a handle.
#[derive(Debug, Clone, Copy)]
pub struct Owner(u32);

impl Owner {
    /// This process.
    pub fn here() -> Self {
        static WATCH: Once = Once::new();
        // SAFETY: the handler only touches an atomic.
        WATCH.call_once(|| unsafe {
            pthread_atfork(None, None, Some(count_fork));
        });
        Self(FORKS.load(Relaxed))
    }

    /// Is this still the process that made the handle?
    #[inline]
    pub fn is_here(self) -> bool {
        FORKS.load(Relaxed) == self.0
    }

    /// Raises `ForkedProcessError` in a forked child.
    #[inline]
    pub fn check(self, py: Python<'_>, what: &str) -> PyResult<()> {
        if self.is_here() { Ok(()) } else { Err(errors::forked(py, what)) }
    }
}
