//! The invariants of section 10 that can be judged from outside, each a function of its name.
//!
//! Those over a [`World`] hold at quiet points only; [`quiet`] says whether it is one. [`s1_agreement_in_logs`] needs
//! the processes to have ended. They cannot see what a checkpoint dropped.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use covenant_client::{Client, Outcome, UnixMillis};
use covenant_proto::v1::{self, BranchState, TransactionState, Xid};

use crate::offline::Fate;
use crate::world::World;

/// How long a question to the coordinator may take.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// What a caller was told of an id. [`Told::Nothing`] is what UNKNOWN and a lost connection come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// COMMITTED.
    Committed,
    /// ABORTED.
    Aborted,
    /// Nothing definite.
    Nothing,
}

impl From<&Outcome> for Told {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Committed(_) => Self::Committed,
            Outcome::Aborted(_) => Self::Aborted,
            Outcome::InProgress(_) | Outcome::Unknown(_) | Outcome::NotFound(_) | Outcome::Expired(_) => {
                Self::Nothing
            }
        }
    }
}

/// What one caller knows.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Its transaction.
    pub id: String,
    /// Its first time for it.
    pub created: UnixMillis,
    /// What it was told.
    pub told: Told,
}

/// Nothing is in doubt or under way, and nothing is held.
///
/// # Errors
/// What is.
pub fn quiet(world: &World) -> Result<()> {
    for ledger in &world.ledgers {
        ensure!(
            ledger.holds.is_empty(),
            "{} holds {:?}",
            ledger.name,
            ledger.holds
        );
        for account in &ledger.accounts {
            let pending = (account.pending_debit, account.pending_credit);
            ensure!(pending == (0, 0), "{} has {account:?} pending", ledger.name);
        }
    }
    for view in &world.transactions {
        let ended = [TransactionState::Committed, TransactionState::Aborted].contains(&view.state());
        ensure!(
            ended && view.in_doubt == 0,
            "{} is {:?}",
            view.transaction_id,
            view.state()
        );
    }
    Ok(())
}

/// S1, over what is shown: a COMMITTED transaction has its effect at every branch that committed, an ABORTED one
/// nowhere, and no effect belongs to neither.
///
/// # Errors
/// The first transaction for which that is not so.
pub fn s1_agreement(world: &World) -> Result<()> {
    let mut effects: BTreeMap<Seen, Vec<&str>> = BTreeMap::new();
    for ledger in &world.ledgers {
        let mut here: Vec<Seen> = ledger
            .entries
            .iter()
            .filter_map(|entry| entry.xid)
            .map(seen)
            .collect();
        here.sort_unstable();
        here.dedup();
        for xid in here {
            effects.entry(xid).or_default().push(&ledger.name);
        }
    }
    for view in &world.transactions {
        let id = &view.transaction_id;
        let at = effects
            .remove(&seen(view.xid.context("a listed transaction has an xid")?))
            .unwrap_or_default();
        let committed = view.outcome() == v1::Outcome::Committed;
        let expected: Vec<&str> = (view.branches.iter())
            .filter(|branch| committed && branch.state() == BranchState::Committed)
            .map(|branch| branch.participant.as_str())
            .collect();
        ensure!(
            at == expected,
            "S1: {id} is {:?}; its effect is at {at:?}, not at {expected:?}",
            view.outcome()
        );
    }
    ensure!(
        effects.is_empty(),
        "S1: effects of attempts that the coordinator does not know: {}, the first {:?}",
        effects.len(),
        effects.first_key_value()
    );
    Ok(())
}

