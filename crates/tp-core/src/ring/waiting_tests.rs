use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::super::any::AnyReader;
use super::super::source::Source;
use super::*;
use crate::region::{BaseDirs, CreateOptions};
use crate::ring::{Geometry, Pool, ReadMode, RingWriter, create_ring};
use crate::slot::FrameHeader;
use crate::tensor::{Dtype, MajorOrder, ProgressUnit, Tensor};

const PERIOD: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_millis(100);
/// A stream has to prove itself before anybody gets up for it.
const PROOF: u32 = 8;

/// Who does not get up has nothing to rehearse.
fn never() {
    panic!("up before a frame was due");
}

fn ring() -> (tempfile::TempDir, RingWriter, AnyReader) {
    ring_for(ReadMode::Map)
}

fn ring_for(mode: ReadMode) -> (tempfile::TempDir, RingWriter, AnyReader) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let pools = vec![Pool { pool_id: 1, stride_bytes: 64 }];
    let geometry = Geometry { stream_id: 1, epoch: 1, nslots: 64, pools };
    let address = create_ring(dir.path(), geometry, CreateOptions::default()).unwrap();
    let bases = BaseDirs::open([dir.path()]).unwrap();
    let writer = RingWriter::open(&address, &bases).unwrap();
    (dir, writer, AnyReader::open(&address, &bases, mode, false).unwrap())
}

/// Frame `seq`, by a reader that knows of all rings of the bell.
fn await_frame(source: &AnyReader, seq: u64) -> Awaited {
    Awaited { source: source.clone(), seq, seen: source.bell() }
}

/// The same, by one that does not know of the last ring.
fn await_rung(source: &AnyReader, seq: u64) -> Awaited {
    Awaited { seen: source.bell().wrapping_sub(1), ..await_frame(source, seq) }
}

fn publish(writer: &mut RingWriter) {
    let tensor = Tensor::new(Dtype::U8, MajorOrder::Row, ProgressUnit::None, &[1], &[]).unwrap();
    let header = FrameHeader { tensor, values_len_bytes: 1, timestamp_ns: 0, meta_version: 0 };
    writer.publish(&[1], &header).unwrap();
}

/// Publishes at a steady pace until told to stop.
fn publish_steadily(writer: &mut RingWriter, is_over: &AtomicBool) {
    let start = Instant::now();
    for number in 1.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep((start + PERIOD * number).saturating_duration_since(Instant::now()));
        publish(writer);
        writer.ring_all(monotonic_ns());
    }
}

/// No frame is ever lost by waiting, and sooner or later some are found by who got up for them.
#[test]
fn a_reader_of_a_steady_stream_is_up_in_time() {
    let (_dir, mut writer, source) = ring();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| publish_steadily(&mut writer, &is_over));
        let mut waiting = Waiting::new(Duration::ZERO, true);
        let deadline = Instant::now() + PATIENCE;
        let (mut next, mut rehearsed) = (0, 0);
        while (rehearsed == 0 || waiting.rhythm.as_ref().is_some_and(|rhythm| !rhythm.has_found_some()))
            && Instant::now() < deadline
        {
            let awaited = await_frame(&source, next);
            if awaited.is_there() {
                next += 1;
            } else {
                let rehearse = || {
                    assert!(next >= PROOF.into(), "for a frame that can't have been expected");
                    rehearsed += 1;
                };
                waiting.wait(&awaited, LONG, rehearse);
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(Instant::now() < deadline, "{next} frames, and none was found awake: {waiting:?}");
    });
}

/// The writer would have to wake whoever slept: it never does after the first frames.
#[test]
fn a_reader_of_frames_that_follow_at_once_stays_up() {
    let (_dir, mut writer, source) = ring();
    let mut waiting = Waiting::new(Duration::ZERO, true);
    for next in 0..100 {
        publish(&mut writer);
        writer.ring_all(monotonic_ns());
        assert!(waiting.wait(&await_rung(&source, next), LONG, never));
    }
    let looks = |waiting: &Waiting| waiting.stay_up(&await_frame(&source, 99), monotonic_ns());
    assert!(looks(&waiting));
    // One pause, and it sleeps again at once.
    assert!(!waiting.wait(&await_frame(&source, 100), LONG, never));
    assert!(!looks(&waiting), "{waiting:?}");
}

#[test]
fn who_is_not_punctual_never_gets_up() {
    let (_dir, mut writer, source) = ring();
    let mut waiting = Waiting::new(Duration::ZERO, false);
    for next in 0..50 {
        publish(&mut writer);
        writer.ring_all(monotonic_ns());
        assert!(waiting.wait(&await_rung(&source, next), LONG, never));
        assert_eq!(waiting.watch(LONG), None);
    }
}

/// Whatever it looked like: each look would be a system call.
#[test]
fn who_reads_copies_never_gets_up() {
    let (_dir, mut writer, source) = ring_for(ReadMode::Copy);
    let mut waiting = Waiting::new(Duration::ZERO, true);
    for next in 0..50 {
        publish(&mut writer);
        writer.ring_all(monotonic_ns());
        assert!(waiting.wait(&await_rung(&source, next), LONG, never));
    }
    assert_eq!(format!("{:?}", waiting.rhythm), format!("{:?}", Some(Rhythm::default())));
}

/// Who reads copies is not to be killed by a file that shrinks, however it waits.
#[test]
fn a_ring_that_was_cut_off_does_no_harm() {
    for spin in [Duration::ZERO, LONG] {
        let (dir, _writer, source) = ring_for(ReadMode::Copy);
        let mut waiting = Waiting::new(spin, true);
        let awaited = await_frame(&source, 0);
        assert!(!waiting.wait(&awaited, LONG / 10, never));
        let header = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        for path in header.filter(|path| path.is_file()) {
            std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(0).unwrap();
        }
        waiting.wait(&awaited, LONG / 10, never);
    }
}

/// Other makers' producers commit and never ring.
#[test]
fn a_frame_is_seen_before_its_bell() {
    let (_dir, mut writer, source) = ring();
    let mut waiting = Waiting::new(PATIENCE, false);
    let awaited = await_frame(&source, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| publish(&mut writer));
        assert!(waiting.wait(&awaited, PATIENCE, never));
    });
    assert_eq!(source.bell(), awaited.seen, "nobody rang");
}

#[test]
fn waiting_for_nothing_ends_in_time() {
    let (_dir, _writer, source) = ring();
    for (spin, punctual) in [(Duration::ZERO, false), (Duration::ZERO, true), (LONG, false)] {
        let start = Instant::now();
        assert!(!Waiting::new(spin, punctual).wait(&await_frame(&source, 0), LONG, never));
        assert!(start.elapsed() >= LONG);
    }
}
