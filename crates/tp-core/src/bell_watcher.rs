//! Doorbells as file descriptors, for event loops.
//!
//! One thread waits for the doorbells of many rings at once and makes an event file descriptor readable for each that
//! rang. Which thread that is, and when it ends, is the caller's business: see [`BellWatcher::run`].

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::thread::futex;

use crate::doorbell::{self, MAX_WAIT};
use crate::ring::{AnyReader, Source};

/// Rings that are waited for without turns; one of the kernel's places is for changes of the list.
pub const MAX_TOGETHER: usize = MAX_WAIT - 1;
/// A ring whose slots are visited all is one whose producer skips numbers and does not ring: seldom.
const LOOKS_A_SEARCH: u32 = 64;

/// A ring that is watched, and what becomes readable when it rings.
#[derive(Debug)]
pub struct Watched {
    source: AnyReader,
    event: OwnedFd,
    /// What its reader has seen of the bell and of the frames.
    start: (u32, u64),
}

impl Watched {
    /// Watches `source` for whoever has last seen `bell` and looks for frame `next` now, and makes `event` readable.
    pub fn new(source: AnyReader, event: OwnedFd, bell: u32, next: u64) -> Self {
        Self { source, event, start: (bell, next) }
    }

    /// The number of the file descriptor.
    pub fn raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Makes it unreadable again. Do this before looking for frames, not after.
    pub fn clear(&self) {
        // It is either readable or not; both are fine.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    fn ring(&self) {
        // Full only after 2^64 - 2 rings that nobody cleared: readable anyway.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// A new event file descriptor, not readable.
pub fn new_event() -> std::io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Another handle of somebody's event file descriptor. Anything else is refused: numbers would be written into it.
pub fn duplicate_event(fd: BorrowedFd<'_>) -> std::io::Result<OwnedFd> {
    let refuse = |what| Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, what));
    let copy = rustix::io::fcntl_dupfd_cloexec(fd, 0)?;
    let kind = std::fs::read_link(format!("/proc/self/fd/{}", copy.as_raw_fd()))?;
    if kind.as_os_str() != "anon_inode:[eventfd]" {
        return refuse("it is not an eventfd");
    }
    if !fcntl_getfl(&copy)?.contains(OFlags::NONBLOCK) {
        return refuse("reading it would block (make it with EFD_NONBLOCK)");
    }
    Ok(copy)
}

#[derive(Debug, Default)]
struct List {
    watched: Vec<Arc<Watched>>,
    closing: bool,
}

/// What is watched. Shared by the thread and by who changes the list.
#[derive(Debug)]
pub struct BellWatcher {
    list: Mutex<List>,
    /// Grows with every change of the list; the thread waits for it like for a bell.
    changes: AtomicU32,
    look_interval: Duration,
}

impl BellWatcher {
    /// Watches nothing yet. Rings are looked at every `look_interval` even if they don't ring: not all producers do.
    pub fn new(look_interval: Duration) -> Self {
        Self { list: Mutex::default(), changes: AtomicU32::new(0), look_interval }
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut List) -> T) -> T {
        let result = change(&mut self.list());
        self.changes.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.changes, futex::Flags::empty(), 1);
        result
    }

    /// Adds a ring; false when the watcher was closed.
    pub fn add(&self, watched: &Arc<Watched>) -> bool {
        self.change(|list| {
            if !list.closing {
                list.watched.push(Arc::clone(watched));
            }
            !list.closing
        })
    }

    /// Removes a ring, if it is there.
    pub fn remove(&self, watched: &Arc<Watched>) {
        self.change(|list| list.watched.retain(|known| !Arc::ptr_eq(known, watched)));
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.list().closing
    }

    /// Ends the thread. All file descriptors become readable, so that nobody waits for ever.
    pub fn close(&self) {
        self.change(|list| list.closing = true);
    }

    /// Watches until closed. For one thread.
    pub fn run(&self) {
        let mut places: Vec<Place> = Vec::new();
        let mut next_look = Instant::now() + self.look_interval;
        loop {
            let changes = self.changes.load(Ordering::Acquire);
            let list = self.list();
            if list.closing {
                list.watched.iter().for_each(|watched| watched.ring());
                return;
            }
            places.retain(|place| list.watched.iter().any(|known| Arc::ptr_eq(known, &place.watched)));
            let fresh = list.watched.iter().filter(|known| !places.iter().any(|place| place.is_of(known)));
            let fresh: Vec<_> = fresh.map(Place::new).collect();
            drop(list);
            places.extend(fresh);

            places.iter_mut().for_each(Place::listen);
            let words = places.iter().map(|place| place.watched.source.doorbell().watched(place.bell));
            let words: Vec<_> = std::iter::once((&self.changes, changes)).chain(words).collect();
            // Without anything to look at there is no need to wake up.
            let left = match places.is_empty() {
                true => Duration::MAX,
                false => next_look.saturating_duration_since(Instant::now()),
            };
            if !left.is_zero() {
                doorbell::wait_words(&words, left);
            }
            if Instant::now() >= next_look {
                places.iter_mut().for_each(Place::look);
                next_look = Instant::now() + self.look_interval;
            }
        }
    }
}

/// Where the watcher is in one ring.
struct Place {
    watched: Arc<Watched>,
    bell: u32,
    /// The frame that comes next, as far as the watcher has looked.
    next: u64,
    /// It rang since the last look: its producer rings, and nothing has to be looked for.
    rang: bool,
    looks: u32,
}

impl Place {
    fn new(watched: &Arc<Watched>) -> Self {
        let (bell, next) = watched.start;
        Self { watched: Arc::clone(watched), bell, next, rang: false, looks: 0 }
    }

    fn is_of(&self, watched: &Arc<Watched>) -> bool {
        Arc::ptr_eq(&self.watched, watched)
    }

    /// Has the bell rung since?
    fn listen(&mut self) {
        let bell = self.watched.source.bell();
        if bell != self.bell {
            self.bell = bell;
            self.rang = true;
            self.watched.ring();
        }
    }

    /// Is there a frame that was not rung for?
    fn look(&mut self) {
        let moved = self.advance();
        if moved && !self.rang {
            self.watched.ring();
        }
        self.rang = false;
    }

    fn advance(&mut self) -> bool {
        let before = self.next;
        let source = &self.watched.source;
        for _ in 0..source.nslots() {
            match source.look(self.next) {
                Ok(commit) if commit.is_committed() && commit.seq() == self.next => self.next += 1,
                Ok(commit) if commit.is_committed() && commit.seq() > self.next => {
                    // Lapped, or numbers were skipped.
                    self.search();
                    break;
                }
                _ => break,
            }
        }
        self.looks = (self.looks + 1) % LOOKS_A_SEARCH;
        if self.next == before && self.looks == 0 {
            self.search();
        }
        self.next != before
    }

    fn search(&mut self) {
        let source = &self.watched.source;
        let after_newest = source.newest().map_or(0, |seq| seq.saturating_add(1));
        // Numbers only grow; where they have gone far back the newest one was a lie.
        if after_newest > self.next || after_newest.saturating_add(source.nslots()) < self.next {
            self.next = after_newest;
        }
    }
}

#[cfg(test)]
#[path = "bell_watcher_tests.rs"]
mod tests;
