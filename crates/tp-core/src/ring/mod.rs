//! Rings: one writer, any number of readers, nobody waits for anybody.

mod any;
mod awaited;
mod bypass;
mod caution;
mod cursor;
mod elbow_room;
mod geometry;
mod heads_up;
mod keeper;
mod reader;
mod rhythm;
mod snapshot;
mod source;
mod trail;
mod waiting;
mod writer;

pub use any::{AlignedBytes, AnyFrame, AnyReader, ReadMode};
pub use awaited::Awaited;
pub use cursor::{Cursor, Polled};
pub use geometry::{Geometry, MAX_POOLS, Pool, RingAddress, RingFiles, create_ring};
pub use heads_up::wait_while_filled;
pub use keeper::RingKeeper;
pub use reader::{Borrowed, PrefixRead, RingReader};
pub use snapshot::SnapshotReader;
pub use source::Source;
pub use waiting::Waiting;
pub use writer::{Claim, ClaimError, RingMemory, RingWriter};

#[cfg(test)]
mod keeper_tests;
#[cfg(test)]
mod tests;
