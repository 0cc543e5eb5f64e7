//! The part of a consumer that runs for every frame.
//!
//! An [`Inlet`] is what the consumer's session (on the agent's thread) and its [`FrameReceiver`] (on the program's) have
//! in common: which ring is read now, and what was counted. Rings come and go with epochs; the inlet stays.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pyo3::intern;
use pyo3::prelude::*;
use tp_core::ring::{AnyFrame, Geometry, Polled, Waiting};

use super::frame::Frame;
use super::reader::RingReader;
use crate::aeron::DescriptorLog;
use crate::border::{attached, call_back, lock, released, sleep_in_slices};
use crate::errors;

/// A receiver asks how far behind it is every so many frames at least, and several times within the gap that it tolerates.
const LAG_CHECK_FRAMES: u64 = 64;
const LAG_CHECKS_A_GAP: u64 = 4;
/// The longest wait before another look: not every producer rings, and rings are replaced.
const LONGEST_WAIT_S: f64 = 0.1;
/// No frame has this number.
const NO_SEQ: u64 = u64::MAX;
/// No thread has this mark.
const ANYBODY: usize = 0;

/// Tells the calling thread from all others.
fn thread_mark() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// What became of frames, over all rings; and what frames know beyond their ring.
pub struct Received {
    delivered: AtomicU64,
    validated: AtomicU64,
    overwritten: AtomicU64,
    skipped: AtomicU64,
    resyncs: AtomicU64,
    last_seq: AtomicU64,
    descriptors: Mutex<Option<Py<DescriptorLog>>>,
    /// The ring's memory as a device knows it, once a frame went there.
    registration: Mutex<Option<Py<PyAny>>>,
}

impl Default for Received {
    fn default() -> Self {
        Self {
            delivered: AtomicU64::new(0),
            validated: AtomicU64::new(0),
            overwritten: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            resyncs: AtomicU64::new(0),
            last_seq: AtomicU64::new(NO_SEQ),
            descriptors: Mutex::default(),
            registration: Mutex::default(),
        }
    }
}

/// What is kept under a lock, in the interpreter's hands.
fn get<'py, T>(py: Python<'py>, kept: &Mutex<Option<Py<T>>>) -> Option<Bound<'py, T>> {
    lock(py, kept).as_ref().map(|kept| kept.bind(py).clone())
}

/// What is replaced is dropped after the lock: that may run Python code.
fn set<T>(py: Python<'_>, kept: &Mutex<Option<Py<T>>>, new: Option<Py<T>>) {
    let replaced = std::mem::replace(&mut *lock(py, kept), new);
    drop(replaced);
}

impl Received {
    /// Counts a frame on its way to who uses it; how many there were before.
    fn count_delivered(&self, seq: u64) -> u64 {
        self.last_seq.store(seq, Relaxed);
        self.delivered.fetch_add(1, Relaxed)
    }

    /// Counts a frame by whether it was whole after its use (decision M17).
    pub(super) fn count_judged(&self, valid: bool) {
        let counter = if valid { &self.validated } else { &self.overwritten };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn descriptors<'py>(&self, py: Python<'py>) -> Option<Bound<'py, DescriptorLog>> {
        get(py, &self.descriptors)
    }

    pub(super) fn registration<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        get(py, &self.registration)
    }

    pub(super) fn set_registration(&self, py: Python<'_>, registration: Option<Py<PyAny>>) {
        set(py, &self.registration, registration);
    }
}

#[derive(Default)]
struct Shared {
    reader: Mutex<Option<Py<RingReader>>>,
    guided: AtomicBool,
    received: Arc<Received>,
    /// The frame handed out last, until it is known whether it was whole to the end (decision M17).
    last: Mutex<Option<Py<Frame>>>,
}

impl Shared {
    /// A frame that the program never asked about is asked about now.
    fn judge_last(&self, py: Python<'_>) {
        let last = lock(py, &self.last).take();
        if let Some(last) = last {
            last.get().judge_unless_closed(py);
        }
    }

    /// Counts a frame; how many there were before.
    fn count(&self, frame: &Bound<'_, Frame>) -> u64 {
        set(frame.py(), &self.last, Some(frame.clone().unbind()));
        self.received.count_delivered(frame.get().seq())
    }
}

