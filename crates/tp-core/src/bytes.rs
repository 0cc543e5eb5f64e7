//! Little-endian integers at any byte offset.
//!
//! Most fields of the layout are unaligned (decision B2), so nothing here ever forms a typed reference.

/// An integer that the wire carries in little-endian order.
pub trait Little: Sized + Copy {
    /// Its size in bytes.
    const BYTES: usize;
    /// Reads it at `offset`. Panics when `bytes` is too short: callers check lengths first.
    fn get(bytes: &[u8], offset: usize) -> Self;
    /// Writes it at `offset`. Panics when `bytes` is too short.
    fn put(self, bytes: &mut [u8], offset: usize);
}

macro_rules! little {
    ($($int:ty),*) => {$(
        impl Little for $int {
            const BYTES: usize = size_of::<$int>();
            #[inline]
            fn get(bytes: &[u8], offset: usize) -> Self {
                let mut raw = [0; size_of::<$int>()];
                raw.copy_from_slice(&bytes[offset..offset + size_of::<$int>()]);
                <$int>::from_le_bytes(raw)
            }
            #[inline]
            fn put(self, bytes: &mut [u8], offset: usize) {
                bytes[offset..offset + size_of::<$int>()].copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
little!(u8, u16, u32, u64, i16, i32);

/// Reads a little-endian integer at `offset`.
#[inline]
pub fn get<T: Little>(bytes: &[u8], offset: usize) -> T {
    T::get(bytes, offset)
}

/// Writes a little-endian integer at `offset`.
#[inline]
pub fn put<T: Little>(bytes: &mut [u8], offset: usize, value: T) {
    value.put(bytes, offset);
}
