//! A drain with a real media driver: whatever ends first, nothing hangs and nothing is lost in silence.

mod support;

use std::time::Duration;

use support::*;
use tp_aeron::{Drain, DrainOptions, Error, Inbox, InboxLimits, PulseMessage, Subscription};

const ROOMY: InboxLimits = InboxLimits { max_messages: 10_000, max_bytes: 1 << 20 };
const LONG: Duration = Duration::from_secs(60);

fn drain() -> Drain {
    Drain::start(&DrainOptions {
        name: "drain".to_owned(),
        shortest_pause: Duration::from_micros(100),
        longest_pause: Duration::from_millis(5),
    })
    .unwrap()
}

fn inbox(drain: &Drain, subscription: &Subscription) -> Inbox {
    drain.inbox(subscription.clone(), ROOMY, None).unwrap()
}

fn keepalive() -> PulseMessage {
    PulseMessage { bytes: b"keepalive-timestamp!".to_vec(), timestamp_offset: Some(10) }
}

#[test]
fn a_publisher_is_never_held_back_by_who_does_not_read() {
    let driver = start();
    let client = connect(&driver);
    let (sub, publication) = (subscription(&client, CHANNEL, 10), publication(&client, CHANNEL, 10));
    eventually("a connection", || publication.is_connected().unwrap());
    let drain = drain();
    let small = InboxLimits { max_messages: 100, max_bytes: 1 << 20 };
    let inbox = drain.inbox(sub, small, None).unwrap();
    // Far more than the log holds; nobody takes anything.
    for number in 0..5_000_u32 {
        eventually("room in the log", || publication.offer(&number.to_le_bytes().repeat(64)).is_ok());
    }
    eventually("all messages", || inbox.counts().received + inbox.counts().overflowed == 5_000);
    assert_eq!(inbox.counts().received, 100, "the newest are lost");
    let taken = inbox.take(1_000).unwrap();
    let numbers: Vec<_> =
        taken.iter().map(|m| u32::from_le_bytes(m.bytes[..4].try_into().unwrap())).collect();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    assert!(taken.iter().all(|message| message.session_id == publication.constants().session_id));
    assert!(taken.windows(2).all(|pair| pair[0].position < pair[1].position));
}

#[test]
fn waiting_ends_when_a_message_comes_and_when_some_are_left() {
    let driver = start();
    let client = connect(&driver);
    let (sub, publication) = (subscription(&client, CHANNEL, 10), publication(&client, CHANNEL, 10));
    eventually("a connection", || publication.is_connected().unwrap());
    let drain = drain();
    let inbox = inbox(&drain, &sub);
    assert!(!drain.wait(Duration::from_millis(1)).unwrap());
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| drain.wait(LONG));
        publication.offer(b"one").unwrap();
        publication.offer(b"two").unwrap();
        assert!(sleeper.join().unwrap().unwrap());
    });
    eventually("both", || inbox.len() == 2);
    assert_eq!(&*inbox.take(1).unwrap()[0].bytes, b"one");
    assert!(drain.wait(LONG).unwrap(), "one is left");
    assert_eq!(&*inbox.take(9).unwrap()[0].bytes, b"two");
    // A neglected inbox keeps nobody awake.
    publication.offer(b"three").unwrap();
    assert!(drain.wait(LONG).unwrap());
    assert!(!drain.wait(Duration::from_millis(20)).unwrap());
    drain.wake().unwrap();
    assert!(drain.wait(LONG).unwrap());
}

#[test]
fn taking_looks_at_the_subscription_itself() {
    let driver = start();
    let client = connect(&driver);
    let (sub, publication) = (subscription(&client, CHANNEL, 10), publication(&client, CHANNEL, 10));
    eventually("a connection", || publication.is_connected().unwrap() && sub.is_connected().unwrap());
    let slow = DrainOptions { name: "slow".to_owned(), shortest_pause: LONG, longest_pause: LONG };
    let drain = Drain::start(&slow).unwrap();
    let inbox = inbox(&drain, &sub);
    eventually("the first round", || drain.rounds() > 0);
    for number in 0..20 {
        publication.offer(&[number]).unwrap();
    }
    assert_eq!(inbox.take(5).unwrap().len(), 5);
    assert_eq!(inbox.take(50).unwrap().len(), 15);
}

