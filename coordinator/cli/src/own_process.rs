//! This command as a child process of itself.

use std::io;
use std::process::Command;

/// This program, with none of the configuration that the caller's environment holds; what it logs stays as it is asked for.
pub(crate) fn command() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        if name.starts_with("COVENANT_") && name != crate::logs::FILTER_VARIABLE {
            command.env_remove(&variable);
        }
    }
    Ok(command)
}
