// SPDX-License-Identifier: Apache-2.0
//! The machine that ZDNN_MACHINE names: a name, JSON of a custom machine, or the path of a file of
//! such JSON. The server interprets the values. Source: nnpa/zdnn/v1/accelerator.proto,
//! MachineSpec.

use std::fs::File;
use std::io::Read;

use yaml_rust2::{Yaml, YamlLoader};

use crate::process::mapping::{each, expect, number, word};
use crate::wire::{MachineSpec, NnpaFunctionCode};

const DEFAULT_BASE: &str = "telum2";
const MAX_BYTES: u64 = 1 << 16;
const FIELDS: &str = "base, max_dim_idx_size, max_dim4, max_dim3, max_dim2, max_dim1, \
    max_tensor_size, removed_functions, added_functions, data_types_mask, layout_formats_mask, \
    parmblk_formats_mask";

/// Returns the name of a machine and the changes to it, or why the text is refused.
pub fn read(text: &str) -> Result<(String, MachineSpec), String> {
    if text.trim_start().starts_with('{') {
        return parse(text, "ZDNN_MACHINE");
    }
    // No machine's name has a slash or a dot.
    if text.contains(['/', '.']) {
        let path = format!("ZDNN_MACHINE: {text}");
        return parse(
            &contents(text).map_err(|why| format!("{path}: {why}"))?,
            &path,
        );
    }
    Ok((text.to_owned(), MachineSpec::default()))
}

fn contents(path: &str) -> Result<String, String> {
    let expected = "expected a machine's name, JSON, or a file of it";
    let mut text = String::new();
    let file = File::open(path).map_err(|error| format!("{error}; {expected}"))?;
    let read = file.take(MAX_BYTES + 1).read_to_string(&mut text);
    let size = read.map_err(|error| format!("{error}; {expected}"))?;
    if size as u64 > MAX_BYTES {
        return Err(format!("more than {MAX_BYTES} bytes; {expected}"));
    }
    Ok(text)
}

fn parse(text: &str, path: &str) -> Result<(String, MachineSpec), String> {
    let documents =
        YamlLoader::load_from_str(text).map_err(|error| format!("{path}: no JSON: {error}"))?;
    let whole = documents
        .first()
        .ok_or_else(|| format!("{path}: empty, must be a mapping"))?;
    let (mut base, mut spec) = (DEFAULT_BASE.to_owned(), MachineSpec::default());
    each(whole, path, FIELDS, |name, field, path| {
        match name {
            "base" => base = word(field, path)?,
            "max_dim_idx_size" => spec.max_dim_idx_size = Some(number(field, path)?),
            "max_dim4" => spec.max_dim4 = Some(number(field, path)?),
            "max_dim3" => spec.max_dim3 = Some(number(field, path)?),
            "max_dim2" => spec.max_dim2 = Some(number(field, path)?),
            "max_dim1" => spec.max_dim1 = Some(number(field, path)?),
            "max_tensor_size" => spec.max_tensor_size = Some(number(field, path)?),
            "removed_functions" => spec.removed_functions = functions(field, path)?,
            "added_functions" => spec.added_functions = functions(field, path)?,
            "data_types_mask" => spec.data_types_mask = Some(number(field, path)?),
            "layout_formats_mask" => spec.layout_formats_mask = Some(number(field, path)?),
            "parmblk_formats_mask" => spec.parmblk_formats_mask = Some(number(field, path)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok((base, spec))
}

/// Reads a list of functions, by name or number.
fn functions(value: &Yaml, path: &str) -> Result<Vec<i32>, String> {
    let code = |entry: &Yaml| {
        let number = || i32::try_from(entry.as_i64()?).ok();
        let named = entry.as_str().and_then(NnpaFunctionCode::from_str_name);
        named.map(Into::into).or_else(number)
    };
    let entries = value.as_vec();
    let codes = entries.and_then(|entries| entries.iter().map(code).collect());
    expect(codes, value, path, "a list of functions such as NNPA_ADD")
}