/// Where the frames of a consumer come from.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct Inlet(Arc<Shared>);

impl Inlet {
    /// For readers to count in.
    pub fn received(&self) -> Arc<Received> {
        Arc::clone(&self.0.received)
    }
}

#[pymethods]
impl Inlet {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    #[getter]
    fn get_reader<'py>(&self, py: Python<'py>) -> Option<Bound<'py, RingReader>> {
        get(py, &self.0.reader)
    }

    #[setter]
    fn set_reader(&self, py: Python<'_>, reader: Option<Py<RingReader>>) {
        set(py, &self.0.reader, reader);
        // It lies in the former ring, which should be unmapped as soon as the program lets go of it.
        set(py, &self.0.last, None);
    }

    #[getter]
    fn get_descriptors<'py>(&self, py: Python<'py>) -> Option<Bound<'py, DescriptorLog>> {
        self.0.received.descriptors(py)
    }

    #[setter]
    fn set_descriptors(&self, py: Python<'_>, log: Option<Py<DescriptorLog>>) {
        set(py, &self.0.received.descriptors, log);
    }

    #[getter]
    fn get_registration<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.0.received.registration(py)
    }

    #[setter]
    fn set_registration(&self, py: Python<'_>, registration: Option<Py<PyAny>>) {
        self.0.received.set_registration(py, registration);
    }

    #[getter]
    fn get_guided(&self) -> bool {
        self.0.guided.load(Relaxed)
    }

    #[setter]
    fn set_guided(&self, guided: bool) {
        self.0.guided.store(guided, Relaxed);
    }

    #[getter]
    fn delivered(&self) -> u64 {
        self.0.received.delivered.load(Relaxed)
    }

    #[getter]
    fn validated(&self) -> u64 {
        self.0.received.validated.load(Relaxed)
    }

    #[getter]
    fn overwritten(&self) -> u64 {
        self.0.received.overwritten.load(Relaxed)
    }

    #[getter]
    fn skipped(&self) -> u64 {
        self.0.received.skipped.load(Relaxed)
    }

    #[getter]
    fn resyncs(&self) -> u64 {
        self.0.received.resyncs.load(Relaxed)
    }

    #[getter]
    fn last_seq(&self) -> Option<u64> {
        Some(self.0.received.last_seq.load(Relaxed)).filter(|seq| *seq != NO_SEQ)
    }
}

/// Frames of one epoch that were handed on without the interpreter.
pub struct HandedOn {
    pub epoch: u64,
    /// None without frames.
    pub last_seq: Option<u64>,
}

/// What was done with a frame.
pub struct Handled {
    /// Was it whole to the end?
    pub is_whole: bool,
    /// May the next one come?
    pub goes_on: bool,
}

/// Takes frames from an inlet. Python's `Consumer` is one, and knows what to do where there is no ring.
#[pyclass(frozen, subclass, module = "tensor_pool._native")]
pub struct FrameReceiver {
    inlet: Arc<Shared>,
    /// How it waits; none while somebody does.
    waiting: Mutex<Option<Waiting>>,
    max_gap: u64,
    lag_check_frames: u64,
    /// The thread whose frames they all are, if there is one.
    reserved_for: AtomicUsize,
}

