//! Aeron.
mod shims;
use rusteron_client::bindings as client;
use rusteron_media_driver::bindings as driver;
/// Version of Aeron's client.
pub fn version() -> i64 {
    // SAFETY: probe
    unsafe { client::aeron_nano_clock() }
}
/// probe
pub fn driver_probe() -> i32 {
    let mut ctx = std::ptr::null_mut();
    // SAFETY: probe
    unsafe { driver::aeron_driver_context_init(&mut ctx) }
}
