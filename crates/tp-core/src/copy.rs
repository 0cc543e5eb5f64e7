//! Copies between private and shared memory that race with other processes on purpose.
//!
//! The seqlock throws away whatever was copied while somebody else wrote, but the copy itself must still
//! be defined behaviour. A Rust `copy_nonoverlapping` (or a C `memcpy`) that races is undefined; the two
//! ways out used here are not:
//!
//! * on x86-64 the loops are inline assembly, whose meaning is the machine's, not the compiler's;
//! * elsewhere, and with the feature `portable-copy`, they are relaxed atomic loads and stores, word by
//!   word. Sanitizers and Miri see those, but not what assembly does. (Where the two sides differ in
//!   alignment they go byte by byte, and may meet the word stores of another process: a mix of sizes that
//!   Rust's memory model leaves open and hardware does not.)
//!
//! Large copies bypass the cache ([`Locality::Streaming`]): a ring that doesn't fit into the last cache
//! would otherwise be read from memory before it is overwritten. That is up to twice as fast as plain stores at 8 MiB.
//! How exactly depends on who made the CPU: Intel's are faster with four pages side by side, AMD's half as fast.

use std::sync::OnceLock;

/// What should happen to the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locality {
    /// Somebody reads the copy soon: leave it in the cache.
    Cached,
    /// The copy, or the ring that it is part of, is larger than the cache: write past it.
    Streaming,
}

/// Below this streaming does not pay.
const STREAM_MIN_BYTES: usize = 64 << 10;

impl Locality {
    /// For writing frames of `len` bytes round and round through `footprint_bytes` of shared memory; none where it
    /// depends on who reads them.
    pub fn for_write(len: usize, footprint_bytes: u64) -> Option<Self> {
        if len < STREAM_MIN_BYTES {
            Some(Self::Cached)
        } else if footprint_bytes > last_cache_bytes() as u64 {
            Some(Self::Streaming)
        } else {
            None
        }
    }

    /// For reading a frame of `len` bytes into private memory: whoever wanted a copy looks at it next, as far as it fits.
    pub fn for_read(len: usize) -> Self {
        if len > last_cache_bytes() / 2 { Self::Streaming } else { Self::Cached }
    }
}

/// Size of the last-level cache, or a common one when the machine doesn't tell.
fn last_cache_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let read =
            |name: &str| std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index3/{name}"));
        let parsed = read("size").ok().and_then(|text| {
            let text = text.trim();
            text.strip_suffix('K').and_then(|kib| kib.parse::<usize>().ok()).map(|kib| kib << 10)
        });
        parsed.unwrap_or(32 << 20)
    })
}

/// Copies `len` bytes from `src` to `dst`; either side may be changed by others meanwhile.
///
/// # Safety
/// Both ranges must be mapped (`dst` writable) for the whole call and must not overlap. Bytes that race
/// arrive in any mixture of old and new: the caller decides afterwards whether to keep them.
pub unsafe fn racy_copy(dst: *mut u8, src: *const u8, len: usize, locality: Locality) {
    // SAFETY: the caller's promises are those of the kernels.
    unsafe { kernel::copy(dst, src, len, locality) }
}

#[cfg(all(target_arch = "x86_64", not(feature = "portable-copy")))]
mod kernel {
    use std::arch::asm;
    use std::sync::OnceLock;

    use super::Locality;

    const PAGE: usize = 4096;
    const BLOCK: usize = 4 * PAGE;
    const LINE: usize = 64;
    /// Below this, say a chunk of a small packet, fences cost more than streaming gains.
    const STREAM_PIECE_BYTES: usize = PAGE;

    /// Below this a string instruction is as good as anything.
    const WIDE_MIN_BYTES: usize = 256;
    /// Copies at least this long are worth a thought: they are (parts of) large frames, not chunks of packets.
    const LARGE_BYTES: usize = 64 << 10;

