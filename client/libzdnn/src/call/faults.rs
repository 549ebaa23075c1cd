// SPDX-License-Identifier: Apache-2.0
//! Rules of faults to inject: read from the file that ZDNN_FAULTS names and handed to the server,
//! which alone says what they mean. So functions that are local here ask it, where there are rules.
//! Source: nnpa/zdnn/v1/fault.proto; the file's schema is that of the Python package.

use std::fs;

use yaml_rust2::yaml::Hash;
use yaml_rust2::{Yaml, YamlLoader};

use crate::abi::status::{self, Status};
use crate::abi::{Desc, format, kind, layout};
use crate::call;
use crate::call::process_session;
use crate::call::session::{Session, new_id};
use crate::process::diagnostics;
use crate::process::environment::Settings;
use crate::rpc::failure::Failure;
use crate::wire::fault_rule::Effect;
use crate::wire::operation::Operation as Arm;
use crate::wire::tensor_ref::Tensor;
use crate::wire::{self, FaultDelay, FaultMove, FaultRule, OperationResult, TensorRef};

const MOST_BYTES: u64 = 1 << 20;
/// The upper half of a warning's number.
const WARNING_CLASS: Status = 0x0002;
const FIELDS: &str = "operation, machine, shape, call, nth, every, probability, seed, status, \
    range_violation, program_check, flip_bits, delay, lose_connection, move, note, output_written";

/// Returns the rules of the environment's file; none where it names none.
pub fn wanted(settings: &Settings) -> Result<Vec<FaultRule>, Failure> {
    let Some(path) = &settings.faults else {
        return Ok(Vec::new());
    };
    read(path).map_err(|why| Failure::Refused {
        reason: "FIELD_INVALID".to_owned(),
        kind: String::new(),
        field: String::new(),
        message: format!("ZDNN_FAULTS: {path}: {why}"),
    })
}

