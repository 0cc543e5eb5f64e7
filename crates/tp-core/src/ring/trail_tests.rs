//! Cursors on rings whose slots lie.

use super::cursors::drain;
use super::*;
use crate::seqlock::MAX_SEQ;
use crate::slot::slot_index;

const FAR: u64 = 1 << 40;

/// A ring that is written and read, and somebody else who scribbles into it.
struct Scene {
    ring: Ring,
    writer: RingWriter,
    reader: Arc<RingReader>,
    cursor: Cursor,
    drops: DropCounters,
}

impl Scene {
    fn new(nslots: u32) -> Self {
        let ring = ring(nslots, &[64]);
        let (writer, reader) = (ring.writer(), ring.reader());
        Self { ring, writer, reader, cursor: Cursor::default(), drops: DropCounters::default() }
    }

    fn publish(&mut self) -> u64 {
        let seq = publish(&mut self.writer, &[1]);
        self.writer.ring(1);
        seq
    }

    fn publish_all(&mut self, frames: u32) {
        for _ in 0..frames {
            self.publish();
        }
    }

    fn scribble(&self, slot: u32, word: Commit) {
        self.ring.raw().word(slot_offset(slot)).store(word.0, Ordering::Release);
    }

    /// Has the slot where frame `seq` belongs claim to hold it.
    fn claim(&self, seq: u64) {
        self.scribble(slot_index(seq, self.reader.geometry().nslots), Commit::committed(seq));
    }

    fn drain(&mut self) -> Vec<u64> {
        drain(&mut self.cursor, &self.reader, &self.drops)
    }

    /// Publishes so many frames, each of which is to be read at once.
    fn expect_all_of_the_next(&mut self, frames: u32) {
        for _ in 0..frames {
            let seq = self.publish();
            assert!(self.cursor.has_next(&self.reader));
            assert_eq!(self.drain(), [seq]);
        }
    }
}

// req: WIRE-15.3-1
#[test]
fn a_lie_costs_the_frame_in_its_place_and_no_other() {
    let mut scene = Scene::new(4);
    scene.publish();
    assert_eq!(scene.drain(), [0]);
    scene.publish_all(2);
    scene.claim(FAR + 1);
    assert_eq!(scene.drain(), [FAR + 1], "it may be true");
    assert_eq!(scene.publish(), 3);
    assert!(scene.cursor.has_next(&scene.reader));
    assert_eq!(scene.drain(), [2, 3], "frames come behind it: it was none");
    assert_eq!((scene.drops.get(DropReason::Stale), scene.cursor.gaps()), (1, 1));
    scene.expect_all_of_the_next(20);
    assert_eq!(scene.cursor.gaps(), 1, "it was overwritten, and then nobody believes in it any more");
}

#[test]
fn numbers_in_slots_of_others_are_no_frames() {
    for nslots in [2, 8] {
        for latest in [false, true] {
            let mut scene = Scene::new(nslots);
            scene.publish_all(20);
            scene.drain();
            scene.scribble(slot_index(20 + 1, nslots), Commit::committed(FAR));
            assert!(!scene.cursor.has_next(&scene.reader), "who waits for frames would never sleep");
            if latest {
                let newest = scene.cursor.newest(&scene.reader).unwrap();
                assert!(newest < 20);
                scene.cursor.seek_seen(newest + 1);
            }
            assert_eq!(scene.drain(), []);
            scene.expect_all_of_the_next(3 * nslots);
            assert_eq!(scene.drops.get(DropReason::Stale), 0);
        }
    }
}

#[test]
fn several_lies_are_found_out_however_they_follow() {
    let mut scene = Scene::new(8);
    scene.publish_all(20);
    scene.drain();
    let gaps = scene.cursor.gaps();
    scene.claim(FAR + 4);
    assert_eq!(scene.drain(), [FAR + 4]);
    scene.claim(FAR - 5); // an older one is not even read
    scene.claim(2 * FAR + 5);
    assert_eq!(scene.drain(), [2 * FAR + 5]);
    let read: Vec<_> = (0..20)
        .flat_map(|_| {
            scene.publish();
            scene.drain()
        })
        .filter(|seq| *seq < FAR - 5)
        .collect();
    assert_eq!(read, (20..40).collect::<Vec<_>>());
    assert_eq!(scene.cursor.gaps(), gaps);
}

