//! Reading frames where they lie.

use std::sync::Arc;

use super::Geometry;
use super::geometry::{RingAddress, RingFiles};
use crate::copy::Locality;
use crate::doorbell::Doorbell;
use crate::drops::DropReason;
use crate::layout::slot_offset;
use crate::region::{Access, BaseDirs, Mapping, RegionError};
use crate::seqlock::{self, Commit};
use crate::slot::{self, FrameRecord, slot_index};
use crate::sync::AtomicU64;
use crate::tensor::ProgressUnit;

/// Between two looks at a frame that is being copied. Past the cache each block ends with a wait for its stores.
const fn copy_block_bytes(locality: Locality) -> usize {
    match locality {
        Locality::Cached => 64 << 10,
        Locality::Streaming => 4 << 20,
    }
}

/// A ring, mapped read-only. Cheap to share: borrowed frames keep it alive.
#[derive(Debug)]
pub struct RingReader {
    files: RingFiles,
    header: Mapping,
    pools: Vec<Mapping>,
}

impl RingReader {
    /// Opens, checks and maps a ring.
    pub fn open(address: &RingAddress, bases: &BaseDirs, relaxed_stride: bool) -> Result<Self, RegionError> {
        let files = RingFiles::open(address, bases, Access::Read, relaxed_stride)?;
        let (header, pools) = files.map(Access::Read)?;
        Ok(Self { files, header, pools })
    }

    /// The numbers of the ring.
    pub fn geometry(&self) -> &Geometry {
        &self.files.geometry
    }

    /// The files behind the mappings.
    pub fn files(&self) -> &RingFiles {
        &self.files
    }

    /// The doorbell.
    pub fn doorbell(&self) -> Doorbell<'_> {
        Doorbell::of(&self.header)
    }

    /// The pools as they are mapped, in the order of the geometry, for who makes the memory known to a device.
    pub fn pools(&self) -> impl Iterator<Item = (u16, &Mapping)> {
        self.geometry().pools.iter().map(|pool| pool.pool_id).zip(&self.pools)
    }

    fn slot_offset(&self, seq: u64) -> u64 {
        slot_offset(slot_index(seq, self.geometry().nslots))
    }

    fn commit_word(&self, seq: u64) -> &AtomicU64 {
        self.header.word(self.slot_offset(seq))
    }

    /// The commit word of the slot that `seq` would use.
    #[inline]
    pub fn peek(&self, seq: u64) -> Commit {
        seqlock::begin_read(self.commit_word(seq))
    }

    /// The commit words of all slots.
    pub fn commits(&self) -> impl Iterator<Item = Commit> {
        (0..u64::from(self.geometry().nslots)).map(|index| self.peek(index))
    }

    /// Reads and checks the header of frame `seq`. The payload is not looked at.
    ///
    /// Never waits for a commit [WIRE-15.21-3]: a frame that isn't there is a reason to go on.
    #[inline]
    pub fn read(self: &Arc<Self>, seq: u64) -> Result<Borrowed, DropReason> {
        self.read_with(seq, || {})
    }

    /// `between` runs between the two looks at the commit word: tests change the slot there.
    #[inline]
    pub(super) fn read_with(
        self: &Arc<Self>,
        seq: u64,
        between: impl FnOnce(),
    ) -> Result<Borrowed, DropReason> {
        let word = self.commit_word(seq);
        let seen = seqlock::begin_read(word);
        expect(seen, seq)?;
        let bytes = self.header.load_slot(self.slot_offset(seq));
        between();
        let record = slot::decode(&bytes, seq, self.geometry());
        // What a torn header said means nothing, so this comes before its faults.
        if !seqlock::still(word, seen) {
            return Err(DropReason::ChangedWhileReading);
        }
        Ok(Borrowed { ring: Arc::clone(self), record: record? })
    }

    /// Reads as much of frame `seq` as its producer has reported, committed or not (decision M5).
    pub fn read_prefix(self: &Arc<Self>, seq: u64, filled_bytes: u64) -> Result<PrefixRead, DropReason> {
        let word = self.commit_word(seq);
        let seen = seqlock::begin_read(word);
        match seen.seq() {
            held if held == seq => {}
            held if held > seq => return Err(DropReason::Overwritten),
            _ => return Err(DropReason::Stale),
        }
        let bytes = self.header.load_slot(self.slot_offset(seq));
        let record = slot::decode(&bytes, seq, self.geometry());
        if seqlock::end_read(word).seq() != seq {
            return Err(DropReason::ChangedWhileReading);
        }
        let record = record?;
        let tensor = &record.header.tensor;
        // Without gaps bytes fill up in order; with gaps only whole steps along the progress axis mean something.
        let filled = filled_bytes.min(record.header.values_len_bytes.into());
        let usable = match tensor.progress_unit {
            _ if tensor.is_contiguous() => filled,
            ProgressUnit::None => 0,
            ProgressUnit::Rows | ProgressUnit::Columns => {
                filled / tensor.progress_stride_bytes() * tensor.progress_stride_bytes()
            }
        };
        Ok(PrefixRead { frame: Borrowed { ring: Arc::clone(self), record }, usable_bytes: usable as u32 })
    }
}

