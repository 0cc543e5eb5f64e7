//! Putting messages together that travelled in several fragments.

use std::collections::HashMap;

use crate::subscription::Header;

const BEGIN: u8 = 0x80;
const END: u8 = 0x40;

/// How much memory half-received messages may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssemblyLimits {
    /// The longest message that is put together.
    pub max_message_bytes: usize,
    /// The most that unfinished messages of all publications may take.
    pub max_total_bytes: usize,
}

/// Unfinished messages by session.
///
/// A message is given up when a fragment is missing (an untethered subscriber that was left behind joins again in the
/// middle), when it is too long, or when its publication goes; later fragments of it are skipped.
pub(crate) struct FragmentAssembler {
    limits: AssemblyLimits,
    unfinished: HashMap<i32, Unfinished>,
    total_bytes: usize,
    abandoned: u64,
}

struct Unfinished {
    bytes: Vec<u8>,
    /// The position at which the next fragment must begin.
    next_position: i64,
}

impl FragmentAssembler {
    pub(crate) fn new(limits: AssemblyLimits) -> Self {
        Self { limits, unfinished: HashMap::new(), total_bytes: 0, abandoned: 0 }
    }

    /// Messages that were begun and given up.
    pub(crate) fn abandoned(&self) -> u64 {
        self.abandoned
    }

    /// Takes one fragment and hands every message that it completes to `handler`.
    pub(crate) fn on_fragment(
        &mut self,
        fragment: &[u8],
        header: Header,
        handler: &mut dyn FnMut(&[u8], Header),
    ) {
        let flags = header.flags & (BEGIN | END);
        if flags == BEGIN | END {
            // A message in one piece, by far the most; a rest of another of its session can't be completed any more.
            if !self.unfinished.is_empty() {
                self.abandon(header.session_id);
            }
            return handler(fragment, header);
        }
        if flags & BEGIN != 0 {
            self.abandon(header.session_id);
            if self.fits(0, fragment.len()) {
                self.total_bytes += fragment.len();
                let unfinished = Unfinished { bytes: fragment.to_vec(), next_position: header.position };
                self.unfinished.insert(header.session_id, unfinished);
            } else {
                self.abandoned += 1;
            }
            return;
        }
        let begins_at = header.position - header.occupied_bytes;
        let Some(unfinished) = self.unfinished.get_mut(&header.session_id) else {
            return;
        };
        let so_far = unfinished.bytes.len();
        if unfinished.next_position != begins_at || !self.fits(so_far, fragment.len()) {
            return self.abandon(header.session_id);
        }
        let unfinished = self.unfinished.get_mut(&header.session_id).expect("looked up above");
        unfinished.bytes.extend_from_slice(fragment);
        unfinished.next_position = header.position;
        self.total_bytes += fragment.len();
        if flags & END != 0 {
            let whole = self.unfinished.remove(&header.session_id).expect("looked up above");
            self.total_bytes -= whole.bytes.len();
            handler(&whole.bytes, header);
        }
    }

    /// Gives up what publications began that are gone.
    pub(crate) fn keep_sessions(&mut self, is_alive: impl Fn(i32) -> bool) {
        let gone: Vec<i32> = self.unfinished.keys().copied().filter(|session| !is_alive(*session)).collect();
        gone.into_iter().for_each(|session| self.abandon(session));
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.unfinished.is_empty()
    }

    fn fits(&self, so_far: usize, more: usize) -> bool {
        so_far + more <= self.limits.max_message_bytes
            && self.total_bytes + more <= self.limits.max_total_bytes
    }

    fn abandon(&mut self, session_id: i32) {
        if let Some(unfinished) = self.unfinished.remove(&session_id) {
            self.total_bytes -= unfinished.bytes.len();
            self.abandoned += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: AssemblyLimits = AssemblyLimits { max_message_bytes: 100, max_total_bytes: 150 };

    struct Stream {
        assembler: FragmentAssembler,
        position: i64,
        received: Vec<Vec<u8>>,
    }

    impl Stream {
        fn new() -> Self {
            Self { assembler: FragmentAssembler::new(LIMITS), position: 0, received: Vec::new() }
        }
        fn fragment(&mut self, session_id: i32, flags: u8, bytes: &[u8]) {
            let occupied_bytes = 64;
            self.position += occupied_bytes;
            let header = Header {
                session_id,
                stream_id: 1,
                position: self.position,
                reserved_value: 0,
                flags,
                occupied_bytes,
            };
            let received = &mut self.received;
            self.assembler.on_fragment(bytes, header, &mut |message, _| received.push(message.to_vec()));
        }
    }

    #[test]
    fn whole_messages_pass_and_pieces_are_joined() {
        let mut stream = Stream::new();
        stream.fragment(1, BEGIN | END, b"whole");
        stream.fragment(1, BEGIN, b"a");
        stream.fragment(1, 0, b"b");
        stream.fragment(1, END, b"c");
        assert_eq!(stream.received, [b"whole".to_vec(), b"abc".to_vec()]);
        assert_eq!((stream.assembler.total_bytes, stream.assembler.abandoned()), (0, 0));
    }

    #[test]
    fn a_missing_piece_abandons_the_message_and_the_next_is_fine() {
        let mut stream = Stream::new();
        stream.fragment(1, BEGIN, b"a");
        stream.position += 64;
        stream.fragment(1, END, b"c");
        stream.fragment(1, END, b"tail without head");
        stream.fragment(1, BEGIN, b"x");
        stream.fragment(1, END, b"y");
        assert_eq!(stream.received, [b"xy".to_vec()]);
        assert_eq!(stream.assembler.abandoned(), 1);
    }

    #[test]
    fn a_new_beginning_replaces_an_unfinished_message() {
        let mut stream = Stream::new();
        stream.fragment(1, BEGIN, b"never finished");
        stream.fragment(1, BEGIN | END, b"whole");
        stream.fragment(1, BEGIN, b"never finished");
        stream.fragment(1, BEGIN, b"p");
        stream.fragment(1, END, b"q");
        assert_eq!(stream.received, [b"whole".to_vec(), b"pq".to_vec()]);
        assert_eq!(stream.assembler.abandoned(), 2);
        assert!(stream.assembler.is_idle());
    }

    #[test]
    fn memory_is_bounded_by_message_and_in_total() {
        let mut stream = Stream::new();
        stream.fragment(1, BEGIN, &[0; 60]);
        stream.fragment(1, 0, &[0; 60]);
        stream.fragment(1, END, &[0; 1]);
        assert_eq!((stream.received.len(), stream.assembler.total_bytes), (0, 0));
        for session in 1..=1000 {
            stream.fragment(session, BEGIN, &[0; 50]);
            assert!(stream.assembler.total_bytes <= LIMITS.max_total_bytes);
        }
        assert_eq!(stream.assembler.unfinished.len(), 3);
        stream.assembler.keep_sessions(|session| session == 2);
        assert_eq!(stream.assembler.total_bytes, 50);
    }
}
