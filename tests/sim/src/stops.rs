//! What scripts do to single messages: hold one back with all that follows it in its session, let go, say one again.
//!
//! Random stories delay and cut whole sessions (`network`, `faults`); here a script names the message. Messages are
//! named as the trace writes them, by how their line begins: `PREPARE`, `NO(`, `FORGET ACK`.

use covenant_rules::coordinator::SessionId;
use covenant_rules::{ToCoordinator, ToParticipant};

use crate::network::{Down, Up};
use crate::node::Node;
use crate::seen::Seen;
use crate::world::{Happening, World};

/// A message that a script waits for.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    who: usize,
    towards_coordinator: bool,
    begins: &'static str,
}

impl World {
    /// The next message that begins so, to or from a participant, is held back with all that follows it in its
    /// session, until [`World::let_go`].
    pub fn stop_at(&mut self, who: usize, towards_coordinator: bool, begins: &'static str) {
        self.stops.push(Stop {
            who,
            towards_coordinator,
            begins,
        });
    }

    /// Whether every message that was to be held back is.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stops.is_empty()
    }

    fn takes_stop(&mut self, who: usize, towards_coordinator: bool, text: &str) -> bool {
        let hit = |stop: &Stop| {
            stop.who == who
                && stop.towards_coordinator == towards_coordinator
                && text.starts_with(stop.begins)
        };
        let Some(at) = self.stops.iter().position(hit) else {
            return false;
        };
        self.stops.remove(at);
        self.see(&Seen::Fault);
        true
    }

    pub(crate) fn stop_up(&mut self, who: usize, message: &ToCoordinator) {
        if self.stops.is_empty() {
            return;
        }
        let text = crate::show::to_coordinator(message, &self.history);
        let session = self.participants[who].process.as_ref().and_then(|p| p.session);
        if self.takes_stop(who, true, &text)
            && let Some(link) = session.and_then(|session| self.links.get_mut(&session))
        {
            link.up_stopped = true;
        }
    }

    pub(crate) fn stop_down(&mut self, session: SessionId, message: &ToParticipant) {
        if self.stops.is_empty() {
            return;
        }
        let text = crate::show::to_participant(message, &self.history);
        let Some(who) = self.links.get(&session).map(|link| link.who) else {
            return;
        };
        if self.takes_stop(who, false, &text)
            && let Some(link) = self.links.get_mut(&session)
        {
            link.down_stopped = true;
        }
    }

    /// What was held back arrives at once, in its session and in order, if anybody is left there.
    pub fn let_go(&mut self) {
        self.stops.clear();
        let stopped = |(session, link): (&SessionId, &crate::network::Link)| {
            (link.up_stopped || link.down_stopped).then_some(*session)
        };
        let sessions: Vec<SessionId> = self.links.iter().filter_map(stopped).collect();
        let at = self.now + self.setup.timing.network_us.0;
        for session in sessions {
            let Some(link) = self.links.get_mut(&session) else {
                continue;
            };
            (link.up_stopped, link.down_stopped) = (false, false);
            let (ups, downs) = (
                std::mem::take(&mut link.held_up),
                std::mem::take(&mut link.held_down),
            );
            for up in ups {
                self.at(at, Happening::Up(session, up));
            }
            for down in downs {
                self.at(at, Happening::Down(session, down));
            }
        }
    }

    /// Something reaches the coordinator in the present session of a participant that did not just say it.
    pub fn say(&mut self, who: usize, message: ToCoordinator) {
        let Some(session) = self.participants[who].process.as_ref().and_then(|p| p.session) else {
            return;
        };
        self.see(&Seen::Fault);
        self.trace.line(Node::Coordinator, &|| {
            let (from, what) = (
                Node::Participant(who),
                crate::show::to_coordinator(&message, &self.history),
            );
            format!("is sent once more, by {from}: {what}")
        });
        self.up_arrives(session, Up::Frame(vec![message]));
    }

    /// A frame reaches a coordinator process that does not have its session.
    pub(crate) fn nobody_hears(&mut self, session: SessionId, up: &Up) {
        let Some(who) = self.links.get(&session).map(|link| link.who) else {
            return;
        };
        if let (Up::Frame(messages), Some(_)) = (up, self.running(Node::Coordinator)) {
            for message in messages {
                self.trace.line(Node::Coordinator, &|| {
                    let what = crate::show::to_coordinator(message, &self.history);
                    format!("never gets {what}: its session with p{} is over", who + 1)
                });
            }
        }
    }

    /// A frame reaches a participant process that does not have its session.
    pub(crate) fn nobody_gets(&mut self, session: SessionId, down: &Down) {
        let Some(who) = self.links.get(&session).map(|link| link.who) else {
            return;
        };
        let node = Node::Participant(who);
        if let (Down::Frame(messages, ..), Some(_)) = (down, self.running(node)) {
            for message in messages {
                self.trace.line(node, &|| {
                    let what = crate::show::to_participant(message, &self.history);
                    format!("never gets {what}: that session is over")
                });
            }
        }
    }
}