fn read(path: &str) -> Result<Vec<FaultRule>, String> {
    let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > MOST_BYTES {
        return Err(format!("{size} bytes, at most {MOST_BYTES}"));
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let documents =
        YamlLoader::load_from_str(&text).map_err(|error| format!("no YAML: {error}"))?;
    let whole = documents.first().and_then(Yaml::as_hash);
    let rules = whole
        .filter(|one| one.len() == 1 && documents.len() == 1)
        .and_then(|one| one.get(&Yaml::String("rules".to_owned())))
        .and_then(Yaml::as_vec)
        .ok_or("must be a mapping with one key, rules, a list")?;
    let numbered = rules.iter().enumerate();
    numbered
        .map(|(index, one)| rule(one, &format!("rules[{index}]")))
        .collect()
}

fn word(value: &Yaml, place: &str) -> Result<String, String> {
    let found = value.as_str().map(str::to_owned);
    found.ok_or_else(|| format!("{place}: {value:?}, must be a word"))
}

fn number<T: TryFrom<i64>>(value: &Yaml, place: &str) -> Result<T, String> {
    let found = value.as_i64().and_then(|one| T::try_from(one).ok());
    found.ok_or_else(|| format!("{place}: {value:?}, must be a number from 0"))
}

#[allow(clippy::cast_precision_loss)]
fn real(value: &Yaml, place: &str) -> Result<f64, String> {
    let found = value
        .as_f64()
        .or_else(|| value.as_i64().map(|one| one as f64));
    found.ok_or_else(|| format!("{place}: {value:?}, must be a number"))
}

fn flag(value: &Yaml, place: &str) -> Result<bool, String> {
    let found = value.as_bool();
    found.ok_or_else(|| format!("{place}: {value:?}, must be true or false"))
}

/// Gives `put` the fields of a mapping; it tells whether it knows them.
fn each(
    value: &Yaml,
    place: &str,
    known: &str,
    mut put: impl FnMut(&str, &Yaml, &str) -> Result<bool, String>,
) -> Result<(), String> {
    let wrong = || format!("{place}: {value:?}, must be a mapping");
    let fields: &Hash = value.as_hash().ok_or_else(wrong)?;
    for (key, one) in fields {
        let name = word(key, place)?;
        let inner = format!("{place}.{name}");
        if !put(&name, one, &inner)? {
            return Err(format!("{inner}: unknown, must be one of {known}"));
        }
    }
    Ok(())
}

fn rule(value: &Yaml, place: &str) -> Result<FaultRule, String> {
    let mut rule = FaultRule::default();
    each(value, place, FIELDS, |name, one, place| {
        match name {
            "operation" => rule.operation = word(one, place)?,
            "machine" => rule.machine = word(one, place)?,
            "shape" => rule.shape = shape(one, place)?,
            "call" => rule.call = number(one, place)?,
            "nth" => rule.nth = number(one, place)?,
            "every" => rule.every = number(one, place)?,
            "probability" => rule.probability = Some(real(one, place)?),
            "seed" => rule.seed = number(one, place)?,
            "output_written" => rule.output_written = flag(one, place)?,
            _ => {
                let Some(effect) = effect(name, one, place)? else {
                    return Ok(false);
                };
                if rule.effect.replace(effect).is_some() {
                    return Err(format!("{place}: a second effect, must be one"));
                }
            }
        }
        Ok(true)
    })?;
    Ok(rule)
}

fn shape(value: &Yaml, place: &str) -> Result<Vec<u32>, String> {
    let wrong = || format!("{place}: {value:?}, must be a list of dimensions");
    let dims = value.as_vec().ok_or_else(wrong)?;
    dims.iter().map(|one| number(one, place)).collect()
}

fn effect(name: &str, value: &Yaml, place: &str) -> Result<Option<Effect>, String> {
    Ok(Some(match name {
        "status" => Effect::Status(match value.as_i64() {
            Some(status) => status.to_string(),
            None => word(value, place)?,
        }),
        "range_violation" => Effect::RangeViolation(number(value, place)?),
        "program_check" => Effect::ProgramCheck(word(value, place)?),
        "flip_bits" => Effect::FlipBits(number(value, place)?),
        "delay" => Effect::Delay(delay(value, place)?),
        "lose_connection" => Effect::LoseConnection(word(value, place)?),
        "move" => Effect::Move(moved(value, place)?),
        "note" => Effect::Note(flag(value, place)?),
        _ => return Ok(None),
    }))
}

fn delay(value: &Yaml, place: &str) -> Result<FaultDelay, String> {
    let mut delay = FaultDelay::default();
    let known = "seconds, distribution, spread";
    each(value, place, known, |name, one, place| {
        match name {
            "seconds" => delay.seconds = real(one, place)?,
            "distribution" => delay.distribution = word(one, place)?,
            "spread" => delay.spread = real(one, place)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(delay)
}

fn moved(value: &Yaml, place: &str) -> Result<FaultMove, String> {
    let mut moved = FaultMove::default();
    each(value, place, "machine, calls", |name, one, place| {
        match name {
            "machine" => moved.machine = word(one, place)?,
            "calls" => moved.calls = number(one, place)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(moved)
}

/// What the rules make of a local function: it runs and answers, or answers without.
pub enum Verdict {
    Go(Status),
    Refuse(Status),
}

impl Verdict {
    /// The status that the function answers.
    pub fn status(&self) -> Status {
        match self {
            Self::Go(status) | Self::Refuse(status) => *status,
        }
    }
}

/// A tensor on the server that stands for the program's, which is no business of the server.
fn stand_in(desc: &Desc) -> [wire::Operation; 3] {
    let ztensor = new_id();
    let named = Some(TensorRef {
        tensor: Some(Tensor::Id(ztensor)),
        ..TensorRef::default()
    });
    let made = wire::InitZtensor {
        ztensor,
        pre_transformed_desc: Some(desc.message()),
        transformed_desc: Some(desc.message()),
    };
    [
        Arm::InitZtensor(made),
        Arm::AllochelperZtensor(wire::AllochelperZtensor {
            ztensor: named.clone(),
        }),
        Arm::FreeZtensorBuffer(wire::FreeZtensorBuffer { ztensor: named }),
    ]
    .map(|arm| wire::Operation {
        operation: Some(arm),
        housekeeping: true,
        ..wire::Operation::default()
    })
}

/// Asks the server what comes of the operation at `place`, the only one that the program made.
fn ask(name: &str, desc: &Desc, place: usize) -> Verdict {
    let answer = call::in_session(|session| {
        let mut operations = stand_in(desc);
        operations[place].housekeeping = false;
        session.execute_all(operations.into())
    });
    match answer.map(|results| results.into_iter().nth(place)) {
        Ok(Some(result)) => {
            diagnostics::relay(&result);
            verdict(&result)
        }
        Ok(None) => Verdict::Go(status::OK),
        Err(failure) => Verdict::Refuse(call::failed(name, &failure)),
    }
}

fn verdict(result: &OperationResult) -> Verdict {
    let status = result.zdnn_status;
    if status == status::OK || status >> 16 == WARNING_CLASS || !result.outputs.is_empty() {
        Verdict::Go(status)
    } else {
        Verdict::Refuse(status)
    }
}

/// Tells what the rules make of an allocation.
pub fn of_allocation(name: &str, session: &Session, desc: &Desc) -> Verdict {
    match session.has_faults {
        true => ask(name, desc, 1),
        false => Verdict::Go(status::OK),
    }
}

/// Tells what the rules make of freeing a buffer; its descriptors may be gone and are not read.
pub fn of_free(name: &str) -> Verdict {
    if process_session::settings().faults.is_none() {
        return Verdict::Go(status::OK);
    }
    let small = Desc {
        layout: layout::NHWC,
        format: format::FEATURE,
        kind: kind::DLFLOAT16,
        dim4: 1,
        dim3: 1,
        dim2: 1,
        dim1: 1,
    };
    ask(name, &small, 2)
}