    struct Cpu {
        /// `rep movsb` is fast (ERMS).
        fast_strings: bool,
        avx: bool,
        /// Intel's string instructions take memory over from other cores without reading it, and four pages at once are
        /// faster than one. AMD's don't, and aren't.
        is_intel: bool,
    }

    fn is_intel() -> bool {
        let vendor = std::arch::x86_64::__cpuid(0);
        [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"GenuineIntel"
    }

    fn cpu() -> &'static Cpu {
        static CPU: OnceLock<Cpu> = OnceLock::new();
        CPU.get_or_init(|| Cpu {
            fast_strings: is_x86_feature_detected!("ermsb"),
            avx: is_x86_feature_detected!("avx"),
            is_intel: is_intel(),
        })
    }

    #[inline]
    pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize, locality: Locality) {
        // SAFETY: as promised by the caller of `racy_copy`; AVX is only used where the CPU has it.
        unsafe {
            if locality == Locality::Streaming && len >= STREAM_PIECE_BYTES && cpu().avx {
                streaming(dst, src, len);
            } else if len >= LARGE_BYTES && cpu().fast_strings && cpu().is_intel {
                strings(dst, src, len);
            } else if len >= WIDE_MIN_BYTES && cpu().avx {
                // Their loads keep their order: they are done before the caller looks at the commit word again.
                return wide(dst, src, len);
            } else if len < WIDE_MIN_BYTES || cpu().fast_strings {
                strings(dst, src, len);
            } else {
                vectors(dst, src, len);
            }
            // Those of a string instruction need not.
            asm!("lfence", options(nostack, preserves_flags));
        }
    }

    #[inline]
    unsafe fn strings(dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the direction flag is clear by the ABI; both ranges are mapped.
        unsafe {
            asm!("rep movsb", inout("rcx") len => _, inout("rdi") dst => _, inout("rsi") src => _,
                 options(nostack, preserves_flags));
        }
    }

    /// Whole vectors to aligned places. Where the two sides differ in alignment, as chunks and slots do, string
    /// instructions take up to half as long again. So does going through several pages side by side, which is faster
    /// where the two sides are alike and one core has the cache to itself.
    unsafe fn wide(dst: *mut u8, src: *const u8, len: usize) {
        // Both ends are copied without alignment, and partly by the loop as well. The end comes last: its lines are near then.
        let head = LINE - dst.addr() % LINE;
        let body = (len - head) & !(2 * LINE - 1);
        let tail = len - head - body;
        // SAFETY: `len` is at least 256, so a line at the start and two at the end lie within both ranges, and
        // `head + body + tail == len` with a body that is not empty; AVX was detected. Upper halves of registers are lost.
        unsafe {
            asm!(
                "vmovdqu ymm0, [rsi]", "vmovdqu ymm1, [rsi + 32]",
                "vmovdqu [rdi], ymm0", "vmovdqu [rdi + 32], ymm1",
                "add rsi, rdx", "add rdi, rdx",
                "2:",
                "vmovdqu ymm0, [rsi]", "vmovdqu ymm1, [rsi + 32]", "vmovdqu ymm2, [rsi + 64]", "vmovdqu ymm3, [rsi + 96]",
                "vmovdqa [rdi], ymm0", "vmovdqa [rdi + 32], ymm1", "vmovdqa [rdi + 64], ymm2", "vmovdqa [rdi + 96], ymm3",
                "sub rsi, -128", "sub rdi, -128", "sub rcx, 128", "jnz 2b",
                "vmovdqu ymm0, [rsi + rax - 128]", "vmovdqu ymm1, [rsi + rax - 96]",
                "vmovdqu ymm2, [rsi + rax - 64]", "vmovdqu ymm3, [rsi + rax - 32]",
                "vmovdqu [rdi + rax - 128], ymm0", "vmovdqu [rdi + rax - 96], ymm1",
                "vmovdqu [rdi + rax - 64], ymm2", "vmovdqu [rdi + rax - 32], ymm3",
                "vzeroupper",
                inout("rsi") src => _, inout("rdi") dst => _, inout("rcx") body => _,
                in("rax") tail, in("rdx") head,
                clobber_abi("sysv64"), options(nostack),
            );
        }
    }

    /// For CPUs whose string instructions are slow.
    unsafe fn vectors(dst: *mut u8, src: *const u8, len: usize) {
        let body = len & !63;
        // SAFETY: `body` is a multiple of 64, at least 256, within both ranges; SSE2 is part of x86-64.
        unsafe {
            asm!(
                "2:",
                "movdqu {a}, [{s}]", "movdqu {b}, [{s} + 16]", "movdqu {c}, [{s} + 32]", "movdqu {e}, [{s} + 48]",
                "movdqu [{d}], {a}", "movdqu [{d} + 16], {b}", "movdqu [{d} + 32], {c}", "movdqu [{d} + 48], {e}",
                "add {s}, 64", "add {d}, 64", "sub {n}, 64", "jnz 2b",
                s = inout(reg) src => _, d = inout(reg) dst => _, n = inout(reg) body => _,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, e = out(xmm_reg) _,
                options(nostack),
            );
            strings(dst.add(body), src.add(body), len - body);
        }
    }

    /// Non-temporal stores, line by line; where that is faster four pages side by side.
    unsafe fn streaming(dst: *mut u8, src: *const u8, len: usize) {
        // Whole cache lines: a line written in two halves, with other lines in between, leaves the
        // write-combining buffers twice and is many times slower.
        let head = dst.align_offset(LINE);
        // SAFETY: head + blocks * BLOCK + lines * LINE + tail == len; `avx_block` copies exactly one block.
        unsafe {
            // Non-temporal stores may also overtake earlier ones: the mark that the slot is being written
            // must be visible before the first byte of its payload changes [WIRE-8.3-5].
            asm!("sfence", options(nostack, preserves_flags));
            strings(dst, src, head);
            let blocks = if cpu().is_intel { (len - head) / BLOCK } else { 0 };
            let (mut at, end) = (head, head + blocks * BLOCK);
            while at < end {
                avx_block(dst.add(at), src.add(at));
                at += BLOCK;
            }
            let lines = (len - at) / LINE;
            avx_lines(dst.add(at), src.add(at), lines);
            at += lines * LINE;
            // Non-temporal stores are weakly ordered: they must be visible before the commit word is.
            // The upper halves of all vector registers are lost, hence the clobbers.
            asm!("sfence", "vzeroupper", clobber_abi("sysv64"), options(nostack, preserves_flags));
            strings(dst.add(at), src.add(at), len - at);
        }
    }

    #[inline]
    unsafe fn avx_block(dst: *mut u8, src: *const u8) {
        // SAFETY: `dst` is 64-byte aligned, a whole block is mapped on both sides (prefetching past the
        // end is harmless), and AVX was detected.
        unsafe {
            asm!(
                "2:",
                "prefetcht0 [{s} + 128]", "prefetcht0 [{s} + 4224]", "prefetcht0 [{s} + 8320]", "prefetcht0 [{s} + 12416]",
                "vmovdqu ymm0, [{s}]", "vmovdqu ymm1, [{s} + 32]",
                "vmovdqu ymm2, [{s} + 4096]", "vmovdqu ymm3, [{s} + 4128]",
                "vmovdqu ymm4, [{s} + 8192]", "vmovdqu ymm5, [{s} + 8224]",
                "vmovdqu ymm6, [{s} + 12288]", "vmovdqu ymm7, [{s} + 12320]",
                "vmovntdq [{d}], ymm0", "vmovntdq [{d} + 32], ymm1",
                "vmovntdq [{d} + 4096], ymm2", "vmovntdq [{d} + 4128], ymm3",
                "vmovntdq [{d} + 8192], ymm4", "vmovntdq [{d} + 8224], ymm5",
                "vmovntdq [{d} + 12288], ymm6", "vmovntdq [{d} + 12320], ymm7",
                "add {s}, 64", "add {d}, 64", "sub {n}, 64", "jnz 2b",
                s = inout(reg) src => _, d = inout(reg) dst => _, n = inout(reg) PAGE => _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                options(nostack),
            );
        }
    }

    #[inline]
    unsafe fn avx_lines(dst: *mut u8, src: *const u8, lines: usize) {
        if lines == 0 {
            return;
        }
        // SAFETY: as for `avx_block`, with as many lines as there are.
        unsafe {
            asm!(
                "2:",
                "prefetcht0 [{s} + 512]",
                "vmovdqu ymm0, [{s}]", "vmovdqu ymm1, [{s} + 32]",
                "vmovntdq [{d}], ymm0", "vmovntdq [{d} + 32], ymm1",
                "add {s}, 64", "add {d}, 64", "dec {n}", "jnz 2b",
                s = inout(reg) src => _, d = inout(reg) dst => _, n = inout(reg) lines => _,
                out("xmm0") _, out("xmm1") _,
                options(nostack),
            );
        }
    }
}

