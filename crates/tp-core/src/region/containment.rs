//! Opening files below trusted directories, without following anything that leads elsewhere.

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::RegionError;

/// Directories below which region files may lie; made canonical once [WIRE-15.21a.5-3].
#[derive(Debug)]
pub struct BaseDirs(Vec<BaseDir>);

#[derive(Debug)]
struct BaseDir {
    /// As configured: announced paths may be spelled so even if a part of it is a symbolic link.
    given: PathBuf,
    canonical: PathBuf,
    fd: OwnedFd,
}

impl BaseDirs {
    /// Opens the directories. All must exist, and there must be at least one.
    pub fn open<P: AsRef<Path>>(dirs: impl IntoIterator<Item = P>) -> Result<Self, RegionError> {
        let open_one = |dir: &Path| {
            let canonical = dir.canonicalize().map_err(|e| RegionError::io("base directory", dir, e))?;
            let fd =
                openat(CWD, &canonical, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                    .map_err(|e| RegionError::io("base directory", dir, e))?;
            Ok(BaseDir { given: dir.to_owned(), canonical, fd })
        };
        let dirs =
            dirs.into_iter().map(|dir| open_one(dir.as_ref())).collect::<Result<Vec<_>, RegionError>>()?;
        if dirs.is_empty() {
            return Err(RegionError::NoBaseDirs);
        }
        Ok(Self(dirs))
    }

    /// Which directory `path` lies below, and where.
    fn locate<'p>(&self, path: &'p Path) -> Option<(&OwnedFd, &'p Path)> {
        // `..` never: with it the prefix below would prove nothing.
        if path.components().any(|c| c == Component::ParentDir) {
            return None;
        }
        self.0.iter().find_map(|dir| {
            let below = path.strip_prefix(&dir.canonical).or_else(|_| path.strip_prefix(&dir.given)).ok()?;
            (!below.as_os_str().is_empty()).then_some((&dir.fd, below))
        })
    }

    /// Opens `path` with `flags` if it lies below one of the directories, refusing symbolic links on the way.
    pub(super) fn open_below(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, RegionError> {
        self.open_with(path, flags, beneath)
    }

    fn open_with(&self, path: &Path, flags: OFlags, open: Opener) -> Result<OwnedFd, RegionError> {
        let (base, below) = self.locate(path).ok_or_else(|| self.refuse(path))?;
        open(base, below, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW).map_err(|errno| match errno {
            // A symbolic link or a way out of the base directory.
            Errno::LOOP | Errno::XDEV => self.refuse(path),
            other => RegionError::io("open", path, other),
        })
    }

    fn refuse(&self, path: &Path) -> RegionError {
        let allowed: Vec<_> = self.0.iter().map(|dir| dir.canonical.display().to_string()).collect();
        RegionError::NotContained { path: path.to_owned(), allowed: allowed.join(", ") }
    }
}

type Opener = fn(&OwnedFd, &Path, OFlags) -> rustix::io::Result<OwnedFd>;

/// One system call where the kernel has it, a walk where it hasn't (decision M9).
fn beneath(base: &OwnedFd, below: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(base, below, flags, Mode::empty(), resolve) {
        Err(Errno::NOSYS | Errno::PERM) => walk(base, below, flags),
        result => result,
    }
}

/// Component by component, never following a link.
fn walk(base: &OwnedFd, below: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = openat(base, ".", step, Mode::empty())?;
    let mut names: Vec<_> = below.iter().collect();
    let last = names.pop().ok_or(Errno::NOENT)?;
    for name in names {
        // With O_PATH a symbolic link itself is opened, which is then not a directory.
        dir = openat(&dir, name, step, Mode::empty())
            .map_err(|e| if e == Errno::NOTDIR { Errno::LOOP } else { e })?;
    }
    let file = openat(&dir, last, flags, Mode::empty())?;
    // O_PATH | O_NOFOLLOW opens a link rather than failing.
    let is_link = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode).is_symlink();
    if is_link { Err(Errno::LOOP) } else { Ok(file) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Tree {
        _root: tempfile::TempDir,
        base: PathBuf,
        outside: PathBuf,
        dirs: BaseDirs,
    }

    fn tree() -> Tree {
        let root = tempfile::tempdir().unwrap();
        let base = root.path().canonicalize().unwrap().join("base");
        let outside = base.with_file_name("base-evil");
        for dir in [&base.join("stream"), &outside] {
            std::fs::create_dir_all(dir).unwrap();
        }
        std::fs::write(base.join("stream/good"), b"good").unwrap();
        std::fs::write(outside.join("secret"), b"secret").unwrap();
        let dirs = BaseDirs::open([&base]).unwrap();
        Tree { _root: root, base, outside, dirs }
    }

    const OPENERS: [Opener; 2] = [beneath, walk];

    // req: WIRE-15.21a.5-1, WIRE-15.21a.5-2, WIRE-15.21a.5-4, WIRE-15.21a.5-7, WIRE-15.21a.5-10
    #[test]
    fn nothing_outside_opens_and_no_link_is_followed() {
        let t = tree();
        symlink(t.outside.join("secret"), t.base.join("stream/link")).unwrap();
        symlink(&t.outside, t.base.join("linked-dir")).unwrap();
        symlink(t.base.join("stream/good"), t.base.join("stream/inner")).unwrap();
        for open in OPENERS {
            assert!(t.dirs.open_with(&t.base.join("stream/good"), OFlags::RDONLY, open).is_ok());
            for bad in [
                t.outside.join("secret"),
                t.base.join("../base-evil/secret"),
                t.base.join("stream/../stream/good"),
                t.base.join("stream/link"),
                t.base.join("stream/inner"),
                t.base.join("linked-dir/secret"),
                t.base.clone(),
                PathBuf::from("stream/good"),
                PathBuf::from("/etc/passwd"),
            ] {
                let error = t.dirs.open_with(&bad, OFlags::RDONLY, open).unwrap_err();
                assert!(matches!(error, RegionError::NotContained { .. }), "{bad:?}: {error}");
            }
        }
    }

    // req: WIRE-15.21a.5-3
    #[test]
    fn a_base_directory_that_is_a_link_works_in_both_spellings() {
        let t = tree();
        let alias = t.base.with_file_name("alias");
        symlink(&t.base, &alias).unwrap();
        let dirs = BaseDirs::open([&alias]).unwrap();
        for path in [alias.join("stream/good"), t.base.join("stream/good")] {
            assert!(dirs.open_below(&path, OFlags::RDONLY).is_ok(), "{path:?}");
        }
    }

    // req: WIRE-15.21a.5-9
    #[test]
    fn without_a_safe_way_to_open_nothing_is_opened() {
        let t = tree();
        let incapable: Opener = |_, _, _| Err(Errno::NOSYS);
        assert!(t.dirs.open_with(&t.base.join("stream/good"), OFlags::RDONLY, incapable).is_err());
    }

    #[test]
    fn missing_files_and_missing_base_directories_say_so() {
        let t = tree();
        let error = t.dirs.open_below(&t.base.join("stream/none"), OFlags::RDONLY).unwrap_err();
        assert!(
            matches!(&error, RegionError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
        );
        assert!(BaseDirs::open([t.base.join("none")]).is_err());
        assert!(BaseDirs::open(Vec::<PathBuf>::new()).is_err());
    }
}
