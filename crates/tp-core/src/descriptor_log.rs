//! What the descriptors of one stream said lately.
//!
//! The ring is the truth and the descriptor a hint (decision M16): this log only answers what a descriptor said of a
//! frame that was found in the ring. It is a plain state machine; who receives the messages is not its business.

use std::collections::VecDeque;

use crate::hot::FrameDescriptor;

/// Publications of one stream that are told apart; there should be one, and one more after a restart.
const MAX_SESSIONS: usize = 16;

/// What became of descriptors.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorCounts {
    /// Of the epoch that is followed.
    pub received: u64,
    /// Of an earlier epoch: ignored (decision L1).
    pub lower_epochs: u64,
    /// Of a later epoch: dropped; the announce will follow (decision L2).
    pub higher_epochs: u64,
    /// Numbers that went back within one publication and epoch.
    pub regressions: u64,
}

/// The descriptors of one stream and epoch, the newest `capacity` of them.
#[derive(Debug)]
pub struct DescriptorLog {
    stream_id: u32,
    capacity: usize,
    /// The epoch that is followed; as long as nobody has said which, the highest one seen.
    epoch: Option<u64>,
    /// Whether somebody has said which epoch to follow.
    is_set: bool,
    highest_epoch: Option<u64>,
    /// The first frame whose descriptor is worth a wait: those before it were sent before anybody listened.
    awaited_from: Option<u64>,
    /// The last wait was in vain, and no newer one has come since.
    gave_up: bool,
    /// By ascending sequence number, which is almost always the order of arrival.
    entries: VecDeque<FrameDescriptor>,
    /// How many of this epoch had to make room.
    evicted: u64,
    /// The last sequence number of each publication, the latest publication last.
    sessions: VecDeque<(i32, u64)>,
    counts: DescriptorCounts,
}

impl DescriptorLog {
    /// An empty log that keeps up to `capacity` descriptors of a stream.
    pub fn new(stream_id: u32, capacity: usize) -> Self {
        Self {
            stream_id,
            capacity: capacity.max(1),
            epoch: None,
            is_set: false,
            highest_epoch: None,
            awaited_from: None,
            gave_up: false,
            entries: VecDeque::new(),
            evicted: 0,
            sessions: VecDeque::new(),
            counts: DescriptorCounts::default(),
        }
    }

    /// The stream.
    pub fn stream_id(&self) -> u32 {
        self.stream_id
    }

    /// What became of descriptors so far.
    pub fn counts(&self) -> DescriptorCounts {
        self.counts
    }

    /// The highest epoch that any descriptor of the stream named.
    pub fn highest_epoch(&self) -> Option<u64> {
        self.highest_epoch
    }

    /// Follows an epoch from now on. What was kept of it stays, everything else is forgotten.
    ///
    /// Descriptors of the frames from `awaited_from` on will come, as far as anybody knows; without it, of none.
    pub fn set_epoch(&mut self, epoch: u64, awaited_from: Option<u64>) {
        self.is_set = true;
        self.begin(epoch);
        self.awaited_from = awaited_from;
        self.gave_up = false;
    }

    /// Whether the descriptor of a frame may still be on its way: a reader may find a frame in the ring before it was
    /// described, or before its own client has learned of a new producer's publication.
    pub fn may_come(&self, epoch: u64, seq: u64) -> bool {
        self.epoch == Some(epoch)
            && !self.gave_up
            && self.awaited_from.is_some_and(|first| seq >= first)
            && self.entries.back().is_none_or(|newest| newest.seq < seq)
    }

    /// Nothing came for long enough: none is awaited until a newer one comes.
    pub fn give_up(&mut self) {
        self.gave_up = true;
    }

    fn begin(&mut self, epoch: u64) {
        if self.epoch != Some(epoch) {
            self.epoch = Some(epoch);
            self.entries.clear();
            self.evicted = 0;
            self.sessions.clear();
        }
    }

    /// Takes a descriptor of this stream that publication `session_id` sent. Others change nothing (decision L4).
    pub fn record(&mut self, session_id: i32, descriptor: &FrameDescriptor) {
        if descriptor.stream_id != self.stream_id {
            return;
        }
        let (epoch, seq) = (descriptor.epoch, descriptor.seq);
        self.highest_epoch = self.highest_epoch.max(Some(epoch));
        match self.epoch {
            Some(followed) if epoch < followed => {
                self.counts.lower_epochs += 1;
                return;
            }
            Some(followed) if epoch > followed && self.is_set => {
                self.counts.higher_epochs += 1;
                return;
            }
            _ => self.begin(epoch),
        }
        self.counts.received += 1;
        self.note_session(session_id, seq);
        match self.entries.back() {
            Some(newest) if seq <= newest.seq => match self.position(seq) {
                Ok(known) => self.entries[known] = *descriptor,
                Err(place) => self.entries.insert(place, *descriptor),
            },
            _ => {
                self.entries.push_back(*descriptor);
                self.gave_up = false;
            }
        }
        if self.entries.len() > self.capacity {
            self.entries.pop_front();
            self.evicted += 1;
        }
    }

