//! Region files: created whole or not at all, opened with suspicion, mapped only when everything fits.

mod containment;
mod create;
mod lock;
mod map;
mod open;
mod superblock;

use std::io;
use std::path::PathBuf;

use thiserror::Error;

pub use containment::BaseDirs;
pub use create::{CreateOptions, create_region};
pub use lock::WriterLock;
pub use map::{Access, Mapping};
pub use open::RegionFile;
pub use superblock::{RegionKind, Superblock, SuperblockField};

use crate::uri::UriError;

/// Why a region can't be used.
#[derive(Debug, Error)]
pub enum RegionError {
    /// Not a region URI.
    #[error("{uri:?} is not a region URI: {source}")]
    Uri {
        /// What was announced.
        uri: String,
        /// What is wrong with it.
        source: UriError,
    },
    /// Nothing may be opened at all.
    #[error("no base directory is allowed, so no region can be opened")]
    NoBaseDirs,
    /// The announced numbers don't make a ring.
    #[error("geometry: {0}")]
    Geometry(String),
    /// The path leads out of the allowed directories, or the directories themselves are missing.
    #[error("{path:?} is not below an allowed base directory ({allowed})")]
    NotContained {
        /// What was announced.
        path: PathBuf,
        /// The directories, for the message.
        allowed: String,
    },
    /// A directory, device, FIFO or socket.
    #[error("{path:?} is not a regular file")]
    NotAFile {
        /// What was announced.
        path: PathBuf,
    },
    /// Somebody put another file there between the check and the opening.
    #[error("{path:?} was replaced while it was opened")]
    Replaced {
        /// What was announced.
        path: PathBuf,
    },
    /// The file is shorter than its geometry needs.
    #[error("{path:?} has {have} bytes, its geometry needs {need}")]
    TooShort {
        /// What was announced.
        path: PathBuf,
        /// Bytes that the file has.
        have: u64,
        /// Bytes that it needs.
        need: u64,
    },
    /// Huge pages were demanded and the file has none.
    #[error("{path:?} is not backed by huge pages, as its URI demands")]
    NotHugepages {
        /// What was announced.
        path: PathBuf,
    },
    /// The superblock says something else than was announced.
    #[error("{path:?}: superblock field {field} is {have}, expected {want}")]
    Superblock {
        /// What was announced.
        path: PathBuf,
        /// Which field.
        field: SuperblockField,
        /// What the file says.
        have: u64,
        /// What was announced.
        want: u64,
    },
    /// The file system is full.
    #[error("no room for {need} bytes at {path:?}")]
    Full {
        /// The file that was to be made.
        path: PathBuf,
        /// Its size.
        need: u64,
    },
    /// Somebody else writes to the ring.
    #[error("{path:?} has a writer already: {by}")]
    Locked {
        /// The header ring.
        path: PathBuf,
        /// Who, as far as can be told.
        by: String,
    },
    /// Any other failure of a system call.
    #[error("{what} {path:?}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl RegionError {
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        Self::Io { what, path: path.into(), source: source.into() }
    }
}
