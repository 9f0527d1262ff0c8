//! The house rules as tests: file lengths, who may import whom, no ignored tests, no notes to ourselves in code, no
//! `unwrap()` outside tests.
//!
//! It reads sources as text, so it cannot see what a macro makes, and it takes a crate's word for its features.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use covenant_tests::binary::repository;

/// The most lines of a source file.
const MAX_FILE_LINES: usize = 500;

/// Files that may be longer, each with its reason. One that is short enough again must leave.
const LONGER: &[(&str, &str)] = &[];

/// Who may import whom, among our crates; development dependencies apart.
const CRATES: &[(&str, &[&str])] = &[
    ("covenant-rules", &[]),
    ("covenant-proto", &[]),
    ("covenant-journal", &[]),
    ("covenant-fault", &[]),
    ("covenant-codec", &["covenant-proto", "covenant-rules"]),
    (
        "covenant-coordinator",
        &[
            "covenant-codec",
            "covenant-fault",
            "covenant-journal",
            "covenant-proto",
            "covenant-rules",
        ],
    ),
    (
        "covenant-participant",
        &[
            "covenant-codec",
            "covenant-fault",
            "covenant-proto",
            "covenant-rules",
        ],
    ),
    (
        "covenant-ledger",
        &[
            "covenant-codec",
            "covenant-fault",
            "covenant-journal",
            "covenant-participant",
            "covenant-proto",
            "covenant-rules",
        ],
    ),
    (
        "covenant-sim",
        &[
            "covenant-codec",
            "covenant-fault",
            "covenant-ledger",
            "covenant-rules",
        ],
    ),
    ("covenant-bench", &["covenant-rules"]),
    ("covenant-client", &["covenant-proto"]),
    ("covenant-model", &["covenant-rules"]),
    (
        "covenant",
        &[
            "covenant-client",
            "covenant-codec",
            "covenant-coordinator",
            "covenant-fault",
            "covenant-journal",
            "covenant-ledger",
            "covenant-participant",
            "covenant-proto",
            "covenant-rules",
        ],
    ),
];

/// Who may import whom, among the modules of the coordinator.
const COORDINATOR: &[(&str, &[&str])] = &[
    ("answers", &["grpc"]),
    ("archive", &["attempts", "damage", "error"]),
    ("attempts", &[]),
    ("calls", &["archive", "driver", "error", "input", "listing"]),
    ("config", &[]),
    ("connections", &[]),
    ("crash", &["error"]),
    ("damage", &["error"]),
    (
        "driver",
        &[
            "archive", "config", "crash", "error", "input", "outbox", "recovery",
        ],
    ),
    ("effects", &["driver", "error", "grpc", "input", "recovery"]),
    ("error", &["config"]),
    ("grpc", &["answers", "input", "listing", "outbox"]),
    ("input", &["answers", "error", "listing", "outbox"]),
    ("lib", &["config", "error", "server"]),
    ("listing", &["archive", "input"]),
    ("outbox", &[]),
    ("receiving", &["grpc"]),
    ("recovery", &["archive", "config", "crash", "damage", "error"]),
    (
        "server",
        &[
            "config",
            "connections",
            "crash",
            "driver",
            "error",
            "grpc",
            "input",
            "receiving",
            "recovery",
        ],
    ),
];

/// Who may import whom, among the modules of the SDK.
const PARTICIPANT: &[(&str, &[&str])] = &[
    ("call", &["error", "resource"]),
    ("config", &["error"]),
    (
        "driver",
        &[
            "call", "config", "error", "handle", "leave", "link", "points", "resource", "session",
        ],
    ),
    ("error", &[]),
    ("handle", &["config", "error"]),
    ("leave", &["config", "error", "session"]),
    (
        "lib",
        &["config", "error", "handle", "participant", "resource", "suite"],
    ),
    ("link", &["config", "error", "session"]),
    (
        "participant",
        &["config", "driver", "error", "handle", "link", "resource"],
    ),
    ("points", &[]),
    ("resource", &["error"]),
    ("session", &["config", "error"]),
    ("suite", &["error", "resource"]),
];

/// Which files may name the wire types, by crate: they stop at the doors.
const DOORS: &[(&str, &[&str])] = &[
    ("coordinator/src", &["grpc/", "outbox.rs", "server.rs"]),
    ("participant/src", &["link.rs", "session.rs"]),
    ("proto/rules/src", &[]),
    ("proto/journal/src", &[]),
];

/// Where the types at the root of a crate live, for imports of `crate::Type`.
const ROOT_TYPES: &[(&str, &str)] = &[
    ("Config", "config"),
    ("Error", "error"),
    ("Handle", "handle"),
    ("InDoubt", "resource"),
    ("JoinState", "handle"),
    ("Ready", "server"),
    ("Resource", "resource"),
];

