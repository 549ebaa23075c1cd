// SPDX-License-Identifier: Apache-2.0
//! Matrix products. Source: zDNN API Reference 1.2.0, the function of the same name.

use std::ffi::c_void;

use crate::abi::Ztensor;
use crate::abi::status::Status;
use crate::call::operand::Operands;
use crate::call::{Lent, status_of};
use crate::wire::{self, operation::Operation as Arm};

/// zdnn_matmul_op.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_matmul_op(
    input_a: *const Ztensor,
    input_b: *const Ztensor,
    input_c: *const Ztensor,
    op_type: u32,
    output: *mut Ztensor,
) -> Status {
    let build = |operands: &mut Operands<'_>| unsafe {
        Arm::MatmulOp(wire::MatmulOp {
            input_a: operands.input(input_a),
            input_b: operands.input(input_b),
            input_c: operands.input(input_c),
            op_type: Some(op_type.cast_signed()),
            output: operands.output("output", output),
        })
    };
    unsafe { status_of("zdnn_matmul_op", Lent::default(), &build) }
}

/// zdnn_matmul_bcast_op.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_matmul_bcast_op(
    input_a: *const Ztensor,
    input_b: *const Ztensor,
    input_c: *const Ztensor,
    op_type: u32,
    output: *mut Ztensor,
) -> Status {
    let build = |operands: &mut Operands<'_>| unsafe {
        Arm::MatmulBcastOp(wire::MatmulBcastOp {
            input_a: operands.input(input_a),
            input_b: operands.input(input_b),
            input_c: operands.input(input_c),
            op_type: Some(op_type.cast_signed()),
            output: operands.output("output", output),
        })
    };
    unsafe { status_of("zdnn_matmul_bcast_op", Lent::default(), &build) }
}

/// zdnn_matmul_transpose_op.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_matmul_transpose_op(
    input_a: *const Ztensor,
    input_b: *const Ztensor,
    input_c: *const Ztensor,
    transpose_a: bool,
    transpose_b: bool,
    op_type: u32,
    output: *mut Ztensor,
) -> Status {
    let build = |operands: &mut Operands<'_>| unsafe {
        Arm::MatmulTransposeOp(wire::MatmulTransposeOp {
            input_a: operands.input(input_a),
            input_b: operands.input(input_b),
            input_c: operands.input(input_c),
            transpose_a: Some(transpose_a),
            transpose_b: Some(transpose_b),
            op_type: Some(op_type.cast_signed()),
            output: operands.output("output", output),
        })
    };
    unsafe { status_of("zdnn_matmul_transpose_op", Lent::default(), &build) }
}

/// zdnn_quantized_matmul_op: of work_area only the alignment counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_quantized_matmul_op(
    input_a: *const Ztensor,
    input_b: *const Ztensor,
    input_c: *const Ztensor,
    op_type: u32,
    clip_min: i8,
    clip_max: i8,
    disable_clipping: bool,
    dequantize: bool,
    pre_computed: bool,
    work_area: *mut c_void,
    output: *mut Ztensor,
) -> Status {
    let build = |operands: &mut Operands<'_>| unsafe {
        Arm::QuantizedMatmulOp(wire::QuantizedMatmulOp {
            input_a: operands.input(input_a),
            input_b: operands.input(input_b),
            input_c: operands.input(input_c),
            op_type: Some(op_type.cast_signed()),
            clip_min: Some(clip_min.into()),
            clip_max: Some(clip_max.into()),
            disable_clipping: Some(disable_clipping),
            dequantize: Some(dequantize),
            pre_computed: Some(pre_computed),
            output: operands.output("output", output),
        })
    };
    unsafe {
        status_of(
            "zdnn_quantized_matmul_op",
            Lent::work_area(work_area),
            &build,
        )
    }
}
