//! A second reading of the layouts, written apart from the crate: slow, plain, in 128-bit arithmetic that
//! saturates far beyond any real size. Property tests and fuzz targets compare the crate with it.
//!
//! Offsets are spelled out as numbers here on purpose: a mistake in `layout.rs` must not hide itself.

/// A number of `size` bytes at `offset`.
pub fn number(bytes: &[u8], offset: usize, size: usize) -> i128 {
    (0..size).rev().fold(0, |n, i| n << 8 | i128::from(bytes[offset + i]))
}

/// The same, signed.
pub fn signed(bytes: &[u8], offset: usize, size: usize) -> i128 {
    let n = number(bytes, offset, size);
    if n >> (8 * size - 1) == 1 { n - (1 << (8 * size)) } else { n }
}

/// What a tensor header describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub dtype: i128,
    pub order: i128,
    pub progress_unit: i128,
    pub shape: Vec<i128>,
    pub strides: Vec<i128>,
}

/// Element size of a dtype on the wire, if it can be used.
pub fn element_bytes(dtype: i128) -> Option<i128> {
    match dtype {
        1 | 2 | 11 | 13 | 14 => Some(1),
        3 | 4 => Some(2),
        5 | 6 | 9 => Some(4),
        7 | 8 | 10 => Some(8),
        _ => None,
    }
}

impl Layout {
    /// Dimensions from the fastest to the slowest in memory.
    fn fastest_first(&self) -> Vec<usize> {
        let all = 0..self.shape.len();
        if self.order == 1 { all.rev().collect() } else { all.collect() }
    }

    fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// A stride of 0 stands for that of the next faster dimension times its size.
    fn infer_strides(&mut self, element: i128) {
        let mut contiguous = element;
        for i in self.fastest_first() {
            if self.strides[i] == 0 {
                self.strides[i] = contiguous;
            }
            contiguous = self.strides[i].saturating_mul(self.shape[i].max(1));
        }
    }

    /// Bytes up to the end of the last element.
    pub fn extent(&self, element: i128) -> i128 {
        if self.is_empty() {
            return 0;
        }
        let steps = self.shape.iter().zip(&self.strides).map(|(dim, stride)| stride.saturating_mul(dim - 1));
        steps.fold(element, i128::saturating_add)
    }

    /// Does each step along a dimension pass everything that the faster dimensions hold?
    fn is_nested(&self, element: i128) -> bool {
        let mut inner = element;
        self.is_empty()
            || self.fastest_first().into_iter().filter(|i| self.shape[*i] > 1).all(|i| {
                let passes = self.strides[i] >= inner;
                inner = inner.saturating_add(self.strides[i].saturating_mul(self.shape[i] - 1));
                passes
            })
    }
}

/// What the 192 bytes of an embedded tensor header describe, if a frame of `values_len` bytes may have it.
pub fn tensor(bytes: &[u8], values_len: i128) -> Option<Layout> {
    let head: Vec<_> = (0..4).map(|i| number(bytes, 2 * i, 2)).collect();
    let block = &bytes[8..];
    let (dtype, order, ndims, unit) =
        (signed(block, 0, 2), signed(block, 2, 2), number(block, 4, 1), number(block, 6, 1));
    let element = element_bytes(dtype)?;
    if head != [184, 52, 900, 1] || !(1..=2).contains(&order) || !(1..=8).contains(&ndims) || unit > 2 {
        return None;
    }
    let list = |at: usize| (0..ndims as usize).map(|i| signed(block, at + 4 * i, 4)).collect::<Vec<_>>();
    let mut layout = Layout { dtype, order, progress_unit: unit, shape: list(11), strides: list(43) };
    if layout.shape.iter().chain(&layout.strides).any(|n| *n < 0) {
        return None;
    }
    layout.infer_strides(element);
    let progress_right = match unit {
        0 => true,
        axis => layout.strides.get(axis as usize - 1) == Some(&number(block, 7, 4)),
    };
    // Also without elements, the other dimensions must be ones that a signed 64-bit length can count.
    let sizes = layout.shape.iter().map(|dim| (*dim).max(1));
    let countable = sizes.fold(element, i128::saturating_mul) <= i128::from(i64::MAX);
    let right = layout.is_nested(element) && layout.extent(element) <= values_len && progress_right;
    let right = right && (countable || !layout.is_empty());
    right.then_some(layout)
}

/// What a slot says about its frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    pub values_len: i128,
    pub timestamp_ns: i128,
    pub meta_version: i128,
    /// Position of the pool in the announced list, and offset in its file; none for empty payloads.
    pub place: Option<(usize, i128)>,
    pub layout: Layout,
}

