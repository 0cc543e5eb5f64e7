//! What can go wrong, as types.

use std::ffi::{CStr, c_int};

use rusteron_client::bindings as c;

/// Why Aeron could not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No media driver was found, or the one that was there died.
    #[error("no media driver serves {dir}: {reason}")]
    NoMediaDriver {
        /// The Aeron directory.
        dir: String,
        /// What was seen there.
        reason: String,
    },
    /// The files of the media driver are somebody else's.
    #[error("this user may not use the media driver of {dir}: {reason}")]
    NotPermitted {
        /// The Aeron directory.
        dir: String,
        /// What was refused.
        reason: String,
    },
    /// A second media driver was to be started on the directory of a live one.
    #[error("a media driver (pid {pid}) already serves {dir}")]
    DriverActive {
        /// The Aeron directory.
        dir: String,
        /// The process of the live media driver.
        pid: i64,
    },
    /// The directory can't be used by a media driver.
    #[error("{dir} can't be used as an Aeron directory: {reason}")]
    Directory {
        /// The Aeron directory.
        dir: String,
        /// Why not.
        reason: String,
    },
    /// Aeron does not accept a channel.
    #[error("Aeron refuses the channel {channel:?}: {reason}")]
    Channel {
        /// The channel as it was given.
        channel: String,
        /// Aeron's own words.
        reason: String,
    },
    /// The media driver did not answer in time.
    #[error("adding a {what} got no answer from the media driver within {timeout_ms} ms")]
    Timeout {
        /// What was to be added.
        what: &'static str,
        /// How long was waited.
        timeout_ms: u128,
    },
    /// The handle, or the client it belongs to, was closed.
    #[error("the {0} is closed")]
    Closed(&'static str),
    /// The handle was made by another process, of which this one is a fork.
    #[error("the {0} belongs to the process that this one was forked from")]
    Forked(&'static str),
    /// The client had to give up although the media driver may be alive; all its handles are closed.
    #[error("the Aeron client gave up: {reason}")]
    ClientLost {
        /// Aeron's own words.
        reason: String,
    },
    /// A value that the C code would misread.
    #[error("{0}")]
    InvalidArgument(String),
    /// Everything else.
    #[error("{what}: {message} (Aeron error {code})")]
    Aeron {
        /// What was tried.
        what: &'static str,
        /// Aeron's error code.
        code: i32,
        /// Aeron's own words.
        message: String,
    },
}

/// Why a message was not taken by a publication.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// Nobody subscribes.
    #[error("nobody subscribes")]
    NotConnected,
    /// Subscribers do not keep up.
    #[error("subscribers do not keep up")]
    BackPressured,
    /// The log is being rotated; offering again at once succeeds.
    #[error("the log is being rotated")]
    AdminAction,
    /// The publication or its client was closed.
    #[error("the publication is closed")]
    Closed,
    /// The stream has reached the last position it can have.
    #[error("the stream has reached its last position; a new publication is needed")]
    MaxPositionExceeded,
    /// The message is longer than the publication takes.
    #[error("a message of {length} bytes; the publication takes at most {max}")]
    TooLong {
        /// The length of the message.
        length: usize,
        /// The most that this call takes.
        max: usize,
    },
    /// Everything else, the death of the media driver among it.
    #[error(transparent)]
    Error(#[from] Error),
}

/// The error that the last failed call of the C library left behind on this thread.
pub(crate) fn last_error() -> (c_int, String) {
    // SAFETY: both read state of the calling thread; the message is copied before any other call can change it.
    unsafe { (c::aeron_errcode(), shorten(&CStr::from_ptr(c::aeron_errmsg()).to_string_lossy())) }
}

pub(crate) fn aeron_error(what: &'static str) -> Error {
    let (code, message) = last_error();
    Error::Aeron { what, code, message }
}

/// Keeps what a person can use of the C library's error text, which consists of lines such as
/// `(22) Invalid argument` and `[aeron_uri.c, aeron_uri_parse:123] invalid URI`.
pub(crate) fn shorten(text: &str) -> String {
    let mut specific: Vec<&str> = Vec::new();
    let mut generic = "";
    for line in text.lines().map(str::trim) {
        let words = match line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((_source, words)) => words.trim(),
            None => line,
        };
        if words.starts_with('(') || words.starts_with("async_add_") {
            // A code with its name, and the C function that was called: only worth showing when alone.
            generic = if generic.is_empty() { words } else { generic };
        } else if !words.is_empty() && !specific.contains(&words) {
            specific.push(words);
        }
    }
    if specific.is_empty() { generic.to_owned() } else { specific.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::shorten;

    #[test]
    fn error_texts_lose_source_lines_and_repetition() {
        let text = "(22) Invalid argument\n[aeron_uri.c, aeron_uri_parse:9] bad URI\n[x.c, f:1] \n[y.c, g:2] bad URI\n";
        assert_eq!(shorten(text), "bad URI");
        assert_eq!(shorten("(22) Invalid argument\n"), "(22) Invalid argument");
        assert_eq!(shorten(""), "");
    }
}
