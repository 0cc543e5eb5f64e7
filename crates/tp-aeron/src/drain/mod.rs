//! A thread that keeps every subscription of a process drained and sends its keepalives, whatever the rest of the
//! process does.
//!
//! Aeron's flow control lets the slowest subscriber hold back a publication. A program in a long computation, in a
//! debugger or in a garbage collection would so silence everybody else. This thread takes messages out of the logs
//! into bounded memory, where nobody else waits for them; and it shows life for its process (decision L9).

mod bell;
mod inbox;
mod pacing;
mod pulse;
mod source;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::process::{OwnerProcess, with_signals_blocked};
use crate::publication::ExclusivePublication;
use crate::subscription::Subscription;
use crate::sync::lock;
use bell::Bell;
pub use inbox::{Filter, Inbox, InboxCounts, InboxLimits, InboxMessage, Interest};
use pacing::Pacing;
use pulse::Beat;
pub use pulse::{Pulse, PulseMessage};
pub use source::{Attachment, Receiver};
use source::{Progress, Source};

const WHAT: &str = "drain";
/// Fragments that are taken from one subscription before the next has its turn.
const TURN_FRAGMENTS: usize = 64;

/// How a drain runs.
#[derive(Debug, Clone)]
pub struct DrainOptions {
    /// The name of its thread; tools show the first 15 bytes.
    pub name: String,
    /// The pause after a turn that brought something, doubled each time that nothing came.
    pub shortest_pause: Duration,
    /// The longest pause: how late a message may be noticed.
    pub longest_pause: Duration,
}

/// A thread that polls subscriptions into inboxes and sends pulses. Dropping it ends the thread.
pub struct Drain {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread and the handles have in common.
struct Shared {
    work: Mutex<Work>,
    work_changed: Condvar,
    bell: Bell,
    rounds: AtomicU64,
    owner: OwnerProcess,
}

#[derive(Default)]
struct Work {
    sources: Vec<Arc<Source>>,
    pulses: Vec<Arc<Beat>>,
    /// Grows when one of the lists changes.
    changes: u64,
    /// Poll at the shortest pause until then: somebody expects an answer.
    hurry_until: Option<Instant>,
    /// The thread must look again before it sleeps.
    nudged: bool,
    closing: bool,
}

impl Drain {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a name with a NUL byte, pauses of no time or in the wrong order, and when the
    /// system gives no thread.
    pub fn start(options: &DrainOptions) -> Result<Self, Error> {
        let DrainOptions { name, shortest_pause, longest_pause } = options.clone();
        if name.contains('\0') {
            return Err(Error::InvalidArgument(format!("the drain's name contains a NUL byte: {name:?}")));
        }
        if shortest_pause.is_zero() || shortest_pause > longest_pause {
            let text = format!("pauses of a drain: {shortest_pause:?} to {longest_pause:?}");
            return Err(Error::InvalidArgument(text));
        }
        let shared = Arc::new(Shared {
            work: Mutex::default(),
            work_changed: Condvar::new(),
            bell: Bell::default(),
            rounds: AtomicU64::new(0),
            owner: OwnerProcess::current(),
        });
        let theirs = Arc::clone(&shared);
        let pacing = Pacing::new(shortest_pause, longest_pause);
        let run = move || theirs.run(pacing);
        let thread =
            with_signals_blocked(|| std::thread::Builder::new().name(name).spawn(run)).map_err(|error| {
                Error::InvalidArgument(format!("the drain's thread can't be started: {error}"))
            })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Has the thread poll a subscription and hand every message to `receiver`, until the attachment is dropped.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn attach(
        &self,
        subscription: Subscription,
        receiver: Arc<dyn Receiver>,
    ) -> Result<Attachment, Error> {
        self.shared.change(|work| {
            let source = Arc::new(Source::new(subscription, receiver));
            work.sources.push(Arc::clone(&source));
            Attachment::new(source, Arc::clone(&self.shared))
        })
    }

    /// Has the thread poll a subscription into a bounded inbox.
    ///
    /// # Errors
    /// As for [`Self::attach`].
    pub fn inbox(
        &self,
        subscription: Subscription,
        limits: InboxLimits,
        accept: Option<Filter>,
    ) -> Result<Inbox, Error> {
        Inbox::attach(self, subscription, limits, accept)
    }

    /// Sends a message now and then every `period`, until the pulse is stopped or dropped.
    ///
    /// # Errors
    /// As for [`Self::attach`]; [`Error::InvalidArgument`] when the time stamp does not fit into the message, or the
    /// message into the publication.
    pub fn pulse(
        &self,
        publication: ExclusivePublication,
        message: PulseMessage,
        period: Duration,
    ) -> Result<Pulse, Error> {
        let beat = Arc::new(Beat::new(publication, message, period)?);
        self.shared.change(|work| {
            work.pulses.push(Arc::clone(&beat));
            Pulse::new(beat, Arc::clone(&self.shared))
        })
    }

    /// Polls at the shortest pause for this long: an answer is expected.
    ///
    /// # Errors
    /// As for [`Self::attach`].
    pub fn hurry(&self, duration: Duration) -> Result<(), Error> {
        self.shared.change(|work| {
            let until = Instant::now().checked_add(duration);
            work.hurry_until = work.hurry_until.max(until);
        })
    }

    /// Sleeps until a message came into an inbox, [`Self::wake`] was called or `timeout` has passed; tells whether
    /// it was woken. What came since the last call ends this one at once, and so does what a
    /// [`take`](Inbox::take) left behind. For one thread at a time.
    ///
    /// # Errors
    /// As for [`Self::attach`].
    pub fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        self.shared.check()?;
        let woken = self.shared.bell.wait(timeout);
        self.shared.check()?;
        Ok(woken)
    }

