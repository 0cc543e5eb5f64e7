//! Sending frames in chunks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tp_aeron::{ExclusivePublication, OfferError};
use tp_core::bridge::{Cut, Dialect, FrameOnWire};
use tp_core::bytes::put;
use tp_core::copy::{Locality, racy_copy};
use tp_core::crc::crc32c;
use tp_core::layout::{SLOT_BYTES, slot as at};
use tp_core::ring::{AnyFrame, Geometry};
use tp_core::seqlock::Commit;
use tp_core::slot;

use crate::aeron::AeronPublication;
use crate::border::released;
use crate::errors;
use crate::ring::{Frame, FrameReceiver, Handled};

/// Shortest and longest time between two tries while the receiver does not keep up.
const PAUSES: (Duration, Duration) = (Duration::from_micros(50), Duration::from_micros(500));
/// The interpreter can't end while a thread is away.
const LONGEST_STAY: Duration = Duration::from_millis(500);
/// An eighth of a term goes in one pause at this rate, faster than any wire: the log never runs empty meanwhile.
const BYTES_A_NS: u64 = 4;

/// How long to wait for room in a log.
fn pause(term_bytes: usize) -> Duration {
    Duration::from_nanos(term_bytes as u64 / 8 / BYTES_A_NS).clamp(PAUSES.0, PAUSES.1)
}

/// Sends the frames of one stream in chunks.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct ChunkSender {
    publication: ExclusivePublication,
    stream_id: u32,
    dialect: Dialect,
    checksums: bool,
    cut: Cut,
    pause: Duration,
    frames: AtomicU64,
    chunks: AtomicU64,
    bytes: AtomicU64,
}

