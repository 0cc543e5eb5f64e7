//! Python buffers: tensors that come in, views that go out.

use std::ffi::{CStr, c_int, c_void};

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use tp_core::layout::MAX_DIMS;
use tp_core::ring::{Claim, RingWriter};
use tp_core::tensor::{Dtype, MajorOrder, ProgressUnit, Tensor};

use super::{arrays, gather};
use crate::border::buffer_of;
use crate::errors;

/// `struct` codes of element types that the wire knows, in native byte order.
fn dtype_of(format: &CStr, item_bytes: usize) -> Option<Dtype> {
    let code = match format.to_bytes() {
        // Native order is little-endian here.
        [code] | [b'@' | b'=' | b'<', code] => *code,
        // One byte has no byte order.
        [b'>' | b'!' | b'|', code @ (b'B' | b'b' | b'?')] => *code,
        _ => return None,
    };
    Some(match (code, item_bytes) {
        (b'B' | b'c', 1) => Dtype::U8,
        (b'b', 1) => Dtype::I8,
        (b'?', 1) => Dtype::Boolean,
        (b'H', 2) => Dtype::U16,
        (b'h', 2) => Dtype::I16,
        (b'I' | b'L', 4) => Dtype::U32,
        (b'i' | b'l', 4) => Dtype::I32,
        (b'Q' | b'L' | b'N', 8) => Dtype::U64,
        (b'q' | b'l' | b'n', 8) => Dtype::I64,
        (b'f', 4) => Dtype::F32,
        (b'd', 8) => Dtype::F64,
        _ => return None,
    })
}

/// The `struct` code that elements appear as; opaque bytes and bits as plain bytes (decision B15).
pub const fn format_of(dtype: Dtype) -> &'static CStr {
    match dtype {
        Dtype::U8 | Dtype::Bytes | Dtype::Bit => c"B",
        Dtype::I8 => c"b",
        Dtype::U16 => c"H",
        Dtype::I16 => c"h",
        Dtype::U32 => c"I",
        Dtype::I32 => c"i",
        Dtype::U64 => c"Q",
        Dtype::I64 => c"q",
        Dtype::F32 => c"f",
        Dtype::F64 => c"d",
        Dtype::Boolean => c"?",
    }
}

/// A scalar's buffer has no shape, not even in a memoryview.
fn is_scalar(object: &Bound<'_, PyAny>) -> bool {
    let ndim = PyMemoryView::from(object).and_then(|view| view.getattr("ndim"));
    ndim.is_ok_and(|ndim| ndim.eq(0).unwrap_or(false))
}

/// A tensor in somebody's memory, and how it will lie in a slot.
pub struct Incoming {
    buffer: PyUntypedBuffer,
    /// What the slot's header says: contiguous, in the order that needs the least work.
    pub tensor: Tensor,
    /// Are the bytes already in that order?
    packed: bool,
}

// SAFETY: the buffer is only read, through raw pointers that stay valid until it is released with the GIL held.
unsafe impl Sync for Incoming {}

