// SPDX-License-Identifier: Apache-2.0
//! Pooling and convolution. Source: zDNN API Reference 1.2.0, the function of the same name.

use std::ffi::c_void;

use crate::abi::Ztensor;
use crate::abi::status::Status;
use crate::call::operand::Operands;
use crate::call::{Lent, status_of};
use crate::operation::clipping;
use crate::wire::{self, operation::Operation as Arm};

/// zdnn_avgpool2d.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_avgpool2d(
    input: *const Ztensor,
    padding_type: u32,
    kernel_height: u32,
    kernel_width: u32,
    stride_height: u32,
    stride_width: u32,
    output: *mut Ztensor,
) -> Status {
    let build = |operands: &mut Operands<'_>| unsafe {
        Arm::Avgpool2d(wire::Avgpool2d {
            input: operands.input(input),
            padding_type: Some(padding_type.cast_signed()),
            kernel_height: Some(kernel_height),
            kernel_width: Some(kernel_width),
            stride_height: Some(stride_height),
            stride_width: Some(stride_width),
            output: operands.output("output", output),
        })
    };
    unsafe { status_of("zdnn_avgpool2d", Lent::default(), &build) }
}

/// zdnn_maxpool2d.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_maxpool2d(
    input: *const Ztensor,
    padding_type: u32,
    kernel_height: u32,
    kernel_width: u32,
    stride_height: u32,
    stride_width: u32,
    output: *mut Ztensor,
) -> Status {
    let build = |operands: &mut Operands<'_>| unsafe {
        Arm::Maxpool2d(wire::Maxpool2d {
            input: operands.input(input),
            padding_type: Some(padding_type.cast_signed()),
            kernel_height: Some(kernel_height),
            kernel_width: Some(kernel_width),
            stride_height: Some(stride_height),
            stride_width: Some(stride_width),
            output: operands.output("output", output),
        })
    };
    unsafe { status_of("zdnn_maxpool2d", Lent::default(), &build) }
}

/// zdnn_conv2d: clipping_value may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_conv2d(
    input: *const Ztensor,
    kernel: *const Ztensor,
    bias: *const Ztensor,
    padding_type: u32,
    stride_height: u32,
    stride_width: u32,
    act_func: u32,
    clipping_value: *const c_void,
    output: *mut Ztensor,
) -> Status {
    let build = |operands: &mut Operands<'_>| unsafe {
        Arm::Conv2d(wire::Conv2d {
            input: operands.input(input),
            kernel: operands.input(kernel),
            bias: operands.input(bias),
            padding_type: Some(padding_type.cast_signed()),
            stride_height: Some(stride_height),
            stride_width: Some(stride_width),
            act_func: Some(act_func.cast_signed()),
            clipping_value: clipping(clipping_value),
            output: operands.output("output", output),
        })
    };
    unsafe { status_of("zdnn_conv2d", Lent::default(), &build) }
}
