//! `covenant tx watch`.

use crate::args::{EndpointArgs, OutputArgs, read_patience, say};
use crate::exit::{Exit, Failure};
use crate::output::Reader;
use crate::parse;
use crate::servers::Stop;
use crate::view::TransactionView;

/// Follow transactions as they change, until interrupted.
#[derive(clap::Args)]
#[command(after_help = "\
One line for each change; json and jsonl are both one compact object per line. With an ID its present state comes first.
The watch ends with 0 when it is interrupted, and with 7 when the coordinator goes away.

Examples:
  covenant tx watch
  covenant tx watch T100 -o jsonl")]
pub(crate) struct Args {
    /// Only this transaction; without it all of them, from now on.
    #[arg(value_name = "ID", value_parser = parse::transaction_id)]
    id: Option<String>,
    #[command(flatten)]
    endpoint: EndpointArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

pub(super) async fn run(args: Args) -> Result<Exit, Failure> {
    let stop = Stop::on_signal()?;
    let mut watch = args
        .endpoint
        .client()?
        .watch(args.id.as_deref(), read_patience())
        .await?;
    let mut is_first = true;
    loop {
        let change = tokio::select! {
            change = watch.next() => change?,
            () = stop.clone().wait() => return Ok(Exit::Done),
        };
        let Some(change) = change else {
            say("the coordinator ended the watch");
            return Ok(Exit::Unknown);
        };
        let shown = TransactionView::of(&change);
        let table = |wide| TransactionView::table(std::slice::from_ref(&shown), wide);
        if args.output.output().item(&shown, is_first, table)? == Reader::Gone {
            return Ok(Exit::Done);
        }
        is_first = false;
    }
}
