//! Fuzzing of frames that are put together from chunks.
//!
//! Seven bytes are a step: a chunk, a span of time, an announce or another store. Chunks are made of few small
//! numbers, so that their ranges, indices, counts and epochs collide often, and travel as packets in both dialects.

use std::collections::HashMap;

use tp_core::bridge::{
    Assembler, Dialect, FrameOnWire, Limits, LooseFrame, LooseFrames, Source, Store, Whole,
};
use tp_core::chunk::Chunk;
use tp_core::crc::crc32c;
use tp_core::ring::ClaimError;
use tp_core::slot::{self, FrameHeader};
use tp_core::tensor::{Dtype, MajorOrder, ProgressUnit, Tensor};

use super::oracle;

const STEP_BYTES: usize = 7;
const LIMITS: Limits = Limits { frames: 3, bytes: 160, timeout_ns: 100, chunk_bytes: 64, payload_bytes: 112 };
const POOLS: [(u16, u32); 2] = [(1, 16), (2, 104)];
const STORE_BYTES: u32 = 108;
const EPOCHS: [u64; 4] = [1, 2, 3, u64::MAX];
const SEQS: [u64; 8] = [0, 1, 2, 3, 4, 5, (1 << 63) - 1, u64::MAX];
const NSLOTS: u32 = 8;

/// A step that anybody may ask for.
struct Step<'a>(&'a [u8]);

impl Step<'_> {
    fn bits(&self, byte: usize, from: u32, count: u32) -> usize {
        usize::from(self.0[byte]) >> from & ((1 << count) - 1)
    }

    /// Mostly a multiple of four, so that slices fit each other often.
    fn size(&self, byte: usize) -> u32 {
        self.bits(byte, 0, 5) as u32 * 4 + u32::from(self.bits(byte, 5, 3) == 7)
    }

    fn seq(&self) -> u64 {
        SEQS[self.bits(1, 0, 3)]
    }

    fn epoch(&self) -> u64 {
        EPOCHS[self.bits(1, 3, 2)]
    }

    /// A packet; its numbers may lie.
    fn packet(&self) -> Vec<u8> {
        let dialect = if self.bits(0, 3, 1) == 1 { Dialect::Newer } else { Dialect::Ours };
        let count = match self.bits(2, 4, 4) as u32 {
            14 => 65_536,
            15 => 65_535,
            few => few,
        };
        let index = match self.bits(2, 0, 4) as u32 {
            15 => count.wrapping_sub(1),
            few => few,
        };
        let (offset, length, payload_length) = (self.size(3), self.size(4), self.size(5));
        let right_crc = crc32c(&payload(self.seq(), 0, payload_length));
        let (trace_id, payload_crc32c) = [(0, 0), (9, 0), (9, right_crc), (0, 8)][self.bits(0, 6, 2)];
        let frame = FrameOnWire {
            dialect,
            stream_id: 1,
            epoch: self.epoch(),
            seq: self.seq(),
            payload_length,
            count,
            trace_id,
            payload_crc32c,
        };
        let lie = self.bits(1, 5, 3);
        let slot = slot(self.seq(), payload_length, lie);
        let slot = ((index == 0) != (lie == 7)).then_some(&slot);
        let mut out = vec![0; dialect.overhead(slot.is_some()) + length as usize];
        let slice = frame.encode(&mut out, index, (offset, length), slot);
        slice.copy_from_slice(&payload(self.seq(), offset, length));
        if let (1.., Some(byte)) = (self.bits(0, 4, 2), slice.last_mut()) {
            *byte ^= 1;
        }
        out
    }
}

/// What lies at `offset` in the frame: repeated slices are the same, others mostly not.
fn payload(seq: u64, offset: u32, length: u32) -> Vec<u8> {
    (offset..offset + length).map(|at| (u64::from(at) * 31).wrapping_add(seq) as u8).collect()
}

/// A slot as the source has it, or one of the ways in which it may lie.
fn slot(seq: u64, payload_length: u32, lie: usize) -> [u8; 256] {
    let dims = [payload_length as i32];
    let tensor =
        Tensor::new(Dtype::U8, MajorOrder::Row, ProgressUnit::None, &dims, &[]).expect("a row of bytes");
    let header = FrameHeader {
        tensor,
        values_len_bytes: payload_length,
        timestamp_ns: 1000 + seq % 8,
        meta_version: 3,
    };
    let pool_id = if payload_length <= POOLS[0].1 { 1 } else { 2 };
    let mut slot = slot::encode(&header, seq, pool_id, NSLOTS).expect("a row of bytes fits a slot");
    slot[..8].copy_from_slice(&(seq << 1 | 1).to_le_bytes());
    match lie {
        1 => slot[22] ^= 1, // another time: no lie, unless the chunk comes twice
        2 => slot[0] ^= 2,
        3 => slot[8] ^= 1,
        4 => slot[16] ^= 3 << (seq % 2), // the other pool, or one that there is not
        5 => slot[64..].fill(0),
        6 => slot[18] = 1,
        _ => {}
    }
    slot
}

