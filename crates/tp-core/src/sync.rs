//! The atomics of the seqlock. `tests/loom.rs` compiles `seqlock.rs` against loom's instead.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
