//! `covenant tx abort ID`.

use std::time::Duration;

use covenant_client::{Outcome, UnixMillis};

use super::show;
use crate::args::{EndpointArgs, OutputArgs};
use crate::exit::{Exit, Failure};
use crate::parse;

/// Abort a transaction that is not decided yet.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes: 0 ABORTED; 1 it was COMMITTED before; 3 NOT_FOUND or EXPIRED; 7 UNKNOWN; 4 surely never sent.

An id that never ran is NOT_FOUND. With --created it is fenced instead: a send that is still under way will find it
aborted and run nothing.

Examples:
  covenant tx abort T100
  covenant tx abort T100 --created 2026-11-30T12:00:00.000Z")]
pub(crate) struct Args {
    /// The transaction's id.
    #[arg(value_name = "ID", value_parser = parse::transaction_id)]
    id: String,
    /// The caller's first time for this id (RFC 3339 with milliseconds).
    #[arg(long, value_name = "TIME", value_parser = parse::time)]
    created: Option<UnixMillis>,
    /// How long to go on asking for a definite answer.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse::duration)]
    timeout: Duration,
    #[command(flatten)]
    endpoint: EndpointArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

pub(super) async fn run(args: Args) -> Result<Exit, Failure> {
    let outcome = args
        .endpoint
        .client()?
        .abort(&args.id, args.created, args.timeout)
        .await?;
    let output = args.output.output();
    show(output, &outcome, &args.id, args.created, &args.endpoint, None).await?;
    Ok(exit(&outcome))
}

fn exit(outcome: &Outcome) -> Exit {
    match outcome {
        Outcome::Aborted(_) => Exit::Done,
        Outcome::Committed(_) => Exit::Negative,
        Outcome::NotFound(_) | Outcome::Expired(_) => Exit::NotFound,
        Outcome::InProgress(_) | Outcome::Unknown(_) => Exit::Unknown,
    }
}
