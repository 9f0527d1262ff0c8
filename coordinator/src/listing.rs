//! Pages of transactions and participants.
//!
//! Running transactions come first, in the order of their attempts, then finished ones, the latest first. A
//! page may be short: a call looks at most at [`MAX_SCANNED`] transactions, and its token goes on from there.

use covenant_rules::coordinator::{ParticipantView, State, View};
use covenant_rules::{Coordinator, Floor, Name, UnknownCause, Xid};

use crate::archive::{Item, OutcomeArchive};
use crate::input::Refused;

/// The most transactions or participants of one page.
pub(crate) const MAX_PAGE_SIZE: usize = 1_000;

/// The page size of a call that names none.
pub(crate) const DEFAULT_PAGE_SIZE: usize = 100;

/// The most transactions that one call looks at.
const MAX_SCANNED: usize = 2_000;

/// Which transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filter {
    All,
    InProgress,
    Committing,
    InDoubt,
    Committed,
    Aborted,
}

impl Filter {
    fn takes(self, view: &View) -> bool {
        let Some(state) = view.state else { return false };
        match self {
            Self::All => true,
            Self::InProgress => matches!(state, State::Preparing | State::Deciding | State::Aborting),
            Self::Committing => state == State::Committing,
            Self::InDoubt => view.in_doubt() > 0,
            Self::Committed => state == State::Committed,
            Self::Aborted => state == State::Aborted,
        }
    }

    fn finished(self) -> bool {
        matches!(self, Self::All | Self::Committed | Self::Aborted)
    }
}

/// Where a page begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cursor {
    /// After this running attempt.
    Running(Option<Xid>),
    /// Decided and not finished: only heuristics hold them.
    Open(Option<Xid>),
    /// Archived items below this number.
    Archived(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct TransactionQuery {
    pub(crate) filter: Filter,
    pub(crate) page_size: usize,
    pub(crate) cursor: Cursor,
}

#[derive(Debug, Default)]
pub(crate) struct TransactionPage {
    pub(crate) views: Vec<View>,
    pub(crate) next: Option<Cursor>,
}

#[derive(Clone, Debug)]
pub(crate) struct ParticipantQuery {
    pub(crate) page_size: usize,
    pub(crate) after: Option<Name>,
}

#[derive(Debug)]
pub(crate) struct ParticipantRow {
    pub(crate) view: ParticipantView,
    pub(crate) floor: Floor,
    /// When the live session joined, in Unix milliseconds, and the protocol version it speaks.
    pub(crate) joined: Option<(u64, u32)>,
}

#[derive(Debug, Default)]
pub(crate) struct ParticipantPage {
    pub(crate) rows: Vec<ParticipantRow>,
    pub(crate) next: Option<Name>,
}

/// One page of transactions.
pub(crate) fn transactions(
    machine: &Coordinator,
    archive: &OutcomeArchive,
    query: &TransactionQuery,
) -> Result<TransactionPage, Refused> {
    let mut page = TransactionPage::default();
    let mut scanned = 0;
    let mut cursor = query.cursor;
    if let Cursor::Running(after) = cursor {
        for view in machine.running_after(after) {
            if page.views.len() == query.page_size || scanned == MAX_SCANNED {
                page.next = Some(cursor);
                return Ok(page);
            }
            scanned += 1;
            cursor = Cursor::Running(view.xid);
            if query.filter.takes(&view) {
                page.views.push(view);
            }
        }
        cursor = Cursor::Open(None);
    }
    if let Cursor::Open(after) = cursor {
        for (xid, open) in &machine.fold().open {
            if after.is_some_and(|after| *xid <= after) || machine.is_running(*xid) {
                continue;
            }
            if page.views.len() == query.page_size || scanned == MAX_SCANNED {
                page.next = Some(cursor);
                return Ok(page);
            }
            scanned += 1;
            cursor = Cursor::Open(Some(*xid));
            let view = machine.view_of_outcome(&open.outcome);
            if query.filter.takes(&view) {
                page.views.push(view);
            }
        }
        cursor = Cursor::Archived(archive.bounds().1);
    }
    if let (true, Cursor::Archived(below)) = (query.filter.finished(), cursor) {
        page.next = archived(
            machine,
            archive,
            query,
            below,
            MAX_SCANNED - scanned,
            &mut page.views,
        )?;
    }
    Ok(page)
}

fn archived(
    machine: &Coordinator,
    archive: &OutcomeArchive,
    query: &TransactionQuery,
    below: u64,
    scan: usize,
    views: &mut Vec<View>,
) -> Result<Option<Cursor>, Refused> {
    let (start, end) = archive.bounds();
    let mut below = below.min(end);
    for _ in 0..scan {
        if below <= start {
            return Ok(None);
        }
        if views.len() == query.page_size {
            break;
        }
        below -= 1;
        let outcome = match archive.get(below).map_err(Refused::Archive)? {
            Some(Item::Outcome(outcome)) => outcome,
            Some(Item::Damaged(item)) => {
                if let (Filter::All, Some(id)) = (query.filter, item.shows.transaction_id) {
                    let since = machine.fold().retained_since;
                    views.push(View::unknown(id, UnknownCause::Quarantined, since));
                }
                continue;
            }
            None => continue,
        };
        if outcome.retained_by() < machine.fold().retained_since {
            continue;
        }
        // A heuristic opens a finished transaction again: it is listed among the open ones, or where it was archived last.
        if machine.fold().open.contains_key(&outcome.xid) || !archive.is_latest(outcome.xid, below) {
            continue;
        }
        let view = machine.view_of_outcome(&outcome);
        if query.filter.takes(&view) {
            views.push(view);
        }
    }
    Ok((below > start).then_some(Cursor::Archived(below)))
}

/// One page of participants. `joined` tells since when a session lives and which version it speaks.
pub(crate) fn participants(
    machine: &Coordinator,
    query: &ParticipantQuery,
    joined: impl Fn(u64) -> Option<(u64, u32)>,
) -> ParticipantPage {
    let mut page = ParticipantPage::default();
    for view in machine.participants() {
        if query.after.as_ref().is_some_and(|after| view.name <= *after) {
            continue;
        }
        if page.rows.len() == query.page_size {
            page.next = page.rows.last().map(|row| row.view.name.clone());
            break;
        }
        let floor = machine.floor(&view.name);
        let joined = view.session.and_then(|(session, _)| joined(session));
        page.rows.push(ParticipantRow { view, floor, joined });
    }
    page
}
