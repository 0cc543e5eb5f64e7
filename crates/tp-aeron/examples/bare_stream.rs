//! Frames over a bare Aeron stream: what `make bench-bridge` measures the bridge against.
//!
//! `bare_stream send|receive AERON_DIR CHANNEL STREAM_ID FRAME_BYTES BUFFERS CHUNK_BYTES RATE_HZ`; frames come from
//! and go to so many buffers in turn, and a rate of 0 is as fast as it goes. It says `ready` when there is a
//! connection, then obeys lines on its standard input: `go`, `begin`, `end` (which reports what happened since
//! `begin`), and ends with its input.
//!
//! Chunk size, pauses and batches are those of the bridge. A chunk says which part of which frame it is, since a
//! receiver that was left behind joins again in the middle of one; nothing else is done for it.

use std::collections::VecDeque;
use std::io::BufRead;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use tp_aeron::{AssemblyLimits, Client, ClientOptions, ExclusivePublication, OfferError, Subscription};

const PATIENCE: Duration = Duration::from_secs(20);
const LIMITS: AssemblyLimits = AssemblyLimits { max_message_bytes: 1 << 20, max_total_bytes: 1 << 20 };
const PREFIX_BYTES: usize = 16;
/// As the bridge's sender while its receiver does not keep up: an eighth of a term at 4 GB/s, within these limits.
const SEND_PAUSES: (Duration, Duration) = (Duration::from_micros(50), Duration::from_micros(500));
/// As the bridge's receiver while nothing comes.
const YIELDS: u32 = 2;
const SHORTEST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);
const CHUNKS_A_TURN: usize = 1024;
/// Before a frame is due its time is waited for without sleeping: sleeps end when they like.
const SPIN: Duration = Duration::from_micros(100);

struct Plan {
    aeron_dir: String,
    channel: String,
    stream_id: i32,
    frame_bytes: usize,
    buffers: usize,
    chunk_bytes: usize,
    rate_hz: f64,
}

/// What happened since the beginning of the measurement.
#[derive(Default)]
struct Tally {
    frames: u64,
    delays_ns: VecDeque<u64>,
}

#[derive(Default)]
struct Shared {
    goes: AtomicBool,
    ends: AtomicBool,
    tally: Mutex<Tally>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, aeron_dir, channel, stream_id, frame_bytes, buffers, chunk_bytes, rate_hz] = &arguments[..]
    else {
        panic!("send|receive AERON_DIR CHANNEL STREAM_ID FRAME_BYTES BUFFERS CHUNK_BYTES RATE_HZ");
    };
    let plan = Plan {
        aeron_dir: aeron_dir.clone(),
        channel: channel.clone(),
        stream_id: stream_id.parse().expect("a stream id"),
        frame_bytes: frame_bytes.parse().expect("a number of bytes"),
        buffers: buffers.parse().expect("a number of buffers"),
        chunk_bytes: chunk_bytes.parse().expect("a number of bytes"),
        rate_hz: rate_hz.parse().expect("a rate"),
    };
    let client = Client::connect(&ClientOptions {
        dir: plan.aeron_dir.clone(),
        name: format!("bare {role}"),
        driver_timeout: Duration::from_secs(5),
        keepalive_interval: Duration::from_millis(500),
        idle_sleep: Duration::from_millis(16),
    })
    .expect("a media driver");
    let shared = Shared::default();
    thread::scope(|scope| {
        match role.as_str() {
            "send" => {
                let publication = client.add_exclusive_publication(&plan.channel, plan.stream_id);
                let publication = publication.unwrap().wait(PATIENCE).expect("a publication");
                await_connection(|| publication.is_connected().unwrap());
                let (plan, shared) = (&plan, &shared);
                scope.spawn(move || send(&publication, plan, shared));
            }
            "receive" => {
                let subscription = client.add_subscription(&plan.channel, plan.stream_id, LIMITS);
                let subscription = subscription.unwrap().wait(PATIENCE).expect("a subscription");
                println!("listening");
                await_connection(|| subscription.is_connected().unwrap());
                let (plan, shared) = (&plan, &shared);
                scope.spawn(move || receive(&subscription, plan, shared));
            }
            other => panic!("send or receive, not {other}"),
        }
        println!("ready");
        obey(&plan, &shared);
        shared.ends.store(true, Relaxed);
    });
}

fn await_connection(is_there: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_there() {
        assert!(Instant::now() < deadline, "no other end");
        thread::sleep(Duration::from_millis(1));
    }
}

