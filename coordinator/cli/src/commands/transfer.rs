//! `covenant transfer`: money from one account to another, at one ledger or at two.

use std::time::Duration;

use covenant_client::{Branch, Outcome, Transaction, UnixMillis, unix_now};
use covenant_proto::ledger::v1::{Direction, Leg, Operation};
use prost::Message;

use super::tx;
use crate::args::{EndpointArgs, OutputArgs, say};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::parse::{self, AccountPath, duration_text, option, quoted, time_text};

/// How much longer than the transaction's deadline the command waits for an answer, in milliseconds.
const GRACE_MS: u64 = 1_000;

/// The deadline of a transfer that names none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Move money between two accounts, at one ledger or at two, all or nothing.
#[derive(clap::Args)]
#[command(after_help = "\
The id makes a repetition safe: the same id with the same --created and the same content never moves money twice. Both are
printed on stderr before anything is sent, and stand in every command that is proposed. The same id with other content is
refused.

STATE COMMITTING with IN-DOUBT 1 or 2 is the usual answer of --wait decided: the outcome is final, and the ledgers have not
acknowledged it yet. `-o wide` adds why a branch was refused, in full.

Exit codes: 0 COMMITTED; 1 ABORTED, or the id has other content; 2 an argument was refused; 4 surely never sent;
6 a participant never joined, or a bound is reached; 7 UNKNOWN (it may have been committed or not: run the command that is
printed, and never take another id for the same business) or EXPIRED (it was sent first so long ago that nobody can tell:
nothing was run this time; look for the id in the accounts' entries).

Examples:
  covenant transfer --from ledger-a/alice --to ledger-b/bob --amount 100000
  covenant transfer --from ledger-a/alice --to ledger-b/bob --amount 100000 --id T100 --wait completed -o json
  covenant transfer --from ledger-a/alice --to ledger-b/bob --amount 100000 --id T100 --created 2026-11-30T12:00:00.000Z")]
pub(crate) struct Args {
    /// The account that pays, as PARTICIPANT/ACCOUNT.
    #[arg(long, value_name = "PARTICIPANT/ACCOUNT", value_parser = parse::account_path)]
    from: AccountPath,
    /// The account that is paid, as PARTICIPANT/ACCOUNT.
    #[arg(long, value_name = "PARTICIPANT/ACCOUNT", value_parser = parse::account_path)]
    to: AccountPath,
    /// How much, a whole number above 0 in minor units of the currency (100000 is 1,000.00 THB).
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = parse::amount)]
    amount: i64,
    /// The currency of both accounts; 3 upper-case letters.
    #[arg(long, value_name = "CURRENCY", default_value = "THB")]
    currency: String,
    /// The transaction's id, 1 to 128 printable ASCII characters; without it one is made (UUID version 7).
    #[arg(long, value_name = "ID", value_parser = parse::transaction_id)]
    id: Option<String>,
    /// The first time this id was sent (RFC 3339 with milliseconds), the same in every repetition; without it now.
    #[arg(long, value_name = "TIME", requires = "id", value_parser = parse::time)]
    created: Option<UnixMillis>,
    /// When to answer.
    #[arg(long, value_enum, default_value_t)]
    wait: Wait,
    /// How long votes may take on the coordinator's clock, at most its max_deadline_ms (60s); the command waits a second
    /// longer.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse::duration)]
    timeout: Duration,
    #[command(flatten)]
    endpoint: EndpointArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// When to answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
enum Wait {
    /// As soon as the decision is durable.
    #[default]
    Decided,
    /// When both ledgers have done it too.
    Completed,
}

impl Args {
    pub(crate) fn output(&self) -> Output {
        self.output.output()
    }
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let id = args
        .id
        .clone()
        .unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let created = args.created.unwrap_or_else(unix_now);
    let client = args.endpoint.client()?;
    let transaction = Transaction {
        branches: branches(&args.from, &args.to, args.amount, &args.currency),
        timeout: Some(args.timeout),
        wait: match args.wait {
            Wait::Decided => covenant_client::Wait::Decided,
            Wait::Completed => covenant_client::Wait::Completed,
        },
        id: id.clone(),
        created,
    };
    say(&format!(
        "transaction {}, created {}",
        quoted(&id),
        time_text(created)
    ));
    let again = again(&args, &id, created);
    let patience = args.timeout.saturating_add(Duration::from_millis(GRACE_MS));
    let outcome = match client.execute(&transaction, patience).await {
        Ok(outcome) => outcome,
        Err(error) => {
            let mut failure = Failure::from(error);
            failure.next = match failure.exit {
                Exit::NeverSent => vec![again],
                // The id is another transaction's; its `created` is not this call's.
                Exit::Negative => vec![tx::tx_command("get", &id, None, &args.endpoint)],
                _ => Vec::new(),
            };
            return Err(failure);
        }
    };
    let output = args.output();
    tx::show(output, &outcome, &id, Some(created), &args.endpoint, Some(&again)).await?;
    if args.wait == Wait::Completed {
        say_incomplete(&outcome);
    }
    Ok(exit(&outcome))
}

/// COMMITTED is the answer although not every ledger has done it: the wait was longer than the caller's.
fn say_incomplete(outcome: &Outcome) {
    if let Outcome::Committed(view) = outcome
        && view.in_doubt > 0
    {
        say("it is COMMITTED; a participant that is away does its part when it is back");
    }
}

