//! Shared-memory rings of SHM Tensor Pool: layouts, the seqlock, untrusted files, tensors, hot messages.
//!
//! No Python and no Aeron here. The crate has mechanisms and no policy: paths, epochs, leases and
//! time-outs are the caller's business.
//!
//! * [`layout`] names every byte offset; [`hot`] and [`chunk`] code the per-frame and per-packet messages;
//! * [`seqlock`] owns the memory orderings of the commit word, [`copy`] the copies that race on purpose;
//! * [`region`] creates, opens and maps region files, trusting nothing that it finds there;
//! * [`tensor`] and [`slot`] turn 256 bytes that anybody may have written into a checked frame;
//! * [`ring`] puts these together as a writer and as readers; [`doorbell`] lets readers sleep, and
//!   [`bell_watcher`] turns it into file descriptors, and [`crowd`] wakes many of them;
//! * [`descriptor_log`] remembers what descriptors said of frames; [`message_filter`] says which messages are ours.

#[cfg(target_endian = "big")]
compile_error!("the shared-memory layout is little-endian; big-endian machines are refused [WIRE-15.1-12]");

pub mod bell_watcher;
pub mod bridge;
pub mod bytes;
#[cfg(feature = "capi")]
pub mod capi;
pub mod chunk;
pub mod clock;
pub mod copy;
pub mod crc;
pub mod crowd;
pub mod descriptor_log;
pub mod doorbell;
pub mod drops;
pub mod hot;
pub mod layout;
pub mod message_filter;
pub mod region;
pub mod ring;
pub mod seqlock;
pub mod slot;
mod sync;
pub mod tensor;
pub mod uri;
