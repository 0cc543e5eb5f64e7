//! The reader of a ring.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tp_aeron::OwnerProcess;
use tp_core::doorbell::{self, Doorbell};
use tp_core::drops::{DropCounters, DropReason};
use tp_core::region::BaseDirs;
use tp_core::ring::{Cursor, Polled, RingFiles, SnapshotReader};
use tp_core::slot::FrameRecord;

use super::address::RingAddress;
use super::frame::{AlignedBytes, Frame, Payload};
use super::{check_owner, numpy};
use crate::border::released;
use crate::errors;

/// Blocking calls come back at least this often to let signals in.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);

/// The two ways to read.
#[derive(Clone)]
enum Source {
    Mapped(Arc<tp_core::ring::RingReader>),
    Snapshot(Arc<SnapshotReader>),
}

impl Source {
    fn files(&self) -> &RingFiles {
        match self {
            Self::Mapped(ring) => ring.files(),
            Self::Snapshot(ring) => ring.files(),
        }
    }

    fn doorbell(&self) -> Doorbell<'_> {
        match self {
            Self::Mapped(ring) => ring.doorbell(),
            Self::Snapshot(ring) => ring.doorbell(),
        }
    }

    fn read(&self, seq: u64) -> Result<Payload, DropReason> {
        match self {
            Self::Mapped(ring) => ring.read(seq).map(Payload::Borrowed),
            Self::Snapshot(ring) => {
                let allocate =
                    |record: &FrameRecord| AlignedBytes::new(record.header.values_len_bytes as usize);
                ring.read(seq, allocate).map(|(record, bytes)| Payload::Owned(record, bytes))
            }
        }
    }
}

impl tp_core::ring::Source for Source {
    type Frame = Payload;

    fn bell(&self) -> u32 {
        match self {
            Self::Mapped(ring) => ring.bell(),
            Self::Snapshot(ring) => ring.bell(),
        }
    }

    fn nslots(&self) -> u64 {
        self.files().geometry.nslots.into()
    }

    fn look(&self, seq: u64) -> Result<tp_core::seqlock::Commit, DropReason> {
        match self {
            Self::Mapped(ring) => ring.look(seq),
            Self::Snapshot(ring) => ring.look(seq),
        }
    }

    fn each_commit(&self, visit: impl FnMut(tp_core::seqlock::Commit)) {
        match self {
            Self::Mapped(ring) => ring.each_commit(visit),
            Self::Snapshot(ring) => tp_core::ring::Source::each_commit(ring.as_ref(), visit),
        }
    }

    fn take(&self, seq: u64) -> Result<Payload, DropReason> {
        self.read(seq)
    }
}

struct State {
    source: Source,
    cursor: Cursor,
}

/// A reader of a ring.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct RingReader {
    state: Mutex<Option<State>>,
    drops: Arc<DropCounters>,
    owner: OwnerProcess,
    address: RingAddress,
    copies: bool,
}

impl RingReader {
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        check_owner(py, self.owner, "ring reader")
    }

    /// Locks without holding the GIL while waiting.
    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, Option<State>> {
        match self.state.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                released(py, || drop(self.state.lock()));
                self.lock(py)
            }
        }
    }

    fn with<T>(&self, py: Python<'_>, use_state: impl FnOnce(&mut State) -> T) -> PyResult<T> {
        self.check(py)?;
        let mut guard = self.lock(py);
        guard.as_mut().map(use_state).ok_or_else(|| errors::closed(py, "ring reader"))
    }

    /// Runs without the GIL where payloads are copied, with it where a few words are looked at.
    fn with_copies<T: Send>(
        &self,
        py: Python<'_>,
        use_state: impl FnOnce(&mut State) -> T + Send,
    ) -> PyResult<T> {
        if !self.copies {
            return self.with(py, use_state);
        }
        self.check(py)?;
        let result = released(py, || {
            let mut guard = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            guard.as_mut().map(use_state)
        });
        result.ok_or_else(|| errors::closed(py, "ring reader"))
    }

    fn source(&self, py: Python<'_>) -> PyResult<Source> {
        self.with(py, |state| state.source.clone())
    }

    fn frame(&self, payload: Payload) -> Frame {
        let geometry = &self.address.0.geometry;
        Frame::new(payload, self.owner, geometry.stream_id, geometry.epoch, Arc::clone(&self.drops))
    }
}

#[pymethods]
impl RingReader {
    #[new]
    #[pyo3(signature = (address, *, base_dirs, mode = "map", relaxed_stride = false))]
    fn new(
        py: Python<'_>,
        address: &RingAddress,
        base_dirs: Vec<PathBuf>,
        mode: &str,
        relaxed_stride: bool,
    ) -> PyResult<Self> {
        let copies = match mode {
            "map" => false,
            "copy" => true,
            other => {
                return Err(PyValueError::new_err(format!("mode {other:?} is neither \"map\" nor \"copy\"")));
            }
        };
        numpy::load(py)?;
        let open = || {
            let bases = BaseDirs::open(&base_dirs)?;
            Ok(if copies {
                Source::Snapshot(Arc::new(SnapshotReader::open(&address.0, &bases, relaxed_stride)?))
            } else {
                Source::Mapped(Arc::new(tp_core::ring::RingReader::open(&address.0, &bases, relaxed_stride)?))
            })
        };
        let source = released(py, open).map_err(|failure| errors::region(py, &failure))?;
        Ok(Self {
            state: Mutex::new(Some(State { source, cursor: Cursor::default() })),
            drops: Arc::default(),
            owner: OwnerProcess::current(),
            address: address.clone(),
            copies,
        })
    }

