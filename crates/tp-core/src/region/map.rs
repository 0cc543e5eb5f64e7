//! A mapped region.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap, munmap};

use crate::copy::{Locality, racy_copy};
use crate::layout::SLOT_BYTES;

/// How much is made present at once: a millisecond or two, and a whole huge page.
const PREFAULT_BYTES: usize = 2 << 20;

const SLOT_WORDS: usize = SLOT_BYTES / 8;
/// Of a cache.
const LINE_WORDS: usize = 8;

/// What a mapping may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Consumers never write.
    Read,
    /// Producers and drivers do.
    Write,
}

/// Shared memory that other processes read and write at the same time. Offsets are checked, always.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    access: Access,
}

// SAFETY: all access goes through atomics or racy copies; nothing here depends on the thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a file that has at least as many.
    pub(super) fn new(fd: &impl std::os::fd::AsFd, len: usize, access: Access) -> rustix::io::Result<Self> {
        let prot = match access {
            Access::Read => ProtFlags::READ,
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe { mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, fd, 0)? };
        let start = NonNull::new(start.cast()).expect("the kernel maps no page at address 0");
        Ok(Self { start, len, access })
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Is nothing mapped? Never, but Clippy asks.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of `offset`, when `len` bytes from there are mapped.
    #[inline]
    fn at(&self, offset: u64, len: usize) -> *mut u8 {
        let inside = offset.checked_add(len as u64).is_some_and(|end| end <= self.len as u64);
        assert!(inside, "offset {offset} + {len} lies outside the {} mapped bytes", self.len);
        // SAFETY: just checked.
        unsafe { self.start.as_ptr().add(offset as usize) }
    }

    /// Address of a range, for views that outlive the call. The mapping must outlive the view.
    #[inline]
    pub fn address(&self, offset: u64, len: usize) -> *const u8 {
        self.at(offset, len)
    }

    /// Address of a range that may be written.
    #[inline]
    pub fn address_mut(&self, offset: u64, len: usize) -> *mut u8 {
        assert_eq!(self.access, Access::Write, "the mapping is read-only");
        self.at(offset, len)
    }

    /// The 64-bit word at `offset`, which must be aligned. Storing into a read-only mapping faults:
    /// only [`Access::Write`] mappings are given to writers.
    #[inline]
    pub fn word(&self, offset: u64) -> &AtomicU64 {
        let at = self.at(offset, 8).cast::<u64>();
        assert!(at.is_aligned(), "offset {offset} is not aligned");
        // SAFETY: mapped, aligned, alive as long as `self`, and only ever accessed atomically.
        unsafe { AtomicU64::from_ptr(at) }
    }

    /// The 64-bit word at `offset`, for storing.
    #[inline]
    pub fn writable_word(&self, offset: u64) -> &AtomicU64 {
        assert_eq!(self.access, Access::Write, "the mapping is read-only");
        self.word(offset)
    }

    /// The 32-bit word at `offset`, for futexes.
    #[inline]
    pub fn half_word(&self, offset: u64) -> &AtomicU32 {
        let at = self.at(offset, 4).cast::<u32>();
        assert!(at.is_aligned(), "offset {offset} is not aligned");
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr(at) }
    }

    /// A slot, by words.
    #[inline]
    fn slot(&self, offset: u64) -> &[AtomicU64; SLOT_WORDS] {
        let at = self.at(offset, SLOT_BYTES).cast::<[AtomicU64; SLOT_WORDS]>();
        assert!(at.is_aligned(), "offset {offset} is not aligned");
        // SAFETY: mapped as long as `self` lives, aligned, and every access to shared memory is atomic.
        unsafe { &*at }
    }

    /// Writes a slot's bytes behind its commit word, by relaxed words.
    ///
    /// Lines that say it already are left alone: most say of a frame what they said of the last one in this slot, and
    /// every reader would have to fetch them anew.
    #[inline]
    pub fn store_slot(&self, offset: u64, slot: &[u8; SLOT_BYTES]) {
        assert_eq!(self.access, Access::Write, "the mapping is read-only");
        let mut words = [0; SLOT_WORDS];
        for (word, bytes) in words.iter_mut().zip(slot.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().expect("chunks of 8"));
        }
        let lines = self.slot(offset).chunks_exact(LINE_WORDS).zip(words.chunks_exact(LINE_WORDS));
        for (number, (line, words)) in lines.enumerate() {
            let commit_word = usize::from(number == 0);
            let (line, words) = (&line[commit_word..], &words[commit_word..]);
            // Without a branch for each word: they are the same, or one of the first differs.
            let differ = line.iter().zip(words).fold(0, |sum, (at, word)| sum | (at.load(Relaxed) ^ word));
            if differ != 0 {
                line.iter().zip(words).for_each(|(at, word)| at.store(*word, Relaxed));
            }
        }
    }

    /// Reads a slot's bytes behind its commit word, by relaxed words; the commit word itself reads as 0.
    #[inline]
    pub fn load_slot(&self, offset: u64) -> [u8; SLOT_BYTES] {
        let mut slot = [0; SLOT_BYTES];
        for (word, bytes) in self.slot(offset).iter().zip(slot.chunks_exact_mut(8)).skip(1) {
            bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
        }
        slot
    }

    /// Copies `len` bytes at `offset` out of shared memory.
    ///
    /// # Safety
    /// `to` must be valid for writes of `len` bytes and private to the caller.
    #[inline]
    pub unsafe fn copy_out(&self, offset: u64, to: *mut u8, len: usize, locality: Locality) {
        // SAFETY: the source is mapped (checked), the target is the caller's.
        unsafe { racy_copy(to, self.at(offset, len), len, locality) }
    }

    /// Copies `len` bytes from `from` into shared memory at `offset`.
    ///
    /// # Safety
    /// `from` must be valid for reads of `len` bytes; it may change meanwhile.
    #[inline]
    pub unsafe fn copy_in(&self, offset: u64, from: *const u8, len: usize, locality: Locality) {
        // SAFETY: the target is mapped and writable (checked), the source is the caller's.
        unsafe { racy_copy(self.address_mut(offset, len), from, len, locality) }
    }

    fn populate_advice(&self) -> Advice {
        match self.access {
            Access::Read => Advice::LinuxPopulateRead,
            Access::Write => Advice::LinuxPopulateWrite,
        }
    }

    /// Makes every page present, so that the first frames don't pay for it (decision D19).
    ///
    /// Fails where touching a page would kill the process: there is no memory for it, or the file was cut off. Before
    /// Linux 5.14 there is no such call, and nothing happens.
    pub fn prefault(&self) -> rustix::io::Result<()> {
        let advice = self.populate_advice();
        // In pieces: the kernel lets no other thread of the process map anything meanwhile, such as a large array.
        for start in (0..self.len).step_by(PREFAULT_BYTES) {
            let len = PREFAULT_BYTES.min(self.len - start);
            // SAFETY: within the mapping; populating changes no contents.
            match unsafe { madvise(self.start.as_ptr().add(start).cast(), len, advice) } {
                Err(rustix::io::Errno::INVAL) => return Ok(()),
                done => done?,
            }
        }
        Ok(())
    }

    /// Is there still a file behind the first page? Whoever touches a page that was cut off is killed; asking the
    /// kernel to make it present just fails (before Linux 5.14 it can't be asked, and the answer is yes).
    pub fn is_backed(&self) -> bool {
        let advice = self.populate_advice();
        // SAFETY: populating changes no contents.
        let asked = unsafe { madvise(self.start.as_ptr().cast(), 1, advice) };
        asked != Err(rustix::io::Errno::FAULT)
    }

    /// Keeps every page in memory, so that the system never swaps it out. The limit is the process's.
    pub fn lock_in_memory(&self) -> rustix::io::Result<()> {
        // SAFETY: the range is mapped; locking changes no contents.
        unsafe { mlock(self.start.as_ptr().cast(), self.len) }
    }

    /// Asks for transparent huge pages. Best effort: most systems say no for shared memory.
    pub fn advise_hugepages(&self) {
        // SAFETY: a hint, changes no contents.
        let _ = unsafe { madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxHugepage) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, unmapped only here; views hold the mapping by reference count.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
