//! The few NumPy functions that the glue calls. Arrays over frames come from NumPy's C interface: asking its Python
//! functions for them costs as much as all the rest of a frame.
//!
//! NumPy is imported when the first reader or writer is made: not with the module, which must stay cheap, and
//! not with the first frame, which could be overwritten meanwhile.

use std::ffi::c_int;

use numpy::npyffi::{
    NPY_ARRAY_F_CONTIGUOUS, NPY_ARRAY_WRITEABLE, NPY_TYPES, NpyTypes, PY_ARRAY_API, PyArray_Check,
    PyArrayObject, get_type_object, npy_intp,
};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use tp_core::tensor::{Dtype, MajorOrder, Tensor};

use super::buffers::View;

fn numpy(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Ok(NUMPY.get_or_try_init(py, || py.import("numpy").map(Bound::unbind))?.bind(py))
}

/// Imports NumPy now.
pub fn load(py: Python<'_>) -> PyResult<()> {
    numpy(py).map(drop)
}

/// Is it one of NumPy's masked arrays? Their buffer shows what the mask hides.
pub fn is_masked(object: &Bound<'_, PyAny>) -> bool {
    let py = object.py();
    // SAFETY: NumPy's type lives as long as the interpreter; the object is alive.
    let is_subclass = unsafe {
        let array_type = get_type_object(py, NpyTypes::PyArray_Type);
        object.get_type_ptr() != array_type && PyArray_Check(py, object.as_ptr()) != 0
    };
    is_subclass && object.hasattr(intern!(py, "mask")).unwrap_or(false)
}

/// NumPy's name of an element type.
pub const fn dtype_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::U8 | Dtype::Bytes | Dtype::Bit => "uint8",
        Dtype::I8 => "int8",
        Dtype::U16 => "uint16",
        Dtype::I16 => "int16",
        Dtype::U32 => "uint32",
        Dtype::I32 => "int32",
        Dtype::U64 => "uint64",
        Dtype::I64 => "int64",
        Dtype::F32 => "float32",
        Dtype::F64 => "float64",
        Dtype::Boolean => "bool",
    }
}

const fn type_number(dtype: Dtype) -> NPY_TYPES {
    match dtype {
        Dtype::U8 | Dtype::Bytes | Dtype::Bit => NPY_TYPES::NPY_UBYTE,
        Dtype::I8 => NPY_TYPES::NPY_BYTE,
        Dtype::U16 => NPY_TYPES::NPY_USHORT,
        Dtype::I16 => NPY_TYPES::NPY_SHORT,
        Dtype::U32 => NPY_TYPES::NPY_UINT,
        Dtype::I32 => NPY_TYPES::NPY_INT,
        // Linux on 64 bits: `long` is what NumPy itself takes for these.
        Dtype::U64 => NPY_TYPES::NPY_ULONG,
        Dtype::I64 => NPY_TYPES::NPY_LONG,
        Dtype::F32 => NPY_TYPES::NPY_FLOAT,
        Dtype::F64 => NPY_TYPES::NPY_DOUBLE,
        Dtype::Boolean => NPY_TYPES::NPY_BOOL,
    }
}

/// An array over strides and an address, or of memory that NumPy takes for it.
///
/// # Safety
/// Where an address is given it is not null, there are as many strides as dimensions, and all elements can be used there
/// (read only, unless the flags say otherwise) as long as the array lives.
unsafe fn array<'py>(
    py: Python<'py>,
    dtype: Dtype,
    shape: &[isize],
    memory: Option<(&[isize], *mut u8)>,
    flags: c_int,
) -> PyResult<Bound<'py, PyAny>> {
    let (strides, data) =
        memory.map_or((std::ptr::null(), std::ptr::null_mut()), |(strides, data)| (strides.as_ptr(), data));
    // SAFETY: NumPy copies shape and strides, takes over the reference to the type, and finds out by itself what
    // else is true of the memory (contiguous, aligned).
    unsafe {
        let kind = PY_ARRAY_API.PyArray_DescrFromType(py, type_number(dtype) as c_int);
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            get_type_object(py, NpyTypes::PyArray_Type),
            kind,
            shape.len() as c_int,
            shape.as_ptr().cast_mut().cast::<npy_intp>(),
            strides.cast_mut().cast::<npy_intp>(),
            data.cast(),
            flags,
            std::ptr::null_mut(),
        );
        Bound::from_owned_ptr_or_err(py, array)
    }
}

