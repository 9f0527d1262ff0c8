//! `covenant config show`.

use super::ConfigArgs;
use crate::args::OutputArgs;
use crate::exit::{Exit, Failure};
use crate::output;

/// Print the configuration in force, and where each value came from.
#[derive(clap::Args)]
#[command(after_help = "\
The default, then the file, then the environment, then flags: the later one counts. The variable of a key is COVENANT_ and the key in capitals, `__` for the dot:
transactions.max_in_progress is COVENANT_TRANSACTIONS__MAX_IN_PROGRESS. A key that does not exist is refused.

What is printed is TOML with each origin as a comment, and a valid --config file; with -o json or -o yaml the values and
their origins stand side by side.

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
    if output.is_for_programs() {
        output.one(&settings.shown(), |_| Vec::new())?;
    } else {
        let text = settings
            .to_toml()
            .map_err(|error| Failure::internal("CONFIG", error.to_string()))?;
        output::write(&text)?;
    }
    Ok(Exit::Done)
}
