//! Descriptors of frames, received natively: one subscription a process, one log for each stream that is followed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tp_aeron::{Attachment, Drain, Error, Header, Receiver, Subscription};
use tp_core::descriptor_log::{DescriptorCounts, DescriptorLog as Log};
use tp_core::hot;

use super::raise;
use crate::border::released;
use crate::ring::FrameDescriptor;

/// Fragments that a poll for an absent descriptor takes from the stream: more than half a term of 64 KiB holds.
const INLINE_FRAGMENTS: usize = 512;
/// Polls for an absent descriptor: one ends where a term ends, the next sees what lies behind it.
const INLINE_POLLS: usize = 2;

/// The first descriptor of a stream waits until the client's thread learns of the publication, which sleeps up to 16 ms.
const FIRST_COMES_WITHIN: Duration = Duration::from_millis(100);
/// Each further one is sent right after its frame was committed: late only where the producer lost its core between.
const NEXT_COMES_WITHIN: Duration = Duration::from_millis(5);
const BETWEEN_LOOKS: Duration = Duration::from_micros(50);

type SharedLog = Mutex<Log>;

/// Nobody runs Python code, or waits for the interpreter's lock, while holding a log.
fn lock(log: &SharedLog) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands descriptors to the logs of their stream.
#[derive(Default)]
struct Streams {
    /// Two consumers of one process may follow the same stream, at different epochs.
    logs: RwLock<HashMap<u32, Vec<Weak<SharedLog>>>>,
    ignored: AtomicU64,
    ended: AtomicBool,
}

impl Streams {
    fn add(&self, stream_id: u32, capacity: usize) -> Arc<SharedLog> {
        let log = Arc::new(Mutex::new(Log::new(stream_id, capacity)));
        let mut logs = self.logs.write().unwrap_or_else(PoisonError::into_inner);
        logs.entry(stream_id).or_default().push(Arc::downgrade(&log));
        log
    }

    /// Forgets the logs of a stream that nobody holds any more, and `gone`.
    fn prune(&self, stream_id: u32, gone: &Arc<SharedLog>) {
        let mut logs = self.logs.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(followers) = logs.get_mut(&stream_id) {
            followers.retain(|log| log.strong_count() > 0 && !std::ptr::eq(log.as_ptr(), Arc::as_ptr(gone)));
            if followers.is_empty() {
                logs.remove(&stream_id);
            }
        }
    }
}

impl Receiver for Streams {
    fn on_message(&self, message: &[u8], header: Header) -> bool {
        let descriptor = hot::FrameDescriptor::decode(message);
        let logs = self.logs.read().unwrap_or_else(PoisonError::into_inner);
        // Which stream comes before anything else (decision L4).
        match descriptor.as_ref().and_then(|descriptor| Some((descriptor, logs.get(&descriptor.stream_id)?)))
        {
            Some((descriptor, followers)) => {
                for log in followers.iter().filter_map(Weak::upgrade) {
                    lock(&log).record(header.session_id, descriptor);
                }
            }
            None => {
                self.ignored.fetch_add(1, Ordering::Relaxed);
            }
        }
        // The doorbell wakes who waits for frames; descriptors are looked up when a frame was found.
        false
    }

    fn on_end(&self, _reason: &Error) {
        self.ended.store(true, Ordering::Release);
    }
}

/// A stream of descriptors that a drain polls.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct DescriptorFeed {
    streams: Arc<Streams>,
    attachment: Arc<Attachment>,
    subscription: Subscription,
}

impl DescriptorFeed {
    /// Has `drain` poll `subscription`.
    pub fn attach(drain: &Drain, subscription: Subscription) -> Result<Self, Error> {
        let streams = Arc::new(Streams::default());
        let attachment = drain.attach(subscription.clone(), Arc::clone(&streams) as Arc<dyn Receiver>)?;
        Ok(Self { streams, attachment: Arc::new(attachment), subscription })
    }
}

#[pymethods]
impl DescriptorFeed {
    fn follow(&self, py: Python<'_>, stream_id: u32, capacity: usize) -> PyResult<DescriptorLog> {
        self.attachment.check_owner("descriptor feed").map_err(|e| raise(py, e))?;
        if self.closed() {
            return Err(raise(py, Error::Closed("descriptor feed")));
        }
        let log = self.streams.add(stream_id, capacity);
        let (streams, attachment) = (Arc::clone(&self.streams), Arc::clone(&self.attachment));
        Ok(DescriptorLog { log, streams, attachment, stream_id, closed: AtomicBool::new(false) })
    }

    /// Messages that were no descriptors, or of streams that nobody follows.
    #[getter]
    fn ignored(&self) -> u64 {
        self.streams.ignored.load(Ordering::Relaxed)
    }

    #[getter]
    fn closed(&self) -> bool {
        self.streams.ended.load(Ordering::Acquire) || self.subscription.is_closed()
    }

