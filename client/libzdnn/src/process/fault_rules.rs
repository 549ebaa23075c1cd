// SPDX-License-Identifier: Apache-2.0
//! The file of fault rules that ZDNN_FAULTS names. The library reads its form only; the server
//! interprets the rules. Source: nnpa/zdnn/v1/fault.proto; the file's schema is that of the Python
//! package.

use std::fs;

use yaml_rust2::{Yaml, YamlLoader};

use crate::process::mapping::{each, expect, flag, number, real, word};
use crate::wire::fault_rule::Effect;
use crate::wire::{FaultDelay, FaultMove, FaultRule};

const MAX_BYTES: u64 = 1 << 20;
const FIELDS: &str = "operation, machine, shape, call, nth, every, probability, seed, status, \
    range_violation, program_check, flip_bits, delay, lose_connection, move, note, output_written";

/// Reads the rules of a file, or returns why the file is refused.
pub fn read(path: &str) -> Result<Vec<FaultRule>, String> {
    let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > MAX_BYTES {
        return Err(format!("{size} bytes, at most {MAX_BYTES}"));
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let documents =
        YamlLoader::load_from_str(&text).map_err(|error| format!("no YAML: {error}"))?;
    let whole = documents.first().and_then(Yaml::as_hash);
    let rules = whole
        .filter(|keys| keys.len() == 1 && documents.len() == 1)
        .and_then(|keys| keys.get(&Yaml::String("rules".to_owned())))
        .and_then(Yaml::as_vec)
        .ok_or("must be a mapping with one key, rules, a list")?;
    let numbered = rules.iter().enumerate();
    numbered
        .map(|(index, value)| rule(value, &format!("rules[{index}]")))
        .collect()
}

fn rule(value: &Yaml, path: &str) -> Result<FaultRule, String> {
    let mut rule = FaultRule::default();
    each(value, path, FIELDS, |name, field, path| {
        match name {
            "operation" => rule.operation = word(field, path)?,
            "machine" => rule.machine = word(field, path)?,
            "shape" => rule.shape = shape(field, path)?,
            "call" => rule.call = number(field, path)?,
            "nth" => rule.nth = number(field, path)?,
            "every" => rule.every = number(field, path)?,
            "probability" => rule.probability = Some(real(field, path)?),
            "seed" => rule.seed = number(field, path)?,
            "output_written" => rule.output_written = flag(field, path)?,
            _ => {
                let Some(effect) = effect(name, field, path)? else {
                    return Ok(false);
                };
                if rule.effect.replace(effect).is_some() {
                    return Err(format!("{path}: a second effect, must be one"));
                }
            }
        }
        Ok(true)
    })?;
    Ok(rule)
}

fn shape(value: &Yaml, path: &str) -> Result<Vec<u32>, String> {
    let dims = expect(value.as_vec(), value, path, "a list of dimensions")?;
    dims.iter().map(|dim| number(dim, path)).collect()
}

fn effect(name: &str, value: &Yaml, path: &str) -> Result<Option<Effect>, String> {
    Ok(Some(match name {
        "status" => Effect::Status(match value.as_i64() {
            Some(status) => status.to_string(),
            None => word(value, path)?,
        }),
        "range_violation" => Effect::RangeViolation(number(value, path)?),
        "program_check" => Effect::ProgramCheck(word(value, path)?),
        "flip_bits" => Effect::FlipBits(number(value, path)?),
        "delay" => Effect::Delay(delay(value, path)?),
        "lose_connection" => Effect::LoseConnection(word(value, path)?),
        "move" => Effect::Move(moved(value, path)?),
        "note" => Effect::Note(flag(value, path)?),
        _ => return Ok(None),
    }))
}

fn delay(value: &Yaml, path: &str) -> Result<FaultDelay, String> {
    let mut delay = FaultDelay::default();
    let names = "seconds, distribution, spread";
    each(value, path, names, |name, field, path| {
        match name {
            "seconds" => delay.seconds = real(field, path)?,
            "distribution" => delay.distribution = word(field, path)?,
            "spread" => delay.spread = real(field, path)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(delay)
}

fn moved(value: &Yaml, path: &str) -> Result<FaultMove, String> {
    let mut moved = FaultMove::default();
    each(value, path, "machine, calls", |name, field, path| {
        match name {
            "machine" => moved.machine = word(field, path)?,
            "calls" => moved.calls = number(field, path)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(moved)
}