/// S1, over the logs: no attempt has a COMMITTED in one log and an ABORTED in another, and S4: none is committed and
/// aborted in the coordinator's.
///
/// # Errors
/// The first attempt for which that is not so.
pub fn s1_agreement_in_logs(
    coordinator: &BTreeMap<Vec<u8>, Fate>,
    ledgers: &[BTreeMap<Vec<u8>, Fate>],
) -> Result<()> {
    let mut all: BTreeMap<&Vec<u8>, Fate> = BTreeMap::new();
    for (xid, fate) in ledgers.iter().flatten() {
        let known = all.entry(xid).or_default();
        known.committed += fate.committed;
        known.aborted += fate.aborted;
        ensure!(
            fate.committed <= 1,
            "S9: {xid:?} has {} COMMITTED in one log",
            fate.committed
        );
        ensure!(
            fate.committed == 0 || fate.prepared > 0,
            "S2: {xid:?} was committed and never prepared"
        );
    }
    for (xid, fate) in &all {
        ensure!(
            fate.committed == 0 || fate.aborted == 0,
            "S1: {xid:?} was committed and aborted"
        );
        let decided = coordinator.get(*xid).copied().unwrap_or_default();
        ensure!(
            fate.committed == 0 || decided.committed == 1,
            "S5: {xid:?} was committed without a COMMIT"
        );
        ensure!(
            fate.aborted == 0 || decided.committed == 0,
            "S4: {xid:?} was aborted after a COMMIT"
        );
    }
    for (xid, fate) in coordinator {
        ensure!(
            fate.committed + fate.aborted <= 1,
            "S4: {xid:?} was decided more than once: {fate:?}"
        );
    }
    Ok(())
}

/// S9 and S15: of all attempts of an id at most one has its effect, once per account.
///
/// # Errors
/// The first id for which that is not so.
pub fn s15_one_commit(world: &World) -> Result<()> {
    for ledger in &world.ledgers {
        let mut first: BTreeMap<(&str, &str), Option<Xid>> = BTreeMap::new();
        for entry in ledger
            .entries
            .iter()
            .filter(|entry| !entry.transaction_id.is_empty())
        {
            let key = (entry.transaction_id.as_str(), entry.account.as_str());
            if let Some(other) = first.insert(key, entry.xid) {
                bail!(
                    "S15: {key:?} of {} has two entries, of {other:?} and {:?}",
                    ledger.name,
                    entry.xid
                );
            }
        }
    }
    Ok(())
}

/// S11: what callers were told is what the coordinator says.
///
/// # Errors
/// The first caller who was told something else.
pub async fn s11_caller_truth(client: &Client, callers: &[Caller]) -> Result<()> {
    for caller in callers {
        let now = client.get(&caller.id, Some(caller.created), PATIENCE).await?;
        let agrees = match caller.told {
            Told::Committed => matches!(now, Outcome::Committed(_)),
            Told::Aborted => matches!(now, Outcome::Aborted(_)),
            Told::Nothing => {
                matches!(
                    now,
                    Outcome::Committed(_) | Outcome::Aborted(_) | Outcome::NotFound(_)
                )
            }
        };
        ensure!(
            agrees,
            "S11: the caller of {} was told {:?}, now it is {}",
            caller.id,
            caller.told,
            now.word()
        );
    }
    Ok(())
}

/// S14: every ledger adds up to 0 with its system accounts, all clearing accounts together to 0, and the customers have
/// together what they had at the opening.
///
/// # Errors
/// The sum that is another.
pub fn s14_conservation(world: &World, customers: i128) -> Result<()> {
    let (mut clearing, mut owned) = (0, 0);
    for ledger in &world.ledgers {
        let sum: i128 = ledger
            .accounts
            .iter()
            .map(|account| i128::from(account.posted))
            .sum();
        ensure!(
            sum == 0,
            "S14: {} adds up to {sum}: {:?}",
            ledger.name,
            ledger.accounts
        );
        for account in &ledger.accounts {
            if account.account.starts_with("@clearing") {
                clearing += i128::from(account.posted);
            } else if !account.account.starts_with('@') {
                owned += i128::from(account.posted);
            }
        }
    }
    ensure!(clearing == 0, "S14: the clearing accounts add up to {clearing}");
    ensure!(
        owned == customers,
        "S14: the customers have {owned}, they had {customers}"
    );
    Ok(())
}

type Seen = (u64, u64, u64, u64, u64);

