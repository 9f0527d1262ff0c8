//! What one transaction of the load is: which accounts, which amounts, and whether it is meant to commit.
//!
//! Everything follows from a seed and the transaction's number, so a run can be repeated. The first ledger pays and every
//! other one is paid 1, so the money that moves is known from the outcomes alone.

use covenant_client::{Branch, Transaction, Wait, unix_now};
use covenant_proto::ledger::v1::{Assertion, Direction, Leg, Operation};
use prost::Message;

/// The currency of the load's accounts.
pub(super) const CURRENCY: &str = "THB";

/// What a transaction that is meant to abort takes: more than any account has.
const TOO_MUCH: i64 = i64::MAX / 2;

/// What a transaction is meant to come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Intent {
    /// It commits, and every ledger but the first has 1 more.
    Moves,
    /// It commits; the last ledger only looks, and has no more than before.
    LastLooks,
    /// The first ledger refuses it.
    Aborts,
}

/// The shares and sizes of the load.
pub(super) struct Load {
    /// The run's own part of every transaction id.
    pub(super) run: String,
    /// The names of the ledgers; every transaction has a branch at each.
    pub(super) ledgers: Vec<String>,
    pub(super) aborts_percent: u8,
    pub(super) read_only_percent: u8,
    pub(super) accounts: Zipf,
    pub(super) seed: u64,
}

impl Load {
    /// The transaction of this number.
    pub(super) fn transaction(&self, number: u64) -> (Intent, Transaction) {
        let mut random = Random::of(self.seed, number);
        let intent = self.intent(&mut random);
        let last = self.ledgers.len() - 1;
        let paid = if intent == Intent::LastLooks {
            last - 1
        } else {
            last
        };
        let branch = |(index, ledger): (usize, &String)| {
            let account = self.accounts.pick(&mut random);
            let operation = match intent {
                Intent::LastLooks if index == last => looks(account),
                // Nobody is left to be paid: the money stays at the first ledger.
                Intent::LastLooks if index == 0 && paid == 0 => within(account, self.accounts.len()),
                Intent::Aborts if index == 0 => leg(account, Direction::Debit, TOO_MUCH),
                _ if index == 0 => leg(account, Direction::Debit, i64::try_from(paid).unwrap_or(i64::MAX)),
                _ => leg(account, Direction::Credit, 1),
            };
            Branch::new(ledger.as_str(), operation.encode_to_vec())
        };
        let transaction = Transaction {
            id: format!("{}-{number}", self.run),
            created: unix_now(),
            branches: self.ledgers.iter().enumerate().map(branch).collect(),
            timeout: None,
            wait: Wait::Decided,
        };
        (intent, transaction)
    }

    fn intent(&self, random: &mut Random) -> Intent {
        let percent = random.below(100);
        if percent < u64::from(self.aborts_percent) {
            Intent::Aborts
        } else if percent < u64::from(self.aborts_percent) + u64::from(self.read_only_percent) {
            Intent::LastLooks
        } else {
            Intent::Moves
        }
    }
}

/// The name of an account of the load.
pub(super) fn account(number: usize) -> String {
    format!("bench-{number}")
}

fn leg(number: usize, direction: Direction, amount: i64) -> Operation {
    let leg = Leg {
        account: account(number),
        direction: direction.into(),
        amount,
        currency: CURRENCY.to_owned(),
    };
    Operation {
        legs: vec![leg],
        assertions: Vec::new(),
    }
}

/// From an account to the next one at the same ledger.
fn within(number: usize, accounts: usize) -> Operation {
    let mut operation = leg(number, Direction::Debit, 1);
    operation
        .legs
        .extend(leg((number + 1) % accounts, Direction::Credit, 1).legs);
    operation
}

fn looks(number: usize) -> Operation {
    let assertion = Assertion {
        account: account(number),
        at_least: 0,
        currency: CURRENCY.to_owned(),
    };
    Operation {
        legs: Vec::new(),
        assertions: vec![assertion],
    }
}

