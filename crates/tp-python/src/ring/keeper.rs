//! Showing that a ring is alive.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tp_aeron::OwnerProcess;

use super::address::{BaseDirPaths, RingAddress};
use super::check_owner;
use crate::border::{lock, released};
use crate::errors;

const WHAT: &str = "ring keeper";

/// Raises the activity time stamps of a ring's files.
#[pyclass(frozen, module = "tensor_pool._native")]
pub struct RingKeeper {
    /// None once closed.
    keeper: Mutex<Option<tp_core::ring::RingKeeper>>,
    owner: OwnerProcess,
    address: RingAddress,
}

#[pymethods]
impl RingKeeper {
    #[new]
    #[pyo3(signature = (address, *, base_dirs))]
    fn new(py: Python<'_>, address: &RingAddress, base_dirs: BaseDirPaths) -> PyResult<Self> {
        let open = || tp_core::ring::RingKeeper::open(&address.0, &base_dirs.open()?);
        let keeper = released(py, open).map_err(|failure| errors::region(py, &failure))?;
        let (keeper, owner) = (Mutex::new(Some(keeper)), OwnerProcess::current());
        Ok(Self { keeper, owner, address: address.clone() })
    }

    /// Says that the ring is alive now, without waking anybody.
    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        check_owner(py, self.owner, WHAT)?;
        let refreshed = lock(py, &self.keeper).as_ref().map(|keeper| keeper.refresh());
        let refreshed = refreshed.ok_or_else(|| errors::closed(py, WHAT))?;
        refreshed.map_err(|failure| errors::region(py, &failure))
    }

    #[getter]
    fn address(&self) -> RingAddress {
        self.address.clone()
    }

    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        !self.owner.is_current() || lock(py, &self.keeper).is_none()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        check_owner(py, self.owner, WHAT)?;
        let keeper = lock(py, &self.keeper).take();
        released(py, || drop(keeper));
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}
