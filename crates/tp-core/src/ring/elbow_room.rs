//! A core for whoever looks for a frame, other than its writer's.
//!
//! Looking for a frame on the very core that fills it is no looking: the reader gives the core away, and has it back when the
//! writer goes to sleep, after all that a writer does once its frame is there. Kernels put the two together where a core
//! that rests seems not to be available, as on virtual machines, whose resting cores are away with the host.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Who gave the core away for longer than this gave it to somebody with work to do.
const HELD_UP_NS: u64 = 4_000;
/// So many frames in a row came while somebody else had the core; of more where moving was in vain.
const PROOF: u32 = 2;
const LONGEST_PROOF: u32 = 128;
/// So many frames in a row without that, and it was not in vain.
const PEACE: u32 = 4;

/// Whether a reader has a core while it looks.
#[derive(Debug)]
pub(super) struct ElbowRoom {
    /// Frames in a row that came while somebody else had the core, or while nobody had.
    crowded: u32,
    calm: u32,
    proof: u32,
}

impl Default for ElbowRoom {
    fn default() -> Self {
        Self { crowded: 0, calm: 0, proof: PROOF }
    }
}

impl ElbowRoom {
    /// A frame was found; right before that the core was given away for so long.
    pub(super) fn found(&mut self, away_ns: u64) {
        if away_ns > HELD_UP_NS {
            (self.crowded, self.calm) = (self.crowded + 1, 0);
            return;
        }
        (self.crowded, self.calm) = (0, self.calm + 1);
        if self.calm >= PEACE {
            self.proof = PROOF;
        }
    }

    /// Fell asleep on one core and was woken on another by the bell: that one is its ringer's.
    pub(super) fn woken(&mut self, asleep_on: usize, woken_on: usize) {
        if asleep_on != woken_on {
            (self.crowded, self.calm) = (self.crowded + PROOF, 0);
        }
    }

    /// Is there no room on this core? Asked once: to move in vain costs more proof the next time.
    fn is_crowded_out(&mut self) -> bool {
        if self.crowded < self.proof {
            return false;
        }
        (self.crowded, self.calm) = (0, 0);
        self.proof = (2 * self.proof).min(LONGEST_PROOF);
        true
    }

    /// Goes to another core if there was no room on this one; at a time when nothing is due, since it takes a while.
    pub(super) fn seek(&mut self) {
        if self.is_crowded_out() {
            leave_core(sched_getcpu());
        }
    }
}

/// Moves the calling thread to another core that it may run on, and lets it run wherever it might before.
fn leave_core(core: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let others = other_cores(core, &allowed);
    if others.count() == 0 || sched_setaffinity(None, &others).is_err() {
        return;
    }
    // Somebody else may have changed it meanwhile; that is what counts then.
    if sched_getaffinity(None).is_ok_and(|now| now == others) {
        let _ = sched_setaffinity(None, &allowed);
    }
}

/// Those that share their last cache with `core`, if there are any; frames are far away from the others.
fn other_cores(core: usize, allowed: &CpuSet) -> CpuSet {
    let sharing =
        fs::read_to_string(format!("/sys/devices/system/cpu/cpu{core}/cache/index3/shared_cpu_list"));
    let (mut others, mut near) = (*allowed, CpuSet::new());
    others.unset(core);
    for other in sharing.iter().flat_map(|list| cores_in(list)).filter(|core| others.is_set(*core)) {
        near.set(other);
    }
    if near.count() > 0 { near } else { others }
}

/// The numbers in a list such as `0-3,8`.
fn cores_in(list: &str) -> impl Iterator<Item = usize> {
    list.trim().split(',').flat_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) => first..(last + 1).min(CpuSet::MAX_CPU),
            _ => 0..0,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAY: u64 = HELD_UP_NS + 1;

    /// After how many frames that came while it was away does it move?
    fn frames_until_it_moves(room: &mut ElbowRoom) -> u32 {
        (1..)
            .find(|_| {
                room.found(AWAY);
                room.is_crowded_out()
            })
            .unwrap()
    }

    #[test]
    fn who_shares_a_core_moves_and_less_and_less_often_where_that_is_in_vain() {
        let mut room = ElbowRoom::default();
        for proof in [2, 4, 8, 16] {
            assert_eq!(frames_until_it_moves(&mut room), proof);
            assert!(!room.is_crowded_out(), "once");
        }
        for _ in 0..20 {
            frames_until_it_moves(&mut room);
        }
        assert_eq!(frames_until_it_moves(&mut room), LONGEST_PROOF);
        (0..PEACE).for_each(|_| room.found(0));
        assert_eq!(frames_until_it_moves(&mut room), PROOF, "the last move was not in vain");
    }

    #[test]
    fn single_frames_prove_nothing() {
        let mut room = ElbowRoom::default();
        for _ in 0..100 {
            room.found(AWAY);
            room.found(HELD_UP_NS);
            assert!(!room.is_crowded_out());
        }
    }

    #[test]
    fn a_bell_that_pulls_its_reader_to_another_core_is_proof() {
        let mut room = ElbowRoom::default();
        room.woken(1, 1);
        assert!(!room.is_crowded_out());
        room.woken(1, 0);
        assert!(room.is_crowded_out());
        room.woken(1, 0);
        assert!(!room.is_crowded_out(), "moving away was in vain");
        room.woken(1, 0);
        assert!(room.is_crowded_out());
    }

    #[test]
    fn lists_of_cores() {
        let read = |list| cores_in(list).collect::<Vec<_>>();
        assert_eq!(read("0-1\n"), [0, 1]);
        assert_eq!(read("3"), [3]);
        assert_eq!(read("0-2,8,10-11\n"), [0, 1, 2, 8, 10, 11]);
        for nonsense in ["", "\n", "a-b", "5-", "-", "9-3", "1-99999999999999999999"] {
            assert_eq!(read(nonsense), [0; 0], "{nonsense:?}");
        }
        assert!(read("0-18446744073709551614").len() <= CpuSet::MAX_CPU);
    }

    /// On a thread of its own: it must not matter to other tests where they run.
    #[test]
    fn leaving_a_core_changes_nothing_but_the_core() {
        let left = std::thread::spawn(|| {
            let allowed = sched_getaffinity(None).unwrap();
            let moved = (0..100).any(|_| {
                let core = sched_getcpu();
                leave_core(core);
                sched_getcpu() != core
            });
            assert_eq!(moved, allowed.count() > 1, "the kernel may move it back at any one time");
            assert!(sched_getaffinity(None).unwrap() == allowed);

            let mut pinned = CpuSet::new();
            pinned.set(sched_getcpu());
            sched_setaffinity(None, &pinned).unwrap();
            leave_core(sched_getcpu());
            assert!(sched_getaffinity(None).unwrap() == pinned, "who may run on one core stays there");
        });
        left.join().unwrap();
    }

    #[test]
    fn cores_nearby_come_first() {
        let mut allowed = CpuSet::new();
        (0..4).for_each(|core| allowed.set(core));
        let others = other_cores(0, &allowed);
        assert!(!others.is_set(0) && others.count() >= 1);
        assert!((1..4).any(|core| others.is_set(core)));
        assert_eq!(other_cores(CpuSet::MAX_CPU - 1, &allowed).count(), 4, "nobody knows who is near");
    }
}
