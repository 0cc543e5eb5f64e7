//! The reader of a ring.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tp_aeron::OwnerProcess;
use tp_core::doorbell;
use tp_core::drops::{DropCounters, DropReason};
use tp_core::region::Mapping;
use tp_core::ring::{
    AlignedBytes, AnyFrame, AnyReader, Awaited, Cursor, Geometry, Polled, ReadMode, Source, wait_while_filled,
};

use super::address::{BaseDirPaths, RingAddress};
use super::frame::Frame;
use super::inlet::{Inlet, Received};
use super::prefix::FramePrefix;
use super::{arrays, check_owner};
use crate::border::{lock, released, sleep_in_slices};
use crate::errors;

/// Looking through more slots than this takes long enough to let other threads run.
const RELEASE_GIL_SLOTS: u32 = 2048;

struct State {
    source: AnyReader,
    cursor: Cursor,
}

impl State {
    /// The frame that is looked for.
    fn awaited(&mut self) -> Awaited {
        let seen = self.cursor.bell(&self.source);
        Awaited { source: self.source.clone(), seq: self.cursor.next_seq(), seen }
    }
}

/// A reader of a ring.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct RingReader {
    /// None once closed.
    state: Mutex<Option<State>>,
    drops: Arc<DropCounters>,
    /// Set when the ring must not be believed any more: asked by the frames that were taken from it.
    revoked: AtomicBool,
    /// The number behind that of the frame that was last found to be overwritten in use; 0 before the first.
    behind_lost: AtomicU64,
    received: Arc<Received>,
    owner: OwnerProcess,
    address: RingAddress,
    mode: ReadMode,
}

impl RingReader {
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        check_owner(py, self.owner, "ring reader")
    }

    /// Runs `work` unless the reader is closed. `work` must not run Python code: see `border::lock`.
    fn with<T>(&self, py: Python<'_>, work: impl FnOnce(&mut State) -> T) -> PyResult<T> {
        self.check(py)?;
        let result = lock(py, &self.state).as_mut().map(work);
        result.ok_or_else(|| errors::closed(py, "ring reader"))
    }

    /// Runs `work` without the interpreter's lock where it copies payloads or may visit many slots.
    fn with_released<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut State) -> T + Send,
    ) -> PyResult<T> {
        if self.mode == ReadMode::Map && self.address.0.geometry.nslots <= RELEASE_GIL_SLOTS {
            return self.with(py, work);
        }
        self.check(py)?;
        let result = released(py, || self.with_detached(work));
        result.ok_or_else(|| errors::closed(py, "ring reader"))
    }

    fn source(&self, py: Python<'_>) -> PyResult<AnyReader> {
        self.with(py, |state| state.source.clone())
    }

    /// The frame that is looked for.
    pub(super) fn awaited(&self, py: Python<'_>) -> PyResult<Awaited> {
        self.with(py, State::awaited)
    }

    /// Fails in a forked child.
    pub(super) fn check_for(&self, py: Python<'_>, what: &'static str) -> PyResult<()> {
        check_owner(py, self.owner, what)
    }

    /// Must its ring not be looked at any more?
    pub(super) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    /// Runs `work` unless the reader is closed, for threads without the interpreter's lock.
    fn with_detached<T>(&self, work: impl FnOnce(&mut State) -> T) -> Option<T> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).as_mut().map(work)
    }

    /// Like `poll`, without the interpreter; None when closed.
    pub(super) fn poll_detached(&self) -> Option<Polled<AnyFrame>> {
        self.with_detached(|state| self.poll_state(state))
    }

    fn poll_state(&self, state: &mut State) -> Polled<AnyFrame> {
        self.tell_lost(&mut state.cursor);
        state.cursor.poll(&state.source, &self.drops)
    }

    fn tell_lost(&self, cursor: &mut Cursor) {
        if let Some(seq) = self.behind_lost.load(Ordering::Relaxed).checked_sub(1) {
            cursor.lost(seq);
        }
    }

    /// Frame `seq` was overwritten while it was in use: the next ones may be, too.
    pub(super) fn note_lost(&self, seq: u64) {
        self.behind_lost.store(seq + 1, Ordering::Relaxed);
    }

    /// Like `awaited`, without the interpreter; None when closed.
    pub(super) fn awaited_detached(&self) -> Option<Awaited> {
        self.with_detached(State::awaited)
    }

    /// Like `search_again`, without the interpreter.
    pub(super) fn search_again_detached(&self) {
        self.with_detached(|state| state.cursor.search_again());
    }

    /// Counts a frame that could not be taken.
    pub(super) fn count_drop(&self, reason: DropReason) {
        self.drops.count(reason);
    }

    /// Counts a frame that was used by whether it was whole to the end; one that was not is a drop, unless nobody can know.
    pub(super) fn judge(&self, seq: u64, is_whole: bool) {
        if !is_whole && !self.is_revoked() {
            self.note_lost(seq);
            self.count_drop(DropReason::ChangedWhileReading);
        }
        self.received.count_judged(is_whole);
    }

    /// What became of its frames.
    pub(super) fn received(&self) -> &Received {
        &self.received
    }

    /// The numbers of the ring.
    pub(super) fn geometry(&self) -> &Geometry {
        &self.address.0.geometry
    }

    /// Stream and epoch.
    pub(super) fn identity(&self) -> (u32, u64) {
        let geometry = &self.address.0.geometry;
        (geometry.stream_id, geometry.epoch)
    }

    /// Does with the frame before what will be done with the awaited one, and forgets it: code and data that went cold while
    /// nothing came are in the cache then.
    pub(super) fn rehearse(slf: &Bound<'_, Self>, awaited: &Awaited) {
        let (py, this) = (slf.py(), slf.get());
        let before = awaited.seq.checked_sub(1).and_then(|seq| awaited.source.take(seq).ok());
        if let (Some(frame), Ok(false)) = (before, this.has_next(py)) {
            let _ = Bound::new(py, Frame::new(frame, slf.clone().unbind())).inspect(Frame::rehearse);
        }
    }

    /// Look further ahead at the next poll, also if nobody rang: not every producer does.
    pub(super) fn search_again(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |state| state.cursor.search_again())
    }
}

