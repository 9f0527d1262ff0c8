//! The `covenant` binary under test, and examples that tests run. Cargo builds no binary of another package for a test, so
//! this does.
//!
//! It is built in the profile and the target directory of the running test, and with the features that
//! `cargo test --workspace` gives the shared dependencies, so that none of them is built twice. Cargo's own lock keeps
//! test binaries that run at the same time from building it twice.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

/// The binary of the command, built if it has to be.
///
/// # Errors
/// What cargo says when the build fails.
pub fn binary() -> Result<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match BINARY.get_or_init(|| build("--bin", "covenant").map_err(|error| format!("{error:#}"))) {
        Ok(path) => Ok(path),
        Err(why) => bail!("the covenant binary was not built: {why}"),
    }
}

/// An example of one of the workspace's packages, built if it has to be.
///
/// # Errors
/// What cargo says when the build fails.
pub fn example(name: &str) -> Result<PathBuf> {
    build("--example", name).with_context(|| format!("the example {name} was not built"))
}

/// A new directory on the disk of the target directory: logs refuse a tmpfs, which `/tmp` may be.
///
/// # Errors
/// What the operating system says.
pub fn scratch() -> Result<TempDir> {
    let scratch = Place::of_this_test()?.target.join("tmp");
    std::fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    let made = tempfile::Builder::new().prefix("covenant-").tempdir_in(&scratch);
    made.with_context(|| format!("cannot make a directory in {}", scratch.display()))
}

/// The root of the repository.
#[must_use]
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Where the running executable stands: `TARGET/[TRIPLE/]PROFILE/[deps/]NAME`.
struct Place {
    target: PathBuf,
    triple: Option<String>,
    profile: String,
}

impl Place {
    fn of_this_test() -> Result<Self> {
        let executable = env::current_exe().context("cannot tell where this test stands")?;
        let mut directory = executable.parent().context("a test stands in a directory")?;
        if matches!(
            directory.file_name().and_then(OsStr::to_str),
            Some("deps" | "examples")
        ) {
            directory = directory.parent().context("deps stands in a profile")?;
        }
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let profile = name(directory).context("a profile has a name")?;
        let mut target = directory
            .parent()
            .context("a profile stands in a target directory")?;
        let mut triple = None;
        // Cargo marks the target directory itself so, and no directory of a triple.
        if !target.join("CACHEDIR.TAG").exists()
            && let Some(above) = target
                .parent()
                .filter(|above| above.join("CACHEDIR.TAG").exists())
        {
            triple = name(target);
            target = above;
        }
        Ok(Self {
            target: target.to_path_buf(),
            triple,
            profile,
        })
    }
}

/// Builds `--bin NAME` or `--example NAME`.
fn build(kind: &str, name: &str) -> Result<PathBuf> {
    let place = Place::of_this_test()?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // A test among the targets makes cargo count the features of development dependencies, as `cargo test` does.
    command
        .current_dir(repository())
        .args(["build", "--quiet", "--workspace", kind, name, "--test", "house"])
        .args([
            "--profile",
            if place.profile == "debug" {
                "dev"
            } else {
                &place.profile
            },
        ])
        .arg("--target-dir")
        .arg(&place.target);
    if let Some(triple) = &place.triple {
        command.args(["--target", triple]);
    }
    // What cargo says to tests of themselves is not meant for this build, and would make it look like another one.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_")
            || text.starts_with("CARGO_MANIFEST_")
            || text.starts_with("CARGO_BIN_")
        {
            command.env_remove(&name);
        }
    }
    let output = command.output().context("cargo did not start")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "cargo ended with {}: {said}",
        output.status
    );
    let mut binary = place.target;
    binary.extend(place.triple);
    binary.push(place.profile);
    if kind == "--example" {
        binary.push("examples");
    }
    binary.push(name);
    ensure!(binary.exists(), "cargo built no {}", binary.display());
    Ok(binary)
}
