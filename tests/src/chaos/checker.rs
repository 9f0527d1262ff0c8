//! What must hold of a history and its end, each claim by its name, with what was looked at and what was found.
//!
//! It is a function of plain values, so that tests can feed it falsified ones. It judges what callers and ledgers
//! show; what the logs say record by record is for other tests, because checkpoints drop it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::history::{
    ACCOUNTS, Asked, Ends, Manner, OPENING, Said, When, account_name, ledger_name, xid_text,
};
use super::nodes::CHECKPOINT_RECORDS;
use crate::checks;
use crate::world::LedgerView;

/// The most violations of one claim that are told in words; the others are counted.
pub const MAX_TOLD: usize = 10;

/// What a data directory may take beside what it must keep, in bytes: the segments of sled and a checkpoint under way.
/// Measured: at most 2.1 MB.
pub const LOG_BASE_BYTES: u64 = 8 << 20;

/// What it may take for each outcome or entry that it must keep, in bytes. Measured over 174,372 ids: 307 of an outcome,
/// 108 of an entry.
pub const LOG_BYTES_PER_KEPT: u64 = 512;

/// What a start may replay beside one record of each earlier start: the records up to the checkpoint that is due, those
/// that came while one was written, and the checkpoint's own. Measured: at most 606. A log that nothing shortens has
/// some 2 records for each id; its bytes do not tell, because what a checkpoint drops, the archive takes.
pub const MAX_REPLAYED: u64 = 4 * CHECKPOINT_RECORDS;

/// What is said of a claim, or of a run; the worst comes last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Something was looked at, and all of it is right.
    Holds,
    /// There was nothing to look at: it may hold or not.
    NotMet,
    /// Something is wrong.
    Violated,
}

impl Verdict {
    /// As reports say it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::NotMet => "NOT MET",
            Self::Violated => "VIOLATED",
        }
    }
}

/// One claim.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// What must hold.
    pub claim: &'static str,
    /// How many things were looked at.
    pub looked_at: usize,
    /// How many of them violate it.
    pub violated: usize,
    /// The first [`MAX_TOLD`] of those.
    pub told: Vec<String>,
}

impl Check {
    fn new(name: &'static str, claim: &'static str) -> Self {
        Self {
            name,
            claim,
            looked_at: 0,
            violated: 0,
            told: Vec::new(),
        }
    }

    fn look(&mut self, holds: bool, say: impl FnOnce() -> String) {
        self.looked_at += 1;
        if !holds {
            self.violated += 1;
            if self.told.len() < MAX_TOLD {
                self.told.push(say());
            }
        }
    }

    /// Whether it holds.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match (self.violated, self.looked_at) {
            (0, 0) => Verdict::NotMet,
            (0, _) => Verdict::Holds,
            _ => Verdict::Violated,
        }
    }
}

/// Everything that must hold.
#[must_use]
pub fn check(asked: &[Asked], ledgers: usize, ends: &Ends) -> Vec<Check> {
    vec![
        answers(asked),
        outcomes(asked),
        own_content(asked),
        overdrafts(asked),
        other_content(asked),
        effects(asked, ends),
        balances(asked, ledgers, ends),
        money(ledgers, ends),
        quiet(ends),
        processes(ends),
        leaks(ends),
        logs(ends),
    ]
}

fn answers(asked: &[Asked]) -> Check {
    let mut check = Check::new(
        "answers",
        "a final answer is final: no later answer for the id differs, and it is told again once all is mended, and once \
         all was started again (S11)",
    );
    for one in asked {
        let Some(first) = one.told() else { continue };
        let same = |said: &Said| match (first, said) {
            (Said::Committed { xid: first }, Said::Committed { xid }) => first == xid,
            (Said::Aborted { reason: first }, Said::Aborted { reason }) => first == reason,
            _ => false,
        };
        let after = one.answers.iter().skip_while(|answer| !answer.said.is_final());
        let others: Vec<_> = after
            .filter(|answer| match &answer.said {
                Said::Committed { .. } | Said::Aborted { .. } => !same(&answer.said),
                // NOT_FOUND and EXPIRED deny what was told; nobody waits for seven days here.
                Said::Open(word) => ["NOT_FOUND", "EXPIRED"].contains(word),
                Said::Refused(reason) => reason == "OTHER_CONTENT",
            })
            .collect();
        // Meanwhile a server may not have known it; in the end it does.
        let kept = [When::Mended, When::Restarted].into_iter().all(|when| {
            let last = one.answers.iter().rfind(|answer| answer.when == when);
            last.is_some_and(|answer| same(&answer.said))
        });
        check.look(others.is_empty() && kept, || {
            format!(
                "{}: told {first:?}, and differing {others:?} of {:?}",
                one.id, one.answers
            )
        });
    }
    check
}

