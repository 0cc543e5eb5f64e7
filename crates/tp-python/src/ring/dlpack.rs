//! DLPack: frames as tensors of other libraries, without a copy.
//!
//! The structures are those of the DLPack 1.0 ABI. Read-only memory can only be marked in the versioned
//! form, so consumers that don't ask for it (`max_version=`) get a `BufferError` that says so.

use std::ffi::{CStr, c_void};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use tp_core::layout::MAX_DIMS;
use tp_core::tensor::{Dtype, Tensor};

const CPU: i32 = 1;
const FLAG_READ_ONLY: u64 = 1;
const NAME: &CStr = c"dltensor_versioned";

#[repr(C)]
struct DlVersion {
    major: u32,
    minor: u32,
}

#[repr(C)]
struct DlDevice {
    device_type: i32,
    device_id: i32,
}

#[repr(C)]
struct DlDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    ndim: i32,
    dtype: DlDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct DlManagedTensorVersioned {
    version: DlVersion,
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DlManagedTensorVersioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// What the consumer holds: the structure itself first, then what it points to.
#[repr(C)]
struct Export {
    managed: DlManagedTensorVersioned,
    shape: [i64; MAX_DIMS],
    strides: [i64; MAX_DIMS],
    owner: Py<PyAny>,
}

/// `(device type, device id)` of `__dlpack_device__`.
pub const DEVICE: (i32, i32) = (CPU, 0);

/// A capsule over `data`, which stays valid as long as `owner` lives.
pub fn capsule<'py>(
    owner: &Bound<'py, PyAny>,
    tensor: &Tensor,
    data: *mut u8,
    max_version: Option<(u32, u32)>,
) -> PyResult<Bound<'py, PyAny>> {
    if max_version.is_none_or(|(major, _)| major < 1) {
        return Err(PyBufferError::new_err(
            "frames are read-only, which only DLPack 1.0 and later can say: pass max_version=(1, 0), or copy() the frame",
        ));
    }
    let element = u64::from(tensor.dtype.element_bytes());
    if tensor.strides().iter().any(|stride| stride % element != 0) {
        return Err(PyBufferError::new_err(
            "DLPack counts strides in elements, and this tensor's are no multiple",
        ));
    }
    let (code, bits) = match tensor.dtype {
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => (0, element * 8),
        Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 | Dtype::Bytes | Dtype::Bit => (1, element * 8),
        Dtype::F32 | Dtype::F64 => (2, element * 8),
        Dtype::Boolean => (6, 8),
    };
    let ndim = tensor.shape().len();
    let mut export = Box::new(Export {
        managed: DlManagedTensorVersioned {
            version: DlVersion { major: 1, minor: 0 },
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(delete),
            flags: FLAG_READ_ONLY,
            tensor: DlTensor {
                data: data.cast(),
                device: DlDevice { device_type: CPU, device_id: 0 },
                ndim: ndim as i32,
                dtype: DlDataType { code, bits: bits as u8, lanes: 1 },
                shape: std::ptr::null_mut(),
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            },
        },
        shape: std::array::from_fn(|i| tensor.shape().get(i).map_or(0, |dim| i64::from(*dim))),
        strides: std::array::from_fn(|i| {
            tensor.strides().get(i).map_or(0, |stride| (stride / element) as i64)
        }),
        owner: owner.clone().unbind(),
    });
    export.managed.tensor.shape = export.shape.as_mut_ptr();
    export.managed.tensor.strides = export.strides.as_mut_ptr();
    let export = Box::into_raw(export);
    // SAFETY: the capsule owns the box until a consumer renames it; then the consumer calls the deleter.
    unsafe {
        let capsule = ffi::PyCapsule_New(export.cast(), NAME.as_ptr(), Some(forget));
        Bound::from_owned_ptr_or_err(owner.py(), capsule).inspect_err(|_| drop(Box::from_raw(export)))
    }
}

/// Called by the consumer when it is done.
unsafe extern "C" fn delete(managed: *mut DlManagedTensorVersioned) {
    // SAFETY: `managed` is the first field of the box made in `capsule`, and the consumer calls this once.
    let export = unsafe { Box::from_raw(managed.cast::<Export>()) };
    // The owner is a Python object, and the consumer may be on any thread, or later than the interpreter:
    // then there is nobody left to give it back to.
    let mut export = std::mem::ManuallyDrop::new(export);
    // SAFETY: dropped at most once, and not used afterwards.
    let _ = Python::try_attach(|_| unsafe { std::mem::ManuallyDrop::drop(&mut export) });
}

/// Called when the capsule dies: a capsule that nobody consumed still has its name.
unsafe extern "C" fn forget(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter gives a live capsule; the pointer is ours if the name is.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        }
    }
}
