//! What all handles of one client share: the C client itself, and the order in which things may go.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};

use rusteron_client::bindings as c;

use crate::conductor::{Context, ErrorLog};
use crate::error::Error;
use crate::images::{ImageLog, Retired};
use crate::process::OwnerProcess;
use crate::sync::{lock, read, write};

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
    pub(crate) errors: Arc<ErrorLog>,
    /// Dropped after the client was closed. Only kept for what it owns.
    _context: Context,
    pub(crate) owner: OwnerProcess,
    pub(crate) dir: String,
    pub(crate) client_id: i64,
}

// SAFETY: the raw pointer is only used under the lock; the calls made through it may come from any thread, they hand
// commands to the conductor thread through a queue for many producers.
unsafe impl Send for Core {}
// SAFETY: as above.
unsafe impl Sync for Core {}

impl Core {
    /// Takes over a started client.
    pub(crate) fn new(
        aeron: NonNull<c::aeron_t>,
        context: Context,
        errors: Arc<ErrorLog>,
        dir: &str,
    ) -> Self {
        Self {
            // SAFETY: a valid client.
            client_id: unsafe { c::aeron_client_id(aeron.as_ptr()) },
            aeron: RwLock::new(Some(aeron)),
            children: Mutex::default(),
            image_logs: Mutex::default(),
            retired_logs: Retired::default(),
            next_log_id: AtomicU64::new(0),
            errors,
            _context: context,
            owner: OwnerProcess::current(),
            dir: dir.to_owned(),
        }
    }

    /// Runs `call` with the C client, unless it was closed or this is a forked child.
    pub(crate) fn with_aeron<T>(
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
        match self.errors.await_fatal() {
            Some(error) if error.code == c::AERON_CLIENT_ERROR_DRIVER_TIMEOUT as i32 => {
                Error::NoMediaDriver { dir: self.dir.clone(), reason: error.message }
            }
            Some(error) => Error::ClientLost { reason: error.message },
            None => Error::ClientLost { reason: "it closed its handles".to_owned() },
        }
    }

    pub(crate) fn close(&self) {
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

    pub(crate) fn add_child(&self, child: Weak<dyn Child>) {
        let mut children = lock(&self.children);
        if children.len() == children.capacity() {
            children.retain(|known| known.strong_count() > 0);
        }
        children.push(child);
    }

    pub(crate) fn new_image_log(&self) -> Arc<ImageLog> {
        let log =
            ImageLog::new(self.next_log_id.fetch_add(1, Ordering::Relaxed), Arc::clone(&self.retired_logs));
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
        // In a forked child there is no conductor thread to end, and what it would free is the parent's.
        if self.owner.is_current() {
            self.close();
        }
    }
}