/// The epoch, the last number if there was a frame, and why that one was not sent.
type Relayed = (u64, Option<u64>, Option<&'static str>);

/// Why a frame was not sent as a whole.
enum Unsent {
    /// It was overwritten meanwhile, or its ring is gone.
    Torn,
    /// It has more chunks than a frame may have.
    TooLarge,
    Refused(OfferError),
}

impl ChunkSender {
    fn send_frame(
        &self,
        source: &AnyFrame,
        geometry: &Geometry,
        trace_id: u64,
        patience: Duration,
    ) -> Result<(), Unsent> {
        let record = source.record();
        let payload_length = record.header.values_len_bytes;
        if payload_length > self.cut.max_payload_bytes() {
            return Err(Unsent::TooLarge);
        }
        // An empty payload lies nowhere, and its slot names a pool all the same: receivers look for it [BRG-6-10].
        let pool = record.pool.or_else(|| geometry.pool_for(payload_length));
        let pool_id = pool.map_or(0, |pool| geometry.pools[pool].pool_id);
        let mut slot =
            slot::encode(&record.header, record.seq, pool_id, geometry.nslots).map_err(|_| Unsent::Torn)?;
        put(&mut slot, at::SEQ_COMMIT, Commit::committed(record.seq).0);
        let on_wire = FrameOnWire {
            dialect: self.dialect,
            stream_id: self.stream_id,
            epoch: geometry.epoch,
            seq: record.seq,
            payload_length,
            count: self.cut.count(payload_length),
            trace_id,
            payload_crc32c: if self.checksums { checksum(source) } else { 0 },
        };
        let deadline = Instant::now() + patience;
        (0..on_wire.count).try_for_each(|index| self.send_chunk(source, &on_wire, index, &slot, deadline))?;
        self.frames.fetch_add(1, Relaxed);
        self.bytes.fetch_add(payload_length.into(), Relaxed);
        Ok(())
    }

    fn send_chunk(
        &self,
        source: &AnyFrame,
        frame: &FrameOnWire,
        index: u32,
        slot: &[u8; SLOT_BYTES],
        deadline: Instant,
    ) -> Result<(), Unsent> {
        let slice = self.cut.slice(frame.payload_length, index);
        let slot = (index == 0).then_some(slot);
        let is_last = index + 1 == frame.count;
        let length = self.dialect.overhead(slot.is_some()) + slice.1 as usize;
        loop {
            let sent = self.publication.try_claim_if(length, |out| {
                let to = frame.encode(out, index, slice, slot);
                copy_slice(source, slice.0, to);
                // The receiver shows a frame when its last chunk is there: nothing after this can be wrong with it
                // (decision R5).
                !is_last || source.still_valid()
            });
            match sent {
                Ok((_, true)) => {
                    self.chunks.fetch_add(1, Relaxed);
                    return Ok(());
                }
                Ok((_, false)) => return Err(Unsent::Torn),
                Err(OfferError::BackPressured | OfferError::AdminAction) if Instant::now() < deadline => {
                    if !source.still_valid() {
                        return Err(Unsent::Torn);
                    }
                    std::thread::sleep(self.pause);
                }
                Err(error) => return Err(Unsent::Refused(error)),
            }
        }
    }
}

/// What Python is told: None when the frame was sent as a whole, else why not.
fn reason(py: Python<'_>, sent: Result<(), Unsent>) -> PyResult<Option<&'static str>> {
    match sent {
        Ok(()) => Ok(None),
        Err(Unsent::Torn) => Ok(Some("torn")),
        Err(Unsent::TooLarge) => Ok(Some("too_large")),
        Err(Unsent::Refused(OfferError::NotConnected)) => Ok(Some("not_connected")),
        Err(Unsent::Refused(OfferError::BackPressured | OfferError::AdminAction)) => {
            Ok(Some("back_pressured"))
        }
        Err(Unsent::Refused(OfferError::Error(error))) => Err(crate::aeron::raise(py, error)),
        Err(Unsent::Refused(error)) => Err(errors::TRANSPORT.new_err(py, error.to_string(), None)),
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
}

fn copy_slice(source: &AnyFrame, offset: u32, to: &mut [u8]) {
    if let Some(payload) = source.payload() {
        // SAFETY: the slice lies inside the payload, which is mapped as long as the frame lives.
        unsafe {
            racy_copy(to.as_mut_ptr(), payload.add(offset as usize), to.len(), Locality::Cached);
        }
    }
}

/// Of a payload that may be overwritten meanwhile; the frame is not sent as a whole then.
fn checksum(source: &AnyFrame) -> u32 {
    let mut block = vec![0; (source.record().header.values_len_bytes as usize).min(64 << 10)];
    let (mut crc, mut offset) = (0, 0);
    while offset < source.record().header.values_len_bytes {
        let length = block.len().min((source.record().header.values_len_bytes - offset) as usize);
        copy_slice(source, offset, &mut block[..length]);
        crc = if offset == 0 {
            crc32c(&block[..length])
        } else {
            tp_core::crc::crc32c_append(crc, &block[..length])
        };
        offset += length as u32;
    }
    crc
}

#[pymethods]
impl ChunkSender {
    #[new]
    #[pyo3(signature = (publication, *, stream_id, mtu, chunk_bytes, newer = false, checksums = false))]
    fn new(
        py: Python<'_>,
        publication: &AeronPublication,
        stream_id: u32,
        mtu: u32,
        chunk_bytes: u32,
        newer: bool,
        checksums: bool,
    ) -> PyResult<Self> {
        let dialect = if newer { Dialect::Newer } else { Dialect::Ours };
        let cut = Cut::new(mtu, chunk_bytes, dialect).ok_or_else(|| {
            let message = format!("no chunk fits packets of {mtu} bytes with chunk_bytes={chunk_bytes}");
            errors::CONFIG.new_err(py, message, Some("an MTU of 1408 always works"))
        })?;
        let publication = publication.handle();
        Ok(Self {
            pause: pause(publication.constants().term_bytes),
            publication,
            stream_id,
            dialect,
            checksums: checksums && newer,
            cut,
            frames: AtomicU64::new(0),
            chunks: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        })
    }

    /// Sends a frame; None, or why it was not sent as a whole.
    #[pyo3(signature = (frame, *, trace_id = None, patience_s = 0.0))]
    fn send(
        &self,
        py: Python<'_>,
        frame: &Frame,
        trace_id: Option<u64>,
        patience_s: f64,
    ) -> PyResult<Option<&'static str>> {
        let (trace_id, patience) = (trace_id.unwrap_or(0), seconds(patience_s));
        let sent = released(py, || {
            let source = frame.source().ok_or(Unsent::Torn)?;
            self.send_frame(source, frame.geometry(), trace_id, patience)
        });
        frame.judge_after(!matches!(sent, Err(Unsent::Torn)));
        reason(py, sent)
    }

    /// Sends the frames of a consumer as they come, for so long or until one is not sent as a whole.
    ///
    /// It never comes back to the interpreter meanwhile. None where there is no ring to take frames from.
    #[pyo3(signature = (consumer, *, duration_s, patience_s, max_payload_bytes))]
    fn relay(
        &self,
        py: Python<'_>,
        consumer: &Bound<'_, FrameReceiver>,
        duration_s: f64,
        patience_s: f64,
        max_payload_bytes: u32,
    ) -> PyResult<Option<Relayed>> {
        let patience = seconds(patience_s);
        let mut last = Ok(());
        let handed_on =
            consumer.get().hand_on(py, seconds(duration_s).min(LONGEST_STAY), |frame, geometry| {
                let is_too_large = frame.record().header.values_len_bytes > max_payload_bytes;
                last = if is_too_large {
                    Err(Unsent::TooLarge)
                } else {
                    self.send_frame(frame, geometry, 0, patience)
                };
                Handled { is_whole: !matches!(last, Err(Unsent::Torn)), goes_on: last.is_ok() }
            })?;
        let reason = reason(py, last)?;
        Ok(handed_on.map(|done| (done.epoch, done.last_seq, reason)))
    }

    /// The longest payload that can be sent.
    #[getter]
    fn max_payload_bytes(&self) -> u32 {
        self.cut.max_payload_bytes()
    }

    /// Bytes of the first slice of a frame, and of the others.
    #[getter]
    fn slices(&self) -> (u32, u32) {
        (self.cut.first, self.cut.later)
    }

    /// Frames sent as a whole, chunks, and bytes of whole frames.
    #[getter]
    fn counts(&self) -> (u64, u64, u64) {
        (self.frames.load(Relaxed), self.chunks.load(Relaxed), self.bytes.load(Relaxed))
    }
}