/// What a slot holds, if frame `seq` may have it in a ring of `nslots` with pools of (id, stride).
pub fn slot(bytes: &[u8; 256], seq: u64, nslots: u32, pools: &[(u16, u32)]) -> Option<Slot> {
    let index = i128::from(seq) % i128::from(nslots);
    let (values_len, pool_id) = (number(bytes, 8, 4), number(bytes, 16, 2));
    if number(bytes, 12, 4) != index || number(bytes, 18, 4) != 0 || number(bytes, 60, 4) != 192 {
        return None;
    }
    let place = if values_len == 0 {
        None
    } else {
        let at = pools.iter().position(|(id, _)| i128::from(*id) == pool_id)?;
        let stride = i128::from(pools[at].1);
        if values_len > stride {
            return None;
        }
        Some((at, 64 + index * stride))
    };
    let layout = tensor(&bytes[64..], values_len)?;
    Some(Slot {
        values_len,
        timestamp_ns: number(bytes, 22, 8),
        meta_version: number(bytes, 30, 4),
        place,
        layout,
    })
}

/// Is this the superblock of a region of `stream_id` and `epoch` with `nslots`? `pool` is (id, stride).
pub fn superblock(
    bytes: &[u8; 64],
    stream_id: u32,
    epoch: u64,
    nslots: u32,
    pool: Option<(u16, u32)>,
) -> bool {
    let (kind, pool_id) = pool.map_or((1, 0), |(id, _)| (2, i128::from(id)));
    let size = match pool {
        None => number(bytes, 32, 4) == 256,
        Some((_, stride)) => number(bytes, 36, 4) == i128::from(stride),
    };
    &bytes[..8] == b"1MHSLPOT"
        && number(bytes, 8, 4) == 1
        && number(bytes, 12, 8) == i128::from(epoch)
        && number(bytes, 20, 4) == i128::from(stream_id)
        && number(bytes, 24, 2) == kind
        && number(bytes, 26, 2) == pool_id
        && number(bytes, 28, 4) == i128::from(nslots)
        && size
}

/// Is this a region URI, and of which path, and must it have huge pages?
pub fn uri(text: &str) -> Option<(&str, bool)> {
    if text.len() > 4160 {
        return None;
    }
    let rest = text.strip_prefix("shm:file?path=")?;
    let (path, huge) = match rest.find('|') {
        None => (rest, false),
        Some(bar) if &rest[bar..] == "|require_hugepages=true" => (&rest[..bar], true),
        Some(bar) if &rest[bar..] == "|require_hugepages=false" => (&rest[..bar], false),
        Some(_) => return None,
    };
    let visible = path.chars().all(|c| c.is_ascii_graphic() && c != '?');
    (visible && path.starts_with('/')).then_some((path, huge))
}

/// The block of a message of schema 900 without groups, if `message` is one; later versions may be longer.
pub fn control_block(message: &[u8], template: i128, block_length: usize) -> Option<&[u8]> {
    if message.len() < 8 {
        return None;
    }
    let [length, found, schema, version] = [0, 2, 4, 6].map(|at| number(message, at, 2));
    let known = (found, schema) == (template, 900) && version >= 1 && length >= block_length as i128;
    (known && message.len() as i128 == 8 + length).then(|| &message[8..])
}

/// Where the parts of a bridge chunk are: (header, payload), if the packet may be used.
pub fn chunk(packet: &[u8]) -> Option<(&[u8], &[u8])> {
    let read = |at: usize, size: usize| packet.get(at..at + size).map(|bytes| number(bytes, 0, size));
    let (shift, flag, block) = match read(0, 2)? {
        41 => (0, 40, 41),
        53 => (8, 52, 53),
        _ => return None,
    };
    if (read(2, 2)?, read(4, 2)?, read(6, 2)?) != (1, 902, 1) {
        return None;
    }
    let field = |at: usize| read(8 + at + shift, 4);
    let (index, count, offset, length, total) = (field(20)?, field(24)?, field(28)?, field(32)?, field(36)?);
    let header_at = 8 + block + 4;
    let header_len = usize::try_from(read(header_at - 4, 4)?).ok()?;
    let payload_at = header_at.checked_add(header_len)?.checked_add(4)?;
    let payload_len = usize::try_from(read(payload_at - 4, 4)?).ok()?;
    let whole = payload_at.checked_add(payload_len)? == packet.len();
    let header_right = match (index, read(8 + flag, 1)?) {
        (0, 1) => header_len == 256 && offset == 0,
        (0, _) => false,
        (_, included) => included == 0 && header_len == 0,
    };
    let limits = count <= 65_535 && index < count && length <= 65_535 && total <= 1 << 30;
    let slice = length == payload_len as i128 && offset + length <= total;
    (whole && header_right && limits && slice)
        .then(|| (&packet[header_at..header_at + header_len], &packet[payload_at..]))
}
