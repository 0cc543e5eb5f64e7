//! CRC32C (Castagnoli), the checksum of meta blobs, bridge payloads and recordings.

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of `bytes`.
///
/// ```
/// assert_eq!(tp_core::crc::crc32c(b"123456789"), 0xE306_9283);
/// ```
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Continues `crc` over more `bytes`.
///
/// ```
/// use tp_core::crc::{crc32c, crc32c_append};
/// assert_eq!(crc32c_append(crc32c(b"1234"), b"56789"), crc32c(b"123456789"));
/// ```
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    // The state of a sum that goes on is its complement.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    u32::try_from(digest.finalize()).expect("32 bits")
}
