//! Where a ring is, and making one.

use std::path::PathBuf;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tp_core::region::{BaseDirs, CreateOptions, RegionError};
use tp_core::ring::{Geometry, Pool};

use crate::border::released;
use crate::errors;

/// A ring as it is announced.
#[pyclass(frozen, eq, hash, module = "tensor_pool._native")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RingAddress(pub tp_core::ring::RingAddress);

#[pymethods]
impl RingAddress {
    #[new]
    #[pyo3(signature = (*, stream_id, epoch, nslots, header_uri, pools))]
    fn new(
        stream_id: u32,
        epoch: u64,
        nslots: u32,
        header_uri: String,
        pools: Vec<(u16, u32, String)>,
    ) -> Self {
        let strides = pools
            .iter()
            .map(|(pool_id, stride_bytes, _)| Pool { pool_id: *pool_id, stride_bytes: *stride_bytes });
        let geometry = Geometry { stream_id, epoch, nslots, pools: strides.collect() };
        let pool_uris = pools.into_iter().map(|(_, _, uri)| uri).collect();
        Self(tp_core::ring::RingAddress { geometry, header_uri, pool_uris })
    }

    #[getter]
    fn stream_id(&self) -> u32 {
        self.0.geometry.stream_id
    }

    #[getter]
    fn epoch(&self) -> u64 {
        self.0.geometry.epoch
    }

    #[getter]
    fn nslots(&self) -> u32 {
        self.0.geometry.nslots
    }

    #[getter]
    fn header_uri(&self) -> &str {
        &self.0.header_uri
    }

    #[getter]
    fn pools(&self) -> Vec<(u16, u32, &str)> {
        let pools = self.0.geometry.pools.iter().zip(&self.0.pool_uris);
        pools.map(|(pool, uri)| (pool.pool_id, pool.stride_bytes, uri.as_str())).collect()
    }

    /// For pickling: processes hand addresses to each other.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<((), Bound<'py, PyDict>)> {
        let numbers = PyDict::new(py);
        numbers.set_item("stream_id", self.stream_id())?;
        numbers.set_item("epoch", self.epoch())?;
        numbers.set_item("nslots", self.nslots())?;
        numbers.set_item("header_uri", self.header_uri())?;
        numbers.set_item("pools", self.pools())?;
        Ok(((), numbers))
    }

    fn __repr__(&self) -> String {
        let g = &self.0.geometry;
        let strides: Vec<_> = g.pools.iter().map(|pool| pool.stride_bytes.to_string()).collect();
        let strides = strides.join(", ");
        format!(
            "RingAddress(stream {}, epoch {}, {} slots of {strides} bytes)",
            g.stream_id, g.epoch, g.nslots
        )
    }
}

/// The directories below which files may lie, as Python gives them.
pub struct BaseDirPaths(Vec<PathBuf>);

impl BaseDirPaths {
    /// Opens them.
    pub fn open(&self) -> Result<BaseDirs, RegionError> {
        BaseDirs::open(&self.0)
    }
}

impl<'py> FromPyObject<'_, 'py> for BaseDirPaths {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        // A string is a sequence of strings too, and one directory is an easy mistake.
        match given.extract::<PathBuf>() {
            Ok(one) => Err(PyTypeError::new_err(format!("base_dirs is one path; give a list: [{one:?}]"))),
            Err(_) => given.extract().map(Self),
        }
    }
}

/// Makes the files of a new ring in an existing directory.
#[pyfunction]
#[pyo3(signature = (directory, *, stream_id, epoch, nslots, pools, mode = 0o600, allocate = true, require_hugepages = false))]
#[expect(clippy::too_many_arguments, reason = "keyword-only in Python")]
pub fn create_ring(
    py: Python<'_>,
    directory: PathBuf,
    stream_id: u32,
    epoch: u64,
    nslots: u32,
    pools: Vec<(u16, u32)>,
    mode: u32,
    allocate: bool,
    require_hugepages: bool,
) -> PyResult<RingAddress> {
    let pools = pools.into_iter().map(|(pool_id, stride_bytes)| Pool { pool_id, stride_bytes }).collect();
    let geometry = Geometry { stream_id, epoch, nslots, pools };
    let options = CreateOptions { mode, allocate, require_hugepages };
    // Allocating gigabytes takes a while.
    released(py, || tp_core::ring::create_ring(&directory, geometry, options))
        .map(RingAddress)
        .map_err(|failure| errors::region(py, &failure))
}
