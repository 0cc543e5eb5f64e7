//! Reading frames from C.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::address::{CAddress, base_dirs};
use super::frame::CInfo;
use super::{Failure, Status, call, close, dropped, given, given_many, put, text};
use crate::doorbell;
use crate::drops::{DropCounters, DropReason};
use crate::ring::{AnyFrame, AnyReader, Cursor, Polled, ReadMode, Source};

/// Read with system calls, and hand out private copies.
const READ_COPIES: u32 = 1;
/// Accept pool strides that are any multiple of 64.
const READ_RELAXED_STRIDE: u32 = 2;

/// `tp_reader`.
#[derive(Debug)]
pub struct CReader {
    ring: AnyReader,
    cursor: Mutex<Cursor>,
    losses: Arc<Losses>,
}

/// What became of frames: views tell it, also when their reader is closed.
#[derive(Debug, Default)]
struct Losses {
    drops: DropCounters,
    /// The number behind that of the last frame that was overwritten in use; 0 before there was one.
    behind_lost: AtomicU64,
}

/// `tp_view`.
#[derive(Debug)]
pub struct CView {
    frame: AnyFrame,
    losses: Arc<Losses>,
    /// Whether it was whole after its first use.
    was_whole: OnceLock<bool>,
}

impl CReader {
    fn cursor(&self) -> MutexGuard<'_, Cursor> {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(&self) -> Polled<AnyFrame> {
        let mut cursor = self.cursor();
        if let Some(seq) = self.losses.behind_lost.load(Ordering::Relaxed).checked_sub(1) {
            cursor.lost(seq);
        }
        cursor.poll(&self.ring, &self.losses.drops)
    }

    fn view(&self, frame: AnyFrame) -> CView {
        CView { frame, losses: Arc::clone(&self.losses), was_whole: OnceLock::new() }
    }
}

impl CView {
    /// Was it whole after a use? One that was lost in its first use is a drop, and the next ones may be lost, too. A look
    /// at its beginning was not all of the use: more is to come.
    fn judge(&self, is_whole: bool, is_partial: bool, otherwise: DropReason) -> Result<Status, Failure> {
        if is_whole && is_partial {
            return Ok(Status::Ok);
        }
        let is_first_use = self.was_whole.set(is_whole).is_ok();
        if is_whole {
            return Ok(Status::Ok);
        }
        self.losses.behind_lost.store(self.frame.record().seq + 1, Ordering::Relaxed);
        if is_first_use {
            self.losses.drops.count(otherwise);
        }
        Err(dropped(otherwise))
    }
}

unsafe fn reader<'a>(reader: *const CReader) -> Result<&'a CReader, Failure> {
    // SAFETY: by the contract of the interface.
    unsafe { given(reader, "reader") }
}

/// Hands a frame to C: a view to release, and what it is.
unsafe fn hand_out(found: CView, view: *mut *mut CView, info: *mut CInfo) -> Result<Status, Failure> {
    if view.is_null() {
        return Err(Failure::argument("view is null"));
    }
    // SAFETY: null or valid, by the contract of the interface.
    unsafe {
        if !info.is_null() {
            put(info, CInfo::new(found.frame.record(), found.frame.payload()), "info")?;
        }
        put(view, Box::into_raw(Box::new(found)), "view")?;
    }
    Ok(Status::Ok)
}

/// Opens, checks and maps a ring for reading.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_reader_open(
    ring: *const CAddress,
    directories: *const *const c_char,
    ndirectories: usize,
    flags: u32,
    out: *mut *mut CReader,
) -> c_int {
    call(|| {
        if flags & !(READ_COPIES | READ_RELAXED_STRIDE) != 0 {
            return Err(Failure::argument(format!("unknown flags {flags:#x}")));
        }
        // SAFETY: by the contract of the interface.
        unsafe {
            put(out, std::ptr::null_mut(), "out")?;
            let (address, bases) = (given(ring, "ring")?.address()?, base_dirs(directories, ndirectories)?);
            let relaxed = flags & READ_RELAXED_STRIDE != 0;
            let mode = if flags & READ_COPIES != 0 { ReadMode::Copy } else { ReadMode::Map };
            let ring = AnyReader::open(&address, &bases, mode, relaxed)?;
            let reader = CReader { ring, cursor: Mutex::default(), losses: Arc::default() };
            put(out, Box::into_raw(Box::new(reader)), "out")?;
        }
        Ok(Status::Ok)
    })
}

/// Closes a reader. Views stay usable until they are released.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_reader_close(reader: *mut CReader) {
    // SAFETY: by the contract of the interface.
    unsafe { close(reader) };
}