    /// Counts a number below the last one of the same publication; the same number again is a duplicate.
    fn note_session(&mut self, session_id: i32, seq: u64) {
        // The latest publication is the one that sends.
        let known = self.sessions.iter().rposition(|(session, _)| *session == session_id);
        match known {
            Some(at) if at + 1 == self.sessions.len() => {
                let last = &mut self.sessions[at].1;
                self.counts.regressions += u64::from(seq < *last);
                *last = seq;
            }
            Some(at) => {
                let (_, last) = self.sessions.remove(at).expect("just found");
                self.counts.regressions += u64::from(seq < last);
                self.sessions.push_back((session_id, seq));
            }
            None => {
                if self.sessions.len() == MAX_SESSIONS {
                    self.sessions.pop_front();
                }
                self.sessions.push_back((session_id, seq));
            }
        }
    }

    fn position(&self, seq: u64) -> Result<usize, usize> {
        // Numbers are mostly without gaps: then the place is known.
        if let Some(back) = self.entries.back().and_then(|newest| newest.seq.checked_sub(seq)) {
            let guess = self.entries.len().checked_sub(1 + usize::try_from(back).unwrap_or(usize::MAX - 1));
            if let Some(guess) = guess.filter(|guess| self.entries[*guess].seq == seq) {
                return Ok(guess);
            }
        }
        self.entries.binary_search_by_key(&seq, |entry| entry.seq)
    }

    /// What was said of a frame.
    pub fn find(&self, epoch: u64, seq: u64) -> Option<FrameDescriptor> {
        if self.epoch != Some(epoch) {
            return None;
        }
        self.position(seq).ok().map(|at| self.entries[at])
    }

    /// The first frame above `seq` of which something was said; above nothing, the first of all.
    pub fn after(&self, epoch: u64, seq: Option<u64>) -> Option<FrameDescriptor> {
        if self.epoch != Some(epoch) {
            return None;
        }
        let at = seq.map_or(0, |seq| self.position(seq).map_or_else(|above| above, |known| known + 1));
        self.entries.get(at).copied()
    }

    /// How many frames were described before this one, those that are forgotten too: so a reader knows how many it missed.
    pub fn ordinal(&self, epoch: u64, seq: u64) -> Option<u64> {
        if self.epoch != Some(epoch) {
            return None;
        }
        self.position(seq).ok().map(|at| self.evicted + at as u64)
    }

