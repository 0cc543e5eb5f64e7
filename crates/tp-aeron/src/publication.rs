//! Sending messages.

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rusteron_client::bindings as c;

use crate::adding::Addable;
use crate::error::{Error, OfferError, last_error};
use crate::lifetime::{Child, Core};
use crate::sync::lock;

/// The log changes terms at most once between two offers, so one more try would do; this many forgive anything.
const ROTATION_RETRIES: usize = 3;

/// What never changes during the life of a publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamConstants {
    /// The channel as it was asked for.
    pub channel: String,
    /// The Aeron stream id.
    pub stream_id: i32,
    /// Tells this publication from others of the same stream.
    pub session_id: i32,
    /// The longest message that `offer` takes.
    pub max_message_bytes: usize,
    /// The longest message that travels in one piece, and that `try_claim` takes.
    pub max_payload_bytes: usize,
    /// Bytes of one term of the log.
    pub term_bytes: usize,
}

/// How offers ended so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct OfferCounts {
    /// Messages taken.
    pub sent: u64,
    /// Bytes of the messages taken.
    pub sent_bytes: u64,
    /// Refused since nobody subscribes.
    pub not_connected: u64,
    /// Refused since subscribers do not keep up.
    pub back_pressured: u64,
    /// Met a rotation of the log; tried again at once.
    pub admin_actions: u64,
    /// Refused for any other reason.
    pub failed: u64,
}

