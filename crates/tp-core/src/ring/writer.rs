//! The writer of a ring. There is one; it never waits.

use std::sync::Arc;

use thiserror::Error;

use super::Geometry;
use super::bypass::Bypass;
use super::geometry::{RingAddress, RingFiles};
use super::heads_up::{self, HeadsUp};
use crate::clock::monotonic_ns;
use crate::copy::Locality;
use crate::crowd::CrowdWaker;
use crate::doorbell::Doorbell;
use crate::drops::DropReason;
use crate::layout::{payload_offset, slot_offset};
use crate::region::{Access, BaseDirs, Mapping, RegionError, WriterLock};
use crate::seqlock::{self, Commit};
use crate::slot::{self, FrameHeader, slot_index};
use crate::sync::AtomicU64;

/// Why a frame can't be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ClaimError {
    /// Longer than the largest pool's stride: dropped, never waited for [WIRE-9-4].
    #[error("a frame of {bytes} bytes, and the largest that fits has {largest}")]
    TooLarge {
        /// Length of the payload.
        bytes: u64,
        /// Largest stride.
        largest: u32,
    },
    /// A claim that is still open would be overtaken.
    #[error("the claim of seq {0} is still open; commit or abort it first")]
    Open(u64),
    /// Every slot of the ring is claimed.
    #[error("all {0} slots are claimed")]
    Full(u32),
    /// Sequence numbers only grow.
    #[error("seq {seq} is not above the last one, {last}")]
    Seq {
        /// What was asked for.
        seq: u64,
        /// The last one used.
        last: u64,
    },
    /// Beyond the 63 bits that a sequence number has beside the commit bit.
    #[error("seq {0} is beyond the largest, 2^63 - 1")]
    Exhausted(u64),
    /// The claim was committed or aborted already.
    #[error("the claim of seq {0} was committed or aborted already")]
    Finished(u64),
    /// The tensor can't be described in a slot.
    #[error("the tensor can't be described: {}", .0.label())]
    Tensor(DropReason),
    /// The tensor is larger than its payload.
    #[error("the tensor needs {need} bytes, the payload has {length}")]
    Extent {
        /// Bytes from the first to the last element.
        need: u64,
        /// Bytes of the payload.
        length: u32,
    },
    /// The payload is larger than its claim.
    #[error("a payload of {length} bytes, {claimed} were claimed")]
    Length {
        /// Bytes of the payload.
        length: u32,
        /// Bytes claimed.
        claimed: u32,
    },
}

/// A slot that is being filled. Dropping it without commit leaves a slot that no reader accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Its sequence number.
    pub seq: u64,
    /// Its slot.
    pub index: u32,
    /// Which pool holds the payload.
    pub pool: usize,
    /// Stride of that pool.
    pub stride_bytes: u32,
    /// Bytes claimed.
    pub values_len_bytes: u32,
}

/// The mappings of a ring: what takes time with them needs no writer.
#[derive(Debug)]
pub struct RingMemory(Vec<Arc<Mapping>>);

impl RingMemory {
    /// Asks for huge pages and touches every page now rather than in the first frames.
    ///
    /// # Errors
    /// There is not enough memory behind the files, which may be sparse; or a file was cut off.
    pub fn prefault(&self) -> std::io::Result<()> {
        self.0.iter().try_for_each(|mapping| {
            mapping.advise_hugepages();
            Ok(mapping.prefault()?)
        })
    }

    /// Keeps every page in memory until the ring is unmapped.
    ///
    /// # Errors
    /// The limit of locked memory is too low, mostly.
    pub fn lock(&self) -> std::io::Result<()> {
        self.0.iter().try_for_each(|mapping| Ok(mapping.lock_in_memory()?))
    }

    /// How many bytes that is.
    pub fn len_bytes(&self) -> usize {
        self.0.iter().map(|mapping| mapping.len()).sum()
    }
}

/// The one writer of a ring.
#[derive(Debug)]
pub struct RingWriter {
    geometry: Geometry,
    header: Arc<Mapping>,
    pools: Vec<Arc<Mapping>>,
    largest_stride: u32,
    next_seq: u64,
    _lock: WriterLock,
    crowd: CrowdWaker,
    heads_up: HeadsUp,
    bypass: Bypass,
    /// Claims that are neither committed nor aborted, oldest first. Almost always empty or one.
    open: std::collections::VecDeque<u64>,
}