#[pymethods]
impl RingReader {
    #[new]
    #[pyo3(signature = (address, *, base_dirs, mode = "map", relaxed_stride = false, inlet = None))]
    fn new(
        py: Python<'_>,
        address: &RingAddress,
        base_dirs: BaseDirPaths,
        mode: &str,
        relaxed_stride: bool,
        inlet: Option<&Inlet>,
    ) -> PyResult<Self> {
        let mode = match mode {
            "map" => ReadMode::Map,
            "copy" => ReadMode::Copy,
            other => {
                return Err(PyValueError::new_err(format!("mode {other:?} is neither \"map\" nor \"copy\"")));
            }
        };
        arrays::load(py)?;
        let open = || AnyReader::open(&address.0, &base_dirs.open()?, mode, relaxed_stride);
        let source = released(py, open).map_err(|failure| errors::region(py, &failure))?;
        Ok(Self {
            state: Mutex::new(Some(State { source, cursor: Cursor::default() })),
            drops: Arc::default(),
            revoked: AtomicBool::new(false),
            behind_lost: AtomicU64::new(0),
            received: inlet.map(Inlet::received).unwrap_or_default(),
            owner: OwnerProcess::current(),
            address: address.clone(),
            mode,
        })
    }

    /// The next frame, or `None` when there is none yet.
    pub(super) fn poll<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, Frame>>> {
        let (py, this) = (slf.py(), slf.get());
        match this.with_released(py, |state| this.poll_state(state))? {
            Polled::Frame(frame) => Bound::new(py, Frame::new(frame, slf.clone().unbind())).map(Some),
            Polled::Idle => Ok(None),
        }
    }

