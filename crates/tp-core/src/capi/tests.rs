use std::ptr::{null, null_mut};

use super::address::*;
use super::frame::*;
use super::reader::*;
use super::writer::*;
use super::*;
use Status as S;

fn last_error() -> String {
    // SAFETY: the text of this thread, copied at once.
    unsafe { CStr::from_ptr(tp_last_error()) }.to_str().unwrap().to_owned()
}

/// Expects a status, and for errors a text that contains `part`.
#[track_caller]
fn expect(status: c_int, wanted: Status, part: &str) {
    assert_eq!(status, wanted as c_int, "{}", last_error());
    assert!(
        (wanted as c_int) == 0 || last_error().contains(part),
        "{:?} does not contain {part:?}",
        last_error()
    );
}

/// A ring in a directory of its own, and what C would hold of it.
struct Ring {
    _dir: tempfile::TempDir,
    texts: [CString; 3],
    pool: CPool,
}

impl Ring {
    fn new(nslots: u32) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let text = |text: String| CString::new(text).unwrap();
        let path = dir.path().display();
        let texts = [
            format!("{path}"),
            format!("shm:file?path={path}/header.ring"),
            format!("shm:file?path={path}/1.pool"),
        ];
        let texts = texts.map(text);
        let pool = CPool { pool_id: 1, stride_bytes: 256, uri: texts[2].as_ptr() };
        let ring = Self { _dir: dir, texts, pool };
        // SAFETY: everything lives in `ring`.
        expect(unsafe { tp_ring_create(ring.texts[0].as_ptr(), &ring.address(nslots), 0, 0) }, S::Ok, "");
        ring
    }

    fn address(&self, nslots: u32) -> CAddress {
        CAddress {
            stream_id: 7,
            nslots,
            epoch: 3,
            header_uri: self.texts[1].as_ptr(),
            pools: &self.pool,
            npools: 1,
        }
    }

    fn writer(&self, nslots: u32) -> *mut CWriter {
        let mut writer = null_mut();
        // SAFETY: everything lives in `self`.
        expect(
            unsafe { tp_writer_open(&self.address(nslots), &self.texts[0].as_ptr(), 1, &mut writer) },
            S::Ok,
            "",
        );
        writer
    }

    fn reader(&self, nslots: u32, flags: u32) -> *mut CReader {
        let mut reader = null_mut();
        // SAFETY: as above.
        expect(
            unsafe { tp_reader_open(&self.address(nslots), &self.texts[0].as_ptr(), 1, flags, &mut reader) },
            S::Ok,
            "",
        );
        reader
    }
}

fn bytes_frame(length: i64) -> CFrame {
    let mut tensor =
        CTensor { dtype: 1, major_order: 1, progress_unit: 0, ndims: 1, shape: [0; 8], strides: [0; 8] };
    tensor.shape[0] = length;
    CFrame { tensor, timestamp_ns: 5, meta_version: 6, reserved: 0 }
}

const NO_INFO: CInfo = CInfo {
    seq: 0,
    payload: null(),
    length: 0,
    frame: CFrame {
        tensor: CTensor {
            dtype: 0,
            major_order: 0,
            progress_unit: 0,
            ndims: 0,
            shape: [0; 8],
            strides: [0; 8],
        },
        timestamp_ns: 0,
        meta_version: 0,
        reserved: 0,
    },
};
const NO_CLAIM: CClaim = CClaim { seq: 0, payload: null_mut(), length: 0 };