#[cfg(any(not(target_arch = "x86_64"), feature = "portable-copy"))]
mod kernel {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

    use super::Locality;

    pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize, _: Locality) {
        // SAFETY: every access is inside the caller's ranges; a word access only where both are aligned.
        unsafe {
            let byte = |i: usize| {
                let value = AtomicU8::from_ptr(src.add(i).cast_mut()).load(Relaxed);
                AtomicU8::from_ptr(dst.add(i)).store(value, Relaxed);
            };
            let (head, aligned) = (dst.align_offset(8).min(len), (src.addr() ^ dst.addr()) % 8 == 0);
            let words = if aligned { (len - head) / 8 } else { 0 };
            (0..head).for_each(byte);
            for i in 0..words {
                let at = head + i * 8;
                let value = AtomicU64::from_ptr(src.add(at).cast_mut().cast()).load(Relaxed);
                AtomicU64::from_ptr(dst.add(at).cast()).store(value, Relaxed);
            }
            (head + words * 8..len).for_each(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(len: usize, shift: usize, locality: Locality) {
        let src: Vec<u8> = (0..len + shift).map(|i| (i * 31 + 7) as u8).collect();
        let mut dst = vec![0xEE; len + shift + 64];
        // SAFETY: both ranges lie inside the vectors.
        unsafe { racy_copy(dst.as_mut_ptr().add(shift / 2), src.as_ptr().add(shift), len, locality) };
        assert_eq!(&dst[shift / 2..shift / 2 + len], &src[shift..], "len {len} shift {shift} {locality:?}");
        assert!(dst[..shift / 2].iter().all(|b| *b == 0xEE), "wrote before the range: len {len}");
        assert!(dst[shift / 2 + len..].iter().all(|b| *b == 0xEE), "wrote behind the range: len {len}");
    }

    #[test]
    fn copies_every_length_and_alignment() {
        for locality in [Locality::Cached, Locality::Streaming] {
            for shift in [0, 1, 5, 32, 63] {
                for len in (0..520).chain([4095, 4096, 16383, 16384, 16385, 65536 + 17, 3 * 16384 + 1]) {
                    check(len, shift, locality);
                }
            }
        }
    }

    #[test]
    fn large_copies_and_large_rings_bypass_the_cache() {
        assert_eq!(Locality::for_write(64, u64::MAX), Some(Locality::Cached));
        assert_eq!(Locality::for_write(STREAM_MIN_BYTES - 1, u64::MAX), Some(Locality::Cached));
        assert_eq!(Locality::for_write(STREAM_MIN_BYTES, u64::MAX), Some(Locality::Streaming));
        assert_eq!(Locality::for_write(1 << 20, 1 << 21), None);
        assert_eq!(Locality::for_write(1 << 30, last_cache_bytes() as u64), None, "the ring fits");
        assert_eq!(Locality::for_read(last_cache_bytes() / 2 + 1), Locality::Streaming);
        assert_eq!(Locality::for_read(last_cache_bytes() / 2), Locality::Cached);
    }
}
