//! The coordinator: the table of all transactions, sessions and what is durable (sections 3, 5, 6, 7, 8).
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | the machine: `recover`, `step`, `next_deadline` |
//! | `event.rs` | the seam: events and effects, replies and alarms |
//! | `fold.rs` | what durable records add up to |
//! | `transaction.rs` | the life of one transaction: C1 to C11 |
//! | `durable.rs` | what a durable record sets free |
//! | `heuristics.rs` | C12, C13 |
//! | `forgetting.rs` | FORGET, from its record to its acknowledgement; heuristics at a start |
//! | `on_its_way.rs` | what was appended about a branch and is not durable |
//! | `quarantine.rs` | what did not decode, and what it stands in the way of |
//! | `reporters.rs` | whose the heuristics are |
//! | `inquiry.rs` | section 5 |
//! | `calls.rs` | section 7: Execute, GetTransaction, AbortTransaction |
//! | `sessions.rs` | section 8: joining, and who may say what |
//! | `retention.rs` | section 6: how long outcomes stay |
//!
//! Finished outcomes live in an archive outside (there may be millions): the machine emits
//! [`Effect::Archive`] and [`Effect::Expire`], and an event that may concern a finished transaction brings
//! what the archive knows (`known`).

mod calls;
mod durable;
mod event;
mod fold;
mod forgetting;
mod heuristics;
mod inquiry;
mod on_its_way;
mod quarantine;
mod reporters;
mod retention;
mod sessions;
#[cfg(test)]
mod tests;
mod transaction;
mod view;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

pub use event::{Alarm, AlarmCode, Effect, Event, Execute, Refusal, Reply, RequestId};
pub use fold::{Fold, HeuristicEntry, Open, Resolved};
pub use retention::Archived;
pub use sessions::{JoinRefusal, ParticipantView, SessionId};
pub use transaction::State;
pub use view::{BranchView, View};

use crate::{
    Floor, Heuristic, Incarnation, Limits, Lineage, Lsn, Millis, Name, Outcome, Quarantined, Record,
    ToCoordinator, ToParticipant, TransactionId, UnixMillis, Xid,
};
use forgetting::Walk;
use on_its_way::OnItsWay;
use quarantine::Quarantine;
use retention::Retention;
use sessions::{Known, Session};
use transaction::Transaction;

/// What a start brings along beside the records.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// The lineage to take if the log is new.
    pub new_lineage: Lineage,
    /// 64 random bits for the new incarnation.
    pub bits: u64,
    /// The wall clock at this start; `now` of every step counts from here.
    pub started: UnixMillis,
    /// What the archive holds.
    pub archived: Archived,
    /// The log ends below this LSN, which was once known to be forced: its tail was lost (section 5).
    pub tail_lost: Option<Lsn>,
    /// Archived outcomes that did not decode. They stay in the archive; the log says nothing of them.
    pub quarantined: Vec<Quarantined>,
}

/// What a timer is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Timer {
    /// The deadline while PREPARING, the next delivery of COMMIT while COMMITTING.
    Transaction(Xid),
    /// The next delivery of FORGET.
    Forget(Xid, Name, u32),
    /// The next slice of heuristics.
    Walk(Walk),
    /// The next look at retention.
    Retention,
}