struct Source {
    /// From the root of the repository, with slashes.
    name: String,
    text: String,
}

impl Source {
    fn is_test(&self) -> bool {
        self.name.contains("/tests/") || self.name.ends_with("/tests.rs")
    }

    /// The text without comments and without what is compiled for tests only.
    fn shipped(&self) -> String {
        let mut shipped = String::new();
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            let code = line.trim_start();
            if code.starts_with("#[cfg(test)]") {
                skip_item(&mut lines);
            } else if !code.starts_with("//") {
                shipped.push_str(line);
                shipped.push('\n');
            }
        }
        shipped
    }
}

/// Takes one item off: up to its closing brace, which stands where the item began, or to its semicolon.
fn skip_item<'a>(lines: &mut impl Iterator<Item = &'a str>) {
    let Some(first) = lines.by_ref().find(|line| !line.trim_start().starts_with("#[")) else {
        return;
    };
    if first.trim_end().ends_with([';', '}']) {
        return;
    }
    let indent = first.len() - first.trim_start().len();
    let end = format!("{}}}", " ".repeat(indent));
    lines.by_ref().find(|line| *line == end);
}

fn sources(extensions: &[&str]) -> Result<Vec<Source>> {
    let mut found = Vec::new();
    walk(repository(), extensions, &mut found)?;
    ensure!(
        found.len() > CRATES.len(),
        "only {} files were found",
        found.len()
    );
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn walk(directory: &Path, extensions: &[&str], found: &mut Vec<Source>) -> Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        // Build directories mark themselves, unless somebody else made them first.
        let built = name == "target" || path.join("CACHEDIR.TAG").exists();
        if path.is_dir() && !name.starts_with('.') && !built {
            walk(&path, extensions, found)?;
        } else if extensions.iter().any(|extension| name.ends_with(extension)) && path.is_file() {
            let name = path.strip_prefix(repository())?.to_string_lossy().into_owned();
            found.push(Source {
                name,
                text: std::fs::read_to_string(&path)?,
            });
        }
    }
    Ok(())
}

fn named<'a>(table: &[(&str, &'a [&'a str])], name: &str) -> Option<&'a [&'a str]> {
    table
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, allowed)| *allowed)
}

#[test]
fn files_are_short_enough_to_read() -> Result<()> {
    let mut long = BTreeMap::new();
    for source in sources(&[".rs"])? {
        let lines = source.text.lines().count();
        if lines > MAX_FILE_LINES {
            long.insert(source.name, lines);
        }
    }
    for (name, _) in LONGER {
        let was = long.remove(*name);
        assert!(
            was.is_some(),
            "{name} has at most {MAX_FILE_LINES} lines: take it off the list of exceptions"
        );
    }
    assert!(
        long.is_empty(),
        "more than {MAX_FILE_LINES} lines, and no exception: {long:?}"
    );
    Ok(())
}

#[test]
fn crates_import_only_whom_they_may() -> Result<()> {
    let mut seen = BTreeSet::new();
    for source in sources(&["Cargo.toml"])? {
        let manifest: toml::Table = toml::from_str(&source.text)?;
        let Some(package) = manifest.get("package") else {
            continue;
        };
        let name = package["name"]
            .as_str()
            .context("a package has a name")?
            .to_owned();
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
        let ours = dependencies
            .into_iter()
            .flat_map(toml::Table::keys)
            .filter(|name| name.starts_with("covenant"));
        if name == "covenant-tests" {
            continue;
        }
        let allowed = named(CRATES, &name).with_context(|| format!("{name} is not in the table"))?;
        for import in ours {
            assert!(
                allowed.contains(&import.as_str()),
                "{name} may not import {import}"
            );
        }
        let other = manifest.get("build-dependencies").and_then(toml::Value::as_table);
        let building: Vec<_> = other
            .into_iter()
            .flat_map(toml::Table::keys)
            .filter(|name| name.starts_with("covenant"))
            .collect();
        assert!(building.is_empty(), "{name} needs {building:?} to be built");
        seen.insert(name);
    }
    for (name, allowed) in CRATES {
        assert!(
            seen.contains(*name),
            "{name} is in the table and not in the repository"
        );
        assert!(!allowed.contains(&"covenant-tests"), "nothing imports the tests");
    }
    Ok(())
}

