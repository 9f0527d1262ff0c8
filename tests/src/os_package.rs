//! Programs of the operating system that a test needs.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Makes sure that a program is there. On Debian, as root, its package of the same name is installed if it is not.
///
/// # Errors
/// The line to run, where this may not install it; what the installer says, where it failed.
pub fn require(program: &str) -> Result<()> {
    require_from(program, program)
}

/// The same for a program of a package that has another name.
///
/// # Errors
/// As [`require`].
pub fn require_from(program: &str, package: &str) -> Result<()> {
    install_unless(|| is_there(program), package)
}

/// The same for a package whose program is not on the path, but at this place.
///
/// # Errors
/// As [`require`].
pub fn require_at(program: &Path, package: &str) -> Result<()> {
    install_unless(|| program.is_file(), package)
}

fn install_unless(is_installed: impl Fn() -> bool, package: &str) -> Result<()> {
    if is_installed() {
        return Ok(());
    }
    let line = format!("apt-get install --yes --no-install-recommends {package}");
    let debian = Path::new("/etc/debian_version").exists() && is_there("apt-get");
    if !debian || !rustix::process::geteuid().is_root() {
        bail!("this test needs {package}; on Debian: {line}");
    }
    run("apt-get update --quiet")?;
    run(&line)?;
    ensure!(is_installed(), "`{line}` brought no {package}");
    Ok(())
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

fn run(line: &str) -> Result<()> {
    let mut words = line.split(' ');
    let output = Command::new(words.next().unwrap_or_default())
        .args(words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .output()
        .with_context(|| format!("`{line}` did not start"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`{line}` ended with {}: {said}",
        output.status
    );
    Ok(())
}
