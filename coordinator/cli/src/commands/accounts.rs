//! `covenant accounts`.

use crate::args::{LedgerArgs, OutputArgs, say};
use crate::exit::{Exit, Failure};
use crate::ledger_client;
use crate::output::Output;
use crate::view::AccountView;

/// Show the accounts of a ledger.
#[derive(clap::Args)]
#[command(after_help = "\
Amounts are in minor units. POSTED is what committed transfers left; PENDING-DEBIT and PENDING-CREDIT are what prepared
branches hold; AVAILABLE is what a new debit may take.

Examples:
  covenant accounts
  covenant accounts --ledger http://127.0.0.1:7411 -o json")]
pub(crate) struct Args {
    #[command(flatten)]
    ledger: LedgerArgs,
    /// Show the ledger's own accounts too: @clearing and @opening of each currency.
    #[arg(long)]
    system: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(crate) fn output(&self) -> Output {
        self.output.output()
    }
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let listed = ledger_client::accounts(&args.ledger.link()?, args.system).await?;
    let shown: Vec<_> = listed.items.iter().map(AccountView::of).collect();
    args.output()
        .list("accounts", &shown, "", |_| AccountView::table(&shown))?;
    if listed.is_cut {
        say(&format!("only the first {} accounts are shown", shown.len()));
    }
    Ok(Exit::Done)
}
