//! Cursors on real rings.

use super::*;

pub(super) fn drain(cursor: &mut Cursor, reader: &Arc<RingReader>, drops: &DropCounters) -> Vec<u64> {
    std::iter::from_fn(|| match cursor.poll(reader, drops) {
        Polled::Frame(frame) => Some(frame.record().seq),
        Polled::Idle => None,
    })
    .collect()
}

#[test]
fn a_cursor_follows_without_messages_and_counts_what_it_missed() {
    let r = ring(8, &[64]);
    let (mut writer, reader, drops) = (r.writer(), r.reader(), DropCounters::default());
    let mut cursor = Cursor::default();
    assert_eq!(drain(&mut cursor, &reader, &drops), []);
    for _ in 0..3 {
        publish(&mut writer, &[1]);
    }
    assert_eq!((drain(&mut cursor, &reader, &drops), cursor.gaps()), (vec![0, 1, 2], 0));

    // Skipped numbers are found once the bell has rung, or when asked to look again.
    let skipped = writer.claim(1, Some(5)).unwrap();
    writer.commit(&skipped, &bytes_header(1)).unwrap();
    assert_eq!(drain(&mut cursor, &reader, &drops), []);
    writer.ring(1);
    assert_eq!((drain(&mut cursor, &reader, &drops), cursor.gaps()), (vec![5], 2));
    let skipped = writer.claim(1, Some(7)).unwrap();
    writer.commit(&skipped, &bytes_header(1)).unwrap();
    cursor.search_again();
    assert_eq!((drain(&mut cursor, &reader, &drops), cursor.gaps()), (vec![7], 3));

    // An aborted claim is passed over when a later frame is there, not before.
    let aborted = writer.claim(1, None).unwrap();
    writer.abort(&aborted).unwrap();
    writer.ring(1);
    assert_eq!(drain(&mut cursor, &reader, &drops), []);
    publish(&mut writer, &[1]);
    writer.ring(1);
    assert_eq!((drain(&mut cursor, &reader, &drops), cursor.gaps()), (vec![9], 4));

    // Lapped: go on with what is likely to stay, and count the rest as missing.
    for _ in 0..20 {
        publish(&mut writer, &[1]);
    }
    let taken = drain(&mut cursor, &reader, &drops);
    assert_eq!(taken, (25..=29).collect::<Vec<_>>());
    assert_eq!(cursor.gaps(), 4 + 15);
    assert_eq!(DropReason::ALL.iter().map(|reason| drops.get(*reason)).sum::<u64>(), 0);
}

#[test]
fn a_cursor_gets_ahead_of_a_writer_that_overwrote_what_was_read() {
    let r = ring(8, &[64]);
    let (mut writer, reader, drops) = (r.writer(), r.reader(), DropCounters::default());
    for _ in 0..8 {
        publish(&mut writer, &[1]);
    }
    let mut cursor = Cursor::default();
    assert!(matches!(cursor.poll(&reader, &drops), Polled::Frame(_)));
    publish(&mut writer, &[1]); // over frame 0, which somebody still reads
    cursor.lost(0);
    assert_eq!((drain(&mut cursor, &reader, &drops), cursor.gaps()), ((4..=8).collect(), 3));

    // Whoever keeps up loses nothing by old frames that he kept too long.
    for _ in 0..7 {
        publish(&mut writer, &[1]);
        cursor.lost(5);
    }
    assert_eq!((drain(&mut cursor, &reader, &drops), cursor.gaps()), ((9..=15).collect(), 3));
}

