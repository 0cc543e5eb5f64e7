//! Receiving frames in chunks, straight into the slots of rings.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tp_aeron::Subscription;
use tp_core::bridge::{Assembler, Limits, Lost, Source, Whole};
use tp_core::chunk::Chunk;
use tp_core::clock::monotonic_ns;

use crate::aeron::{AeronSubscription, raise};
use crate::border::{lock, released};
use crate::ring::{FrameArguments, Publisher, RingWriter, SharedPublisher};

/// One stream of the bridge, and the ring that its frames go to.
struct Lane {
    assembler: Assembler<tp_core::ring::RingWriter>,
    /// None while there is no lease.
    ring: Option<SharedPublisher>,
    frames: u64,
    bytes: u64,
    took_ns: u64,
}

impl Lane {
    fn with_ring(
        &mut self,
        work: impl FnOnce(&mut Assembler<tp_core::ring::RingWriter>, &mut Publisher, &mut Vec<Whole>),
    ) -> bool {
        let Some(ring) = &self.ring else { return false };
        let mut whole = Vec::new();
        let assembler = &mut self.assembler;
        let done = ring.with_detached(|publisher| {
            work(assembler, publisher, &mut whole);
            for frame in &whole {
                let arguments = FrameArguments {
                    timestamp_ns: frame.timestamp_ns,
                    meta_version: frame.meta_version,
                    trace_id: frame.trace_id,
                    ring: true,
                };
                publisher.announce(frame.seq, frame.payload_length, arguments);
            }
        });
        for frame in &whole {
            self.frames += 1;
            self.bytes += u64::from(frame.payload_length);
            self.took_ns = frame.took_ns;
        }
        if done.is_none() {
            // Closed meanwhile, and its slots with it.
            self.ring = None;
            self.assembler.forget();
        }
        done.is_some()
    }
}

#[derive(Default)]
struct State {
    /// Few, looked up for every chunk: faster than hashing.
    lanes: BTreeMap<u32, Lane>,
    /// When frames were last looked at that take too long.
    looked_ns: u64,
    /// Packets that are no chunks.
    malformed: u64,
    /// Chunks of streams that nobody wants.
    foreign: u64,
}

impl State {
    fn on_packet(&mut self, packet: &[u8], now_ns: u64) {
        let chunk = match Chunk::decode(packet) {
            Ok(chunk) => chunk,
            Err(_) => return self.malformed += 1,
        };
        let Some(lane) = self.lanes.get_mut(&chunk.stream_id) else {
            return self.foreign += 1;
        };
        // A turn may take whole frames: how long they took is between their ends, not between turns.
        let is_end = chunk.index == 0 || chunk.index + 1 == chunk.count;
        let now_ns = if is_end { monotonic_ns() } else { now_ns };
        let taken = lane.with_ring(|assembler, publisher, whole| {
            assembler.take(&chunk, &mut publisher.ring, now_ns, whole);
        });
        if !taken {
            lane.assembler.refuse(Lost::NoRing);
        }
    }

    fn give_up_late(&mut self, now_ns: u64) {
        for lane in self.lanes.values_mut().filter(|lane| lane.assembler.in_flight() > 0) {
            lane.with_ring(|assembler, publisher, whole| {
                assembler.on_time(&mut publisher.ring, now_ns, whole);
            });
        }
    }
}

/// How late it may be noticed that a frame takes too long; a turn is over sooner.
const LOOK_NS: u64 = 1_000_000;
/// The interpreter can't end while a thread is away.
const LONGEST_STAY: Duration = Duration::from_millis(500);
/// Between two looks whether others have got what they waited for.
const TURN_PAUSE: Duration = Duration::from_micros(50);

/// How to pass the time while nothing comes: yield some times, then sleep, twice as long each time.
#[derive(Clone, Copy)]
struct BackOff {
    yields: u32,
    shortest: Duration,
    longest: Duration,
}

/// Receives the frames of many streams in chunks, and puts them into rings.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct ChunkReceiver {
    subscription: Subscription,
    state: Mutex<State>,
    /// Threads that want the state. A lock that is taken again at once would never be theirs.
    waiting: AtomicUsize,
}

