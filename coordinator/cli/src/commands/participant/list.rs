//! `covenant participant list`.

use crate::args::{EndpointArgs, OutputArgs, PageArgs, read_patience};
use crate::exit::{Exit, Failure};
use crate::view::ParticipantView;

/// List every participant that ever joined.
#[derive(clap::Args)]
#[command(after_help = "\
SINCE is when the present session began; IN-PROGRESS and IN-DOUBT count the participant's branches. With `-o wide` INCARNATION
counts its starts, VERSION is the protocol's, and below FLOOR it may forget what it finished.

Examples:
  covenant participant list
  covenant participant list -o wide --endpoint http://127.0.0.1:7400")]
pub(crate) struct Args {
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    endpoint: EndpointArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

pub(super) async fn run(args: Args) -> Result<Exit, Failure> {
    let client = args.endpoint.client()?;
    let page = client
        .participants(args.page.page_size, &args.page.page_token, read_patience())
        .await?;
    let shown: Vec<_> = page.participants.iter().map(ParticipantView::of).collect();
    let table = |wide| ParticipantView::table(&shown, wide);
    args.output
        .output()
        .list("participants", &shown, &page.next_page_token, table)?;
    args.page.hint(&page.next_page_token);
    Ok(Exit::Done)
}
