//! Reading a media driver's command-and-control file (`cnc.dat`) without mapping it.
//!
//! The C library maps the file and trusts it: a truncated or foreign file then ends the process with SIGBUS, and some
//! states make it wait without end. So every question that is asked *before* a client or a driver is started is
//! answered here with plain reads of a few bytes. The layout is Aeron's (all integers little-endian, as the machine):
//! a header of 128 bytes, then the buffers whose lengths the header tells, in the order of the fields below.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};

use crate::error::Error;

const CNC_FILE: &str = "cnc.dat";
/// Locked by our media drivers for as long as they live, so that their death shows at once. Others have no such file.
pub(crate) const LIFE_LOCK_FILE: &str = "alive.lock";
const HEADER_BYTES: u64 = 128;
/// Major version of the layout, in bits 16 to 23 of the version number.
const SUPPORTED_MAJOR: i32 = 0;
/// The ring to the driver ends with this trailer ...
const RING_TRAILER_BYTES: u64 = 768;
/// ... in which the driver's heartbeat (milliseconds since 1970) stands here.
const RING_HEARTBEAT_OFFSET: u64 = 640;

const METADATA_BYTES: usize = 512;
const VALUE_BYTES: usize = 128;
const RECORD_UNUSED: i32 = 0;
const RECORD_ALLOCATED: i32 = 1;
/// How many counters one read fetches.
const COUNTERS_PER_READ: usize = 64;

/// From this age on the driver's process id decides too: a killed driver then does not have to be waited for, while
/// one that another container runs (where process ids mean nothing) and that only stutters is not taken for dead.
const PID_COUNTS_AFTER: Duration = Duration::from_secs(3);

/// What a media driver says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverStatus {
    /// Process id of the media driver.
    pub pid: i64,
    /// When it started, in milliseconds since 1970.
    pub start_ms: i64,
    /// When it last showed life, in milliseconds since 1970; 0 before the first time, -1 after a clean end.
    pub heartbeat_ms: i64,
    /// After this silence the driver drops a client.
    pub client_liveness: Duration,
    /// Whether a process holds the lock that our media drivers hold; nothing for those of other makers.
    pub life_lock_held: Option<bool>,
}

impl DriverStatus {
    /// The time since the driver last showed life; nothing before it started or after it ended cleanly.
    pub fn heartbeat_age(&self) -> Option<Duration> {
        if self.heartbeat_ms <= 0 {
            return None;
        }
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
        Some(Duration::from_millis(now_ms.saturating_sub(self.heartbeat_ms).max(0) as u64))
    }

    /// Whether the driver showed life within `timeout` and is not known to have died since.
    pub fn is_alive(&self, timeout: Duration) -> bool {
        match (self.heartbeat_age(), self.life_lock_held) {
            (None, _) | (_, Some(false)) => false,
            (Some(age), _) if age > timeout => false,
            (Some(_), Some(true)) => true,
            (Some(age), None) => age <= PID_COUNTS_AFTER || process_exists(self.pid),
        }
    }

    /// In words, why [`Self::is_alive`] says no.
    pub(crate) fn why_dead(&self) -> String {
        let gone = if process_exists(self.pid) { "" } else { " and is gone" };
        match self.heartbeat_age() {
            None if self.heartbeat_ms == 0 => {
                format!("the media driver (pid {}) is still starting{gone}", self.pid)
            }
            None => format!("the media driver (pid {}) was shut down", self.pid),
            Some(_) if self.life_lock_held == Some(false) => {
                format!("the media driver (pid {}) was killed", self.pid)
            }
            Some(age) => format!(
                "the media driver (pid {}) showed no life for {:.1} s{gone}",
                self.pid,
                age.as_secs_f64()
            ),
        }
    }
}

fn life_lock_held(dir: &str) -> Option<bool> {
    let file = File::open(Path::new(dir).join(LIFE_LOCK_FILE)).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Some(false),
        Err(rustix::io::Errno::WOULDBLOCK) => Some(true),
        Err(_) => None,
    }
}

fn process_exists(pid: i64) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else {
        return false;
    };
    // SAFETY: signal 0 only asks whether the process exists.
    pid > 0
        && (unsafe { libc::kill(pid, 0) } == 0
            || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH))
}