/// Is the word that of committed frame `seq`?
#[inline]
pub(super) fn expect(seen: Commit, seq: u64) -> Result<(), DropReason> {
    if seen.holds(seq) {
        return Ok(());
    }
    Err(match seen.seq() {
        held if held > seq => DropReason::Overwritten,
        // A fresh slot holds 0, which also spells "frame 0 is being written".
        held if held == seq => DropReason::InProgress,
        _ => DropReason::Stale,
    })
}

/// A frame that still lies in shared memory, header checked, payload not yet trusted.
///
/// Whatever is computed from the payload counts only if [`Borrowed::still_valid`] says so *afterwards*
/// (decision M2).
#[derive(Debug, Clone)]
pub struct Borrowed {
    ring: Arc<RingReader>,
    record: FrameRecord,
}

impl Borrowed {
    /// What the frame is.
    pub fn record(&self) -> &FrameRecord {
        &self.record
    }

    /// Address of the payload, valid as long as `self` lives; none for an empty one [WIRE-8.2-32].
    #[inline]
    pub fn payload(&self) -> Option<*const u8> {
        let pool = &self.ring.pools[self.record.pool?];
        Some(pool.address(self.record.payload_offset, self.record.header.values_len_bytes as usize))
    }

    /// Is the frame still the one that was read?
    #[inline]
    pub fn still_valid(&self) -> bool {
        seqlock::still(self.ring.commit_word(self.record.seq), Commit::committed(self.record.seq))
    }

    /// Copies the first bytes of the payload; true when they are the frame's. What arrives otherwise is garbage.
    #[inline]
    pub fn copy_to(&self, out: &mut [u8]) -> bool {
        self.copy_bytes(out) && self.still_valid()
    }

    /// Copies as long as the frame is valid, looking now and then: the rest of one that is lost is not worth the time.
    /// True when all was copied; only a look afterwards tells whether it was the frame's.
    fn copy_bytes(&self, out: &mut [u8]) -> bool {
        let len = out.len().min(self.record.header.values_len_bytes as usize);
        let Some(pool) = self.record.pool else { return true };
        let locality = Locality::for_read(len);
        let block_bytes = copy_block_bytes(locality);
        for (number, block) in out[..len].chunks_mut(block_bytes).enumerate() {
            let offset = number * block_bytes;
            if offset > 0 && self.ring.peek(self.record.seq).seq() != self.record.seq {
                return false;
            }
            let from = self.record.payload_offset + offset as u64;
            // SAFETY: a block is private and as long as it says.
            unsafe { self.ring.pools[pool].copy_out(from, block.as_mut_ptr(), block.len(), locality) }
        }
        true
    }
}

/// The first part of a frame that is still being written: provisional until it commits.
#[derive(Debug, Clone)]
pub struct PrefixRead {
    frame: Borrowed,
    /// Bytes from the start that mean something.
    pub usable_bytes: u32,
}

impl PrefixRead {
    /// What the frame is going to be.
    pub fn record(&self) -> &FrameRecord {
        self.frame.record()
    }

    /// The commit word of the frame's slot now.
    pub fn commit(&self) -> Commit {
        seqlock::end_read(self.frame.ring.commit_word(self.record().seq))
    }

    /// Copies the usable bytes; true when the slot still belonged to the frame afterwards.
    pub fn copy_to(&self, out: &mut [u8]) -> bool {
        let len = out.len().min(self.usable_bytes as usize);
        self.frame.copy_bytes(&mut out[..len]) && self.commit().seq() == self.record().seq
    }
}
