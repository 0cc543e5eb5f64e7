//! The C interface; `include/tensor_pool.h` documents it for its users.
//!
//! Rules of this border: every function returns a status and never unwinds into C; null pointers, bad
//! strings and numbers out of range are errors with a text; what can't be checked (a pointer that points
//! nowhere, a handle that was closed) is the caller's promise. Handles lock themselves, so a C program that
//! shares one between threads is slow, not wrong.
//!
//! # Safety
//! All functions share one contract, that of the header: pointers are null or valid for what the function
//! reads or writes through them, strings end with a NUL, handles came from this library and are not closed.

mod address;
mod frame;
mod reader;
mod writer;

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::drops::DropReason;
use crate::region::RegionError;
use crate::ring::ClaimError;
use crate::uri::UriError;

/// Number of this interface; the header has the same.
pub const ABI_VERSION: u32 = 1;

/// What functions return. Negative numbers are errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// Nothing there yet, or nobody rang in time.
    None = 1,
    /// The frame can't be taken; the reason is the text of the error.
    Dropped = 2,
    /// An argument is null, not text, or out of range.
    Argument = -1,
    /// The numbers don't make a ring.
    Geometry = -2,
    /// Not a region URI.
    Uri = -3,
    /// A path leads out of the allowed directories.
    NotContained = -4,
    /// A file is not the region that was announced.
    Region = -5,
    /// No room for the files.
    NoSpace = -6,
    /// A system call failed.
    Io = -7,
    /// Longer than the largest payload slot.
    TooLarge = -8,
    /// The claim is finished, another one must be finished first, or the sequence number can't be used.
    Claim = -9,
    /// The tensor can't be described.
    Layout = -10,
    /// The library and the header don't fit.
    Abi = -11,
    /// A bug of this library; the handle should be closed.
    Internal = -12,
}

/// An error on its way to C.
#[derive(Debug)]
struct Failure(Status, String);

impl Failure {
    fn argument(text: impl Into<String>) -> Self {
        Self(Status::Argument, text.into())
    }
}

impl From<RegionError> for Failure {
    fn from(error: RegionError) -> Self {
        let status = match &error {
            RegionError::Uri { .. } => Status::Uri,
            RegionError::Geometry(_) | RegionError::NoBaseDirs => Status::Geometry,
            RegionError::NotContained { .. } => Status::NotContained,
            RegionError::Full { .. } => Status::NoSpace,
            RegionError::Io { .. } => Status::Io,
            RegionError::NotAFile { .. }
            | RegionError::Replaced { .. }
            | RegionError::TooShort { .. }
            | RegionError::NotHugepages { .. }
            | RegionError::Locked { .. }
            | RegionError::Superblock { .. } => Status::Region,
        };
        Self(status, error.to_string())
    }
}

impl From<UriError> for Failure {
    fn from(error: UriError) -> Self {
        Self(Status::Uri, error.to_string())
    }
}

impl From<ClaimError> for Failure {
    fn from(error: ClaimError) -> Self {
        let status = match error {
            ClaimError::TooLarge { .. } => Status::TooLarge,
            ClaimError::Tensor(_) | ClaimError::Extent { .. } | ClaimError::Length { .. } => Status::Layout,
            ClaimError::Open(_)
            | ClaimError::Full(_)
            | ClaimError::Seq { .. }
            | ClaimError::Exhausted(_)
            | ClaimError::Finished(_) => Status::Claim,
        };
        Self(status, error.to_string())
    }
}

/// A frame that can't be taken.
fn dropped(reason: DropReason) -> Failure {
    Failure(Status::Dropped, reason.label().to_owned())
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

fn remember(text: String) {
    // Names of files may hold anything but NUL, and so may texts about them.
    let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
    LAST_ERROR.with(|last| *last.borrow_mut() = text);
}

/// Runs the body of a function: errors become statuses, panics too.
fn call(body: impl FnOnce() -> Result<Status, Failure>) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(body));
    let Failure(status, text) = match result {
        Ok(Ok(status)) => return status as c_int,
        Ok(Err(failure)) => failure,
        Err(_) => Failure(Status::Internal, "a bug in tensor_pool; stderr has the details".into()),
    };
    remember(text);
    status as c_int
}

/// What `pointer` points to, for reading.
unsafe fn given<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: null or valid, by the contract of the interface.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::argument(format!("{name} is null")))
}

/// `count` things at `pointer`, for reading.
unsafe fn given_many<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() || count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::argument(format!("{name} is null or too long")));
    }
    // SAFETY: valid for `count` of them, by the contract of the interface.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// The text at `pointer`.
unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::argument(format!("{name} is null")));
    }
    // SAFETY: ends with a NUL, by the contract of the interface.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::argument(format!("{name} is not UTF-8")))
}

/// Stores a result where the caller wants it.
unsafe fn put<T>(target: *mut T, value: T, name: &str) -> Result<(), Failure> {
    if target.is_null() {
        return Err(Failure::argument(format!("{name} is null")));
    }
    // SAFETY: not null, so valid for writes, by the contract of the interface.
    unsafe { target.write(value) };
    Ok(())
}

/// Closes a handle; null is fine.
unsafe fn close<T>(handle: *mut T) {
    if !handle.is_null() {
        // Unmapping can't panic, but nothing may unwind into C.
        // SAFETY: made by `Box::into_raw` and not closed yet, by the contract of the interface.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(handle) })));
    }
}

/// The text of this thread's last error; empty when there was none. Valid until its next error.
#[unsafe(no_mangle)]
pub extern "C" fn tp_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}

/// The version of the library, as text.
#[unsafe(no_mangle)]
pub extern "C" fn tp_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Does the library fit a header with this number?
#[unsafe(no_mangle)]
pub extern "C" fn tp_check_abi(header_version: u32) -> c_int {
    call(|| {
        if header_version == ABI_VERSION {
            return Ok(Status::Ok);
        }
        let text = format!("tensor_pool.h has interface {header_version}, the library {ABI_VERSION}");
        Err(Failure(Status::Abi, text))
    })
}

#[cfg(test)]
mod tests;
