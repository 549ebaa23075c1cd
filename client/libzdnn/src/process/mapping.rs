// SPDX-License-Identifier: Apache-2.0
//! Fields of YAML, and of JSON, which is YAML: of fault rules and of machines.

use yaml_rust2::Yaml;
use yaml_rust2::yaml::Hash;

pub fn word(value: &Yaml, path: &str) -> Result<String, String> {
    let text = value.as_str().map(str::to_owned);
    text.ok_or_else(|| format!("{path}: {value:?}, must be a word"))
}

pub fn number<T: TryFrom<i64>>(value: &Yaml, path: &str) -> Result<T, String> {
    let integer = value.as_i64();
    let number = integer.and_then(|integer| T::try_from(integer).ok());
    number.ok_or_else(|| format!("{path}: {value:?}, must be a number from 0"))
}

#[allow(clippy::cast_precision_loss)]
pub fn real(value: &Yaml, path: &str) -> Result<f64, String> {
    let integer = || value.as_i64().map(|integer| integer as f64);
    let number = value.as_f64().or_else(integer);
    number.ok_or_else(|| format!("{path}: {value:?}, must be a number"))
}

pub fn flag(value: &Yaml, path: &str) -> Result<bool, String> {
    let flag = value.as_bool();
    flag.ok_or_else(|| format!("{path}: {value:?}, must be true or false"))
}

/// Passes the fields of a mapping to `put`, which returns whether it has such a field.
pub fn each(
    value: &Yaml,
    path: &str,
    names: &str,
    mut put: impl FnMut(&str, &Yaml, &str) -> Result<bool, String>,
) -> Result<(), String> {
    let wrong = || format!("{path}: {value:?}, must be a mapping");
    let fields: &Hash = value.as_hash().ok_or_else(wrong)?;
    for (key, field) in fields {
        let name = word(key, path)?;
        let inner = format!("{path}.{name}");
        if !put(&name, field, &inner)? {
            return Err(format!("{inner}: unknown, must be one of {names}"));
        }
    }
    Ok(())
}
