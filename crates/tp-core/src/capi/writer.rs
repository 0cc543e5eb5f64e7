//! Writing frames from C.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::address::{CAddress, base_dirs};
use super::frame::CFrame;
use super::{Failure, Status, call, close, given, given_many, put};
use crate::ring::{Claim, RingWriter};

/// `tp_writer`.
#[derive(Debug)]
pub struct CWriter(Mutex<State>);

#[derive(Debug)]
struct State {
    ring: RingWriter,
    /// Claims that C holds. It knows them by number: what it hands back is looked up, not believed.
    open: Vec<Claim>,
}

impl State {
    fn find(&self, claim: &CClaim) -> Result<Claim, Failure> {
        let known = self.open.iter().find(|open| open.seq == claim.seq);
        known.copied().ok_or_else(|| {
            Failure(Status::Claim, format!("the claim of seq {} was committed or aborted already", claim.seq))
        })
    }

    fn forget(&mut self, claim: &Claim) {
        self.open.retain(|open| open.seq != claim.seq);
    }
}

/// `tp_claim`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CClaim {
    /// Its sequence number.
    pub seq: u64,
    /// Where the payload goes.
    pub payload: *mut c_void,
    /// Bytes claimed.
    pub length: u64,
}

unsafe fn lock<'a>(writer: *const CWriter) -> Result<MutexGuard<'a, State>, Failure> {
    // SAFETY: by the contract of the interface.
    let writer: &CWriter = unsafe { given(writer, "writer") }?;
    // After a bug in one call the ring is still sound: every slot is either committed or in progress.
    Ok(writer.0.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Opens and maps a ring for writing, and goes on behind its newest frame.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_writer_open(
    ring: *const CAddress,
    directories: *const *const c_char,
    ndirectories: usize,
    out: *mut *mut CWriter,
) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        unsafe {
            put(out, std::ptr::null_mut(), "out")?;
            let (address, bases) = (given(ring, "ring")?.address()?, base_dirs(directories, ndirectories)?);
            let ring = RingWriter::open(&address, &bases)?;
            let writer = CWriter(Mutex::new(State { ring, open: Vec::new() }));
            put(out, Box::into_raw(Box::new(writer)), "out")?;
        }
        Ok(Status::Ok)
    })
}

/// Unmaps the ring. Open claims are given up.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_writer_close(writer: *mut CWriter) {
    // SAFETY: by the contract of the interface.
    unsafe { close(writer) };
}

/// The sequence number of the next frame.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_writer_next_seq(writer: *const CWriter, out: *mut u64) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        unsafe { put(out, lock(writer)?.ring.next_seq(), "out") }?;
        Ok(Status::Ok)
    })
}

/// The longest payload that fits.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_writer_max_length(writer: *const CWriter, out: *mut u64) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        unsafe { put(out, lock(writer)?.ring.max_payload_bytes().into(), "out") }?;
        Ok(Status::Ok)
    })
}

/// Touches every page now rather than in the first frames.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_writer_prefault(writer: *const CWriter) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        let prefaulted = unsafe { lock(writer) }?.ring.memory().prefault();
        let failed = |error| Failure(Status::NoSpace, format!("no memory behind the files: {error}"));
        prefaulted.map(|()| Status::Ok).map_err(failed)
    })
}

/// Takes the next slot, or that of `*seq`, for a payload of `length` bytes.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_writer_claim(
    writer: *mut CWriter,
    length: u64,
    seq: *const u64,
    out: *mut CClaim,
) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        let (mut state, seq) = unsafe { (lock(writer)?, seq.as_ref().copied()) };
        if out.is_null() {
            return Err(Failure::argument("out is null"));
        }
        let claim = state.ring.claim(length, seq)?;
        state.open.push(claim);
        let payload = state.ring.payload(&claim).cast();
        // SAFETY: as above, and not null.
        unsafe { put(out, CClaim { seq: claim.seq, payload, length }, "out") }?;
        Ok(Status::Ok)
    })
}

/// Writes the header of an open claim, so that readers may follow its progress.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_writer_header(
    writer: *mut CWriter,
    claim: *const CClaim,
    length: u64,
    frame: *const CFrame,
) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        let (state, claim, frame) =
            unsafe { (lock(writer)?, given(claim, "claim")?, given(frame, "frame")?) };
        let (claim, header) = (state.find(claim)?, frame.header(length)?);
        state.ring.write_header(&claim, &header)?;
        Ok(Status::Ok)
    })
}

/// Publishes a claim of which `length` bytes are used.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_writer_commit(
    writer: *mut CWriter,
    claim: *const CClaim,
    length: u64,
    frame: *const CFrame,
) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        let (mut state, claim, frame) =
            unsafe { (lock(writer)?, given(claim, "claim")?, given(frame, "frame")?) };
        let (claim, header) = (state.find(claim)?, frame.header(length)?);
        state.ring.commit(&claim, &header)?;
        state.forget(&claim);
        Ok(Status::Ok)
    })
}

/// Gives a claim up.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_writer_abort(writer: *mut CWriter, claim: *const CClaim) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        let (mut state, claim) = unsafe { (lock(writer)?, given(claim, "claim")?) };
        let claim = state.find(claim)?;
        state.ring.abort(&claim)?;
        state.forget(&claim);
        Ok(Status::Ok)
    })
}

/// Copies a frame in, commits it and rings the doorbell.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_writer_publish(
    writer: *mut CWriter,
    payload: *const c_void,
    length: u64,
    frame: *const CFrame,
    seq: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        let (mut state, frame) = unsafe { (lock(writer)?, given(frame, "frame")?) };
        let header = frame.header(length)?;
        // SAFETY: as above; a slice on a 64-bit machine holds whatever the header could.
        let bytes = unsafe { given_many(payload.cast::<u8>(), length as usize, "payload") }?;
        let published = state.ring.publish(bytes, &header)?;
        state.ring.ring(i32::MAX as u32);
        if !seq.is_null() {
            // SAFETY: as above, and not null.
            unsafe { put(seq, published, "seq") }?;
        }
        Ok(Status::Ok)
    })
}

/// Rings the doorbell and wakes up to `wake` sleeping readers.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_writer_ring(writer: *mut CWriter, wake: u32) -> c_int {
    call(|| {
        // The kernel takes a signed number.
        // SAFETY: by the contract of the interface.
        unsafe { lock(writer) }?.ring.ring(wake.min(i32::MAX as u32));
        Ok(Status::Ok)
    })
}

/// Says that the ring is alive, without waking anybody.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_writer_refresh(writer: *mut CWriter) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        unsafe { lock(writer) }?.ring.refresh_activity();
        Ok(Status::Ok)
    })
}
