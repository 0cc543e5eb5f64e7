//! A subscription that the drain polls, and who gets its messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Shared;
use crate::error::Error;
use crate::subscription::{Header, Subscription};

/// Takes the messages of a subscription. Called on the drain's thread, or on that of who polls an [`Attachment`],
/// never on two at once; must not wait for anything.
pub trait Receiver: Send + Sync {
    /// Takes one message. True when somebody should wake up for it soon.
    fn on_message(&self, message: &[u8], header: Header) -> bool;

    /// Nothing more will come: the subscription, its client or the drain was closed, or the client is lost.
    fn on_end(&self, reason: &Error);
}

/// What a turn of polling brought.
#[derive(Default, Clone, Copy)]
pub(super) struct Progress {
    /// The turn was full: there may be more at once.
    pub(super) more: bool,
    /// Somebody should wake up.
    pub(super) urgent: bool,
}

pub(super) struct Source {
    subscription: Subscription,
    receiver: Arc<dyn Receiver>,
    ended: AtomicBool,
}

impl Source {
    pub(super) fn new(subscription: Subscription, receiver: Arc<dyn Receiver>) -> Self {
        Self { subscription, receiver, ended: AtomicBool::new(false) }
    }

    /// Takes up to `limit` fragments from the subscription.
    pub(super) fn poll(&self, limit: usize) -> Progress {
        let mut urgent = false;
        let deliver = |message: &[u8], header: Header| urgent |= self.receiver.on_message(message, header);
        match self.subscription.poll_assembled(limit, deliver) {
            Ok(fragments) => Progress { more: fragments >= limit, urgent },
            Err(error) => {
                self.end(&error);
                Progress { more: false, urgent: true }
            }
        }
    }

    pub(super) fn end(&self, reason: &Error) {
        if !self.ended.swap(true, Ordering::AcqRel) {
            self.receiver.on_end(reason);
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// A subscription that a drain polls; dropping it ends that, and leaves the subscription open for who else holds it.
pub struct Attachment {
    source: Arc<Source>,
    drain: Arc<Shared>,
}

impl Attachment {
    pub(super) fn new(source: Arc<Source>, drain: Arc<Shared>) -> Self {
        Self { source, drain }
    }

    /// Polls the subscription now, on the calling thread, for who can't wait for the drain's next turn. Does nothing
    /// after the subscription has ended, which its receiver was told.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    pub fn poll(&self, limit: usize) -> Result<(), Error> {
        self.drain.owner.check("subscription")?;
        if !self.source.has_ended() {
            self.source.poll(limit);
        }
        Ok(())
    }

    /// Wakes who waits for the drain.
    pub(super) fn ring(&self) {
        self.drain.bell.ring();
    }

    /// Stops polling. Does nothing when called again, or in a forked child.
    pub fn detach(&self) {
        if self.drain.owner.is_current() {
            self.drain.forget_source(&self.source);
        }
    }

    /// Whether the calling process made it.
    pub fn check_owner(&self, what: &'static str) -> Result<(), Error> {
        self.drain.owner.check(what)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.detach();
    }
}