/// Takes the next frame, if there is one.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_reader_poll(
    handle: *mut CReader,
    view: *mut *mut CView,
    info: *mut CInfo,
) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        let reader = unsafe { reader(handle) }?;
        if view.is_null() {
            return Err(Failure::argument("view is null"));
        }
        match reader.poll() {
            // SAFETY: as above.
            Polled::Frame(frame) => unsafe { hand_out(reader.view(frame), view, info) },
            Polled::Idle => Ok(Status::None),
        }
    })
}

/// Reads frame `seq`.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_reader_read(
    handle: *mut CReader,
    seq: u64,
    view: *mut *mut CView,
    info: *mut CInfo,
) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        let reader = unsafe { reader(handle) }?;
        let frame = reader.ring.take(seq).map_err(|reason| {
            reader.losses.drops.count(reason);
            dropped(reason)
        })?;
        // SAFETY: as above.
        unsafe { hand_out(reader.view(frame), view, info) }
    })
}

/// Sleeps until the producer rings, for at most `timeout_ns`.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_reader_wait(handle: *mut CReader, timeout_ns: u64) -> c_int {
    // SAFETY: by the contract of the interface.
    unsafe { tp_wait_any(&handle, 1, timeout_ns) }
}

/// Sleeps until the producer of one of the readers rings, for at most `timeout_ns`.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_wait_any(handles: *const *mut CReader, count: usize, timeout_ns: u64) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        let handles = unsafe { given_many(handles, count, "readers") }?;
        // SAFETY: as above.
        let readers = handles.iter().map(|handle| unsafe { reader(*handle) });
        let readers = readers.collect::<Result<Vec<_>, Failure>>()?;
        let bells = readers.iter().map(|reader| (reader.ring.doorbell(), reader.cursor().bell(&reader.ring)));
        let bells: Vec<_> = bells.collect();
        let rang = doorbell::wait_any(&bells, Duration::from_nanos(timeout_ns));
        if !rang {
            // Not every producer rings: after a while without a ring the next poll looks for itself.
            readers.iter().for_each(|reader| reader.cursor().search_again());
        }
        Ok(if rang { Status::Ok } else { Status::None })
    })
}

/// Goes to frame `seq`.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_reader_seek(handle: *mut CReader, seq: u64) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        unsafe { reader(handle) }?.cursor().seek(seq);
        Ok(Status::Ok)
    })
}

/// The newest frame in the ring.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_reader_newest(handle: *const CReader, out: *mut u64) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        let reader = unsafe { reader(handle) }?;
        match reader.cursor().newest(&reader.ring) {
            // SAFETY: as above.
            Some(seq) => unsafe { put(out, seq, "out") }.map(|()| Status::Ok),
            None => Ok(Status::None),
        }
    })
}

/// How many frames were dropped for a reason, how many were `"late"`, or how many numbers were `"gap"`s.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_reader_drops(
    handle: *const CReader,
    reason: *const c_char,
    out: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        let (reader, name) = unsafe { (reader(handle)?, text(reason, "reason")?) };
        let count = match name {
            "late" => reader.losses.drops.late(),
            "gap" => reader.cursor().gaps(),
            name => {
                let known = DropReason::ALL.iter().find(|reason| reason.label() == name);
                let unknown = || Failure::argument(format!("there is no reason {name:?} to drop a frame"));
                reader.losses.drops.get(*known.ok_or_else(unknown)?)
            }
        };
        // SAFETY: as above.
        unsafe { put(out, count, "out") }?;
        Ok(Status::Ok)
    })
}

/// What a view shows.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_view_info(view: *const CView, out: *mut CInfo) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        unsafe {
            let frame = &given(view, "view")?.frame;
            put(out, CInfo::new(frame.record(), frame.payload()), "out")?;
        }
        Ok(Status::Ok)
    })
}

/// Is what was read through the view so far the frame, and nothing else?
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_view_still_valid(view: *const CView) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        let view = unsafe { given(view, "view") }?;
        view.judge(view.frame.still_valid(), false, DropReason::Overwritten)
    })
}

/// Copies the payload, or its first `bytes` bytes, and says whether the copy is whole.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_view_copy(view: *const CView, target: *mut c_void, bytes: u64) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        let view: &CView = unsafe { given(view, "view") }?;
        let whole_length = view.frame.record().header.values_len_bytes.into();
        let length = bytes.min(whole_length) as usize;
        if length > 0 && target.is_null() {
            return Err(Failure::argument("target is null"));
        }
        let out = match length {
            0 => &mut [][..],
            // SAFETY: not null, and as long as the caller says.
            _ => unsafe { std::slice::from_raw_parts_mut(target.cast(), length) },
        };
        view.judge(view.frame.copy_to(out), bytes < whole_length, DropReason::ChangedWhileReading)
    })
}

/// Releases a view.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_view_release(view: *mut CView) {
    // SAFETY: by the contract of the interface.
    unsafe { close(view) };
}
