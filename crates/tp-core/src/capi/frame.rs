//! Frames as C sees them: tensors, headers, what a reader found.

use std::ffi::{c_int, c_void};

use super::{Failure, Status, call, given, given_many, put};
use crate::drops::DropReason;
use crate::layout::MAX_DIMS;
use crate::slot::{FrameHeader, FrameRecord};
use crate::tensor::{Dtype, MajorOrder, ProgressUnit, Tensor};

/// `tp_tensor`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CTensor {
    /// Element type, as on the wire.
    pub dtype: i32,
    /// Memory order, as on the wire.
    pub major_order: i32,
    /// Progress unit, as on the wire.
    pub progress_unit: i32,
    /// Number of dimensions, 1 to 8.
    pub ndims: u32,
    /// Shape.
    pub shape: [i64; MAX_DIMS],
    /// Strides in bytes; 0 means contiguous.
    pub strides: [i64; MAX_DIMS],
}

/// `tp_frame`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CFrame {
    /// What the bytes mean.
    pub tensor: CTensor,
    /// When the payload was captured.
    pub timestamp_ns: u64,
    /// Version of the metadata that applies.
    pub meta_version: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// `tp_info`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CInfo {
    /// Sequence number.
    pub seq: u64,
    /// The payload; null when it is empty.
    pub payload: *const c_void,
    /// Bytes of the payload.
    pub length: u64,
    /// What the producer says about it.
    pub frame: CFrame,
}

// The header promises these sizes, and the tests compare it with them.
const _: () = assert!(size_of::<CTensor>() == 144 && size_of::<CFrame>() == 160 && size_of::<CInfo>() == 184);

fn layout(reason: DropReason) -> Failure {
    Failure(Status::Layout, format!("the tensor can't be described: {}", reason.label()))
}

impl CTensor {
    pub(super) fn checked(&self) -> Result<Tensor, Failure> {
        let dtype = i16::try_from(self.dtype).ok().and_then(Dtype::from_wire);
        let order = i16::try_from(self.major_order).ok().and_then(MajorOrder::from_wire);
        let unit = u8::try_from(self.progress_unit).ok().and_then(ProgressUnit::from_wire);
        let ndims = self.ndims as usize;
        if ndims > MAX_DIMS {
            return Err(layout(DropReason::Ndims));
        }
        let narrow = |number: i64| i32::try_from(number).map_err(|_| layout(DropReason::ExtentBeyondValues));
        let (mut shape, mut strides) = ([0; MAX_DIMS], [0; MAX_DIMS]);
        for i in 0..ndims {
            // Where there is nothing to step over, any stride is as good as the inferred one.
            let stride =
                if self.shape[i] <= 1 && self.strides[i] > i32::MAX.into() { 0 } else { self.strides[i] };
            (shape[i], strides[i]) = (narrow(self.shape[i])?, narrow(stride)?);
        }
        Tensor::new(
            dtype.ok_or_else(|| layout(DropReason::Dtype))?,
            order.ok_or_else(|| layout(DropReason::MajorOrder))?,
            unit.ok_or_else(|| layout(DropReason::ProgressUnit))?,
            &shape[..ndims],
            &strides[..ndims],
        )
        .map_err(layout)
    }
}

impl From<&Tensor> for CTensor {
    fn from(tensor: &Tensor) -> Self {
        let (mut shape, mut strides) = ([0; MAX_DIMS], [0; MAX_DIMS]);
        for (i, (dim, stride)) in tensor.shape().iter().zip(tensor.strides()).enumerate() {
            shape[i] = i64::from(*dim);
            // Only a stride along which there is nothing to step can be longer.
            strides[i] = i64::try_from(*stride).unwrap_or(i64::MAX);
        }
        Self {
            dtype: tensor.dtype as i32,
            major_order: tensor.order as i32,
            progress_unit: tensor.progress_unit as i32,
            ndims: tensor.shape().len() as u32,
            shape,
            strides,
        }
    }
}

impl CFrame {
    pub(super) fn header(&self, length: u64) -> Result<FrameHeader, Failure> {
        if self.reserved != 0 {
            return Err(Failure::argument("reserved is not 0"));
        }
        let values_len_bytes = u32::try_from(length).map_err(|_| {
            Failure(Status::TooLarge, format!("{length} bytes are more than a frame can have"))
        })?;
        Ok(FrameHeader {
            tensor: self.tensor.checked()?,
            values_len_bytes,
            timestamp_ns: self.timestamp_ns,
            meta_version: self.meta_version,
        })
    }
}

impl CInfo {
    pub(super) fn new(record: &FrameRecord, payload: Option<*const u8>) -> Self {
        let header = &record.header;
        Self {
            seq: record.seq,
            payload: payload.map_or(std::ptr::null(), <*const u8>::cast),
            length: header.values_len_bytes.into(),
            frame: CFrame {
                tensor: (&header.tensor).into(),
                timestamp_ns: header.timestamp_ns,
                meta_version: header.meta_version,
                reserved: 0,
            },
        }
    }
}

/// Describes a contiguous, row-major tensor.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_tensor_contiguous(
    dtype: i32,
    ndims: u32,
    shape: *const i64,
    out: *mut CTensor,
) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        let dims = unsafe { given_many(shape, (ndims as usize).min(MAX_DIMS), "shape") }?;
        let order = MajorOrder::Row as i32;
        let mut tensor =
            CTensor { dtype, major_order: order, progress_unit: 0, ndims, shape: [0; 8], strides: [0; 8] };
        tensor.shape[..dims.len()].copy_from_slice(dims);
        tensor.checked()?;
        // SAFETY: by the contract of the interface.
        unsafe { put(out, tensor, "out") }?;
        Ok(Status::Ok)
    })
}

/// Bytes from the first to the end of the last element.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_tensor_extent(tensor: *const CTensor, out: *mut u64) -> c_int {
    call(|| {
        // SAFETY: by the contract of the interface.
        unsafe { put(out, given(tensor, "tensor")?.checked()?.extent_bytes(), "out") }?;
        Ok(Status::Ok)
    })
}
