//! A real media driver, real clients, and every order of ending them.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::*;
use tp_aeron::{
    Error, ImageEvent, MediaDriver, MediaDriverOptions, OfferError, driver_status, read_counters,
};

#[test]
fn messages_pass_whole_claimed_and_in_pieces() {
    let driver = start();
    let client = connect(&driver);
    let (sub, publication) = (subscription(&client, BIG_CHANNEL, 10), publication(&client, BIG_CHANNEL, 10));
    eventually("a connection", || publication.is_connected().unwrap() && sub.is_connected().unwrap());
    let large: Vec<u8> = (0..1 << 20).map(|i| (i % 251) as u8).collect();
    publication.offer(b"small").unwrap();
    publication.try_claim(3, |bytes| bytes.copy_from_slice(b"abc")).unwrap();
    publication.offer(&large).unwrap();
    publication.offer(b"").unwrap();
    let mut received = Vec::new();
    eventually("four messages", || {
        sub.poll_assembled(64, |message, header| {
            assert_eq!((header.session_id, header.stream_id), (publication.constants().session_id, 10));
            received.push(message.to_vec());
        })
        .unwrap();
        received.len() == 4
    });
    assert_eq!(received, [b"small".to_vec(), b"abc".to_vec(), large, Vec::new()]);
    let counts = publication.counts();
    assert_eq!((counts.sent, counts.sent_bytes), (4, 8 + (1 << 20)));

    let too_long = publication.offer(&vec![0; publication.constants().max_message_bytes + 1]);
    assert!(matches!(too_long, Err(OfferError::TooLong { .. })));
    let too_long =
        publication.try_claim(publication.constants().max_payload_bytes + 1, |_| panic!("not reached"));
    assert!(matches!(too_long, Err(OfferError::TooLong { .. })));
    assert_eq!(publication.counts().failed, 2);
}

#[test]
fn a_shared_publication_is_one_stream_for_many_writers() {
    let driver = start();
    let client = connect(&driver);
    let sub = subscription(&client, CHANNEL, 18);
    let add = || client.add_publication(CHANNEL, 18).unwrap().wait(PATIENCE).unwrap();
    let (first, second) = (add(), add());
    assert_eq!(first.constants().session_id, second.constants().session_id);
    eventually("a connection", || first.is_connected().unwrap());
    thread::scope(|scope| {
        for publication in [&first, &second] {
            scope.spawn(|| (0..50).for_each(|_| assert!(publication.offer(b"x").is_ok())));
        }
    });
    let mut count = 0;
    eventually("all messages", || {
        sub.poll(100, |_, _| count += 1).unwrap();
        count == 100
    });
    first.close().unwrap();
    assert!(second.offer(b"the other goes on").is_ok());
}

#[test]
fn a_panic_in_a_handler_leaves_the_handles_usable() {
    let driver = start();
    let client = connect(&driver);
    let (sub, publication) = (subscription(&client, CHANNEL, 11), publication(&client, CHANNEL, 11));
    eventually("a connection", || publication.is_connected().unwrap());
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        publication.try_claim(8, |_| panic!("on purpose")).unwrap();
    }));
    assert!(caught.is_err());
    publication.offer(b"after").unwrap();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        eventually("the handler's panic", || sub.poll(1, |_, _| panic!("on purpose")).unwrap() > 9);
    }));
    assert!(caught.is_err());
    publication.offer(b"again").unwrap();
    let mut received = Vec::new();
    eventually("the second message", || {
        sub.poll(1, |message, _| received.push(message.to_vec())).unwrap();
        !received.is_empty()
    });
    assert_eq!(received, [b"again".to_vec()]);
}

#[test]
fn back_pressure_and_nobody_listening_are_told_apart() {
    let driver = start();
    let client = connect(&driver);
    let publication = publication(&client, CHANNEL, 12);
    assert_eq!(publication.offer(b"x"), Err(OfferError::NotConnected));
    let sub = subscription(&client, CHANNEL, 12);
    eventually("a connection", || publication.is_connected().unwrap());
    let message = [0; 1024];
    eventually("back-pressure", || publication.offer(&message) == Err(OfferError::BackPressured));
    let counts = publication.counts();
    assert!(counts.sent >= 16 && counts.not_connected >= 1 && counts.back_pressured == 1, "{counts:?}");
    eventually("room again", || {
        sub.poll(100, |_, _| {}).unwrap();
        publication.offer(&message).is_ok()
    });
}