fn seen(xid: Xid) -> Seen {
    (xid.lineage_high, xid.lineage_low, xid.counter, xid.bits, xid.seq)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::LedgerView;
    use covenant_client::View;
    use covenant_proto::ledger::v1::{Account, Entry, Hold};
    use covenant_proto::v1::BranchStatus;

    fn xid(seq: u64) -> Option<Xid> {
        Some(Xid {
            lineage_high: 1,
            lineage_low: 2,
            counter: 1,
            bits: 3,
            seq,
        })
    }

    fn ledger(name: &str, customer: &str, posted: i64, clearing: i64, opening: i64) -> LedgerView {
        let account = |account: &str, posted| Account {
            account: account.into(),
            posted,
            ..Account::default()
        };
        let accounts = vec![
            account("@clearing:THB", clearing),
            account("@opening:THB", opening),
            account(customer, posted),
        ];
        let entry = Entry {
            transaction_id: "T".into(),
            xid: xid(1),
            account: customer.into(),
            ..Entry::default()
        };
        LedgerView {
            name: name.into(),
            accounts,
            entries: vec![entry],
            holds: Vec::new(),
        }
    }

    /// 100 went from alice, who had 500, to bob.
    fn world() -> World {
        let branch = |participant: &str| BranchStatus {
            participant: participant.into(),
            state: BranchState::Committed.into(),
            ..BranchStatus::default()
        };
        let view = View {
            transaction_id: "T".into(),
            xid: xid(1),
            outcome: v1::Outcome::Committed.into(),
            state: TransactionState::Committed.into(),
            branches: vec![branch("ledger-a"), branch("ledger-b")],
            ..View::default()
        };
        let ledgers = vec![
            ledger("ledger-a", "alice", 400, 100, -500),
            ledger("ledger-b", "bob", 100, -100, 0),
        ];
        World {
            transactions: vec![view],
            ledgers,
        }
    }

    fn all(world: &World) -> Result<()> {
        quiet(world)?;
        s1_agreement(world)?;
        s15_one_commit(world)?;
        s14_conservation(world, 500)
    }

    #[test]
    fn every_check_takes_a_good_world_and_finds_its_own_fault() {
        all(&world()).unwrap();
        type Fault = (&'static str, fn(&mut World));
        let faults: [Fault; 9] = [
            ("holds", |world| world.ledgers[0].holds.push(Hold::default())),
            ("pending", |world| world.ledgers[1].accounts[2].pending_credit = 5),
            ("is Committing", |world| {
                world.transactions[0].state = TransactionState::Committing.into()
            }),
            ("S1", |world| world.ledgers[1].entries.clear()),
            ("S1", |world| {
                world.transactions[0].outcome = v1::Outcome::Aborted.into()
            }),
            ("S1: effects of attempts", |world| world.transactions.clear()),
            ("S15", |world| {
                let again = Entry {
                    xid: xid(1),
                    ..world.ledgers[0].entries[0].clone()
                };
                world.ledgers[0].entries.push(again);
            }),
            ("S14: ledger-b adds up", |world| {
                world.ledgers[1].accounts[2].posted += 1
            }),
            ("S14: the customers", |world| {
                world.ledgers[0].accounts[2].posted += 1;
                world.ledgers[0].accounts[1].posted -= 1;
            }),
        ];
        for (what, fault) in faults {
            let mut world = world();
            fault(&mut world);
            let error = all(&world).unwrap_err().to_string();
            assert!(error.contains(what), "{what}: {error}");
        }
    }

    #[test]
    fn logs_that_disagree_are_found() {
        let fate = |prepared, committed, aborted| Fate {
            prepared,
            committed,
            aborted,
            ended: 0,
        };
        let log = |fate: Fate| BTreeMap::from([(vec![1], fate)]);
        let check = |coordinator, a, b| s1_agreement_in_logs(&log(coordinator), &[log(a), log(b)]);
        check(fate(0, 1, 0), fate(1, 1, 0), fate(1, 1, 0)).unwrap();
        check(fate(0, 0, 1), fate(1, 0, 1), fate(1, 0, 1)).unwrap();
        for (what, coordinator, a, b) in [
            ("S1", fate(0, 1, 0), fate(1, 1, 0), fate(1, 0, 1)),
            ("S2", fate(0, 1, 0), fate(0, 1, 0), fate(1, 1, 0)),
            ("S4", fate(0, 1, 0), fate(1, 0, 1), fate(1, 0, 1)),
            ("S4", fate(0, 1, 1), fate(1, 0, 0), fate(1, 0, 0)),
            ("S5", fate(0, 0, 0), fate(1, 1, 0), fate(1, 1, 0)),
            ("S9", fate(0, 1, 0), fate(1, 2, 0), fate(1, 1, 0)),
        ] {
            let error = check(coordinator, a, b).unwrap_err().to_string();
            assert!(error.starts_with(what), "{what}: {error}");
        }
    }
}