#[test]
fn an_idle_drain_sleeps_longer_and_longer_and_hurries_when_asked() {
    let drain = drain();
    eventually("the longest pause", || drain.rounds() >= 10);
    let before = drain.rounds();
    std::thread::sleep(Duration::from_millis(200));
    let idle = drain.rounds() - before;
    assert!(idle <= 60, "{idle} rounds in 200 ms with pauses of 5 ms");
    drain.hurry(Duration::from_millis(200)).unwrap();
    let before = drain.rounds();
    std::thread::sleep(Duration::from_millis(200));
    let hurried = drain.rounds() - before;
    assert!(hurried > 3 * idle.max(10), "{hurried} rounds in a hurry, {idle} without");
}

#[test]
fn pulses_go_out_at_once_and_in_step_with_the_time_of_sending() {
    let driver = start();
    let client = connect(&driver);
    let (sub, publication) = (subscription(&client, CHANNEL, 10), publication(&client, CHANNEL, 10));
    eventually("a connection", || publication.is_connected().unwrap());
    let drain = drain();
    let inbox = inbox(&drain, &sub);
    let first = drain.pulse(publication.clone(), keepalive(), LONG).unwrap();
    eventually("the first", || first.sent() == 1);
    let quick = drain.pulse(publication, keepalive(), Duration::from_millis(10)).unwrap();
    eventually("five more", || quick.sent() >= 5);
    quick.stop().unwrap();
    quick.stop().unwrap();
    let sent = quick.sent();
    eventually("what was sent", || inbox.len() as u64 == sent + 1);
    let stamps: Vec<_> = inbox
        .take(1_000)
        .unwrap()
        .iter()
        .map(|message| {
            assert!(message.bytes.starts_with(b"keepalive-") && message.bytes.ends_with(b"p!"));
            u64::from_le_bytes(message.bytes[10..18].try_into().unwrap())
        })
        .collect();
    assert_eq!((Some(stamps[0]), stamps.last().copied()), (first.last_sent_ns(), quick.last_sent_ns()));
    assert!(stamps[1..].windows(2).all(|pair| pair[1] > pair[0]));
    assert_eq!((first.failed(), quick.failed(), quick.sent()), (0, 0, sent));
    assert!(quick.is_stopped() && !first.is_stopped());
    drop(first);
}

#[test]
fn a_pulse_that_nobody_hears_counts_and_goes_on() {
    let driver = start();
    let client = connect(&driver);
    let publication = publication(&client, CHANNEL, 10);
    let drain = drain();
    let pulse = drain.pulse(publication, keepalive(), Duration::from_millis(10)).unwrap();
    eventually("failures", || pulse.failed() >= 2);
    assert_eq!((pulse.sent(), pulse.last_sent_ns()), (0, None));
    let sub = subscription(&client, CHANNEL, 10);
    let inbox = inbox(&drain, &sub);
    eventually("a listener", || pulse.sent() >= 2 && inbox.len() >= 2);
}

#[test]
fn nonsense_is_refused() {
    let driver = start();
    let client = connect(&driver);
    let publication = publication(&client, CHANNEL, 10);
    let drain = drain();
    let pulse = |length: usize, timestamp_offset, period| {
        drain.pulse(publication.clone(), PulseMessage { bytes: vec![0; length], timestamp_offset }, period)
    };
    for refused in [
        pulse(8, Some(1), LONG),
        pulse(8, Some(usize::MAX), LONG),
        pulse(1 << 20, None, LONG),
        pulse(8, None, Duration::ZERO),
    ] {
        assert!(matches!(refused, Err(Error::InvalidArgument(_))));
    }
    for (name, shortest, longest) in [("a\0b", 1, 2), ("x", 0, 2), ("x", 3, 2)] {
        let (shortest_pause, longest_pause) =
            (Duration::from_millis(shortest), Duration::from_millis(longest));
        let options = DrainOptions { name: name.to_owned(), shortest_pause, longest_pause };
        assert!(matches!(Drain::start(&options), Err(Error::InvalidArgument(_))));
    }
}

