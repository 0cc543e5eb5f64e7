use super::*;
use DropReason as Why;

fn row(dims: &[i32], strides: &[i32]) -> Result<Tensor, DropReason> {
    Tensor::new(Dtype::F32, MajorOrder::Row, ProgressUnit::None, dims, strides)
}

fn column(dims: &[i32], strides: &[i32]) -> Result<Tensor, DropReason> {
    Tensor::new(Dtype::F32, MajorOrder::Column, ProgressUnit::None, dims, strides)
}

fn encoded(tensor: &Tensor) -> [u8; TENSOR_HEADER_BYTES] {
    let mut bytes = [0xFF; TENSOR_HEADER_BYTES];
    tensor.encode(&mut bytes).unwrap();
    bytes
}

/// Sets a field of an encoded header.
fn with<T: crate::bytes::Little>(
    mut bytes: [u8; TENSOR_HEADER_BYTES],
    offset: usize,
    value: T,
) -> [u8; TENSOR_HEADER_BYTES] {
    put(&mut bytes, MESSAGE_HEADER_BYTES + offset, value);
    bytes
}

// req: WIRE-8.2-19
#[test]
fn strides_of_zero_are_inferred() {
    assert_eq!(row(&[4, 5], &[]).unwrap().strides(), &[20, 4]);
    assert_eq!(row(&[4, 5], &[0, 0]).unwrap().strides(), &[20, 4]);
    assert_eq!(column(&[4, 5], &[0, 0]).unwrap().strides(), &[4, 16]);
    assert_eq!(row(&[2, 3, 4], &[0, 32, 0]).unwrap().strides(), &[96, 32, 4]);
    assert_eq!(row(&[3, 0], &[]).unwrap().strides(), &[4, 4]);
}

// req: WIRE-8.2-20, WIRE-8.2-21, WIRE-8.2-22, WIRE-8.2-23
#[test]
fn overlap_and_wrong_order_are_refused() {
    for (dims, strides, reason) in [
        (&[4, 5][..], &[8, 4][..], Why::StrideOverlap),
        (&[4, 5], &[4, 20], Why::StrideOrder),
        (&[4, 5], &[19, 4], Why::StrideOverlap),
        (&[4, 5], &[20, 3], Why::StrideOverlap),
        (&[4, 5], &[-20, 4], Why::NegativeStride),
        (&[4, 5], &[20, -4], Why::NegativeStride),
        (&[-1, 5], &[20, 4], Why::NegativeDim),
        (&[2, 2, 2], &[8, 16, 4], Why::StrideOrder),
    ] {
        assert_eq!(row(dims, strides).unwrap_err(), reason, "{dims:?} {strides:?}");
    }
    assert_eq!(column(&[4, 5], &[20, 4]).unwrap_err(), Why::StrideOrder);
    assert_eq!(column(&[4, 5], &[4, 12]).unwrap_err(), Why::StrideOverlap);
}

#[test]
fn size_one_dimensions_count_for_neither() {
    for (dims, strides) in
        [(&[5, 1][..], &[4, 4][..]), (&[1, 5], &[4, 4]), (&[1, 1, 1], &[1, 1, 1]), (&[5, 1], &[4, 1 << 30])]
    {
        assert!(row(dims, strides).is_ok(), "{dims:?} {strides:?}");
        assert!(column(dims, strides).is_ok(), "{dims:?} {strides:?}");
    }
}

// req: WIRE-8.2-24
#[test]
fn padded_strides_are_kept() {
    let tensor = row(&[4, 5], &[32, 4]).unwrap();
    assert_eq!((tensor.extent_bytes(), tensor.is_contiguous()), (3 * 32 + 20, false));
    assert!(row(&[4, 5], &[20, 4]).unwrap().is_contiguous());
    assert!(column(&[4, 5], &[]).unwrap().is_contiguous());
}

// req: WIRE-8.2-12
#[test]
fn between_one_and_eight_dimensions() {
    assert_eq!(row(&[], &[]).unwrap_err(), Why::Ndims);
    assert_eq!(row(&[1; 9], &[]).unwrap_err(), Why::Ndims);
    assert_eq!(row(&[2; 8], &[]).unwrap().shape(), &[2; 8]);
}

#[test]
fn huge_dimensions_never_overflow() {
    let huge = row(&[i32::MAX; 8], &[i32::MAX; 8]);
    assert_eq!(huge.unwrap_err(), Why::StrideOverlap);
    let tensor = row(&[i32::MAX; 8], &[]).unwrap();
    assert_eq!(tensor.extent_bytes(), u64::MAX);
    assert_eq!(
        Tensor::decode(&with(encoded(&row(&[2], &[]).unwrap()), at::DIMS, i32::MAX), 8),
        Err(Why::ExtentBeyondValues)
    );
}

#[test]
fn an_empty_shape_must_still_be_addressable() {
    assert_eq!(row(&[i32::MAX, i32::MAX, i32::MAX, 0], &[]).unwrap_err(), Why::ExtentBeyondValues);
    assert!(row(&[i32::MAX, 2, 0], &[]).is_ok());
}

// req: WIRE-8.2-1, WIRE-8.2-17
#[test]
fn a_header_survives_the_round_trip_and_leaves_no_rest() {
    let wide = Tensor::new(Dtype::U16, MajorOrder::Column, ProgressUnit::Columns, &[3, 5, 7], &[]).unwrap();
    let bytes = encoded(&wide);
    assert_eq!(Tensor::decode(&bytes, 210).unwrap(), wide);
    assert_eq!(&bytes[..8], &[184, 0, 52, 0, 0x84, 0x03, 1, 0]);
    assert_eq!(bytes[8 + 5], 0, "padAlign follows ndims directly");
    let used = MESSAGE_HEADER_BYTES + at::DIMS + 12;
    assert!(bytes[used..MESSAGE_HEADER_BYTES + at::STRIDES].iter().all(|b| *b == 0));
    assert!(bytes[MESSAGE_HEADER_BYTES + at::STRIDES + 12..].iter().all(|b| *b == 0));
}

