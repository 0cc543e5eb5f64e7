//! Tensor headers: what a frame's bytes mean, checked before anybody believes it.

use crate::bytes::{get, put};
use crate::drops::DropReason;
use crate::layout::{CONTROL_SCHEMA_ID, MAX_DIMS, MESSAGE_HEADER_BYTES, SCHEMA_VERSION, tensor as at};

/// Bytes of an embedded tensor header: message header and block.
pub const TENSOR_HEADER_BYTES: usize = MESSAGE_HEADER_BYTES + at::BLOCK_LENGTH;

macro_rules! wire_enum {
    ($(#[$doc:meta])* $name:ident: $int:ty { $($(#[$vdoc:meta])* $variant:ident = $value:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr($int)]
        pub enum $name { $($(#[$vdoc])* $variant = $value,)* }

        impl $name {
            /// All values that can be used.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The value with this number on the wire.
            pub const fn from_wire(number: $int) -> Option<Self> {
                match number { $($value => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

wire_enum! {
    /// Scalar type of the elements. `UNKNOWN` (0) has no place here: such frames are dropped (decision B15).
    Dtype: i16 {
        /// `uint8`
        U8 = 1, /// `int8`
        I8 = 2, /// `uint16`
        U16 = 3, /// `int16`
        I16 = 4, /// `uint32`
        U32 = 5, /// `int32`
        I32 = 6, /// `uint64`
        U64 = 7, /// `int64`
        I64 = 8, /// `float32`
        F32 = 9, /// `float64`
        F64 = 10, /// One byte an element, 0 or 1.
        Boolean = 11, /// Opaque bytes.
        Bytes = 13, /// One byte an element, 0 or 1.
        Bit = 14,
    }
}

impl Dtype {
    /// Bytes of one element (decision B15).
    pub const fn element_bytes(self) -> u32 {
        match self {
            Self::U8 | Self::I8 | Self::Boolean | Self::Bytes | Self::Bit => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }
}

wire_enum! {
    /// Which dimension varies slowest in memory.
    MajorOrder: i16 {
        /// The first one, as in C.
        Row = 1,
        /// The last one, as in Fortran.
        Column = 2,
    }
}

wire_enum! {
    /// In which steps a frame fills up.
    ProgressUnit: u8 {
        /// Bytes only.
        None = 0,
        /// Steps along dimension 0 (decision M6).
        Rows = 1,
        /// Steps along dimension 1 (decision M6).
        Columns = 2,
    }
}

/// A checked layout: every dimension is non-negative, every stride positive, nothing overlaps, all elements fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tensor {
    /// Element type.
    pub dtype: Dtype,
    /// Memory order.
    pub order: MajorOrder,
    /// Progress unit.
    pub progress_unit: ProgressUnit,
    ndims: u8,
    dims: [u32; MAX_DIMS],
    strides: [u64; MAX_DIMS],
}

impl Tensor {
    /// A tensor of shape `dims`; `strides` of 0 (or none at all) mean contiguous.
    ///
    /// ```
    /// use tp_core::tensor::*;
    /// let tensor = Tensor::new(Dtype::F32, MajorOrder::Row, ProgressUnit::None, &[4, 5], &[])?;
    /// assert_eq!(tensor.strides(), &[20, 4]);
    /// assert_eq!(tensor.extent_bytes(), 80);
    /// # Ok::<(), tp_core::drops::DropReason>(())
    /// ```
    pub fn new(
        dtype: Dtype,
        order: MajorOrder,
        progress_unit: ProgressUnit,
        dims: &[i32],
        strides: &[i32],
    ) -> Result<Self, DropReason> {
        if dims.is_empty() || dims.len() > MAX_DIMS || strides.len() > dims.len() {
            return Err(DropReason::Ndims);
        }
        let mut tensor =
            Self { dtype, order, progress_unit, ndims: dims.len() as u8, dims: [0; 8], strides: [0; 8] };
        for (to, dim) in tensor.dims.iter_mut().zip(dims) {
            *to = u32::try_from(*dim).map_err(|_| DropReason::NegativeDim)?;
        }
        for (to, stride) in tensor.strides.iter_mut().zip(strides) {
            *to = u64::try_from(*stride).map_err(|_| DropReason::NegativeStride)?;
        }
        tensor.resolve_strides()?;
        // Also without elements a shape must be one that somebody could address: NumPy and others multiply
        // the other dimensions.
        let mut sizes = tensor.shape().iter().map(|dim| i64::from((*dim).max(1)));
        let bytes = sizes.try_fold(i64::from(dtype.element_bytes()), i64::checked_mul);
        if tensor.shape().contains(&0) && bytes.is_none() {
            return Err(DropReason::ExtentBeyondValues);
        }
        if progress_unit == ProgressUnit::Columns && dims.len() < 2 {
            return Err(DropReason::ProgressUnit);
        }
        Ok(tensor)
    }

    /// Fills in strides of 0 and refuses overlap and wrong order, walking from the fastest dimension to
    /// the slowest. Size-1 dimensions count for neither (decision M4).
    fn resolve_strides(&mut self) -> Result<(), DropReason> {
        let element = u64::from(self.dtype.element_bytes());
        let empty = self.shape().contains(&0);
        // `next`: the contiguous stride of the coming dimension. `span`: bytes from the first to the end
        // of the last element of the dimensions walked so far.
        let (mut next, mut span, mut faster) = (element, element, 0);
        for k in 0..usize::from(self.ndims) {
            let i = if self.order == MajorOrder::Row { usize::from(self.ndims) - 1 - k } else { k };
            let dim = u64::from(self.dims[i]);
            if self.strides[i] == 0 {
                self.strides[i] = next;
            }
            let stride = self.strides[i];
            if dim > 1 && !empty {
                if stride < span {
                    return Err(if stride < faster {
                        DropReason::StrideOrder
                    } else {
                        DropReason::StrideOverlap
                    });
                }
                faster = stride;
                // Saturating: whatever exceeds 64 bits exceeds every payload too.
                span = span.saturating_add(stride.saturating_mul(dim - 1));
            }
            next = stride.saturating_mul(dim.max(1));
        }
        Ok(())
    }

    /// Shape.
    pub fn shape(&self) -> &[u32] {
        &self.dims[..usize::from(self.ndims)]
    }

    /// Strides in bytes, none of them 0.
    pub fn strides(&self) -> &[u64] {
        &self.strides[..usize::from(self.ndims)]
    }

    /// Bytes from the start to the end of the last element; 0 when there is none.
    pub fn extent_bytes(&self) -> u64 {
        if self.shape().contains(&0) {
            return 0;
        }
        let steps = self
            .shape()
            .iter()
            .zip(self.strides())
            .map(|(dim, stride)| stride.saturating_mul(u64::from(dim - 1)));
        steps.fold(u64::from(self.dtype.element_bytes()), u64::saturating_add)
    }

    /// Are the elements packed without gaps, in `order`?
    pub fn is_contiguous(&self) -> bool {
        let elements = self.shape().iter().try_fold(1u64, |n, dim| n.checked_mul(u64::from(*dim)));
        elements.and_then(|n| n.checked_mul(self.dtype.element_bytes().into())) == Some(self.extent_bytes())
    }

    /// The stride that `progress_unit` must report; 0 without one.
    pub fn progress_stride_bytes(&self) -> u64 {
        match self.progress_unit {
            ProgressUnit::None => 0,
            ProgressUnit::Rows => self.strides[0],
            ProgressUnit::Columns => self.strides[1],
        }
    }

    /// Writes message header and block, strides spelled out.
    ///
    /// A stride that doesn't fit the 31 bits it has there (of a size-1 dimension above 2 GiB of data, say) is
    /// written as 0, which readers infer back. Fails when the progress stride doesn't fit its 32 bits.
    pub fn encode(&self, out: &mut [u8; TENSOR_HEADER_BYTES]) -> Result<(), DropReason> {
        out.fill(0);
        for (i, value) in
            [at::BLOCK_LENGTH as u16, at::TEMPLATE_ID, CONTROL_SCHEMA_ID, SCHEMA_VERSION].iter().enumerate()
        {
            put(out, 2 * i, *value);
        }
        let block = &mut out[MESSAGE_HEADER_BYTES..];
        put(block, at::DTYPE, self.dtype as i16);
        put(block, at::MAJOR_ORDER, self.order as i16);
        put(block, at::NDIMS, self.ndims);
        put(block, at::PROGRESS_UNIT, self.progress_unit as u8);
        let progress = u32::try_from(self.progress_stride_bytes()).map_err(|_| DropReason::ProgressStride)?;
        put(block, at::PROGRESS_STRIDE_BYTES, progress);
        for (i, (dim, stride)) in self.shape().iter().zip(self.strides()).enumerate() {
            put(block, at::DIMS + 4 * i, *dim as i32);
            // Only an inferred stride can be that long, so 0 says the same.
            put(block, at::STRIDES + 4 * i, i32::try_from(*stride).unwrap_or(0));
        }
        Ok(())
    }

    /// Reads and checks message header and block of a payload of `values_len_bytes`.
    pub fn decode(bytes: &[u8; TENSOR_HEADER_BYTES], values_len_bytes: u32) -> Result<Self, DropReason> {
        let head: [u16; 4] = std::array::from_fn(|i| get(bytes, 2 * i));
        if head != [at::BLOCK_LENGTH as u16, at::TEMPLATE_ID, CONTROL_SCHEMA_ID, SCHEMA_VERSION] {
            return Err(DropReason::EmbeddedHeader);
        }
        let block = &bytes[MESSAGE_HEADER_BYTES..];
        let dtype = Dtype::from_wire(get(block, at::DTYPE)).ok_or(DropReason::Dtype)?;
        let order = MajorOrder::from_wire(get(block, at::MAJOR_ORDER)).ok_or(DropReason::MajorOrder)?;
        let ndims = usize::from(get::<u8>(block, at::NDIMS));
        if !(1..=MAX_DIMS).contains(&ndims) {
            return Err(DropReason::Ndims);
        }
        let unit = ProgressUnit::from_wire(get(block, at::PROGRESS_UNIT)).ok_or(DropReason::ProgressUnit)?;
        // Entries at `ndims` and above are not looked at [WIRE-8.2-18].
        let dims: [i32; MAX_DIMS] = std::array::from_fn(|i| get(block, at::DIMS + 4 * i));
        let strides: [i32; MAX_DIMS] = std::array::from_fn(|i| get(block, at::STRIDES + 4 * i));
        let tensor = Self::new(dtype, order, unit, &dims[..ndims], &strides[..ndims])?;
        if tensor.extent_bytes() > u64::from(values_len_bytes) {
            return Err(DropReason::ExtentBeyondValues);
        }
        let reported: u32 = get(block, at::PROGRESS_STRIDE_BYTES);
        if unit != ProgressUnit::None
            && (reported == 0 || u64::from(reported) != tensor.progress_stride_bytes())
        {
            return Err(DropReason::ProgressStride);
        }
        Ok(tensor)
    }
}

#[cfg(test)]
#[path = "tensor_tests.rs"]
mod tests;
