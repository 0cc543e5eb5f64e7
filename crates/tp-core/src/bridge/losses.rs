//! Why chunks and frames from another host were not taken, counted.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $label:literal;)*) => {
        /// Why a chunk was not used, or a frame was given up.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Lost { $($(#[$doc])* $name,)* }

        impl Lost {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The name that users see.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }
        }
    };
}

reasons! {
    /// The packet is no chunk that can be used.
    Malformed = "malformed";
    /// There is no ring to put frames into at the moment.
    NoRing = "no_ring";
    /// Nobody has announced the stream or its epoch yet.
    NotAnnounced = "not_announced";
    /// Of an epoch that has ended.
    OldEpoch = "old_epoch";
    /// The epoch ended while the frame was put together.
    EpochEnded = "epoch_ended";
    /// The slice is longer than agreed.
    ChunkTooLong = "chunk_too_long";
    /// The payload is longer than the source's slots, ours, or the limit.
    PayloadTooLong = "payload_too_long";
    /// The frame was finished or given up before, or a later one was begun.
    Late = "late";
    /// The same chunk again.
    Repeated = "repeated";
    /// Chunks of one frame contradict each other.
    Conflict = "conflict";
    /// All chunks came and leave bytes out.
    Hole = "hole";
    /// The frame's header is missing or makes no sense.
    Header = "header";
    /// The bytes are not those that were sent.
    Checksum = "checksum";
    /// Chunks are missing, and a later frame is whole already.
    Incomplete = "incomplete";
    /// Chunks are missing after the longest time that is waited for them.
    TimedOut = "timed_out";
    /// Too many frames, or too many bytes, were being put together.
    Crowded = "crowded";
}

/// One counter for each reason, of chunks and of frames.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Losses {
    chunks: [u64; Lost::ALL.len()],
    frames: [u64; Lost::ALL.len()],
}

impl Losses {
    /// A chunk was not used.
    pub fn count_chunk(&mut self, reason: Lost) {
        self.chunks[reason as usize] += 1;
    }

    /// A frame was given up.
    pub fn count_frame(&mut self, reason: Lost) {
        self.frames[reason as usize] += 1;
    }

    /// Chunks that were not used for this reason.
    pub fn chunks(&self, reason: Lost) -> u64 {
        self.chunks[reason as usize]
    }

    /// Frames that were given up for this reason.
    pub fn frames(&self, reason: Lost) -> u64 {
        self.frames[reason as usize]
    }
}
