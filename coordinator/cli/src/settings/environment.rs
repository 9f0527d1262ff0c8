//! The environment as a layer: `COVENANT_TRANSACTIONS__MAX_IN_PROGRESS` is `transactions.max_in_progress`.

use toml::{Table, Value};

use super::{Error, leaves};

/// What every variable of this program begins with.
const PREFIX: &str = "COVENANT_";

/// Variables that are no keys: options of commands, and the log's filter.
const OPTIONS: [&str; 5] = [
    "COVENANT_CONFIG",
    "COVENANT_ENDPOINT",
    "COVENANT_LEDGER",
    "COVENANT_LOG",
    "COVENANT_LOG_FORMAT",
];

/// The variable of a key.
pub(super) fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_ascii_uppercase())
}

/// The variables that are set, as (variable, key, value), in the order of their keys.
pub(super) fn read(
    defaults: &Table,
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<Vec<(String, String, Value)>, Error> {
    let known = leaves(defaults);
    let mut read = Vec::new();
    for (variable, text) in variables {
        let Some(name) = variable.strip_prefix(PREFIX) else {
            continue;
        };
        if OPTIONS.contains(&variable.as_str()) || is_service_link(name) {
            continue;
        }
        let key = name.to_ascii_lowercase().replace("__", ".");
        let Some((_, default)) = known.iter().find(|(known, _)| *known == key) else {
            return Err(Error::UnknownVariable { variable, key });
        };
        let value = parse(default, &text).map_err(|why| Error::Value {
            origin: format!("environment {variable}"),
            key: key.clone(),
            value: text.clone(),
            why,
        })?;
        read.push((variable, key, value));
    }
    read.sort_by(|a, b| a.1.cmp(&b.1));
    Ok(read)
}

/// Kubernetes sets such variables in every container beside a service that is named `covenant` or `covenant-...`.
fn is_service_link(name: &str) -> bool {
    name == "PORT"
        || name.starts_with("PORT_")
        || name.contains("_PORT_")
        || name.ends_with("_PORT")
        || name.ends_with("SERVICE_HOST")
        || name.contains("SERVICE_PORT")
}

/// Reads text as a value of the default's type.
fn parse(default: &Value, text: &str) -> Result<Value, String> {
    let expected = |what: &str| format!("expected {what}");
    match default {
        Value::String(_) => Ok(Value::from(text)),
        Value::Integer(_) => text
            .parse::<i64>()
            .map(Value::from)
            .map_err(|_| expected("a whole number")),
        Value::Float(_) => text
            .parse::<f64>()
            .map(Value::from)
            .map_err(|_| expected("a number")),
        Value::Boolean(_) => text
            .parse::<bool>()
            .map(Value::from)
            .map_err(|_| expected("true or false")),
        Value::Array(_) | Value::Datetime(_) | Value::Table(_) => {
            text.parse::<Value>().map_err(|error| error.message().to_owned())
        }
    }
}