impl FrameReceiver {
    /// The next frame, if it is there; an error when the ring was closed.
    fn take<'py>(&self, reader: &Bound<'py, RingReader>) -> PyResult<Option<Bound<'py, Frame>>> {
        self.inlet.judge_last(reader.py());
        RingReader::poll(reader)?.map(|frame| self.deliver(frame, true)).transpose()
    }

    /// Is it time to ask how far behind it is, after so many frames and one?
    fn is_check_due(&self, before: u64) -> bool {
        before % self.lag_check_frames == self.lag_check_frames - 1
    }

    /// Skips to the newest frame when too far behind [WIRE-15.4-4].
    fn catch_up(&self, py: Python<'_>, ring: &RingReader) -> PyResult<()> {
        if self.max_gap == 0 {
            return Ok(());
        }
        if let Some(newest) = ring.newest(py)? {
            let behind = newest.saturating_sub(ring.next_seq(py)?);
            if behind > self.max_gap {
                self.inlet.received.skipped.fetch_add(behind, Relaxed);
                self.inlet.received.resyncs.fetch_add(1, Relaxed);
                ring.seek(py, newest, true)?;
            }
        }
        Ok(())
    }

    /// Hands frames to `work` as they come, without the interpreter, until the time is over or `work` has had enough.
    ///
    /// None where there is no ring, or where frames are chosen by more than the ring.
    pub fn hand_on(
        &self,
        py: Python<'_>,
        duration: Duration,
        work: impl FnMut(&AnyFrame, &Geometry) -> Handled + Send,
    ) -> PyResult<Option<HandedOn>> {
        let reader = if self.inlet.guided.load(Relaxed) { None } else { get(py, &self.inlet.reader) };
        let Some(reader) = reader else { return Ok(None) };
        let ring = reader.get();
        ring.check_for(py, "consumer")?;
        if ring.closed(py) {
            return Ok(None);
        }
        self.inlet.judge_last(py);
        let deadline = Instant::now() + duration;
        let (handed_on, is_check_due) = released(py, || self.hand_on_from(ring, deadline, work));
        if is_check_due && !ring.closed(py) {
            self.catch_up(py, ring)?;
        }
        Ok(Some(handed_on))
    }

    /// Also says whether it is time to ask how far behind it is.
    fn hand_on_from(
        &self,
        ring: &RingReader,
        deadline: Instant,
        mut work: impl FnMut(&AnyFrame, &Geometry) -> Handled,
    ) -> (HandedOn, bool) {
        let mut done = HandedOn { epoch: ring.geometry().epoch, last_seq: None };
        while !self.inlet.guided.load(Relaxed) && !ring.is_revoked() {
            let left = deadline.saturating_duration_since(Instant::now());
            match ring.poll_detached() {
                Some(Polled::Frame(frame)) => {
                    let seq = frame.record().seq;
                    done.last_seq = Some(seq);
                    let before = self.inlet.received.count_delivered(seq);
                    let handled = work(&frame, ring.geometry());
                    ring.judge(seq, handled.is_whole);
                    if self.is_check_due(before) {
                        return (done, true);
                    }
                    if !handled.goes_on || left.is_zero() {
                        break;
                    }
                }
                Some(Polled::Idle) if !left.is_zero() => {
                    let Some(awaited) = ring.awaited_detached() else { break };
                    if !self.with_waiting(|waiting| waiting.wait_for_bell(&awaited, left)) {
                        ring.search_again_detached();
                    }
                }
                _ => break,
            }
        }
        (done, false)
    }

    /// Waits, without a lock: whoever rehearses may run any Python code (garbage is collected then), which may wait here as well.
    /// Who comes second just sleeps until the bell rings.
    fn with_waiting<T>(&self, wait: impl FnOnce(&mut Waiting) -> T) -> T {
        let kept = || self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Some(mut waiting) = kept().take() else { return wait(&mut Waiting::new(Duration::ZERO, false)) };
        let waited = wait(&mut waiting);
        *kept() = Some(waiting);
        waited
    }

    fn wait_for_bell(&self, reader: &Bound<'_, RingReader>, timeout_s: f64) -> PyResult<bool> {
        let (py, ring) = (reader.py(), reader.get());
        let (awaited, again) = (ring.awaited(py)?, reader.clone().unbind());
        let still_open = || ring.awaited(py).map(drop);
        let rang = sleep_in_slices(py, timeout_s.min(LONGEST_WAIT_S), still_open, |slice| {
            let rehearse = || attached(|py| RingReader::rehearse(again.bind(py), &awaited));
            self.with_waiting(|waiting| waiting.wait(&awaited, slice, rehearse))
        })?;
        if !rang {
            ring.search_again(py)?;
        }
        Ok(rang)
    }
}

