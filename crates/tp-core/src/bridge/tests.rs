//! The assembler over memory of its own; over rings and Aeron it is tried by `tests/integration/bridge`.

use super::*;
use crate::bytes::put;
use crate::chunk::Chunk;
use crate::crc::crc32c;
use crate::layout::{SLOT_BYTES, slot as at};
use crate::seqlock::Commit;
use crate::slot::{self, FrameHeader};
use crate::tensor::{Dtype, MajorOrder, ProgressUnit, Tensor};

const EPOCH: u64 = 7;
const MS: u64 = 1_000_000;
const LIMITS: Limits =
    Limits { frames: 4, bytes: 4096, timeout_ns: 250 * MS, chunk_bytes: 100, payload_bytes: 2048 };

struct Bench {
    assembler: Assembler<LooseFrames>,
    store: LooseFrames,
    whole: Vec<Whole>,
    now_ns: u64,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self {
            assembler: Assembler::new(LIMITS),
            store: LooseFrames::new(4096),
            whole: Vec::new(),
            now_ns: 0,
        };
        bench.announce(EPOCH);
        bench
    }

    fn announce(&mut self, epoch: u64) {
        self.assembler.announce(Source::new(epoch, vec![(1, 512), (2, 1024)]), Some(&mut self.store));
    }

    fn take(&mut self, chunk: &Chunk<'_>) {
        self.assembler.take(chunk, &mut self.store, self.now_ns, &mut self.whole);
    }

    fn wait(&mut self, ns: u64) {
        self.now_ns += ns;
        self.assembler.on_time(&mut self.store, self.now_ns, &mut self.whole);
    }

    fn seqs(&self) -> Vec<u64> {
        assert!(self.whole.iter().map(|whole| whole.seq).eq(self.store.whole.iter().map(|frame| frame.seq)));
        self.whole.iter().map(|whole| whole.seq).collect()
    }

    fn frames(&self, reason: Lost) -> u64 {
        self.assembler.losses().frames(reason)
    }

    fn chunks(&self, reason: Lost) -> u64 {
        self.assembler.losses().chunks(reason)
    }
}

/// A frame at its source, ready to be cut.
struct Sent {
    seq: u64,
    payload: Vec<u8>,
    slot: [u8; SLOT_BYTES],
}

impl Sent {
    fn new(seq: u64, length: usize) -> Self {
        let payload: Vec<u8> = (0..length).map(|n| (n as u64 * 7 + seq) as u8).collect();
        let dims = [length as i32];
        let tensor = Tensor::new(Dtype::U8, MajorOrder::Row, ProgressUnit::None, &dims, &[]).unwrap();
        let header = FrameHeader {
            tensor,
            values_len_bytes: length as u32,
            timestamp_ns: 1000 + seq,
            meta_version: 3,
        };
        let mut slot = slot::encode(&header, seq, 2, 8).unwrap();
        put(&mut slot, at::SEQ_COMMIT, Commit::committed(seq).0);
        Self { seq, payload, slot }
    }

    fn chunks(&self) -> Vec<Chunk<'_>> {
        let slices: Vec<&[u8]> =
            if self.payload.is_empty() { vec![&[]] } else { self.payload.chunks(100).collect() };
        let count = slices.len() as u32;
        let chunk = |(index, payload): (usize, _)| Chunk {
            stream_id: 1,
            epoch: EPOCH,
            seq: self.seq,
            index: index as u32,
            count,
            offset: index as u32 * 100,
            payload_length: self.payload.len() as u32,
            trace_id: None,
            payload_crc32c: None,
            header: (index == 0).then_some(&self.slot),
            payload,
        };
        slices.into_iter().enumerate().map(chunk).collect()
    }
}

// req: BRG-5.2-20
#[test]
fn frames_are_whole_in_any_order_of_their_chunks() {
    let mut bench = Bench::new();
    let frames = [Sent::new(4, 250), Sent::new(5, 1000), Sent::new(6, 0), Sent::new(9, 100)];
    for (n, frame) in frames.iter().enumerate() {
        let mut chunks = frame.chunks();
        if n % 2 == 1 {
            chunks.reverse();
        }
        for chunk in &chunks {
            assert_eq!(bench.whole.len(), n);
            bench.take(chunk);
        }
    }
    assert_eq!(bench.seqs(), [4, 5, 6, 9]);
    for (sent, got) in frames.iter().zip(&bench.store.whole) {
        assert_eq!(sent.payload, got.payload);
        assert_eq!((got.header.timestamp_ns, got.header.meta_version), (1000 + sent.seq, 3));
    }
    assert_eq!((bench.assembler.in_flight(), bench.assembler.bytes_in_flight()), (0, 0));
}

