//! Which bytes and which chunks of a payload have come.

/// What a chunk is to those that came before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// Its bytes are new.
    New,
    /// The chunk came before with this place and length; it is the same, if its bytes are.
    Repeated,
    /// It contradicts an earlier one: part of its bytes came with another chunk, or its number with other bytes.
    Conflict,
}

/// Which bytes and which chunks of one payload have come, in any order.
///
/// Memory is bounded by the number of chunks: a word for each, and a span for each run of bytes.
#[derive(Debug)]
pub struct Coverage {
    payload_length: u32,
    chunk_count: u32,
    chunks: u32,
    bytes: u32,
    /// Where each chunk lies; 0 before it came.
    slices: Box<[u64]>,
    /// Runs of bytes `start..end`, apart from each other, in order. Chunks mostly come in order: one run.
    spans: Vec<(u32, u32)>,
}

impl Coverage {
    /// Nothing has come yet.
    pub fn new(payload_length: u32, chunk_count: u32) -> Self {
        Self {
            payload_length,
            chunk_count,
            chunks: 0,
            bytes: 0,
            slices: vec![0; chunk_count as usize].into_boxed_slice(),
            spans: Vec::with_capacity(1),
        }
    }

    /// Length of the whole payload.
    pub fn payload_length(&self) -> u32 {
        self.payload_length
    }

    /// How many chunks there are.
    pub fn chunk_count(&self) -> u32 {
        self.chunk_count
    }

    /// How many bytes came.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Have all chunks come? They may leave bytes out, if their lengths lied.
    pub fn has_all_chunks(&self) -> bool {
        self.chunks == self.chunk_count
    }

    /// Have all chunks and all bytes come?
    pub fn is_complete(&self) -> bool {
        self.has_all_chunks() && self.bytes == self.payload_length
    }

    /// Bytes that came from the start on without a hole.
    pub fn prefix(&self) -> u32 {
        self.spans.first().map_or(0, |(start, end)| if *start == 0 { *end } else { 0 })
    }

    /// Notes chunk `index`, `length` bytes from `offset` on; both lie inside their limits.
    pub fn add(&mut self, index: u32, offset: u32, length: u32) -> Fit {
        // Offsets have 30 bits and lengths 16, so a chunk that came is never 0.
        let slice = 1 << 63 | u64::from(offset) << 32 | u64::from(length);
        match self.slices[index as usize] {
            0 => {}
            known if known == slice => return Fit::Repeated,
            _ => return Fit::Conflict,
        }
        let end = offset + length;
        // The first run that ends at or behind the chunk's start.
        let at = self.spans.partition_point(|span| span.1 < offset);
        let touches_before = self.spans.get(at).is_some_and(|span| span.1 == offset);
        let next = at + usize::from(touches_before);
        if length > 0 && self.spans.get(next).is_some_and(|span| span.0 < end) {
            return Fit::Conflict;
        }
        self.slices[index as usize] = slice;
        self.chunks += 1;
        if length > 0 {
            self.bytes += length;
            self.join(at, next, touches_before, (offset, end));
        }
        Fit::New
    }

    fn join(&mut self, at: usize, next: usize, touches_before: bool, (start, end): (u32, u32)) {
        let touches_next = self.spans.get(next).is_some_and(|span| span.0 == end);
        match (touches_before, touches_next) {
            (true, true) => {
                self.spans[at].1 = self.spans[next].1;
                self.spans.remove(next);
            }
            (true, false) => self.spans[at].1 = end,
            (false, true) => self.spans[next].0 = start,
            (false, false) => self.spans.insert(at, (start, end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_in_order_make_one_run() {
        let mut coverage = Coverage::new(250, 3);
        for (index, offset, length) in [(0, 0, 100), (1, 100, 100)] {
            assert_eq!(coverage.add(index, offset, length), Fit::New);
            assert!(!coverage.is_complete());
        }
        assert_eq!((coverage.prefix(), coverage.bytes()), (200, 200));
        assert_eq!(coverage.add(2, 200, 50), Fit::New);
        assert!(coverage.is_complete());
        assert_eq!(coverage.spans, [(0, 250)]);
    }

    #[test]
    fn any_order_is_complete_in_the_end() {
        let mut coverage = Coverage::new(250, 3);
        assert_eq!(coverage.add(2, 200, 50), Fit::New);
        assert_eq!(coverage.prefix(), 0);
        assert_eq!(coverage.add(0, 0, 100), Fit::New);
        assert_eq!(coverage.prefix(), 100);
        assert_eq!(coverage.add(1, 100, 100), Fit::New);
        assert!(coverage.is_complete());
    }

    #[test]
    fn an_empty_payload_is_one_empty_chunk() {
        let mut coverage = Coverage::new(0, 1);
        assert!(!coverage.is_complete());
        assert_eq!(coverage.add(0, 0, 0), Fit::New);
        assert!(coverage.is_complete());
        assert_eq!(coverage.add(0, 0, 0), Fit::Repeated);
    }

    #[test]
    fn contradictions_are_seen() {
        let mut coverage = Coverage::new(300, 3);
        assert_eq!(coverage.add(1, 100, 100), Fit::New);
        assert_eq!(coverage.add(1, 100, 100), Fit::Repeated);
        assert_eq!(coverage.add(1, 200, 100), Fit::Conflict, "the same chunk, other bytes");
        assert_eq!(coverage.add(1, 110, 80), Fit::Conflict, "the same chunk, fewer bytes");
        assert_eq!(coverage.add(1, 100, 0), Fit::Conflict, "the same chunk, no bytes");
        assert_eq!(coverage.add(0, 0, 101), Fit::Conflict, "one byte too many");
        assert_eq!(coverage.add(2, 199, 101), Fit::Conflict, "one byte too early");
        assert_eq!(coverage.add(2, 100, 100), Fit::Conflict, "another chunk, the same bytes");
        assert_eq!(coverage.add(0, 0, 300), Fit::Conflict, "all around");
        assert_eq!(coverage.add(0, 0, 50), Fit::New);
        assert_eq!(coverage.add(2, 200, 100), Fit::New);
        assert!(coverage.has_all_chunks() && !coverage.is_complete());
    }
}
