//! The hunt for torn frames: a writer that never rests and four readers, in real processes, on a ring so
//! small that nearly every frame is overwritten while somebody reads it (pitfall 1 of this family).
//!
//! Length, header and every byte of a frame follow from its sequence number, so a reader knows whether what
//! it accepted is whole. The test binary starts itself again for each process, with its role in the
//! environment.

use std::cell::RefCell;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};
use tp_core::drops::{DropCounters, DropReason};
use tp_core::region::{BaseDirs, CreateOptions};
use tp_core::ring::{
    Borrowed, Cursor, Geometry, Polled, Pool, RingAddress, RingReader, RingWriter, SnapshotReader, Source,
    create_ring,
};
use tp_core::seqlock::Commit;
use tp_core::slot::{FrameHeader, FrameRecord};
use tp_core::tensor::{Dtype, MajorOrder, ProgressUnit, Tensor};
use tp_core::uri::RegionUri;

const ROLE: &str = "TORN_FRAMES_ROLE";
const JOB: &str = "TORN_FRAMES_JOB";

/// A ring and how many frames go through it.
#[derive(Debug, Clone, Copy)]
struct Job {
    nslots: u32,
    max_bytes: u32,
    frames: u64,
}

impl Job {
    fn geometry(&self) -> Geometry {
        let pools = vec![Pool { pool_id: 1, stride_bytes: self.max_bytes }];
        Geometry { stream_id: 1, epoch: 1, nslots: self.nslots, pools }
    }

    fn address(&self, dir: &Path) -> RingAddress {
        let uri = |name| RegionUri::format(dir.join(name).to_str().unwrap(), false).unwrap();
        RingAddress {
            geometry: self.geometry(),
            header_uri: uri("header.ring"),
            pool_uris: vec![uri("1.pool")],
        }
    }

    fn header(&self, seq: u64) -> FrameHeader {
        let words = self.max_bytes / 8 - (seq % 7) as u32;
        let tensor = Tensor::new(Dtype::U64, MajorOrder::Row, ProgressUnit::None, &[words as i32], &[]);
        FrameHeader {
            tensor: tensor.unwrap(),
            values_len_bytes: words * 8,
            timestamp_ns: !seq,
            meta_version: seq as u32 ^ 0xA5A5_A5A5,
        }
    }

    /// Is this the header of frame `seq`?
    fn describes(&self, record: &FrameRecord) -> bool {
        let (found, wanted) = (record.header, self.header(record.seq));
        found.tensor == wanted.tensor
            && found.values_len_bytes == wanted.values_len_bytes
            && (found.timestamp_ns, found.meta_version) == (wanted.timestamp_ns, wanted.meta_version)
    }
}

