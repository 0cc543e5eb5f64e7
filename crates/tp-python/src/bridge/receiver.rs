//! Receiving frames in chunks, straight into the slots of rings.

use std::collections::HashMap;
use std::sync::Mutex;

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
    lanes: HashMap<u32, Lane>,
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
        let taken = lane.with_ring(|assembler, publisher, whole| {
            assembler.take(&chunk, &mut publisher.ring, now_ns, whole);
        });
        if !taken {
            lane.assembler.refuse(Lost::NoRing);
        }
    }
}

/// Receives the frames of many streams in chunks, and puts them into rings.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct ChunkReceiver {
    subscription: Subscription,
    state: Mutex<State>,
}

#[pymethods]
impl ChunkReceiver {
    #[new]
    fn new(subscription: &AeronSubscription) -> Self {
        Self { subscription: subscription.subscription.clone(), state: Mutex::default() }
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
        lock(py, &self.state).lanes.insert(stream_id, lane);
    }

    /// What the source says of a stream: its epoch, and number and stride of each pool.
    fn announce(&self, py: Python<'_>, stream_id: u32, epoch: u64, pools: Vec<(u16, u32)>) {
        let mut state = lock(py, &self.state);
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
        let mut state = lock(py, &self.state);
        let Some(lane) = state.lanes.get_mut(&stream_id) else { return };
        lane.with_ring(|assembler, publisher, _| assembler.clear(&mut publisher.ring));
        lane.ring = writer.map(RingWriter::shared);
    }

    /// Takes up to `limit` chunks, and gives up what takes too long; how many there were.
    fn poll(&self, py: Python<'_>, limit: usize) -> PyResult<usize> {
        let polled = released(py, || {
            let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let now_ns = monotonic_ns();
            let polled = self.subscription.poll(limit, |packet, _| state.on_packet(packet, now_ns));
            for lane in state.lanes.values_mut().filter(|lane| lane.assembler.in_flight() > 0) {
                lane.with_ring(|assembler, publisher, whole| {
                    assembler.on_time(&mut publisher.ring, now_ns, whole);
                });
            }
            polled
        });
        polled.map_err(|error| raise(py, error))
    }

    /// Bytes of a frame that came from its start on without a hole; None when nothing of it is being put together.
    fn prefix(&self, py: Python<'_>, stream_id: u32, seq: u64) -> Option<u32> {
        lock(py, &self.state).lanes.get(&stream_id)?.assembler.prefix(seq)
    }

    /// What became of the chunks and frames of a stream.
    fn stats<'py>(&self, py: Python<'py>, stream_id: u32) -> PyResult<Option<Bound<'py, PyDict>>> {
        let (numbers, losses) = {
            let state = lock(py, &self.state);
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
        let state = lock(py, &self.state);
        (state.malformed, state.foreign)
    }
}
