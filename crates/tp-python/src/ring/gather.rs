//! Packing arrays with gaps, transposed or reversed axes.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use pyo3::buffer::PyUntypedBuffer;
use tp_core::copy::{Locality, racy_copy};

/// Below this many bytes a loop is quicker than a copy, which has to fence.
const SHORT_RUN: usize = 32;

/// The elements of `buffer` in row-major order.
///
/// The source may be a view of shared memory that somebody writes to, so it is read with racy copies and
/// relaxed loads only.
pub fn gather(buffer: &PyUntypedBuffer) -> Vec<u8> {
    let (dims, strides) = (buffer.shape(), buffer.strides());
    let mut source = Source { dims, strides, item: buffer.item_size(), run: 0, out: Vec::new() };
    // Axes from the last one on that lie packed are copied as one run.
    let (mut axes, mut packed) = (dims.len(), source.item);
    while axes > 0 && strides[axes - 1] == packed as isize {
        axes -= 1;
        packed *= dims[axes];
    }
    source.run = packed;
    let len = source.item * dims.iter().product::<usize>();
    source.out.reserve_exact(len);
    if len > 0 {
        source.walk(0, axes, buffer.buf_ptr().cast::<u8>().cast_const());
    }
    source.out
}

struct Source<'a> {
    dims: &'a [usize],
    strides: &'a [isize],
    item: usize,
    /// Bytes that lie packed behind the last axis walked.
    run: usize,
    out: Vec<u8>,
}

impl Source<'_> {
    /// Walks the axes from `axis` up to `axes`; every address formed lies inside the buffer by the promise of
    /// the buffer protocol on shape and strides.
    fn walk(&mut self, axis: usize, axes: usize, from: *const u8) {
        if axis == axes {
            return self.take_run(from);
        }
        let (dim, stride) = (self.dims[axis], self.strides[axis]);
        if axis + 1 == axes && self.run == self.item {
            return self.take_elements(from, dim, stride);
        }
        for i in 0..dim {
            // SAFETY: see above.
            self.walk(axis + 1, axes, unsafe { from.offset(i as isize * stride) });
        }
    }

    fn take_run(&mut self, from: *const u8) {
        if self.run < SHORT_RUN {
            // SAFETY: the run lies inside the buffer; a byte is always aligned.
            let byte = |i| unsafe { AtomicU8::from_ptr(from.add(i).cast_mut()).load(Relaxed) };
            self.out.extend((0..self.run).map(byte));
            return;
        }
        let at = self.out.len();
        // SAFETY: the capacity was reserved for all elements, and the run lies inside the buffer.
        unsafe {
            racy_copy(self.out.as_mut_ptr().add(at), from, self.run, Locality::for_read(self.run));
            self.out.set_len(at + self.run);
        }
    }

    fn take_elements(&mut self, from: *const u8, dim: usize, stride: isize) {
        macro_rules! each {
            ($atomic:ty) => {
                for i in 0..dim {
                    // SAFETY: inside the buffer (see `walk`) and aligned (checked below).
                    let value = unsafe {
                        let at = from.offset(i as isize * stride).cast_mut().cast();
                        <$atomic>::from_ptr(at).load(Relaxed)
                    };
                    self.out.extend_from_slice(&value.to_ne_bytes());
                }
            };
        }
        let aligned = (from.addr() | stride.unsigned_abs()) % self.item == 0;
        match self.item {
            1 => each!(AtomicU8),
            2 if aligned => each!(AtomicU16),
            4 if aligned => each!(AtomicU32),
            8 if aligned => each!(AtomicU64),
            _ => {
                for i in 0..dim {
                    self.take_run_at(from, i, stride);
                }
            }
        }
    }

    fn take_run_at(&mut self, from: *const u8, i: usize, stride: isize) {
        // SAFETY: see `walk`.
        self.take_run(unsafe { from.offset(i as isize * stride) });
    }
}