#[test]
fn modules_import_only_whom_they_may() -> Result<()> {
    for (root, table) in [
        ("coordinator/src/", COORDINATOR),
        ("participant/src/", PARTICIPANT),
    ] {
        let mut seen = BTreeSet::new();
        for source in sources(&[".rs"])? {
            let Some(path) = source.name.strip_prefix(root) else {
                continue;
            };
            if source.is_test() {
                continue;
            }
            let module = path.split(['/', '.']).next().unwrap_or_default();
            let allowed =
                named(table, module).with_context(|| format!("{} is not in the table", source.name))?;
            for import in imports(&source.shipped()) {
                let is_known = named(table, &import).is_some();
                assert!(
                    is_known,
                    "{} imports {import}, which is no module of the table",
                    source.name
                );
                let may = import == module || allowed.contains(&import.as_str());
                assert!(may, "{} may not import {import}", source.name);
            }
            seen.insert(module.to_owned());
        }
        for (module, _) in table {
            assert!(
                seen.contains(*module),
                "{root}{module} is in the table and not in the repository"
            );
        }
    }
    Ok(())
}

/// The modules behind every `crate::` of a text, the root's own types by where they live.
fn imports(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        let names: Vec<&str> = match rest.strip_prefix('{') {
            // A group: only the heads of its members count, at the outer level.
            Some(group) => heads(group),
            None => vec![rest],
        };
        for name in names {
            let end = name
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(name.len());
            let name = &name[..end];
            let home = ROOT_TYPES
                .iter()
                .find(|(known, _)| *known == name)
                .map_or(name, |(_, home)| home);
            found.insert(home.to_owned());
        }
    }
    found
}

fn heads(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut heads) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                heads.push(group[start..at].trim());
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                heads.push(group[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    heads.retain(|head| !head.is_empty());
    heads
}

#[test]
fn wire_types_stop_at_the_doors_and_only_the_journal_knows_sled() -> Result<()> {
    for source in sources(&[".rs"])?.iter().filter(|source| !source.is_test()) {
        let shipped = source.shipped();
        for (root, doors) in DOORS {
            let inside = source
                .name
                .strip_prefix(root)
                .and_then(|path| path.strip_prefix('/'));
            let is_door = inside.is_some_and(|path| doors.iter().any(|door| path.starts_with(door)));
            let is_wire = shipped.contains("covenant_proto::");
            assert!(
                inside.is_none() || is_door || !is_wire,
                "{} names wire types and is no door",
                source.name
            );
        }
        let journal = source.name.starts_with("proto/journal/");
        assert!(
            journal || !shipped.contains("sled::"),
            "{} knows sled",
            source.name
        );
    }
    Ok(())
}

#[test]
fn nothing_is_left_for_later_and_no_test_is_switched_off() -> Result<()> {
    // Put together here, so that this file does not find itself.
    let notes = [
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
        ["X", "XX"].concat(),
    ];
    let ignored = ["#[", "ignore"].concat();
    let extensions = [
        ".rs",
        ".proto",
        ".toml",
        ".yaml",
        ".service",
        "Containerfile",
        "run",
    ];
    for source in sources(&extensions)? {
        for (number, line) in source.text.lines().enumerate() {
            let mut words = line.split(|c: char| !c.is_alphanumeric());
            let note = words.find(|word| notes.iter().any(|note| note == word));
            assert!(note.is_none(), "{}:{} has a {note:?}", source.name, number + 1);
            assert!(
                !line.contains(&ignored),
                "{}:{} switches a test off",
                source.name,
                number + 1
            );
        }
    }
    Ok(())
}

#[test]
fn unwrap_is_for_tests() -> Result<()> {
    for source in sources(&[".rs"])?.iter().filter(|source| !source.is_test()) {
        for (number, line) in source.shipped().lines().enumerate() {
            let unwraps = line.contains(".unwrap()");
            assert!(
                !unwraps,
                "{} unwraps, in line {} of its shipped part: {line}",
                source.name,
                number + 1
            );
        }
    }
    Ok(())
}

#[test]
fn the_rules_themselves_find_what_they_look_for() {
    let source = |text: &str| Source {
        name: "coordinator/src/x.rs".into(),
        text: text.into(),
    };
    let shipped = source(
        "use a;\n#[cfg(test)]\nmod tests {\n    x.unwrap();\n}\nfn b() {}\n#[cfg(test)]\nmod t;\nc\n// d\n",
    );
    assert_eq!(shipped.shipped(), "use a;\nfn b() {}\nc\n");
    let found = imports("use crate::{Config, input::{A, B}, Error};\nuse crate::outbox::Outbox;\n");
    let expected = ["config", "error", "input", "outbox"].map(str::to_owned);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    assert!(PathBuf::from(repository()).join("Cargo.toml").exists());
}