#[test]
fn frames_go_round_in_both_reading_modes() {
    let ring = Ring::new(4);
    let writer = ring.writer(4);
    // SAFETY: handles and pointers are valid throughout, views are released before their last use ends.
    unsafe {
        let (mut claim, mut seq) = (NO_CLAIM, 0);
        expect(tp_writer_claim(writer, 100, null(), &mut claim), S::Ok, "");
        assert_eq!((claim.seq, claim.length, claim.payload.addr() % 64), (0, 100, 0));
        claim.payload.cast::<u8>().write_bytes(9, 100);
        expect(tp_writer_header(writer, &claim, 100, &bytes_frame(100)), S::Ok, "");
        expect(tp_writer_commit(writer, &claim, 90, &bytes_frame(90)), S::Ok, "");
        expect(
            tp_writer_publish(writer, [4u8; 30].as_ptr().cast(), 30, &bytes_frame(30), &mut seq),
            S::Ok,
            "",
        );
        assert_eq!(seq, 1);
        expect(tp_writer_publish(writer, null(), 0, &bytes_frame(0), null_mut()), S::Ok, "");
        for flags in [0, 1] {
            let reader = ring.reader(4, flags);
            for (seq, length, value) in [(0, 90, 9), (1, 30, 4), (2, 0, 0)] {
                let (mut view, mut info) = (null_mut(), NO_INFO);
                expect(tp_reader_poll(reader, &mut view, &mut info), S::Ok, "");
                assert_eq!((info.seq, info.length, info.payload.is_null()), (seq, length, length == 0));
                assert_eq!((info.frame.timestamp_ns, info.frame.meta_version), (5, 6));
                assert_eq!((info.frame.tensor.ndims, info.frame.tensor.strides[0]), (1, 1));
                let mut copy = [0xEEu8; 128];
                expect(tp_view_copy(view, copy.as_mut_ptr().cast(), 128), S::Ok, "");
                assert!(copy[..length as usize].iter().all(|byte| *byte == value));
                assert!(copy[length as usize..].iter().all(|byte| *byte == 0xEE));
                expect(tp_view_still_valid(view), S::Ok, "");
                tp_view_release(view);
            }
            let (mut view, mut newest) = (null_mut(), 0);
            assert_eq!(tp_reader_poll(reader, &mut view, null_mut()), S::None as c_int);
            assert_eq!(tp_reader_wait(reader, 1_000_000), S::None as c_int);
            expect(tp_reader_newest(reader, &mut newest), S::Ok, "");
            assert_eq!(newest, 2);
            tp_reader_close(reader);
        }
        tp_writer_close(writer);
    }
}

#[test]
fn overwritten_frames_are_dropped_and_views_outlive_their_reader() {
    let ring = Ring::new(2);
    let (writer, reader) = (ring.writer(2), ring.reader(2, 0));
    // SAFETY: as above.
    unsafe {
        let (mut view, mut info, mut count) = (null_mut(), NO_INFO, 0);
        let publish = || {
            expect(
                tp_writer_publish(writer, [1u8; 8].as_ptr().cast(), 8, &bytes_frame(8), null_mut()),
                S::Ok,
                "",
            )
        };
        publish();
        expect(tp_reader_read(reader, 0, &mut view, &mut info), S::Ok, "");
        let mut other = null_mut();
        expect(tp_reader_read(reader, 1, &mut other, null_mut()), S::Dropped, "stale");
        publish();
        assert_eq!(tp_reader_wait(reader, u64::MAX), S::Ok as c_int, "it rang since the last poll");
        publish();
        expect(tp_view_still_valid(view), S::Dropped, "overwritten");
        expect(tp_view_copy(view, [0u8; 8].as_mut_ptr().cast(), 8), S::Dropped, "changed_while_reading");
        expect(tp_reader_read(reader, 0, &mut other, null_mut()), S::Dropped, "overwritten");
        // The view, once, and the frame that was asked for again.
        for (reason, wanted) in [(c"late", 2), (c"stale", 1), (c"overwritten", 2), (c"gap", 0)] {
            expect(tp_reader_drops(reader, reason.as_ptr(), &mut count), S::Ok, "");
            assert_eq!(count, wanted, "{reason:?}");
        }
        expect(tp_reader_seek(reader, 2), S::Ok, "");
        expect(tp_reader_poll(reader, &mut other, null_mut()), S::Ok, "");
        tp_reader_close(reader);
        tp_writer_close(writer);
        expect(tp_view_info(other, &mut info), S::Ok, "");
        assert_eq!((info.seq, *info.payload.cast::<u8>()), (2, 1));
        tp_view_release(view);
        tp_view_release(other);
    }
}

