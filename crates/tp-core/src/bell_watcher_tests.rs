use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::region::{BaseDirs, CreateOptions};
use crate::ring::{Geometry, Pool, ReadMode, RingAddress, RingWriter, create_ring};
use crate::slot::FrameHeader;
use crate::tensor::{Dtype, MajorOrder, ProgressUnit, Tensor};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(30);

struct Ring {
    dir: tempfile::TempDir,
    address: RingAddress,
    writer: RingWriter,
}

fn ring() -> Ring {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let pools = vec![Pool { pool_id: 1, stride_bytes: 64 }];
    let geometry = Geometry { stream_id: 1, epoch: 1, nslots: 4, pools };
    let address = create_ring(dir.path(), geometry, CreateOptions::default()).unwrap();
    let writer = RingWriter::open(&address, &bases(dir.path())).unwrap();
    Ring { dir, address, writer }
}

fn bases(dir: &Path) -> BaseDirs {
    BaseDirs::open([dir]).unwrap()
}

impl Ring {
    fn watched(&self, mode: ReadMode) -> Arc<Watched> {
        let source = AnyReader::open(&self.address, &bases(self.dir.path()), mode, false).unwrap();
        let bell = source.bell();
        Arc::new(Watched::new(source, new_event().unwrap(), bell, self.writer.next_seq()))
    }

    fn commit(&mut self, seq: Option<u64>) {
        let tensor = Tensor::new(Dtype::U8, MajorOrder::Row, ProgressUnit::None, &[1], &[]).unwrap();
        let header = FrameHeader { tensor, values_len_bytes: 1, timestamp_ns: 0, meta_version: 0 };
        let claim = self.writer.claim(1, seq).unwrap();
        self.writer.commit(&claim, &header).unwrap();
    }
}

