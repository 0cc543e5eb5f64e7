//! Rings as C sees them: numbers, URIs, directories.

use std::ffi::{c_char, c_int};
use std::path::Path;

use super::{Failure, Status, call, given, given_many, text};
use crate::region::{BaseDirs, CreateOptions};
use crate::ring::{Geometry, Pool, RingAddress, create_ring};
use crate::uri::RegionUri;

/// Leave the files sparse.
const CREATE_SPARSE: u32 = 1;
/// Refuse unless the directory is on hugetlbfs.
const CREATE_HUGEPAGES: u32 = 2;

/// `tp_pool`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CPool {
    /// Its id, at most 65535.
    pub pool_id: u32,
    /// Bytes from one slot to the next.
    pub stride_bytes: u32,
    /// URI of its file; not looked at when a ring is made.
    pub uri: *const c_char,
}

/// `tp_address`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CAddress {
    /// Pool stream.
    pub stream_id: u32,
    /// Number of slots.
    pub nslots: u32,
    /// Epoch.
    pub epoch: u64,
    /// URI of the header ring; not looked at when a ring is made.
    pub header_uri: *const c_char,
    /// The pools.
    pub pools: *const CPool,
    /// How many.
    pub npools: usize,
}

impl CAddress {
    unsafe fn pools(&self) -> Result<&[CPool], Failure> {
        // SAFETY: by the contract of the interface.
        unsafe { given_many(self.pools, self.npools, "pools") }
    }

    unsafe fn geometry(&self) -> Result<Geometry, Failure> {
        // SAFETY: by the contract of the interface.
        let pools = unsafe { self.pools() }?.iter().map(|pool| {
            let pool_id = u16::try_from(pool.pool_id)
                .map_err(|_| Failure::argument(format!("pool id {} is above 65535", pool.pool_id)))?;
            Ok(Pool { pool_id, stride_bytes: pool.stride_bytes })
        });
        let pools = pools.collect::<Result<_, Failure>>()?;
        Ok(Geometry { stream_id: self.stream_id, epoch: self.epoch, nslots: self.nslots, pools })
    }

    pub(super) unsafe fn address(&self) -> Result<RingAddress, Failure> {
        // SAFETY: by the contract of the interface.
        unsafe {
            let pool_uris = self.pools()?.iter().map(|pool| Ok(text(pool.uri, "pool uri")?.to_owned()));
            let pool_uris = pool_uris.collect::<Result<_, Failure>>()?;
            let header_uri = text(self.header_uri, "header_uri")?.to_owned();
            Ok(RingAddress { geometry: self.geometry()?, header_uri, pool_uris })
        }
    }
}

pub(super) unsafe fn base_dirs(dirs: *const *const c_char, count: usize) -> Result<BaseDirs, Failure> {
    // SAFETY: by the contract of the interface.
    let dirs = unsafe { given_many(dirs, count, "base_dirs") }?;
    // SAFETY: as above.
    let dirs = dirs.iter().map(|dir| unsafe { text(*dir, "base directory") });
    let dirs = dirs.collect::<Result<Vec<_>, Failure>>()?;
    Ok(BaseDirs::open(dirs)?)
}

/// Makes the files of a new ring.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_ring_create(
    directory: *const c_char,
    ring: *const CAddress,
    mode: u32,
    flags: u32,
) -> c_int {
    call(|| {
        if flags & !(CREATE_SPARSE | CREATE_HUGEPAGES) != 0 || mode > 0o777 {
            return Err(Failure::argument("unknown flags, or more than permission bits in mode"));
        }
        // SAFETY: by the contract of the interface.
        let (directory, geometry) =
            unsafe { (text(directory, "directory")?, given(ring, "ring")?.geometry()?) };
        let options = CreateOptions {
            mode: if mode == 0 { CreateOptions::default().mode } else { mode },
            allocate: flags & CREATE_SPARSE == 0,
            require_hugepages: flags & CREATE_HUGEPAGES != 0,
        };
        create_ring(Path::new(directory), geometry, options)?;
        Ok(Status::Ok)
    })
}

/// Writes the URI of a file that `tp_ring_create` makes; a negative `pool_id` names the header ring.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_ring_uri(
    directory: *const c_char,
    pool_id: i32,
    flags: u32,
    out: *mut c_char,
    out_bytes: usize,
) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        let directory = unsafe { text(directory, "directory") }?;
        if flags & !(CREATE_SPARSE | CREATE_HUGEPAGES) != 0 {
            return Err(Failure::argument(format!("unknown flags {flags:#x}")));
        }
        if pool_id > u16::MAX.into() {
            return Err(Failure::argument(format!("pool id {pool_id} is above 65535")));
        }
        let name = if pool_id < 0 { "header.ring".to_owned() } else { format!("{pool_id}.pool") };
        let path = Path::new(directory).join(name);
        let uri = RegionUri::format(&path.to_string_lossy(), flags & CREATE_HUGEPAGES != 0)?;
        if out.is_null() || out_bytes <= uri.len() {
            return Err(Failure::argument(format!("the URI needs {} bytes", uri.len() + 1)));
        }
        // SAFETY: `out` has more bytes than the text; the last one ends it.
        unsafe {
            out.cast::<u8>().copy_from_nonoverlapping(uri.as_ptr(), uri.len());
            out.add(uri.len()).write(0);
        }
        Ok(Status::Ok)
    })
}
