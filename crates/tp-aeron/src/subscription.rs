//! Receiving messages.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, Weak};

use rusteron_client::bindings as c;

use crate::adding::Addable;
pub use crate::assembler::AssemblyLimits;
use crate::assembler::FragmentAssembler;
use crate::error::{Error, aeron_error};
use crate::images::{self, Image, ImageEvent, ImageLog};
use crate::lifetime::{Child, Core};
use crate::sync::lock;

const WHAT: &str = "subscription";
const FRAME_ALIGNMENT: i64 = 32;

/// Where a message came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The publication's session id.
    pub session_id: i32,
    /// The Aeron stream id.
    pub stream_id: i32,
    /// The stream position behind the message.
    pub position: i64,
    /// Eight bytes that a publisher may set.
    pub reserved_value: i64,
    pub(crate) flags: u8,
    /// Bytes of the log that the fragment takes, header and padding included.
    pub(crate) occupied_bytes: i64,
}

struct State {
    /// Gone once the subscription or its client is closed.
    raw: Option<NonNull<c::aeron_subscription_t>>,
    assembler: FragmentAssembler,
    /// The log's changes up to which the assembler knows who is gone.
    image_changes: u64,
}

struct Inner {
    /// The C code allows one thread at a time to poll, and closing must exclude polling.
    state: Mutex<State>,
    images: Arc<ImageLog>,
    core: Arc<Core>,
}

// SAFETY: the raw pointer is only used under the lock.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// A subscription to one stream of one channel.
#[derive(Clone)]
pub struct Subscription {
    inner: Arc<Inner>,
}

impl Subscription {
    /// Hands up to `limit` fragments to `handler`, as they travelled; tells how many there were.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`], or why the client gave up.
    ///
    /// # Panics
    /// When `handler` panics; the fragments of this call that were still to come are lost then.
    pub fn poll(&self, limit: usize, mut handler: impl FnMut(&[u8], Header)) -> Result<usize, Error> {
        self.inner.with(|raw, _| deliver(raw, limit, &mut handler))?
    }

    /// Like [`Self::poll`], with messages of several fragments put together within the limits that were given when
    /// the subscription was added.
    ///
    /// # Errors
    /// As for [`Self::poll`].
    ///
    /// # Panics
    /// As for [`Self::poll`].
    pub fn poll_assembled(
        &self,
        limit: usize,
        mut handler: impl FnMut(&[u8], Header),
    ) -> Result<usize, Error> {
        self.inner.with(|raw, assembler| {
            deliver(raw, limit, &mut |fragment, header| assembler.on_fragment(fragment, header, &mut handler))
        })?
    }

    /// Messages of several fragments that were begun and given up.
    pub fn abandoned_messages(&self) -> u64 {
        if self.inner.core.owner.is_current() { lock(&self.inner.state).assembler.abandoned() } else { 0 }
    }

    /// Whether any publication is heard.
    ///
    /// # Errors
    /// As for [`Self::poll`].
    pub fn is_connected(&self) -> Result<bool, Error> {
        // SAFETY: the subscription is valid inside `with`.
        self.inner.with(|raw, _| unsafe { c::aeron_subscription_is_connected(raw) })
    }

    /// The publications that are heard now.
    ///
    /// # Errors
    /// As for [`Self::poll`].
    pub fn images(&self) -> Result<Vec<Image>, Error> {
        self.inner.with(|_, _| self.inner.images.images())
    }

    /// When the publication of a session became available, on the monotonic clock; `None` if it is not heard.
    ///
    /// # Errors
    /// As for [`Self::poll`].
    pub fn join_time_ns(&self, session_id: i32) -> Result<Option<i64>, Error> {
        self.inner.with(|_, _| self.inner.images.join_time_ns(session_id))
    }

    /// Publications that came and went since the last call, in order.
    ///
    /// # Errors
    /// As for [`Self::poll`].
    pub fn take_image_events(&self) -> Result<Vec<ImageEvent>, Error> {
        self.inner.with(|_, _| self.inner.images.take_events())
    }

    /// Whether it was closed by its owner.
    pub fn is_closed(&self) -> bool {
        !self.inner.core.owner.is_current() || lock(&self.inner.state).raw.is_none()
    }

    /// Closes the subscription. Does nothing when called again.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    pub fn close(&self) -> Result<(), Error> {
        self.inner.core.owner.check(WHAT)?;
        self.inner.close();
        Ok(())
    }
}

/// What the C code passes through to [`on_fragment`].
struct Delivery<'a> {
    handler: &'a mut dyn FnMut(&[u8], Header),
    panic: Option<Box<dyn Any + Send>>,
}