#[test]
fn a_reader_that_loses_frames_in_use_goes_nearer_to_the_newest() {
    const SLOTS: u32 = 8;
    let ring = Ring::new(SLOTS);
    let (writer, reader) = (ring.writer(SLOTS), ring.reader(SLOTS, 0));
    // SAFETY: as above.
    unsafe {
        let publish = |frames| {
            for _ in 0..frames {
                let payload = [1u8; 8].as_ptr().cast();
                expect(tp_writer_publish(writer, payload, 8, &bytes_frame(8), null_mut()), S::Ok, "");
            }
        };
        let poll = || {
            let (mut view, mut info) = (null_mut(), NO_INFO);
            expect(tp_reader_poll(reader, &mut view, &mut info), S::Ok, "");
            (view, info.seq)
        };
        publish(SLOTS);
        let (first, seq) = poll();
        assert_eq!(seq, 0);
        expect(tp_view_copy(first, [0u8; 4].as_mut_ptr().cast(), 4), S::Ok, "");
        publish(1);
        let mut copy = [0u8; 8];
        expect(tp_view_copy(first, copy.as_mut_ptr().cast(), 4), S::Dropped, "changed_while_reading");
        let (second, seq) = poll();
        assert_eq!(seq, 4, "not 1, the writer's next");
        expect(tp_view_still_valid(second), S::Ok, "");
        publish(SLOTS);
        expect(tp_view_still_valid(second), S::Dropped, "overwritten");
        let mut late = 0;
        expect(tp_reader_drops(reader, c"late".as_ptr(), &mut late), S::Ok, "");
        assert_eq!(late, 1, "the second was whole when it was used");
        tp_view_release(first);
        tp_view_release(second);
        tp_reader_close(reader);
        tp_writer_close(writer);
    }
}

#[test]
fn claims_are_looked_up_and_not_believed() {
    let ring = Ring::new(2);
    let writer = ring.writer(2);
    // SAFETY: as above.
    unsafe {
        let (mut first, mut second) = (NO_CLAIM, NO_CLAIM);
        expect(tp_writer_claim(writer, 257, null(), &mut first), S::TooLarge, "257");
        expect(tp_writer_claim(writer, u64::MAX, null(), &mut first), S::TooLarge, "fit");
        expect(tp_writer_claim(writer, 8, null(), &mut first), S::Ok, "");
        expect(tp_writer_claim(writer, 8, null(), &mut second), S::Ok, "");
        expect(tp_writer_claim(writer, 8, null(), &mut NO_CLAIM.clone()), S::Claim, "slots");
        expect(tp_writer_commit(writer, &second, 8, &bytes_frame(8)), S::Claim, "still open");
        expect(tp_writer_commit(writer, &first, 9, &bytes_frame(9)), S::Layout, "claimed");
        expect(tp_writer_commit(writer, &first, 8, &bytes_frame(9)), S::Layout, "needs 9");
        let lying = CClaim { length: 1 << 40, payload: null_mut(), ..first };
        expect(tp_writer_commit(writer, &lying, 8, &bytes_frame(8)), S::Ok, "");
        expect(tp_writer_commit(writer, &first, 8, &bytes_frame(8)), S::Claim, "already");
        expect(tp_writer_abort(writer, &first), S::Claim, "already");
        expect(tp_writer_abort(writer, &second), S::Ok, "");
        expect(tp_writer_claim(writer, 8, &1, &mut first), S::Claim, "not above");
        expect(tp_writer_claim(writer, 8, &9, &mut first), S::Ok, "");
        tp_writer_close(writer);

        let (writer, mut next, mut longest) = (ring.writer(2), 0, 0);
        expect(tp_writer_next_seq(writer, &mut next), S::Ok, "");
        expect(tp_writer_max_length(writer, &mut longest), S::Ok, "");
        assert_eq!((next, longest), (10, 256), "a new writer goes on behind the old one");
        expect(tp_writer_prefault(writer), S::Ok, "");
        expect(tp_writer_refresh(writer), S::Ok, "");
        expect(tp_writer_ring(writer, u32::MAX), S::Ok, "");
        tp_writer_close(writer);
    }
}