fn obey(plan: &Plan, shared: &Shared) {
    let (mut began, mut cpu) = (Instant::now(), cpu_time());
    for line in std::io::stdin().lock().lines() {
        match line.expect("text").as_str() {
            "go" => shared.goes.store(true, Relaxed),
            "begin" => {
                *shared.tally.lock().unwrap() = Tally::default();
                (began, cpu) = (Instant::now(), cpu_time());
            }
            "end" => {
                let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_time() - cpu);
                let tally = std::mem::take(&mut *shared.tally.lock().unwrap());
                let mut delays: Vec<u64> = tally.delays_ns.into();
                delays.sort_unstable();
                let at =
                    |part: usize| delays.get(delays.len() * part / 100).map_or(0.0, |ns| *ns as f64 / 1e3);
                println!(
                    r#"{{"frames":{},"nbytes":{},"seconds":{seconds},"cpu_s":{},"p50_us":{},"p99_us":{}}}"#,
                    tally.frames,
                    tally.frames * plan.frame_bytes as u64,
                    cpu.as_secs_f64(),
                    at(50),
                    at(99),
                );
            }
            other => panic!("go, begin or end, not {other}"),
        }
    }
}

fn send(publication: &ExclusivePublication, plan: &Plan, shared: &Shared) {
    let term_bytes = publication.constants().term_bytes as u64;
    let pause = Duration::from_nanos(term_bytes / 32).clamp(SEND_PAUSES.0, SEND_PAUSES.1);
    let mut frames = vec![vec![1; plan.frame_bytes]; plan.buffers];
    let mut due = Instant::now();
    let mut number = 0u64;
    while !shared.ends.load(Relaxed) {
        if !shared.goes.load(Relaxed) {
            thread::sleep(Duration::from_millis(1));
            due = Instant::now();
            continue;
        }
        if plan.rate_hz > 0.0 {
            due += Duration::from_secs_f64(1.0 / plan.rate_hz);
            thread::sleep(due.saturating_duration_since(Instant::now()).saturating_sub(SPIN));
            while Instant::now() < due {}
        }
        let frame = &mut frames[number as usize % plan.buffers];
        frame[..8].copy_from_slice(&now_ns().to_le_bytes());
        for (n, slice) in frame.chunks(plan.chunk_bytes).enumerate() {
            let offset = (n * plan.chunk_bytes) as u64;
            while let Err(error) = publication.try_claim(PREFIX_BYTES + slice.len(), |out| {
                out[..8].copy_from_slice(&number.to_le_bytes());
                out[8..PREFIX_BYTES].copy_from_slice(&offset.to_le_bytes());
                out[PREFIX_BYTES..].copy_from_slice(slice);
            }) {
                match error {
                    OfferError::BackPressured | OfferError::AdminAction => thread::sleep(pause),
                    _ if shared.ends.load(Relaxed) => return,
                    // A receiver that was left behind joins again.
                    OfferError::NotConnected => thread::sleep(Duration::from_millis(1)),
                    error => panic!("{error}"),
                }
            }
        }
        number += 1;
        shared.tally.lock().unwrap().frames += 1;
    }
}

fn receive(subscription: &Subscription, plan: &Plan, shared: &Shared) {
    let mut frames = vec![vec![1; plan.frame_bytes]; plan.buffers];
    // Of the present frame, and how much of it came.
    let (mut number, mut filled) = (0u64, 0);
    let (mut yields, mut pause) = (YIELDS, SHORTEST_PAUSE);
    while !shared.ends.load(Relaxed) {
        let polled = subscription.poll(CHUNKS_A_TURN, |packet, _| {
            let (prefix, slice) = packet.split_at(PREFIX_BYTES);
            let [of, offset] = [0, 8].map(|at| u64::from_le_bytes(prefix[at..at + 8].try_into().unwrap()));
            if of != number {
                (number, filled) = (of, 0);
            }
            let frame = &mut frames[of as usize % plan.buffers];
            frame[offset as usize..offset as usize + slice.len()].copy_from_slice(slice);
            filled += slice.len();
            if filled == frame.len() {
                let sent_ns = u64::from_le_bytes(frame[..8].try_into().unwrap());
                let mut tally = shared.tally.lock().unwrap();
                tally.frames += 1;
                tally.delays_ns.push_back(now_ns().saturating_sub(sent_ns));
            }
        });
        match polled.expect("a media driver") {
            1.. => (yields, pause) = (YIELDS, SHORTEST_PAUSE),
            0 if yields > 0 => {
                yields -= 1;
                thread::yield_now();
            }
            0 => {
                thread::sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// On the clock that all processes of the machine share.
fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// User and system time of this process so far.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
