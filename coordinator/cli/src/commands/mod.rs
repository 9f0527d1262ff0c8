//! One file for each noun or verb of the command line.

pub(crate) mod accounts;
pub(crate) mod bench;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod entries;
pub(crate) mod ledger;
pub(crate) mod participant;
pub(crate) mod serve;
pub(crate) mod transfer;
pub(crate) mod tx;

use crate::args::Command;
use crate::exit::Exit;
use crate::output::Output;
use crate::server_kind;

/// Runs a command to its end and says why if it has no answer.
pub(crate) async fn run(command: Command) -> Exit {
    let (output, result) = match command {
        Command::Serve(args) => (Output::default(), serve::run(args).await),
        Command::Ledger(args) => (Output::default(), ledger::run(args).await),
        Command::Transfer(args) => (args.output(), transfer::run(args).await),
        Command::Tx(verb) => tx::run(verb).await,
        Command::Participant(verb) => participant::run(verb).await,
        Command::Accounts(args) => (args.output(), accounts::run(args).await),
        Command::Entries(args) => (args.output(), entries::run(args).await),
        Command::Config(verb) => config::run(verb),
        Command::Completion(args) => (Output::default(), completion::run(args)),
        Command::Demo(args) => (args.output(), demo::run(args).await),
        Command::Bench(args) => (args.output(), bench::run(*args).await),
        Command::BenchFloor(args) => (Output::default(), bench::compare::floor::run(args).await),
        Command::BenchCaller(args) => (Output::default(), bench::caller::run(args).await),
    };
    match result {
        Ok(exit) => exit,
        Err(failure) => output.fail(&server_kind::named(failure).await),
    }
}