#[test]
fn null_is_an_error_everywhere() {
    let ring = Ring::new(2);
    let (writer, reader, address) = (ring.writer(2), ring.reader(2, 0), ring.address(2));
    let (dir, frame) = (ring.texts[0].as_ptr(), bytes_frame(1));
    // SAFETY: null is what is tried.
    unsafe {
        let statuses = [
            tp_ring_create(null(), &address, 0, 0),
            tp_ring_create(dir, null(), 0, 0),
            tp_ring_uri(null(), 1, 0, null_mut(), 0),
            tp_ring_uri(dir, 1, 0, null_mut(), 1000),
            tp_tensor_contiguous(1, 1, null(), null_mut()),
            tp_tensor_contiguous(1, 1, &1, null_mut()),
            tp_tensor_extent(null(), null_mut()),
            tp_tensor_extent(&frame.tensor, null_mut()),
            tp_writer_open(null(), &dir, 1, &mut null_mut()),
            tp_writer_open(&address, null(), 1, &mut null_mut()),
            tp_writer_open(&address, &null(), 1, &mut null_mut()),
            tp_writer_open(&address, &dir, 1, null_mut()),
            tp_writer_open(&CAddress { pools: null(), ..address }, &dir, 1, &mut null_mut()),
            tp_writer_open(&CAddress { header_uri: null(), ..address }, &dir, 1, &mut null_mut()),
            tp_writer_next_seq(null(), &mut 0),
            tp_writer_next_seq(writer, null_mut()),
            tp_writer_max_length(null(), &mut 0),
            tp_writer_prefault(null()),
            tp_writer_claim(null_mut(), 1, null(), &mut NO_CLAIM.clone()),
            tp_writer_claim(writer, 1, null(), null_mut()),
            tp_writer_header(writer, null(), 1, &frame),
            tp_writer_commit(null_mut(), &NO_CLAIM, 1, &frame),
            tp_writer_commit(writer, null(), 1, &frame),
            tp_writer_commit(writer, &NO_CLAIM, 1, null()),
            tp_writer_abort(writer, null()),
            tp_writer_publish(writer, null(), 1, &frame, null_mut()),
            tp_writer_publish(writer, dir.cast(), 1, null(), null_mut()),
            tp_writer_ring(null_mut(), 1),
            tp_writer_refresh(null_mut()),
            tp_reader_open(null(), &dir, 1, 0, &mut null_mut()),
            tp_reader_open(&address, &dir, 1, 0, null_mut()),
            tp_reader_poll(null_mut(), &mut null_mut(), null_mut()),
            tp_reader_poll(reader, null_mut(), null_mut()),
            tp_reader_read(null_mut(), 0, &mut null_mut(), null_mut()),
            tp_reader_wait(null_mut(), 0),
            tp_wait_any(null(), 1, 0),
            tp_reader_seek(null_mut(), 0),
            tp_reader_newest(null(), &mut 0),
            tp_reader_drops(reader, null(), &mut 0),
            tp_reader_drops(reader, c"late".as_ptr(), null_mut()),
            tp_view_info(null(), &mut NO_INFO.clone()),
            tp_view_still_valid(null()),
            tp_view_copy(null(), null_mut(), 0),
        ];
        assert_eq!(statuses, [S::Argument as c_int; 43]);
        tp_writer_close(null_mut());
        tp_reader_close(null_mut());
        tp_view_release(null_mut());
        let mut next = 0;
        expect(tp_writer_next_seq(writer, &mut next), S::Ok, "");
        assert_eq!(next, 0, "nothing was claimed");
        tp_writer_close(writer);
        tp_reader_close(reader);
    }
}

