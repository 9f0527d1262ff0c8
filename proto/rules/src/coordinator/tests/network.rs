//! The random world's network: links that keep order and are cut at will, and what participants say on them.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::super::{Effect, Event, SessionId};
use super::world::{NAMES, World, pick};
use super::{LOG, name};
use crate::{Floor, Hello, Heuristic, Incarnation, Lineage, Lsn, ToCoordinator, ToParticipant, Xid};

/// What goes to a participant.
pub(super) enum Down {
    Welcome,
    Message(ToParticipant),
    Floor(Floor, Lsn),
}

/// One session's stream, both ways.
pub(super) struct Link {
    pub(super) who: usize,
    down: VecDeque<Down>,
    up: VecDeque<ToCoordinator>,
}

impl World {
    pub(super) fn transmit(&mut self, effect: &Effect) {
        match effect {
            Effect::Send { session, message } => self.put(*session, Down::Message(message.clone())),
            Effect::Welcome(session) => self.put(*session, Down::Welcome),
            Effect::RefuseJoin(session, _) => self.drop_link(*session),
            // A replaced one ends; what its participant had sent on it may still arrive.
            Effect::Replaced(_)
            | Effect::Append { .. }
            | Effect::Reply { .. }
            | Effect::Serving
            | Effect::Archive(_)
            | Effect::Expire(_)
            | Effect::Changed(_)
            | Effect::Alarm(_) => {}
        }
    }

    pub(super) fn put(&mut self, session: SessionId, down: Down) {
        if let Some(link) = self.links.get_mut(&session) {
            link.down.push_back(down);
        }
    }

    /// Floors and position ride behind the messages of a frame.
    pub(super) fn ride_floors(&mut self, sent: &BTreeSet<SessionId>) {
        for whose in NAMES {
            let floor = self.machine.floor(&name(whose));
            if self.machine.is_serving() {
                let before = self.floors.insert(whose, floor).unwrap_or_default();
                assert!(
                    before <= floor,
                    "section 6: the floor of {whose} fell: {before:?} {floor:?}"
                );
            }
        }
        for session in sent {
            let Some(link) = self.links.get_mut(session) else {
                continue;
            };
            let participant = &self.participants[link.who];
            let floor = self.machine.floor(&participant.name);
            link.down.push_back(Down::Floor(floor, self.machine.position()));
            let highest = self.truth.floors.entry(participant.lineage).or_default();
            *highest = (*highest).max(floor);
        }
    }

    /// One frame arrives at its participant, if that still believes in the session.
    pub(super) fn down(&mut self, session: SessionId) -> bool {
        let Some(link) = self.links.get_mut(&session) else {
            return false;
        };
        let Some(down) = link.down.pop_front() else {
            return false;
        };
        if self.sessions[link.who] != Some(session) {
            return true;
        }
        let participant = &mut self.participants[link.who];
        let said = match down {
            Down::Welcome => participant.welcomed(),
            Down::Message(message) => participant.hears(message),
            Down::Floor(floor, position) => {
                participant.hears_floor(floor, position);
                Vec::new()
            }
        };
        self.note_prepared();
        if let Some(link) = self.links.get_mut(&session) {
            link.up.extend(said);
        }
        true
    }

    pub(super) fn note_prepared(&mut self) {
        for participant in &self.participants {
            let prepared = participant.prepared();
            self.truth
                .prepared
                .extend(prepared.into_iter().map(|xid| (xid, participant.lineage)));
        }
    }

    pub(super) fn up(&mut self, session: SessionId) -> bool {
        let Some(link) = self.links.get_mut(&session) else {
            return false;
        };
        let Some(message) = link.up.pop_front() else {
            return false;
        };
        if let ToCoordinator::Ack(xid) = message {
            self.truth
                .acked
                .insert((xid, self.participants[link.who].lineage));
        }
        let wanted = self.machine.wants_archive(&message);
        let known = wanted.and_then(|xid| self.archive.outcomes.get(&xid).cloned());
        self.step(Event::Message {
            session,
            message,
            known,
        });
        true
    }

    pub(super) fn flow(&mut self) {
        for _ in 0..100 {
            let sessions: Vec<SessionId> = self.links.keys().copied().collect();
            let mut moved = false;
            for session in sessions {
                while self.down(session) {
                    moved = true;
                }
                while self.up(session) {
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
        panic!("participants and coordinator talk without end");
    }

    pub(super) fn dial(&mut self, who: usize, ahead: Lsn) {
        self.participants[who].session_ended();
        let session = self.next_session;
        self.next_session += 1;
        let link = Link {
            who,
            down: VecDeque::new(),
            up: VecDeque::new(),
        };
        self.links.insert(session, link);
        self.sessions[who] = Some(session);
        let participant = &self.participants[who];
        let hello = Hello {
            name: participant.name.clone(),
            lineage: participant.lineage,
            incarnation: Incarnation { counter: 1, bits: 7 },
            connection: session,
            positions: alloc::vec![(LOG, participant.position + ahead)],
        };
        self.step(Event::Joined { session, hello });
    }

    pub(super) fn cut(&mut self, session: SessionId) {
        self.drop_link(session);
        self.step(Event::Left(session));
    }

    pub(super) fn drop_link(&mut self, session: SessionId) {
        if let Some(link) = self.links.remove(&session)
            && self.sessions[link.who] == Some(session)
        {
            self.sessions[link.who] = None;
            self.participants[link.who].session_ended();
        }
    }

    pub(super) fn says(&mut self, who: usize, said: Vec<ToCoordinator>) {
        if let Some(link) = self.sessions[who].and_then(|session| self.links.get_mut(&session)) {
            link.up.extend(said);
        }
    }

    pub(super) fn again(&mut self, who: usize, what: u8) {
        if let Some(said) = pick(self.participants[who].said.iter(), what) {
            self.says(who, alloc::vec![said]);
        }
    }

    /// An inquiry about any attempt there was, or one that never was, of this log or another.
    pub(super) fn inquire(&mut self, who: usize, what: u8) {
        let minted: Vec<Xid> = self.truth.minted.keys().copied().collect();
        let mut xid = pick(minted.iter(), what).unwrap_or_else(|| super::xid(1, 1));
        match what % 8 {
            0 => xid.lineage = Lineage(0xf0),
            1 => xid.seq += 1_000,
            2 => xid.incarnation.bits += 1,
            3 => xid.incarnation.counter += 100,
            _ => {}
        }
        self.says(who, alloc::vec![ToCoordinator::Inquire(xid)]);
    }

    pub(super) fn by_hand(&mut self, who: usize, which: u8, commit: bool) {
        let what = if commit {
            Heuristic::Commit
        } else {
            Heuristic::Abort
        };
        if let Some(xid) = pick(self.participants[who].prepared().iter(), which) {
            let said = self.participants[who].resolves(xid, what);
            self.note_prepared();
            self.says(who, said);
        }
    }
}
