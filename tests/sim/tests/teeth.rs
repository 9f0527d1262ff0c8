//! The checkers have teeth: with a fault planted in the shipped source, the unchanged simulation names the invariant; of
//! what the journal decides, its own unchanged test fails.
//!
//! `teeth/teeth.toml` is the table. All faults are planted into one copy of the sources, each behind a switch of its
//! own, so that one build serves them all; with no switch on, the copy behaves as the original and passes. What it
//! cannot show: teeth against faults in the other shells, which no seed runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The crates that are copied: those that hold a fault, and those between them and the simulation.
const COPIED: [&str; 6] = [
    "proto/rules",
    "proto/codec",
    JOURNAL,
    "participant",
    "participant/ledger",
    "tests/sim",
];
/// The other crates of ours that they need; they are used as they are.
const USED: [&str; 2] = ["proto", "proto/fault"];
/// The crate that may not depend on the rules, and whose faults its own tests must find.
const JOURNAL: &str = "proto/journal";
/// Seeds of the copy with no fault switched on.
const CLEAN_SEEDS: u64 = 2_000;
/// Seeds within which a fault must be found.
const SEEDS: u64 = 20_000;
/// The longest that building the copy, or a test of it, may take, in seconds.
const BUILD_S: u64 = 900;
/// The longest that the seeds of one fault may take, in seconds.
const SEEDS_S: u64 = 300;

/// A switch for each fault, in the copy of the rules.
const SWITCH: &str = "
/// The fault that is switched on; 0: none.
pub static TOOTH: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);

/// Whether this fault is switched on.
#[must_use]
pub fn tooth(number: u32) -> bool {
    TOOTH.load(core::sync::atomic::Ordering::Relaxed) == number
}
";

/// The same in the copy of the journal, for a test of its own.
const JOURNAL_SWITCH: &str = r#"
/// Whether this fault is switched on.
#[must_use]
pub fn tooth(number: u32) -> bool {
    std::env::var("COVENANT_TOOTH").is_ok_and(|on| on == number.to_string())
}
"#;

/// Switches a fault on and runs seeds until one of the invariants is named.
const RUNNER: &str = r#"
fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut args = std::env::args().skip(1);
    let mut number = || args.next().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let (tooth, seeds) = (number(), number());
    let expected: Vec<String> = args.collect();
    covenant_rules::TOOTH.store(tooth as u32, std::sync::atomic::Ordering::Relaxed);
    let mut others = std::collections::BTreeSet::new();
    for from in (0..seeds).step_by(250) {
        let batch = covenant_sim::batch::Batch::run(from, 250, 2, &|_| ());
        for violation in &batch.violations {
            let named = std::iter::once(violation.invariant).chain(violation.also.iter().copied());
            if let Some(found) = named.clone().find(|one| expected.iter().any(|name| name == one)) {
                println!("found {found} in seed {}: {}", violation.seed, violation.detail);
                return;
            }
            others.insert(format!("{}: {}", violation.invariant, violation.detail));
        }
    }
    println!("nothing of {expected:?} in {seeds} seeds, but {others:?}");
}
"#;

#[derive(Debug)]
struct Edit {
    file: String,
    find: String,
    replace: String,
}

#[derive(Debug)]
struct Tooth {
    name: String,
    found_by: FoundBy,
    edits: Vec<Edit>,
}

#[derive(Debug)]
enum FoundBy {
    /// The simulation, with one of these.
    Invariants(Vec<String>),
    /// A test: its package, its file and its name.
    Test(String, String, String),
}

fn repository() -> Result<PathBuf> {
    Ok(Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()?)
}

fn text(table: &toml::Table, key: &str) -> Result<String> {
    let value = table.get(key).and_then(toml::Value::as_str);
    Ok(value
        .with_context(|| format!("an entry of teeth.toml has no {key}"))?
        .to_owned())
}

fn tables<'a>(table: &'a toml::Table, key: &str) -> Vec<&'a toml::Table> {
    let all = table.get(key).and_then(toml::Value::as_array);
    all.into_iter()
        .flatten()
        .filter_map(toml::Value::as_table)
        .collect()
}

fn read_teeth(repository: &Path) -> Result<Vec<Tooth>> {
    let source = fs::read_to_string(repository.join("tests/sim/teeth/teeth.toml"))?;
    let table: toml::Table = toml::from_str(&source)?;
    let simulated = tables(&table, "tooth").into_iter().map(|tooth| {
        let invariants = tooth.get("invariants").and_then(toml::Value::as_array);
        let names = invariants.into_iter().flatten().filter_map(toml::Value::as_str);
        read_tooth(tooth, FoundBy::Invariants(names.map(str::to_owned).collect()))
    });
    let elsewhere = tables(&table, "elsewhere").into_iter().map(|tooth| {
        let [package, target, test] = ["package", "target", "test"].map(|key| text(tooth, key));
        read_tooth(tooth, FoundBy::Test(package?, target?, test?))
    });
    simulated.chain(elsewhere).collect()
}