/// Frames in memory of their own; knows what of it is in use.
struct Counted {
    frames: LooseFrames,
    places: usize,
    bytes: usize,
}

impl Counted {
    fn new() -> Self {
        Self { frames: LooseFrames::new(STORE_BYTES), places: 0, bytes: 0 }
    }

    fn release(&mut self, place: &<LooseFrames as Store>::Place) {
        self.places -= 1;
        self.bytes -= place.1.len();
    }
}

impl Store for Counted {
    type Place = <LooseFrames as Store>::Place;

    fn max_payload_bytes(&self) -> u32 {
        self.frames.max_payload_bytes()
    }

    fn next_seq(&self) -> u64 {
        self.frames.next_seq()
    }

    fn claim(&mut self, seq: u64, bytes: u32) -> Result<Self::Place, ClaimError> {
        let place = self.frames.claim(seq, bytes)?;
        self.places += 1;
        self.bytes += place.1.len();
        Ok(place)
    }

    fn write(&mut self, place: &mut Self::Place, offset: u32, bytes: &[u8]) {
        self.frames.write(place, offset, bytes);
    }

    fn payload<'a>(&'a self, place: &'a Self::Place) -> &'a [u8] {
        self.frames.payload(place)
    }

    fn commit(&mut self, place: Self::Place, header: &FrameHeader) -> Result<(), ClaimError> {
        self.release(&place);
        self.frames.commit(place, header)
    }

    fn abort(&mut self, place: Self::Place) {
        self.release(&place);
        self.frames.abort(place);
    }
}

/// A chunk that was given to a frame: everything that must be the same when it comes again, then its slice.
#[derive(PartialEq, Eq)]
struct Given {
    index: u32,
    offset: usize,
    slice: Vec<u8>,
    slot: Option<[u8; 256]>,
}

/// What was given of a frame, told by its chunks alone.
struct Sent {
    /// Number of chunks, length, trace and checksum, as the first chunk has them.
    common: (u32, u32, Option<u64>, Option<u32>),
    chunks: Vec<Given>,
    /// Chunks contradicted each other: the frame may never be seen.
    contradicts: bool,
}

impl Sent {
    fn add(&mut self, chunk: &Chunk<'_>) {
        let given = Given {
            index: chunk.index,
            offset: chunk.offset as usize,
            slice: chunk.payload.to_vec(),
            slot: chunk.header.copied(),
        };
        self.contradicts |= self.common != common(chunk);
        match self.chunks.iter().find(|known| known.index == given.index) {
            Some(known) => self.contradicts |= *known != given,
            None => self.chunks.push(given),
        }
    }

    /// The bytes and the slot, if every chunk came, every byte once, and a header that may be believed.
    fn frame(&self, seq: u64) -> Option<(Vec<u8>, oracle::Slot)> {
        let (count, length, _, crc) = self.common;
        let mut bytes = vec![None; length as usize];
        for chunk in &self.chunks {
            for (n, byte) in chunk.slice.iter().enumerate() {
                if bytes[chunk.offset + n].replace(*byte).is_some() {
                    return None;
                }
            }
        }
        let bytes: Vec<u8> = bytes.into_iter().collect::<Option<_>>()?;
        if self.contradicts || self.chunks.len() != count as usize {
            return None;
        }
        let slot = self.chunks.iter().find_map(|chunk| chunk.slot)?;
        // The number of the slot there is nobody's business here: the oracle wants it right.
        let mut local = slot;
        local[12..16].copy_from_slice(&((seq % u64::from(NSLOTS)) as u32).to_le_bytes());
        let header = oracle::slot(&local, seq, NSLOTS, &POOLS)?;
        // On the bridge empty payloads name a pool too.
        let right = oracle::number(&slot, 0, 8) >> 1 == i128::from(seq)
            && header.values_len == i128::from(length)
            && POOLS.iter().any(|(id, _)| i128::from(*id) == oracle::number(&slot, 16, 2));
        (right && crc.is_none_or(|crc| crc == crc32c(&bytes))).then_some((bytes, header))
    }
}

fn common(chunk: &Chunk<'_>) -> (u32, u32, Option<u64>, Option<u32>) {
    (chunk.count, chunk.payload_length, chunk.trace_id, chunk.payload_crc32c)
}

/// An assembler, and what it was given since its store is new.
struct World {
    assembler: Assembler<Counted>,
    store: Counted,
    epoch: Option<u64>,
    sent: HashMap<(u64, u64), Sent>,
    last_whole: Option<u64>,
    now_ns: u64,
    frames: usize,
}

impl World {
    fn take(&mut self, packet: &[u8]) {
        let Ok(chunk) = Chunk::decode(packet) else { return };
        let longest = LIMITS.payload_bytes.min(STORE_BYTES).min(POOLS[1].1);
        if self.epoch == Some(chunk.epoch)
            && chunk.payload.len() <= LIMITS.chunk_bytes as usize
            && chunk.payload_length <= longest
        {
            let new = || Sent { common: common(&chunk), chunks: Vec::new(), contradicts: false };
            self.sent.entry((chunk.epoch, chunk.seq)).or_insert_with(new).add(&chunk);
        }
        let mut whole = Vec::new();
        self.assembler.take(&chunk, &mut self.store, self.now_ns, &mut whole);
        self.check(&whole);
    }