    /// Closes the subscription too: one that is open and not polled would hold the stream back.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.attachment.check_owner("descriptor feed").map_err(|e| raise(py, e))?;
        self.attachment.detach();
        self.streams.ended.store(true, Ordering::Release);
        released(py, || self.subscription.close()).map_err(|e| raise(py, e))
    }
}

/// What the descriptors of one stream said lately.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct DescriptorLog {
    log: Arc<SharedLog>,
    streams: Arc<Streams>,
    attachment: Arc<Attachment>,
    stream_id: u32,
    closed: AtomicBool,
}

impl DescriptorLog {
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.attachment.check_owner("descriptor log").map_err(|e| raise(py, e))?;
        if self.closed.load(Ordering::Acquire) {
            return Err(raise(py, Error::Closed("descriptor log")));
        }
        Ok(())
    }

    /// Looks, and when there is nothing polls the subscription and looks again.
    fn look(
        &self,
        py: Python<'_>,
        look: impl Fn(&Log) -> Option<hot::FrameDescriptor>,
    ) -> PyResult<Option<FrameDescriptor>> {
        self.check(py)?;
        let mut found = look(&lock(&self.log));
        for _ in 0..INLINE_POLLS {
            if found.is_some() {
                break;
            }
            self.attachment.poll(INLINE_FRAGMENTS).map_err(|e| raise(py, e))?;
            found = look(&lock(&self.log));
        }
        Ok(found.map(FrameDescriptor::from))
    }

    /// What was said of a frame, waiting a moment for what is still to come; nothing once the log is closed.
    pub fn find_unless_closed(
        &self,
        py: Python<'_>,
        epoch: u64,
        seq: u64,
    ) -> PyResult<Option<FrameDescriptor>> {
        let asked = Instant::now();
        loop {
            if self.closed() {
                return Ok(None);
            }
            let found = self.look(py, |log| log.find(epoch, seq))?;
            let mut log = lock(&self.log);
            if found.is_some() || !log.may_come(epoch, seq) {
                return Ok(found);
            }
            let patience = if log.newest().is_none() { FIRST_COMES_WITHIN } else { NEXT_COMES_WITHIN };
            if asked.elapsed() > patience {
                log.give_up();
                return Ok(None);
            }
            drop(log);
            released(py, || std::thread::sleep(BETWEEN_LOOKS));
        }
    }

    fn counts(&self, py: Python<'_>) -> PyResult<DescriptorCounts> {
        self.check(py)?;
        Ok(lock(&self.log).counts())
    }
}

#[pymethods]
impl DescriptorLog {
    fn find(&self, py: Python<'_>, epoch: u64, seq: u64) -> PyResult<Option<FrameDescriptor>> {
        self.look(py, |log| log.find(epoch, seq))
    }

    #[pyo3(signature = (epoch, seq))]
    fn after(&self, py: Python<'_>, epoch: u64, seq: Option<u64>) -> PyResult<Option<FrameDescriptor>> {
        self.look(py, |log| log.after(epoch, seq))
    }

    fn ordinal(&self, py: Python<'_>, epoch: u64, seq: u64) -> PyResult<Option<u64>> {
        self.check(py)?;
        Ok(lock(&self.log).ordinal(epoch, seq))
    }

    #[pyo3(signature = (epoch, *, awaited_from = None))]
    fn set_epoch(&self, py: Python<'_>, epoch: u64, awaited_from: Option<u64>) -> PyResult<()> {
        self.check(py)?;
        lock(&self.log).set_epoch(epoch, awaited_from);
        Ok(())
    }

    #[getter]
    fn stream_id(&self) -> u32 {
        self.stream_id
    }

    #[getter]
    fn newest(&self, py: Python<'_>) -> PyResult<Option<FrameDescriptor>> {
        self.check(py)?;
        Ok(lock(&self.log).newest().map(FrameDescriptor::from))
    }

    #[getter]
    fn highest_epoch(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.check(py)?;
        Ok(lock(&self.log).highest_epoch())
    }

    #[getter]
    fn received(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.counts(py)?.received)
    }

    #[getter]
    fn lower_epochs(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.counts(py)?.lower_epochs)
    }

    #[getter]
    fn higher_epochs(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.counts(py)?.higher_epochs)
    }

    #[getter]
    fn regressions(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.counts(py)?.regressions)
    }

    #[getter]
    fn closed(&self) -> bool {
        self.attachment.check_owner("descriptor log").is_err() || self.closed.load(Ordering::Acquire)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.attachment.check_owner("descriptor log").map_err(|e| raise(py, e))?;
        self.closed.store(true, Ordering::Release);
        self.streams.prune(self.stream_id, &self.log);
        Ok(())
    }
}

impl Drop for DescriptorLog {
    fn drop(&mut self) {
        // In a forked child the locks may be held for ever, and what they guard is the parent's.
        if self.attachment.check_owner("descriptor log").is_ok() {
            self.streams.prune(self.stream_id, &self.log);
        }
    }
}