fn read_tooth(tooth: &toml::Table, found_by: FoundBy) -> Result<Tooth> {
    let edit = |edit: &toml::Table| {
        Ok(Edit {
            file: text(edit, "file")?,
            find: text(edit, "find")?,
            replace: text(edit, "replace")?,
        })
    };
    let edits: Vec<Edit> = tables(tooth, "edit")
        .into_iter()
        .map(edit)
        .collect::<Result<_>>()?;
    let name = text(tooth, "name")?;
    ensure!(!edits.is_empty(), "{name:?} plants nothing");
    Ok(Tooth {
        name,
        found_by,
        edits,
    })
}

/// Writes only what changed, so that a second run has nothing to build.
fn write(path: &Path, content: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().context("a file lies in a directory")?)?;
    Ok(fs::write(path, content)?)
}

/// Copies the sources of a crate, and plants the faults that belong into them.
fn copy(repository: &Path, scratch: &Path, directory: &str, teeth: &[Tooth]) -> Result<()> {
    let mut open = vec![PathBuf::from(directory).join("src")];
    if directory == JOURNAL {
        open.push(PathBuf::from(directory).join("tests"));
    }
    let mut files = vec![PathBuf::from(directory).join("Cargo.toml")];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(repository.join(&at))? {
            let entry = entry?;
            let path = at.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                open.push(path);
            } else {
                files.push(path);
            }
        }
    }
    for file in files {
        let original = fs::read_to_string(repository.join(&file))?;
        let mut planted = plant(&file, original, teeth)?;
        if file == Path::new("proto/rules/src/lib.rs") {
            planted.push_str(SWITCH);
        }
        if file == Path::new(JOURNAL).join("src/lib.rs") {
            planted.push_str(JOURNAL_SWITCH);
        }
        write(&scratch.join(&file), &planted)?;
    }
    Ok(())
}

fn plant(file: &Path, mut source: String, teeth: &[Tooth]) -> Result<String> {
    let original = source.clone();
    for (number, tooth) in (1..).zip(teeth) {
        for edit in tooth.edits.iter().filter(|edit| Path::new(&edit.file) == file) {
            let count = original.matches(&edit.find).count();
            ensure!(
                count == 1,
                "{:?}: `find` occurs {count} times in {}; mend it in teeth.toml:\n{}",
                tooth.name,
                edit.file,
                edit.find
            );
            let own_switch = ["proto/rules", JOURNAL];
            let krate = if own_switch.iter().any(|of| edit.file.starts_with(of)) {
                "crate"
            } else {
                "covenant_rules"
            };
            let switched = edit
                .replace
                .replace("TOOTH", &format!("{krate}::tooth({number})"));
            source = source.replace(&edit.find, &switched);
        }
    }
    Ok(source)
}

/// The workspace of the copy: the original's, with other members and the same pinned dependencies.
fn workspace(repository: &Path, scratch: &Path) -> Result<()> {
    let mut root: toml::Table = toml::from_str(&fs::read_to_string(repository.join("Cargo.toml"))?)?;
    let own = root.get_mut("workspace").and_then(toml::Value::as_table_mut);
    let own = own.context("the repository is a workspace")?;
    let members = COPIED.iter().copied().chain(["runner"]);
    own.insert(
        "members".to_owned(),
        members.map(toml::Value::from).collect::<Vec<_>>().into(),
    );
    own.remove("default-members");
    // Another version keeps its artifacts apart from the original's.
    let package = own.get_mut("package").and_then(toml::Value::as_table_mut);
    package
        .context("the workspace names a version")?
        .insert("version".to_owned(), "0.1.0-teeth".into());
    let dependencies = own.get_mut("dependencies").and_then(toml::Value::as_table_mut);
    let dependencies = dependencies.context("the workspace names its dependencies")?;
    for (_, dependency) in dependencies.iter_mut() {
        let Some(path) = dependency.get("path").and_then(toml::Value::as_str) else {
            continue;
        };
        if USED.contains(&path) {
            let absolute = repository.join(path);
            let table = dependency.as_table_mut().context("a path stands in a table")?;
            table.insert("path".to_owned(), absolute.display().to_string().into());
        }
    }
    write(&scratch.join("Cargo.toml"), &toml::to_string(&root)?)?;
    if !scratch.join("Cargo.lock").exists() {
        fs::copy(repository.join("Cargo.lock"), scratch.join("Cargo.lock"))?;
    }
    let manifest = "[package]\nname = \"covenant-teeth\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n\
                    covenant-rules.workspace = true\ncovenant-sim.workspace = true\n";
    write(&scratch.join("runner/Cargo.toml"), manifest)?;
    write(&scratch.join("runner/src/main.rs"), RUNNER)
}