#[test]
fn interleaved_frames_come_out_in_order() {
    let mut bench = Bench::new();
    let (one, two) = (Sent::new(1, 250), Sent::new(2, 250));
    for (a, b) in one.chunks().iter().zip(two.chunks().iter()).take(2) {
        bench.take(a);
        bench.take(b);
    }
    bench.take(&two.chunks()[2]);
    assert_eq!(bench.seqs(), [0; 0], "the second is whole, the first still gets chunks");
    assert_eq!(bench.assembler.prefix(1), Some(200));
    bench.take(&one.chunks()[2]);
    assert_eq!(bench.seqs(), [1, 2]);
}

#[test]
fn what_was_overtaken_does_not_hold_others_up() {
    let mut bench = Bench::new();
    bench.take(&Sent::new(1, 250).chunks()[0]);
    for chunk in &Sent::new(2, 250).chunks() {
        bench.take(chunk);
    }
    assert_eq!(bench.seqs(), [2]);
    assert_eq!(bench.frames(Lost::Incomplete), 1);
    bench.take(&Sent::new(1, 250).chunks()[1]);
    assert_eq!(bench.chunks(Lost::Late), 1);
}

#[test]
fn what_is_lost_does_not_hold_others_up() {
    let mut bench = Bench::new();
    let (one, two) = (Sent::new(1, 250), Sent::new(2, 250));
    bench.take(&one.chunks()[0]);
    bench.take(&two.chunks()[0]);
    bench.take(&one.chunks()[1]);
    bench.take(&two.chunks()[1]);
    bench.take(&two.chunks()[2]);
    assert_eq!(bench.seqs(), [0; 0]);
    bench.take(&Chunk { payload: &[0; 100], ..one.chunks()[1] });
    assert_eq!((bench.seqs(), bench.frames(Lost::Conflict)), (vec![2], 1));
    let (three, four) = (Sent::new(3, 250), Sent::new(4, 1000));
    bench.take(&three.chunks()[0]);
    bench.take(&four.chunks()[0]);
    bench.take(&three.chunks()[1]);
    four.chunks()[1..].iter().for_each(|chunk| bench.take(chunk));
    assert_eq!(bench.seqs(), [2]);
    for seq in 5..9 {
        bench.take(&Sent::new(seq, 250).chunks()[0]);
    }
    assert_eq!((bench.seqs(), bench.frames(Lost::Crowded)), (vec![2, 4], 1), "the oldest went first");
}

// req: BRG-5.3a-1, BRG-5.3a-3, BRG-5.3a-4
#[test]
fn missing_chunks_are_waited_for_only_so_long() {
    let mut bench = Bench::new();
    let frame = Sent::new(1, 250);
    bench.take(&frame.chunks()[0]);
    bench.wait(LIMITS.timeout_ns - 1);
    assert_eq!(bench.assembler.in_flight(), 1);
    bench.wait(1);
    assert_eq!((bench.assembler.in_flight(), bench.frames(Lost::TimedOut)), (0, 1));
    bench.take(&frame.chunks()[1]);
    bench.take(&frame.chunks()[2]);
    assert_eq!((bench.seqs().len(), bench.chunks(Lost::Late)), (0, 2));
}

// req: BRG-5.2-23, BRG-5.2-24, BRG-5.2-25
#[test]
fn repeated_chunks_are_ignored_and_contradictions_drop_the_frame() {
    let mut bench = Bench::new();
    let frame = Sent::new(1, 250);
    for chunk in frame.chunks().iter().flat_map(|chunk| [chunk, chunk]).take(5) {
        bench.take(chunk);
    }
    assert_eq!((bench.seqs(), bench.chunks(Lost::Repeated)), (vec![1], 2));
    let frame = Sent::new(2, 250);
    let (mut wrong_bytes, mut wrong_count, mut wrong_length) =
        (frame.chunks()[0], frame.chunks()[1], frame.chunks()[1]);
    wrong_bytes.payload = &[9; 100];
    wrong_count.count += 1;
    wrong_length.payload_length += 1;
    let mut wrong_slot = frame.chunks()[0];
    let slot = [0; SLOT_BYTES];
    wrong_slot.header = Some(&slot);
    let shorter = Chunk { payload: &frame.payload[..90], ..frame.chunks()[0] };
    for (n, wrong) in [wrong_bytes, wrong_count, wrong_length, wrong_slot, shorter].iter().enumerate() {
        let mut chunk = frame.chunks()[0];
        chunk.seq = 10 + n as u64;
        bench.take(&chunk);
        bench.take(&Chunk { seq: chunk.seq, ..*wrong });
        assert_eq!(bench.frames(Lost::Conflict), n as u64 + 1);
    }
    assert_eq!(bench.assembler.in_flight(), 0);
}

