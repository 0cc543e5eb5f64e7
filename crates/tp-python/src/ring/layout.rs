//! What a claimed slot will hold: shape, element type and memory order, as programs name them.

use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyInt, PyTuple};
use tp_core::layout::MAX_DIMS;
use tp_core::tensor::{Dtype, MajorOrder, ProgressUnit, Tensor};

use super::buffers::View;
use crate::border::lock;
use crate::errors;

/// A tensor, and how Python sees it.
#[derive(Debug)]
pub struct Layout {
    /// What the slot's header says.
    pub tensor: Tensor,
    /// For arrays and buffers over it.
    pub view: View,
}

impl Layout {
    /// Of a contiguous tensor.
    pub fn new(
        py: Python<'_>,
        shape: &[i32],
        dtype: Dtype,
        order: MajorOrder,
        progress_unit: u8,
    ) -> PyResult<Self> {
        let unit = ProgressUnit::from_wire(progress_unit).ok_or_else(|| {
            errors::TENSOR_LAYOUT.new_err(py, format!("{progress_unit} is not a progress unit"), None)
        })?;
        let tensor = Tensor::new(dtype, order, unit, shape, &[])
            .map_err(|reason| errors::layout(py, reason, &format!("shape {shape:?}")))?;
        Ok(Self { view: View::of(&tensor), tensor })
    }

    /// The same, for a frame that reports its progress.
    pub fn with_progress_unit(&self, py: Python<'_>, progress_unit: u8) -> PyResult<Self> {
        let shape: Vec<i32> = self.tensor.shape().iter().map(|dim| *dim as i32).collect();
        Self::new(py, &shape, self.tensor.dtype, self.tensor.order, progress_unit)
    }
}

/// The layout that was asked for last: programs ask for the same one, frame after frame, and finding out what their
/// words mean takes longer than claiming the slot.
#[derive(Default)]
pub struct LastLayout(Mutex<Option<Arc<Asked>>>);

struct Asked {
    /// A tuple of numbers never changes.
    shape: Py<PyTuple>,
    dtype: Py<PyAny>,
    layout: Arc<Layout>,
}

impl Asked {
    /// Does that mean the same?
    fn is_for(&self, shape: &Bound<'_, PyAny>, dtype: &Bound<'_, PyAny>, order: MajorOrder) -> bool {
        self.dtype.is(dtype)
            && self.layout.tensor.order == order
            && (self.shape.is(shape) || self.has_shape(shape))
    }

    /// `array.shape` is another tuple each time.
    fn has_shape(&self, shape: &Bound<'_, PyAny>) -> bool {
        let dims = self.layout.tensor.shape();
        shape.cast_exact::<PyTuple>().is_ok_and(|tuple| {
            let is_dim = |(given, dim): (Borrowed<'_, '_, PyAny>, &_)| {
                given.is_exact_instance_of::<PyInt>() && given.extract().is_ok_and(|given: u32| given == *dim)
            };
            tuple.len() == dims.len() && tuple.iter_borrowed().zip(dims).all(is_dim)
        })
    }
}

impl LastLayout {
    /// The layout of `shape`, `dtype` and `order`.
    pub fn get(
        &self,
        shape: &Bound<'_, PyAny>,
        dtype: &Bound<'_, PyAny>,
        order: &str,
    ) -> PyResult<Arc<Layout>> {
        let py = shape.py();
        let order = parse_order(py, order)?;
        let last = lock(py, &self.0).clone();
        if let Some(last) = last.filter(|last| last.is_for(shape, dtype, order)) {
            return Ok(Arc::clone(&last.layout));
        }
        let layout = Arc::new(Layout::new(py, &parse_shape(shape)?, dtype_of(dtype)?, order, 0)?);
        if let Some(shape) = unchanging(shape) {
            let asked = Asked { shape, dtype: dtype.clone().unbind(), layout: Arc::clone(&layout) };
            let replaced = lock(py, &self.0).replace(Arc::new(asked));
            // Not under the lock: this may run Python code.
            drop(replaced);
        }
        Ok(layout)
    }
}

/// A tuple of plain integers.
fn unchanging(shape: &Bound<'_, PyAny>) -> Option<Py<PyTuple>> {
    let tuple = shape.cast_exact::<PyTuple>().ok()?;
    tuple.iter_borrowed().all(|dim| dim.is_exact_instance_of::<PyInt>()).then(|| tuple.clone().unbind())
}

/// An element type by whatever NumPy takes for one.
pub fn dtype_of(given: &Bound<'_, PyAny>) -> PyResult<Dtype> {
    static WIRE_DTYPE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = given.py();
    let wire_dtype = WIRE_DTYPE.import(py, "tensor_pool.datatypes", "wire_dtype")?;
    parse_dtype(py, wire_dtype.call1((given,))?.extract()?)
}

/// An element type by its number on the wire.
pub fn parse_dtype(py: Python<'_>, number: i16) -> PyResult<Dtype> {
    let unknown =
        || errors::TENSOR_LAYOUT.new_err(py, format!("{number} is not the number of a dtype"), None);
    Dtype::from_wire(number).ok_or_else(unknown)
}

/// A memory order by NumPy's letter.
pub fn parse_order(py: Python<'_>, order: &str) -> PyResult<MajorOrder> {
    match order {
        "C" => Ok(MajorOrder::Row),
        "F" => Ok(MajorOrder::Column),
        other => Err(errors::TENSOR_LAYOUT.new_err(
            py,
            format!("order {other:?} is neither \"C\" nor \"F\""),
            None,
        )),
    }
}

/// A shape: a sequence of numbers, or one number for one dimension.
pub fn parse_shape(shape: &Bound<'_, PyAny>) -> PyResult<Vec<i32>> {
    let refuse = |what: String| errors::TENSOR_LAYOUT.new_err(shape.py(), what, None);
    let dims: Vec<i64> =
        shape.extract().or_else(|_: PyErr| shape.extract().map(|dim| vec![dim])).map_err(|_: PyErr| {
            let given = shape.repr().map_or("?".to_owned(), |text| text.to_string());
            PyTypeError::new_err(format!("shape={given}: whole numbers of up to 31 bits, such as (480, 640)"))
        })?;
    if dims.len() > MAX_DIMS {
        return Err(refuse(format!("{} dimensions; at most {MAX_DIMS} fit", dims.len())));
    }
    let narrow: Result<Vec<i32>, _> = dims.iter().map(|dim| i32::try_from(*dim)).collect();
    narrow.map_err(|_| refuse(format!("shape {dims:?} does not fit 31 bits")))
}
