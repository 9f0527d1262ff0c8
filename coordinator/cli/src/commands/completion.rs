//! `covenant completion SHELL`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::{Exit, Failure};
use crate::output;

/// Print a completion script for a shell.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  source <(covenant completion bash)                       this shell only
  covenant completion bash > /etc/bash_completion.d/covenant
  covenant completion zsh > ~/.zfunc/_covenant")]
pub(crate) struct Args {
    /// The shell.
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "covenant", &mut script);
    output::write(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
