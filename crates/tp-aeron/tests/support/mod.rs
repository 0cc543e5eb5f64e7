//! A media driver in a directory of its own, and what tests do with it.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::net::UdpSocket;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tp_aeron::{
    AssemblyLimits, Client, ClientOptions, ExclusivePublication, MediaDriver, MediaDriverOptions,
    Subscription, ThreadingMode,
};

pub const CHANNEL: &str = "aeron:ipc?term-length=64k";
pub const BIG_CHANNEL: &str = "aeron:ipc?term-length=16m";
pub const PATIENCE: Duration = Duration::from_secs(20);
pub const LIMITS: AssemblyLimits = AssemblyLimits { max_message_bytes: 4 << 20, max_total_bytes: 8 << 20 };

pub fn fresh_dir() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("/dev/shm/tp-aeron-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A UDP port of the loopback interface that was free just now.
pub fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub fn options(dir: &str) -> MediaDriverOptions {
    MediaDriverOptions {
        dir: dir.to_owned(),
        dir_delete_on_start: true,
        dir_delete_on_shutdown: true,
        threading_mode: ThreadingMode::Shared,
        idle_strategy: ("backoff".to_owned(), Some("1-1-50us-1ms".to_owned())),
        timer_interval: Duration::from_millis(20),
        client_liveness: Some(Duration::from_secs(5)),
        untethered_window_limit: None,
        untethered_linger: None,
        untethered_resting: None,
        publication_connection: None,
        term_buffer_bytes: None,
        ipc_term_buffer_bytes: None,
        sparse_terms: None,
        counter_values_bytes: Some(1 << 20),
    }
}

pub fn start() -> MediaDriver {
    MediaDriver::start(&options(&fresh_dir())).unwrap()
}

pub fn connect(driver: &MediaDriver) -> Client {
    Client::connect(&ClientOptions {
        dir: driver.dir().to_owned(),
        name: "test".to_owned(),
        driver_timeout: Duration::from_secs(2),
        keepalive_interval: Duration::from_millis(50),
        idle_sleep: Duration::from_millis(2),
    })
    .unwrap()
}

pub fn publication(client: &Client, channel: &str, stream_id: i32) -> ExclusivePublication {
    client.add_exclusive_publication(channel, stream_id).unwrap().wait(PATIENCE).unwrap()
}

pub fn subscription(client: &Client, channel: &str, stream_id: i32) -> Subscription {
    client.add_subscription(channel, stream_id, LIMITS).unwrap().wait(PATIENCE).unwrap()
}

pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "still waiting for: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
