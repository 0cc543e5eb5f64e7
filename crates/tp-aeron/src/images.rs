//! Which publications a subscription hears, and since when.

use std::collections::VecDeque;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rusteron_client::bindings as c;

use crate::sync::lock;

/// Events nobody took are forgotten from the oldest on.
const MAX_EVENTS: usize = 1024;

/// One publication as a subscription sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The publication's session id, as in the headers of its messages.
    pub session_id: i32,
    /// When the image became available, on the monotonic clock. `[WIRE-10.1.1-11]`
    pub join_time_ns: i64,
    /// The stream position at which the subscription joined.
    pub join_position: i64,
    /// Identifies the image even when a session id is used again.
    pub correlation_id: i64,
    /// Where the publication is: an address, or `aeron:ipc`.
    pub source_identity: String,
}

/// A change in what a subscription hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageEvent {
    /// From now on its messages arrive.
    Available(Image),
    /// Nothing more will come.
    Unavailable(Image),
}

#[derive(Default)]
struct State {
    images: Vec<Image>,
    events: VecDeque<ImageEvent>,
}

/// Ids of logs that the C code will not call again, and that the client may therefore drop.
pub(crate) type Retired = Arc<Mutex<Vec<u64>>>;

/// What the conductor thread of the C client tells about one subscription. The C code holds a plain pointer to it, so
/// the client keeps it alive until the log is retired or the client is closed.
pub(crate) struct ImageLog {
    pub(crate) id: u64,
    retired: Retired,
    state: Mutex<State>,
    changes: AtomicU64,
}

impl ImageLog {
    pub(crate) fn new(id: u64, retired: Retired) -> Arc<Self> {
        Arc::new(Self { id, retired, state: Mutex::default(), changes: AtomicU64::new(0) })
    }

    pub(crate) fn images(&self) -> Vec<Image> {
        lock(&self.state).images.clone()
    }

    pub(crate) fn join_time_ns(&self, session_id: i32) -> Option<i64> {
        let state = lock(&self.state);
        state.images.iter().find(|image| image.session_id == session_id).map(|image| image.join_time_ns)
    }

    pub(crate) fn has_session(&self, session_id: i32) -> bool {
        lock(&self.state).images.iter().any(|image| image.session_id == session_id)
    }

    pub(crate) fn take_events(&self) -> Vec<ImageEvent> {
        lock(&self.state).events.drain(..).collect()
    }

    /// Grows with every image that comes or goes.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(crate) fn as_clientd(self: &Arc<Self>) -> *mut c_void {
        Arc::as_ptr(self).cast_mut().cast()
    }

    /// Lets the client drop the log: the C code will not call with it again.
    pub(crate) fn retire(&self) {
        lock(&self.retired).push(self.id);
    }

    fn record(&self, event: ImageEvent) {
        let mut state = lock(&self.state);
        match &event {
            ImageEvent::Available(image) => state.images.push(image.clone()),
            ImageEvent::Unavailable(image) => {
                state.images.retain(|known| known.correlation_id != image.correlation_id);
            }
        }
        if state.events.len() == MAX_EVENTS {
            state.events.pop_front();
        }
        state.events.push_back(event);
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn known(&self, correlation_id: i64) -> Option<Image> {
        lock(&self.state).images.iter().find(|image| image.correlation_id == correlation_id).cloned()
    }
}

/// The monotonic clock that Python's `time.monotonic_ns` reads too.
pub(crate) fn monotonic_ns() -> i64 {
    // SAFETY: a plain C struct of integers, filled by the call, which can't fail for this clock.
    let now = unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now);
        now
    };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// # Safety
/// `image` must be a valid image, as it is inside the callbacks.
unsafe fn constants_of(image: *mut c::aeron_image_t) -> c::aeron_image_constants_t {
    // SAFETY: a plain C struct of integers and pointers, for which zero is a value; filled by the call.
    let mut constants: c::aeron_image_constants_t = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid.
    unsafe { c::aeron_image_constants(image, &mut constants) };
    constants
}

/// Called by the conductor thread.
///
/// # Safety
/// `clientd` must come from [`ImageLog::as_clientd`] of a log that is alive.
pub(crate) unsafe extern "C" fn on_available_image(
    clientd: *mut c_void,
    _subscription: *mut c::aeron_subscription_t,
    image: *mut c::aeron_image_t,
) {
    let join_time_ns = monotonic_ns();
    // SAFETY: the client keeps the log alive while the C code may call this; the image is valid during the call.
    let (log, constants) = unsafe { (&*clientd.cast::<ImageLog>(), constants_of(image)) };
    let source_identity = if constants.source_identity.is_null() {
        String::new()
    } else {
        // SAFETY: a C string that lives as long as the image.
        unsafe { CStr::from_ptr(constants.source_identity) }.to_string_lossy().into_owned()
    };
    log.record(ImageEvent::Available(Image {
        session_id: constants.session_id,
        join_time_ns,
        join_position: constants.join_position,
        correlation_id: constants.correlation_id,
        source_identity,
    }));
}

/// Called by the conductor thread.
///
/// # Safety
/// As for [`on_available_image`].
pub(crate) unsafe extern "C" fn on_unavailable_image(
    clientd: *mut c_void,
    _subscription: *mut c::aeron_subscription_t,
    image: *mut c::aeron_image_t,
) {
    // SAFETY: as in on_available_image.
    let (log, constants) = unsafe { (&*clientd.cast::<ImageLog>(), constants_of(image)) };
    if let Some(image) = log.known(constants.correlation_id) {
        log.record(ImageEvent::Unavailable(image));
    }
}

/// Called once the C code has forgotten the subscription: the log may go.
///
/// # Safety
/// As for [`on_available_image`].
pub(crate) unsafe extern "C" fn on_subscription_gone(clientd: *mut c_void) {
    // SAFETY: as in on_available_image; the log is dropped later, by the client, never in here.
    unsafe { &*clientd.cast::<ImageLog>() }.retire();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(session_id: i32, correlation_id: i64) -> Image {
        Image {
            session_id,
            join_time_ns: 1,
            join_position: 0,
            correlation_id,
            source_identity: String::new(),
        }
    }

    #[test]
    fn a_reused_session_id_does_not_confuse_the_log() {
        let log = ImageLog::new(1, Retired::default());
        log.record(ImageEvent::Available(image(7, 100)));
        log.record(ImageEvent::Available(image(7, 200)));
        log.record(ImageEvent::Unavailable(image(7, 100)));
        assert_eq!(log.images(), [image(7, 200)]);
        assert!(log.has_session(7));
        assert_eq!(log.changes(), 3);
        assert_eq!(log.take_events().len(), 3);
        assert_eq!(log.take_events(), []);
    }

    #[test]
    fn events_that_nobody_takes_are_bounded() {
        let log = ImageLog::new(1, Retired::default());
        for i in 0..2 * MAX_EVENTS as i64 {
            log.record(ImageEvent::Available(image(0, i)));
            log.record(ImageEvent::Unavailable(image(0, i)));
        }
        assert_eq!(log.take_events().len(), MAX_EVENTS);
        assert!(log.images().is_empty());
    }
}
