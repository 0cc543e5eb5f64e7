use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use super::*;
use crate::region::{CreateOptions, RegionKind, SuperblockField, create_region};

const RING: Superblock = Superblock { stream_id: 7, epoch: 3, kind: RegionKind::HeaderRing, nslots: 4 };

struct Fixture {
    _dir: tempfile::TempDir,
    base: PathBuf,
    bases: BaseDirs,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let base = dir.path().canonicalize().unwrap();
        let bases = BaseDirs::open([&base]).unwrap();
        Self { _dir: dir, base, bases }
    }

    fn ring(&self) -> PathBuf {
        let path = self.base.join("header.ring");
        create_region(&path, &RING, CreateOptions::default()).unwrap();
        path
    }

    fn open(&self, path: &Path) -> Result<RegionFile, RegionError> {
        RegionFile::open(&format!("shm:file?path={}", path.display()), RING, &self.bases, Access::Read)
    }
}

fn poke(path: &Path, offset: u64, bytes: &[u8]) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

// req: WIRE-15.13-1, WIRE-15.20-2
#[test]
fn what_was_created_opens_and_what_was_changed_does_not() {
    let f = Fixture::new();
    let path = f.ring();
    let region = f.open(&path).unwrap();
    assert!(region.check().is_ok());
    for (offset, field) in [
        (0, SuperblockField::Magic),
        (8, SuperblockField::LayoutVersion),
        (12, SuperblockField::Epoch),
        (20, SuperblockField::StreamId),
        (24, SuperblockField::RegionType),
        (26, SuperblockField::PoolId),
        (28, SuperblockField::Nslots),
        (32, SuperblockField::SlotBytes),
    ] {
        let mut old = [0];
        assert!(region.read_at(&mut old, offset));
        poke(&path, offset, &[old[0] ^ 0x40]);
        for error in [f.open(&path).map(drop), region.check()].map(Result::unwrap_err) {
            assert!(
                matches!(&error, RegionError::Superblock { field: found, .. } if *found == field),
                "{error}"
            );
        }
        poke(&path, offset, &old);
    }
}

#[test]
fn files_that_are_too_short_are_refused_before_mapping() {
    let f = Fixture::new();
    let path = f.ring();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    for len in [0, 63, 64, 64 + 4 * 256 - 1] {
        file.set_len(len).unwrap();
        let error = f.open(&path).unwrap_err();
        assert!(matches!(error, RegionError::TooShort { have, need: 1088, .. } if have == len), "{error}");
    }
}

// req: WIRE-15.21a.5-5, WIRE-15.21a.5-6, WIRE-15.21a.5-11
#[test]
fn only_regular_files_are_opened() {
    let f = Fixture::new();
    let (dir, fifo, socket) = (f.base.join("dir"), f.base.join("fifo"), f.base.join("socket"));
    std::fs::create_dir(&dir).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, 0o600.into(), 0).unwrap();
    let _listener = UnixListener::bind(&socket).unwrap();
    for path in [dir, fifo, socket] {
        let error = f.open(&path).unwrap_err();
        assert!(matches!(error, RegionError::NotAFile { .. }), "{path:?}: {error}");
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains(f.base.to_str().unwrap()), "nothing that was refused is mapped");
    let bases = BaseDirs::open(["/dev"]).unwrap();
    let error = RegionFile::open("shm:file?path=/dev/zero", RING, &bases, Access::Read).unwrap_err();
    assert!(matches!(error, RegionError::NotAFile { .. }), "{error}");
}

// req: WIRE-15.21a.5-8
#[test]
fn a_file_swapped_between_check_and_open_is_refused() {
    let f = Fixture::new();
    let path = f.ring();
    let other = f.base.join("other");
    std::fs::copy(&path, &other).unwrap();
    let uri = format!("shm:file?path={}", path.display());
    let swap = || std::fs::rename(&other, &path).unwrap();
    let error = RegionFile::open_with(&uri, RING, &f.bases, Access::Read, swap, huge_page_bytes).unwrap_err();
    assert!(matches!(error, RegionError::Replaced { .. }), "{error}");

    let target = f.base.join("target");
    std::fs::copy(&path, &target).unwrap();
    let link = || {
        std::fs::remove_file(&path).unwrap();
        symlink(&target, &path).unwrap();
    };
    let error = RegionFile::open_with(&uri, RING, &f.bases, Access::Read, link, huge_page_bytes).unwrap_err();
    assert!(matches!(error, RegionError::NotContained { .. }), "{error}");
}

// req: WIRE-15.22-9
#[test]
fn huge_pages_that_can_not_be_verified_are_refused_not_taken_for_granted() {
    let f = Fixture::new();
    let uri = format!("shm:file?path={}|require_hugepages=true", f.ring().display());
    let unable = |_: &File, path: &Path| Err(RegionError::io("statfs", path, rustix::io::Errno::NOSYS));
    let opened = RegionFile::open_with(&uri, RING, &f.bases, Access::Read, || {}, unable);
    assert!(matches!(opened, Err(RegionError::Io { what: "statfs", .. })), "{opened:?}");
}

// req: WIRE-15.22-7, WIRE-15.22-8
#[test]
fn huge_pages_are_verified() {
    let f = Fixture::new();
    let uri = format!("shm:file?path={}|require_hugepages=true", f.ring().display());
    let error = RegionFile::open(&uri, RING, &f.bases, Access::Read).unwrap_err();
    assert!(matches!(error, RegionError::NotHugepages { .. }), "{error}");
    let options = CreateOptions { require_hugepages: true, ..CreateOptions::default() };
    let error = create_region(&f.base.join("huge"), &RING, options).unwrap_err();
    assert!(matches!(error, RegionError::NotHugepages { .. }), "{error}");
    assert!(!f.base.join("huge").exists());
}

// req: WIRE-15.10-1
#[test]
fn files_get_their_mode_whatever_the_umask_and_never_replace_others() {
    use std::os::unix::fs::PermissionsExt;
    let f = Fixture::new();
    for mode in [0o600, 0o660] {
        let path = f.base.join(format!("{mode:o}"));
        create_region(&path, &RING, CreateOptions { mode, ..CreateOptions::default() }).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        assert!(create_region(&path, &RING, CreateOptions::default()).is_err());
    }
    let mut file = std::fs::File::create(f.base.join("mine")).unwrap();
    file.write_all(b"mine").unwrap();
    assert!(create_region(&f.base.join("mine"), &RING, CreateOptions::default()).is_err());
    assert_eq!(std::fs::read(f.base.join("mine")).unwrap(), b"mine");
}

#[test]
fn a_region_larger_than_memory_is_refused_and_leaves_nothing() {
    let f = Fixture::new();
    let path = f.base.join("1.pool");
    let kind = RegionKind::PayloadPool { pool_id: 1, stride_bytes: 1 << 31 };
    let error = create_region(&path, &Superblock { kind, nslots: 1 << 20, ..RING }, CreateOptions::default());
    assert!(matches!(error, Err(RegionError::Full { .. })), "{error:?}");
    assert!(!path.exists());
}