/// The coordinator's machine. See the module's documentation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Coordinator {
    limits: Limits,
    lineage: Lineage,
    incarnation: Incarnation,
    started: UnixMillis,
    /// Wall clock minus monotonic clock, as last told.
    clock_offset: i64,
    now: Millis,
    serving: bool,
    fold: Fold,
    quarantine: Quarantine,
    /// Appended and not durable, oldest first.
    pending: VecDeque<(Lsn, Record)>,
    /// What of `pending` is about single branches.
    on_its_way: OnItsWay,
    appended: Lsn,
    durable: Lsn,
    next_seq: u64,
    last_decided: UnixMillis,
    /// No id of an earlier start has a later `created` (R3, R5).
    latest_of_earlier: UnixMillis,
    /// PREPARING to COMMITTING; ends with durable ABORT or appended END.
    transactions: BTreeMap<Xid, Transaction>,
    running: BTreeMap<TransactionId, Xid>,
    /// Bytes of the operations that they hold.
    operation_bytes: usize,
    participants: BTreeMap<Name, Known>,
    sessions: BTreeMap<SessionId, Session>,
    timers: BTreeSet<(Millis, Timer)>,
    /// Branches whose next FORGET has a timer.
    forget_timers: BTreeSet<(Xid, Name)>,
    /// Operators who wait for a FORGET to be durable.
    forgetting: BTreeMap<(Xid, Name), Vec<RequestId>>,
    retention: Retention,
    /// SUSPECT is appended and not durable: already nothing may be presumed.
    suspecting: bool,
    effects: Vec<Effect>,
}

impl Coordinator {
    /// Builds the machine from a checkpoint's records and those after it, and begins a new incarnation.
    ///
    /// `last` is the LSN of the last record read. The first effects append INCARNATION (and LINEAGE on a new
    /// log) with force; until that is durable the machine is RECOVERING and does nothing.
    #[must_use]
    pub fn recover(
        limits: Limits,
        identity: Identity,
        records: impl IntoIterator<Item = Record>,
        last: Lsn,
    ) -> (Self, Vec<Effect>) {
        let mut fold = Fold::default();
        let mut effects = Vec::new();
        let mut last_decided = identity.archived.last_decided;
        for record in records {
            last_decided = last_decided.max(fold::decided(&record));
            effects.extend(fold.apply(record).map(Effect::Archive));
        }
        let mut quarantine = Quarantine::default();
        // The wall clock may have been set back since: an earlier start decided by its own.
        let last_started = identity.started.max(last_decided);
        let latest_of_earlier = last_started.saturating_add(limits.max_created_ahead_ms);
        for quarantined in fold.quarantined.iter().chain(&identity.quarantined) {
            quarantine.insert(quarantined);
        }
        let mut machine = Self {
            lineage: fold.lineage.unwrap_or(identity.new_lineage),
            incarnation: Incarnation {
                counter: 0,
                bits: identity.bits,
            },
            started: identity.started,
            clock_offset: i64::try_from(identity.started).unwrap_or(i64::MAX),
            now: 0,
            serving: false,
            quarantine,
            pending: VecDeque::new(),
            on_its_way: OnItsWay::default(),
            appended: last,
            durable: last,
            next_seq: 1,
            last_decided: last_decided.max(fold.retained_since),
            latest_of_earlier,
            transactions: BTreeMap::new(),
            running: BTreeMap::new(),
            operation_bytes: 0,
            participants: BTreeMap::new(),
            sessions: BTreeMap::new(),
            timers: BTreeSet::new(),
            forget_timers: BTreeSet::new(),
            forgetting: BTreeMap::new(),
            suspecting: false,
            retention: Retention::new(identity.archived, &limits),
            limits,
            fold,
            effects,
        };
        let replayed: Vec<Outcome> = machine.effects.iter().filter_map(archived).cloned().collect();
        for outcome in replayed {
            machine.retention.add(&outcome);
        }
        machine.forget_expired();
        for (name, lineage) in machine.fold.participants.clone() {
            machine.participants.insert(name, Known::new(lineage));
        }
        if machine.fold.lineage.is_none() {
            let birth = identity.started.saturating_sub(BIRTH_MARGIN_MS);
            machine.append(
                Record::Lineage {
                    lineage: machine.lineage,
                    birth,
                    former: Vec::new(),
                },
                true,
            );
        }
        if let Some(position) = identity.tail_lost
            && machine.fold.suspect.is_none()
        {
            // Before INCARNATION: what forces that overwrites what is known of the lost tail.
            machine.suspect(None, position);
        }
        machine.incarnation.counter = machine.next_counter(identity.tail_lost);
        machine.append(Record::Incarnation(machine.incarnation), true);
        let effects = core::mem::take(&mut machine.effects);
        (machine, effects)
    }