    /// Would `poll` find a frame now?
    fn has_next(&self, py: Python<'_>) -> PyResult<bool> {
        self.with_released(py, |state| state.cursor.has_next(&state.source))
    }

    /// Frame `seq`, or `None` (and a count in `drops`) when it can't be taken. The cursor stays where it is.
    fn read<'py>(slf: &Bound<'py, Self>, seq: u64) -> PyResult<Option<Bound<'py, Frame>>> {
        let (py, this) = (slf.py(), slf.get());
        match this.with_released(py, |state| state.source.take(seq))? {
            Ok(frame) => Bound::new(py, Frame::new(frame, slf.clone().unbind())).map(Some),
            Err(reason) => {
                this.drops.count(reason);
                Ok(None)
            }
        }
    }

    /// What is there of frame `seq`, of which the producer has reported `filled_bytes`.
    ///
    /// `None` when there is nothing to be had, also for readers in copy mode.
    fn read_prefix(slf: &Bound<'_, Self>, seq: u64, filled_bytes: u64) -> PyResult<Option<FramePrefix>> {
        let (py, this) = (slf.py(), slf.get());
        let AnyReader::Mapped(ring) = this.source(py)? else { return Ok(None) };
        let copied = released(py, || {
            let prefix = ring.read_prefix(seq, filled_bytes)?;
            let mut bytes = AlignedBytes::new(prefix.record().header.values_len_bytes as usize);
            let whole = prefix.copy_to(bytes.as_mut());
            if whole { Ok((prefix, bytes)) } else { Err(DropReason::ChangedWhileReading) }
        });
        // Why not is no loss: the frame is counted when it is taken whole.
        Ok(copied.ok().map(|(prefix, bytes)| FramePrefix::new(prefix, bytes, slf.clone().unbind())))
    }

    /// Waits until the producer rings, for at most `timeout` seconds. True when it did since the last `poll`.
    #[pyo3(signature = (timeout, spin = 0.0))]
    fn wait(&self, py: Python<'_>, timeout: f64, spin: f64) -> PyResult<bool> {
        wait_for_bells(py, &[self], timeout, spin)
    }

    /// Pool id, address and bytes of each mapped pool; none in copy mode.
    fn payload_mappings(&self, py: Python<'_>) -> PyResult<Vec<(u16, usize, usize)>> {
        let AnyReader::Mapped(ring) = self.source(py)? else { return Ok(Vec::new()) };
        let place = |(pool_id, pool): (u16, &Mapping)| (pool_id, pool.address(0, 0).addr(), pool.len());
        Ok(ring.pools().map(place).collect())
    }

    /// Where to go on behind frame `last`, which was taken last, if the next ones would be overwritten in use: for who reads
    /// single frames.
    fn ahead_of(&self, py: Python<'_>, last: u64) -> PyResult<Option<u64>> {
        self.with_released(py, |state| {
            self.tell_lost(&mut state.cursor);
            state.cursor.ahead_of(last, &state.source)
        })
    }

    /// Goes to frame `seq`; `seen`: it was in the ring, or the one before it.
    #[pyo3(signature = (seq, *, seen = false))]
    pub(super) fn seek(&self, py: Python<'_>, seq: u64, seen: bool) -> PyResult<()> {
        self.with(py, |state| if seen { state.cursor.seek_seen(seq) } else { state.cursor.seek(seq) })
    }

    /// The highest committed sequence number in the ring, of those that are believed.
    pub(super) fn newest(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.with_released(py, |state| state.cursor.newest(&state.source))
    }

    /// The lowest committed sequence number that is still there.
    fn oldest(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.with_released(py, |state| state.source.oldest_of(0..u64::MAX))
    }

    /// How many frames are lost to who reads no more, also of those that were overwritten before.
    #[getter]
    fn unread(&self, py: Python<'_>) -> PyResult<u64> {
        self.with_released(py, |state| state.cursor.unread(&state.source))
    }

    /// Sequence number that `poll` looks for.
    #[getter]
    pub(super) fn next_seq(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |state| state.cursor.next_seq())
    }

    /// Sequence numbers that were never found.
    #[getter]
    fn gaps(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |state| state.cursor.gaps())
    }

    /// How many frames were dropped, by reason; reasons that never occurred are left out.
    #[getter]
    fn drops<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = PyDict::new(py);
        for reason in DropReason::ALL {
            match self.drops.get(*reason) {
                0 => {}
                count => counts.set_item(reason.label(), count)?,
            }
        }
        Ok(counts)
    }

    /// How many frames were dropped because the producer was faster.
    #[getter]
    fn late(&self) -> u64 {
        self.drops.late()
    }

    /// Raises `RegionError` when a file is no longer what was announced.
    fn check_files(&self, py: Python<'_>) -> PyResult<()> {
        let source = self.source(py)?;
        source.files().check().map_err(|failure| errors::region(py, &failure))
    }

    /// Process that made the ring, and when it was last said to be alive (CLOCK_MONOTONIC, ns).
    fn liveness(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let source = self.source(py)?;
        source.files().header.liveness().map_err(|failure| errors::region(py, &failure))
    }

    #[getter]
    fn address(&self) -> RingAddress {
        self.address.clone()
    }

    #[getter]
    pub(super) fn closed(&self, py: Python<'_>) -> bool {
        !self.owner.is_current() || lock(py, &self.state).is_none()
    }

    /// Lets go of the ring. Frames in use keep it mapped.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.check(py)?;
        let state = lock(py, &self.state).take();
        released(py, || drop(state));
        Ok(())
    }

    /// Lets go of the ring for good: frames that still lie in it are not valid any more (decision L3).
    fn revoke(&self, py: Python<'_>) -> PyResult<()> {
        self.check(py)?;
        self.revoked.store(true, Ordering::Release);
        self.close(py)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = if self.closed(py) { "closed" } else { "open" };
        format!("<RingReader of stream {}, {state}>", self.address.0.geometry.stream_id)
    }
}

