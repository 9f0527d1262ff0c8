//! The floor: the messages and the forced bytes of a transfer, with no protocol behind them.
//!
//! It is the hidden command `bench-floor`, in two roles. The floor's coordinator takes Execute, sends PREPARE, forces a
//! record of COMMIT's size when the votes are in, answers, sends COMMIT, and appends a record of END's size after the ACKs; the
//! floor's ledger forces a record of PREPARED's size before it votes and one of COMMITTED's before it acknowledges. Services,
//! messages, frames and connections are the shipped ones. No state survives, nothing is checked, and nothing ever aborts:
//! it is what transport and log cost by themselves.

mod coordinator;
mod ledger;

use std::net::SocketAddr;
use std::path::PathBuf;

use covenant_codec::ids;
use covenant_journal::{Force, HeadRef, Records};
use covenant_proto::v1;

use super::forced_log::{ForcedLog, LogKind};
use crate::exit::{Exit, Failure};
use crate::servers::StopArgs;

/// Part of `covenant bench --compare`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What it stands for.
    #[arg(long, value_enum)]
    role: Role,
    /// What forces its records.
    #[arg(long, value_enum)]
    log_kind: LogKind,
    /// Where its log is.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Payload bytes of the two records, as FIRST,SECOND.
    #[arg(long, value_name = "BYTES,BYTES", value_delimiter = ',', num_args = 1)]
    payload_bytes: Vec<usize>,
    /// The ledger's name.
    #[arg(long, value_name = "NAME", default_value = "")]
    name: String,
    /// The coordinator that the ledger joins.
    #[arg(long, value_name = "URL", default_value = "")]
    coordinator: String,
    /// Where the coordinator listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    #[command(flatten)]
    stop: StopArgs,
}

/// What a floor process stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Role {
    Coordinator,
    Ledger,
}

/// The two records of a role.
#[derive(Clone, Copy)]
struct Shapes {
    forced: usize,
    lazy: usize,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let [forced, lazy] = args.payload_bytes[..] else {
        return Err(Failure::usage(
            "PAYLOAD_BYTES",
            "--payload-bytes takes two numbers",
        ));
    };
    let shapes = Shapes { forced, lazy };
    let stop = args.stop.start()?;
    let (kind, directory) = (args.log_kind, args.data_dir.clone());
    let log = tokio::task::spawn_blocking(move || ForcedLog::open(kind, &directory))
        .await
        .map_err(|error| Failure::internal("FLOOR", error.to_string()))??;
    let server = async {
        match args.role {
            Role::Coordinator => coordinator::run(args.listen, log, shapes).await,
            Role::Ledger => ledger::run(&args.name, &args.coordinator, log, shapes).await,
        }
    };
    tokio::select! {
        ended = server => ended.map(|()| Exit::Done),
        () = stop.wait() => Ok(Exit::Done),
    }
}

/// Adds a record with the envelope of a real one and a payload of this size.
fn push(records: &mut Records, xid: v1::Xid, transaction_id: &str, force: Force, payload_bytes: usize) {
    let xid = ids::from_xid(xid).to_bytes();
    let head = HeadRef {
        kind: 1,
        xid: Some(&xid),
        transaction_id: (!transaction_id.is_empty()).then_some(transaction_id),
    };
    records.push_with(head, force, |buffer| {
        buffer.resize(buffer.len() + payload_bytes, 7)
    });
}

fn failed(error: &dyn std::error::Error) -> Failure {
    Failure::internal("FLOOR", crate::servers::one_line(error))
}