#[test]
fn who_begins_at_a_lie_reads_what_comes_then() {
    for behind in [0, 1] {
        let mut scene = Scene::new(8);
        scene.publish_all(20);
        scene.claim(FAR + 3);
        let newest = scene.cursor.newest(&scene.reader).unwrap();
        assert_eq!(newest, FAR + 3);
        scene.cursor.seek_seen(newest + behind);
        scene.drain();
        assert_eq!(scene.publish(), 20);
        assert_eq!(scene.drain(), [20]);
        assert_eq!(scene.cursor.newest(&scene.reader), Some(20));
        scene.expect_all_of_the_next(20);
        assert_eq!(scene.cursor.gaps(), 1, "frame 19, in whose slot the lie stood");
    }
}

#[test]
fn who_waits_for_a_frame_that_is_far_ahead_waits() {
    let mut scene = Scene::new(4);
    scene.cursor.seek(50);
    for seq in 0..60 {
        assert_eq!(scene.publish(), seq);
        assert_eq!(scene.drain(), if seq < 50 { vec![] } else { vec![seq] });
    }
    assert_eq!(scene.drops.get(DropReason::Stale), 0);
}

#[test]
fn a_writer_that_jumps_is_followed() {
    let mut scene = Scene::new(4);
    scene.expect_all_of_the_next(3);
    let mut seq = 3;
    for step in [1, 1000, 1, 1, FAR, 1, 1, 1, 1, 1, 1, 1000] {
        seq += step;
        let claim = scene.writer.claim(1, Some(seq)).unwrap();
        scene.writer.commit(&claim, &bytes_header(1)).unwrap();
        scene.writer.ring(1);
        assert_eq!(scene.drain(), [seq]);
    }
    assert_eq!(scene.drops.get(DropReason::Stale), 0);
    assert_eq!(scene.cursor.gaps(), seq - 14);
}

#[test]
fn what_is_left_unread_is_never_more_than_there_was() {
    let mut scene = Scene::new(8);
    assert_eq!(scene.cursor.unread(&scene.reader), 0);
    scene.publish_all(3);
    assert_eq!(scene.cursor.unread(&scene.reader), 3);
    scene.publish_all(17);
    assert_eq!(scene.cursor.unread(&scene.reader), 20, "those that were overwritten, too");
    scene.claim(MAX_SEQ / 8 * 8 + 3);
    assert_eq!(scene.cursor.unread(&scene.reader), 20, "a lie is no frame");
}

/// A small generator of numbers, so that a failure can be repeated.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[test]
fn whatever_is_scribbled_frames_are_read_again_once_it_is_overwritten() {
    for seed in 0..300 {
        let mut chance = Chance(seed);
        let nslots = 1 << chance.below(5);
        let mut scene = Scene::new(nslots);
        for _ in 0..chance.below(400) {
            match chance.below(4) {
                0 => {
                    let bits = (chance.below(30), chance.below(33));
                    let number = chance.below(1 << bits.0) << bits.1;
                    let slot = chance.below(nslots.into()) as u32;
                    // Half of them where they belong.
                    let seq = if chance.below(2) == 0 {
                        number
                    } else {
                        number / u64::from(nslots) * u64::from(nslots) + u64::from(slot)
                    };
                    scene.scribble(slot, Commit(seq << 1 | u64::from(chance.below(4) > 0)));
                }
                1 => scene.publish_all(1),
                2 => {
                    scene.cursor.has_next(&scene.reader);
                    scene.drain();
                }
                _ => {
                    if let Some(newest) = scene.cursor.newest(&scene.reader).filter(|_| chance.below(4) == 0)
                    {
                        scene.cursor.seek_seen(newest);
                    }
                }
            }
        }
        // Each slot is written again, and then all that was believed is found out.
        for _ in 0..12 * nslots {
            scene.publish();
            scene.drain();
        }
        let published: Vec<_> = (0..5).map(|_| scene.publish()).collect();
        let read = scene.drain();
        assert!(
            published.ends_with(&read) && !read.is_empty(),
            "seed {seed}: {read:?} of {published:?}, {nslots} slots"
        );
        assert_eq!(scene.drain(), [], "seed {seed}");
        scene.expect_all_of_the_next(2 * nslots);
    }
}
