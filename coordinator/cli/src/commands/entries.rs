//! `covenant entries`.

use crate::args::{LedgerArgs, OutputArgs, PageArgs, read_patience};
use crate::exit::{Exit, Failure};
use crate::ledger_client;
use crate::output::Output;
use crate::view::EntryView;

/// Show the entries of an account, newest first.
#[derive(clap::Args)]
#[command(after_help = "\
HELD-MS is how long the branch held, from PREPARED to COMMITTED. Amounts are in minor units.

Examples:
  covenant entries --account alice
  covenant entries --ledger http://127.0.0.1:7411 --account bob -o json")]
pub(crate) struct Args {
    /// The account.
    #[arg(long, value_name = "ACCOUNT")]
    account: String,
    #[command(flatten)]
    ledger: LedgerArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(crate) fn output(&self) -> Output {
        self.output.output()
    }
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let (size, token) = (args.page.page_size, args.page.page_token.clone());
    let page = ledger_client::entries_page(&args.ledger.link()?, &args.account, size, token, read_patience())
        .await?;
    let shown: Vec<_> = page.entries.iter().map(EntryView::of).collect();
    let table = |wide| EntryView::table(&shown, wide);
    args.output()
        .list("entries", &shown, &page.next_page_token, table)?;
    args.page.hint(&page.next_page_token);
    Ok(Exit::Done)
}