/// One counter of a media driver, whoever owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterRecord {
    /// The counter's number, unique while it is allocated.
    pub counter_id: i32,
    /// What it counts, by Aeron's and our tables of type ids.
    pub type_id: i32,
    /// Its value.
    pub value: i64,
    /// The registration it belongs to.
    pub registration_id: i64,
    /// The id of the client that owns it.
    pub owner_id: i64,
    /// Bytes that tell counters of one type apart.
    pub key: Vec<u8>,
    /// What people read.
    pub label: String,
}

/// The state of the media driver of a directory, dead or alive.
///
/// # Errors
/// [`Error::NoMediaDriver`] when the directory has no file of a media driver, or one that can't be read.
pub fn driver_status(dir: &str) -> Result<DriverStatus, Error> {
    CncFile::open(dir)?.status()
}

/// Whether this process may be a client: clients write requests and counters into the file.
///
/// # Errors
/// [`Error::NoMediaDriver`] or [`Error::NotPermitted`] when not. The C library would look again and again until its time-out instead.
pub(crate) fn check_writable(dir: &str) -> Result<(), Error> {
    let opened = OpenOptions::new().read(true).write(true).open(Path::new(dir).join(CNC_FILE));
    match opened {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == ErrorKind::PermissionDenied => Err(not_permitted(dir, &e)),
        Err(e) => Err(Error::NoMediaDriver {
            dir: dir.to_owned(),
            reason: format!("its {CNC_FILE} can't be written to: {e}"),
        }),
    }
}

fn not_permitted(dir: &str, error: &io::Error) -> Error {
    Error::NotPermitted { dir: dir.to_owned(), reason: format!("{CNC_FILE}: {error}") }
}

/// All counters of the media driver of a directory.
///
/// # Errors
/// [`Error::NoMediaDriver`] as for [`driver_status`]. A dead driver's last values are given.
pub fn read_counters(dir: &str) -> Result<Vec<CounterRecord>, Error> {
    CncFile::open(dir)?.counters()
}

struct CncFile {
    file: File,
    dir: String,
    header: [u8; HEADER_BYTES as usize],
    /// Start of the counters' metadata, their length, and the start of the values.
    metadata_start: u64,
    metadata_bytes: u64,
    values_start: u64,
}

