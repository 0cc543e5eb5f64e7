//! Why a frame was not taken, one counter each.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $name:ident = $label:literal;)*) => {
        /// Why a frame was dropped. A drop is not an error: it is counted and the reader goes on.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum DropReason { $($(#[$doc])* $name,)* }

        impl DropReason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The name that users see.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }
        }
    };
}

drop_reasons! {
    /// The slot is being written: the producer started over, or never finished.
    InProgress = "in_progress";
    /// The slot already holds a later frame.
    Overwritten = "overwritten";
    /// The commit word changed while the frame was read.
    ChangedWhileReading = "changed_while_reading";
    /// The slot holds an earlier frame than the one looked for, also when it went back to it [WIRE-15.3-1].
    Stale = "stale";
    /// `headerBytes` is not 192 bytes long.
    HeaderLength = "header_length";
    /// The embedded header is not a `TensorHeader` of version 1.
    EmbeddedHeader = "embedded_header";
    /// A dtype that is unknown or has no elements (decision B15).
    Dtype = "dtype";
    /// A major order that is unknown.
    MajorOrder = "major_order";
    /// `ndims` is 0 or above 8.
    Ndims = "ndims";
    /// A negative dimension.
    NegativeDim = "negative_dim";
    /// A negative stride.
    NegativeStride = "negative_stride";
    /// Strides that contradict the major order.
    StrideOrder = "stride_order";
    /// Strides that make elements overlap.
    StrideOverlap = "stride_overlap";
    /// Elements beyond `valuesLenBytes`.
    ExtentBeyondValues = "extent_beyond_values";
    /// A progress unit that is unknown, or doesn't fit the number of dimensions.
    ProgressUnit = "progress_unit";
    /// A progress stride that is zero or not the stride of its axis.
    ProgressStride = "progress_stride";
    /// `payloadOffset` is not 0.
    PayloadOffset = "payload_offset";
    /// `payloadSlot` is not the header's index.
    PayloadSlot = "payload_slot";
    /// A pool that was not announced.
    PoolId = "pool_id";
    /// The payload is longer than the pool's stride.
    ValuesTooLong = "values_too_long";
    /// The region file became shorter than it was.
    Truncated = "truncated";
}

impl DropReason {
    /// Does this reason count as late [WIRE-10.4.1-3]? Overwritten, in progress or changed while read (decision M14).
    pub const fn is_late(self) -> bool {
        matches!(self, Self::InProgress | Self::Overwritten | Self::ChangedWhileReading)
    }
}

/// One counter for each [`DropReason`].
#[derive(Debug)]
pub struct DropCounters([AtomicU64; DropReason::ALL.len()]);

impl Default for DropCounters {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; DropReason::ALL.len()])
    }
}

impl DropCounters {
    /// Counts one drop.
    #[inline]
    pub fn count(&self, reason: DropReason) {
        self.0[reason as usize].fetch_add(1, Relaxed);
    }

    /// How many frames were dropped for `reason`.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize].load(Relaxed)
    }

    /// How many frames were dropped because the writer was faster.
    pub fn late(&self) -> u64 {
        DropReason::ALL.iter().filter(|r| r.is_late()).map(|r| self.get(*r)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_counter_and_label() {
        let counters = DropCounters::default();
        for (n, reason) in DropReason::ALL.iter().enumerate() {
            (0..=n).for_each(|_| counters.count(*reason));
        }
        for (n, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(counters.get(*reason), n as u64 + 1, "{reason:?}");
        }
        let labels: std::collections::HashSet<_> = DropReason::ALL.iter().map(|r| r.label()).collect();
        assert_eq!(labels.len(), DropReason::ALL.len());
        assert_eq!(counters.late(), 1 + 2 + 3);
    }
}
