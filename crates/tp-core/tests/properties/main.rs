//! Properties of the crate, on random inputs. proptest prints the smallest failing input and its seed.

mod cursors;
mod decoders;
mod tensors;

#[path = "../../fuzz/targets.rs"]
mod targets;