fn readable(watched: &impl AsFd, timeout: Duration) -> bool {
    let timeout = Timespec { tv_sec: timeout.as_secs() as _, tv_nsec: timeout.subsec_nanos().into() };
    poll(&mut [PollFd::new(watched, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

/// Runs `test` beside a watcher with this look interval, and ends it.
fn watching(look_interval: Duration, test: impl FnOnce(&BellWatcher)) {
    let watcher = BellWatcher::new(look_interval);
    std::thread::scope(|scope| {
        scope.spawn(|| watcher.run());
        struct Closing<'a>(&'a BellWatcher);
        impl Drop for Closing<'_> {
            fn drop(&mut self) {
                self.0.close();
            }
        }
        let closing = Closing(&watcher);
        test(closing.0);
    });
}

#[test]
fn a_ring_makes_its_own_descriptor_readable_until_cleared() {
    for mode in [ReadMode::Map, ReadMode::Copy] {
        watching(LONG, |watcher| {
            let (first, second) = (ring(), ring());
            let watched = [first.watched(mode), second.watched(mode)];
            assert!(watched.iter().all(|watched| watcher.add(watched)));
            for _ in 0..3 {
                assert!(!readable(&watched[0], SHORT));
                first.writer.ring(u32::MAX >> 1);
                assert!(readable(&watched[0], LONG) && !readable(&watched[1], Duration::ZERO));
                watched[0].clear();
                watched[0].clear();
            }
        });
    }
}

#[test]
fn somebody_elses_event_is_rung_over_several_rings() {
    watching(LONG, |watcher| {
        let event = new_event().unwrap();
        for _ in 0..3 {
            let ring = ring();
            let source =
                AnyReader::open(&ring.address, &bases(ring.dir.path()), ReadMode::Map, false).unwrap();
            let bell = source.bell();
            let own = duplicate_event(event.as_fd()).unwrap();
            let watched = Arc::new(Watched::new(source, own, bell, 0));
            assert!(watcher.add(&watched));
            ring.writer.ring(1);
            assert!(readable(&event, LONG));
            watched.clear();
            assert!(!readable(&event, Duration::ZERO));
            watcher.remove(&watched);
        }
    });
}

#[test]
fn only_events_that_never_block_are_taken() {
    let file = tempfile::tempfile().unwrap();
    let blocking = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    for (fd, why) in [(file.as_fd(), "not an eventfd"), (blocking.as_fd(), "EFD_NONBLOCK")] {
        let error = duplicate_event(fd).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn what_rang_before_it_was_added_counts() {
    watching(LONG, |watcher| {
        let ring = ring();
        let watched = ring.watched(ReadMode::Map);
        ring.writer.ring(1);
        watcher.add(&watched);
        assert!(readable(&watched, LONG));
    });
}

#[test]
fn frames_of_producers_that_never_ring_are_found_and_told_once() {
    watching(Duration::from_millis(5), |watcher| {
        let mut ring = ring();
        let watched = ring.watched(ReadMode::Map);
        watcher.add(&watched);
        for skipped in [None, None, Some(7), None] {
            ring.commit(skipped);
            assert!(readable(&watched, LONG));
            watched.clear();
            assert!(!readable(&watched, SHORT), "once is enough");
        }
        // Numbers that land in a slot the watcher does not look at are found by the search.
        ring.commit(Some(ring.writer.next_seq() + 2));
        assert!(readable(&watched, LONG));
    });
}

#[test]
fn frames_that_were_rung_for_are_not_told_again() {
    watching(Duration::from_millis(5), |watcher| {
        let mut ring = ring();
        let watched = ring.watched(ReadMode::Map);
        watcher.add(&watched);
        ring.commit(None);
        ring.writer.ring(1);
        assert!(readable(&watched, LONG));
        watched.clear();
        assert!(!readable(&watched, SHORT));
    });
}

#[test]
fn a_removed_ring_is_let_go() {
    watching(LONG, |watcher| {
        let ring = ring();
        let (watched, other) = (ring.watched(ReadMode::Map), ring.watched(ReadMode::Map));
        watcher.add(&watched);
        watcher.add(&other);
        ring.writer.ring(1);
        assert!(readable(&watched, LONG) && readable(&other, LONG));
        watched.clear();
        watcher.remove(&watched);
        watcher.remove(&watched);
        other.clear();
        ring.writer.ring(1);
        assert!(readable(&other, LONG));
        // The thread has seen both changes by now.
        assert!(!readable(&watched, Duration::ZERO));
        let deadline = Instant::now() + LONG;
        while Arc::strong_count(&watched) > 1 {
            assert!(Instant::now() < deadline, "the thread still holds the ring");
            std::thread::yield_now();
        }
    });
}

#[test]
fn more_rings_than_the_kernel_waits_for_at_once() {
    watching(LONG, |watcher| {
        let rings: Vec<_> = (0..MAX_TOGETHER + 3).map(|_| ring()).collect();
        let watched: Vec<_> = rings.iter().map(|ring| ring.watched(ReadMode::Map)).collect();
        watched.iter().for_each(|watched| assert!(watcher.add(watched)));
        for at in [0, MAX_TOGETHER - 1, MAX_TOGETHER, MAX_TOGETHER + 2] {
            rings[at].writer.ring(1);
            assert!(readable(&watched[at], LONG));
            watched[at].clear();
        }
        assert!(!watched.iter().any(|watched| readable(watched, Duration::ZERO)));
    });
}

#[test]
fn closing_wakes_everybody_and_takes_no_more() {
    let watcher = BellWatcher::new(LONG);
    let ring = ring();
    let watched = ring.watched(ReadMode::Map);
    assert!(watcher.add(&watched));
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| watcher.run());
        assert!(!watcher.is_closed());
        watcher.close();
        thread.join().unwrap();
    });
    assert!(watcher.is_closed() && readable(&watched, Duration::ZERO));
    assert!(!watcher.add(&watched));
}

#[test]
fn a_file_that_was_cut_off_ends_nothing_in_copy_mode() {
    watching(Duration::from_millis(2), |watcher| {
        let (cut, whole) = (ring(), ring());
        let watched = [cut.watched(ReadMode::Copy), whole.watched(ReadMode::Copy)];
        watched.iter().for_each(|watched| assert!(watcher.add(watched)));
        let path = cut.dir.path().join("header.ring");
        std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(0).unwrap();
        whole.writer.ring(1);
        assert!(readable(&watched[1], LONG));
    });
}