#[test]
fn garbage_is_an_error_with_a_reason() {
    let ring = Ring::new(2);
    let (address, dir) = (ring.address(2), ring.texts[0].as_ptr());
    let open = |address: CAddress, dirs: &[*const c_char], flags: u32| {
        let mut reader = null_mut();
        // SAFETY: everything is valid, if strange.
        let status = unsafe { tp_reader_open(&address, dirs.as_ptr(), dirs.len(), flags, &mut reader) };
        assert!(reader.is_null());
        status
    };
    expect(open(address, &[], 0), S::Geometry, "no base directory");
    expect(open(address, &[c"/nowhere".as_ptr()], 0), S::Io, "nowhere");
    expect(open(address, &[c"\xff".as_ptr()], 0), S::Argument, "UTF-8");
    expect(open(address, &[c"/etc".as_ptr()], 0), S::NotContained, "below");
    expect(open(address, &[dir], 4), S::Argument, "flags");
    expect(open(CAddress { nslots: 3, ..address }, &[dir], 0), S::Geometry, "power of two");
    expect(open(CAddress { nslots: 4, ..address }, &[dir], 0), S::Region, "bytes");
    expect(open(CAddress { epoch: 4, ..address }, &[dir], 0), S::Region, "epoch");
    expect(open(CAddress { header_uri: c"http://x".as_ptr(), ..address }, &[dir], 0), S::Uri, "region URI");
    expect(open(CAddress { npools: usize::MAX, ..address }, &[dir], 0), S::Argument, "too long");
    let pool = CPool { pool_id: 65_536, ..ring.pool };
    expect(open(CAddress { pools: &pool, ..address }, &[dir], 0), S::Argument, "65535");

    let mut out = [0x55 as c_char; 80];
    // SAFETY: everything is valid, if strange.
    unsafe {
        expect(tp_ring_create(dir, &address, 0, 0), S::Io, "exists");
        expect(tp_ring_create(dir, &address, 0o1000, 0), S::Argument, "mode");
        expect(tp_ring_create(dir, &address, 0, 4), S::Argument, "flags");
        expect(tp_ring_uri(c"a".as_ptr(), -1, 0, out.as_mut_ptr(), 80), S::Uri, "absolute");
        expect(tp_ring_uri(c"/a".as_ptr(), -1, 0, out.as_mut_ptr(), 28), S::Argument, "needs 29");
        expect(tp_ring_uri(c"/a".as_ptr(), 1, 4, out.as_mut_ptr(), 80), S::Argument, "flags");
        expect(tp_ring_uri(c"/a".as_ptr(), 65_536, 0, out.as_mut_ptr(), 80), S::Argument, "65535");
        assert!(out.iter().all(|c| *c == 0x55));
        expect(tp_ring_uri(c"/a".as_ptr(), -1, 0, out.as_mut_ptr(), 29), S::Ok, "");
        assert_eq!(CStr::from_ptr(out.as_ptr()), c"shm:file?path=/a/header.ring");
        expect(tp_ring_uri(c"/a".as_ptr(), 3, 2, out.as_mut_ptr(), 80), S::Ok, "");
        assert_eq!(CStr::from_ptr(out.as_ptr()), c"shm:file?path=/a/3.pool|require_hugepages=true");
        let reader = ring.reader(2, 0);
        expect(tp_reader_drops(reader, c"boredom".as_ptr(), &mut 0), S::Argument, "boredom");
        tp_reader_close(reader);
    }
}

#[test]
fn tensors_are_checked() {
    let good = bytes_frame(4).tensor;
    // SAFETY: everything is valid.
    let extent = |tensor: CTensor| unsafe { tp_tensor_extent(&tensor, &mut 0) };
    expect(extent(good), S::Ok, "");
    for (bad, part) in [
        (CTensor { dtype: 0, ..good }, "dtype"),
        (CTensor { dtype: 65_537, ..good }, "dtype"),
        (CTensor { major_order: -1, ..good }, "major_order"),
        (CTensor { progress_unit: 256, ..good }, "progress_unit"),
        (CTensor { ndims: 0, ..good }, "ndims"),
        (CTensor { ndims: 9, ..good }, "ndims"),
        (CTensor { ndims: u32::MAX, ..good }, "ndims"),
        (CTensor { shape: [-1; 8], ..good }, "negative_dim"),
        (CTensor { shape: [1 << 31; 8], ..good }, "extent"),
        (CTensor { strides: [i64::MIN; 8], ..good }, "extent"),
        (CTensor { strides: [-1; 8], ..good }, "negative_stride"),
    ] {
        expect(extent(bad), S::Layout, part);
    }
    let mut tensor = good;
    // SAFETY: as above.
    unsafe {
        expect(tp_tensor_contiguous(9, 2, [4, 5].as_ptr(), &mut tensor), S::Ok, "");
        let mut bytes = 0;
        expect(tp_tensor_extent(&tensor, &mut bytes), S::Ok, "");
        assert_eq!(bytes, 80);
        expect(tp_tensor_contiguous(9, 9, [1; 9].as_ptr(), &mut tensor), S::Layout, "ndims");
    }
    let reserved = CFrame { reserved: 1, ..bytes_frame(1) };
    assert_eq!(reserved.header(1).unwrap_err().0, S::Argument);
    assert_eq!(bytes_frame(1).header(1 << 32).unwrap_err().0, S::TooLarge);
    let one_row = CTensor {
        ndims: 2,
        shape: [1, 1, 0, 0, 0, 0, 0, 0],
        strides: [i64::MAX, 1, 0, 0, 0, 0, 0, 0],
        ..good
    };
    expect(extent(one_row), S::Ok, "");
}

