//! What wakes the one who waits for messages.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::sync::lock;

/// Remembers that it was rung until somebody has waited for it.
#[derive(Default)]
pub(super) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    pub(super) fn ring(&self) {
        let mut rung = lock(&self.rung);
        if !*rung {
            *rung = true;
            self.changed.notify_all();
        }
    }

    /// Sleeps until rung, at most `timeout`; tells whether it was.
    pub(super) fn wait(&self, timeout: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(lock(&self.rung), timeout, |rung| !*rung);
        let (mut rung, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *rung)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_remembers_one_ring() {
        let bell = Bell::default();
        assert!(!bell.wait(Duration::ZERO));
        bell.ring();
        bell.ring();
        assert!(bell.wait(Duration::from_secs(60)));
        assert!(!bell.wait(Duration::from_millis(1)));
    }

    #[test]
    fn it_wakes_a_sleeper() {
        let bell = Bell::default();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| bell.wait(Duration::from_secs(60)));
            bell.ring();
            assert!(sleeper.join().unwrap());
        });
    }
}