impl ChunkReceiver {
    /// The state, between two turns of the thread that receives.
    fn state(&self, py: Python<'_>) -> MutexGuard<'_, State> {
        self.waiting.fetch_add(1, Relaxed);
        let state = lock(py, &self.state);
        self.waiting.fetch_sub(1, Relaxed);
        state
    }

    /// Takes up to `limit` chunks, and gives up what takes too long; how many there were.
    fn turn(&self, limit: usize) -> Result<usize, tp_aeron::Error> {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let now_ns = monotonic_ns();
        let polled = self.subscription.poll(limit, |packet, _| state.on_packet(packet, now_ns));
        if now_ns.saturating_sub(state.looked_ns) >= LOOK_NS {
            state.looked_ns = now_ns;
            state.give_up_late(now_ns);
        }
        polled
    }

    fn receive_until(
        &self,
        deadline: Instant,
        limit: usize,
        idle: BackOff,
    ) -> Result<usize, tp_aeron::Error> {
        let mut received = 0;
        let (mut yields, mut pause) = (idle.yields, idle.shortest);
        loop {
            let count = self.turn(limit)?;
            received += count;
            let now = Instant::now();
            if now >= deadline {
                return Ok(received);
            }
            if self.waiting.load(Relaxed) > 0 {
                thread::sleep(TURN_PAUSE);
            } else if count > 0 {
                (yields, pause) = (idle.yields, idle.shortest);
            } else if yields > 0 {
                yields -= 1;
                thread::yield_now();
            } else {
                thread::sleep(pause.min(deadline - now));
                pause = (pause * 2).min(idle.longest);
            }
        }
    }
}

#[pymethods]
impl ChunkReceiver {
    #[new]
    fn new(subscription: &AeronSubscription) -> Self {
        Self {
            subscription: subscription.subscription.clone(),
            state: Mutex::default(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Takes chunks of a stream from now on; nothing before `announce` and `set_ring`.
    #[pyo3(signature = (stream_id, *, frames, total_bytes, timeout_ns, chunk_bytes, payload_bytes))]
    #[expect(clippy::too_many_arguments, reason = "each a limit with its name")]
    fn add_stream(
        &self,
        py: Python<'_>,
        stream_id: u32,
        frames: usize,
        total_bytes: u64,
        timeout_ns: u64,
        chunk_bytes: u32,
        payload_bytes: u32,
    ) {
        let limits = Limits { frames, bytes: total_bytes, timeout_ns, chunk_bytes, payload_bytes };
        let lane = Lane { assembler: Assembler::new(limits), ring: None, frames: 0, bytes: 0, took_ns: 0 };
        self.state(py).lanes.insert(stream_id, lane);
    }

    /// What the source says of a stream: its epoch, and number and stride of each pool.
    fn announce(&self, py: Python<'_>, stream_id: u32, epoch: u64, pools: Vec<(u16, u32)>) {
        let mut state = self.state(py);
        let Some(lane) = state.lanes.get_mut(&stream_id) else { return };
        let mut source = Some(Source::new(epoch, pools));
        let announced = lane.with_ring(|assembler, publisher, _| {
            assembler.announce(source.take().expect("once"), Some(&mut publisher.ring));
        });
        if let (false, Some(source)) = (announced, source) {
            lane.assembler.announce(source, None);
        }
    }

    /// Where the frames of a stream go from now on; frames that are not whole are given up.
    #[pyo3(signature = (stream_id, writer))]
    fn set_ring(&self, py: Python<'_>, stream_id: u32, writer: Option<&RingWriter>) {
        let mut state = self.state(py);
        let Some(lane) = state.lanes.get_mut(&stream_id) else { return };
        lane.with_ring(|assembler, publisher, _| assembler.clear(&mut publisher.ring));
        lane.ring = writer.map(RingWriter::shared);
    }

    /// Takes chunks for so long, at most `limit` before it looks at the time; how many there were.
    ///
    /// It never comes back to the interpreter meanwhile, whose lock others may hold for milliseconds.
    #[pyo3(signature = (duration_s, *, limit, yields, shortest_pause_s, longest_pause_s))]
    fn receive(
        &self,
        py: Python<'_>,
        duration_s: f64,
        limit: usize,
        yields: u32,
        shortest_pause_s: f64,
        longest_pause_s: f64,
    ) -> PyResult<usize> {
        let time = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO);
        let deadline = Instant::now() + time(duration_s).min(LONGEST_STAY);
        let idle = BackOff { yields, shortest: time(shortest_pause_s), longest: time(longest_pause_s) };
        released(py, || self.receive_until(deadline, limit, idle)).map_err(|error| raise(py, error))
    }

    /// Bytes of a frame that came from its start on without a hole; None when nothing of it is being put together.
    fn prefix(&self, py: Python<'_>, stream_id: u32, seq: u64) -> Option<u32> {
        self.state(py).lanes.get(&stream_id)?.assembler.prefix(seq)
    }

    /// What became of the chunks and frames of a stream.
    fn stats<'py>(&self, py: Python<'py>, stream_id: u32) -> PyResult<Option<Bound<'py, PyDict>>> {
        let (numbers, losses) = {
            let state = self.state(py);
            let Some(lane) = state.lanes.get(&stream_id) else { return Ok(None) };
            let assembler = &lane.assembler;
            let numbers = [
                ("frames", lane.frames),
                ("bytes", lane.bytes),
                ("took_ns", lane.took_ns),
                ("chunks", assembler.chunks()),
                ("in_flight", assembler.in_flight() as u64),
                ("bytes_in_flight", assembler.bytes_in_flight()),
            ];
            (numbers, assembler.losses().clone())
        };
        let (stats, frames, chunks) = (PyDict::new(py), PyDict::new(py), PyDict::new(py));
        for (name, value) in numbers {
            stats.set_item(name, value)?;
        }
        for reason in Lost::ALL {
            frames.set_item(reason.label(), losses.frames(*reason))?;
            chunks.set_item(reason.label(), losses.chunks(*reason))?;
        }
        stats.set_item("frames_lost", frames)?;
        stats.set_item("chunks_unused", chunks)?;
        Ok(Some(stats))
    }

    /// Packets that are no chunks, and chunks of other streams.
    #[getter]
    fn strangers(&self, py: Python<'_>) -> (u64, u64) {
        let state = self.state(py);
        (state.malformed, state.foreign)
    }
}