    /// Ends a wait, or the next one.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    pub fn wake(&self) -> Result<(), Error> {
        self.shared.owner.check(WHAT)?;
        self.shared.bell.ring();
        Ok(())
    }

    /// How often the thread has looked at all its subscriptions.
    pub fn rounds(&self) -> u64 {
        self.shared.rounds.load(Ordering::Relaxed)
    }

    /// Does nothing while the drain can be used.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn check(&self) -> Result<(), Error> {
        self.shared.check()
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.shared.check().is_err()
    }

    /// Ends the thread. Inboxes still give what they hold; pulses stop. Does nothing when called again.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    pub fn close(&self) -> Result<(), Error> {
        self.shared.owner.check(WHAT)?;
        lock(&self.shared.work).closing = true;
        self.shared.work_changed.notify_all();
        if let Some(thread) = lock(&self.thread).take() {
            // It ends by itself; a panic in it was reported by the panic hook.
            let _ = thread.join();
        }
        self.shared.bell.ring();
        Ok(())
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        // Does nothing in a forked child, where the thread does not exist and its locks may be held for ever.
        let _ = self.close();
    }
}

/// Tells everybody that the thread has ended, however it did.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut work = lock(&self.0.work);
        work.closing = true;
        let (sources, pulses) = (std::mem::take(&mut work.sources), std::mem::take(&mut work.pulses));
        drop(work);
        sources.iter().for_each(|source| source.end(&Error::Closed(WHAT)));
        pulses.iter().for_each(|pulse| pulse.stop());
        self.0.bell.ring();
    }
}

impl Shared {
    /// An error unless the drain can be used.
    fn check(&self) -> Result<(), Error> {
        self.owner.check(WHAT)?;
        if lock(&self.work).closing { Err(Error::Closed(WHAT)) } else { Ok(()) }
    }

    /// Changes what there is to do and has the thread look at it at once.
    fn change<T>(&self, change: impl FnOnce(&mut Work) -> T) -> Result<T, Error> {
        self.owner.check(WHAT)?;
        let mut work = lock(&self.work);
        if work.closing {
            return Err(Error::Closed(WHAT));
        }
        let result = change(&mut work);
        work.changes += 1;
        work.nudged = true;
        drop(work);
        self.work_changed.notify_all();
        Ok(result)
    }

    fn forget_source(&self, source: &Arc<Source>) {
        let mut work = lock(&self.work);
        work.sources.retain(|known| !Arc::ptr_eq(known, source));
        work.changes += 1;
    }

    fn forget_pulse(&self, pulse: &Arc<Beat>) {
        let mut work = lock(&self.work);
        work.pulses.retain(|known| !Arc::ptr_eq(known, pulse));
        work.changes += 1;
    }

    fn run(&self, mut pacing: Pacing) {
        let _ending = Ending(self);
        let (mut sources, mut pulses, mut changes) = (Vec::new(), Vec::new(), u64::MAX);
        loop {
            let mut work = lock(&self.work);
            if work.closing {
                return;
            }
            work.nudged = false;
            let hurry_until = work.hurry_until;
            if work.changes != changes {
                changes = work.changes;
                let outdated = (
                    std::mem::replace(&mut sources, work.sources.clone()),
                    std::mem::replace(&mut pulses, work.pulses.clone()),
                );
                drop(work);
                // Not under the lock: the last holder of a subscription or publication closes it.
                drop(outdated);
            } else {
                drop(work);
            }
            let progress = self.poll_all(&sources);
            let next_beat = pulses.iter().map(|pulse| pulse.beat(Instant::now())).min();
            self.rounds.fetch_add(1, Ordering::Relaxed);
            if !progress.more {
                let now = Instant::now();
                let hurrying = hurry_until.is_some_and(|until| now < until);
                let pause = pacing.pause(progress.urgent || hurrying);
                self.sleep(next_beat.map_or(pause, |at| pause.min(at.saturating_duration_since(now))));
            }
        }
    }

    fn poll_all(&self, sources: &[Arc<Source>]) -> Progress {
        let mut all = Progress::default();
        for source in sources {
            let progress = source.poll(TURN_FRAGMENTS);
            all.more |= progress.more;
            all.urgent |= progress.urgent;
            if source.has_ended() {
                self.forget_source(source);
                all.urgent = true;
            }
        }
        if all.urgent {
            self.bell.ring();
        }
        all
    }

    fn sleep(&self, pause: Duration) {
        let work = lock(&self.work);
        let awake = |work: &mut Work| !work.nudged && !work.closing;
        // A poisoned lock is as good as any other here: see `sync`.
        drop(self.work_changed.wait_timeout_while(work, pause, awake));
    }
}
