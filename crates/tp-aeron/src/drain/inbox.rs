//! Messages that wait in bounded memory for who reads them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::Drain;
use super::source::{Attachment, Receiver};
use crate::error::Error;
use crate::subscription::{Header, Subscription};
use crate::sync::lock;

const WHAT: &str = "inbox";

/// How much an inbox holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxLimits {
    /// The most messages.
    pub max_messages: usize,
    /// The most bytes of all messages together.
    pub max_bytes: usize,
}

/// What to do with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Drop it.
    None,
    /// Keep it until somebody looks; nobody is woken for it.
    Later,
    /// Keep it and wake who waits.
    Now,
}

/// Says whether a message is wanted. Runs for every message, on the drain's thread.
pub type Filter = Box<dyn Fn(&[u8]) -> Interest + Send + Sync>;

/// A message and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxMessage {
    /// The message.
    pub bytes: Box<[u8]>,
    /// The publication's session id.
    pub session_id: i32,
    /// The stream position behind the message.
    pub position: i64,
}

/// What became of messages.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct InboxCounts {
    /// Kept.
    pub received: u64,
    /// Not wanted.
    pub ignored: u64,
    /// Wanted, and lost because the inbox was full.
    pub overflowed: u64,
}

#[derive(Default)]
struct State {
    messages: VecDeque<InboxMessage>,
    bytes: usize,
    counts: InboxCounts,
    /// Why nothing more comes.
    end: Option<Error>,
}

struct Contents {
    state: Mutex<State>,
    limits: InboxLimits,
    accept: Option<Filter>,
}

impl Receiver for Contents {
    fn on_message(&self, message: &[u8], header: Header) -> bool {
        let interest = self.accept.as_ref().map_or(Interest::Now, |accept| accept(message));
        let mut state = lock(&self.state);
        if interest == Interest::None {
            state.counts.ignored += 1;
            return false;
        }
        if state.end.is_some() {
            return false;
        }
        let full = state.messages.len() >= self.limits.max_messages
            || message.len() > self.limits.max_bytes - state.bytes;
        if full {
            // The newest goes: what was promised to be kept is kept, and order never has a hole that closes again.
            state.counts.overflowed += 1;
            return true;
        }
        state.counts.received += 1;
        state.bytes += message.len();
        state.messages.push_back(InboxMessage {
            bytes: message.into(),
            session_id: header.session_id,
            position: header.position,
        });
        interest == Interest::Now
    }

    fn on_end(&self, reason: &Error) {
        lock(&self.state).end.get_or_insert_with(|| reason.clone());
    }
}

/// Where a drain puts the messages of one subscription.
pub struct Inbox {
    contents: Arc<Contents>,
    attachment: Attachment,
}

impl Inbox {
    pub(super) fn attach(
        drain: &Drain,
        subscription: Subscription,
        limits: InboxLimits,
        accept: Option<Filter>,
    ) -> Result<Self, Error> {
        let contents = Arc::new(Contents { state: Mutex::default(), limits, accept });
        let attachment = drain.attach(subscription, Arc::clone(&contents) as Arc<dyn Receiver>)?;
        Ok(Self { contents, attachment })
    }

    /// Takes up to `limit` messages, oldest first. Looks at the subscription itself when it holds fewer, so that who
    /// asks never waits for the drain's next turn.
    ///
    /// # Errors
    /// When nothing is left: [`Error::Closed`], or why the client gave up. [`Error::Forked`].
    pub fn take(&self, limit: usize) -> Result<Vec<InboxMessage>, Error> {
        self.attachment.check_owner(WHAT)?;
        if lock(&self.contents.state).messages.len() < limit {
            self.attachment.poll(limit)?;
        }
        let mut state = lock(&self.contents.state);
        let count = limit.min(state.messages.len());
        if count == 0 && limit > 0 {
            return state.end.clone().map_or_else(|| Ok(Vec::new()), Err);
        }
        let taken: Vec<_> = state.messages.drain(..count).collect();
        state.bytes -= taken.iter().map(|message| message.bytes.len()).sum::<usize>();
        let left = !state.messages.is_empty();
        drop(state);
        if left {
            self.attachment.ring();
        }
        Ok(taken)
    }

    /// How many messages it holds.
    pub fn len(&self) -> usize {
        if self.attachment.check_owner(WHAT).is_ok() { lock(&self.contents.state).messages.len() } else { 0 }
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What became of messages so far.
    pub fn counts(&self) -> InboxCounts {
        match self.attachment.check_owner(WHAT) {
            Ok(()) => lock(&self.contents.state).counts,
            Err(_) => InboxCounts::default(),
        }
    }

    /// Whether nothing more can come into it.
    pub fn is_closed(&self) -> bool {
        self.attachment.check_owner(WHAT).is_err() || lock(&self.contents.state).end.is_some()
    }

    /// Forgets what it holds and takes no more; the subscription stays open. Does nothing when called again.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    pub fn close(&self) -> Result<(), Error> {
        self.attachment.check_owner(WHAT)?;
        self.attachment.detach();
        let mut state = lock(&self.contents.state);
        state.end = Some(Error::Closed(WHAT));
        state.messages = VecDeque::new();
        state.bytes = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(max_messages: usize, max_bytes: usize, accept: Option<Filter>) -> Contents {
        Contents { state: Mutex::default(), limits: InboxLimits { max_messages, max_bytes }, accept }
    }

    fn header(position: i64) -> Header {
        Header { session_id: 7, stream_id: 1, position, reserved_value: 0, flags: 0, occupied_bytes: 64 }
    }

    #[test]
    fn the_newest_are_lost_when_it_is_full_of_messages_or_bytes() {
        let inbox = contents(3, 10, None);
        for (position, length) in [(1, 4), (2, 6), (3, 1), (4, 0), (5, 0)] {
            assert!(inbox.on_message(&vec![0; length], header(position)), "somebody should empty it");
        }
        let state = lock(&inbox.state);
        assert_eq!(state.messages.iter().map(|message| message.position).collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!(state.counts, InboxCounts { received: 3, ignored: 0, overflowed: 2 });
        assert_eq!(state.bytes, 10);
    }

    #[test]
    fn a_message_longer_than_the_whole_inbox_is_lost() {
        let inbox = contents(3, 10, None);
        assert!(inbox.on_message(&[0; 11], header(1)));
        assert_eq!(lock(&inbox.state).counts.overflowed, 1);
    }

    #[test]
    fn what_is_not_wanted_wakes_nobody() {
        let interest = |message: &[u8]| match message {
            [1] => Interest::Now,
            [2] => Interest::Later,
            _ => Interest::None,
        };
        let inbox = contents(9, 99, Some(Box::new(interest)));
        assert!(!inbox.on_message(&[3], header(1)));
        assert!(!inbox.on_message(&[], header(2)));
        assert!(inbox.on_message(&[1], header(3)));
        assert!(!inbox.on_message(&[2], header(4)), "kept, but not worth a wake-up");
        assert_eq!(lock(&inbox.state).counts, InboxCounts { received: 2, ignored: 2, overflowed: 0 });
    }

    #[test]
    fn the_first_reason_stays_and_nothing_comes_after_it() {
        let inbox = contents(9, 99, None);
        inbox.on_end(&Error::Closed("subscription"));
        inbox.on_end(&Error::Closed("drain"));
        assert!(!inbox.on_message(&[1], header(1)));
        let state = lock(&inbox.state);
        assert_eq!((state.end.clone(), state.messages.len()), (Some(Error::Closed("subscription")), 0));
    }
}