    fn wait(&mut self, ns: u64) {
        self.now_ns += ns;
        let mut whole = Vec::new();
        self.assembler.on_time(&mut self.store, self.now_ns, &mut whole);
        self.check(&whole);
        assert!(ns < LIMITS.timeout_ns || self.assembler.in_flight() == 0, "nothing is waited for longer");
    }

    fn announce(&mut self, epoch: u64) {
        self.assembler.announce(Source::new(epoch, POOLS.to_vec()), Some(&mut self.store));
        self.epoch = self.epoch.max(Some(epoch));
        assert_eq!(self.assembler.epoch(), self.epoch, "epochs never go back");
        self.check(&[]);
    }

    /// Another ring: it was closed, or is gone already.
    fn replace_store(&mut self, gone: bool) {
        if gone {
            self.assembler.forget();
        } else {
            self.assembler.clear(&mut self.store);
            assert_eq!(self.store.places, 0, "every place was given back");
        }
        self.store = Counted::new();
        self.sent.clear();
        self.last_whole = None;
        self.check(&[]);
    }

    fn check(&mut self, whole: &[Whole]) {
        let (assembler, store) = (&self.assembler, &mut self.store);
        let (in_flight, bytes) = (assembler.in_flight(), assembler.bytes_in_flight());
        assert!(in_flight <= LIMITS.frames, "{in_flight} frames at a time");
        assert!(bytes <= LIMITS.bytes || in_flight == 1, "{bytes} bytes at a time");
        assert_eq!(
            (store.places, store.bytes as u64),
            (in_flight, bytes),
            "a place for each frame, and no other"
        );
        let frames: Vec<LooseFrame> = store.frames.whole.drain(..).collect();
        assert!(frames.iter().map(|frame| frame.seq).eq(whole.iter().map(|whole| whole.seq)));
        let epoch = self.epoch.unwrap_or(0);
        for (frame, whole) in frames.iter().zip(whole) {
            assert!(self.last_whole < Some(frame.seq), "numbers only grow");
            self.last_whole = Some(frame.seq);
            self.frames += 1;
            let sent = &self.sent[&(epoch, frame.seq)];
            let (bytes, slot) = sent.frame(frame.seq).expect("not all of it came, or it lies");
            assert_eq!(frame.payload, bytes);
            let header = &frame.header;
            super::assert_same_layout(&header.tensor, &slot.layout);
            let numbers = [header.values_len_bytes.into(), header.timestamp_ns, header.meta_version.into()];
            assert_eq!(numbers.map(i128::from), [slot.values_len, slot.timestamp_ns, slot.meta_version]);
            let told = [whole.payload_length.into(), whole.timestamp_ns, whole.meta_version.into()];
            assert_eq!((numbers, sent.common.2), (told, whole.trace_id));
        }
        // What is whole waits for earlier frames only.
        let first = SEQS.into_iter().find(|seq| self.assembler.prefix(*seq).is_some());
        let sent = first.and_then(|seq| Some((seq, self.sent.get(&(epoch, seq))?)));
        assert!(sent.is_none_or(|(seq, sent)| sent.frame(seq).is_none()), "{first:?} is whole");
    }

    /// Whatever came before, the next good frame passes.
    fn pass_good_frame(&mut self) {
        let seq = self.store.next_seq();
        if seq >= SEQS[6] {
            return;
        }
        self.announce(self.epoch.unwrap_or(1));
        let (before, length) = (self.frames, 100);
        let frame = FrameOnWire {
            dialect: Dialect::Ours,
            stream_id: 1,
            epoch: self.epoch.expect("just announced"),
            seq,
            payload_length: length,
            count: 2,
            trace_id: 0,
            payload_crc32c: 0,
        };
        for (index, slice, slot) in [(0, (0, 40), Some(&slot(seq, length, 0))), (1, (40, 60), None)] {
            let mut out = vec![0; Dialect::Ours.overhead(slot.is_some()) + slice.1 as usize];
            frame.encode(&mut out, index, slice, slot).copy_from_slice(&payload(seq, slice.0, slice.1));
            self.take(&out);
        }
        assert!(self.frames > before && self.last_whole == Some(seq), "a good frame did not pass");
    }
}

/// Chunks, announces and time for an assembler; whether a frame became whole by them.
pub fn assembly(data: &[u8]) -> bool {
    let mut world = World {
        assembler: Assembler::new(LIMITS),
        store: Counted::new(),
        epoch: None,
        sent: HashMap::new(),
        last_whole: None,
        now_ns: 0,
        frames: 0,
    };
    for step in data.chunks_exact(STEP_BYTES).map(Step) {
        match step.bits(0, 0, 3) {
            5 => world.wait(step.bits(6, 0, 8) as u64),
            6 => world.announce(step.epoch()),
            7 => world.replace_store(step.bits(6, 0, 1) == 1),
            _ => world.take(&step.packet()),
        }
    }
    let whole = world.frames > 0;
    world.pass_good_frame();
    whole
}
