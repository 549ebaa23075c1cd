// SPDX-License-Identifier: Apache-2.0
//! Recurrent layers. Source: zDNN API Reference 1.2.0, the function of the same name.

use std::ffi::c_void;

use crate::abi::Ztensor;
use crate::abi::status::Status;
use crate::call::operand::Operands;
use crate::call::{Lent, status_of};
use crate::wire::{self, operation::Operation as Arm};

/// zdnn_lstm: of work_area only the alignment counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_lstm(
    input: *const Ztensor,
    h0: *const Ztensor,
    c0: *const Ztensor,
    weights: *const Ztensor,
    biases: *const Ztensor,
    hidden_weights: *const Ztensor,
    hidden_biases: *const Ztensor,
    direction: u32,
    work_area: *mut c_void,
    hn_output: *mut Ztensor,
    cf_output: *mut Ztensor,
) -> Status {
    let build = |operands: &mut Operands<'_>| unsafe {
        Arm::Lstm(wire::Lstm {
            input: operands.input(input),
            h0: operands.input(h0),
            c0: operands.input(c0),
            weights: operands.input(weights),
            biases: operands.input(biases),
            hidden_weights: operands.input(hidden_weights),
            hidden_biases: operands.input(hidden_biases),
            direction: Some(direction.cast_signed()),
            hn_output: operands.output("hn_output", hn_output),
            cf_output: operands.output("cf_output", cf_output),
            all_timesteps: None,
        })
    };
    unsafe { status_of("zdnn_lstm", Lent::work_area(work_area), &build) }
}

/// zdnn_gru: of work_area only the alignment counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_gru(
    input: *const Ztensor,
    h0: *const Ztensor,
    weights: *const Ztensor,
    biases: *const Ztensor,
    hidden_weights: *const Ztensor,
    hidden_biases: *const Ztensor,
    direction: u32,
    work_area: *mut c_void,
    hn_output: *mut Ztensor,
) -> Status {
    let build = |operands: &mut Operands<'_>| unsafe {
        Arm::Gru(wire::Gru {
            input: operands.input(input),
            h0: operands.input(h0),
            weights: operands.input(weights),
            biases: operands.input(biases),
            hidden_weights: operands.input(hidden_weights),
            hidden_biases: operands.input(hidden_biases),
            direction: Some(direction.cast_signed()),
            hn_output: operands.output("hn_output", hn_output),
            all_timesteps: None,
        })
    };
    unsafe { status_of("zdnn_gru", Lent::work_area(work_area), &build) }
}