#[test]
fn strides_beyond_31_bits_survive_the_round_trip() {
    let rows = |dims: &[i32], strides: &[i32]| {
        Tensor::new(Dtype::F64, MajorOrder::Row, ProgressUnit::Rows, dims, strides).unwrap()
    };
    for tensor in [
        rows(&[1, 1 << 28], &[]),
        rows(&[1, 1, 1 << 28, 1], &[7, 0, 8, 8]),
        rows(&[1, 2, 1 << 27], &[0, 0x7FFF_FFF8, 8]),
        rows(&[1, i32::MAX, 0], &[64]),
    ] {
        assert_eq!(Tensor::decode(&encoded(&tensor), u32::MAX), Ok(tensor), "{tensor:?}");
    }
    let too_long = rows(&[1, 1 << 30], &[]);
    assert_eq!(too_long.encode(&mut [0; TENSOR_HEADER_BYTES]), Err(Why::ProgressStride));
}

// req: WIRE-8.3-13, WIRE-8.3-14, WIRE-8.3-15
#[test]
fn every_part_of_the_embedded_header_is_exact() {
    let good = encoded(&row(&[2], &[]).unwrap());
    for (offset, value) in [(0, 183u16), (0, 185), (2, 51), (4, 901), (6, 0), (6, 2), (6, 99)] {
        let mut bad = good;
        put(&mut bad, offset, value);
        assert_eq!(Tensor::decode(&bad, 8), Err(Why::EmbeddedHeader), "{offset} {value}");
    }
}

// req: WIRE-8.2-13, WIRE-8.2-14, WIRE-15.8-1, WIRE-15.20-1
#[test]
fn unknown_values_are_refused() {
    let good = encoded(&row(&[2], &[]).unwrap());
    for dtype in [0i16, 12, 15, -1, i16::MIN, i16::MAX] {
        assert_eq!(Tensor::decode(&with(good, at::DTYPE, dtype), 8), Err(Why::Dtype), "{dtype}");
    }
    for order in [0i16, 3, -1] {
        assert_eq!(Tensor::decode(&with(good, at::MAJOR_ORDER, order), 8), Err(Why::MajorOrder), "{order}");
    }
    for ndims in [0u8, 9, 255] {
        assert_eq!(Tensor::decode(&with(good, at::NDIMS, ndims), 8), Err(Why::Ndims), "{ndims}");
    }
    assert_eq!(Tensor::decode(&with(good, at::PROGRESS_UNIT, 3u8), 8), Err(Why::ProgressUnit));
}

// req: WIRE-8.2-18, WIRE-8.2-5
#[test]
fn unused_entries_and_padding_are_ignored() {
    let tensor = row(&[2, 3], &[]).unwrap();
    let mut bytes = encoded(&tensor);
    for i in 2..8 {
        bytes = with(with(bytes, at::DIMS + 4 * i, -7i32), at::STRIDES + 4 * i, i32::MIN);
    }
    bytes = with(bytes, at::PAD_ALIGN, 0xA5u8);
    bytes[MESSAGE_HEADER_BYTES + at::PAD..].fill(0x5A);
    assert_eq!(Tensor::decode(&bytes, 24).unwrap(), tensor);
}

#[test]
fn elements_must_lie_inside_the_values() {
    let tensor = row(&[4, 5], &[]).unwrap();
    assert_eq!(Tensor::decode(&encoded(&tensor), 79), Err(Why::ExtentBeyondValues));
    assert!(Tensor::decode(&encoded(&tensor), 80).is_ok());
    let empty = row(&[4, 0], &[]).unwrap();
    assert!(Tensor::decode(&encoded(&empty), 0).is_ok());
}

// req: WIRE-8.2-26, WIRE-8.2-27, WIRE-8.2-28, WIRE-10.2.2-7
#[test]
fn progress_strides_are_those_of_their_axis() {
    let rows = Tensor::new(Dtype::F32, MajorOrder::Row, ProgressUnit::Rows, &[4, 5], &[]).unwrap();
    let bytes = encoded(&rows);
    assert_eq!(get::<u32>(&bytes, MESSAGE_HEADER_BYTES + at::PROGRESS_STRIDE_BYTES), 20);
    for wrong in [0u32, 16, 4, 19, u32::MAX] {
        assert_eq!(
            Tensor::decode(&with(bytes, at::PROGRESS_STRIDE_BYTES, wrong), 80),
            Err(Why::ProgressStride),
            "{wrong}"
        );
    }
    let columns = Tensor::new(Dtype::F32, MajorOrder::Row, ProgressUnit::Columns, &[4, 5], &[]).unwrap();
    assert_eq!(columns.progress_stride_bytes(), 4);
    let one = Tensor::new(Dtype::F32, MajorOrder::Row, ProgressUnit::Columns, &[4], &[]);
    assert_eq!(one.unwrap_err(), Why::ProgressUnit);
}

// req: WIRE-15.8-2, WIRE-15.8-3
#[test]
fn numbers_of_the_registry_are_fixed() {
    let dtypes: Vec<i16> = Dtype::ALL.iter().map(|d| *d as i16).collect();
    assert_eq!(dtypes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14]);
    let sizes: Vec<u32> = Dtype::ALL.iter().map(|d| d.element_bytes()).collect();
    assert_eq!(sizes, [1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 1, 1, 1]);
}
