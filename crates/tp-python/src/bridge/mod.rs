//! The bridge's work for every chunk; everything else of it is Python.

mod receiver;
mod sender;

pub use receiver::ChunkReceiver;
pub use sender::ChunkSender;
