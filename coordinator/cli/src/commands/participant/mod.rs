//! `covenant participant`: who takes part at a coordinator.

mod list;

use clap::Subcommand;

use crate::exit::{Exit, Failure};
use crate::output::Output;

/// What can be done with participants.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// List every participant that ever joined.
    List(list::Args),
}

pub(crate) async fn run(verb: Verb) -> (Output, Result<Exit, Failure>) {
    match verb {
        Verb::List(args) => (args.output.output(), list::run(args).await),
    }
}
