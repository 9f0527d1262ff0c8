//! Transactions, participants, accounts and entries as this command shows them: stable JSON shapes, and columns.
//!
//! Words are those of PROTOCOL.md in upper case. A transaction always has the same keys, also when its outcome is UNKNOWN
//! and nothing else is known.

use covenant_client::{Outcome, UnixMillis, View, from_timestamp};
use covenant_codec::ids;
use covenant_proto::{ledger::v1 as ledger, v1};
use serde::Serialize;

use crate::output::Table;
use crate::parse::time_text;

/// The most characters of a reason's detail that a table shows; `wide` and the formats for programs have all of it.
const MAX_DETAIL_CHARS: usize = 120;

/// A transaction.
#[derive(Serialize)]
pub(crate) struct TransactionView {
    pub(crate) transaction_id: String,
    /// COMMITTED, ABORTED, IN_PROGRESS, UNKNOWN, NOT_FOUND or EXPIRED.
    pub(crate) outcome: String,
    /// A stable code; null unless the transaction was aborted.
    reason: Option<String>,
    reason_detail: Option<String>,
    /// Who caused it; null if nobody did.
    reason_participant: Option<String>,
    /// NONE, COMMIT, ABORT, MIXED or HAZARD; null if it is not known.
    heuristic: Option<String>,
    /// PREPARING, DECIDING, COMMITTING, COMMITTED, ABORTING or ABORTED; null if it is not known.
    pub(crate) state: Option<String>,
    branches: Vec<BranchView>,
    /// How many branches are in doubt.
    in_doubt: u32,
    xid: Option<String>,
    created: Option<String>,
    decided: Option<String>,
    retained_since: Option<String>,
    /// Why nobody may say; only with UNKNOWN.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
    /// The safe next command; only with an outcome that is not final.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// A branch of it.
#[derive(Serialize)]
struct BranchView {
    participant: String,
    state: String,
    reason: Option<String>,
    reason_detail: Option<String>,
    heuristic: String,
    damage: Option<bool>,
    deliveries: u32,
}

impl TransactionView {
    /// What the coordinator said of a transaction.
    pub(crate) fn of(view: &View) -> Self {
        let reason = view.reason.as_ref();
        Self {
            transaction_id: view.transaction_id.clone(),
            outcome: v1::Outcome::try_from(view.outcome)
                .map_or("UNKNOWN", |word| strip(word.as_str_name(), "OUTCOME_"))
                .to_owned(),
            reason: reason.map(|reason| reason.code.clone()),
            reason_detail: reason.and_then(|reason| text(&reason.detail)),
            reason_participant: reason.and_then(|reason| text(&reason.participant)),
            heuristic: Some(heuristic(view.heuristic)),
            state: state(view.state),
            branches: view.branches.iter().map(branch).collect(),
            in_doubt: view.in_doubt,
            xid: view.xid.map(|xid| ids::from_xid(xid).to_string()),
            created: view.created.as_ref().and_then(time),
            decided: view.decided.as_ref().and_then(time),
            retained_since: view.retained_since.as_ref().and_then(time),
            unknown: None,
            next: None,
        }
    }

    /// What may be said of a transaction; `id` and `created` are what the caller knows by itself.
    pub(crate) fn of_outcome(outcome: &Outcome, id: &str, created: Option<UnixMillis>) -> Self {
        let mut shown = match outcome.view() {
            Some(view) => Self::of(view),
            None => Self {
                heuristic: None,
                ..Self::of(&View::default())
            },
        };
        shown.transaction_id = id.to_owned();
        shown.outcome = outcome.word().to_owned();
        shown.created = shown.created.or(created.map(time_text));
        if let Outcome::Unknown(unknown) = outcome {
            shown.unknown = Some(unknown.to_string());
        }
        shown
    }

    /// The transaction, its branches, and the detail of a reason that no branch shows.
    pub(crate) fn tables(&self, wide: bool) -> Vec<Table> {
        let mut tables = vec![Self::table(std::slice::from_ref(self), wide)];
        if !self.branches.is_empty() {
            tables.push(self.branch_table(wide));
        }
        let detail = self.reason_detail.as_ref().filter(|detail| {
            let mut shown = self.branches.iter().map(|branch| branch.reason_detail.as_ref());
            !shown.any(|shown| shown == Some(detail))
        });
        if let Some(detail) = detail {
            let mut table = Table::new(&["REASON", "DETAIL"]);
            table.row(vec![or_none(self.reason.as_ref()), shown_detail(detail, wide)]);
            tables.push(table);
        }
        tables
    }

