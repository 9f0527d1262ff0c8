//! Configuration in layers: defaults < file < environment < flags, each value with where it came from.
//!
//! A layer may name only keys that exist: a key that does not is refused with its name, so that a typing error can never
//! silently leave a default in force. A variable is named after its key, `transactions.max_in_progress` is
//! `COVENANT_TRANSACTIONS__MAX_IN_PROGRESS`. What the values mean and their bounds belong to the type that is loaded.

mod environment;
mod show;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// Where a value came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// Nobody said anything else.
    Default,
    /// The configuration file.
    File(PathBuf),
    /// This variable.
    Environment(String),
    /// This flag.
    Flag(&'static str),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

/// A value that a flag sets.
#[derive(Clone, Debug)]
pub(crate) struct FlagValue {
    /// The key.
    pub(crate) key: &'static str,
    /// The flag, with its dashes.
    pub(crate) flag: &'static str,
    /// The value.
    pub(crate) value: Value,
}

/// Why no configuration came together.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The file could not be read.
    #[error("the configuration file {} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is no TOML, has a key that does not exist, or a value of the wrong type.
    #[error("the configuration file {}{}: {}", path.display(), at(*line), one_line(why))]
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1, if the parser said.
        line: Option<usize>,
        /// What the parser says; it names the key.
        why: String,
    },
    /// A variable is named like a key that does not exist.
    #[error(
        "the environment variable {variable} names no configuration key ('{key}'); `covenant config show` lists the keys"
    )]
    UnknownVariable {
        /// The variable.
        variable: String,
        /// The key that it would be.
        key: String,
    },
    /// A value has the wrong type.
    #[error("{origin} sets {key} to '{value}': {}", one_line(why))]
    Value {
        /// Who set it.
        origin: String,
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What is wrong.
        why: String,
    },
    /// The defaults cannot be written as TOML: a fault of this program.
    #[error("the configuration cannot be written as TOML: {0}")]
    Write(#[from] toml::ser::Error),
}

fn at(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(", line {line}"))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The configuration in force.
#[derive(Clone, Debug)]
pub(crate) struct Settings<C> {
    /// The values.
    pub(crate) config: C,
    /// Where each came from, by key (`transactions.max_in_progress`).
    pub(crate) origins: BTreeMap<String, Origin>,
}

/// Puts the layers together.
///
/// # Errors
/// [`Error`] names the file and line, or the variable, and the key.
pub(crate) fn load<C: Default + Serialize + DeserializeOwned>(
    file: Option<&Path>,
    variables: impl IntoIterator<Item = (String, String)>,
    flags: impl IntoIterator<Item = FlagValue>,
) -> Result<Settings<C>, Error> {
    let defaults = Table::try_from(C::default())?;
    let mut origins: BTreeMap<String, Origin> = leaves(&defaults)
        .into_iter()
        .map(|(key, _)| (key, Origin::Default))
        .collect();
    let mut merged = defaults.clone();
    if let Some(path) = file {
        for (key, value) in leaves(&read_file::<C>(path)?) {
            set(&mut merged, &key, value);
            origins.insert(key, Origin::File(path.to_owned()));
        }
    }
    for (variable, key, value) in environment::read(&defaults, variables)? {
        set(&mut merged, &key, value);
        origins.insert(key, Origin::Environment(variable));
    }
    for FlagValue { key, flag, value } in flags {
        set(&mut merged, key, value);
        origins.insert(key.to_owned(), Origin::Flag(flag));
    }
    let config = into_config(merged, &defaults, &origins)?;
    Ok(Settings { config, origins })
}

fn read_file<C: DeserializeOwned>(path: &Path) -> Result<Table, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    let refused = |error: toml::de::Error| Error::File {
        path: path.to_owned(),
        line: error
            .span()
            .map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count()),
        why: error.message().to_owned(),
    };
    // Read as the type first: that refuses keys and types with their place in the file.
    toml::from_str::<C>(&text).map_err(refused)?;
    toml::from_str::<Table>(&text).map_err(refused)
}

/// Reads the merged table; if that fails, finds the value that does not fit by trying each alone over the defaults.
fn into_config<C: DeserializeOwned>(
    merged: Table,
    defaults: &Table,
    origins: &BTreeMap<String, Origin>,
) -> Result<C, Error> {
    let why = match C::deserialize(Value::Table(merged.clone())) {
        Ok(config) => return Ok(config),
        Err(error) => error.message().to_owned(),
    };
    for (key, value) in leaves(&merged) {
        let mut alone = defaults.clone();
        set(&mut alone, &key, value.clone());
        if let Err(error) = C::deserialize(Value::Table(alone)) {
            let origin = origins.get(&key).unwrap_or(&Origin::Default).to_string();
            let why = error.message().to_owned();
            return Err(Error::Value {
                origin,
                key,
                value: plain(&value),
                why,
            });
        }
    }
    Err(Error::Value {
        origin: "a layer".into(),
        key: "a key".into(),
        value: "a value".into(),
        why,
    })
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), ToOwned::to_owned)
}

/// Every value that is no table, by its dotted key, sorted.
fn leaves(table: &Table) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) => {
                found.extend(
                    leaves(inner)
                        .into_iter()
                        .map(|(rest, value)| (format!("{key}.{rest}"), value)),
                );
            }
            _ => found.push((key.clone(), value.clone())),
        }
    }
    found
}

/// Sets a dotted key; tables on the way are made.
fn set(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            table.insert(key.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = table.entry(first).or_insert_with(|| Value::Table(Table::new()));
            if !inner.is_table() {
                *inner = Value::Table(Table::new());
            }
            if let Value::Table(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests;