#[test]
fn padding_behind_the_tensor_is_the_readers_choice() {
    let ring = Ring::new(4);
    let (writer, extents) = (ring.writer(4), [20, 0]);
    // SAFETY: as above.
    unsafe {
        for extent in extents {
            let frame = bytes_frame(extent);
            expect(tp_writer_publish(writer, [3u8; 90].as_ptr().cast(), 90, &frame, null_mut()), S::Ok, "");
        }
        for flags in [0, 1] {
            let reader = ring.reader(4, flags);
            for expected in extents {
                let (mut view, mut info, mut extent) = (null_mut(), NO_INFO, 0);
                expect(tp_reader_poll(reader, &mut view, &mut info), S::Ok, "");
                expect(tp_tensor_extent(&info.frame.tensor, &mut extent), S::Ok, "");
                assert_eq!((info.length, extent), (90, expected as u64));
                for bytes in [extent, 90, 128] {
                    let mut copy = [0u8; 128];
                    expect(tp_view_copy(view, copy.as_mut_ptr().cast(), bytes), S::Ok, "");
                    let copied = copy.iter().filter(|byte| **byte == 3).count() as u64;
                    assert_eq!(copied, bytes.min(90));
                }
                tp_view_release(view);
            }
            tp_reader_close(reader);
        }
        tp_writer_close(writer);
    }
}

#[test]
fn memory_that_is_not_there_is_told() {
    let ring = Ring::new(64);
    let writer = ring.writer(64);
    let path = ring.texts[0].to_str().unwrap().to_owned() + "/1.pool";
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(4096).unwrap();
    // SAFETY: as above; nothing touches the pool.
    unsafe {
        expect(tp_writer_prefault(writer), S::NoSpace, "no memory behind the files");
        tp_writer_close(writer);
    }
}

#[test]
fn a_second_writer_is_refused() {
    let ring = Ring::new(4);
    let (first, mut second) = (ring.writer(4), null_mut());
    // SAFETY: everything lives in `ring`, and handles are closed once.
    unsafe {
        let open = |out| tp_writer_open(&ring.address(4), &ring.texts[0].as_ptr(), 1, out);
        expect(open(&mut second), S::Region, "has a writer already");
        assert!(second.is_null());
        tp_writer_close(first);
        expect(open(&mut second), S::Ok, "");
        tp_writer_close(second);
    }
}

#[test]
fn panics_end_at_the_border() {
    expect(call(|| panic!("on purpose")), S::Internal, "bug");
    assert_eq!(tp_check_abi(ABI_VERSION), S::Ok as c_int);
    expect(tp_check_abi(2), S::Abi, "interface 2");
    // SAFETY: a constant of the library.
    assert_eq!(unsafe { CStr::from_ptr(tp_version()) }.to_str(), Ok(env!("CARGO_PKG_VERSION")));
    remember("a\0b".into());
    assert_eq!(last_error(), "a?b");
    let elsewhere = std::thread::spawn(last_error).join().unwrap();
    assert_eq!(elsewhere, "", "each thread has its own");
}