#[pymethods]
impl FrameReceiver {
    #[new]
    #[pyo3(signature = (inlet, *, spin = 0.0, punctual = false, max_gap = 0))]
    fn new(inlet: &Inlet, spin: f64, punctual: bool, max_gap: u64) -> Self {
        let waiting = Waiting::new(Duration::from_secs_f64(spin.clamp(0.0, 1.0)), punctual);
        let lag_check_frames = match max_gap {
            0 => LAG_CHECK_FRAMES,
            gap => (gap / LAG_CHECKS_A_GAP).clamp(1, LAG_CHECK_FRAMES),
        };
        let (inlet, waiting, reserved_for) =
            (Arc::clone(&inlet.0), Mutex::new(Some(waiting)), AtomicUsize::new(ANYBODY));
        Self { inlet, waiting, max_gap, lag_check_frames, reserved_for }
    }

    /// The next frame, or None when none comes within `timeout` seconds (at once when left out).
    ///
    /// Raises:
    ///     ClosedError: The consumer or its pool was closed.
    ///     ConfigError: `timeout` is no number; or all frames go to a callback.
    ///     NoMediaDriverError: The media driver ended, and the connection with it.
    ///     NoStreamError: The stream's authority does not let this consumer use shared memory.
    #[pyo3(signature = (timeout = None))]
    fn poll<'py>(slf: &Bound<'py, Self>, timeout: Option<f64>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, this) = (slf.py(), slf.get());
        let timeout = timeout.unwrap_or(0.0);
        if timeout.is_nan() {
            return Err(errors::CONFIG.new_err(py, "timeout=nan", Some("a number of seconds")));
        }
        let mut start = None;
        loop {
            this.check_reserved(py)?;
            let left = timeout - start.map_or(0.0, |start: Instant| start.elapsed().as_secs_f64());
            let ring = if this.inlet.guided.load(Relaxed) { None } else { get(py, &this.inlet.reader) };
            let taken = ring.as_ref().map(|reader| match this.take(reader) {
                Ok(None) if left > 0.0 => {
                    start.get_or_insert_with(Instant::now);
                    this.wait_for_bell(reader, left).map(|_| None)
                }
                taken => taken,
            });
            match taken {
                Some(Ok(Some(frame))) => return Ok(Some(frame.into_any())),
                Some(Ok(None)) if left > 0.0 => {}
                Some(Ok(None)) => return Ok(None),
                Some(Err(error)) if !errors::CLOSED.is_class_of(py, &error) => return Err(error),
                // No ring, or not that one any more, or frames are chosen by more than the ring.
                _ => {
                    let frame = call_back(|| slf.call_method1(intern!(py, "_poll_guided"), (left,)))?;
                    return Ok(Some(frame).filter(|frame| !frame.is_none()));
                }
            }
        }
    }

    /// Counts a frame on its way to the program. `catch_up`: and looks how far behind it is, now and then.
    fn deliver<'py>(&self, frame: Bound<'py, Frame>, catch_up: bool) -> PyResult<Bound<'py, Frame>> {
        let before = self.inlet.count(&frame);
        if catch_up && self.is_check_due(before) {
            self.catch_up(frame.py(), frame.get().ring())?;
        }
        Ok(frame)
    }

    /// From now on all frames are for the calling thread; an error if they are for another one.
    fn reserve(&self, py: Python<'_>) -> PyResult<()> {
        let _ = self.reserved_for.compare_exchange(ANYBODY, thread_mark(), Relaxed, Relaxed);
        self.check_reserved(py)
    }

    /// From now on frames are for whoever asks first, if they were for the calling thread.
    fn release(&self) {
        let _ = self.reserved_for.compare_exchange(thread_mark(), ANYBODY, Relaxed, Relaxed);
    }

    /// An error in any other thread than the one that all frames are for.
    fn check_reserved(&self, py: Python<'_>) -> PyResult<()> {
        let owner = self.reserved_for.load(Relaxed);
        if owner == ANYBODY || owner == thread_mark() {
            return Ok(());
        }
        let message = "the frames of this consumer go to the function that was given to on_frame";
        let hint = "close what on_frame returned, or make another consumer of the stream";
        Err(errors::CONFIG.new_err(py, message, Some(hint)))
    }

    /// Asks about the frame that was handed out last, if the program did not.
    fn judge_last(&self, py: Python<'_>) {
        self.inlet.judge_last(py);
    }

    /// Waits for the bell of the ring of the moment.
    fn wait_for_ring(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        match get(py, &self.inlet.reader) {
            Some(reader) => self.wait_for_bell(&reader, timeout),
            None => Ok(false),
        }
    }
}