unsafe extern "C-unwind" fn on_fragment(
    clientd: *mut c_void,
    buffer: *const u8,
    length: usize,
    header: *mut c::aeron_header_t,
) {
    // SAFETY: `Inner::deliver` passes its own Delivery, which outlives the poll.
    let delivery = unsafe { &mut *clientd.cast::<Delivery<'_>>() };
    if delivery.panic.is_some() {
        return;
    }
    // SAFETY: a plain C struct of integers, for which zero is a value.
    let mut values: c::aeron_header_values_t = unsafe { std::mem::zeroed() };
    // SAFETY: the header and the fragment's bytes are valid during the callback.
    let (position, bytes) = unsafe {
        c::aeron_header_values(header, &mut values);
        (c::aeron_header_position(header), std::slice::from_raw_parts(buffer, length))
    };
    let frame = values.frame;
    let header = Header {
        session_id: frame.session_id,
        stream_id: frame.stream_id,
        position,
        reserved_value: frame.reserved_value,
        flags: frame.flags,
        occupied_bytes: (i64::from(frame.frame_length) + FRAME_ALIGNMENT - 1) & !(FRAME_ALIGNMENT - 1),
    };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (delivery.handler)(bytes, header))) {
        delivery.panic = Some(panic);
    }
}

impl Inner {
    /// Runs `call` with the C object, unless it is closed, lost, or this is a forked child.
    fn with<T>(
        &self,
        call: impl FnOnce(*mut c::aeron_subscription_t, &mut FragmentAssembler) -> T,
    ) -> Result<T, Error> {
        self.core.owner.check(WHAT)?;
        let mut state = lock(&self.state);
        let Some(raw) = state.raw else {
            return Err(Error::Closed(WHAT));
        };
        // SAFETY: the client can't free the subscription before it got this lock.
        if unsafe { c::aeron_subscription_is_closed(raw.as_ptr()) } {
            return Err(self.core.lost());
        }
        if state.image_changes != self.images.changes() {
            state.image_changes = self.images.changes();
            if !state.assembler.is_idle() {
                state.assembler.keep_sessions(|session| self.images.has_session(session));
            }
        }
        Ok(call(raw.as_ptr(), &mut state.assembler))
    }

    fn close(&self) {
        self.core.while_open(|client_is_open| {
            let raw = lock(&self.state).raw.take();
            if let (Some(raw), true) = (raw, client_is_open) {
                // SAFETY: taken out of the only place that held it, and the client is open: its conductor thread
                // frees the object and then retires the image log, which the client keeps alive until then.
                unsafe {
                    c::aeron_subscription_close(
                        raw.as_ptr(),
                        Some(images::on_subscription_gone),
                        self.images.as_clientd(),
                    );
                }
            }
        });
    }
}

fn deliver(
    raw: *mut c::aeron_subscription_t,
    limit: usize,
    handler: &mut dyn FnMut(&[u8], Header),
) -> Result<usize, Error> {
    let mut delivery = Delivery { handler, panic: None };
    // SAFETY: the subscription is valid and not polled by another thread; the delivery outlives the call.
    let count = unsafe {
        c::aeron_subscription_poll(raw, Some(on_fragment), (&raw mut delivery).cast::<c_void>(), limit)
    };
    if let Some(panic) = delivery.panic {
        resume_unwind(panic);
    }
    usize::try_from(count).map_err(|_| aeron_error("polling a subscription"))
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
        lock(&self.state).raw.take();
    }
}

impl Addable for Subscription {
    type Raw = c::aeron_subscription_t;
    type Extra = (Arc<ImageLog>, AssemblyLimits);
    const WHAT: &'static str = WHAT;
    const POLL: unsafe extern "C" fn(
        *mut *mut Self::Raw,
        *mut c::aeron_client_registering_resource_stct,
    ) -> c_int = c::aeron_async_add_subscription_poll;
    const REMOVE: unsafe extern "C" fn(i64, *mut c::aeron_t, c::aeron_notification_t, *mut c_void) -> c_int =
        c::aeron_async_remove_subscription;

    fn on_removed((log, _): &Self::Extra) -> (c::aeron_notification_t, *mut c_void) {
        (Some(images::on_subscription_gone), log.as_clientd())
    }

    fn on_refused((log, _): &Self::Extra) {
        log.retire();
    }

    fn build(
        core: &Arc<Core>,
        raw: NonNull<Self::Raw>,
        (images, limits): Self::Extra,
    ) -> (Self, Weak<dyn Child>) {
        let state = State { raw: Some(raw), assembler: FragmentAssembler::new(limits), image_changes: 0 };
        let inner = Arc::new(Inner { state: Mutex::new(state), images, core: Arc::clone(core) });
        let child: Weak<dyn Child> = Arc::downgrade(&(Arc::clone(&inner) as Arc<dyn Child>));
        (Self { inner }, child)
    }
}
