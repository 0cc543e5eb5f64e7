//! Showing that a ring is alive, for who owns its files.

use std::path::PathBuf;

use super::geometry::{RingAddress, RingFiles};
use crate::clock::monotonic_ns;
use crate::doorbell::Doorbell;
use crate::region::{Access, BaseDirs, Mapping, RegionError};

/// Raises the activity time stamps of a ring's files, whether or not a producer is attached (decision L8).
///
/// It maps the superblocks only, a page each, and keeps no file open: a driver has one of these for every stream.
#[derive(Debug)]
pub struct RingKeeper {
    superblocks: Vec<(PathBuf, Mapping)>,
}

impl RingKeeper {
    /// Opens and checks a ring.
    pub fn open(address: &RingAddress, bases: &BaseDirs) -> Result<Self, RegionError> {
        let files = RingFiles::open(address, bases, Access::Write, false)?;
        let superblocks = std::iter::once(&files.header)
            .chain(&files.pools)
            .map(|file| Ok((file.path().to_owned(), file.map_superblock(Access::Write)?)))
            .collect::<Result<_, RegionError>>()?;
        Ok(Self { superblocks })
    }

    #[cfg(test)]
    pub(super) fn superblocks(&self) -> &[(PathBuf, Mapping)] {
        &self.superblocks
    }

    /// Says that the ring is alive now. Time stamps only grow, and nobody is woken.
    pub fn refresh(&self) -> Result<(), RegionError> {
        let now_ns = monotonic_ns();
        for (path, superblock) in &self.superblocks {
            // Producers may write to the files, so one that went wrong may also cut them off. That must not take
            // along the driver, which serves others too.
            if !superblock.is_backed() {
                return Err(RegionError::io("refresh", path, std::io::Error::other("the file was cut off")));
            }
            Doorbell::of(superblock).refresh_activity(now_ns);
        }
        Ok(())
    }
}
