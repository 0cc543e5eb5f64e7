//! Aeron.
mod shims;
use rusteron_client as _;
use rusteron_media_driver as _;
