//! The command line: nouns, verbs, and the options that many commands share.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use covenant_client::{Client, Link};

use crate::commands::{
    accounts, bench, completion, config, demo, entries, ledger, participant, serve, transfer, tx,
};
use crate::exit::{EXIT_CODES, Failure};
use crate::output::{Format, Output};

/// How long a command that only reads goes on asking, in milliseconds.
pub(crate) const READ_PATIENCE_MS: u64 = 2_000;

/// The coordinator that commands talk to when nothing else is said.
const DEFAULT_ENDPOINT: &str = "http://127.0.0.1:7400";

/// The variable that says otherwise.
const ENDPOINT_VARIABLE: &str = "COVENANT_ENDPOINT";

/// The ledger that commands talk to when nothing else is said.
const DEFAULT_LEDGER: &str = "http://127.0.0.1:7410";

const TOUR: &str = "\
A first tour (the three servers run until they are stopped: end each line with &, or give each a terminal):
  covenant demo                                            the case study, crashes included
  covenant serve --data-dir data/c1                        a coordinator
  covenant ledger --name ledger-a --data-dir data/ledger-a --open alice=500000:THB
  covenant ledger --name ledger-b --data-dir data/ledger-b --listen 127.0.0.1:7411 --open bob=0:THB
  covenant transfer --from ledger-a/alice --to ledger-b/bob --amount 100000
  covenant tx list
  covenant accounts --ledger http://127.0.0.1:7411
";

/// Two-phase commit over gRPC: a coordinator, a demo ledger, and the commands to use them.
#[derive(Parser)]
#[command(
    name = "covenant",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
#[command(after_help = format!("{TOUR}\n{EXIT_CODES}"))]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a coordinator.
    Serve(serve::Args),
    /// Run a ledger, the demo participant.
    Ledger(ledger::Args),
    /// Move money between two accounts, at one ledger or at two, all or nothing.
    Transfer(transfer::Args),
    /// Look at transactions, or abort one.
    #[command(subcommand, visible_alias = "transaction", arg_required_else_help = true)]
    Tx(tx::Verb),
    /// Look at the participants of a coordinator.
    #[command(subcommand, arg_required_else_help = true)]
    Participant(participant::Verb),
    /// Show the accounts of a ledger.
    Accounts(accounts::Args),
    /// Show the entries of an account, newest first.
    Entries(entries::Args),
    /// Look at the coordinator's configuration.
    #[command(subcommand, arg_required_else_help = true)]
    Config(config::Verb),
    /// Print a completion script for a shell.
    Completion(completion::Args),
    /// Watch transfers survive crashes: three processes on this machine, about ten seconds.
    Demo(demo::Args),
    /// Measure transfers over a coordinator and its ledgers, started here or there already.
    Bench(Box<bench::Args>),
    /// Part of the load of `covenant bench`.
    #[command(hide = true)]
    BenchCaller(bench::caller::Args),
    /// A reference of `covenant bench --compare`.
    #[command(hide = true)]
    BenchFloor(bench::compare::floor::Args),
}

/// How to write the answer.
#[derive(Args, Clone, Copy)]
pub(crate) struct OutputArgs {
    /// How to write the answer; data goes to stdout, talk to stderr.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
}

impl OutputArgs {
    pub(crate) fn output(self) -> Output {
        Output::new(self.output)
    }
}

/// Which coordinator to talk to.
#[derive(Args, Clone)]
pub(crate) struct EndpointArgs {
    /// The coordinator's address, as http://HOST:PORT.
    #[arg(long, value_name = "URL", env = ENDPOINT_VARIABLE, default_value = DEFAULT_ENDPOINT)]
    pub(crate) endpoint: String,
}

impl EndpointArgs {
    /// A client that says on stderr when it has to try again.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Ok(Client::with_link(talking(&self.endpoint)?))
    }

    /// The option as it must be repeated in a command, or nothing if that command would talk to it anyway, in any shell.
    pub(crate) fn to_option(&self) -> String {
        self.to_option_beside(std::env::var_os(ENDPOINT_VARIABLE).is_some())
    }

    fn to_option_beside(&self, is_variable_set: bool) -> String {
        if self.endpoint == DEFAULT_ENDPOINT && !is_variable_set {
            return String::new();
        }
        format!(" --endpoint {}", crate::parse::quoted(&self.endpoint))
    }
}

