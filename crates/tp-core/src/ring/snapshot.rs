//! Reading frames through `pread`: slower than a mapping, but a file that shrinks can't kill the reader.

use std::sync::atomic::{Ordering, fence};

use super::Geometry;
use super::any::AlignedBytes;
use super::geometry::{RingAddress, RingFiles};
use super::reader::expect;
use super::source::Source;
use crate::bytes::get;
use crate::doorbell::Doorbell;
use crate::drops::DropReason;
use crate::layout::{SLOT_BYTES, slot_offset, superblock as at};
use crate::region::{Access, BaseDirs, Mapping, RegionError};
use crate::seqlock::Commit;
use crate::slot::{self, FrameRecord, slot_index};

/// How many slots are read at once when all of them are looked at; a power of two.
const SLOTS_A_PIECE: u32 = 256;

/// A ring read by copying. What it returns is always whole and private.
///
/// A mapped file that is truncated by its owner kills whoever touches the missing page (SIGBUS); `pread`
/// just returns fewer bytes. Recorders and tools that watch untrusted producers read this way.
#[derive(Debug)]
pub struct SnapshotReader {
    files: RingFiles,
    /// Only handed to the kernel for waiting, never touched.
    superblock: Mapping,
}

impl SnapshotReader {
    /// Opens and checks a ring without mapping it.
    pub fn open(address: &RingAddress, bases: &BaseDirs, relaxed_stride: bool) -> Result<Self, RegionError> {
        let files = RingFiles::open(address, bases, Access::Read, relaxed_stride)?;
        let superblock = files.header.map_superblock(Access::Read)?;
        Ok(Self { files, superblock })
    }

    /// The numbers of the ring.
    pub fn geometry(&self) -> &Geometry {
        &self.files.geometry
    }

    /// The files.
    pub fn files(&self) -> &RingFiles {
        &self.files
    }

    /// The doorbell's word; none when the file is gone.
    pub fn bell_seen(&self) -> Option<u32> {
        let mut word = [0; 4];
        self.files
            .header
            .read_at(&mut word, at::ACTIVITY_TIMESTAMP_NS as u64)
            .then(|| u32::from_le_bytes(word))
    }

    /// The doorbell, for waiting only: reading its word would touch the mapping.
    pub fn doorbell(&self) -> Doorbell<'_> {
        Doorbell::of(&self.superblock)
    }

    /// The commit word of the slot that `seq` would use.
    pub fn peek(&self, seq: u64) -> Result<Commit, DropReason> {
        let mut word = [0; 8];
        let offset = slot_offset(slot_index(seq, self.geometry().nslots));
        let read = self.files.header.read_at(&mut word, offset);
        // A system call orders nothing by itself on weakly ordered machines.
        fence(Ordering::SeqCst);
        if read { Ok(Commit(u64::from_le_bytes(word))) } else { Err(DropReason::Truncated) }
    }

    /// Shows `visit` the commit words of all slots; false when the file is too short.
    ///
    /// Piece by piece: how many slots there are is somebody else's word, how much memory is taken is ours.
    fn each_commit(&self, mut visit: impl FnMut(Commit)) -> bool {
        let nslots = self.geometry().nslots;
        let mut piece = vec![0; nslots.min(SLOTS_A_PIECE) as usize * SLOT_BYTES];
        // Both are powers of two: pieces are always whole.
        (0..nslots).step_by(SLOTS_A_PIECE as usize).all(|first| {
            let read = self.files.header.read_at(&mut piece, slot_offset(first));
            fence(Ordering::SeqCst);
            if read {
                piece.chunks_exact(SLOT_BYTES).for_each(|slot| visit(Commit(get(slot, 0))));
            }
            read
        })
    }

    /// Copies frame `seq` into what `allocate` returns for its length; accepts it only when nothing changed meanwhile.
    pub fn read<B: AsMut<[u8]>>(
        &self,
        seq: u64,
        allocate: impl FnOnce(&FrameRecord) -> B,
    ) -> Result<(FrameRecord, B), DropReason> {
        let seen = self.peek(seq)?;
        expect(seen, seq)?;
        let mut slot = [0; SLOT_BYTES];
        let offset = slot_offset(slot_index(seq, self.geometry().nslots));
        if !self.files.header.read_at(&mut slot, offset) {
            return Err(DropReason::Truncated);
        }
        let record = slot::decode(&slot, seq, self.geometry());
        fence(Ordering::SeqCst);
        if self.peek(seq)? != seen {
            return Err(DropReason::ChangedWhileReading);
        }
        let record = record?;
        let mut payload = allocate(&record);
        let out = &mut payload.as_mut()[..record.header.values_len_bytes as usize];
        if let Some(pool) = record.pool {
            if !self.files.pools[pool].read_at(out, record.payload_offset) {
                return Err(DropReason::Truncated);
            }
        }
        fence(Ordering::SeqCst);
        if self.peek(seq)? != seen {
            return Err(DropReason::ChangedWhileReading);
        }
        Ok((record, payload))
    }
}

impl Source for SnapshotReader {
    type Frame = (FrameRecord, AlignedBytes);

    fn bell(&self) -> u32 {
        self.bell_seen().unwrap_or(0)
    }

    fn nslots(&self) -> u64 {
        self.geometry().nslots.into()
    }

    fn look(&self, seq: u64) -> Result<Commit, DropReason> {
        self.peek(seq)
    }

    fn each_commit(&self, visit: impl FnMut(Commit)) {
        // A file that is too short is noticed, and counted, where a frame is looked for.
        let _ = Self::each_commit(self, visit);
    }

    fn take(&self, seq: u64) -> Result<Self::Frame, DropReason> {
        self.read(seq, |record| AlignedBytes::new(record.header.values_len_bytes as usize))
    }
}
