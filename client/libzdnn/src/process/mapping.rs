// SPDX-License-Identifier: Apache-2.0
//! Reads the fields of fault rules and machines from YAML, of which JSON is a part.

use yaml_rust2::Yaml;

/// Returns the value that was read, or the refusal of the text.
pub fn expect<T>(read: Option<T>, value: &Yaml, path: &str, limit: &str) -> Result<T, String> {
    read.ok_or_else(|| format!("{path}: {value:?}, must be {limit}"))
}

pub fn word(value: &Yaml, path: &str) -> Result<String, String> {
    expect(value.as_str().map(str::to_owned), value, path, "a word")
}

pub fn number<T: TryFrom<i64>>(value: &Yaml, path: &str) -> Result<T, String> {
    let number = value.as_i64().and_then(|integer| T::try_from(integer).ok());
    expect(number, value, path, "a number from 0")
}

#[allow(clippy::cast_precision_loss)]
pub fn real(value: &Yaml, path: &str) -> Result<f64, String> {
    let integer = || value.as_i64().map(|integer| integer as f64);
    expect(value.as_f64().or_else(integer), value, path, "a number")
}

pub fn flag(value: &Yaml, path: &str) -> Result<bool, String> {
    expect(value.as_bool(), value, path, "true or false")
}

/// Passes the fields of a mapping to `put`, which returns whether it has such a field.
pub fn each(
    value: &Yaml,
    path: &str,
    names: &str,
    mut put: impl FnMut(&str, &Yaml, &str) -> Result<bool, String>,
) -> Result<(), String> {
    for (key, field) in expect(value.as_hash(), value, path, "a mapping")? {
        let name = word(key, path)?;
        let inner = format!("{path}.{name}");
        if !put(&name, field, &inner)? {
            return Err(format!("{inner}: unknown, must be one of {names}"));
        }
    }
    Ok(())
}
