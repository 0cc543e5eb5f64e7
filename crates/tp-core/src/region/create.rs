//! Creating region files.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::Ordering;

use rustix::fs::{FallocateFlags, fallocate, ftruncate};
use rustix::io::Errno;

use super::open::huge_page_bytes;
use super::superblock::Superblock;
use super::{Access, Mapping, RegionError};
use crate::clock::monotonic_ns;
use crate::layout::{SUPERBLOCK_BYTES, superblock as at};

/// How files are made.
#[derive(Debug, Clone, Copy)]
pub struct CreateOptions {
    /// Permission bits of the files, whatever the umask.
    pub mode: u32,
    /// Allocate memory now (a producer's epoch), or leave the files sparse (decisions D7 and D19)?
    pub allocate: bool,
    /// Refuse unless the directory is on hugetlbfs.
    pub require_hugepages: bool,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self { mode: 0o600, allocate: true, require_hugepages: false }
    }
}

/// Makes a new region file at `path`, which must not exist. Leaves nothing behind when it fails.
///
/// Memory is allocated before anybody maps the file: on a full tmpfs `ftruncate` succeeds and the first
/// write kills the writer, `fallocate` says no (decision M8). The magic is written last, so a reader that
/// comes too early finds no region.
pub fn create_region(
    path: &Path,
    superblock: &Superblock,
    options: CreateOptions,
) -> Result<(), RegionError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(options.mode)
        .open(path)
        .map_err(|e| RegionError::io("create", path, e))?;
    fill(&file, path, superblock, options).inspect_err(|_| {
        // Ours alone: `create_new` made it. Nothing better can be done if this fails too.
        let _ = std::fs::remove_file(path);
    })
}

fn fill(
    file: &File,
    path: &Path,
    superblock: &Superblock,
    options: CreateOptions,
) -> Result<(), RegionError> {
    let permissions = std::fs::Permissions::from_mode(options.mode);
    file.set_permissions(permissions).map_err(|e| RegionError::io("chmod", path, e))?;
    let mut need = superblock.kind.required_bytes(superblock.nslots);
    match huge_page_bytes(file, path)? {
        Some(page) => need = need.next_multiple_of(page),
        None if options.require_hugepages => return Err(RegionError::NotHugepages { path: path.to_owned() }),
        None => {}
    }
    let sized = if options.allocate {
        fallocate(file, FallocateFlags::empty(), 0, need)
    } else {
        // The superblock is written below, so its page must exist: without one on a full file system the
        // store through the mapping would kill us.
        let first = map_granule(file, path)?;
        ftruncate(file, need).and_then(|()| fallocate(file, FallocateFlags::empty(), 0, need.min(first)))
    };
    sized.map_err(|errno| match errno {
        Errno::NOSPC | Errno::FBIG | Errno::NOMEM | Errno::DQUOT => {
            RegionError::Full { path: path.to_owned(), need }
        }
        other => RegionError::io("allocate", path, other),
    })?;

    let bytes = superblock.encode(rustix::process::getpid().as_raw_nonzero().get() as u32, monotonic_ns());
    // Through a mapping, because files on hugetlbfs can't be written to.
    let mapping = Mapping::new(file, need.min(map_granule(file, path)?) as usize, Access::Write)
        .map_err(|e| RegionError::io("map", path, e))?;
    for (i, word) in bytes.chunks_exact(8).enumerate().rev() {
        // Word 0, the magic, comes last and is released.
        let value = u64::from_ne_bytes(word.try_into().expect("chunks of 8"));
        mapping.word(8 * i as u64).store(value, Ordering::Release);
    }
    const { assert!(at::MAGIC == 0 && SUPERBLOCK_BYTES % 8 == 0) };
    file.sync_all().map_err(|e| RegionError::io("sync", path, e))
}

/// How much to map to write a superblock.
fn map_granule(file: &File, path: &Path) -> Result<u64, RegionError> {
    Ok(huge_page_bytes(file, path)?.unwrap_or(SUPERBLOCK_BYTES as u64))
}