// req: BRG-6-3, BRG-8-2, BRG-8-3
#[test]
fn nothing_is_taken_that_was_not_announced() {
    let mut bench = Bench::new();
    let frame = Sent::new(1, 100);
    let of = |epoch| Chunk { epoch, ..frame.chunks()[0] };
    bench.take(&of(EPOCH - 1));
    bench.take(&of(EPOCH + 1));
    assert_eq!((bench.chunks(Lost::OldEpoch), bench.chunks(Lost::NotAnnounced)), (1, 1));
    bench.take(&Sent::new(0, 250).chunks()[0]);
    bench.announce(EPOCH - 1);
    assert_eq!(bench.assembler.in_flight(), 1, "an older announce says nothing");
    bench.announce(EPOCH + 1);
    assert_eq!((bench.assembler.in_flight(), bench.frames(Lost::EpochEnded)), (0, 1));
    bench.take(&of(EPOCH + 1));
    assert_eq!(bench.seqs(), [1]);
    let mut deaf = Assembler::new(LIMITS);
    deaf.take(&of(EPOCH), &mut LooseFrames::new(4096), 0, &mut bench.whole);
    assert_eq!(deaf.losses().chunks(Lost::NotAnnounced), 1);
}

// req: BRG-5.2-11
#[test]
fn sizes_are_limited() {
    let mut bench = Bench::new();
    bench.take(&Chunk { payload: &[0; 101], ..Sent::new(1, 250).chunks()[1] });
    assert_eq!(bench.chunks(Lost::ChunkTooLong), 1);
    bench.take(&Sent::new(2, 1025).chunks()[0]);
    assert_eq!(bench.chunks(Lost::PayloadTooLong), 1, "longer than the slots of the source");
    bench.take(&Sent::new(2, 1025).chunks()[1]);
    assert_eq!((bench.chunks(Lost::PayloadTooLong), bench.frames(Lost::PayloadTooLong)), (2, 1), "one frame");
    bench.take(&Chunk { seq: u64::MAX, ..Sent::new(2, 100).chunks()[0] });
    assert_eq!((bench.chunks(Lost::Header), bench.store.next_seq()), (1, 0), "no slot has such a number");
    for seq in 0..100_000 {
        bench.take(&Sent::new(3 + seq, 1000).chunks()[1]);
        assert!(bench.assembler.in_flight() <= LIMITS.frames);
        assert!(bench.assembler.bytes_in_flight() <= LIMITS.bytes);
    }
    assert_eq!(bench.frames(Lost::Crowded), 100_000 - 4);
    for chunk in &Sent::new(200_000, 1000).chunks() {
        bench.take(chunk);
    }
    assert_eq!(bench.seqs(), [200_000]);
}

// req: BRG-6-5, BRG-6-7, BRG-6-9, BRG-6-10, BRG-6-18
#[test]
fn headers_that_lie_drop_the_frame() {
    let mut bench = Bench::new();
    let lies: [fn(&mut [u8; SLOT_BYTES]); 6] = [
        |slot| put(slot, at::SEQ_COMMIT, Commit::committed(99).0),
        |slot| put(slot, at::VALUES_LEN_BYTES, 99u32),
        |slot| put(slot, at::PAYLOAD_OFFSET, 1u32),
        |slot| put(slot, at::POOL_ID, 3u16),
        |slot| put(slot, crate::layout::SLOT_HEADER_BYTES_LENGTH, 191u32),
        |slot| slot[crate::layout::SLOT_EMBEDDED_HEADER..].fill(0),
    ];
    for (n, lie) in lies.iter().enumerate() {
        let mut frame = Sent::new(n as u64, 100);
        lie(&mut frame.slot);
        bench.take(&frame.chunks()[0]);
        assert_eq!(bench.frames(Lost::Header), n as u64 + 1);
    }
    assert_eq!(bench.seqs(), [0; 0]);
    let mut empty = Sent::new(10, 0);
    put(&mut empty.slot, at::POOL_ID, 3u16);
    bench.take(&empty.chunks()[0]);
    assert_eq!(bench.frames(Lost::Header), lies.len() as u64 + 1, "an empty payload names a pool too");
}

#[test]
fn checksums_are_compared_where_they_are_told() {
    let mut bench = Bench::new();
    for (seq, crc, expected) in [(1, 0, 1), (2, 1, 0)] {
        let frame = Sent::new(seq, 250);
        let payload_crc32c = Some(crc32c(&frame.payload) ^ crc);
        for chunk in frame.chunks() {
            bench.take(&Chunk { payload_crc32c, trace_id: Some(5), ..chunk });
        }
        assert_eq!(bench.whole.iter().filter(|whole| whole.seq == seq).count(), expected);
    }
    assert_eq!((bench.frames(Lost::Checksum), bench.whole[0].trace_id), (1, Some(5)));
}

// req: BRG-5.2-9, BRG-5.3-1
#[test]
fn lengths_that_leave_bytes_out_drop_the_frame() {
    let mut bench = Bench::new();
    let frame = Sent::new(1, 250);
    let chunks = frame.chunks();
    bench.take(&chunks[0]);
    bench.take(&chunks[1]);
    bench.take(&Chunk { payload: &chunks[2].payload[..49], ..chunks[2] });
    assert_eq!((bench.frames(Lost::Hole), bench.assembler.in_flight()), (1, 0));
}