fn i32_at(bytes: &[u8], offset: usize) -> i32 {
    i32::from_ne_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

fn i64_at(bytes: &[u8], offset: usize) -> i64 {
    i64::from_ne_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}

impl CncFile {
    fn open(dir: &str) -> Result<Self, Error> {
        let absent = |reason: String| Error::NoMediaDriver { dir: dir.to_owned(), reason };
        let path = Path::new(dir).join(CNC_FILE);
        let describe = |e: io::Error| match e.kind() {
            ErrorKind::NotFound if Path::new(dir).exists() => absent(format!("it has no {CNC_FILE}")),
            ErrorKind::NotFound => absent("there is no such directory".to_owned()),
            ErrorKind::PermissionDenied => not_permitted(dir, &e),
            ErrorKind::UnexpectedEof => absent(format!("its {CNC_FILE} is too short")),
            _ => absent(format!("{}: {e}", path.display())),
        };
        let file = File::open(&path).map_err(describe)?;
        let found = file.metadata().map_err(describe)?;
        if !found.is_file() {
            return Err(absent(format!("its {CNC_FILE} is not a regular file")));
        }
        let mut header = [0; HEADER_BYTES as usize];
        file.read_exact_at(&mut header, 0).map_err(describe)?;

        let version = i32_at(&header, 0);
        if version == 0 {
            return Err(absent("the media driver is still starting".to_owned()));
        }
        if (version >> 16) & 0xff != SUPPORTED_MAJOR {
            return Err(absent(format!("its {CNC_FILE} has the unknown version {version:#x}")));
        }
        let lengths: Vec<u64> =
            (1..6).filter_map(|field| u64::try_from(i32_at(&header, 4 * field)).ok()).collect();
        // The sum of five non-negative 32-bit lengths fits easily.
        if lengths.len() != 5
            || lengths[0] < RING_TRAILER_BYTES
            || HEADER_BYTES + lengths.iter().sum::<u64>() > found.len()
        {
            return Err(absent(format!("its {CNC_FILE} tells impossible lengths")));
        }
        let metadata_start = HEADER_BYTES + lengths[0] + lengths[1];
        Ok(Self {
            file,
            dir: dir.to_owned(),
            header,
            metadata_start,
            metadata_bytes: lengths[2],
            values_start: metadata_start + lengths[2],
        })
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> Result<(), Error> {
        self.file
            .read_exact_at(bytes, offset)
            .map_err(|e| Error::NoMediaDriver { dir: self.dir.clone(), reason: format!("{CNC_FILE}: {e}") })
    }

    fn status(&self) -> Result<DriverStatus, Error> {
        let ring_bytes = i32_at(&self.header, 4) as u64;
        let mut heartbeat = [0; 8];
        self.read(&mut heartbeat, HEADER_BYTES + ring_bytes - RING_TRAILER_BYTES + RING_HEARTBEAT_OFFSET)?;
        Ok(DriverStatus {
            client_liveness: Duration::from_nanos(i64_at(&self.header, 24).max(0) as u64),
            start_ms: i64_at(&self.header, 32),
            pid: i64_at(&self.header, 40),
            heartbeat_ms: i64::from_ne_bytes(heartbeat),
            life_lock_held: life_lock_held(&self.dir),
        })
    }

    fn counters(&self) -> Result<Vec<CounterRecord>, Error> {
        let mut records = Vec::new();
        let mut metadata = [0; METADATA_BYTES * COUNTERS_PER_READ];
        let mut values = [0; VALUE_BYTES * COUNTERS_PER_READ];
        let total = self.metadata_bytes as usize / METADATA_BYTES;
        for first in (0..total).step_by(COUNTERS_PER_READ) {
            let count = COUNTERS_PER_READ.min(total - first);
            self.read(
                &mut metadata[..METADATA_BYTES * count],
                self.metadata_start + (METADATA_BYTES * first) as u64,
            )?;
            self.read(&mut values[..VALUE_BYTES * count], self.values_start + (VALUE_BYTES * first) as u64)?;
            for (index, (meta, value)) in
                metadata.chunks(METADATA_BYTES).zip(values.chunks(VALUE_BYTES)).take(count).enumerate()
            {
                match i32_at(meta, 0) {
                    RECORD_ALLOCATED => records.push(parse_counter((first + index) as i32, meta, value)),
                    // Counters are given out from the front: behind the first that was never used is nothing.
                    RECORD_UNUSED => return Ok(records),
                    _ => {}
                }
            }
        }
        Ok(records)
    }
}

fn parse_counter(counter_id: i32, metadata: &[u8], value: &[u8]) -> CounterRecord {
    const KEY: std::ops::Range<usize> = 16..128;
    const LABEL: usize = 132;
    let label_bytes = (i32_at(metadata, 128).max(0) as usize).min(METADATA_BYTES - LABEL);
    CounterRecord {
        counter_id,
        type_id: i32_at(metadata, 4),
        value: i64_at(value, 0),
        registration_id: i64_at(value, 8),
        owner_id: i64_at(value, 16),
        key: metadata[KEY].to_vec(),
        label: String::from_utf8_lossy(&metadata[LABEL..LABEL + label_bytes]).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with the given bytes as `cnc.dat`, removed at the end of the test.
    struct Dir(std::path::PathBuf);

    impl Dir {
        fn with(name: &str, cnc: &[u8]) -> Self {
            let dir = std::env::temp_dir().join(format!("tp-cnc-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join(CNC_FILE), cnc).unwrap();
            Self(dir)
        }
        fn reason(&self) -> String {
            match driver_status(self.0.to_str().unwrap()) {
                Err(Error::NoMediaDriver { reason, .. }) => reason,
                other => panic!("expected no media driver, got {other:?}"),
            }
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn header(version: i32, lengths: [i32; 5]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES as usize];
        bytes[..4].copy_from_slice(&version.to_ne_bytes());
        for (field, length) in lengths.iter().enumerate() {
            bytes[4 * (field + 1)..4 * (field + 2)].copy_from_slice(&length.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn what_is_not_a_cnc_file_is_refused_with_a_reason() {
        assert_eq!(Dir::with("empty", b"").reason(), "its cnc.dat is too short");
        assert_eq!(Dir::with("zero", &[0; 4096]).reason(), "the media driver is still starting");
        let noise: Vec<u8> = (0..4096).map(|i| (i * 31 % 251) as u8).collect();
        assert!(Dir::with("noise", &noise).reason().starts_with("its cnc.dat has the unknown version"));
        let version = 0x0200;
        for lengths in [[-1, 0, 0, 0, 0], [100, 0, 0, 0, 0], [i32::MAX; 5], [1024, 0, 0, 0, 1]] {
            let mut bytes = header(version, lengths);
            bytes.resize(HEADER_BYTES as usize + 1024, 0);
            assert_eq!(
                Dir::with("lengths", &bytes).reason(),
                "its cnc.dat tells impossible lengths",
                "{lengths:?}"
            );
        }
        let nowhere = driver_status("/nonexistent/aeron");
        assert!(
            matches!(nowhere, Err(Error::NoMediaDriver { reason, .. }) if reason == "there is no such directory")
        );
    }

    #[test]
    fn counters_of_a_crafted_file_are_read_and_lying_label_lengths_bounded() {
        let (ring, counters) = (1024, 3);
        let mut bytes =
            header(0x0200, [ring, 0, METADATA_BYTES as i32 * counters, VALUE_BYTES as i32 * counters, 0]);
        let start = bytes.len() + ring as usize;
        bytes.resize(start + (METADATA_BYTES + VALUE_BYTES) * counters as usize, 0);
        let values = start + METADATA_BYTES * counters as usize;
        for (index, state) in [RECORD_ALLOCATED, -1, RECORD_ALLOCATED].into_iter().enumerate() {
            let meta = start + METADATA_BYTES * index;
            bytes[meta..meta + 4].copy_from_slice(&state.to_ne_bytes());
            bytes[meta + 4..meta + 8].copy_from_slice(&4000_i32.to_ne_bytes());
            bytes[meta + 128..meta + 132].copy_from_slice(&i32::MAX.to_ne_bytes());
            let value = values + VALUE_BYTES * index;
            bytes[value..value + 8].copy_from_slice(&(7 + index as i64).to_ne_bytes());
        }
        let dir = Dir::with("counters", &bytes);
        let found = read_counters(dir.0.to_str().unwrap()).unwrap();
        assert_eq!(found.iter().map(|c| (c.counter_id, c.value)).collect::<Vec<_>>(), [(0, 7), (2, 9)]);
        assert!(found.iter().all(|c| c.type_id == 4000 && c.label.len() == 380));
    }

    #[test]
    fn liveness_follows_the_heartbeat_and_later_the_process() {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
        let own = i64::from(std::process::id());
        let status = |pid, heartbeat_ms| DriverStatus {
            pid,
            start_ms: 0,
            heartbeat_ms,
            client_liveness: Duration::ZERO,
            life_lock_held: None,
        };
        let ten = Duration::from_secs(10);
        assert!(status(own, now_ms).is_alive(ten));
        assert!(status(own, now_ms - 5_000).is_alive(ten));
        assert!(!status(own, now_ms - 11_000).is_alive(ten));
        // No process has this number, yet a fresh heartbeat counts: it may live in another container.
        let nobody = i64::from(i32::MAX);
        assert!(status(nobody, now_ms).is_alive(ten));
        assert!(!status(nobody, now_ms - 5_000).is_alive(ten));
        assert!(!status(own, 0).is_alive(ten));
        assert!(!status(own, -1).is_alive(ten));
        assert!(status(own, now_ms + 60_000).is_alive(ten), "a clock that was set back is not a death");
        let ours =
            |held, heartbeat_ms| DriverStatus { life_lock_held: Some(held), ..status(nobody, heartbeat_ms) };
        assert!(!ours(false, now_ms).is_alive(ten), "a released lock shows the death at once");
        assert!(ours(true, now_ms - 5_000).is_alive(ten));
        assert!(
            !ours(true, now_ms - 11_000).is_alive(ten),
            "a forked child may hold the lock of a dead driver"
        );
    }
}