impl Incoming {
    /// Takes anything that supports the buffer protocol. `dtype` overrides what its elements mean, size kept.
    pub fn new(array: &Bound<'_, PyAny>, dtype: Option<Dtype>) -> PyResult<Self> {
        let py = array.py();
        let refuse = |what: String, hint: Option<&str>| errors::TENSOR_LAYOUT.new_err(py, what, hint);
        let reshape = "reshape it: 1 to 8 dimensions fit into a tensor header";
        let elements = "use a bool, integer or float type of up to 64 bits in native byte order, or view the bytes as uint8";
        if arrays::is_masked(array) {
            let hint = "publish array.filled(...), and the mask as a stream of its own if readers need it";
            return Err(refuse("a masked array would lose its mask".into(), Some(hint)));
        }
        let buffer = buffer_of(array).map_err(|failure| {
            if is_scalar(array) {
                refuse("0 dimensions".into(), Some(reshape))
            } else if failure.is_instance_of::<PyValueError>(py) {
                // NumPy has no buffer of dates, among others.
                refuse(
                    format!("the elements can't travel in a tensor header: {}", failure.value(py)),
                    Some(elements),
                )
            } else if failure.is_instance_of::<PyTypeError>(py) {
                let kind = array.get_type().name().map_or("?".to_owned(), |name| name.to_string());
                PyTypeError::new_err(format!("a {kind} has no buffer to copy from; try: numpy.asarray(...)"))
            } else {
                failure
            }
        })?;
        let item_bytes = buffer.item_size();
        let dtype = match (dtype_of(buffer.format(), item_bytes), dtype) {
            (_, Some(given)) if given.element_bytes() as usize == item_bytes => given,
            (_, Some(given)) => {
                let need = given.element_bytes();
                let name = arrays::dtype_name(given);
                let what = format!("dtype {name} has {need} bytes an element, the array {item_bytes}");
                return Err(refuse(what, Some("dtype says what the elements mean and keeps their size")));
            }
            (Some(natural), None) => natural,
            (None, None) => {
                let what = format!("elements of format {:?} ({item_bytes} bytes)", buffer.format());
                return Err(refuse(format!("{what} can't travel in a tensor header"), Some(elements)));
            }
        };
        if buffer.suboffsets().is_some() {
            return Err(refuse("buffers with suboffsets can't be copied".into(), None));
        }
        let dims = buffer.shape();
        if dims.is_empty() || dims.len() > MAX_DIMS {
            return Err(refuse(format!("{} dimensions", dims.len()), Some(reshape)));
        }
        let mut narrow = [0i32; MAX_DIMS];
        for (to, dim) in narrow.iter_mut().zip(dims) {
            *to = i32::try_from(*dim)
                .map_err(|_| refuse(format!("a dimension of {dim} is more than 31 bits can hold"), None))?;
        }
        let (row, column) = (buffer.is_c_contiguous(), buffer.is_fortran_contiguous());
        let order = if column && !row { MajorOrder::Column } else { MajorOrder::Row };
        let tensor = Tensor::new(dtype, order, ProgressUnit::None, &narrow[..dims.len()], &[])
            .map_err(|reason| errors::layout(py, reason, "the array"))?;
        Ok(Self { buffer, tensor, packed: row || column })
    }

    /// Bytes of the payload.
    pub fn len_bytes(&self) -> u64 {
        self.tensor.extent_bytes()
    }

    /// The elements in row-major order in memory of their own, unless they lie so already.
    ///
    /// Done before a slot is claimed: no reader loses a frame earlier than it must.
    pub fn pack(&self) -> Option<Vec<u8>> {
        (!self.packed).then(|| gather::gather(&self.buffer))
    }

    /// Copies the tensor, or what `pack` made of it, into a claim.
    pub fn copy_into(&self, writer: &mut RingWriter, claim: &Claim, packed: Option<&[u8]>) {
        let from = packed.map_or(self.buffer.buf_ptr().cast::<u8>().cast_const(), <[u8]>::as_ptr);
        // SAFETY: as many bytes were claimed as a contiguous buffer has, or as were packed.
        unsafe { writer.copy_all_raw(claim, from) }
    }
}

/// What a buffer export points to. Lives as long as the object that exports it.
#[derive(Debug)]
pub struct View {
    dtype: Dtype,
    format: &'static CStr,
    item_bytes: isize,
    ndim: usize,
    shape: [isize; MAX_DIMS],
    strides: [isize; MAX_DIMS],
    order: MajorOrder,
    contiguous: bool,
}

impl View {
    /// Of a tensor.
    pub fn of(tensor: &Tensor) -> Self {
        let ndim = tensor.shape().len();
        Self {
            dtype: tensor.dtype,
            format: format_of(tensor.dtype),
            item_bytes: tensor.dtype.element_bytes() as isize,
            ndim,
            shape: std::array::from_fn(|i| tensor.shape().get(i).map_or(0, |dim| *dim as isize)),
            strides: std::array::from_fn(|i| tensor.strides().get(i).map_or(0, |stride| *stride as isize)),
            order: tensor.order,
            contiguous: tensor.is_contiguous(),
        }
    }

    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Shape.
    pub fn shape(&self) -> &[isize] {
        &self.shape[..self.ndim]
    }

