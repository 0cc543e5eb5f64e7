//! The clocks of shared memory, in nanoseconds: CLOCK_MONOTONIC (decision L6), and CLOCK_REALTIME for frames.

use rustix::time::{ClockId, clock_gettime};

/// Now.
#[inline]
pub fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// Now, since 1970.
#[inline]
pub fn realtime_ns() -> u64 {
    read(ClockId::Realtime)
}

#[inline]
fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    // Both parts are non-negative by definition of the one clock, and since 1970 of the other.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