#[test]
fn images_come_with_their_join_time_and_go() {
    let driver = start();
    let client = connect(&driver);
    let sub = subscription(&client, CHANNEL, 13);
    // Linux counts Instant on the same monotonic clock, but does not show it: compare two images instead.
    let earlier = publication(&client, CHANNEL, 13);
    let earlier_session = earlier.constants().session_id;
    eventually("the first image", || sub.join_time_ns(earlier_session).unwrap().is_some());
    let before_ns = sub.join_time_ns(earlier_session).unwrap().unwrap();
    earlier.close().unwrap();
    eventually("the first image's end", || {
        sub.poll(1, |_, _| {}).unwrap();
        sub.images().unwrap().is_empty()
    });
    assert_eq!(sub.take_image_events().unwrap().len(), 2);
    let publication = publication(&client, CHANNEL, 13);
    let session_id = publication.constants().session_id;
    eventually("the image", || sub.join_time_ns(session_id).unwrap().is_some());
    assert!(sub.join_time_ns(session_id).unwrap().unwrap() > before_ns);
    assert_eq!(sub.images().unwrap().len(), 1);
    assert_eq!(sub.join_time_ns(session_id + 1).unwrap(), None);
    publication.close().unwrap();
    eventually("the image's end", || {
        sub.poll(1, |_, _| {}).unwrap();
        sub.images().unwrap().is_empty()
    });
    let events = sub.take_image_events().unwrap();
    assert!(
        matches!(&events[..], [ImageEvent::Available(came), ImageEvent::Unavailable(went)] if came == went)
    );
}

#[test]
fn handles_close_in_every_order_and_say_so_afterwards() {
    // 0 the driver, 1 the client, 2 the publication, 3 the subscription, 4 the counter
    let orders = [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [1, 0, 2, 4, 3], [2, 0, 3, 1, 4], [3, 4, 1, 2, 0]];
    for order in orders {
        let driver = start();
        let client = connect(&driver);
        let publication = publication(&client, CHANNEL, 14);
        let sub = subscription(&client, CHANNEL, 14);
        let counter = client.add_counter(4001, b"key", "a counter").unwrap().wait(PATIENCE).unwrap();
        for _twice in 0..2 {
            for which in order {
                match which {
                    0 => driver.close().unwrap(),
                    1 => client.close().unwrap(),
                    2 => publication.close().unwrap(),
                    3 => sub.close().unwrap(),
                    _ => counter.close().unwrap(),
                }
            }
        }
        assert_eq!(publication.offer(b"x"), Err(OfferError::Closed));
        assert_eq!(publication.is_connected(), Err(Error::Closed("publication")));
        assert_eq!(sub.poll(1, |_, _| {}), Err(Error::Closed("subscription")));
        assert_eq!(counter.add(1), Err(Error::Closed("counter")));
        assert_eq!(client.check(), Err(Error::Closed("Aeron client")));
        assert!(client.add_publication(CHANNEL, 1).is_err_and(|e| e == Error::Closed("Aeron client")));
        assert!(!std::path::Path::new(driver.dir()).exists());
    }
}

#[test]
fn closing_while_other_threads_work_is_safe() {
    for round in 0..20 {
        let driver = start();
        let client = connect(&driver);
        let publication = publication(&client, CHANNEL, 15);
        let sub = subscription(&client, CHANNEL, 15);
        let counter = client.add_counter(4001, b"", "busy").unwrap().wait(PATIENCE).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| while !matches!(publication.offer(&[1; 100]), Err(OfferError::Closed)) {});
            scope.spawn(|| while sub.poll_assembled(10, |_, _| {}).is_ok() {});
            scope.spawn(|| while counter.add(1).is_ok() {});
            scope.spawn(|| {
                while let Ok(adding) = client.add_subscription(CHANNEL, 16, LIMITS) {
                    // Half of them are abandoned, half awaited: the close may meet both.
                    if !stop.load(Ordering::Relaxed) && round % 2 == 0 {
                        let _ = adding.wait(Duration::from_millis(3));
                    }
                }
            });
            thread::sleep(Duration::from_millis(5 + round));
            stop.store(true, Ordering::Relaxed);
            client.close().unwrap();
        });
    }
}

#[test]
fn a_driver_that_ends_is_noticed_by_every_handle() {
    let driver = start();
    let client = connect(&driver);
    let publication = publication(&client, CHANNEL, 17);
    let sub = subscription(&client, CHANNEL, 17);
    driver.close().unwrap();
    eventually("the client to notice", || client.check().is_err());
    assert!(matches!(client.check(), Err(Error::NoMediaDriver { .. })));
    assert!(matches!(publication.offer(b"x"), Err(OfferError::Error(Error::NoMediaDriver { .. }))));
    assert!(matches!(sub.poll(1, |_, _| {}), Err(Error::NoMediaDriver { .. })));
    assert!(client.add_publication(CHANNEL, 1).is_err_and(|e| matches!(e, Error::NoMediaDriver { .. })));
    assert!(!client.take_errors().is_empty());
    assert!(client.take_errors().is_empty());
    client.close().unwrap();
}

