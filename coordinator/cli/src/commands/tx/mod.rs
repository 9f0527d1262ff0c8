//! `covenant tx`: transactions at a coordinator.

mod abort;
mod advice;
mod get;
mod list;
mod watch;

use clap::Subcommand;
use covenant_client::{Outcome, UnixMillis};

use crate::args::{EndpointArgs, say};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::server_kind;
use crate::view::TransactionView;
use advice::{Advice, Known};

pub(crate) use advice::tx_command;

/// What can be done with transactions.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Say what became of a transaction.
    Get(get::Args),
    /// List transactions: the unfinished first, then from the latest decision on.
    List(list::Args),
    /// Follow transactions as they change, until interrupted.
    Watch(watch::Args),
    /// Abort a transaction that is not decided yet.
    Abort(abort::Args),
}

pub(crate) async fn run(verb: Verb) -> (Output, Result<Exit, Failure>) {
    match verb {
        Verb::Get(args) => (args.output.output(), get::run(args).await),
        Verb::List(args) => (args.output.output(), list::run(args).await),
        Verb::Watch(args) => (args.output.output(), watch::run(args).await),
        Verb::Abort(args) => (args.output.output(), abort::run(args).await),
    }
}

/// Shows an outcome, and on stderr what it means and what to do if it is not final; `again` sends the same again.
pub(crate) async fn show(
    output: Output,
    outcome: &Outcome,
    id: &str,
    created: Option<UnixMillis>,
    endpoint: &EndpointArgs,
    again: Option<&str>,
) -> Result<(), Failure> {
    let known = Known {
        id,
        created,
        endpoint,
        again,
    };
    let elsewhere = match outcome {
        Outcome::Unknown(unknown) if unknown.is_wrong_server() => {
            Some(server_kind::at(&endpoint.endpoint).await)
        }
        _ => None,
    };
    let advice = Advice::of(outcome, &known, elsewhere);
    let mut shown = TransactionView::of_outcome(outcome, id, created);
    shown.next = advice.next.first().cloned();
    output.one(&shown, |wide| shown.tables(wide))?;
    advice.lines.iter().for_each(|line| say(line));
    advice.next.iter().for_each(|next| say(&format!("next: {next}")));
    Ok(())
}
