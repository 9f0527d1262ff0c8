//! What scripts do to single messages: hold one back with all that follows it in its session, let go, say one again.
//!
//! Random stories delay and cut whole sessions (`network`, `faults`); here a script names the message.

use covenant_rules::coordinator::SessionId;
use covenant_rules::{Hello, Lineage, ToCoordinator};

use crate::matrix::Message;
use crate::network::{Down, Link, Up};
use crate::node::Node;
use crate::seen::Seen;
use crate::world::{Happening, World};

/// A message that a script waits for.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    who: usize,
    message: Message,
}

impl World {
    /// The next such message, to or from a participant, is held back with all that follows it in its session, until
    /// [`World::let_go`].
    pub fn stop_at(&mut self, who: usize, message: Message) {
        self.stops.push(Stop { who, message });
    }

    /// Whether every message that was to be held back is.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stops.is_empty()
    }

    pub(crate) fn stop(&mut self, session: SessionId, message: Message) {
        let Some(link) = self.links.get_mut(&session) else {
            return;
        };
        let hit = |stop: &Stop| stop.who == link.who && stop.message == message;
        let Some(at) = self.stops.iter().position(hit) else {
            return;
        };
        self.stops.remove(at);
        if message.is_up() {
            link.up_stopped = true;
        } else {
            link.down_stopped = true;
        }
        self.see(&Seen::Fault);
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
            format!("gets besides, as from {from}: {what}")
        });
        self.up_arrives(session, Up::Frame(vec![message]));
    }

    /// The last HELLO of a participant reaches the coordinator once more, as if in a stream of its own; with a lineage,
    /// a participant of the same name and this lineage says it.
    pub fn hello_again(&mut self, who: usize, lineage: Option<Lineage>) {
        let Some(hello) = self.participants[who].hello.clone() else {
            return;
        };
        self.see(&Seen::Fault);
        self.trace.line(Node::Coordinator, &|| {
            let of = if lineage.is_some() {
                ", of another lineage"
            } else {
                ""
            };
            format!("gets besides, as from {}: HELLO{of}", Node::Participant(who))
        });
        let hello = Hello {
            lineage: lineage.unwrap_or(hello.lineage),
            ..hello
        };
        // No process is at the other end.
        let session = self.open_link(Link::new(who, 0, hello.lineage));
        self.up_arrives(session, Up::Hello(hello));
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
        if self.running(node).is_none() {
            return;
        }
        let messages: Vec<String> = match down {
            Down::Welcome(..) => vec!["WELCOME".to_owned()],
            Down::Frame(messages, ..) => messages
                .iter()
                .map(|message| crate::show::to_participant(message, &self.history))
                .collect(),
            Down::End => Vec::new(),
        };
        for what in messages {
            self.trace
                .line(node, &|| format!("never gets {what}: that session is over"));
        }
    }
}
