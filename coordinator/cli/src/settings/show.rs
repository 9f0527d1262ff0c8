//! The configuration in force, written so that it is a configuration file itself.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Error, Settings};

/// The configuration and the origin of each key, for programs.
#[derive(Serialize)]
pub(crate) struct Shown<'a, C> {
    config: &'a C,
    origin: BTreeMap<&'a str, String>,
}

impl<C: Serialize> Settings<C> {
    /// As TOML, each line with its origin as a comment. It reads back as the same configuration.
    pub(crate) fn to_toml(&self) -> Result<String, Error> {
        let mut table = String::new();
        let mut lines = Vec::new();
        for line in toml::to_string(&self.config)?.lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                table = format!("{name}.");
            }
            let key = line.split_once(" = ").map(|(key, _)| format!("{table}{key}"));
            match key.and_then(|key| self.origins.get(&key)) {
                Some(origin) => lines.push(format!("{line} # {origin}")),
                None => lines.push(line.to_owned()),
            }
        }
        Ok(lines.join("\n") + "\n")
    }

    /// For programs: the values, and beside them where each came from.
    pub(crate) fn shown(&self) -> Shown<'_, C> {
        let origin = self
            .origins
            .iter()
            .map(|(key, origin)| (key.as_str(), origin.to_string()));
        Shown {
            config: &self.config,
            origin: origin.collect(),
        }
    }
}