    /// Strides in bytes.
    pub fn strides(&self) -> &[isize] {
        &self.strides[..self.ndim]
    }

    fn is_packed(&self, order: MajorOrder) -> bool {
        // One dimension (or less than two real ones) is packed in both orders.
        let real = self.shape().iter().filter(|dim| **dim != 1).count();
        self.contiguous && (self.order == order || real < 2)
    }

    /// Fills in `view` for an export of `data` by `owner`.
    ///
    /// # Safety
    /// `view` comes from the interpreter; `data` and `self` stay valid as long as `owner` lives.
    pub unsafe fn export(
        &self,
        view: *mut ffi::Py_buffer,
        flags: c_int,
        data: *mut u8,
        readonly: bool,
        owner: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let refuse = |why: &'static str| Err(PyBufferError::new_err(why));
        let wants = |flag: c_int| flags & flag == flag;
        if view.is_null() {
            return refuse("no view to fill in");
        }
        // SAFETY: not null, and the interpreter's to be written.
        let view = unsafe { &mut *view };
        view.obj = std::ptr::null_mut();
        if readonly && wants(ffi::PyBUF_WRITABLE) {
            return refuse("frames are read-only; copy() one to change it");
        }
        let (row, column) = (self.is_packed(MajorOrder::Row), self.is_packed(MajorOrder::Column));
        let refused = wants(ffi::PyBUF_C_CONTIGUOUS) && !row
            || wants(ffi::PyBUF_F_CONTIGUOUS) && !column
            || wants(ffi::PyBUF_ANY_CONTIGUOUS) && !(row || column)
            || !wants(ffi::PyBUF_STRIDES) && !row;
        if refused {
            return refuse("the tensor does not lie in memory in the order asked for");
        }
        view.buf = data.cast::<c_void>();
        view.len = self.shape().iter().product::<isize>() * self.item_bytes;
        view.readonly = c_int::from(readonly);
        view.itemsize = self.item_bytes;
        view.ndim = self.ndim as c_int;
        let or_null =
            |flag, pointer: *const isize| if wants(flag) { pointer.cast_mut() } else { std::ptr::null_mut() };
        view.format =
            if wants(ffi::PyBUF_FORMAT) { self.format.as_ptr().cast_mut() } else { std::ptr::null_mut() };
        view.shape = or_null(ffi::PyBUF_ND, self.shape.as_ptr());
        view.strides = or_null(ffi::PyBUF_STRIDES, self.strides.as_ptr());
        view.suboffsets = std::ptr::null_mut();
        view.internal = std::ptr::null_mut();
        view.obj = owner.into_ptr();
        Ok(())
    }
}

/// A private, writable block of memory behind a Python object, for copies.
pub struct Target {
    buffer: PyUntypedBuffer,
}

impl Target {
    /// Takes a writable, contiguous buffer of at least `bytes`.
    pub fn new(out: &Bound<'_, PyAny>, bytes: usize) -> PyResult<Self> {
        let py = out.py();
        let buffer = buffer_of(out)?;
        let refuse = |what: String| Err(errors::TENSOR_LAYOUT.new_err(py, what, None));
        if buffer.readonly() {
            return refuse("the target of the copy is read-only".into());
        }
        if !buffer.is_c_contiguous() && !buffer.is_fortran_contiguous() {
            return refuse("the target of the copy is not contiguous".into());
        }
        if buffer.len_bytes() < bytes {
            let have = buffer.len_bytes();
            return refuse(format!("the target has {have} bytes, the frame's elements need {bytes}"));
        }
        Ok(Self { buffer })
    }

    /// Its bytes. Others with the same array in hand must leave them alone meanwhile.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: writable, as `new` has checked, and as long as it says.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.buf_ptr().cast(), self.buffer.len_bytes()) }
    }
}
