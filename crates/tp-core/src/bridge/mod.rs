//! Frames that come from another host in chunks.
//!
//! An [`Assembler`] puts them together in a [`Store`], mostly the slots of a ring, straight from the packets. What
//! is missing, late, contradicts itself or lies is given up and counted ([`Losses`]); nobody sees part of a frame.

mod assembler;
mod coverage;
mod cutting;
mod losses;
mod source;
mod store;
#[cfg(test)]
mod tests;

pub use assembler::{Assembler, Limits, Whole};
pub use coverage::{Coverage, Fit};
pub use cutting::{Cut, Dialect, FrameOnWire};
pub use losses::{Losses, Lost};
pub use source::Source;
pub use store::{LooseFrame, LooseFrames, Store};
