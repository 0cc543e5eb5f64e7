//! Both ways of reading a ring behind one type, for those who choose at run time.

use std::sync::Arc;

use super::geometry::{RingAddress, RingFiles};
use super::reader::{Borrowed, RingReader};
use super::snapshot::SnapshotReader;
use super::source::Source;
use crate::doorbell::Doorbell;
use crate::drops::DropReason;
use crate::region::{BaseDirs, RegionError};
use crate::seqlock::Commit;
use crate::slot::FrameRecord;

/// How to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// Frames stay in shared memory.
    Map,
    /// Frames are copied with system calls; files that shrink do no harm.
    Copy,
}

/// A ring, read in either way. Cheap to clone.
#[derive(Debug, Clone)]
pub enum AnyReader {
    /// Through a mapping.
    Mapped(Arc<RingReader>),
    /// Through `pread`.
    Copied(Arc<SnapshotReader>),
}

impl AnyReader {
    /// Opens and checks a ring.
    pub fn open(
        address: &RingAddress,
        bases: &BaseDirs,
        mode: ReadMode,
        relaxed_stride: bool,
    ) -> Result<Self, RegionError> {
        Ok(match mode {
            ReadMode::Map => Self::Mapped(RingReader::open(address, bases, relaxed_stride)?.into()),
            ReadMode::Copy => Self::Copied(SnapshotReader::open(address, bases, relaxed_stride)?.into()),
        })
    }

    /// The files.
    pub fn files(&self) -> &RingFiles {
        match self {
            Self::Mapped(ring) => ring.files(),
            Self::Copied(ring) => ring.files(),
        }
    }

    /// The doorbell, for waiting.
    pub fn doorbell(&self) -> Doorbell<'_> {
        match self {
            Self::Mapped(ring) => ring.doorbell(),
            Self::Copied(ring) => ring.doorbell(),
        }
    }
}

impl Source for AnyReader {
    type Frame = AnyFrame;

    fn bell(&self) -> u32 {
        match self {
            Self::Mapped(ring) => ring.bell(),
            Self::Copied(ring) => ring.bell(),
        }
    }

    fn nslots(&self) -> u64 {
        self.files().geometry.nslots.into()
    }

    fn look(&self, seq: u64) -> Result<Commit, DropReason> {
        match self {
            Self::Mapped(ring) => ring.look(seq),
            Self::Copied(ring) => ring.look(seq),
        }
    }

    fn each_commit(&self, visit: impl FnMut(Commit)) {
        match self {
            Self::Mapped(ring) => ring.each_commit(visit),
            Self::Copied(ring) => Source::each_commit(ring.as_ref(), visit),
        }
    }

    fn take(&self, seq: u64) -> Result<AnyFrame, DropReason> {
        match self {
            Self::Mapped(ring) => ring.take(seq).map(AnyFrame::Borrowed),
            Self::Copied(ring) => ring.take(seq).map(|(record, bytes)| AnyFrame::Owned(record, bytes)),
        }
    }
}

/// A frame, wherever its payload is.
#[derive(Debug)]
pub enum AnyFrame {
    /// In shared memory, where the producer may overwrite it any time.
    Borrowed(Borrowed),
    /// In private memory, whole and checked.
    Owned(FrameRecord, AlignedBytes),
}

impl AnyFrame {
    /// What the frame is.
    pub fn record(&self) -> &FrameRecord {
        match self {
            Self::Borrowed(frame) => frame.record(),
            Self::Owned(record, _) => record,
        }
    }

    /// Address of the payload, valid as long as `self` lives; none for an empty one.
    pub fn payload(&self) -> Option<*const u8> {
        match self {
            Self::Borrowed(frame) => frame.payload(),
            Self::Owned(record, bytes) => record.pool.map(|_| bytes.as_ref().as_ptr()),
        }
    }

    /// Is the payload still the frame's? Ask after using it.
    pub fn still_valid(&self) -> bool {
        match self {
            Self::Borrowed(frame) => frame.still_valid(),
            Self::Owned(..) => true,
        }
    }

    /// Copies the first bytes of the payload; true when they are the frame's.
    pub fn copy_to(&self, out: &mut [u8]) -> bool {
        match self {
            Self::Borrowed(frame) => frame.copy_to(out),
            Self::Owned(_, bytes) => {
                let len = out.len().min(bytes.len);
                out[..len].copy_from_slice(&bytes.as_ref()[..len]);
                true
            }
        }
    }
}

/// Private memory, aligned for every element type.
#[derive(Debug)]
pub struct AlignedBytes {
    words: Vec<u64>,
    len: usize,
}

impl AlignedBytes {
    /// Of `len` zeros.
    pub fn new(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(8)], len }
    }
}

impl AsRef<[u8]> for AlignedBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the words have at least `len` initialised bytes.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.len) }
    }
}

impl AsMut<[u8]> for AlignedBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.len) }
    }
}
