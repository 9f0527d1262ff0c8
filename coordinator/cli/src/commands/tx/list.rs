//! `covenant tx list`.

use clap::ValueEnum;
use covenant_client::v1::StateFilter;

use crate::args::{EndpointArgs, OutputArgs, PageArgs, read_patience};
use crate::exit::{Exit, Failure};
use crate::view::TransactionView;

/// Which transactions to list.
#[derive(Clone, Copy, ValueEnum)]
enum State {
    /// The decision is not durable yet.
    InProgress,
    /// Committed, and some participant has not acknowledged.
    Committing,
    /// At least one branch voted YES and does not know the decision.
    InDoubt,
    /// The outcome is COMMITTED, those that are still committing included.
    Committed,
    /// The outcome is ABORTED.
    Aborted,
}

/// List transactions: the unfinished first, then from the latest decision on.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  covenant tx list --state in-doubt
  covenant tx list --page-size 10 -o jsonl")]
pub(crate) struct Args {
    /// Only those in this state.
    #[arg(long, value_name = "STATE", value_enum)]
    state: Option<State>,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    endpoint: EndpointArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

pub(super) async fn run(args: Args) -> Result<Exit, Failure> {
    let filter = args.state.map_or(StateFilter::Unspecified, |state| match state {
        State::InProgress => StateFilter::InProgress,
        State::Committing => StateFilter::Committing,
        State::InDoubt => StateFilter::InDoubt,
        State::Committed => StateFilter::Committed,
        State::Aborted => StateFilter::Aborted,
    });
    let client = args.endpoint.client()?;
    let page = client
        .list(
            filter,
            args.page.page_size,
            &args.page.page_token,
            read_patience(),
        )
        .await?;
    let shown: Vec<_> = page.transactions.iter().map(TransactionView::of).collect();
    let table = |wide| TransactionView::table(&shown, wide);
    args.output
        .output()
        .list("transactions", &shown, &page.next_page_token, table)?;
    args.page.hint(&page.next_page_token);
    Ok(Exit::Done)
}