/// The branches of a transfer: one per ledger, so one with two legs if both accounts are at the same.
///
/// Nothing is checked here: what a ledger cannot do it refuses with a stable reason.
pub(crate) fn branches(from: &AccountPath, to: &AccountPath, amount: i64, currency: &str) -> Vec<Branch> {
    let leg = |path: &AccountPath, direction: Direction| Leg {
        account: path.account.clone(),
        direction: direction.into(),
        amount,
        currency: currency.to_owned(),
    };
    let (debit, credit) = (leg(from, Direction::Debit), leg(to, Direction::Credit));
    let branch = |path: &AccountPath, legs: Vec<Leg>| {
        Branch::new(
            path.participant.as_str(),
            Operation {
                legs,
                assertions: Vec::new(),
            }
            .encode_to_vec(),
        )
    };
    if from.participant == to.participant {
        return vec![branch(from, vec![debit, credit])];
    }
    vec![branch(from, vec![debit]), branch(to, vec![credit])]
}

/// The same transfer with its id and its time.
fn again(args: &Args, id: &str, created: UnixMillis) -> String {
    let mut command = format!(
        "covenant transfer {} {} --amount {} {} --id={} --created {}",
        option("--from", &args.from.to_string()),
        option("--to", &args.to.to_string()),
        args.amount,
        option("--currency", &args.currency),
        quoted(id),
        time_text(created),
    );
    if args.wait == Wait::Completed {
        command.push_str(" --wait completed");
    }
    if args.timeout != DEFAULT_TIMEOUT {
        command.push_str(&format!(" --timeout {}", duration_text(args.timeout)));
    }
    command.push_str(&args.endpoint.to_option());
    command
}

fn exit(outcome: &Outcome) -> Exit {
    match outcome {
        Outcome::Committed(_) => Exit::Done,
        Outcome::Aborted(_) => Exit::Negative,
        // Nothing was run by this call, and an earlier one of this id may have been either.
        Outcome::Expired(_) | Outcome::NotFound(_) => Exit::Unknown,
        Outcome::InProgress(_) | Outcome::Unknown(_) => Exit::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use covenant_client::View;

    fn path(text: &str) -> AccountPath {
        parse::account_path(text).unwrap()
    }

    fn legs(branch: &Branch) -> Vec<(String, Direction, i64, String)> {
        let operation = Operation::decode(branch.operation.clone()).unwrap();
        let leg = |leg: Leg| (leg.account.clone(), leg.direction(), leg.amount, leg.currency);
        operation.legs.into_iter().map(leg).collect()
    }

    #[test]
    fn two_ledgers_are_two_branches_with_one_leg_each() {
        let branches = branches(&path("ledger-a/alice"), &path("ledger-b/bob"), 100_000, "THB");
        assert_eq!(branches.len(), 2);
        assert_eq!(branches[0].participant, "ledger-a");
        assert_eq!(
            legs(&branches[0]),
            [("alice".into(), Direction::Debit, 100_000, "THB".into())]
        );
        assert_eq!(branches[1].participant, "ledger-b");
        assert_eq!(
            legs(&branches[1]),
            [("bob".into(), Direction::Credit, 100_000, "THB".into())]
        );
    }

    #[test]
    fn one_ledger_is_one_branch_with_two_legs_also_for_one_account() {
        for to in ["ledger-a/bob", "ledger-a/alice"] {
            let branches = branches(&path("ledger-a/alice"), &path(to), -5, "THB");
            assert_eq!(branches.len(), 1);
            let directions: Vec<_> = legs(&branches[0]).into_iter().map(|leg| leg.1).collect();
            assert_eq!(directions, [Direction::Debit, Direction::Credit]);
        }
    }

    #[test]
    fn the_same_transfer_is_the_same_content() {
        let make = || branches(&path("a/x"), &path("b/y"), 7, "THB");
        assert_eq!(make(), make());
    }

    #[test]
    fn outcomes_have_their_exit_codes() {
        let view = || Box::new(View::default());
        for (outcome, expected) in [
            (Outcome::Committed(view()), Exit::Done),
            (Outcome::Aborted(view()), Exit::Negative),
            (Outcome::InProgress(view()), Exit::Unknown),
            (Outcome::Expired(view()), Exit::Unknown),
        ] {
            assert_eq!(exit(&outcome), expected, "{}", outcome.word());
        }
    }

    #[test]
    fn the_repetition_is_the_same_transfer_with_the_same_wait_and_timeout() {
        use clap::Parser;
        let read = |line: &str| match crate::args::Cli::parse_from(line.split(' ')).command {
            crate::args::Command::Transfer(args) => args,
            _ => panic!("{line}"),
        };
        let endpoint = "--endpoint http://10.0.0.1:1";
        let plain = "covenant transfer --from=-a/x --to b/y --amount 5";
        let created = "--created 2026-11-30T22:00:00.123Z";
        for options in [
            "",
            " --wait completed --timeout 1500ms",
            " --wait completed",
            " --timeout 60s",
        ] {
            let args = read(&format!("{plain} --id T1{options} {endpoint}"));
            let command = again(&args, "T1", 1_796_076_000_123);
            let expected = format!("{plain} --currency THB --id=T1 {created}{options} {endpoint}");
            assert_eq!(command, expected);
            let repeated = read(&command);
            assert_eq!(
                branches(&repeated.from, &repeated.to, repeated.amount, &repeated.currency),
                branches(&args.from, &args.to, args.amount, &args.currency)
            );
            assert_eq!(
                (repeated.id.as_deref(), repeated.created, repeated.timeout),
                (Some("T1"), Some(1_796_076_000_123), args.timeout)
            );
            assert!(repeated.wait == args.wait);
        }
    }

    #[test]
    fn the_default_timeout_is_the_one_that_help_shows() {
        assert_eq!(parse::duration("5s"), Ok(DEFAULT_TIMEOUT));
    }
}
