#![no_main]

#[allow(dead_code, reason = "one target of many")]
#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    targets::assembly::assembly(data);
});
