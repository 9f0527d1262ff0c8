//! `covenant demo`: the case study on this machine, crashes included.
//!
//! A coordinator and two ledgers run as separate processes on a temporary directory. The story (`story.rs`) sends
//! transfers, lets processes die at named points, restarts them, and checks after each step what callers were told and
//! what the ledgers hold. Every wait has a deadline; a wait that fails says what it waited for and shows the end of the
//! log concerned. The processes are killed on every way out, but with `--keep` after the story.
//!
//! It shows process crashes only: what a power cut does to unsynced bytes cannot be shown from inside one machine.

mod child;
mod holds;
mod money;
mod story;
mod timeline;
mod world;

use crate::args::OutputArgs;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::servers::Stop;
use story::Story;
use timeline::Timeline;
use world::World;

/// Watch transfers survive crashes: three processes on this machine, about ten seconds.
#[derive(clap::Args)]
#[command(after_help = "\
A coordinator and two ledgers are started on free ports in a temporary directory on a disk (TMPDIR, /var/tmp or the present
one), and everything is removed at the end unless --keep is given. The last line on stdout is the verdict; with -o json, jsonl
or yaml one report is printed instead, and the timeline goes to stderr.

Exit codes: 0 every check held; 1 a check did not hold, or the demo was interrupted; 70 it could not be carried through.

Examples:
  covenant demo
  covenant demo --keep
  covenant demo -o json > report.json")]
pub(crate) struct Args {
    /// Leave the three processes running at the end, and say how to talk to them.
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(crate) fn output(&self) -> Output {
        self.output.output()
    }
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let output = args.output();
    let stop = Stop::on_signal()?;
    let mut timeline = Timeline::new(output);
    // Dropped at the end of this function, panics included: the processes are killed and the directory is removed.
    let mut world = None;
    let told = tokio::select! {
        told = tell(&mut world, &mut timeline, args.keep) => told,
        () = stop.wait() => Err(Failure::new(Exit::Negative, "INTERRUPTED", "the demo was interrupted")),
    };
    if let (Err(_), Some(world)) = (&told, &world) {
        timeline.talk(&world.log_tails());
    }
    let kept = match world.take() {
        Some(world) if args.keep && told.is_ok() => Some(world.keep()),
        Some(_) | None => None,
    };
    timeline.end(told, kept)
}

/// Starts the three processes, tells the story, and returns what was held.
async fn tell(
    place: &mut Option<World>,
    timeline: &mut Timeline,
    keep: bool,
) -> Result<Vec<holds::Span>, Failure> {
    let world = place.insert(World::new(keep)?);
    world.start(timeline).await?;
    Story::new(world, timeline).tell().await
}