fn outcomes(asked: &[Asked]) -> Check {
    let mut check = Check::new("outcomes", "every id that was sent has one outcome in the end");
    for one in asked {
        let end = one.answers.last();
        let has_one = end.is_some_and(|answer| answer.when == When::Restarted && answer.said.is_final());
        check.look(has_one, || format!("{}: {:?}", one.id, one.answers));
    }
    check
}

fn own_content(asked: &[Asked]) -> Check {
    let mut check = Check::new("own content", "the own content is never refused as another");
    for one in asked {
        let own = one
            .answers
            .iter()
            .all(|answer| answer.said != Said::Refused("OTHER_CONTENT".to_owned()));
        check.look(own, || {
            format!("{}: its own content was refused: {:?}", one.id, one.answers)
        });
    }
    check
}

fn overdrafts(asked: &[Asked]) -> Check {
    let mut check = Check::new("overdrafts", "an overdraft never commits");
    for one in asked.iter().filter(|one| one.manner == Manner::Overdraft) {
        let committed = matches!(one.told(), Some(Said::Committed { .. }));
        check.look(!committed, || format!("{}: an overdraft committed", one.id));
    }
    check
}

fn other_content(asked: &[Asked]) -> Check {
    let mut check = Check::new(
        "other content",
        "other content under a decided id never gets its outcome",
    );
    for one in asked {
        for answer in &one.to_other_content {
            // A fence has no content of its own and matches every one.
            let fence = matches!(&answer.said, Said::Aborted { reason } if reason == "FENCED_BEFORE_EXECUTE");
            check.look(!answer.said.is_final() || fence, || {
                format!("{}: other content was told {:?}", one.id, answer.said)
            });
        }
    }
    check
}

/// The entries of one id: (ledger, account, amount, attempt), sorted.
type Entries = Vec<(String, String, i64, String)>;

/// What a committed transaction must have left, the clearing entry of each ledger with it.
fn expected(one: &Asked, xid: &str) -> Entries {
    let mut entries = Entries::new();
    let mut clearing: BTreeMap<usize, i64> = BTreeMap::new();
    for moved in &one.moves {
        *clearing.entry(moved.ledger).or_default() -= moved.amount;
        let account = account_name(moved.account);
        entries.push((ledger_name(moved.ledger), account, moved.amount, xid.to_owned()));
    }
    for (ledger, amount) in clearing.into_iter().filter(|(_, amount)| *amount != 0) {
        let account = format!("@clearing:{}", crate::transfer::CURRENCY);
        entries.push((ledger_name(ledger), account, amount, xid.to_owned()));
    }
    entries.sort_unstable();
    entries
}

fn effects(asked: &[Asked], ends: &Ends) -> Check {
    let mut check = Check::new(
        "effects",
        "each committed id has its entries once on each of its ledgers, as the attempt that was told; an aborted one \
         has none, and no entry belongs to nobody (S1, S9, S15)",
    );
    let mut found: BTreeMap<&str, Entries> = BTreeMap::new();
    for ledger in &ends.world.ledgers {
        for entry in ledger
            .entries
            .iter()
            .filter(|entry| !entry.transaction_id.is_empty())
        {
            let xid = entry.xid.map(xid_text).unwrap_or_default();
            found.entry(&entry.transaction_id).or_default().push((
                ledger.name.clone(),
                entry.account.clone(),
                entry.amount,
                xid,
            ));
        }
    }
    for one in asked {
        let mut here = found.remove(one.id.as_str()).unwrap_or_default();
        here.sort_unstable();
        let due = match one.told() {
            Some(Said::Committed { xid }) => expected(one, xid),
            Some(_) | None => Entries::new(),
        };
        check.look(here == due, || {
            format!(
                "{}: told {:?}; its entries are {here:?}, not {due:?}",
                one.id,
                one.told()
            )
        });
    }
    for (id, entries) in found {
        check.look(false, || {
            format!("{id} was never sent and has entries {entries:?}")
        });
    }
    check
}