#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    sent_bytes: AtomicU64,
    not_connected: AtomicU64,
    back_pressured: AtomicU64,
    admin_actions: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    fn record(&self, length: usize, result: &Result<i64, OfferError>) {
        let counter = match result {
            Ok(_) => {
                self.sent_bytes.fetch_add(length as u64, Ordering::Relaxed);
                &self.sent
            }
            Err(OfferError::NotConnected) => &self.not_connected,
            Err(OfferError::BackPressured) => &self.back_pressured,
            Err(_) => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The C functions of one of the two kinds of publication, which have the same shape.
#[allow(missing_docs)]
pub(crate) trait Kind: 'static {
    type Raw: 'static;
    const WHAT: &'static str;
    const POLL: unsafe extern "C" fn(
        *mut *mut Self::Raw,
        *mut c::aeron_client_registering_resource_stct,
    ) -> c_int;
    const REMOVE: unsafe extern "C" fn(i64, *mut c::aeron_t, c::aeron_notification_t, *mut c_void) -> c_int;
    const OFFER: unsafe extern "C" fn(
        *mut Self::Raw,
        *const u8,
        usize,
        c::aeron_reserved_value_supplier_t,
        *mut c_void,
    ) -> i64;
    const TRY_CLAIM: unsafe extern "C" fn(*mut Self::Raw, usize, *mut c::aeron_buffer_claim_t) -> i64;
    const CLOSE: unsafe extern "C" fn(*mut Self::Raw, c::aeron_notification_t, *mut c_void) -> c_int;
    const IS_CLOSED: unsafe extern "C" fn(*mut Self::Raw) -> bool;
    const IS_CONNECTED: unsafe extern "C" fn(*mut Self::Raw) -> bool;
    const POSITION: unsafe extern "C" fn(*mut Self::Raw) -> i64;
    const CONSTANTS: unsafe extern "C" fn(*mut Self::Raw, *mut c::aeron_publication_constants_t) -> c_int;
}

/// Written to by one handle only.
pub struct Exclusive;
/// Shared with other handles and clients.
pub struct Shared;

macro_rules! kind {
    ($marker:ty, $what:literal, $raw:ident, $poll:ident, $remove:ident, $offer:ident, $try_claim:ident, $close:ident,
     $is_closed:ident, $is_connected:ident, $position:ident, $constants:ident) => {
        impl Kind for $marker {
            type Raw = c::$raw;
            const WHAT: &'static str = $what;
            const POLL: unsafe extern "C" fn(
                *mut *mut Self::Raw,
                *mut c::aeron_client_registering_resource_stct,
            ) -> c_int = c::$poll;
            const REMOVE: unsafe extern "C" fn(
                i64,
                *mut c::aeron_t,
                c::aeron_notification_t,
                *mut c_void,
            ) -> c_int = c::$remove;
            const OFFER: unsafe extern "C" fn(
                *mut Self::Raw,
                *const u8,
                usize,
                c::aeron_reserved_value_supplier_t,
                *mut c_void,
            ) -> i64 = c::$offer;
            const TRY_CLAIM: unsafe extern "C" fn(
                *mut Self::Raw,
                usize,
                *mut c::aeron_buffer_claim_t,
            ) -> i64 = c::$try_claim;
            const CLOSE: unsafe extern "C" fn(*mut Self::Raw, c::aeron_notification_t, *mut c_void) -> c_int =
                c::$close;
            const IS_CLOSED: unsafe extern "C" fn(*mut Self::Raw) -> bool = c::$is_closed;
            const IS_CONNECTED: unsafe extern "C" fn(*mut Self::Raw) -> bool = c::$is_connected;
            const POSITION: unsafe extern "C" fn(*mut Self::Raw) -> i64 = c::$position;
            const CONSTANTS: unsafe extern "C" fn(
                *mut Self::Raw,
                *mut c::aeron_publication_constants_t,
            ) -> c_int = c::$constants;
        }
    };
}

kind!(
    Exclusive,
    "publication",
    aeron_exclusive_publication_t,
    aeron_async_add_exclusive_publication_poll,
    aeron_async_remove_exclusive_publication,
    aeron_exclusive_publication_offer,
    aeron_exclusive_publication_try_claim,
    aeron_exclusive_publication_close,
    aeron_exclusive_publication_is_closed,
    aeron_exclusive_publication_is_connected,
    aeron_exclusive_publication_position,
    aeron_exclusive_publication_constants
);
kind!(
    Shared,
    "shared publication",
    aeron_publication_t,
    aeron_async_add_publication_poll,
    aeron_async_remove_publication,
    aeron_publication_offer,
    aeron_publication_try_claim,
    aeron_publication_close,
    aeron_publication_is_closed,
    aeron_publication_is_connected,
    aeron_publication_position,
    aeron_publication_constants
);

struct Inner<K: Kind> {
    /// Gone once the publication or its client is closed. Exclusive publications allow one thread at a time, and
    /// closing must exclude use for both kinds: hence a lock around each call.
    raw: Mutex<Option<NonNull<K::Raw>>>,
    constants: StreamConstants,
    counts: Counts,
    core: Arc<Core>,
}

// SAFETY: the raw pointer is only used under the lock.
unsafe impl<K: Kind> Send for Inner<K> {}
// SAFETY: as above.
unsafe impl<K: Kind> Sync for Inner<K> {}

/// A publication of either kind; see [`ExclusivePublication`].
#[allow(private_bounds)]
pub struct PublicationHandle<K: Kind> {
    inner: Arc<Inner<K>>,
}

/// A publication that only its own handle writes to. What a process killed in the middle of a message leaves behind
/// blocks nobody else.
pub type ExclusivePublication = PublicationHandle<Exclusive>;
/// A publication that other handles and clients may share.
pub type Publication = PublicationHandle<Shared>;

impl<K: Kind> Clone for PublicationHandle<K> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

#[allow(private_bounds)]
impl<K: Kind> PublicationHandle<K> {
    /// What never changes.
    pub fn constants(&self) -> &StreamConstants {
        &self.inner.constants
    }

    /// How offers ended so far.
    pub fn counts(&self) -> OfferCounts {
        let counts = &self.inner.counts;
        OfferCounts {
            sent: counts.sent.load(Ordering::Relaxed),
            sent_bytes: counts.sent_bytes.load(Ordering::Relaxed),
            not_connected: counts.not_connected.load(Ordering::Relaxed),
            back_pressured: counts.back_pressured.load(Ordering::Relaxed),
            admin_actions: counts.admin_actions.load(Ordering::Relaxed),
            failed: counts.failed.load(Ordering::Relaxed),
        }
    }

    /// Sends a message, in pieces where it is longer than one fragment; gives the stream's new position.
    ///
    /// # Errors
    /// [`OfferError`] says why the message was not taken. Nothing of it was sent then.
    pub fn offer(&self, message: &[u8]) -> Result<i64, OfferError> {
        let max = self.inner.constants.max_message_bytes;
        self.inner.send(message.len(), max, |raw| {
            // SAFETY: the publication is valid and not used by another thread meanwhile; the message is only read.
            unsafe { K::OFFER(raw, message.as_ptr(), message.len(), None, ptr::null_mut()) }
        })
    }

    /// Claims room for a message of `length` bytes in the log itself, lets `fill` write it, and sends it. The bytes
    /// that `fill` sees are whatever stood there before.
    ///
    /// # Errors
    /// As for [`Self::offer`]; longer messages than one fragment are [`OfferError::TooLong`].
    ///
    /// # Panics
    /// When `fill` panics, after the claim was given back.
    pub fn try_claim(&self, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<i64, OfferError> {
        let fill = |bytes: &mut [u8]| {
            fill(bytes);
            true
        };
        self.try_claim_if(length, fill).map(|(position, _)| position)
    }

    /// Like [`Self::try_claim`], but `fill` says whether to send: otherwise the room is given back, and readers see
    /// nothing of it.
    ///
    /// # Errors
    /// As for [`Self::try_claim`].
    ///
    /// # Panics
    /// As for [`Self::try_claim`].
    pub fn try_claim_if(
        &self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<(i64, bool), OfferError> {
        // SAFETY: a plain C struct of pointers and a length, for which zero is a value.
        let mut claim: c::aeron_buffer_claim_t = unsafe { std::mem::zeroed() };
        let mut fill = Some(fill);
        let mut panicked = None;
        let mut is_sent = false;
        let result = self.inner.send(length, self.inner.constants.max_payload_bytes, |raw| {
            // SAFETY: the publication is valid and not used by another thread meanwhile.
            let position = unsafe { K::TRY_CLAIM(raw, length, &mut claim) };
            if position < 0 {
                return position;
            }
            // SAFETY: the claim names `length` bytes of the mapped log that nobody reads before the commit.
            let bytes = unsafe { std::slice::from_raw_parts_mut(claim.data, length) };
            let fill = fill.take().expect("one claim succeeds");
            match catch_unwind(AssertUnwindSafe(|| fill(bytes))) {
                Ok(wanted) => is_sent = wanted,
                Err(panic) => panicked = Some(panic),
            };
            // SAFETY: the claim was made just now and is ended once.
            unsafe {
                if is_sent {
                    c::aeron_buffer_claim_commit(&mut claim);
                } else {
                    c::aeron_buffer_claim_abort(&mut claim);
                }
            }
            position
        });
        match panicked {
            Some(panic) => resume_unwind(panic),
            None => result.map(|position| (position, is_sent)),
        }
    }

    /// Whether anybody subscribes.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`], or why the client gave up.
    pub fn is_connected(&self) -> Result<bool, Error> {
        // SAFETY: the publication is valid inside `with`.
        self.inner.with(|raw| unsafe { K::IS_CONNECTED(raw) })
    }

    /// The position behind the last message.
    ///
    /// # Errors
    /// As for [`Self::is_connected`].
    pub fn position(&self) -> Result<i64, Error> {
        // SAFETY: the publication is valid inside `with`.
        self.inner.with(|raw| unsafe { K::POSITION(raw) })
    }

    /// Whether it was closed by its owner.
    pub fn is_closed(&self) -> bool {
        !self.inner.core.owner.is_current() || lock(&self.inner.raw).is_none()
    }

    /// Closes the publication. Does nothing when called again.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    pub fn close(&self) -> Result<(), Error> {
        self.inner.core.owner.check(K::WHAT)?;
        self.inner.close();
        Ok(())
    }
}

impl ExclusivePublication {
    /// Closes the publication and has the media driver forget what was not sent or not received yet; close alone
    /// leaves that to be sent for as long as there are receivers, or seem to be.
    ///
    /// # Errors
    /// As for [`Self::close`].
    pub fn revoke(&self) -> Result<(), Error> {
        // SAFETY: the publication is valid inside `with`. One that is closed already has nothing to forget.
        let _ = self.inner.with(|raw| unsafe { c::aeron_exclusive_publication_revoke_on_close(raw) });
        self.close()
    }
}

impl<K: Kind> Inner<K> {
    /// Runs `call` with the C object, unless it is closed, lost, or this is a forked child.
    fn with<T>(&self, call: impl FnOnce(*mut K::Raw) -> T) -> Result<T, Error> {
        self.core.owner.check(K::WHAT)?;
        let guard = lock(&self.raw);
        let Some(raw) = *guard else {
            return Err(Error::Closed(K::WHAT));
        };
        // SAFETY: the client can't free the publication before it got this lock.
        if unsafe { K::IS_CLOSED(raw.as_ptr()) } {
            return Err(self.core.lost());
        }
        Ok(call(raw.as_ptr()))
    }

    fn send(
        &self,
        length: usize,
        max: usize,
        mut attempt: impl FnMut(*mut K::Raw) -> i64,
    ) -> Result<i64, OfferError> {
        self.core.owner.check(K::WHAT)?;
        let result =
            if length > max { Err(OfferError::TooLong { length, max }) } else { self.try_send(&mut attempt) };
        self.counts.record(length, &result);
        result
    }

    fn try_send(&self, attempt: &mut impl FnMut(*mut K::Raw) -> i64) -> Result<i64, OfferError> {
        let guard = lock(&self.raw);
        let Some(raw) = *guard else {
            return Err(OfferError::Closed);
        };
        let mut result = attempt(raw.as_ptr());
        for _ in 0..ROTATION_RETRIES {
            if result != i64::from(c::AERON_PUBLICATION_ADMIN_ACTION) {
                break;
            }
            self.counts.admin_actions.fetch_add(1, Ordering::Relaxed);
            result = attempt(raw.as_ptr());
        }
        match i32::try_from(result) {
            Ok(c::AERON_PUBLICATION_NOT_CONNECTED) => Err(OfferError::NotConnected),
            Ok(c::AERON_PUBLICATION_BACK_PRESSURED) => Err(OfferError::BackPressured),
            Ok(c::AERON_PUBLICATION_ADMIN_ACTION) => Err(OfferError::AdminAction),
            // Not by its owner, who would have left no pointer.
            Ok(c::AERON_PUBLICATION_CLOSED) => Err(OfferError::Error(self.core.lost())),
            Ok(c::AERON_PUBLICATION_MAX_POSITION_EXCEEDED) => Err(OfferError::MaxPositionExceeded),
            Ok(c::AERON_PUBLICATION_ERROR) => {
                let (code, message) = last_error();
                Err(OfferError::Error(Error::Aeron { what: K::WHAT, code, message }))
            }
            _ => Ok(result),
        }
    }

    fn close(&self) {
        self.core.while_open(|client_is_open| {
            let raw = lock(&self.raw).take();
            if let (Some(raw), true) = (raw, client_is_open) {
                // SAFETY: taken out of the only place that held it, and the client is open: its conductor thread
                // frees the object later.
                unsafe { K::CLOSE(raw.as_ptr(), None, ptr::null_mut()) };
            }
        });
    }
}

impl<K: Kind> Drop for Inner<K> {
    fn drop(&mut self) {
        if self.core.owner.is_current() {
            self.close();
        }
    }
}

impl<K: Kind> Child for Inner<K> {
    fn forget(&self) {
        lock(&self.raw).take();
    }
}

impl<K: Kind> Addable for PublicationHandle<K> {
    type Raw = K::Raw;
    type Extra = ();
    const WHAT: &'static str = K::WHAT;
    const POLL: unsafe extern "C" fn(
        *mut *mut Self::Raw,
        *mut c::aeron_client_registering_resource_stct,
    ) -> c_int = K::POLL;
    const REMOVE: unsafe extern "C" fn(i64, *mut c::aeron_t, c::aeron_notification_t, *mut c_void) -> c_int =
        K::REMOVE;

    fn build(core: &Arc<Core>, raw: NonNull<Self::Raw>, (): ()) -> (Self, Weak<dyn Child>) {
        // SAFETY: a plain C struct of integers and pointers, for which zero is a value.
        let mut found: c::aeron_publication_constants_t = unsafe { std::mem::zeroed() };
        // SAFETY: the publication was added just now; its channel is copied before it can go.
        let channel = unsafe {
            K::CONSTANTS(raw.as_ptr(), &mut found);
            CStr::from_ptr(found.channel).to_string_lossy().into_owned()
        };
        let constants = StreamConstants {
            channel,
            stream_id: found.stream_id,
            session_id: found.session_id,
            max_message_bytes: found.max_message_length,
            max_payload_bytes: found.max_payload_length,
            term_bytes: found.term_buffer_length,
        };
        let core = Arc::clone(core);
        let inner =
            Arc::new(Inner { raw: Mutex::new(Some(raw)), constants, counts: Counts::default(), core });
        let child: Weak<dyn Child> = Arc::downgrade(&(Arc::clone(&inner) as Arc<dyn Child>));
        (Self { inner }, child)
    }
}
