//! CRC32C (Castagnoli), the checksum of meta blobs, bridge payloads and recordings.

/// The checksum of `bytes`.
///
/// ```
/// assert_eq!(tp_core::crc::crc32c(b"123456789"), 0xE306_9283);
/// ```
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// Continues `crc` over more `bytes`.
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    ::crc32c::crc32c_append(crc, bytes)
}
