// SPDX-License-Identifier: Apache-2.0
//! Elementwise operations, activations, normalization and reduction: each is its message.
//! Source: zDNN API Reference 1.2.0, the function of the same name.

use std::ffi::c_void;

use crate::abi::Ztensor;
use crate::call::{Lent, status_of};
use crate::operand::Operands;
use crate::status::Status;
use crate::wire::{self, operation::Operation as Arm};

/// Exports functions `(input, output)`.
macro_rules! unary {
    ($($function:ident => $arm:ident),* $(,)?) => {$(
        #[doc = concat!(stringify!($function), ": input, output.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(input: *const Ztensor, output: *mut Ztensor) -> Status {
            let build = |operands: &mut Operands<'_>| unsafe {
                Arm::$arm(wire::$arm {
                    input: operands.input(input),
                    output: operands.output("output", output),
                })
            };
            unsafe { status_of(stringify!($function), Lent::default(), &build) }
        }
    )*};
}

/// Exports functions `(input_a, input_b, output)`.
macro_rules! binary {
    ($($function:ident => $arm:ident),* $(,)?) => {$(
        #[doc = concat!(stringify!($function), ": input_a, input_b, output.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(
            input_a: *const Ztensor,
            input_b: *const Ztensor,
            output: *mut Ztensor,
        ) -> Status {
            let build = |operands: &mut Operands<'_>| unsafe {
                Arm::$arm(wire::$arm {
                    input_a: operands.input(input_a),
                    input_b: operands.input(input_b),
                    output: operands.output("output", output),
                })
            };
            unsafe { status_of(stringify!($function), Lent::default(), &build) }
        }
    )*};
}

unary! {
    zdnn_log => Log,
    zdnn_exp => Exp,
    zdnn_sqrt => Sqrt,
    zdnn_tanh => Tanh,
    zdnn_sigmoid => Sigmoid,
    zdnn_gelu => Gelu,
    zdnn_meanreduce2d => Meanreduce2d,
}

binary! {
    zdnn_add => Add,
    zdnn_sub => Sub,
    zdnn_mul => Mul,
    zdnn_div => Div,
    zdnn_min => Min,
    zdnn_max => Max,
    zdnn_norm => Norm,
}

/// Reads C's optional clipping value: a pointer to one float.
///
/// # Safety
/// The pointer is NULL or valid.
pub unsafe fn clipping(value: *const c_void) -> Option<f32> {
    let value = value.cast::<f32>();
    (!value.is_null()).then(|| unsafe { value.read_unaligned() })
}

/// zdnn_invsqrt.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_invsqrt(
    input: *const Ztensor,
    epsilon: f32,
    output: *mut Ztensor,
) -> Status {
    let build = |operands: &mut Operands<'_>| unsafe {
        Arm::Invsqrt(wire::Invsqrt {
            input: operands.input(input),
            epsilon: Some(epsilon),
            output: operands.output("output", output),
        })
    };
    unsafe { status_of("zdnn_invsqrt", Lent::default(), &build) }
}

/// zdnn_relu: clipping_value may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_relu(
    input: *const Ztensor,
    clipping_value: *const c_void,
    output: *mut Ztensor,
) -> Status {
    let build = |operands: &mut Operands<'_>| unsafe {
        Arm::Relu(wire::Relu {
            input: operands.input(input),
            clipping_value: clipping(clipping_value),
            output: operands.output("output", output),
        })
    };
    unsafe { status_of("zdnn_relu", Lent::default(), &build) }
}

/// zdnn_leaky_relu: clipping_value may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_leaky_relu(
    input: *const Ztensor,
    clipping_value: *const c_void,
    adjustment_factor: f32,
    output: *mut Ztensor,
) -> Status {
    let build = |operands: &mut Operands<'_>| unsafe {
        Arm::LeakyRelu(wire::LeakyRelu {
            input: operands.input(input),
            clipping_value: clipping(clipping_value),
            adjustment_factor: Some(adjustment_factor),
            output: operands.output("output", output),
        })
    };
    unsafe { status_of("zdnn_leaky_relu", Lent::default(), &build) }
}

