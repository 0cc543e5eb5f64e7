//! Putting frames together from chunks that come in any order, in bounded memory and time.

use std::collections::VecDeque;

use super::coverage::{Coverage, Fit};
use super::losses::{Losses, Lost};
use super::source::Source;
use super::store::Store;
use crate::chunk::Chunk;
use crate::layout::SLOT_BYTES;
use crate::ring::ClaimError;
use crate::seqlock::MAX_SEQ;
use crate::slot::FrameHeader;

/// What an assembler bears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Frames that are put together at a time.
    pub frames: usize,
    /// Bytes of their payloads together; one frame may always be there.
    pub bytes: u64,
    /// How long the chunks of a frame may take, from the first to the last.
    pub timeout_ns: u64,
    /// Longest slice of a chunk.
    pub chunk_bytes: u32,
    /// Longest payload.
    pub payload_bytes: u32,
}

/// A frame that is there as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole {
    /// Sequence number.
    pub seq: u64,
    /// Length of its payload.
    pub payload_length: u32,
    /// Capture time at the source.
    pub timestamp_ns: u64,
    /// Version of the metadata that applies.
    pub meta_version: u32,
    /// Trace of the frame, where the sender says so.
    pub trace_id: Option<u64>,
    /// How long it took from the first chunk to the last.
    pub took_ns: u64,
}

/// A frame of which something has come.
struct Partial<P> {
    seq: u64,
    place: P,
    coverage: Coverage,
    slot: Option<[u8; SLOT_BYTES]>,
    trace_id: Option<u64>,
    crc32c: Option<u32>,
    began_ns: u64,
    /// Which chunk of all was its first, and which its last so far.
    first_chunk: u64,
    last_chunk: u64,
    header: Option<FrameHeader>,
    whole_ns: u64,
}

/// Puts the frames of one stream together.
pub struct Assembler<S: Store> {
    limits: Limits,
    source: Option<Source>,
    /// In the order of their numbers, which is that in which they were begun.
    partials: VecDeque<Partial<S::Place>>,
    bytes: u64,
    chunks: u64,
    losses: Losses,
    /// The last frame that fitted nowhere: each of its chunks tells so.
    too_long: Option<(u64, u64)>,
}

