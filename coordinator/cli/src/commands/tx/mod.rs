//! `covenant tx`: transactions at a coordinator.

mod abort;
mod get;
mod list;
mod watch;

use clap::Subcommand;
use covenant_client::{Outcome, UnixMillis};

use crate::args::{EndpointArgs, say};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::parse::{quoted, time_text};
use crate::view::TransactionView;

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

/// The command that asks for an outcome without any risk.
pub(crate) fn get_command(id: &str, created: Option<UnixMillis>, endpoint: &EndpointArgs) -> String {
    // An id that begins with a dash would be read as an option.
    let id = if id.starts_with('-') {
        format!("-- {}", quoted(id))
    } else {
        quoted(id)
    };
    let created = created
        .map(|created| format!("--created {} ", time_text(created)))
        .unwrap_or_default();
    let options = format!("{created}{}", endpoint.to_option().trim_start());
    let options = options.trim_end();
    if options.is_empty() {
        format!("covenant tx get {id}")
    } else {
        format!("covenant tx get {options} {id}")
    }
}

/// Shows an outcome, and on stderr what to do if it is not final.
pub(crate) fn show(
    output: Output,
    outcome: &Outcome,
    id: &str,
    created: Option<UnixMillis>,
    next: &[String],
) -> Result<(), Failure> {
    let mut shown = TransactionView::of_outcome(outcome, id, created);
    let is_open = matches!(outcome, Outcome::Unknown(_) | Outcome::InProgress(_));
    if is_open {
        shown.next = next.first().cloned();
    }
    output.one(&shown, |wide| shown.tables(wide))?;
    if let Outcome::Unknown(unknown) = outcome {
        say(&format!("covenant: the outcome of {id} is UNKNOWN: {unknown}"));
        say(&format!(
            "It may have been committed or not. Safe now: {}.",
            unknown.safe_next_step()
        ));
    }
    if is_open {
        next.iter().for_each(|next| say(&format!("next: {next}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_safe_next_command_carries_created_and_a_foreign_endpoint() {
        let endpoint = |endpoint: &str| EndpointArgs {
            endpoint: endpoint.to_owned(),
        };
        let (here, there) = (
            endpoint("http://127.0.0.1:7400"),
            endpoint("http://10.0.0.1:7400"),
        );
        assert_eq!(get_command("T100", None, &here), "covenant tx get T100");
        assert_eq!(
            get_command("T 100", Some(0), &there),
            "covenant tx get --created 1970-01-01T00:00:00.000Z --endpoint http://10.0.0.1:7400 'T 100'"
        );
        assert_eq!(get_command("-T", None, &here), "covenant tx get -- -T");
    }
}