    /// One row for each branch; DETAIL stands there if any has one.
    fn branch_table(&self, wide: bool) -> Table {
        let with_detail = wide || self.branches.iter().any(|branch| branch.reason_detail.is_some());
        let mut header = vec!["PARTICIPANT", "STATE", "REASON"];
        if wide {
            header.extend(["HEURISTIC", "DELIVERIES"]);
        }
        if with_detail {
            header.push("DETAIL");
        }
        let mut table = Table::new(&header).right(if wide { &[4] } else { &[] });
        for branch in &self.branches {
            let mut row = vec![
                branch.participant.clone(),
                branch.state.clone(),
                or_none(branch.reason.as_ref()),
            ];
            if wide {
                row.extend([branch.heuristic.clone(), branch.deliveries.to_string()]);
            }
            if with_detail {
                let detail = branch.reason_detail.as_deref().unwrap_or_default();
                row.push(shown_detail(detail, wide));
            }
            table.row(row);
        }
        table
    }

    /// One row for each transaction.
    pub(crate) fn table(transactions: &[Self], wide: bool) -> Table {
        let mut header = vec![
            "TRANSACTION",
            "OUTCOME",
            "STATE",
            "REASON",
            "HEURISTIC",
            "IN-DOUBT",
            "DECIDED",
        ];
        if wide {
            header.extend(["CREATED", "BRANCHES", "XID"]);
        }
        let mut table = Table::new(&header).right(&[5]);
        for shown in transactions {
            let mut row = vec![
                shown.transaction_id.clone(),
                shown.outcome.clone(),
                or_none(shown.state.as_ref()),
                or_none(shown.reason.as_ref()),
                or_none(shown.heuristic.as_ref()),
                shown.in_doubt.to_string(),
                or_none(shown.decided.as_ref()),
            ];
            if wide {
                let branches = shown
                    .branches
                    .iter()
                    .map(|branch| format!("{}={}", branch.participant, branch.state));
                let branches = branches.collect::<Vec<_>>().join(",");
                row.extend([
                    or_none(shown.created.as_ref()),
                    branches,
                    or_none(shown.xid.as_ref()),
                ]);
            }
            table.row(row);
        }
        table
    }
}

fn branch(status: &v1::BranchStatus) -> BranchView {
    let reason = status.reason.as_ref();
    BranchView {
        participant: status.participant.clone(),
        state: branch_state(status.state),
        reason: reason.map(|reason| reason.code.clone()),
        reason_detail: reason.and_then(|reason| text(&reason.detail)),
        heuristic: heuristic(status.heuristic),
        damage: status.damage,
        deliveries: status.deliveries,
    }
}

/// A participant as the coordinator knows it.
#[derive(Serialize)]
pub(crate) struct ParticipantView {
    name: String,
    joined: bool,
    joined_since: Option<String>,
    in_progress: u64,
    in_doubt: u64,
    lineage: Option<String>,
    incarnation: Option<u64>,
    protocol_version: Option<u32>,
    floor: Option<String>,
}

impl ParticipantView {
    pub(crate) fn of(participant: &v1::Participant) -> Self {
        Self {
            name: participant.name.clone(),
            joined: participant.joined,
            joined_since: participant.joined_since.as_ref().and_then(time),
            in_progress: participant.in_progress,
            in_doubt: participant.in_doubt,
            lineage: participant
                .lineage
                .map(|lineage| ids::from_lineage(lineage).to_string()),
            incarnation: participant.incarnation.map(|incarnation| incarnation.counter),
            protocol_version: Some(participant.protocol_version).filter(|version| *version != 0),
            floor: participant
                .floor
                .map(|floor| format!("{}/{}", floor.counter, floor.seq)),
        }
    }

    pub(crate) fn table(participants: &[Self], wide: bool) -> Table {
        let mut header = vec!["PARTICIPANT", "JOINED", "SINCE", "IN-PROGRESS", "IN-DOUBT"];
        if wide {
            header.extend(["INCARNATION", "VERSION", "FLOOR", "LINEAGE"]);
        }
        let mut table = Table::new(&header).right(&[3, 4]);
        for shown in participants {
            let mut row = vec![
                shown.name.clone(),
                if shown.joined { "yes" } else { "no" }.to_owned(),
                or_none(shown.joined_since.as_ref()),
                shown.in_progress.to_string(),
                shown.in_doubt.to_string(),
            ];
            if wide {
                row.extend([
                    or_none(shown.incarnation.as_ref()),
                    or_none(shown.protocol_version.as_ref()),
                    or_none(shown.floor.as_ref()),
                    or_none(shown.lineage.as_ref()),
                ]);
            }
            table.row(row);
        }
        table
    }
}

/// An account of a ledger; amounts are in minor units.
#[derive(Serialize)]
pub(crate) struct AccountView {
    account: String,
    currency: String,
    posted: i64,
    pending_debit: i64,
    pending_credit: i64,
    available: i64,
    closed: bool,
}

impl AccountView {
    pub(crate) fn of(account: &ledger::Account) -> Self {
        Self {
            account: account.account.clone(),
            currency: account.currency.clone(),
            posted: account.posted,
            pending_debit: account.pending_debit,
            pending_credit: account.pending_credit,
            available: account.available,
            closed: account.closed,
        }
    }

