//! Opening a region that somebody announced.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags, Stat, fstat, fstatfs};

use super::superblock::{Superblock, activity_timestamp_ns, pid};
use super::{Access, BaseDirs, Mapping, RegionError};
use crate::layout::SUPERBLOCK_BYTES;
use crate::uri::RegionUri;

/// `f_type` of hugetlbfs (decision M10).
const HUGETLBFS_MAGIC: i64 = 0x9584_58F6;

/// A region file that passed every check. Not mapped yet.
#[derive(Debug)]
pub struct RegionFile {
    file: File,
    path: PathBuf,
    superblock: Superblock,
    /// Size of the huge pages behind it; mappings come in whole ones.
    huge_page: Option<u64>,
}

impl RegionFile {
    /// Opens the file behind `uri` below one of `bases` and checks that it is the region `want`.
    pub fn open(uri: &str, want: Superblock, bases: &BaseDirs, access: Access) -> Result<Self, RegionError> {
        Self::open_with(uri, want, bases, access, || {}, huge_page_bytes)
    }

    /// For tests: `between` runs between the check of the path and the opening, `huge_page_bytes` verifies.
    fn open_with(
        uri: &str,
        want: Superblock,
        bases: &BaseDirs,
        access: Access,
        between: impl FnOnce(),
        huge_page_bytes: impl FnOnce(&File, &Path) -> Result<Option<u64>, RegionError>,
    ) -> Result<Self, RegionError> {
        let parsed =
            RegionUri::parse(uri).map_err(|source| RegionError::Uri { uri: uri.to_owned(), source })?;
        let path = PathBuf::from(&parsed.path);

        // Opening a device or a FIFO can block or have effects, so look at what it is first [WIRE-15.21a.5-6].
        let probe = bases.open_below(&path, OFlags::PATH)?;
        let before = regular_file(&probe, &path)?;
        between();
        let mode = if access == Access::Write { OFlags::RDWR } else { OFlags::RDONLY };
        let fd = bases.open_below(&path, mode | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let after = regular_file(&fd, &path)?;
        if (before.st_dev, before.st_ino) != (after.st_dev, after.st_ino) {
            return Err(RegionError::Replaced { path });
        }

        let file = File::from(fd);
        let huge_page = huge_page_bytes(&file, &path)?;
        if parsed.require_hugepages && huge_page.is_none() {
            return Err(RegionError::NotHugepages { path });
        }
        let region = Self { file, path, superblock: want, huge_page };
        region.check()?;
        Ok(region)
    }

    /// Is the file still what was announced: long enough, with the right superblock?
    ///
    /// Looked at with system calls only, so that a file that shrinks can't hurt.
    pub fn check(&self) -> Result<(), RegionError> {
        self.check_size()?;
        self.check_superblock()
    }

    fn check_size(&self) -> Result<(), RegionError> {
        let have = self.file.metadata().map_err(|e| RegionError::io("stat", &self.path, e))?.size();
        let need = self.required_bytes();
        if have < need { Err(RegionError::TooShort { path: self.path.clone(), have, need }) } else { Ok(()) }
    }

    fn check_superblock(&self) -> Result<(), RegionError> {
        let bytes = self.read_superblock()?;
        self.superblock.check(&bytes).map_err(|m| RegionError::Superblock {
            path: self.path.clone(),
            field: m.field,
            have: m.have,
            want: m.want,
        })
    }

    fn read_superblock(&self) -> Result<[u8; SUPERBLOCK_BYTES], RegionError> {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        self.file.read_exact_at(&mut bytes, 0).map_err(|e| RegionError::io("read", &self.path, e))?;
        Ok(bytes)
    }

    /// The process that made the region, and when it was last said to be alive.
    pub fn liveness(&self) -> Result<(u64, u64), RegionError> {
        let bytes = self.read_superblock()?;
        Ok((pid(&bytes), activity_timestamp_ns(&bytes)))
    }

    /// Reads exactly `out.len()` bytes at `offset`; false when the file became too short (or can't be read).
    pub fn read_at(&self, out: &mut [u8], offset: u64) -> bool {
        self.file.read_exact_at(out, offset).is_ok()
    }

    fn required_bytes(&self) -> u64 {
        self.superblock.kind.required_bytes(self.superblock.nslots)
    }

    /// Maps the region.
    pub fn map(&self, access: Access) -> Result<Mapping, RegionError> {
        self.map_bytes(self.required_bytes(), access)
    }

    /// Maps only the superblock: enough to wait on the doorbell, or to say that the region is alive.
    pub fn map_superblock(&self, access: Access) -> Result<Mapping, RegionError> {
        self.map_bytes(SUPERBLOCK_BYTES as u64, access)
    }

    fn map_bytes(&self, bytes: u64, access: Access) -> Result<Mapping, RegionError> {
        let bytes = self.huge_page.map_or(bytes, |page| bytes.next_multiple_of(page));
        let len = usize::try_from(bytes)
            .map_err(|_| RegionError::Geometry(format!("{bytes} bytes can't be mapped")))?;
        Mapping::new(&self.file, len, access).map_err(|e| RegionError::io("map", &self.path, e))
    }

    /// The open file, and where it is.
    pub(super) fn into_parts(self) -> (File, PathBuf) {
        (self.file, self.path)
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn regular_file(fd: &OwnedFd, path: &Path) -> Result<Stat, RegionError> {
    let stat = fstat(fd).map_err(|e| RegionError::io("stat", path, e))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(stat),
        _ => Err(RegionError::NotAFile { path: path.to_owned() }),
    }
}

/// Size of the huge pages that back `file`, if it is on hugetlbfs.
pub(super) fn huge_page_bytes(file: &File, path: &Path) -> Result<Option<u64>, RegionError> {
    let stat = fstatfs(file).map_err(|e| RegionError::io("statfs", path, e))?;
    // `f_type` is a signed or unsigned word depending on the platform; the magic is 32 bits wide.
    Ok((stat.f_type as u32 == HUGETLBFS_MAGIC as u32).then_some(stat.f_bsize as u64))
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