impl RingWriter {
    /// Opens and maps a ring for writing, unless somebody else does: a ring has one writer.
    ///
    /// The first frame of a fresh ring is 0; where an earlier writer of the same epoch stopped, this one goes
    /// on: sequence numbers only grow [WIRE-8.3-4].
    pub fn open(address: &RingAddress, bases: &BaseDirs) -> Result<Self, RegionError> {
        let files = RingFiles::open(address, bases, Access::Write, false)?;
        let (header, pools) = files.map(Access::Write)?;
        let pools = pools.into_iter().map(Arc::new).collect();
        let largest_stride = files.geometry.pools.iter().map(|pool| pool.stride_bytes).max().unwrap_or(0);
        let header = Arc::new(header);
        let mut writer = Self {
            bypass: Bypass::new(files.geometry.nslots),
            geometry: files.geometry,
            // Before the ring is looked at: what another writer does meanwhile would be missed.
            _lock: WriterLock::take(files.header)?,
            crowd: CrowdWaker::new(Arc::clone(&header)),
            heads_up: HeadsUp::default(),
            header,
            pools,
            largest_stride,
            next_seq: 0,
            open: Default::default(),
        };
        writer.resume();
        Ok(writer)
    }

    /// Goes on behind whatever an earlier writer of the same epoch began.
    fn resume(&mut self) {
        let commits =
            (0..self.geometry.nslots).map(|index| seqlock::begin_read(self.commit_word(index.into())));
        let used = commits.filter(|commit| *commit != Commit::in_progress(0)).map(Commit::seq).max();
        self.next_seq = self.next_seq.max(used.map_or(0, |seq| seq + 1));
    }

    /// The numbers of the ring.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Sequence number of the next frame.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Largest payload that fits.
    pub fn max_payload_bytes(&self) -> u32 {
        self.largest_stride
    }

    /// The memory of the ring, to be prepared while frames are already written.
    pub fn memory(&self) -> RingMemory {
        RingMemory(self.pools.iter().chain([&self.header]).map(Arc::clone).collect())
    }

    fn commit_word(&self, seq: u64) -> &AtomicU64 {
        self.header.word(slot_offset(slot_index(seq, self.geometry.nslots)))
    }

    /// Takes the next slot (or that of `seq`, which must be above the last) for a payload of `bytes`.
    ///
    /// From here on the slot's old frame is gone for every reader.
    #[inline]
    pub fn claim(&mut self, bytes: u64, seq: Option<u64>) -> Result<Claim, ClaimError> {
        let too_large = ClaimError::TooLarge { bytes, largest: self.largest_stride };
        let values_len_bytes = u32::try_from(bytes).map_err(|_| too_large)?;
        let pool = self.geometry.pool_for(values_len_bytes).ok_or(too_large)?;
        let seq = seq.unwrap_or(self.next_seq);
        if seq > seqlock::MAX_SEQ {
            return Err(ClaimError::Exhausted(seq));
        }
        if seq < self.next_seq {
            return Err(ClaimError::Seq { seq, last: self.next_seq - 1 });
        }
        // A slot may not be claimed again while an open claim sits in it.
        if self.open.front().is_some_and(|oldest| seq - oldest >= u64::from(self.geometry.nslots)) {
            return Err(ClaimError::Full(self.geometry.nslots));
        }
        seqlock::begin_write(self.commit_word(seq), seq);
        self.open.push_back(seq);
        self.next_seq = seq + 1;
        let (index, stride_bytes) =
            (slot_index(seq, self.geometry.nslots), self.geometry.pools[pool].stride_bytes);
        Ok(Claim { seq, index, pool, stride_bytes, values_len_bytes })
    }

    /// Where the payload of a claim goes.
    #[inline]
    pub fn payload(&self, claim: &Claim) -> *mut u8 {
        self.pools[claim.pool]
            .address_mut(payload_offset(claim.index, claim.stride_bytes), claim.values_len_bytes as usize)
    }

    /// The pools, in the order in which claims number them: a view of a payload must keep its pool mapped.
    pub fn pools(&self) -> impl Iterator<Item = &Arc<Mapping>> {
        self.pools.iter()
    }