    /// The counter of this start, whose INCARNATION is the next record (S12).
    fn next_counter(&self, tail_lost: Option<Lsn>) -> u64 {
        let last = self.fold.starts.last().map_or(0, |start| start.counter);
        // What a participant said of a lost tail is hearsay.
        let noted = match &self.fold.suspect {
            Some((None, position)) => *position,
            Some((Some(_), _)) | None => 0,
        };
        // A start is one record at least, so no counter is above the LSN of its INCARNATION: where that of an earlier
        // one may be among what does not decode, this one's LSN is above it. After a lost tail counters run ahead of the
        // LSNs, and then only their number is bounded so.
        let hides_a_start = self
            .fold
            .quarantined
            .iter()
            .any(|quarantined| quarantined.xid.is_none());
        let hidden = match (hides_a_start, noted) {
            (false, _) => 0,
            (true, 0) => self.appended,
            (true, _) => last + self.appended,
        };
        let lost = tail_lost.map_or(0, |position| {
            position.max(last + position.saturating_sub(self.durable))
        });
        last.max(hidden).max(noted).max(lost) + 1
    }

    /// Takes one event at `now` (milliseconds since the start, never falling) and returns what to do, in order.
    pub fn step(&mut self, now: Millis, event: Event) -> Vec<Effect> {
        assert!(
            now >= self.now,
            "the monotonic clock ran backwards: {} after {}",
            now,
            self.now
        );
        self.now = now;
        match event {
            Event::Clock(wall) => {
                self.clock_offset = i64::try_from(wall).unwrap_or(i64::MAX) - now.cast_signed();
            }
            Event::Execute {
                request,
                execute,
                known,
            } => self.execute(request, execute, known.as_ref()),
            Event::Get {
                request,
                transaction_id,
                created,
                known,
            } => {
                self.get(request, &transaction_id, created, known.as_ref());
            }
            Event::Abort {
                request,
                transaction_id,
                created,
                by,
                known,
            } => {
                self.abort_call(request, &transaction_id, created, by, known.as_ref());
            }
            Event::Joined { session, hello } => self.join(session, hello),
            Event::Left(session) => self.leave(session),
            Event::Message {
                session,
                message,
                known,
            } => self.message(session, message, known.as_ref()),
            Event::Forget {
                request,
                xid,
                participant,
                by,
            } => self.forget_call(request, xid, participant, by),
            Event::CallerLeft {
                request,
                transaction_id,
            } => self.caller_left(request, &transaction_id),
            Event::Quarantined(quarantined) => self.quarantine.insert(&quarantined),
            Event::Durable(lsn) => self.durable(lsn),
            Event::Tick => {}
        }
        self.fire();
        core::mem::take(&mut self.effects)
    }

    /// When the next `Tick` is due, in milliseconds since the start.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Millis> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Whether the archive must be asked about this message's attempt before it is given to `step`.
    #[must_use]
    pub fn wants_archive(&self, message: &ToCoordinator) -> Option<Xid> {
        let xid = match message {
            ToCoordinator::Inquire(xid)
            | ToCoordinator::Report(xid, _)
            | ToCoordinator::Vote(xid, crate::Vote::Yes) => *xid,
            ToCoordinator::Vote(_, crate::Vote::No(_) | crate::Vote::ReadOnly)
            | ToCoordinator::Ack(_)
            | ToCoordinator::LostState(_)
            | ToCoordinator::ForgetAck(_) => return None,
        };
        (!self.transactions.contains_key(&xid) && !self.fold.open.contains_key(&xid)).then_some(xid)
    }

    /// The durable state, for a checkpoint at [`Coordinator::position`].
    #[must_use]
    pub fn fold(&self) -> &Fold {
        &self.fold
    }

    /// The LSN of the last forced record.
    #[must_use]
    pub fn position(&self) -> Lsn {
        self.durable
    }

    /// This log's lineage.
    #[must_use]
    pub fn lineage(&self) -> Lineage {
        self.lineage
    }