/// Accounts by popularity: the share of the one of rank `r` is as 1 / r to the power of the exponent.
pub(super) struct Zipf {
    /// The shares added up, the last is their sum.
    sums: Vec<f64>,
}

impl Zipf {
    /// At least one account; exponent 0 makes all equally likely.
    pub(super) fn new(accounts: usize, exponent: f64) -> Self {
        assert!(accounts > 0, "a load has accounts");
        let share = |rank: usize| (rank as f64).powf(-exponent);
        let sums = (1..=accounts).scan(0.0, |sum, rank| {
            *sum += share(rank);
            Some(*sum)
        });
        Self { sums: sums.collect() }
    }

    fn len(&self) -> usize {
        self.sums.len()
    }

    fn pick(&self, random: &mut Random) -> usize {
        let sum = self.sums.last().copied().unwrap_or_default();
        let at = random.fraction() * sum;
        self.sums
            .partition_point(|until| *until <= at)
            .min(self.len() - 1)
    }
}

/// splitmix64: enough for a load, and the same everywhere.
struct Random(u64);

impl Random {
    fn of(seed: u64, number: u64) -> Self {
        Self(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// At least 0 and below `bound`; the bias is below `bound` / 2^64.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// At least 0 and below 1.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(ledgers: usize, aborts_percent: u8, read_only_percent: u8) -> Load {
        Load {
            run: "r".into(),
            ledgers: (0..ledgers).map(|number| format!("ledger-{number}")).collect(),
            aborts_percent,
            read_only_percent,
            accounts: Zipf::new(100, 0.0),
            seed: 7,
        }
    }

    /// What each branch adds to its ledger, and how many assertions it has.
    fn effects(transaction: &Transaction) -> Vec<(i64, usize)> {
        let effect = |branch: &Branch| {
            let operation = Operation::decode(branch.operation.clone()).unwrap();
            let amount = |leg: &Leg| match leg.direction() {
                Direction::Debit => -leg.amount,
                Direction::Credit | Direction::Unspecified => leg.amount,
            };
            (
                operation.legs.iter().map(amount).sum(),
                operation.assertions.len(),
            )
        };
        transaction.branches.iter().map(effect).collect()
    }

    #[test]
    fn what_moves_adds_up_to_nothing_whatever_the_branches() {
        for ledgers in [2, 3, 64] {
            for number in 0..300 {
                let (intent, transaction) = load(ledgers, 20, 30).transaction(number);
                let effects = effects(&transaction);
                match intent {
                    Intent::Aborts => assert_eq!(effects[0].0, -TOO_MUCH),
                    Intent::Moves | Intent::LastLooks => {
                        assert_eq!(
                            effects.iter().map(|effect| effect.0).sum::<i64>(),
                            0,
                            "{effects:?}"
                        );
                    }
                }
                let looks = usize::from(intent == Intent::LastLooks);
                assert_eq!(effects[ledgers - 1].1, looks);
            }
        }
    }

    #[test]
    fn the_shares_are_as_asked_for_and_a_run_can_be_repeated() {
        let load = load(2, 10, 30);
        let count = |wanted| {
            (0..10_000)
                .filter(|number| load.transaction(*number).0 == wanted)
                .count()
        };
        assert!((900..1_100).contains(&count(Intent::Aborts)));
        assert!((2_800..3_200).contains(&count(Intent::LastLooks)));
        assert_eq!(effects(&load.transaction(5).1), effects(&load.transaction(5).1));
    }

    #[test]
    fn an_exponent_makes_accounts_hot() {
        let share_of_first = |exponent| {
            let (zipf, mut random) = (Zipf::new(1_000, exponent), Random(1));
            (0..10_000).filter(|_| zipf.pick(&mut random) == 0).count()
        };
        assert!(share_of_first(0.0) < 40);
        assert!((1_000..1_700).contains(&share_of_first(1.0)));
        assert!(share_of_first(2.0) > 5_500);
    }
}
