//! Strides and extents against an oracle that visits every element.

use proptest::prelude::*;
use proptest::sample::select;
use tp_core::drops::DropReason;
use tp_core::tensor::{Dtype, MajorOrder, ProgressUnit, TENSOR_HEADER_BYTES, Tensor};

/// A shape and strides near the border between right and wrong.
#[derive(Debug, Clone)]
pub struct Shape {
    pub dtype: Dtype,
    pub order: MajorOrder,
    pub dims: Vec<i32>,
    pub strides: Vec<i32>,
}

impl Shape {
    pub fn tensor(&self, unit: ProgressUnit) -> Result<Tensor, DropReason> {
        Tensor::new(self.dtype, self.order, unit, &self.dims, &self.strides)
    }

    fn element(&self) -> i64 {
        self.dtype.element_bytes().into()
    }

    /// Offsets of all elements in the order in which memory should hold them.
    fn offsets(&self, strides: &[i64]) -> Vec<i64> {
        let mut slowest_first: Vec<usize> = (0..self.dims.len()).collect();
        if self.order == MajorOrder::Column {
            slowest_first.reverse();
        }
        slowest_first.into_iter().fold(vec![0], |outer, axis| {
            let steps = 0..i64::from(self.dims[axis]);
            outer.iter().flat_map(|base| steps.clone().map(move |i| base + i * strides[axis])).collect()
        })
    }
}

/// Small shapes; each stride is what the faster dimensions need, and a few bytes more or one too few.
pub fn shapes() -> impl Strategy<Value = Shape> {
    let axes = prop::collection::vec((0..=4i32, -1..=6i64), 1..=4);
    (select(Dtype::ALL), select(MajorOrder::ALL), axes).prop_map(|(dtype, order, axes)| {
        let mut strides = vec![0; axes.len()];
        let mut span = i64::from(dtype.element_bytes());
        for k in 0..axes.len() {
            let axis = if order == MajorOrder::Row { axes.len() - 1 - k } else { k };
            let (dim, slack) = axes[axis];
            let stride = (span + slack).max(1);
            strides[axis] = stride as i32;
            span += i64::from(dim - 1).max(0) * stride;
        }
        Shape { dtype, order, dims: axes.iter().map(|(dim, _)| *dim).collect(), strides }
    })
}

pub fn units() -> impl Strategy<Value = ProgressUnit> {
    select(ProgressUnit::ALL)
}

proptest! {
    // req: WIRE-8.2-21, WIRE-8.2-22, WIRE-8.2-23
    #[test]
    fn a_layout_is_accepted_when_its_elements_follow_each_other_without_overlap(shape in shapes()) {
        let strides: Vec<i64> = shape.strides.iter().map(|s| i64::from(*s)).collect();
        let offsets = shape.offsets(&strides);
        let in_order = offsets.windows(2).all(|pair| pair[1] >= pair[0] + shape.element());
        let tensor = shape.tensor(ProgressUnit::None);
        prop_assert_eq!(tensor.is_ok(), in_order, "{:?}", tensor);
        if let Ok(tensor) = tensor {
            let end = offsets.last().map_or(0, |last| last + shape.element());
            prop_assert_eq!(tensor.extent_bytes() as i64, end);
            prop_assert_eq!(tensor.is_contiguous(), end == offsets.len() as i64 * shape.element());
        }
    }

    // req: WIRE-8.2-19, WIRE-8.2-25
    #[test]
    fn inferred_strides_pack_the_elements(shape in shapes(), given in any::<bool>()) {
        let zeros = vec![0; if given { shape.dims.len() } else { 0 }];
        let shape = Shape { strides: zeros, ..shape };
        let tensor = shape.tensor(ProgressUnit::None).unwrap();
        let strides: Vec<i64> = tensor.strides().iter().map(|s| *s as i64).collect();
        let packed: Vec<i64> = (0..).step_by(shape.element() as usize).take(shape.offsets(&strides).len()).collect();
        prop_assert_eq!(shape.offsets(&strides), packed);
        prop_assert!(tensor.is_contiguous() && strides.iter().all(|stride| *stride > 0));
    }

    #[test]
    fn what_can_be_described_is_read_back(shape in shapes(), unit in units(), zeroed in prop::collection::vec(any::<bool>(), 4)) {
        let strides = shape.strides.iter().zip(zeroed).map(|(stride, zero)| if zero { 0 } else { *stride }).collect();
        let Ok(tensor) = (Shape { strides, ..shape }).tensor(unit) else { return Ok(()) };
        let mut bytes = [0xFF; TENSOR_HEADER_BYTES];
        tensor.encode(&mut bytes).unwrap();
        let extent = tensor.extent_bytes() as u32;
        prop_assert_eq!(Tensor::decode(&bytes, extent), Ok(tensor));
        if let Some(short) = extent.checked_sub(1) {
            prop_assert_eq!(Tensor::decode(&bytes, short), Err(DropReason::ExtentBeyondValues));
        }
    }
}