impl<S: Store> Assembler<S> {
    /// Takes nothing before it is told of a source.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            source: None,
            partials: VecDeque::new(),
            bytes: 0,
            chunks: 0,
            losses: Losses::default(),
            too_long: None,
        }
    }

    /// What was lost so far, by reason.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Frames that are being put together.
    pub fn in_flight(&self) -> usize {
        self.partials.len()
    }

    /// Bytes of their payloads.
    pub fn bytes_in_flight(&self) -> u64 {
        self.bytes
    }

    /// Chunks seen, used or not.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// The frame's contiguous bytes so far; none when nothing of it is being put together.
    pub fn prefix(&self, seq: u64) -> Option<u32> {
        self.partials.iter().find(|partial| partial.seq == seq).map(|partial| partial.coverage.prefix())
    }

    /// What the source has announced. Frames of another epoch are given up, without a store as if it were gone; an
    /// older epoch changes nothing.
    pub fn announce(&mut self, source: Source, store: Option<&mut S>) {
        match (self.source.as_ref().map(Source::epoch), store) {
            (Some(known), _) if known > source.epoch() => return,
            (Some(known), Some(store)) if known < source.epoch() => self.clear(store),
            (Some(known), None) if known < source.epoch() => self.forget(),
            _ => {}
        }
        self.source = Some(source);
    }

    /// The epoch that was announced last.
    pub fn epoch(&self) -> Option<u64> {
        self.source.as_ref().map(Source::epoch)
    }

    /// Counts a chunk that could not be handed in.
    pub fn refuse(&mut self, reason: Lost) {
        self.chunks += 1;
        self.losses.count_chunk(reason);
    }

    /// Gives everything up that is not whole: the epoch ended, or the store does.
    pub fn clear(&mut self, store: &mut S) {
        while !self.partials.is_empty() {
            self.lose(0, Lost::EpochEnded, store);
        }
    }

    /// Like [`Self::clear`] when the store is gone, and with it all places.
    pub fn forget(&mut self) {
        for _ in self.partials.drain(..) {
            self.losses.count_frame(Lost::EpochEnded);
        }
        self.bytes = 0;
    }

    /// Takes a chunk; frames that are whole by it are committed, and told in `whole`.
    pub fn take(&mut self, chunk: &Chunk<'_>, store: &mut S, now_ns: u64, whole: &mut Vec<Whole>) {
        self.chunks += 1;
        let at = self.check(chunk, store).and_then(|()| self.find_or_begin(chunk, store, now_ns));
        match at {
            Ok(at) => {
                if let Err(reason) = self.add(at, chunk, store).and_then(|()| self.finish(at, store, now_ns))
                {
                    self.lose(at, reason, store);
                }
            }
            Err(reason) => {
                self.losses.count_chunk(reason);
                if reason == Lost::PayloadTooLong {
                    self.lose_too_long(chunk, store);
                }
            }
        }
        // Whatever became of the chunk: frames may have waited for one that is lost by it.
        self.commit_front(store, whole);
    }

    /// Gives up what takes too long; frames that waited for it are committed.
    pub fn on_time(&mut self, store: &mut S, now_ns: u64, whole: &mut Vec<Whole>) {
        let mut at = 0;
        while let Some(partial) = self.partials.get(at) {
            if partial.header.is_none() && now_ns.saturating_sub(partial.began_ns) >= self.limits.timeout_ns {
                self.lose(at, Lost::TimedOut, store);
            } else {
                at += 1;
            }
        }
        self.commit_front(store, whole);
    }

    fn check(&self, chunk: &Chunk<'_>, store: &S) -> Result<(), Lost> {
        let source = self.source.as_ref().ok_or(Lost::NotAnnounced)?;
        if chunk.epoch < source.epoch() {
            return Err(Lost::OldEpoch);
        }
        if chunk.epoch > source.epoch() {
            return Err(Lost::NotAnnounced);
        }
        if chunk.seq > MAX_SEQ {
            return Err(Lost::Header); // which has room for 63 bits
        }
        if chunk.payload.len() > self.limits.chunk_bytes as usize {
            return Err(Lost::ChunkTooLong);
        }
        let largest = self.limits.payload_bytes.min(store.max_payload_bytes()).min(source.largest_stride());
        if chunk.payload_length > largest { Err(Lost::PayloadTooLong) } else { Ok(()) }
    }

    /// A frame that fits nowhere is lost once, however many chunks it has; unless the chunk lied about another one.
    fn lose_too_long(&mut self, chunk: &Chunk<'_>, store: &S) {
        let frame = Some((chunk.epoch, chunk.seq));
        let is_known =
            chunk.seq < store.next_seq() || self.partials.iter().any(|partial| partial.seq == chunk.seq);
        if self.too_long != frame && !is_known {
            self.too_long = frame;
            self.losses.count_frame(Lost::PayloadTooLong);
        }
    }

    fn find_or_begin(&mut self, chunk: &Chunk<'_>, store: &mut S, now_ns: u64) -> Result<usize, Lost> {
        match self.partials.iter().rposition(|partial| partial.seq == chunk.seq) {
            Some(at) => Ok(at),
            None => self.begin(chunk, store, now_ns),
        }
    }

    /// A place for a frame of which nothing had come; at the cost of the oldest ones where there is no room.
    fn begin(&mut self, chunk: &Chunk<'_>, store: &mut S, now_ns: u64) -> Result<usize, Lost> {
        if chunk.seq < store.next_seq() {
            return Err(Lost::Late);
        }
        let length = u64::from(chunk.payload_length);
        while !self.partials.is_empty()
            && (self.partials.len() >= self.limits.frames || self.bytes + length > self.limits.bytes)
        {
            self.lose(0, Lost::Crowded, store);
        }
        let place = loop {
            match store.claim(chunk.seq, chunk.payload_length) {
                Ok(place) => break place,
                Err(ClaimError::Full(_)) if !self.partials.is_empty() => self.lose(0, Lost::Crowded, store),
                Err(ClaimError::TooLarge { .. }) => return Err(Lost::PayloadTooLong),
                Err(_) => return Err(Lost::Late),
            }
        };
        self.bytes += length;
        self.partials.push_back(Partial {
            seq: chunk.seq,
            place,
            coverage: Coverage::new(chunk.payload_length, chunk.count),
            slot: None,
            trace_id: chunk.trace_id,
            crc32c: chunk.payload_crc32c,
            began_ns: now_ns,
            first_chunk: self.chunks,
            last_chunk: self.chunks,
            header: None,
            whole_ns: now_ns,
        });
        Ok(self.partials.len() - 1)
    }

    fn add(&mut self, at: usize, chunk: &Chunk<'_>, store: &mut S) -> Result<(), Lost> {
        let partial = &mut self.partials[at];
        let same_frame = (partial.coverage.chunk_count(), partial.coverage.payload_length())
            == (chunk.count, chunk.payload_length)
            && (partial.trace_id, partial.crc32c) == (chunk.trace_id, chunk.payload_crc32c);
        if !same_frame {
            return Err(Lost::Conflict);
        }
        partial.last_chunk = self.chunks;
        match partial.coverage.add(chunk.index, chunk.offset, chunk.payload.len() as u32) {
            Fit::New => {
                store.write(&mut partial.place, chunk.offset, chunk.payload);
                if let Some(slot) = chunk.header {
                    partial.slot = Some(*slot);
                }
                Ok(())
            }
            Fit::Repeated => {
                let start = chunk.offset as usize;
                let before = &store.payload(&partial.place)[start..start + chunk.payload.len()];
                let same_slot = chunk.header.is_none_or(|slot| partial.slot.as_ref() == Some(slot));
                if before == chunk.payload && same_slot {
                    self.losses.count_chunk(Lost::Repeated);
                    Ok(())
                } else {
                    Err(Lost::Conflict)
                }
            }
            Fit::Conflict => Err(Lost::Conflict),
        }
    }

    /// Notes that a frame is whole, if it is.
    fn finish(&mut self, at: usize, store: &mut S, now_ns: u64) -> Result<(), Lost> {
        let partial = &self.partials[at];
        if partial.header.is_some() || !partial.coverage.has_all_chunks() {
            return Ok(());
        }
        let header = self.checked(partial, store)?;
        let partial = &mut self.partials[at];
        (partial.header, partial.whole_ns) = (Some(header), now_ns);
        self.give_up_overtaken(at, store);
        Ok(())
    }

    /// Checks a frame whose chunks have all come.
    fn checked(&self, partial: &Partial<S::Place>, store: &S) -> Result<FrameHeader, Lost> {
        if !partial.coverage.is_complete() {
            return Err(Lost::Hole);
        }
        let source = self.source.as_ref().ok_or(Lost::NotAnnounced)?;
        let slot = partial.slot.as_ref().ok_or(Lost::Header)?;
        let header = source.header(slot, partial.seq, partial.coverage.payload_length())?;
        match partial.crc32c {
            Some(crc) if store.crc32c(&partial.place) != crc => Err(Lost::Checksum),
            _ => Ok(header),
        }
    }

    /// Senders send one frame after the other: what has got nothing since a later one began will get nothing more.
    fn give_up_overtaken(&mut self, at: usize, store: &mut S) {
        let began = self.partials[at].first_chunk;
        let mut left = at;
        let mut n = 0;
        while n < left {
            let partial = &self.partials[n];
            if partial.header.is_none() && partial.last_chunk < began {
                self.lose(n, Lost::Incomplete, store);
                left -= 1;
            } else {
                n += 1;
            }
        }
    }

    fn commit_front(&mut self, store: &mut S, whole: &mut Vec<Whole>) {
        while let Some(header) = self.partials.front().and_then(|partial| partial.header) {
            let partial = self.partials.pop_front().expect("just looked at");
            self.bytes -= u64::from(partial.coverage.payload_length());
            let (seq, trace_id) = (partial.seq, partial.trace_id);
            match store.commit(partial.place, &header) {
                Ok(()) => whole.push(Whole {
                    seq,
                    payload_length: header.values_len_bytes,
                    timestamp_ns: header.timestamp_ns,
                    meta_version: header.meta_version,
                    trace_id,
                    took_ns: partial.whole_ns.saturating_sub(partial.began_ns),
                }),
                Err(_) => self.losses.count_frame(Lost::Header),
            }
        }
    }

    fn lose(&mut self, at: usize, reason: Lost, store: &mut S) {
        let partial = self.partials.remove(at).expect("one that is there");
        self.bytes -= u64::from(partial.coverage.payload_length());
        store.abort(partial.place);
        self.losses.count_frame(reason);
    }
}