/// An array over memory that `owner` keeps.
///
/// # Safety
/// `data` is not null, and a tensor with this view can be read there (written, if `writable`) as long as `owner` lives.
pub unsafe fn view<'py>(
    owner: Bound<'py, PyAny>,
    view: &View,
    data: *mut u8,
    writable: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = owner.py();
    let flags = if writable { NPY_ARRAY_WRITEABLE } else { 0 };
    // SAFETY: such a tensor lies there, as the caller promises.
    let array = unsafe { array(py, view.dtype(), view.shape(), Some((view.strides(), data)), flags)? };
    // SAFETY: an array that nobody else has yet; the reference to its owner becomes the array's.
    let failed = unsafe { PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), owner.into_ptr()) };
    if failed == 0 { Ok(array) } else { Err(PyErr::fetch(py)) }
}

/// Marks an array read-only.
pub fn make_read_only(array: &Bound<'_, PyAny>) {
    // SAFETY: looked at as an array only if it is one; the interpreter's lock is held.
    unsafe {
        if PyArray_Check(array.py(), array.as_ptr()) != 0 {
            (*array.as_ptr().cast::<PyArrayObject>()).fields.flags &= !NPY_ARRAY_WRITEABLE;
        }
    }
}

/// An array as `numpy.array` makes it of another one: of a type, and as a copy or not.
pub fn converted<'py>(
    array: Bound<'py, PyAny>,
    dtype: Option<Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    let options = PyDict::new(py);
    options.set_item("dtype", dtype)?;
    options.set_item("copy", copy)?;
    numpy(py)?.getattr("array")?.call((array,), Some(&options))
}

/// A new array that can hold a copy of a tensor's bytes, strides included.
pub fn empty_like<'py>(py: Python<'py>, tensor: &Tensor, like: &View) -> PyResult<EmptyArray<'py>> {
    let len = tensor.extent_bytes() as usize;
    if tensor.is_contiguous() {
        let (array, data) = empty(py, like.dtype(), like.shape(), tensor.order)?;
        return Ok(EmptyArray { array, data, len });
    }
    // With gaps the copy keeps them: one block of bytes and an array with the same strides over it.
    let (memory, data) = empty(py, Dtype::U8, &[len as isize], MajorOrder::Row)?;
    // SAFETY: the block is as long as the tensor reaches, and the array keeps it.
    let array = unsafe { view(memory, like, data, true)? };
    Ok(EmptyArray { array, data, len })
}

/// A new array that is contiguous, and where its values lie.
fn empty<'py>(
    py: Python<'py>,
    dtype: Dtype,
    shape: &[isize],
    order: MajorOrder,
) -> PyResult<(Bound<'py, PyAny>, *mut u8)> {
    let flags = if order == MajorOrder::Row { 0 } else { NPY_ARRAY_F_CONTIGUOUS };
    // SAFETY: the memory is NumPy's own, and what comes back is an array.
    unsafe {
        let array = array(py, dtype, shape, None, flags)?;
        let data = (*array.as_ptr().cast::<PyArrayObject>()).fields.data.cast();
        Ok((array, data))
    }
}

/// A new array that nobody else has yet, and the memory behind it.
pub struct EmptyArray<'py> {
    /// What to hand out.
    pub array: Bound<'py, PyAny>,
    data: *mut u8,
    len: usize,
}

impl EmptyArray<'_> {
    /// What to copy into.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the array's own memory, which is as long, and stays as long as the array does.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.len) }
    }
}
