//! At most one writer a ring.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::io::Errno;

use super::{RegionError, RegionFile};

/// The right to write to a ring: an advisory lock on its header file.
///
/// Two writers would hand out the same slots and sequence numbers, and every reader would be the victim. The lock
/// belongs to the open file, not to the process: others that open and close the same file don't lose it, a second
/// writer of the same process is refused too, and the kernel releases it however the process ends. A forked child
/// shares it, and must not release it.
#[derive(Debug)]
pub struct WriterLock {
    file: File,
    owner: rustix::process::Pid,
}

impl WriterLock {
    /// Takes the lock of a file that was opened for writing. Never waits.
    ///
    /// # Errors
    /// [`RegionError::Locked`] when another writer has it.
    pub fn take(region: RegionFile) -> Result<Self, RegionError> {
        let (file, path) = region.into_parts();
        match set_lock(&file, libc::F_WRLCK) {
            Ok(()) => Ok(Self { file, owner: rustix::process::getpid() }),
            Err(Errno::AGAIN | Errno::ACCESS) => {
                let pid = holder(&file);
                Err(RegionError::Locked {
                    path,
                    by: pid.map_or("another one".into(), |pid| format!("process {pid}")),
                })
            }
            Err(error) => Err(RegionError::io("lock", path, error)),
        }
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        // Explicitly: children that were forked meanwhile keep the file open.
        if rustix::process::getpid() == self.owner {
            let _ = set_lock(&self.file, libc::F_UNLCK);
        }
    }
}

fn set_lock(file: &File, kind: i32) -> rustix::io::Result<()> {
    // SAFETY: plain numbers, for which zero is a value: the whole file, and no process id as these locks demand.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the file is open, and the kernel only reads the structure.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) };
    if done == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}

/// Who holds such a lock on the file, as far as this user may know. The kernel names no process for these locks, but
/// shows them beside the open files of each.
fn holder(file: &File) -> Option<u32> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|process| process.file_name().to_str()?.parse().ok()).find(|pid| locks(*pid, &path))
}

fn locks(pid: u32, path: &Path) -> bool {
    let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    files.flatten().any(|open| {
        let info =
            || std::fs::read_to_string(Path::new(&format!("/proc/{pid}/fdinfo")).join(open.file_name()));
        std::fs::read_link(open.path()).is_ok_and(|target| target == path)
            && info().is_ok_and(|info| info.contains("OFDLCK"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{Access, BaseDirs, CreateOptions, RegionKind, Superblock, create_region};

    fn region(dir: &Path) -> RegionFile {
        let path = dir.join("header.ring");
        let ring = Superblock { stream_id: 1, epoch: 1, kind: RegionKind::HeaderRing, nslots: 2 };
        if !path.exists() {
            create_region(&path, &ring, CreateOptions::default()).unwrap();
        }
        let uri = format!("shm:file?path={}", path.display());
        RegionFile::open(&uri, ring, &BaseDirs::open([dir]).unwrap(), Access::Write).unwrap()
    }

    #[test]
    fn the_second_is_refused_until_the_first_lets_go() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let first = WriterLock::take(region(dir.path())).unwrap();
        // Others that open and close the file change nothing.
        drop(region(dir.path()));
        let error = WriterLock::take(region(dir.path())).unwrap_err();
        let me = format!("process {}", std::process::id());
        assert!(matches!(&error, RegionError::Locked { by, .. } if *by == me), "{error}");
        drop(first);
        WriterLock::take(region(dir.path())).unwrap();
    }
}
