//! Counters that any process can read, with Aeron's own tools too.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rusteron_client::bindings as c;

use crate::adding::Addable;
use crate::error::Error;
use crate::lifetime::{Child, Core};
use crate::sync::lock;

const WHAT: &str = "counter";

/// The longest key that a counter can have.
pub const MAX_KEY_BYTES: usize = 112;
/// The longest label that a counter can have.
pub const MAX_LABEL_BYTES: usize = 380;

pub(crate) fn check_sizes(key: &[u8], label: &str) -> Result<(), Error> {
    let too_long = |what, length, max| {
        Err(Error::InvalidArgument(format!("a counter's {what} of {length} bytes; at most {max} fit")))
    };
    if key.len() > MAX_KEY_BYTES {
        return too_long("key", key.len(), MAX_KEY_BYTES);
    }
    if label.len() > MAX_LABEL_BYTES {
        return too_long("label", label.len(), MAX_LABEL_BYTES);
    }
    Ok(())
}

struct Inner {
    raw: Mutex<Option<NonNull<c::aeron_counter_t>>>,
    /// The value itself, in a mapping that the client's core gives back only when it is dropped.
    value: NonNull<AtomicI64>,
    closed: AtomicBool,
    counter_id: i32,
    core: Arc<Core>,
}

// SAFETY: the raw pointer is only used under the lock; the value is an atomic in a mapping that `core` keeps alive.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// A counter of this client.
///
/// Reading and writing take no lock. A write that races with `close` in another thread may still land, which is
/// harmless: the media driver gives a freed counter to somebody else only after a second. After the media driver died
/// the value can still be read and written, only nobody else sees it.
#[derive(Clone)]
pub struct Counter {
    inner: Arc<Inner>,
}

impl Counter {
    /// The counter's number, unique in its media driver while it is allocated.
    pub fn counter_id(&self) -> i32 {
        self.inner.counter_id
    }

    /// Adds to the value and gives the new one.
    ///
    /// # Errors
    /// [`Error::Closed`] or [`Error::Forked`].
    #[inline]
    pub fn add(&self, amount: i64) -> Result<i64, Error> {
        Ok(self.inner.value()?.fetch_add(amount, Ordering::AcqRel).wrapping_add(amount))
    }

    /// Sets the value.
    ///
    /// # Errors
    /// As for [`Self::add`].
    #[inline]
    pub fn set(&self, value: i64) -> Result<(), Error> {
        self.inner.value()?.store(value, Ordering::Release);
        Ok(())
    }

    /// The value.
    ///
    /// # Errors
    /// As for [`Self::add`].
    #[inline]
    pub fn get(&self) -> Result<i64, Error> {
        Ok(self.inner.value()?.load(Ordering::Acquire))
    }

    /// Whether it was closed by its owner.
    pub fn is_closed(&self) -> bool {
        !self.inner.core.owner.is_current() || self.inner.closed.load(Ordering::Acquire)
    }

    /// Frees the counter. Does nothing when called again.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    pub fn close(&self) -> Result<(), Error> {
        self.inner.core.owner.check(WHAT)?;
        self.inner.close();
        Ok(())
    }
}

impl Inner {
    #[inline]
    fn value(&self) -> Result<&AtomicI64, Error> {
        self.core.owner.check(WHAT)?;
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed(WHAT));
        }
        // SAFETY: an aligned 64-bit word in a mapping that lives as long as this object, only used atomically.
        Ok(unsafe { self.value.as_ref() })
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.core.while_open(|client_is_open| {
            let raw = lock(&self.raw).take();
            if let (Some(raw), true) = (raw, client_is_open) {
                // SAFETY: taken out of the only place that held it, and the client is open: its conductor thread
                // frees the object later.
                unsafe { c::aeron_counter_close(raw.as_ptr(), None, ptr::null_mut()) };
            }
        });
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.core.owner.is_current() {
            self.close();
        }
    }
}

impl Child for Inner {
    fn forget(&self) {
        self.closed.store(true, Ordering::Release);
        lock(&self.raw).take();
    }
}

impl Addable for Counter {
    type Raw = c::aeron_counter_t;
    type Extra = ();
    const WHAT: &'static str = WHAT;
    const POLL: unsafe extern "C" fn(
        *mut *mut Self::Raw,
        *mut c::aeron_client_registering_resource_stct,
    ) -> c_int = c::aeron_async_add_counter_poll;
    const REMOVE: unsafe extern "C" fn(i64, *mut c::aeron_t, c::aeron_notification_t, *mut c_void) -> c_int =
        c::aeron_async_remove_counter;

    fn build(core: &Arc<Core>, raw: NonNull<Self::Raw>, (): ()) -> (Self, Weak<dyn Child>) {
        // SAFETY: a plain C struct of integers, for which zero is a value.
        let mut constants: c::aeron_counter_constants_t = unsafe { std::mem::zeroed() };
        // SAFETY: the counter was added just now; its address lies in the mapped cnc.dat.
        let value = unsafe {
            c::aeron_counter_constants(raw.as_ptr(), &mut constants);
            c::aeron_counter_addr(raw.as_ptr())
        };
        let inner = Arc::new(Inner {
            raw: Mutex::new(Some(raw)),
            value: NonNull::new(value.cast()).expect("a counter has a value"),
            closed: AtomicBool::new(false),
            counter_id: constants.counter_id,
            core: Arc::clone(core),
        });
        let child: Weak<dyn Child> = Arc::downgrade(&(Arc::clone(&inner) as Arc<dyn Child>));
        (Self { inner }, child)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_labels_that_do_not_fit_are_refused() {
        assert_eq!(check_sizes(&[0; MAX_KEY_BYTES], &"x".repeat(MAX_LABEL_BYTES)), Ok(()));
        assert!(matches!(check_sizes(&[0; MAX_KEY_BYTES + 1], ""), Err(Error::InvalidArgument(_))));
        assert!(matches!(check_sizes(&[], &"x".repeat(MAX_LABEL_BYTES + 1)), Err(Error::InvalidArgument(_))));
    }
}
