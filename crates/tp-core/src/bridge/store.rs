//! Where frames are put together: slots of a ring, or memory of one's own.

use crate::crc::crc32c;
use crate::ring::{Claim, ClaimError, RingWriter};
use crate::slot::FrameHeader;

/// Where frames are put together, one place for each. A place that is not committed shows nothing to anybody.
pub trait Store {
    /// A place that is being filled.
    type Place;

    /// Longest payload that fits.
    fn max_payload_bytes(&self) -> u32;

    /// The lowest number that a frame may still have.
    fn next_seq(&self) -> u64;

    /// Takes a place for frame `seq`.
    ///
    /// # Errors
    /// It does not fit, or too many are open.
    fn claim(&mut self, seq: u64, bytes: u32) -> Result<Self::Place, ClaimError>;

    /// Writes bytes that lie inside the place.
    fn write(&mut self, place: &mut Self::Place, offset: u32, bytes: &[u8]);

    /// Bytes that were written, all of them.
    fn payload<'a>(&'a self, place: &'a Self::Place) -> &'a [u8];

    /// Hands the frame out. Places are committed in the order of their numbers.
    ///
    /// # Errors
    /// The tensor can't be described.
    fn commit(&mut self, place: Self::Place, header: &FrameHeader) -> Result<(), ClaimError>;

    /// Gives a place up.
    fn abort(&mut self, place: Self::Place);

    /// Checksum of the whole payload.
    fn crc32c(&self, place: &Self::Place) -> u32 {
        crc32c(self.payload(place))
    }
}

impl Store for RingWriter {
    type Place = Claim;

    fn max_payload_bytes(&self) -> u32 {
        RingWriter::max_payload_bytes(self)
    }

    fn next_seq(&self) -> u64 {
        RingWriter::next_seq(self)
    }

    fn claim(&mut self, seq: u64, bytes: u32) -> Result<Claim, ClaimError> {
        RingWriter::claim(self, bytes.into(), Some(seq))
    }

    fn write(&mut self, place: &mut Claim, offset: u32, bytes: &[u8]) {
        self.copy_into(place, offset, bytes);
    }

    fn payload<'a>(&'a self, place: &'a Claim) -> &'a [u8] {
        let length = place.values_len_bytes as usize;
        if length == 0 {
            return &[];
        }
        // SAFETY: the ring has one writer, and `self` is it: nobody writes to an open claim meanwhile.
        unsafe { std::slice::from_raw_parts(RingWriter::payload(self, place), length) }
    }

    fn commit(&mut self, place: Claim, header: &FrameHeader) -> Result<(), ClaimError> {
        RingWriter::commit(self, &place, header)
    }

    fn abort(&mut self, place: Claim) {
        RingWriter::abort(self, &place).expect("a place is given up once");
    }
}

/// A frame that was put together in memory of its own.
#[derive(Debug, Clone)]
pub struct LooseFrame {
    /// Sequence number.
    pub seq: u64,
    /// What its producer says about it.
    pub header: FrameHeader,
    /// Its bytes.
    pub payload: Vec<u8>,
}

/// Frames in memory of their own, for readers without shared memory.
#[derive(Debug)]
pub struct LooseFrames {
    max_payload_bytes: u32,
    next_seq: u64,
    /// Those that are whole, oldest first; the reader takes them.
    pub whole: std::collections::VecDeque<LooseFrame>,
}

impl LooseFrames {
    /// Nothing yet.
    pub fn new(max_payload_bytes: u32) -> Self {
        Self { max_payload_bytes, next_seq: 0, whole: Default::default() }
    }
}

impl Store for LooseFrames {
    type Place = (u64, Vec<u8>);

    fn max_payload_bytes(&self) -> u32 {
        self.max_payload_bytes
    }

    fn next_seq(&self) -> u64 {
        self.next_seq
    }

    fn claim(&mut self, seq: u64, bytes: u32) -> Result<Self::Place, ClaimError> {
        if bytes > self.max_payload_bytes {
            return Err(ClaimError::TooLarge { bytes: bytes.into(), largest: self.max_payload_bytes });
        }
        if seq < self.next_seq {
            return Err(ClaimError::Seq { seq, last: self.next_seq - 1 });
        }
        self.next_seq = seq.checked_add(1).ok_or(ClaimError::Exhausted(seq))?;
        Ok((seq, vec![0; bytes as usize]))
    }

    fn write(&mut self, place: &mut Self::Place, offset: u32, bytes: &[u8]) {
        let offset = offset as usize;
        place.1[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn payload<'a>(&'a self, place: &'a Self::Place) -> &'a [u8] {
        &place.1
    }

    fn commit(&mut self, (seq, payload): Self::Place, header: &FrameHeader) -> Result<(), ClaimError> {
        self.whole.push_back(LooseFrame { seq, header: *header, payload });
        Ok(())
    }

    fn abort(&mut self, _: Self::Place) {}
}