    /// The descriptor with the highest sequence number.
    pub fn newest(&self) -> Option<FrameDescriptor> {
        self.entries.back().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: u32 = 7;

    fn descriptor(epoch: u64, seq: u64) -> FrameDescriptor {
        FrameDescriptor {
            stream_id: STREAM,
            epoch,
            seq,
            timestamp_ns: Some(seq * 10),
            meta_version: Some(3),
            trace_id: Some(seq + 1000),
        }
    }

    fn log(capacity: usize, epoch: u64, seqs: impl IntoIterator<Item = u64>) -> DescriptorLog {
        let mut log = DescriptorLog::new(STREAM, capacity);
        log.set_epoch(epoch, None);
        seqs.into_iter().for_each(|seq| log.record(1, &descriptor(epoch, seq)));
        log
    }

    #[test]
    fn ordinals_count_what_was_forgotten() {
        let mut log = log(4, 5, (0..10).map(|n| 3 * n));
        assert_eq!(log.ordinal(5, 27), Some(9));
        assert_eq!(log.ordinal(5, 18), Some(6), "the oldest that is kept");
        assert_eq!((log.ordinal(5, 15), log.ordinal(5, 28), log.ordinal(4, 27)), (None, None, None));
        log.set_epoch(6, None);
        log.record(1, &descriptor(6, 0));
        assert_eq!(log.ordinal(6, 0), Some(0));
    }

    #[test]
    fn frames_are_found_with_and_without_gaps() {
        let log = log(100, 5, [0, 1, 2, 5, 8, 9, 40]);
        for seq in 0..50 {
            let known = [0, 1, 2, 5, 8, 9, 40].contains(&seq);
            assert_eq!(log.find(5, seq), known.then(|| descriptor(5, seq)), "{seq}");
            assert_eq!(log.find(6, seq), None);
        }
        assert_eq!(log.newest(), Some(descriptor(5, 40)));
        let after = |seq| log.after(5, seq).map(|found| found.seq);
        assert_eq!(
            [after(None), after(Some(0)), after(Some(2)), after(Some(6)), after(Some(40))],
            [Some(0), Some(1), Some(5), Some(8), None]
        );
        assert_eq!(log.after(4, None), None);
    }

    #[test]
    fn the_oldest_go_when_it_is_full() {
        let log = log(4, 5, 0..1000);
        assert_eq!(log.entries.len(), 4);
        assert_eq!((log.find(5, 995), log.find(5, 996)), (None, Some(descriptor(5, 996))));
        assert_eq!(log.counts().received, 1000);
        assert!(log.entries.capacity() <= 16);
    }

    #[test]
    fn other_streams_change_nothing() {
        let mut log = log(4, 5, [1]);
        log.record(1, &FrameDescriptor { stream_id: 8, ..descriptor(9, 0) });
        assert_eq!((log.counts().received, log.highest_epoch()), (1, Some(5)));
        assert_eq!(log.newest(), Some(descriptor(5, 1)));
    }

    #[test]
    fn only_the_epoch_that_is_followed_is_kept() {
        let mut log = log(4, 5, [1]);
        log.record(1, &descriptor(4, 2));
        log.record(1, &descriptor(7, 0));
        log.record(1, &descriptor(6, 0));
        let counts = DescriptorCounts { received: 1, lower_epochs: 1, higher_epochs: 2, regressions: 0 };
        assert_eq!((log.counts(), log.highest_epoch()), (counts, Some(7)));
        assert_eq!(log.newest(), Some(descriptor(5, 1)));
        log.set_epoch(5, None);
        assert_eq!(log.newest(), Some(descriptor(5, 1)), "nothing changed");
        log.set_epoch(7, None);
        assert_eq!(log.newest(), None);
        log.record(1, &descriptor(7, 0));
        assert_eq!((log.newest(), log.counts().regressions), (Some(descriptor(7, 0)), 0));
    }

    #[test]
    fn before_an_epoch_is_set_the_highest_is_kept() {
        let mut log = DescriptorLog::new(STREAM, 4);
        for (epoch, seq) in [(5, 3), (6, 0), (5, 4), (6, 1)] {
            log.record(1, &descriptor(epoch, seq));
        }
        assert_eq!((log.counts().lower_epochs, log.counts().higher_epochs), (1, 0));
        log.set_epoch(6, None);
        assert_eq!((log.find(6, 0), log.newest()), (Some(descriptor(6, 0)), Some(descriptor(6, 1))));
    }

    #[test]
    fn a_descriptor_may_come_until_a_later_one_did_or_a_wait_was_in_vain() {
        let mut log = log(4, 5, [1]);
        assert!(!log.may_come(5, 2), "nobody said that any will come");
        log.set_epoch(5, Some(3));
        let may_come = |log: &DescriptorLog| [2, 3, 4].map(|seq| log.may_come(5, seq));
        assert_eq!(may_come(&log), [false, true, true], "not those from before somebody listened");
        assert!(!log.may_come(6, 3));
        log.record(1, &descriptor(5, 3));
        assert_eq!(may_come(&log), [false, false, true]);
        log.give_up();
        assert_eq!(may_come(&log), [false, false, false]);
        log.record(1, &descriptor(4, 9));
        assert_eq!(may_come(&log), [false, false, false], "of another epoch");
        log.record(1, &descriptor(5, 3));
        assert!(!log.may_come(5, 4), "nothing new");
        log.record(1, &descriptor(5, 4));
        assert!(log.may_come(5, 5), "they come again");
    }

    #[test]
    fn numbers_that_go_back_within_a_publication_are_regressions() {
        let mut log = log(10, 5, [4, 5, 5, 3]);
        assert_eq!(log.counts().regressions, 1, "a duplicate is none");
        assert_eq!(log.find(5, 3), Some(descriptor(5, 3)));
        // Another publication has numbers of its own.
        log.record(2, &descriptor(5, 0));
        log.record(1, &descriptor(5, 6));
        log.record(2, &descriptor(5, 1));
        assert_eq!(log.counts().regressions, 1);
        log.record(1, &descriptor(5, 2));
        assert_eq!(log.counts().regressions, 2);
        let seqs: Vec<_> = log.entries.iter().map(|entry| entry.seq).collect();
        assert_eq!(seqs, [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn many_publications_take_bounded_memory() {
        let mut log = log(4, 5, []);
        for session in 0..1000 {
            log.record(session, &descriptor(5, session as u64));
        }
        assert_eq!((log.sessions.len(), log.entries.len()), (MAX_SESSIONS, 4));
    }
}
