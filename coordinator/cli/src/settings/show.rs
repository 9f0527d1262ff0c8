//! The configuration in force, written so that it is a configuration file itself.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Error, Origin, Settings, environment, leaves, plain};
use crate::output;

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

    /// For people: a row for each key, with its value, where that came from, and the key's variable.
    pub(crate) fn table(&self) -> Result<output::Table, Error> {
        let mut shown = output::Table::new(&["KEY", "VALUE", "FROM", "VARIABLE"]);
        for (key, value) in leaves(&toml::Table::try_from(&self.config)?) {
            let origin = self.origins.get(&key).unwrap_or(&Origin::Default).to_string();
            let variable = environment::variable(&key);
            shown.row(vec![key, plain(&value), origin, variable]);
        }
        Ok(shown)
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