    /// The next frame, or `None` when there is none yet.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<Frame>> {
        let drops = &*self.drops;
        let polled = self.with_copies(py, |state| state.cursor.poll(&state.source, drops))?;
        Ok(match polled {
            Polled::Frame(payload) => Some(self.frame(payload)),
            Polled::Idle => None,
        })
    }

    /// Frame `seq`, or `None` (and a count in `drops`) when it can't be taken. The cursor stays where it is.
    fn read(&self, py: Python<'_>, seq: u64) -> PyResult<Option<Frame>> {
        match self.with_copies(py, |state| state.source.read(seq))? {
            Ok(payload) => Ok(Some(self.frame(payload))),
            Err(reason) => {
                self.drops.count(reason);
                Ok(None)
            }
        }
    }

    /// What is there of frame `seq`, of which the producer has reported `filled_bytes`.
    ///
    /// `None` when there is nothing to be had, also for readers in copy mode.
    fn read_prefix(&self, py: Python<'_>, seq: u64, filled_bytes: u64) -> PyResult<Option<Frame>> {
        let Source::Mapped(ring) = self.source(py)? else { return Ok(None) };
        let copied = released(py, || {
            let prefix = ring.read_prefix(seq, filled_bytes)?;
            let mut bytes = AlignedBytes::new(prefix.record().header.values_len_bytes as usize);
            let whole = prefix.copy_to(bytes.as_mut());
            let usable = prefix.usable_bytes;
            if whole { Ok((*prefix.record(), bytes, usable)) } else { Err(DropReason::ChangedWhileReading) }
        });
        match copied {
            Ok((record, bytes, usable)) => {
                Ok(Some(self.frame(Payload::Owned(record, bytes)).provisional(usable)))
            }
            Err(reason) => {
                self.drops.count(reason);
                Ok(None)
            }
        }
    }

    /// Sleeps until the producer rings, for at most `timeout` seconds. True when it did since the last `poll`.
    fn wait(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let (source, seen) = self.with(py, |state| (state.source.clone(), state.cursor.bell()))?;
        let rang = sleep_in_slices(py, timeout, |slice| source.doorbell().wait(seen, slice))?;
        if !rang {
            // Not every producer rings: look ahead again next time.
            self.with(py, |state| state.cursor.search_again())?;
        }
        Ok(rang)
    }

    /// Goes to frame `seq`.
    fn seek(&self, py: Python<'_>, seq: u64) -> PyResult<()> {
        self.with(py, |state| state.cursor.seek(seq))
    }

    /// The highest committed sequence number in the ring.
    fn newest(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.with_copies(py, |state| tp_core::ring::Source::newest(&state.source))
    }

    /// The lowest committed sequence number that is still there.
    fn oldest(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.with_copies(py, |state| tp_core::ring::Source::oldest_from(&state.source, 0))
    }

    /// Sequence number that `poll` looks for.
    #[getter]
    fn next_seq(&self, py: Python<'_>) -> PyResult<u64> {
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
    fn closed(&self, py: Python<'_>) -> bool {
        self.lock(py).is_none()
    }

    /// Lets go of the ring. Frames in use keep it mapped.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.check(py)?;
        drop(self.lock(py).take());
        Ok(())
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

/// Sleeps until one of the readers' producers rings, for at most `timeout` seconds.
#[pyfunction]
#[pyo3(signature = (readers, timeout, /))]
pub fn wait_any(py: Python<'_>, readers: Vec<Bound<'_, RingReader>>, timeout: f64) -> PyResult<bool> {
    let look = |reader: &Bound<'_, RingReader>| {
        reader.get().with(py, |state| (state.source.clone(), state.cursor.bell()))
    };
    let sources = readers.iter().map(look).collect::<PyResult<Vec<_>>>()?;
    let rang = sleep_in_slices(py, timeout, |slice| {
        let bells: Vec<_> = sources.iter().map(|(source, seen)| (source.doorbell(), *seen)).collect();
        doorbell::wait_any(&bells, slice)
    })?;
    if !rang {
        for reader in &readers {
            reader.get().with(py, |state| state.cursor.search_again())?;
        }
    }
    Ok(rang)
}

/// Sleeps up to `timeout` seconds in slices, without the GIL, letting signals in between.
fn sleep_in_slices(py: Python<'_>, timeout: f64, sleep: impl Fn(Duration) -> bool + Sync) -> PyResult<bool> {
    let timeout = Duration::try_from_secs_f64(timeout.clamp(0.0, 1e9))
        .map_err(|_| PyValueError::new_err("timeout must be a number of seconds"))?;
    let start = Instant::now();
    loop {
        let left = timeout.saturating_sub(start.elapsed());
        if released(py, || sleep(left.min(SIGNAL_CHECK))) {
            py.check_signals()?;
            return Ok(true);
        }
        py.check_signals()?;
        if left <= SIGNAL_CHECK {
            return Ok(false);
        }
    }
}
