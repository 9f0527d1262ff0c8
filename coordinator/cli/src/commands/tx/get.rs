//! `covenant tx get ID`.

use covenant_client::{Outcome, UnixMillis};

use super::show;
use crate::args::{EndpointArgs, OutputArgs, read_patience};
use crate::exit::{Exit, Failure};
use crate::parse;

/// Say what became of a transaction.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes: 0 COMMITTED, ABORTED or IN_PROGRESS; 3 NOT_FOUND or EXPIRED; 7 UNKNOWN; 4 not reached.

With --created more can be said of an id without a record: NOT_FOUND is then `not committed as of now`, and an id from
before the coordinator's memory is EXPIRED or UNKNOWN. It is the time that `covenant transfer` printed.

OUTCOME is what may be relied on; COMMITTED and ABORTED are final. STATE is how far the work is: PREPARING, DECIDING,
COMMITTING (not every branch has acknowledged), COMMITTED, ABORTING, ABORTED. IN-DOUBT counts branches that voted YES and
wait for the decision, or have not acknowledged COMMIT. HEURISTIC is NONE unless somebody decided a branch by hand, or its
state was lost. With `-o wide` DELIVERIES is how often a branch was sent something since the coordinator's start, and DETAIL
the reason in full.

Examples:
  covenant tx get T100
  covenant tx get T100 --created 2026-11-30T12:00:00.000Z -o json")]
pub(crate) struct Args {
    /// The transaction's id.
    #[arg(value_name = "ID", value_parser = parse::transaction_id)]
    id: String,
    /// The caller's first time for this id (RFC 3339 with milliseconds).
    #[arg(long, value_name = "TIME", value_parser = parse::time)]
    created: Option<UnixMillis>,
    #[command(flatten)]
    endpoint: EndpointArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

pub(super) async fn run(args: Args) -> Result<Exit, Failure> {
    let outcome = args
        .endpoint
        .client()?
        .get(&args.id, args.created, read_patience())
        .await?;
    let output = args.output.output();
    show(output, &outcome, &args.id, args.created, &args.endpoint, None).await?;
    Ok(exit(&outcome))
}

/// The answer to a question is done, whatever it says, unless there is none.
fn exit(outcome: &Outcome) -> Exit {
    match outcome {
        Outcome::Committed(_) | Outcome::Aborted(_) | Outcome::InProgress(_) => Exit::Done,
        Outcome::NotFound(_) | Outcome::Expired(_) => Exit::NotFound,
        Outcome::Unknown(_) => Exit::Unknown,
    }
}
