use super::*;
use serde::Deserialize;
use std::io::Write;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Sample {
    name: String,
    listen: std::net::SocketAddr,
    limits: Limits,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Limits {
    max_in_progress: usize,
    is_open: bool,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            name: "c1".into(),
            listen: "127.0.0.1:7400".parse().unwrap(),
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_in_progress: 20_000,
            is_open: true,
        }
    }
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn listen_flag(value: &str) -> FlagValue {
    FlagValue {
        key: "listen",
        flag: "--listen",
        value: Value::from(value),
    }
}

#[test]
fn each_layer_goes_before_the_one_below_and_is_named() {
    let file = file("name = 'from-file'\n[limits]\nmax_in_progress = 7\nis_open = false\n");
    let variables = variables(&[("COVENANT_LIMITS__MAX_IN_PROGRESS", "8"), ("HOME", "/")]);
    let settings: Settings<Sample> =
        load(Some(file.path()), variables, [listen_flag("127.0.0.1:0")]).unwrap();
    let limits = Limits {
        max_in_progress: 8,
        is_open: false,
    };
    let listen = "127.0.0.1:0".parse().unwrap();
    assert_eq!(
        settings.config,
        Sample {
            name: "from-file".into(),
            listen,
            limits
        }
    );
    let origin = |key: &str| settings.origins[key].clone();
    assert_eq!(origin("name"), Origin::File(file.path().to_owned()));
    assert_eq!(
        origin("limits.max_in_progress"),
        Origin::Environment("COVENANT_LIMITS__MAX_IN_PROGRESS".into())
    );
    assert_eq!(origin("listen"), Origin::Flag("--listen"));
    assert_eq!(origin("limits.is_open"), Origin::File(file.path().to_owned()));
}

#[test]
fn an_unknown_key_is_refused_by_name_in_every_layer() {
    let bad = file("name = 'x'\n[limits]\nmax_in_progres = 7\n");
    let error = load::<Sample>(Some(bad.path()), [], []).unwrap_err().to_string();
    assert!(
        error.contains("max_in_progres") && error.contains("line 3"),
        "{error}"
    );
    for name in ["COVENANT_NAMES", "COVENANT_LIMITS__MAX", "COVENANT_LIMITS"] {
        let error = load::<Sample>(None, variables(&[(name, "1")]), [])
            .unwrap_err()
            .to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn a_value_of_the_wrong_type_is_refused_with_its_key_and_origin() {
    let bad = file("[limits]\nmax_in_progress = 'many'\n");
    let error = load::<Sample>(Some(bad.path()), [], []).unwrap_err().to_string();
    assert!(error.contains("line 2"), "{error}");
    let variables = variables(&[("COVENANT_LIMITS__MAX_IN_PROGRESS", "many")]);
    let error = load::<Sample>(None, variables, []).unwrap_err().to_string();
    assert!(
        error.contains("limits.max_in_progress") && error.contains("whole number"),
        "{error}"
    );
    let error = load::<Sample>(None, [], [listen_flag("here")])
        .unwrap_err()
        .to_string();
    assert!(error.contains("flag --listen sets listen to 'here'"), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = load::<Sample>(Some(Path::new("no/such/file.toml")), [], [])
        .unwrap_err()
        .to_string();
    assert!(error.contains("no/such/file.toml"), "{error}");
}

#[test]
fn options_and_service_links_are_no_keys() {
    let others = variables(&[
        ("COVENANT_ENDPOINT", "http://127.0.0.1:1"),
        ("COVENANT_LOG", "debug"),
        ("COVENANT_SERVICE_HOST", "10.0.0.1"),
        ("COVENANT_PORT_7400_TCP", "tcp://10.0.0.1:7400"),
        ("COVENANT_PORT", "tcp://10.0.0.1:7400"),
    ]);
    let settings: Settings<Sample> = load(None, others, []).unwrap();
    assert_eq!(settings.config, Sample::default());
}

#[test]
fn what_is_shown_is_a_configuration_file_with_the_same_values() {
    let variables = variables(&[("COVENANT_LIMITS__IS_OPEN", "false")]);
    let settings: Settings<Sample> = load(None, variables, [listen_flag("127.0.0.1:0")]).unwrap();
    let text = settings.to_toml().unwrap();
    assert_eq!(
        text,
        "name = \"c1\" # default\nlisten = \"127.0.0.1:0\" # flag --listen\n\n[limits]\n\
         max_in_progress = 20000 # default\nis_open = false # environment COVENANT_LIMITS__IS_OPEN\n"
    );
    let again: Settings<Sample> = load(Some(file(&text).path()), [], []).unwrap();
    assert_eq!(again.config, settings.config);
    let shown = serde_json::to_value(settings.shown()).unwrap();
    assert_eq!(shown["config"]["limits"]["max_in_progress"], 20_000);
    assert_eq!(shown["origin"]["listen"], "flag --listen");
}

#[test]
fn the_wide_table_has_for_each_key_its_value_its_origin_and_the_variable_that_sets_it() {
    let set = variables(&[("COVENANT_LIMITS__IS_OPEN", "false")]);
    let settings: Settings<Sample> = load(None, set, [listen_flag("127.0.0.1:0")]).unwrap();
    let text = settings.table().unwrap().render(true);
    let row = |key: &str| -> Vec<&str> {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap();
        line.split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
            .collect()
    };
    let variable = "COVENANT_LIMITS__IS_OPEN";
    let origin = format!("environment {variable}");
    assert_eq!(
        row("limits.is_open"),
        ["limits.is_open", "false", &origin, variable]
    );
    assert_eq!(row("name"), ["name", "c1", "default", "COVENANT_NAME"]);
    assert_eq!(text.lines().count(), 5, "{text}");
}