    /// This start.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Whether replay is over.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.serving
    }

    /// Whether the tail of this log was found lost (section 5).
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.suspecting || self.fold.suspect.is_some()
    }

    /// How many transactions are PREPARING to COMMITTING.
    #[must_use]
    pub fn in_progress(&self) -> usize {
        self.transactions.len()
    }

    /// The bytes of operations that undecided transactions hold, at most `max_in_progress_bytes`.
    #[must_use]
    pub fn in_progress_bytes(&self) -> usize {
        self.operation_bytes
    }

    /// The lowest attempt for which this participant may still get a PREPARE, or a COMMIT that it has not
    /// acknowledged (section 6).
    #[must_use]
    pub fn floor(&self, participant: &Name) -> Floor {
        let lowest = self
            .participants
            .get(participant)
            .and_then(|known| known.lowest_owed(self.lineage));
        match lowest {
            Some(xid) => Floor {
                counter: xid.incarnation.counter,
                seq: xid.seq,
            },
            None => Floor {
                counter: self.incarnation.counter,
                seq: self.next_seq,
            },
        }
    }

    fn append(&mut self, record: Record, force: bool) {
        self.appended += 1;
        let lsn = self.appended;
        self.on_its_way.appended(&record);
        self.pending.push_back((lsn, record.clone()));
        self.effects.push(Effect::Append { lsn, record, force });
    }

    fn send(&mut self, session: SessionId, message: ToParticipant) {
        self.effects.push(Effect::Send { session, message });
    }

    fn reply(&mut self, request: RequestId, reply: Reply) {
        self.effects.push(Effect::Reply { request, reply });
    }

    fn alarm(&mut self, code: AlarmCode, participant: Option<&Name>, xid: Option<Xid>) {
        self.effects.push(Effect::Alarm(Alarm {
            code,
            participant: participant.cloned(),
            xid,
        }));
    }

    /// The wall clock as last told, moved on by the monotonic clock.
    fn wall(&self) -> UnixMillis {
        u64::try_from(self.clock_offset.saturating_add_unsigned(self.now)).unwrap_or(0)
    }

    /// A time for a decision: the wall clock, but never before an earlier decision.
    fn decide_time(&mut self) -> UnixMillis {
        self.last_decided = self.last_decided.max(self.wall());
        self.last_decided
    }

    fn mint(&mut self) -> Xid {
        let xid = Xid {
            lineage: self.lineage,
            incarnation: self.incarnation,
            seq: self.next_seq,
        };
        self.next_seq += 1;
        xid
    }

    fn fire(&mut self) {
        for _ in 0..MAX_FIRED {
            let due = self.timers.first().is_some_and(|(at, _)| *at <= self.now);
            if !due || !self.serving {
                return;
            }
            let Some((_, timer)) = self.timers.pop_first() else {
                return;
            };
            match timer {
                Timer::Transaction(xid) => self.transaction_due(xid),
                Timer::Forget(xid, participant, delivery) => {
                    self.forget_timers.remove(&(xid, participant.clone()));
                    self.forget_due(xid, participant, delivery);
                }
                Timer::Walk(walk) => self.walk(walk),
                Timer::Retention => self.retention_due(),
            }
        }
    }
}

/// The most timers that one step fires; the others are due at the next `Tick`, at once.
const MAX_FIRED: usize = 1_024;

/// A new log's birth lies this far before its making, for callers whose clocks lag (section 2).
const BIRTH_MARGIN_MS: Millis = 5_000;

fn archived(effect: &Effect) -> Option<&Outcome> {
    if let Effect::Archive(outcome) = effect {
        Some(outcome)
    } else {
        None
    }
}

/// Whether a heuristic differs from a decision.
fn differs(what: Heuristic, decision: crate::Decision) -> bool {
    match what {
        Heuristic::Commit => decision != crate::Decision::Commit,
        Heuristic::Abort => decision != crate::Decision::Abort,
        Heuristic::Mixed | Heuristic::Hazard => true,
    }
}
