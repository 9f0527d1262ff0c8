//! The `covenant` command: the servers, and everything that talks to them.
//!
//! `covenant serve` is a coordinator, `covenant ledger` a demo participant; the other commands are callers and
//! operators. Data goes to stdout in the format of `--output`, talk to stderr, and the exit code says which kind of
//! answer it was ([`exit::Exit`]). Each noun has a file or a folder in `commands`, each verb a file in it.
//!
//! It leaves out what belongs to the crates behind it: retries and UNKNOWN (covenant-client), the protocol
//! (covenant-coordinator, covenant-participant), balances (covenant-ledger).

mod args;
mod commands;
mod exit;
mod ledger_client;
mod logs;
mod output;
mod own_process;
mod parse;
mod place;
mod server_kind;
mod servers;
mod settings;
mod view;

use std::io;
use std::process::ExitCode;
use std::thread::available_parallelism;

use clap::Parser;
use tokio::runtime::{Builder, Runtime};

use crate::exit::{Exit, Failure};
use crate::output::Output;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One thread for every two cores: the loop decides on one of them, and the journal's committer and the other processes
/// of a small machine need the rest. More threads than work only hand each other their wake-ups.
fn runtime() -> io::Result<Runtime> {
    let threads = available_parallelism().map_or(1, |cores| cores.get() / 2).max(1);
    if threads == 1 {
        return Builder::new_current_thread().enable_all().build();
    }
    Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
}

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            let failure = Failure::internal("RUNTIME", format!("the runtime did not start: {error}"));
            return Output::default().fail(&failure).into();
        }
    };
    let exit: Exit = runtime.block_on(commands::run(cli.command));
    // A thread that hangs in the store must not keep the process.
    runtime.shutdown_background();
    exit.into()
}
