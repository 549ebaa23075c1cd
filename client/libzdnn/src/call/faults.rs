// SPDX-License-Identifier: Apache-2.0
//! Fault injection into local functions: if the session has fault rules, the server is asked before
//! the function runs.
//! Source: nnpa/zdnn/v1/fault.proto.

use crate::abi::status::{self, Status};
use crate::abi::{Desc, format, kind, layout};
use crate::call;
use crate::call::session::Session;
use crate::process::{diagnostics, environment};
use crate::transfer::streamed::{free, new_id};
use crate::wire::operation::Operation as Arm;
use crate::wire::tensor_ref::Tensor;
use crate::wire::{self, OperationResult, TensorRef};

/// The upper half of a warning's number.
const WARNING_CLASS: Status = 0x0002;

/// The effect of the fault rules on a local function: it runs, or it is refused, with this status.
pub enum Verdict {
    Go(Status),
    Refuse(Status),
}

impl Verdict {
    /// Returns the status that the function answers.
    pub fn status(&self) -> Status {
        match self {
            Self::Go(status) | Self::Refuse(status) => *status,
        }
    }
}

/// Returns operations that create, allocate and free a tensor of the server, in the place of the
/// program's.
fn stand_in(desc: &Desc) -> [wire::Operation; 3] {
    let ztensor = new_id();
    let init = wire::InitZtensor {
        ztensor,
        pre_transformed_desc: Some(desc.message()),
        transformed_desc: Some(desc.message()),
    };
    let allocate = wire::AllochelperZtensor {
        ztensor: Some(TensorRef {
            tensor: Some(Tensor::Id(ztensor)),
            ..TensorRef::default()
        }),
    };
    let housekeeping = |operation| wire::Operation {
        operation: Some(operation),
        housekeeping: true,
        ..wire::Operation::default()
    };
    [
        housekeeping(Arm::InitZtensor(init)),
        housekeeping(Arm::AllochelperZtensor(allocate)),
        free(ztensor),
    ]
}

/// Asks the server for the effect of the rules on the operation at `index` of that list.
fn ask(name: &str, desc: &Desc, index: usize) -> Verdict {
    let answer = call::in_session(|session| {
        let mut operations = stand_in(desc);
        operations[index].housekeeping = false;
        session.server.execute_all(operations.into())
    });
    match answer.map(|results| results.into_iter().nth(index)) {
        Ok(Some(result)) => {
            diagnostics::relay(&result);
            verdict(&result)
        }
        Ok(None) => Verdict::Go(status::ZDNN_OK),
        Err(failure) => Verdict::Refuse(call::failed(name, &failure)),
    }
}

fn verdict(result: &OperationResult) -> Verdict {
    let status = result.zdnn_status;
    if status == status::ZDNN_OK || status >> 16 == WARNING_CLASS || !result.outputs.is_empty() {
        Verdict::Go(status)
    } else {
        Verdict::Refuse(status)
    }
}

/// Returns the effect of the rules on an allocation.
pub fn of_allocation(name: &str, session: &Session, desc: &Desc) -> Verdict {
    match session.has_faults {
        true => ask(name, desc, 1),
        false => Verdict::Go(status::ZDNN_OK),
    }
}

/// Returns the effect of the rules on freeing a buffer. The tensor's descriptors may be freed
/// already, and are not read.
pub fn of_free(name: &str) -> Verdict {
    if environment::settings().faults.is_none() {
        return Verdict::Go(status::ZDNN_OK);
    }
    let small = Desc {
        layout: layout::ZDNN_NHWC,
        format: format::ZDNN_FORMAT_4DFEATURE,
        kind: kind::ZDNN_DLFLOAT16,
        ..Desc::default()
    };
    ask(name, &small.with_dims([1; 4]), 2)
}