/// Waits until one of the readers' producers rings, for at most `timeout` seconds.
#[pyfunction]
#[pyo3(signature = (readers, timeout, /, spin = 0.0))]
pub fn wait_any(
    py: Python<'_>,
    readers: Vec<Bound<'_, RingReader>>,
    timeout: f64,
    spin: f64,
) -> PyResult<bool> {
    let readers: Vec<_> = readers.iter().map(Bound::get).collect();
    wait_for_bells(py, &readers, timeout, spin)
}

/// Looks without sleeping for up to `spin` seconds, then sleeps; at most `timeout` seconds in all.
fn wait_for_bells(py: Python<'_>, readers: &[&RingReader], timeout: f64, spin: f64) -> PyResult<bool> {
    if spin.is_nan() {
        return Err(PyValueError::new_err("spin is not a number"));
    }
    let awaited = readers.iter().map(|reader| reader.awaited(py)).collect::<PyResult<Vec<_>>>()?;
    let all_open = || readers.iter().try_for_each(|reader| reader.with(py, |_| ()));
    let start = Instant::now();
    let mut rang = false;
    if spin > 0.0 {
        let changed = || awaited.iter().any(|frame| frame.source.bell() != frame.seen);
        rang =
            sleep_in_slices(py, spin.min(timeout), all_open, |slice| doorbell::spin_until(changed, slice))?;
    }
    if !rang {
        rang = sleep_in_slices(py, timeout - start.elapsed().as_secs_f64(), all_open, |slice| {
            let bells: Vec<_> = awaited.iter().map(|frame| (frame.source.doorbell(), frame.seen)).collect();
            let rang = doorbell::wait_any(&bells, slice);
            if rang {
                let frames: Vec<_> = awaited.iter().map(|frame| (&frame.source, frame.seq)).collect();
                wait_while_filled(&frames);
            }
            rang
        })?;
    }
    if !rang {
        for reader in readers {
            // Not every producer rings: look ahead again next time.
            reader.with(py, |state| state.cursor.search_again())?;
        }
    }
    Ok(rang)
}
