//! `covenant config show`.

use super::ConfigArgs;
use crate::args::OutputArgs;
use crate::exit::{Exit, Failure};
use crate::{output, settings};

/// Print the configuration in force, and where each value came from.
#[derive(clap::Args)]
#[command(after_help = "\
The default, then the file, then the environment, then flags: the later one counts. The variable of a key is COVENANT_ and the key in capitals, `__` for the dot:
transactions.max_in_progress is COVENANT_TRANSACTIONS__MAX_IN_PROGRESS. A key that does not exist is refused.

What is printed is TOML with each origin as a comment, and a valid --config file; -o wide prints columns, with the variable
of each key; with -o json or -o yaml the values and their origins stand side by side.

Examples:
  covenant config show > covenant.toml
  covenant config show --config covenant.toml -o json")]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let settings = args.config.load()?;
    let output = args.output.output();
    let unwritable = |error: settings::Error| Failure::internal("CONFIG", error.to_string());
    if output.is_for_programs() || output.is_wide() {
        let table = settings.table().map_err(unwritable)?;
        output.one(&settings.shown(), |_| vec![table])?;
    } else {
        output::write(&settings.to_toml().map_err(unwritable)?)?;
    }
    Ok(Exit::Done)
}