/// Word `i` of frame `seq`: no byte of it stays the same from frame to frame.
fn word(seq: u64, i: u64) -> u64 {
    (seq + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ i.wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

fn payload(seq: u64, bytes: u32) -> Vec<u8> {
    (0..u64::from(bytes) / 8).flat_map(|i| word(seq, i).to_le_bytes()).collect()
}

fn is_payload(seq: u64, bytes: &[u8]) -> bool {
    bytes
        .chunks_exact(8)
        .zip(0..)
        .all(|(chunk, i)| u64::from_le_bytes(chunk.try_into().unwrap()) == word(seq, i))
}

// --- roles ----------------------------------------------------------------------------------------

/// Publishes all frames as fast as it can: every other one is written in place, the rest are copied.
fn write(job: Job, address: &RingAddress, bases: &BaseDirs) {
    let mut writer = RingWriter::open(address, bases).unwrap();
    for seq in 0..job.frames {
        let header = job.header(seq);
        let bytes = payload(seq, header.values_len_bytes);
        if seq % 2 == 0 {
            writer.publish(&bytes, &header).unwrap();
        } else {
            let claim = writer.claim(bytes.len() as u64, None).unwrap();
            // SAFETY: the claim is as long as the payload, and nobody else writes there.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), writer.payload(&claim), bytes.len()) };
            writer.commit(&claim, &header).unwrap();
        }
        writer.ring(1);
    }
}

/// What a reader met.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    accepted: u64,
    late: u64,
    /// How many of the late ones were found torn: without the second look they would have been believed.
    torn: u64,
}

impl Tally {
    /// A frame was read: `whole` or not, and `valid` or not at the second look.
    fn judge(&mut self, seq: u64, whole: bool, valid: bool) {
        assert!(whole || !valid, "frame {seq} was accepted and is torn");
        self.accepted += u64::from(valid);
        self.late += u64::from(!valid);
        self.torn += u64::from(!whole);
    }

    /// A frame that can't be read is late. Any other reason would mean that a torn header was believed.
    fn drop(&mut self, seq: u64, reason: DropReason) {
        assert!(reason.is_late(), "frame {seq} was dropped as {reason:?}");
        self.late += 1;
    }
}

/// Reads the newest frame over and over, until the last one is there.
fn read_newest(job: Job, newest: impl Fn() -> Option<u64>, mut read: impl FnMut(u64, &mut Tally)) -> Tally {
    let mut tally = Tally::default();
    loop {
        if let Some(seq) = newest() {
            read(seq, &mut tally);
            if seq + 1 == job.frames {
                return tally;
            }
        }
    }
}

/// Copies a borrowed frame, then looks whether it was still there.
fn check_copy(job: Job, frame: &Borrowed, buffer: &mut [u8], tally: &mut Tally) {
    let record = frame.record();
    let bytes = &mut buffer[..record.header.values_len_bytes as usize];
    let valid = frame.copy_to(bytes);
    tally.judge(record.seq, job.describes(record) && is_payload(record.seq, bytes), valid);
}

/// Looks at the payload where it lies, and only then asks whether that counts.
fn check_view(job: Job, frame: &Borrowed, tally: &mut Tally) {
    let record = frame.record();
    let words = u64::from(record.header.values_len_bytes / 8);
    let start: *const u64 = frame.payload().unwrap().cast();
    // SAFETY: mapped as long as `frame` lives; aligned, because superblock and strides are multiples of 64.
    let read = |i: u64| unsafe { start.add(i as usize).read_volatile() };
    let whole = job.describes(record) && (0..words).all(|i| read(i) == word(record.seq, i));
    tally.judge(record.seq, whole, frame.still_valid());
}

fn read_mapped(
    job: Job,
    address: &RingAddress,
    bases: &BaseDirs,
    check: impl Fn(&Borrowed, &mut Tally),
) -> Tally {
    let ring = Arc::new(RingReader::open(address, bases, false).unwrap());
    let read = |seq, tally: &mut Tally| match ring.read(seq) {
        Ok(frame) => check(&frame, tally),
        Err(reason) => tally.drop(seq, reason),
    };
    read_newest(job, || ring.newest(), read)
}

fn read_copies(job: Job, address: &RingAddress, bases: &BaseDirs) -> Tally {
    let buffer = RefCell::new(vec![0; job.max_bytes as usize]);
    read_mapped(job, address, bases, |frame, tally| check_copy(job, frame, &mut buffer.borrow_mut(), tally))
}

fn read_views(job: Job, address: &RingAddress, bases: &BaseDirs) -> Tally {
    read_mapped(job, address, bases, |frame, tally| check_view(job, frame, tally))
}

fn read_snapshots(job: Job, address: &RingAddress, bases: &BaseDirs) -> Tally {
    let ring = SnapshotReader::open(address, bases, false).unwrap();
    let allocate = |record: &FrameRecord| vec![0; record.header.values_len_bytes as usize];
    let read = |seq, tally: &mut Tally| match ring.read(seq, allocate) {
        Ok((record, bytes)) => tally.judge(seq, job.describes(&record) && is_payload(seq, &bytes), true),
        Err(reason) => tally.drop(seq, reason),
    };
    read_newest(job, || ring.newest(), read)
}

/// Follows the ring as a consumer does: in order, asleep while there is nothing.
fn follow(job: Job, address: &RingAddress, bases: &BaseDirs) -> Tally {
    let ring = Arc::new(RingReader::open(address, bases, false).unwrap());
    let (mut cursor, drops, mut tally) = (Cursor::default(), DropCounters::default(), Tally::default());
    let mut buffer = vec![0; job.max_bytes as usize];
    while cursor.next_seq() < job.frames {
        match cursor.poll(&ring, &drops) {
            Polled::Frame(frame) => check_copy(job, &frame, &mut buffer, &mut tally),
            Polled::Idle if !ring.doorbell().wait(cursor.bell(&ring), Duration::from_millis(10)) => {
                cursor.search_again()
            }
            Polled::Idle => {}
        }
    }
    let other = DropReason::ALL.iter().filter(|reason| !reason.is_late() && drops.get(**reason) > 0);
    assert_eq!(other.collect::<Vec<_>>(), Vec::<&DropReason>::new(), "a torn header was believed");
    tally.late += drops.late();
    tally
}

/// Stops itself in the middle of its second frame, and goes on after it was told to.
fn write_and_stop(job: Job, address: &RingAddress, bases: &BaseDirs) {
    let mut writer = RingWriter::open(address, bases).unwrap();
    for seq in 0..2 {
        let bytes = payload(seq, job.header(seq).values_len_bytes);
        let claim = writer.claim(bytes.len() as u64, None).unwrap();
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        writer.copy_into(&claim, 0, first);
        if seq == 1 {
            kill_process(getpid(), Signal::STOP).unwrap();
            // Another thread may take the signal, which then stops this one a little later.
            std::io::stdin().read_line(&mut String::new()).unwrap();
        }
        writer.copy_into(&claim, first.len() as u32, rest);
        writer.commit(&claim, &job.header(seq)).unwrap();
    }
}

type ReaderRole = fn(Job, &RingAddress, &BaseDirs) -> Tally;

const READERS: [(&str, ReaderRole); 4] =
    [("copies", read_copies), ("views", read_views), ("snapshots", read_snapshots), ("follower", follow)];

#[test]
#[ignore = "the other tests start it, as a writer or a reader"]
fn play_a_role() {
    let (Ok(role), Ok(job)) = (std::env::var(ROLE), std::env::var(JOB)) else { return };
    let (dir, numbers) = job.split_once(' ').unwrap();
    let numbers: Vec<u64> = numbers.split(' ').map(|n| n.parse().unwrap()).collect();
    let job = Job { nslots: numbers[0] as u32, max_bytes: numbers[1] as u32, frames: numbers[2] };
    let (address, bases) = (job.address(Path::new(dir)), BaseDirs::open([dir]).unwrap());
    match role.as_str() {
        "writer" => write(job, &address, &bases),
        "stopping writer" => write_and_stop(job, &address, &bases),
        reader => {
            let (_, read) = READERS.iter().find(|(name, _)| *name == reader).unwrap();
            let tally = read(job, &address, &bases);
            eprintln!("tally {} {} {}", tally.accepted, tally.late, tally.torn);
        }
    }
}

// --- the hunt -------------------------------------------------------------------------------------

fn start(role: &str, job: Job, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["play_a_role", "--exact", "--ignored", "--nocapture"])
        .env(ROLE, role)
        .env(JOB, format!("{} {} {} {}", dir.display(), job.nslots, job.max_bytes, job.frames))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the end of a process; panics with what it said if it failed.
fn finish(role: &str, child: Child) -> Tally {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{role}: {said}");
    let numbers: Option<Vec<u64>> = said
        .lines()
        .find_map(|line| Some(line.strip_prefix("tally ")?.split(' ').map(|n| n.parse().unwrap()).collect()));
    numbers.map_or(Tally::default(), |n| Tally { accepted: n[0], late: n[1], torn: n[2] })
}

/// Runs one writer and all readers on a fresh ring.
fn hunt(job: Job) -> [Tally; READERS.len()] {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    create_ring(dir.path(), job.geometry(), CreateOptions::default()).unwrap();
    let readers = READERS.map(|(name, _)| (name, start(name, job, dir.path())));
    finish("writer", start("writer", job, dir.path()));
    let tallies = readers.map(|(name, child)| (name, finish(name, child)));
    println!("{job:?}: {tallies:?}");
    tallies.map(|(_, tally)| tally)
}

/// `frames` through each of three small rings, and a few large ones, of which some parts go past the cache.
fn hunt_everywhere(frames: u64) {
    let small = [1, 2, 8].map(|nslots| Job { nslots, max_bytes: 4096, frames });
    let large = [1, 2].map(|nslots| Job { nslots, max_bytes: 4 << 20, frames: frames / 2000 });
    let mut totals = [Tally::default(); READERS.len()];
    for job in small.into_iter().chain(large) {
        for (total, tally) in totals.iter_mut().zip(hunt(job)) {
            total.accepted += tally.accepted;
            total.late += tally.late;
            total.torn += tally.torn;
        }
    }
    for ((name, _), total) in READERS.iter().zip(totals) {
        assert!(total.accepted > 0, "{name}: no frame was ever accepted, which proves nothing");
    }
    let (late, torn) = totals.iter().fold((0, 0), |sum, total| (sum.0 + total.late, sum.1 + total.torn));
    assert!(late > 0 && torn > 0, "{late} late, {torn} torn: nobody was in danger, which proves nothing");
}

// req: WIRE-8.3-6, WIRE-8.3-18, WIRE-15.4-1, WIRE-15.13-2
#[test]
fn a_million_frames_without_a_torn_one() {
    hunt_everywhere(1_000_000 / 3);
}

// req: WIRE-8.3-6, WIRE-8.3-18, WIRE-15.13-2
#[test]
#[ignore = "slow: run by `make torn-frames`"]
fn ten_million_frames_without_a_torn_one() {
    hunt_everywhere(10_000_000 / 3);
}

// req: WIRE-8.3-2, WIRE-8.3-10, WIRE-15.21-1, WIRE-15.21-2, WIRE-15.21-3
#[test]
fn a_writer_stopped_in_the_middle_of_a_frame_is_neither_believed_nor_waited_for() {
    let job = Job { nslots: 2, max_bytes: 4096, frames: 2 };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    create_ring(dir.path(), job.geometry(), CreateOptions::default()).unwrap();
    let (address, bases) = (job.address(dir.path()), BaseDirs::open([dir.path()]).unwrap());
    let ring = Arc::new(RingReader::open(&address, &bases, false).unwrap());
    let snapshots = SnapshotReader::open(&address, &bases, false).unwrap();
    let drops = DropCounters::default();
    let mut cursor = Cursor::default();

    let mut writer = start("stopping writer", job, dir.path());
    let pid = Pid::from_raw(writer.id() as i32).unwrap();
    let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped(), "{status:?}");

    assert!(matches!(cursor.poll(&ring, &drops), Polled::Frame(frame) if frame.record().seq == 0));
    for _ in 0..1000 {
        assert_eq!(ring.peek(1), Commit::in_progress(1));
        assert_eq!(ring.read(1).map(drop), Err(DropReason::InProgress));
        assert_eq!(snapshots.read(1, |_| vec![0; 4096]).map(drop), Err(DropReason::InProgress));
        assert!(matches!(cursor.poll(&ring, &drops), Polled::Idle));
        let mut tally = Tally::default();
        check_copy(job, &ring.read(0).unwrap(), &mut vec![0; 4096], &mut tally);
        assert_eq!(tally.accepted, 1, "the frame before it is not disturbed");
    }

    kill_process(pid, Signal::CONT).unwrap();
    writeln!(writer.stdin.take().unwrap(), "go on").unwrap();
    finish("writer", writer);
    let mut tally = Tally::default();
    check_copy(job, &ring.read(1).unwrap(), &mut vec![0; 4096], &mut tally);
    assert_eq!(tally.accepted, 1);
    assert!(matches!(cursor.poll(&ring, &drops), Polled::Frame(frame) if frame.record().seq == 1));
    assert_eq!(cursor.gaps(), 0);
}