/// While it reads one frame seven of eight are written: only the newest can be read whole.
#[test]
fn a_slow_reader_goes_nearer_to_the_newest_until_a_frame_stays() {
    let r = ring(8, &[64]);
    let (mut writer, reader, drops) = (r.writer(), r.reader(), DropCounters::default());
    let mut cursor = Cursor::default();
    let mut behind = || {
        let newest = (0..7).map(|_| publish(&mut writer, &[1])).last().unwrap();
        let Polled::Frame(frame) = cursor.poll(&reader, &drops) else { panic!("nothing there") };
        let seq = frame.record().seq;
        if seq < newest {
            cursor.lost(seq);
        }
        newest - seq
    };
    let taken: Vec<_> = (0..9).map(|_| behind()).collect();
    assert_eq!(taken, [6, 4, 2, 1, 0, 0, 0, 0, 0]);
    // Now and then it tries whether more than the newest is possible.
    assert_eq!((0..100).filter(|_| behind() > 0).count(), 3);
}

#[test]
fn looking_for_a_frame_takes_and_counts_nothing() {
    let r = ring(8, &[64]);
    let (mut writer, reader, drops) = (r.writer(), r.reader(), DropCounters::default());
    let mut cursor = Cursor::default();
    assert!(!cursor.has_next(&reader));
    publish(&mut writer, &[1]);
    assert!(cursor.has_next(&reader) && cursor.has_next(&reader), "its slot is looked into whoever rings");
    assert_eq!((drain(&mut cursor, &reader, &drops), cursor.has_next(&reader)), (vec![0], false));

    // Further ahead only after a ring, as for `poll`.
    let skipped = writer.claim(1, Some(5)).unwrap();
    writer.commit(&skipped, &bytes_header(1)).unwrap();
    assert!(!cursor.has_next(&reader));
    writer.ring(1);
    assert!(cursor.has_next(&reader));
    assert_eq!((cursor.next_seq(), cursor.gaps()), (1, 0));
    assert_eq!(drain(&mut cursor, &reader, &drops), [5]);

    // Lapped: seen without a ring.
    for _ in 0..20 {
        publish(&mut writer, &[1]);
    }
    assert!(cursor.has_next(&reader));
    assert!(!drain(&mut cursor, &reader, &drops).is_empty());

    // A ring for nothing is told once, not for ever.
    writer.ring(1);
    let rung = reader.doorbell().seen();
    assert!(cursor.bell(&reader) != rung && !cursor.has_next(&reader) && cursor.bell(&reader) == rung);

    // The ring of a frame that was taken ends no wait; that of the next one does.
    publish(&mut writer, &[1]);
    writer.ring(1);
    assert!(matches!(cursor.poll(&reader, &drops), Polled::Frame(_)));
    assert_eq!(cursor.bell(&reader), reader.doorbell().seen());
    publish(&mut writer, &[1]);
    publish(&mut writer, &[1]);
    writer.ring(1);
    assert!(matches!(cursor.poll(&reader, &drops), Polled::Frame(_)));
    assert_ne!(cursor.bell(&reader), reader.doorbell().seen(), "one is left");
}

// req: WIRE-15.21-4
#[test]
fn a_cursor_counts_bad_frames_and_goes_on() {
    let r = ring(8, &[64]);
    let (mut writer, reader, drops) = (r.writer(), r.reader(), DropCounters::default());
    for _ in 0..3 {
        publish(&mut writer, &[1]);
    }
    let mut slot = r.raw().load_slot(slot_offset(1));
    put(&mut slot, at::PAYLOAD_OFFSET, 1u32);
    r.raw().store_slot(slot_offset(1), &slot);
    let mut cursor = Cursor::default();
    assert_eq!(drain(&mut cursor, &reader, &drops), [0, 2]);
    assert_eq!((drops.get(DropReason::PayloadOffset), cursor.gaps()), (1, 0));
}

#[test]
fn numbers_beyond_the_last_name_no_frame() {
    let r = ring(4, &[64]);
    let (mut writer, reader, drops) = (r.writer(), r.reader(), DropCounters::default());
    publish(&mut writer, &[1]);
    for seq in [crate::seqlock::MAX_SEQ + 1, u64::MAX - 3, u64::MAX] {
        assert_eq!(read(&reader, seq), Err(DropReason::Stale));
        let mut cursor = Cursor::at(seq);
        assert_eq!((drain(&mut cursor, &reader, &drops), cursor.next_seq()), (vec![], seq));
    }
}
