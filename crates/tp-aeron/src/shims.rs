//! Two C functions that Aeron calls and that we provide, so that the module needs neither libbsd nor libuuid.

use std::ffi::{c_uchar, c_uint};

fn fill_random(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            // Without a source of randomness ids would collide; nothing sensible can go on.
            Err(e) => panic!("getrandom: {e}"),
        }
    }
}

/// libbsd's `arc4random`: Aeron takes session ids and initial term ids from it.
#[unsafe(no_mangle)]
extern "C" fn arc4random() -> c_uint {
    let mut bytes = [0; 4];
    fill_random(&mut bytes);
    c_uint::from_ne_bytes(bytes)
}

/// libuuid's `uuid_generate`: Aeron names an agent with it. A random (version 4) UUID.
///
/// # Safety
/// `out` must point to 16 writable bytes, as libuuid demands.
#[unsafe(no_mangle)]
unsafe extern "C" fn uuid_generate(out: *mut c_uchar) {
    // SAFETY: the caller gives 16 writable bytes.
    let bytes = unsafe { std::slice::from_raw_parts_mut(out, 16) };
    fill_random(bytes);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
}
