//! The clock of shared memory: CLOCK_MONOTONIC in nanoseconds (decision L6).

use rustix::time::{ClockId, clock_gettime};

/// Now.
#[inline]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Both parts are non-negative by definition of the clock.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
