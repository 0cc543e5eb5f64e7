//! Which process a handle belongs to, and how threads of Aeron are kept away from the process's signals.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::Error;

/// Grows by one in the child of every fork, so that a handle can tell with one load whether it still lives in the
/// process that made it (`getpid` is a system call, too slow for each message).
static FORKS: AtomicU32 = AtomicU32::new(0);
static WATCH_FORKS: Once = Once::new();

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process that made a handle.
///
/// A fork copies memory but no threads: the conductor threads of Aeron do not exist in the child, locks may be held
/// for ever, and the shared memory still belongs to the parent. So a child may neither use nor close what it inherits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerProcess {
    forks: u32,
}

impl OwnerProcess {
    /// The calling process.
    pub fn current() -> Self {
        WATCH_FORKS.call_once(|| {
            // SAFETY: the handler only adds to an atomic, which is allowed between fork and exec.
            unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
        });
        Self { forks: FORKS.load(Ordering::Relaxed) }
    }

    /// Whether the calling process is the one that made the handle.
    #[inline]
    pub fn is_current(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.forks
    }

    /// [`Error::Forked`] unless the calling process made the handle, which is named by `what`.
    #[inline]
    pub fn check(self, what: &'static str) -> Result<(), Error> {
        if self.is_current() { Ok(()) } else { Err(Error::Forked(what)) }
    }
}

/// Runs `start_threads` with all asynchronous signals blocked; the threads it starts inherit that.
///
/// Otherwise the kernel may deliver Ctrl-C or SIGTERM to a thread of Aeron: a program that waits for signals on its
/// main thread (`sigwait`, `signalfd`) would never see them or be killed.
pub fn with_signals_blocked<T>(start_threads: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are initialised by the calls that fill them before they are read.
    unsafe {
        let mut blocked = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&mut blocked);
        // Faults stay deliverable, so that a crash handler can report them.
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT] {
            libc::sigdelset(&mut blocked, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &blocked, &mut before);
        let result = start_threads();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_is_another_process() {
        let owner = OwnerProcess::current();
        assert!(owner.is_current());
        // SAFETY: the child only reads an atomic and leaves with _exit.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(if owner.is_current() { 1 } else { 0 });
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert_eq!(libc::WEXITSTATUS(status), 0, "the child took itself for its parent");
        }
        assert!(owner.is_current());
    }

    #[test]
    fn threads_inherit_the_blocked_signals_and_the_caller_keeps_its_own() {
        fn blocks_sigint() -> bool {
            // SAFETY: the set is filled by pthread_sigmask before it is read.
            unsafe {
                let mut set = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut set);
                libc::sigismember(&set, libc::SIGINT) == 1
            }
        }
        let thread = with_signals_blocked(|| std::thread::spawn(blocks_sigint));
        assert!(thread.join().unwrap());
        assert!(!blocks_sigint());
    }
}
