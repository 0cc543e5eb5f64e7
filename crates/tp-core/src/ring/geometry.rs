//! What a ring is made of, and its files as a set.

use std::path::Path;

use crate::layout::{MAX_NSLOTS, valid_nslots, valid_stride};
use crate::region::{
    Access, BaseDirs, CreateOptions, Mapping, RegionError, RegionFile, RegionKind, Superblock, create_region,
};
use crate::uri::RegionUri;

/// More pools than anybody needs; a bound against announces that lie.
pub const MAX_POOLS: usize = 256;

/// One payload pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pool {
    /// Its id, unique in the ring.
    pub pool_id: u16,
    /// Bytes from one slot to the next.
    pub stride_bytes: u32,
}

/// The numbers of a ring.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Pool stream.
    pub stream_id: u32,
    /// Epoch.
    pub epoch: u64,
    /// Slots of the header ring and of every pool [WIRE-9-6].
    pub nslots: u32,
    /// Pools, in the order announced.
    pub pools: Vec<Pool>,
}

impl Geometry {
    /// Refuses numbers that make no ring. `relaxed_stride` takes any multiple of 64 (decision M12).
    pub fn check(&self, relaxed_stride: bool) -> Result<(), RegionError> {
        let refuse = |text: String| Err(RegionError::Geometry(text));
        if !valid_nslots(self.nslots) {
            return refuse(format!("{} slots, not a power of two up to {MAX_NSLOTS}", self.nslots));
        }
        if self.pools.is_empty() || self.pools.len() > MAX_POOLS {
            return refuse(format!("{} payload pools, not 1 to {MAX_POOLS}", self.pools.len()));
        }
        for (i, pool) in self.pools.iter().enumerate() {
            if !valid_stride(pool.stride_bytes, relaxed_stride) {
                return refuse(format!(
                    "pool {} has a stride of {} bytes, not 64 times a power of two",
                    pool.pool_id, pool.stride_bytes
                ));
            }
            if self.pools[..i].iter().any(|other| other.pool_id == pool.pool_id) {
                return refuse(format!("pool {} is there twice", pool.pool_id));
            }
        }
        Ok(())
    }

    /// The smallest pool that holds `bytes` [WIRE-9-3].
    #[inline]
    pub fn pool_for(&self, bytes: u32) -> Option<usize> {
        let fitting = self.pools.iter().enumerate().filter(|(_, pool)| pool.stride_bytes >= bytes);
        fitting.min_by_key(|(_, pool)| pool.stride_bytes).map(|(i, _)| i)
    }

    fn superblock(&self, kind: RegionKind) -> Superblock {
        Superblock { stream_id: self.stream_id, epoch: self.epoch, kind, nslots: self.nslots }
    }

    fn pool_kinds(&self) -> impl Iterator<Item = RegionKind> {
        self.pools
            .iter()
            .map(|pool| RegionKind::PayloadPool { pool_id: pool.pool_id, stride_bytes: pool.stride_bytes })
    }
}

/// A ring as it is announced: its numbers and where its files are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RingAddress {
    /// The numbers.
    pub geometry: Geometry,
    /// URI of the header ring.
    pub header_uri: String,
    /// URIs of the pools, in the order of `geometry.pools`.
    pub pool_uris: Vec<String>,
}

/// The files of a ring, all of them checked: one bad region and none is used [WIRE-15.22-19].
#[derive(Debug)]
pub struct RingFiles {
    /// Its numbers.
    pub geometry: Geometry,
    /// The header ring.
    pub header: RegionFile,
    /// The pools.
    pub pools: Vec<RegionFile>,
}

impl RingFiles {
    /// Opens and checks everything; maps nothing.
    pub fn open(
        address: &RingAddress,
        bases: &BaseDirs,
        access: Access,
        relaxed_stride: bool,
    ) -> Result<Self, RegionError> {
        let geometry = address.geometry.clone();
        geometry.check(relaxed_stride)?;
        if address.pool_uris.len() != geometry.pools.len() {
            let counts = format!("{} pool URIs for {} pools", address.pool_uris.len(), geometry.pools.len());
            return Err(RegionError::Geometry(counts));
        }
        let open = |uri: &str, kind| RegionFile::open(uri, geometry.superblock(kind), bases, access);
        let header = open(&address.header_uri, RegionKind::HeaderRing)?;
        let pools = address.pool_uris.iter().zip(geometry.pool_kinds()).map(|(uri, kind)| open(uri, kind));
        let pools = pools.collect::<Result<_, _>>()?;
        Ok(Self { header, pools, geometry })
    }

    /// Are all files still what was announced?
    pub fn check(&self) -> Result<(), RegionError> {
        std::iter::once(&self.header).chain(&self.pools).try_for_each(RegionFile::check)
    }

    /// Maps everything.
    pub(super) fn map(&self, access: Access) -> Result<(Mapping, Vec<Mapping>), RegionError> {
        let pools = self.pools.iter().map(|pool| pool.map(access)).collect::<Result<_, _>>()?;
        Ok((self.header.map(access)?, pools))
    }
}

/// Makes the files of a new ring in `dir`, which exists: the pools first, `header.ring` last.
///
/// Leaves nothing behind when it fails. The directory and its name are the caller's business.
pub fn create_ring(
    dir: &Path,
    geometry: Geometry,
    options: CreateOptions,
) -> Result<RingAddress, RegionError> {
    geometry.check(false)?;
    let mut made = Vec::new();
    let mut create = |name: String, kind| {
        let path = dir.join(name);
        create_region(&path, &geometry.superblock(kind), options)?;
        let text = path.display().to_string();
        made.push(path);
        RegionUri::format(&text, options.require_hugepages)
            .map_err(|source| RegionError::Uri { uri: text, source })
    };
    let pools = geometry.pool_kinds().zip(&geometry.pools);
    let pool_uris: Result<Vec<_>, _> =
        pools.map(|(kind, pool)| create(format!("{}.pool", pool.pool_id), kind)).collect();
    let uris = pool_uris.and_then(|pools| Ok((pools, create("header.ring".into(), RegionKind::HeaderRing)?)));
    match uris {
        Ok((pool_uris, header_uri)) => Ok(RingAddress { geometry, header_uri, pool_uris }),
        Err(error) => {
            for path in made {
                let _ = std::fs::remove_file(path);
            }
            Err(error)
        }
    }
}