    /// Copies into a claim at `offset` bytes from its start.
    #[inline]
    pub fn copy_into(&self, claim: &Claim, offset: u32, bytes: &[u8]) {
        // SAFETY: a slice is valid for reads.
        unsafe { self.copy_into_raw(claim, offset, bytes.as_ptr(), bytes.len()) }
    }

    /// Copies `len` bytes at `from`, which others may change meanwhile, into a claim.
    ///
    /// # Safety
    /// `from` must be valid for reads of `len` bytes.
    #[inline]
    pub unsafe fn copy_into_raw(&self, claim: &Claim, offset: u32, from: *const u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.copy_part(claim, offset as usize, from, len, self.locality(claim)) }
    }

    /// How a frame is best copied into its claim, whole or in parts.
    #[inline]
    fn locality(&self, claim: &Claim) -> Locality {
        match self.size_says(claim) {
            Some(locality) => locality,
            None => self.bypass.locality(),
        }
    }

    /// How a frame is to be copied where its size or that of its pool leaves no choice.
    #[inline]
    fn size_says(&self, claim: &Claim) -> Option<Locality> {
        Locality::for_write(claim.values_len_bytes as usize, self.pools[claim.pool].len() as u64)
    }

    /// # Safety
    /// `from` must be valid for reads of `len` bytes.
    #[inline]
    unsafe fn copy_part(
        &self,
        claim: &Claim,
        offset: usize,
        from: *const u8,
        len: usize,
        locality: Locality,
    ) {
        let end = offset + len;
        assert!(end <= claim.values_len_bytes as usize, "{end} bytes do not fit the claim");
        let start = payload_offset(claim.index, claim.stride_bytes) + offset as u64;
        // SAFETY: the caller's promise.
        unsafe { self.pools[claim.pool].copy_in(start, from, len, locality) }
    }

    /// Copies a whole payload, which others may change meanwhile, and rings ahead shortly before its end.
    ///
    /// # Safety
    /// `from` must be valid for reads of as many bytes as were claimed.
    #[inline]
    pub unsafe fn copy_all_raw(&mut self, claim: &Claim, from: *const u8) {
        let len = claim.values_len_bytes as usize;
        // SAFETY: the caller's promise; each part begins where the one before ends.
        unsafe {
            let tried = self.copy_both_ways(claim, from);
            let early =
                if self.heads_up.matters() { heads_up::bytes_before_ring(len).max(tried) } else { tried };
            let locality = self.locality(claim);
            self.copy_part(claim, tried, from.add(tried), early - tried, locality);
            self.ring_ahead();
            self.copy_part(claim, early, from.add(early), len - early, locality);
        }
    }

    /// Now and then the beginning of a payload is copied in two ways, to learn which is faster; how many bytes of it.
    ///
    /// # Safety
    /// As for `copy_all_raw`.
    #[inline]
    unsafe fn copy_both_ways(&mut self, claim: &Claim, from: *const u8) -> usize {
        if self.size_says(claim).is_some() {
            return 0;
        }
        let Some(trial) = self.bypass.trial(claim.values_len_bytes as usize) else { return 0 };
        let part = trial.part_bytes;
        let begin_ns = monotonic_ns();
        // SAFETY: the caller's promise; two parts are not longer than the payload.
        unsafe { self.copy_part(claim, 0, from, part, Locality::Cached) }
        let middle_ns = monotonic_ns();
        // SAFETY: as above.
        unsafe { self.copy_part(claim, part, from.add(part), part, Locality::Streaming) }
        if trial.is_measured {
            self.bypass.measured(middle_ns - begin_ns, monotonic_ns() - middle_ns);
        }
        2 * part
    }

    /// Has frames that fit into the cache copied past it, or through it.
    #[cfg(test)]
    pub(super) fn bypass_cache(&mut self, bypass: bool) {
        self.bypass.decide(bypass);
    }

    /// Writes the header of an open claim, so that readers may follow its progress (decision M5).
    pub fn write_header(&self, claim: &Claim, header: &FrameHeader) -> Result<(), ClaimError> {
        if !self.open.contains(&claim.seq) {
            return Err(ClaimError::Finished(claim.seq));
        }
        check_extent(header, claim.values_len_bytes)?;
        let nslots = self.geometry.nslots;
        let pool_id = self.geometry.pools[claim.pool].pool_id;
        let bytes = slot::encode(header, claim.seq, pool_id, nslots).map_err(ClaimError::Tensor)?;
        self.header.store_slot(slot_offset(claim.index), &bytes);
        Ok(())
    }

    /// Publishes a claim: header, then the commit word as the very last store [WIRE-15.18-1].
    ///
    /// Claims are committed in the order in which they were made, so that readers see sequence numbers grow.
    #[inline]
    pub fn commit(&mut self, claim: &Claim, header: &FrameHeader) -> Result<(), ClaimError> {
        match self.open.front() {
            Some(oldest) if *oldest < claim.seq && self.open.contains(&claim.seq) => {
                return Err(ClaimError::Open(*oldest));
            }
            _ => self.write_header(claim, header)?,
        }
        self.open.pop_front();
        seqlock::commit_write(self.commit_word(claim.seq), claim.seq);
        Ok(())
    }

    /// Gives a claim up. Its slot stays marked as being written and its number is skipped.
    pub fn abort(&mut self, claim: &Claim) -> Result<(), ClaimError> {
        let at = self.open.iter().position(|seq| *seq == claim.seq).ok_or(ClaimError::Finished(claim.seq))?;
        self.open.remove(at);
        Ok(())
    }

    /// Copies one frame in and commits it; its sequence number.
    #[inline]
    pub fn publish(&mut self, payload: &[u8], header: &FrameHeader) -> Result<u64, ClaimError> {
        // SAFETY: a slice is valid for reads, and all of it is claimed.
        let copy = |writer: &mut Self, claim: &Claim| unsafe { writer.copy_all_raw(claim, payload.as_ptr()) };
        self.publish_with(payload.len() as u64, header, copy)
    }

    /// Claims, lets `fill` write the payload, commits.
    #[inline]
    pub fn publish_with(
        &mut self,
        bytes: u64,
        header: &FrameHeader,
        fill: impl FnOnce(&mut Self, &Claim),
    ) -> Result<u64, ClaimError> {
        if let Some(open) = self.open.front() {
            return Err(ClaimError::Open(*open));
        }
        // Before the claim: a mistake of the caller must cost neither a slot nor a number.
        check_extent(header, u32::try_from(bytes).unwrap_or(u32::MAX))?;
        let claim = self.claim(bytes, None)?;
        fill(self, &claim);
        self.commit(&claim, header).inspect_err(|_| self.open.clear())?;
        Ok(claim.seq)
    }

    /// Says that the ring is alive, without ringing (decision L8).
    pub fn refresh_activity(&self) {
        Doorbell::of(&self.header).refresh_activity(monotonic_ns());
    }

    /// Rings the doorbell: raises the activity time stamp and wakes up to `wake` sleeping readers.
    #[inline]
    pub fn ring(&self, wake: u32) {
        let bell = Doorbell::of(&self.header);
        bell.raise(monotonic_ns());
        bell.wake(wake);
    }

    /// Rings the doorbell for everybody; where many sleep, a thread goes on waking them after this has returned.
    #[inline]
    pub fn ring_all(&mut self, now_ns: u64) {
        let woken = self.crowd.ring(now_ns);
        self.heads_up.finished(now_ns, woken);
    }

    /// A frame will soon be complete: wakes who sleeps now rather than then, where that paid off for the one before.
    #[inline]
    pub fn ring_ahead(&mut self) {
        if !self.heads_up.matters() {
            return;
        }
        let now_ns = monotonic_ns();
        if self.heads_up.is_worth_a_ring(now_ns) {
            let woken = self.crowd.ring(now_ns);
            self.heads_up.rang(woken, monotonic_ns());
        }
    }
}

/// Do the elements fit the payload, and the payload the claim?
fn check_extent(header: &FrameHeader, claimed: u32) -> Result<(), ClaimError> {
    let (need, length) = (header.tensor.extent_bytes(), header.values_len_bytes);
    if need > length.into() {
        return Err(ClaimError::Extent { need, length });
    }
    if length > claimed { Err(ClaimError::Length { length, claimed }) } else { Ok(()) }
}