/// zdnn_softmax: of save_area only the alignment counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_softmax(
    input: *const Ztensor,
    save_area: *mut c_void,
    act_func: u32,
    output: *mut Ztensor,
) -> Status {
    let build = |operands: &mut Operands<'_>| unsafe {
        Arm::Softmax(wire::Softmax {
            input: operands.input(input),
            act_func: Some(act_func.cast_signed()),
            output: operands.output("output", output),
        })
    };
    unsafe { status_of("zdnn_softmax", Lent::save_area(save_area), &build) }
}

/// zdnn_softmax_mask: of save_area only the alignment counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_softmax_mask(
    input: *const Ztensor,
    save_area: *mut c_void,
    act_func: u32,
    softmax_mask: u32,
    output: *mut Ztensor,
) -> Status {
    let build = |operands: &mut Operands<'_>| unsafe {
        Arm::SoftmaxMask(wire::SoftmaxMask {
            input: operands.input(input),
            act_func: Some(act_func.cast_signed()),
            softmax_mask: Some(softmax_mask),
            output: operands.output("output", output),
        })
    };
    unsafe { status_of("zdnn_softmax_mask", Lent::save_area(save_area), &build) }
}

/// zdnn_batchnorm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_batchnorm(
    input_a: *const Ztensor,
    input_b: *const Ztensor,
    input_c: *const Ztensor,
    output: *mut Ztensor,
) -> Status {
    let build = |operands: &mut Operands<'_>| unsafe {
        Arm::Batchnorm(wire::Batchnorm {
            input_a: operands.input(input_a),
            input_b: operands.input(input_b),
            input_c: operands.input(input_c),
            output: operands.output("output", output),
        })
    };
    unsafe { status_of("zdnn_batchnorm", Lent::default(), &build) }
}

/// zdnn_moments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_moments(
    input: *const Ztensor,
    bessel_correction_type: u32,
    output_a: *mut Ztensor,
    output_b: *mut Ztensor,
) -> Status {
    let build = |operands: &mut Operands<'_>| unsafe {
        Arm::Moments(wire::Moments {
            input: operands.input(input),
            bessel_correction_type: Some(bessel_correction_type.cast_signed()),
            output_a: operands.output("output_a", output_a),
            output_b: operands.output("output_b", output_b),
        })
    };
    unsafe { status_of("zdnn_moments", Lent::default(), &build) }
}

/// zdnn_layernorm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_layernorm(
    input_a: *const Ztensor,
    input_b: *const Ztensor,
    input_c: *const Ztensor,
    beta_value: f32,
    gamma_value: f32,
    epsilon_value: f32,
    output: *mut Ztensor,
) -> Status {
    let build = |operands: &mut Operands<'_>| unsafe {
        Arm::Layernorm(wire::Layernorm {
            input_a: operands.input(input_a),
            input_b: operands.input(input_b),
            input_c: operands.input(input_c),
            beta_value: Some(beta_value),
            gamma_value: Some(gamma_value),
            epsilon_value: Some(epsilon_value),
            output: operands.output("output", output),
        })
    };
    unsafe { status_of("zdnn_layernorm", Lent::default(), &build) }
}

/// zdnn_reduce: of save_area only the alignment counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_reduce(
    input: *const Ztensor,
    save_area: *mut c_void,
    op_type: u32,
    output: *mut Ztensor,
) -> Status {
    let build = |operands: &mut Operands<'_>| unsafe {
        Arm::Reduce(wire::Reduce {
            input: operands.input(input),
            op_type: Some(op_type.cast_signed()),
            output: operands.output("output", output),
        })
    };
    unsafe { status_of("zdnn_reduce", Lent::save_area(save_area), &build) }
}