/// What is said to other hosts right before the end, such as goodbye.
#[test]
fn a_driver_that_ends_lets_last_words_out() {
    let (here, port) = (start(), free_port());
    let channel = format!("aeron:udp?endpoint=127.0.0.1:{port}");
    let listener = connect(&here);
    let sub = subscription(&listener, &channel, 22);
    for round in 0..20_u8 {
        let there = start();
        let client = connect(&there);
        let publication = publication(&client, &channel, 22);
        eventually("a connection", || publication.is_connected().unwrap());
        publication.offer(&[round]).unwrap();
        publication.close().unwrap();
        client.close().unwrap();
        there.close().unwrap();
        let mut received = Vec::new();
        eventually("the last words", || {
            sub.poll(10, |message, _| received.push(message.to_vec())).unwrap();
            !received.is_empty()
        });
        assert_eq!(received, [[round]]);
    }
}

#[test]
fn a_driver_that_ends_does_not_wait_for_who_goes_on_publishing() {
    let driver = start();
    let client = connect(&driver);
    let channel = format!("aeron:udp?endpoint=127.0.0.1:{}", free_port());
    let (_sub, publication) = (subscription(&client, &channel, 23), publication(&client, &channel, 23));
    eventually("a connection", || publication.is_connected().unwrap());
    let start = Instant::now();
    driver.close().unwrap();
    assert!(start.elapsed() < PATIENCE / 4, "{:?}", start.elapsed());
}

#[test]
fn a_directory_has_one_live_driver_and_nobody_elses_files() {
    let driver = start();
    let second = MediaDriver::start(&options(driver.dir()));
    assert!(second.is_err_and(
        |e| matches!(e, Error::DriverActive { pid, .. } if pid == i64::from(std::process::id()))
    ));
    assert!(driver_status(driver.dir()).unwrap().is_alive(Duration::from_secs(1)));

    let dir = fresh_dir();
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(format!("{dir}/thesis.txt"), "ten years of work").unwrap();
    let refused = MediaDriver::start(&options(&dir));
    assert!(refused.is_err_and(|e| matches!(e, Error::Directory { .. })));
    assert_eq!(std::fs::read_to_string(format!("{dir}/thesis.txt")).unwrap(), "ten years of work");
    std::fs::remove_file(format!("{dir}/thesis.txt")).unwrap();

    std::fs::write(format!("{dir}/cnc.dat"), "rubbish").unwrap();
    let kept = MediaDriver::start(&MediaDriverOptions { dir_delete_on_start: false, ..options(&dir) });
    assert!(kept.is_err_and(|e| matches!(e, Error::Directory { .. })));
    let replaced = MediaDriver::start(&options(&dir)).unwrap();
    replaced.close().unwrap();
    assert!(!std::path::Path::new(&format!("{dir}.lock")).exists());
}

#[test]
fn of_many_drivers_started_at_once_one_wins() {
    let dir = fresh_dir();
    let results: Vec<_> = thread::scope(|scope| {
        let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| MediaDriver::start(&options(&dir)))).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    for error in results.iter().filter_map(|result| result.as_ref().err()) {
        assert!(matches!(error, Error::DriverActive { .. } | Error::Directory { .. }), "{error}");
    }
}

#[test]
fn counters_are_seen_from_outside() {
    let driver = start();
    let client = connect(&driver);
    let counter =
        client.add_counter(4242, b"stream 7", "frames of camera-1").unwrap().wait(PATIENCE).unwrap();
    counter.set(40).unwrap();
    assert_eq!(counter.add(2), Ok(42));
    let found = read_counters(driver.dir()).unwrap();
    let found = found.iter().find(|record| record.type_id == 4242).unwrap();
    assert_eq!(
        (found.value, found.counter_id, found.owner_id),
        (42, counter.counter_id(), client.client_id())
    );
    assert_eq!((&found.key[..8], found.label.as_str()), (&b"stream 7"[..], "frames of camera-1"));
    counter.close().unwrap();
    eventually("the counter to be freed", || {
        read_counters(driver.dir()).unwrap().iter().all(|record| record.type_id != 4242)
    });
}

#[test]
fn refusals_name_the_channel() {
    let driver = start();
    let client = connect(&driver);
    for channel in
        ["aeron:ipc?term-length=3", "nonsense", "aeron:udp?endpoint=nowhere", "aeron:udp", "aeron:ipc?\0"]
    {
        let error = client
            .add_exclusive_publication(channel, 1)
            .and_then(|adding| adding.wait(PATIENCE))
            .err()
            .expect("a refusal");
        assert!(
            matches!(&error, Error::Channel { channel: named, .. } if named == channel),
            "{channel}: {error:?}"
        );
        println!("{error}");
    }
    let publication = publication(&client, CHANNEL, 1);
    assert_eq!(publication.constants().term_bytes, 64 << 10);
}