fn balances(asked: &[Asked], ledgers: usize, ends: &Ends) -> Check {
    let mut check = Check::new(
        "balances",
        "every account has its opening and what committed ids moved, to the unit",
    );
    let mut due: BTreeMap<(usize, usize), i64> = (0..ledgers)
        .flat_map(|ledger| (0..ACCOUNTS).map(move |account| ((ledger, account), OPENING)))
        .collect();
    for one in asked {
        if let Some(Said::Committed { .. }) = one.told() {
            for moved in &one.moves {
                *due.entry((moved.ledger, moved.account)).or_default() += moved.amount;
            }
        }
    }
    for ((ledger, account), due) in due {
        let (ledger, account) = (ledger_name(ledger), account_name(account));
        let shown = ends.world.ledgers.iter().find(|view| view.name == ledger);
        let has = shown
            .and_then(|view| view.accounts.iter().find(|one| one.account == account))
            .map(|one| one.posted);
        check.look(has == Some(due), || {
            format!("{ledger}/{account} has {has:?}, not {due}")
        });
    }
    check
}

fn money(ledgers: usize, ends: &Ends) -> Check {
    let mut check = Check::new(
        "money",
        "nothing was made or lost: over all ledgers it adds up (S14)",
    );
    let customers = (ledgers * ACCOUNTS) as i128 * i128::from(OPENING);
    let sum = checks::s14_conservation(&ends.world, customers);
    check.look(sum.is_ok(), || {
        sum.map_or_else(|error| error.to_string(), |()| String::new())
    });
    check
}

fn quiet(ends: &Ends) -> Check {
    let mut check = Check::new(
        "quiet",
        "nothing is in progress, in doubt or held (L1, L2, L3, S8)",
    );
    for view in &ends.world.transactions {
        let (id, state) = (&view.transaction_id, view.state());
        check.look(false, || {
            format!("{id} is {state:?} with {} in doubt", view.in_doubt)
        });
    }
    for LedgerView {
        name,
        accounts,
        holds,
        ..
    } in &ends.world.ledgers
    {
        check.look(holds.is_empty(), || format!("{name} holds {holds:?}"));
        for account in accounts {
            let pending = (account.pending_debit, account.pending_credit);
            check.look(pending == (0, 0), || format!("{name} has {account:?} pending"));
        }
    }
    check
}

fn processes(ends: &Ends) -> Check {
    let mut check = Check::new(
        "processes",
        "no process panics, or ends but by what was injected; each starts again and stops with 0",
    );
    check.looked_at = ends.lives.saturating_sub(ends.processes.len());
    for wrong in &ends.processes {
        check.look(false, || wrong.clone());
    }
    check
}

fn leaks(ends: &Ends) -> Check {
    let mut check = Check::new("leaks", "no process is left behind");
    check.look(ends.leaked.is_empty(), || format!("left: {:?}", ends.leaked));
    check
}

fn logs(ends: &Ends) -> Check {
    let mut check = Check::new(
        "logs",
        "a data directory is bounded by what it must keep, and a replay by checkpoints (L4)",
    );
    let mut seen = BTreeSet::new();
    for log in &ends.logs {
        let bytes = LOG_BASE_BYTES + LOG_BYTES_PER_KEPT * log.kept;
        let replayed = MAX_REPLAYED + log.starts;
        let bounded = log.bytes <= bytes && log.replayed <= replayed;
        check.look(bounded && seen.insert(&log.process), || {
            format!("{log:?}; the bounds are {bytes} bytes and {replayed} replayed")
        });
    }
    check
}