#[test]
fn closing_comes_in_any_order() {
    let driver = start();
    let client = connect(&driver);
    let (sub, publication) = (subscription(&client, CHANNEL, 10), publication(&client, CHANNEL, 10));
    eventually("a connection", || publication.is_connected().unwrap());
    let message = || publication.offer(b"message").unwrap();

    // The subscription first: what came before is still given.
    let drain = drain();
    let other = subscription(&client, CHANNEL, 10);
    let first = inbox(&drain, &sub);
    message();
    eventually("the message", || first.len() == 1);
    sub.close().unwrap();
    eventually("the end", || first.is_closed());
    assert_eq!(first.take(9).unwrap().len(), 1);
    assert_eq!(first.take(9), Err(Error::Closed("subscription")));

    // The inbox: the subscription lives on for others.
    eventually("the other's image", || other.is_connected().unwrap());
    let second = inbox(&drain, &other);
    second.close().unwrap();
    second.close().unwrap();
    assert_eq!(second.take(9), Err(Error::Closed("inbox")));
    message();
    let mut heard = 0;
    eventually("the message", || {
        other.poll(9, |_, _| heard += 1).unwrap();
        heard > 0
    });

    // The drain: inboxes give what they hold, pulses stop, and who waits is told.
    let third = inbox(&drain, &other);
    let pulse = drain.pulse(publication.clone(), keepalive(), LONG).unwrap();
    eventually("the pulse", || third.len() == 1);
    std::thread::scope(|scope| {
        let sleepers = [scope.spawn(|| drain.wait(LONG)), scope.spawn(|| drain.wait(LONG))];
        eventually("a sleeper to get the ring", || sleepers.iter().any(|sleeper| sleeper.is_finished()));
        drain.close().unwrap();
        drain.close().unwrap();
        let ends: Vec<_> = sleepers.map(|sleeper| sleeper.join().unwrap()).into();
        assert!(ends.contains(&Err(Error::Closed("drain"))));
    });
    assert!(drain.is_closed() && pulse.is_stopped());
    assert_eq!(third.take(9).unwrap().len(), 1);
    assert_eq!(third.take(9), Err(Error::Closed("drain")));
    let closed = [
        drain.wait(LONG).map(drop),
        drain.hurry(LONG),
        drain.inbox(other.clone(), ROOMY, None).map(drop),
        drain.pulse(publication.clone(), keepalive(), LONG).map(drop),
    ];
    assert!(closed.iter().all(|result| *result == Err(Error::Closed("drain"))));
    pulse.stop().unwrap();
}

#[test]
fn a_lost_media_driver_is_told_and_survived() {
    let driver = start();
    let client = connect(&driver);
    let (sub, publication) = (subscription(&client, CHANNEL, 10), publication(&client, CHANNEL, 10));
    eventually("a connection", || publication.is_connected().unwrap());
    let drain = drain();
    let inbox = inbox(&drain, &sub);
    let pulse = drain.pulse(publication, keepalive(), Duration::from_millis(5)).unwrap();
    eventually("a pulse", || pulse.sent() > 0 && !inbox.is_empty());
    driver.close().unwrap();
    eventually("the end", || inbox.is_closed());
    while !inbox.is_empty() {
        inbox.take(1_000).unwrap();
    }
    assert!(matches!(inbox.take(9), Err(Error::NoMediaDriver { .. })));
    let failed = pulse.failed();
    eventually("failures", || pulse.failed() > failed + 2);

    // The same drain serves the next client.
    let driver = start();
    let client = connect(&driver);
    let (sub, publication) = (subscription(&client, CHANNEL, 10), publication_of(&client));
    let next = drain.inbox(sub, ROOMY, None).unwrap();
    let _pulse = drain.pulse(publication, keepalive(), Duration::from_millis(5)).unwrap();
    eventually("pulses again", || next.len() > 2);
}

fn publication_of(client: &tp_aeron::Client) -> tp_aeron::ExclusivePublication {
    publication(client, CHANNEL, 10)
}

#[test]
fn handles_may_be_dropped_in_any_order() {
    let driver = start();
    for order in 0..24_usize {
        let client = connect(&driver);
        let (sub, publication) = (subscription(&client, CHANNEL, 10), publication_of(&client));
        let drain = drain();
        let inbox = inbox(&drain, &sub);
        let pulse = drain.pulse(publication, keepalive(), Duration::from_millis(1)).unwrap();
        drop(sub);
        eventually("a pulse", || pulse.sent() > 0);
        let mut held: Vec<Box<dyn Send>> =
            vec![Box::new(client), Box::new(drain), Box::new(inbox), Box::new(pulse)];
        let mut order = order;
        while !held.is_empty() {
            drop(held.swap_remove(order % held.len()));
            order /= held.len().max(1);
        }
    }
}
