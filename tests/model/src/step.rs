//! What may happen next: every action of the model and when it is on offer.
//!
//! Merged into one step, because no order is lost by it:
//! * all that one event makes a machine do at once, up to the messages that are then on their way, and appending:
//!   only forces, deliveries and crashes come between two steps of a process;
//! * the completion of a resource's call that waits for no force (ABORTED, NO, READ_ONLY);
//! * Hello and the answer to it: a Hello that is late is one not sent yet, and one answered in vain is a cut;
//! * the end of a session for both ends: what one says after the other is gone is lost either way. `Replace` is the
//!   order that differs: the coordinator hears of the new session first, and from the old one at any time later;
//! * everybody's question for every id, after every step: the earliest moment at which anything could be told.
//!
//! Faults begin after the first Execute (before it there is nothing to lose), and callers attach to no running
//! attempt (they would hear what the first one hears).

use covenant_rules::{Decision, Millis, ToParticipant, Xid, coordinator::State};

use crate::bounds::Bounds;
use crate::world::{Down, World};

/// One action. Participants are named by their place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A caller runs an id, or sends it again.
    Execute(u8),
    /// A caller aborts an id.
    AbortCall(u8),
    /// The coordinator's next record is forced.
    Force,
    /// A participant's records are forced up to the first that somebody waits for.
    ForceAt(usize),
    /// A participant without a session joins.
    Dial(usize),
    /// The next frame on its way to a participant arrives.
    Down(usize),
    /// The same, and the participant refuses the PREPARE in it.
    DownRefused(usize),
    /// The next message on its way from a participant arrives.
    Up(usize),
    /// The next message from a participant in a session that was replaced arrives.
    Late(usize),
    /// A session ends for both sides, with what is on its way.
    Cut(usize),
    /// A participant gives its session up and joins again, before the coordinator knows.
    Replace(usize),
    /// The coordinator dies, keeps this many records beyond the durable ones, and starts again.
    Crash {
        /// How many.
        kept: usize,
    },
    /// A participant dies, likewise.
    CrashAt {
        /// Which.
        place: usize,
        /// How many records beyond the durable ones it keeps.
        kept: usize,
        /// Whether the coordinator notices before it is back: it is away until it joins. Otherwise its new session
        /// replaces the old one.
        noticed: bool,
    },
    /// The coordinator's time jumps to its next deadline.
    Tick(Millis),
    /// A participant's time jumps to its next deadline.
    TickAt(usize, Millis),
    /// An operator decides a prepared branch by hand.
    ByHand(usize, Xid, Decision),
    /// An operator lets damage be forgotten.
    Forget,
}

impl World {
    /// Everything that may happen next.
    pub(crate) fn steps(&self, bounds: &Bounds, steps: &mut Vec<Step>) {
        if self.truth.asserted {
            return; // What comes after a broken assertion means nothing.
        }
        self.progress(steps);
        self.calls(bounds, steps);
        if self.sent[0] {
            self.faults(steps);
        }
    }

    /// What happens by itself, sooner or later.
    fn progress(&self, steps: &mut Vec<Step>) {
        if !self.server.log.pending().is_empty() {
            steps.push(Step::Force);
        }
        for (place, site) in self.sites.iter().enumerate() {
            if site.awaits_force() {
                steps.push(Step::ForceAt(place));
            }
            if !self.late[place].up.is_empty() {
                steps.push(Step::Late(place));
            }
            let Some(link) = &self.links[place] else {
                steps.push(Step::Dial(place));
                continue;
            };
            if let Some(down) = link.down.front() {
                steps.push(Step::Down(place));
                if self.left.refusals > 0 && asks(down) {
                    steps.push(Step::DownRefused(place));
                }
            }
            if !link.up.is_empty() {
                steps.push(Step::Up(place));
            }
        }
        if self.server.damage().is_some() {
            steps.push(Step::Forget);
        }
    }

    /// What callers and operators may do. An id is sent again only when this process does not run it: who
    /// attaches to a running one hears what the others hear.
    fn calls(&self, bounds: &Bounds, steps: &mut Vec<Step>) {
        for id in 0..bounds.transactions {
            let sent = self.sent[usize::from(id)];
            let state = self.state_of(id);
            if self.server.machine.is_serving() && state.is_none() && (!sent || self.left.retries > 0) {
                // In order: the ids differ in nothing but their names.
                if id == 0 || self.sent[usize::from(id) - 1] {
                    steps.push(Step::Execute(id));
                }
            }
            let may_abort = sent && (state.is_none() || state == Some(State::Preparing));
            if self.left.aborts > 0 && self.server.machine.is_serving() && may_abort {
                steps.push(Step::AbortCall(id));
            }
        }
        if self.left.heuristics > 0 {
            for (place, site) in self.sites.iter().enumerate() {
                for xid in site.in_doubt() {
                    steps.push(Step::ByHand(place, xid, Decision::Commit));
                    steps.push(Step::ByHand(place, xid, Decision::Abort));
                }
            }
        }
    }

    fn faults(&self, steps: &mut Vec<Step>) {
        if self.left.coordinator_crashes > 0 {
            let pending = self.server.log.pending().len();
            steps.extend((0..=pending).map(|kept| Step::Crash { kept }));
        }
        for (place, site) in self.sites.iter().enumerate() {
            if self.left.participant_crashes[place] > 0 {
                let pending = site.disk.pending.len();
                for kept in 0..=pending {
                    for noticed in [false, true] {
                        // Without a session there is nothing to notice.
                        if !noticed || self.links[place].is_some() {
                            steps.push(Step::CrashAt { place, kept, noticed });
                        }
                    }
                }
            }
            if self.left.participant_ticks > 0
                && let Some(at) = self.deadline_at(place)
            {
                steps.push(Step::TickAt(place, at));
            }
        }
        if self.left.coordinator_ticks > 0
            && let Some(at) = self.deadline()
        {
            steps.push(Step::Tick(at));
        }
        if self.left.cuts > 0 {
            for place in (0..self.sites.len()).filter(|place| self.links[*place].is_some()) {
                steps.push(Step::Cut(place));
                steps.push(Step::Replace(place));
            }
        }
    }
}

fn asks(down: &Down) -> bool {
    match down {
        Down::Welcome(_) => false,
        Down::Frame(messages, ..) => messages
            .iter()
            .any(|message| matches!(message, ToParticipant::Prepare { .. })),
    }
}