/// A command that ends, with all that it started, after so many seconds.
fn within(seconds: u64, program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10", &seconds.to_string()])
        .arg(program);
    command
}

fn target(repository: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository.join("target"), PathBuf::from)
}

/// Cargo on the copy, beside the original's own artifacts, so that what both depend on is built once.
fn cargo(repository: &Path, scratch: &Path) -> Command {
    let mut cargo = within(BUILD_S, Path::new(env!("CARGO")));
    cargo
        .current_dir(scratch)
        .env("CARGO_TARGET_DIR", target(repository))
        .env_remove("RUSTFLAGS");
    cargo
}

fn build(repository: &Path, scratch: &Path) -> Result<PathBuf> {
    let built = cargo(repository, scratch)
        .args(["build", "--quiet", "--offline", "-p", "covenant-teeth"])
        .output()?;
    if !built.status.success() {
        bail!(
            "the copy does not build ({}):\n{}",
            built.status,
            String::from_utf8_lossy(&built.stderr)
        );
    }
    Ok(target(repository).join("debug/covenant-teeth"))
}

fn find(runner: &Path, tooth: u64, seeds: u64, expected: &[String]) -> Result<String> {
    let arguments = [tooth.to_string(), seeds.to_string()];
    let run = within(SEEDS_S, runner).args(arguments).args(expected).output()?;
    ensure!(
        run.status.success(),
        "{}: {}",
        run.status,
        String::from_utf8_lossy(&run.stderr)
    );
    Ok(String::from_utf8(run.stdout)?)
}

/// Whether a test of the copy passes with this fault switched on; 0: none.
fn passes(mut cargo: Command, [package, target, test]: [&String; 3], tooth: u64) -> Result<bool> {
    let run = cargo
        .args(["test", "--quiet", "--offline", "-p", package, "--test", target])
        .args(["--", "--exact", test])
        .env("COVENANT_TOOTH", tooth.to_string())
        .output()?;
    let said = String::from_utf8(run.stdout)?;
    match (
        said.contains(" 1 passed; 0 failed"),
        said.contains(" 0 passed; 1 failed"),
    ) {
        (true, false) => Ok(true),
        (false, true) => Ok(false),
        _ => bail!(
            "{test} was not run ({}):\n{said}{}",
            run.status,
            String::from_utf8_lossy(&run.stderr)
        ),
    }
}

/// What is wrong with the list itself.
fn validate(teeth: &[Tooth]) -> Result<()> {
    let known = covenant_sim::invariants();
    for tooth in teeth {
        if let FoundBy::Invariants(names) = &tooth.found_by {
            let unknown = names.iter().find(|name| !known.contains(&name.as_str()));
            ensure!(
                unknown.is_none(),
                "{:?} expects {unknown:?}, which has no checker",
                tooth.name
            );
        }
        for edit in &tooth.edits {
            let copied = COPIED.iter().any(|directory| edit.file.starts_with(directory));
            ensure!(
                copied,
                "{:?} edits {}, which is not copied",
                tooth.name,
                edit.file
            );
        }
    }
    Ok(())
}

#[test]
fn the_unchanged_checks_find_every_planted_fault() -> Result<()> {
    let repository = repository()?;
    let teeth = read_teeth(&repository)?;
    let scratch = repository.join("target/teeth");
    validate(&teeth)?;
    workspace(&repository, &scratch)?;
    for directory in COPIED {
        copy(&repository, &scratch, directory, &teeth)?;
    }
    let runner = build(&repository, &scratch)?;
    let all: Vec<String> = covenant_sim::invariants()
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    let clean = find(&runner, 0, CLEAN_SEEDS, &all)?;
    ensure!(
        clean.starts_with("nothing") && clean.ends_with("but {}\n"),
        "with no fault: {clean}"
    );
    let mut missed = Vec::new();
    for (number, tooth) in (1..).zip(&teeth) {
        let found = match &tooth.found_by {
            FoundBy::Invariants(names) => find(&runner, number, SEEDS, names)?,
            FoundBy::Test(package, target, test) => {
                let run = |number| passes(cargo(&repository, &scratch), [package, target, test], number);
                ensure!(run(0)?, "{test} fails with no fault");
                let found = if run(number)? { "missed by" } else { "found by" };
                format!("{found} {test}")
            }
        };
        println!("{}: {}", tooth.name, found.trim_end());
        if !found.starts_with("found") {
            missed.push(format!("{}: {found}", tooth.name));
        }
    }
    ensure!(missed.is_empty(), "not found:\n{}", missed.join("\n"));
    Ok(())
}