    pub(crate) fn table(accounts: &[Self]) -> Table {
        let header = [
            "ACCOUNT",
            "CURRENCY",
            "POSTED",
            "PENDING-DEBIT",
            "PENDING-CREDIT",
            "AVAILABLE",
            "CLOSED",
        ];
        let mut table = Table::new(&header).right(&[2, 3, 4, 5]);
        for shown in accounts {
            table.row(vec![
                shown.account.clone(),
                shown.currency.clone(),
                shown.posted.to_string(),
                shown.pending_debit.to_string(),
                shown.pending_credit.to_string(),
                shown.available.to_string(),
                if shown.closed { "yes" } else { "no" }.to_owned(),
            ]);
        }
        table
    }
}

/// An entry of an account; amounts are in minor units.
#[derive(Serialize)]
pub(crate) struct EntryView {
    /// Null for an opening.
    transaction_id: Option<String>,
    account: String,
    currency: String,
    amount: i64,
    balance_after: i64,
    posted_at: Option<String>,
    /// From PREPARED to COMMITTED; null for an opening.
    held_for_ms: Option<u64>,
    xid: Option<String>,
}

impl EntryView {
    pub(crate) fn of(entry: &ledger::Entry) -> Self {
        Self {
            transaction_id: text(&entry.transaction_id),
            account: entry.account.clone(),
            currency: entry.currency.clone(),
            amount: entry.amount,
            balance_after: entry.balance_after,
            posted_at: entry.posted_at.as_ref().and_then(time),
            held_for_ms: entry.held_for.as_ref().map(millis),
            xid: entry.xid.map(|xid| ids::from_xid(xid).to_string()),
        }
    }

    pub(crate) fn table(entries: &[Self], wide: bool) -> Table {
        let mut header = vec![
            "POSTED-AT",
            "TRANSACTION",
            "AMOUNT",
            "BALANCE",
            "CURRENCY",
            "HELD-MS",
        ];
        if wide {
            header.push("XID");
        }
        let mut table = Table::new(&header).right(&[2, 3, 5]);
        for shown in entries {
            let mut row = vec![
                or_none(shown.posted_at.as_ref()),
                or_none(shown.transaction_id.as_ref()),
                shown.amount.to_string(),
                shown.balance_after.to_string(),
                shown.currency.clone(),
                or_none(shown.held_for_ms.as_ref()),
            ];
            if wide {
                row.push(or_none(shown.xid.as_ref()));
            }
            table.row(row);
        }
        table
    }
}

/// A duration of the wire in whole milliseconds; a negative one counts as 0.
pub(crate) fn millis(duration: &prost_types::Duration) -> u64 {
    let seconds = u64::try_from(duration.seconds).unwrap_or_default();
    seconds.saturating_mul(1_000) + u64::try_from(duration.nanos).unwrap_or_default() / 1_000_000
}

/// The word for the state of a branch.
pub(crate) fn branch_state(state: i32) -> String {
    v1::BranchState::try_from(state)
        .map_or("UNKNOWN", |word| strip(word.as_str_name(), "BRANCH_STATE_"))
        .to_owned()
}

fn heuristic(heuristic: i32) -> String {
    match v1::Heuristic::try_from(heuristic) {
        Ok(v1::Heuristic::Unspecified) | Err(_) => "NONE".to_owned(),
        Ok(word) => strip(word.as_str_name(), "HEURISTIC_").to_owned(),
    }
}

fn state(state: i32) -> Option<String> {
    match v1::TransactionState::try_from(state) {
        Ok(v1::TransactionState::Unspecified) | Err(_) => None,
        Ok(word) => Some(strip(word.as_str_name(), "TRANSACTION_STATE_").to_owned()),
    }
}

fn strip(word: &'static str, prefix: &str) -> &'static str {
    word.strip_prefix(prefix).unwrap_or(word)
}

fn text(text: &str) -> Option<String> {
    Some(text).filter(|text| !text.is_empty()).map(ToOwned::to_owned)
}

fn time(timestamp: &prost_types::Timestamp) -> Option<String> {
    from_timestamp(timestamp).map(time_text)
}

/// A detail as a table shows it: in full if it is wide, else its beginning.
fn shown_detail(detail: &str, wide: bool) -> String {
    match detail.char_indices().nth(MAX_DETAIL_CHARS) {
        Some((end, _)) if !wide => format!("{}...", &detail[..end]),
        Some(_) | None => detail.to_owned(),
    }
}

fn or_none(value: Option<&impl ToString>) -> String {
    value.map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests;