/// Which ledger to talk to.
#[derive(Args, Clone)]
pub(crate) struct LedgerArgs {
    /// The ledger's address, as http://HOST:PORT.
    #[arg(long, value_name = "URL", env = "COVENANT_LEDGER", default_value = DEFAULT_LEDGER)]
    ledger: String,
}

impl LedgerArgs {
    pub(crate) fn link(&self) -> Result<Link, Failure> {
        talking(&self.ledger)
    }
}

/// Which page of a list.
#[derive(Args, Clone)]
pub(crate) struct PageArgs {
    /// The most items of a page, 1 to 1000.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) page_size: u32,
    /// The page to show, as the page before named it (on stderr, or as next_page_token); without it the first.
    #[arg(long, value_name = "TOKEN", default_value = "", hide_default_value = true)]
    pub(crate) page_token: String,
}

impl PageArgs {
    /// Says on stderr how to see what comes after this page.
    pub(crate) fn hint(&self, next: &str) {
        if !next.is_empty() {
            say(&format!(
                "there is more: --page-token {}",
                crate::parse::quoted(next)
            ));
        }
    }
}

/// How long a command that only reads goes on asking.
pub(crate) fn read_patience() -> Duration {
    Duration::from_millis(READ_PATIENCE_MS)
}

/// One line of talk.
pub(crate) fn say(line: &str) {
    use std::io::Write;
    // Talk that nobody hears changes nothing.
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn talking(url: &str) -> Result<Link, Failure> {
    let link = Link::new(url)?;
    let endpoint = url.to_owned();
    Ok(link.on_retry(move |retry| {
        // The first try tells; the later ones would only repeat it.
        if retry.attempt == 1 {
            say(&format!("{endpoint}: {}; trying again", retry.why));
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_endpoint_is_repeated_unless_the_command_would_use_it_anyway() {
        let option = |endpoint: &str, is_variable_set| {
            let endpoint = EndpointArgs {
                endpoint: endpoint.to_owned(),
            };
            endpoint.to_option_beside(is_variable_set)
        };
        assert_eq!(option(DEFAULT_ENDPOINT, false), "");
        assert_eq!(
            option(DEFAULT_ENDPOINT, true),
            " --endpoint http://127.0.0.1:7400"
        );
        assert_eq!(option("http://a:1", false), " --endpoint http://a:1");
    }

    #[test]
    fn every_command_and_option_is_explained() {
        fn check(command: &clap::Command) {
            assert!(
                command.get_about().is_some(),
                "{} has no about",
                command.get_name()
            );
            for argument in command.get_arguments() {
                let id = argument.get_id();
                assert!(
                    argument.get_help().is_some(),
                    "{} {id} has no help",
                    command.get_name()
                );
            }
            command.get_subcommands().for_each(check);
        }
        let mut command = Cli::command();
        command.build();
        check(&command);
    }

    #[test]
    fn usage_errors_exit_with_2() {
        for line in [
            "covenant transfer --from alice --to ledger-b/bob --amount 1",
            "covenant transfer --from ledger-a/alice --to ledger-b/bob --amount ten",
            "covenant transfer --from ledger-a/alice --to ledger-b/bob --amount 0",
            "covenant transfer --from ledger-a/alice --to ledger-b/bob --amount -5",
            "covenant transfer --from ledger-a/alice --to ledger-b/bob --amount 1.50",
            "covenant transfer --from a/a --to b/b --amount 1 --timeout 5",
            "covenant tx list --state nonsense",
            "covenant tx list --page-size 0",
            "covenant nonsense",
            "covenant tx get",
            "covenant accounts -o xml",
            "covenant ledger --data-dir d",
        ] {
            match Cli::try_parse_from(line.split(' ')) {
                Ok(_) => panic!("{line} was taken"),
                Err(error) => assert_eq!(error.exit_code(), 2, "{line}"),
            }
        }
    }

    #[test]
    fn a_long_id_is_a_usage_error_that_names_the_bound() {
        let id = "x".repeat(129);
        let Err(error) = Cli::try_parse_from(["covenant", "tx", "get", &id]) else {
            panic!()
        };
        assert!(error.to_string().contains("MAX_ID_BYTES is 128"), "{error}");
    }
}
