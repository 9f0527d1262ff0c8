//! Sessions: ordered streams that are delayed, held back, cut and half closed; frames of a replaced one arrive late.

use covenant_fault::CrashPoint;
use covenant_rules::coordinator::{Event as CoordinatorEvent, SessionId};
use covenant_rules::participant::Event as ParticipantEvent;
use covenant_rules::{Floor, Hello, Incarnation, Lineage, Lsn, ToCoordinator, ToParticipant};

use crate::matrix::Message;
use crate::node::{Micros, Node};
use crate::seen::Seen;
use crate::world::{Happening, World};

/// How long a participant waits for a Welcome.
const DIAL_TIMEOUT_US: Micros = 2_000_000;

/// From a participant to the coordinator.
#[derive(Clone, Debug)]
pub(crate) enum Up {
    Hello(Hello),
    Frame(Vec<ToCoordinator>),
    Left,
}

/// From the coordinator to a participant.
#[derive(Clone, Debug)]
pub(crate) enum Down {
    Welcome(Lineage, Incarnation),
    Frame(Vec<ToParticipant>, Floor, Lsn),
    End,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) who: usize,
    /// The participant's process and log.
    process: u64,
    pub(crate) lineage: Lineage,
    /// The coordinator's process and log, once Hello has arrived.
    coordinator: Option<(u64, Lineage)>,
    /// When the last item of a direction arrives: none overtakes it.
    up_last: Micros,
    down_last: Micros,
    participant_open: bool,
    coordinator_open: bool,
    welcomed: bool,
    /// What is on its way is lost.
    up_lost: bool,
    down_lost: bool,
    /// From here on a script holds this direction back, until it lets go.
    pub(crate) up_stopped: bool,
    pub(crate) down_stopped: bool,
    pub(crate) held_up: Vec<Up>,
    pub(crate) held_down: Vec<Down>,
}

impl Link {
    /// A session that nobody has an end of yet.
    pub(crate) fn new(who: usize, process: u64, lineage: Lineage) -> Self {
        Self {
            who,
            process,
            lineage,
            coordinator: None,
            up_last: 0,
            down_last: 0,
            participant_open: false,
            coordinator_open: false,
            welcomed: false,
            up_lost: false,
            down_lost: false,
            up_stopped: false,
            down_stopped: false,
            held_up: Vec::new(),
            held_down: Vec::new(),
        }
    }
}

impl World {
    pub(crate) fn open_link(&mut self, link: Link) -> SessionId {
        let session = self.next_session;
        self.next_session += 1;
        self.links.insert(session, link);
        session
    }

    pub(crate) fn dial(&mut self, who: usize) {
        let Some(process) = &mut self.participants[who].process else {
            return;
        };
        if process.session.is_none() && process.machine.is_some() {
            process.dials += 1;
            self.participant_step(who, ParticipantEvent::Dialed);
        }
    }

    /// The machine said its Hello: a session begins.
    pub(crate) fn dialled(&mut self, who: usize, hello: Hello) {
        let Some(process) = &self.participants[who].process else {
            return;
        };
        let session = self.open_link(Link {
            participant_open: true,
            ..Link::new(who, process.id, hello.lineage)
        });
        let own = &mut self.participants[who];
        own.hello = Some(hello.clone());
        if let Some(process) = &mut own.process {
            process.session = Some(session);
        }
        self.trace.line(Node::Participant(who), &|| {
            format!("-> c   HELLO, connection {}", hello.connection)
        });
        self.stop(session, Message::Hello);
        self.send_up(session, Up::Hello(hello));
        self.after(DIAL_TIMEOUT_US, Happening::DialTimeout(session));
    }

    pub(crate) fn dial_timed_out(&mut self, session: SessionId) {
        let waits = self
            .links
            .get(&session)
            .filter(|link| link.participant_open && !link.welcomed);
        if let Some(who) = waits.map(|link| link.who) {
            self.session_over(who, session, false);
        }
    }

    pub(crate) fn send_up(&mut self, session: SessionId, up: Up) {
        let delay = self.between(self.setup.timing.network_us);
        let Some(link) = self.links.get_mut(&session) else {
            return;
        };
        if link.up_stopped || self.partitioned.contains(&(link.who, true)) {
            link.held_up.push(up);
            return;
        }
        link.up_last = link.up_last.max(self.now + delay);
        let at = link.up_last;
        self.at(at, Happening::Up(session, up));
    }

    pub(crate) fn send_down(&mut self, session: SessionId, down: Down) {
        let delay = self.between(self.setup.timing.network_us);
        let Some(link) = self.links.get_mut(&session) else {
            return;
        };
        if link.down_stopped || self.partitioned.contains(&(link.who, false)) {
            link.held_down.push(down);
            return;
        }
        link.down_last = link.down_last.max(self.now + delay);
        let at = link.down_last;
        self.at(at, Happening::Down(session, down));
    }

    pub(crate) fn up_arrives(&mut self, session: SessionId, up: Up) {
        let running = self
            .coordinator
            .process
            .as_ref()
            .map(|p| (p.id, p.machine.lineage()));
        let Some(link) = self.links.get_mut(&session) else {
            return;
        };
        if link.up_lost {
            return;
        }
        if let Up::Hello(hello) = up {
            link.coordinator = running;
            link.coordinator_open = running.is_some();
            if running.is_some() {
                let who = link.who;
                self.trace
                    .line(Node::Coordinator, &|| format!("<- p{}  HELLO", who + 1));
                self.coordinator_step(CoordinatorEvent::Joined { session, hello });
            } else {
                self.send_down(session, Down::End);
            }
            return;
        }
        if !link.coordinator_open || link.coordinator != running {
            self.nobody_hears(session, &up);
            return;
        }
        match up {
            Up::Hello(_) => {}
            Up::Frame(messages) => {
                for message in messages {
                    self.message_arrives(session, message);
                }
            }
            Up::Left => {
                link.coordinator_open = false;
                self.coordinator_step(CoordinatorEvent::Left(session));
            }
        }
    }

    fn message_arrives(&mut self, session: SessionId, message: ToCoordinator) {
        let Some(link) = self.links.get(&session) else {
            return;
        };
        let (who, lineage) = (link.who, link.lineage);
        let Some(process) = &self.coordinator.process else {
            return;
        };
        let replaced = process.replaced.contains(&session);
        self.trace.line(Node::Coordinator, &|| {
            let how = if replaced {
                "drops, of a replaced session:"
            } else {
                "<-"
            };
            let from = Node::Participant(who);
            let what = crate::show::to_coordinator(&message, &self.history);
            format!("{how} {from}  {what}")
        });
        let wanted = process.machine.wants_archive(&message);
        let known = wanted.and_then(|xid| process.archive.by_xid.get(&xid).cloned());
        if !replaced {
            self.see(&Seen::Heard {
                who,
                lineage,
                message: &message,
            });
        }
        let effects = self.coordinator_step(CoordinatorEvent::Message {
            session,
            message,
            known,
        });
        if replaced {
            self.sometimes.happened("a frame of a replaced session arrived");
            self.see(&Seen::HeardReplaced { session, effects });
        }
    }

    pub(crate) fn welcome(&mut self, session: SessionId) {
        let Some(process) = &self.coordinator.process else {
            return;
        };
        let welcome = Down::Welcome(process.machine.lineage(), process.machine.incarnation());
        if let Some(who) = self.links.get(&session).map(|link| link.who) {
            self.trace
                .line(Node::Coordinator, &|| format!("-> p{}  WELCOME", who + 1));
        }
        self.stop(session, Message::Welcome);
        self.send_down(session, welcome);
    }

    /// The coordinator ends a session; the participant hears of it after the frames before it, and that delay.
    pub(crate) fn end_session(&mut self, session: SessionId, delay: Micros) {
        if let Some(link) = self.links.get_mut(&session) {
            link.down_last = link.down_last.max(self.now + delay);
        }
        self.send_down(session, Down::End);
    }

    pub(crate) fn down_arrives(&mut self, session: SessionId, down: Down) {
        let Some(link) = self.links.get_mut(&session) else {
            return;
        };
        let (who, process) = (link.who, link.process);
        // Each session is a connection of its own: what a participant gave up cannot reach it any more.
        if link.down_lost || !link.participant_open || !self.lives(Node::Participant(who), process) {
            self.nobody_gets(session, &down);
            return;
        }
        let Some(link) = self.links.get_mut(&session) else {
            return;
        };
        match down {
            Down::Welcome(lineage, incarnation) => {
                link.welcomed = true;
                self.trace
                    .line(Node::Participant(who), &|| "<- c   WELCOME".to_owned());
                if let Some(process) = &mut self.participants[who].process {
                    process.dials = 0;
                }
                self.participant_step(who, ParticipantEvent::Welcomed { lineage, incarnation });
            }
            Down::Frame(messages, floor, position) => {
                let of = link.coordinator.map_or(Lineage(0), |(_, lineage)| lineage);
                self.frame_arrives(who, of, messages, floor, position);
            }
            Down::End => self.session_over(who, session, false),
        }
    }

    fn frame_arrives(
        &mut self,
        who: usize,
        of: Lineage,
        messages: Vec<ToParticipant>,
        floor: Floor,
        position: Lsn,
    ) {
        let Some(lineage) = self.lineage_of(who) else {
            return;
        };
        for message in &messages {
            self.trace.line(Node::Participant(who), &|| {
                format!("<- c   {}", crate::show::to_participant(message, &self.history))
            });
            self.see(&Seen::Received {
                who,
                lineage,
                message,
            });
            self.participants[who].received.push(message.clone());
            let xid = crate::show::xid_of(message);
            let point = match message {
                ToParticipant::Prepare { .. } => CrashPoint::PPrepareReceived,
                ToParticipant::Commit(_) | ToParticipant::Abort(_) => CrashPoint::PDecisionReceived,
                _ => continue,
            };
            let id = self.history.minted.get(&xid).cloned();
            if self.reach(Node::Participant(who), point, id.as_ref()) {
                return;
            }
        }
        self.participant_step(
            who,
            ParticipantEvent::Frame {
                messages,
                floor: Some(floor),
                position,
            },
        );
        self.see(&Seen::FloorHeard { lineage, of, floor });
    }

    /// A participant's end of a session is over. Half open: the coordinator notices late.
    pub(crate) fn session_over(&mut self, who: usize, session: SessionId, half_open: bool) {
        let Some(link) = self.links.get_mut(&session) else {
            return;
        };
        link.participant_open = false;
        if half_open {
            link.up_last = link.up_last.max(self.now + self.setup.timing.keep_alive_us);
        }
        self.send_up(session, Up::Left);
        let Some(process) = &mut self.participants[who].process else {
            return;
        };
        if process.session != Some(session) {
            return;
        }
        process.session = None;
        let (id, dials) = (process.id, process.dials);
        self.participant_step(who, ParticipantEvent::SessionEnded);
        let pause = self.between(self.setup.timing.dial_us) << dials.min(4);
        self.after(pause, Happening::Dial { who, process: id });
    }

    /// The connection of a participant breaks: what was on its way may be lost with it.
    pub fn cut(&mut self, who: usize, loses_up: bool, loses_down: bool, half_open: bool) {
        let Some(session) = self.participants[who].process.as_ref().and_then(|p| p.session) else {
            return;
        };
        self.trace
            .line(Node::Participant(who), &|| "its connection breaks".to_owned());
        if let Some(link) = self.links.get_mut(&session) {
            link.down_lost |= loses_down;
        }
        self.session_over(who, session, half_open);
        if loses_up && let Some(link) = self.links.get_mut(&session) {
            // The end of the stream is noticed all the same.
            link.up_lost = true;
            link.coordinator_open = false;
            self.coordinator_step(CoordinatorEvent::Left(session));
        }
    }

    /// Holds back one direction between the coordinator and a participant.
    pub fn partition(&mut self, who: usize, towards_coordinator: bool) {
        self.partitioned.insert((who, towards_coordinator));
        self.trace.line(Node::Participant(who), &|| {
            let way = if towards_coordinator { "to" } else { "from" };
            format!("nothing gets {way} the coordinator")
        });
    }

    /// Lets that direction through again; what was held back arrives in order.
    pub fn rejoin(&mut self, who: usize, towards_coordinator: bool) {
        if !self.partitioned.remove(&(who, towards_coordinator)) {
            return;
        }
        self.trace
            .line(Node::Participant(who), &|| "the way is open again".to_owned());
        let sessions: Vec<SessionId> = self
            .links
            .iter()
            .filter(|(_, l)| l.who == who)
            .map(|(s, _)| *s)
            .collect();
        for session in sessions {
            let Some(link) = self.links.get_mut(&session) else {
                continue;
            };
            if towards_coordinator {
                for up in std::mem::take(&mut link.held_up) {
                    self.send_up(session, up);
                }
            } else {
                for down in std::mem::take(&mut link.held_down) {
                    self.send_down(session, down);
                }
            }
        }
    }

    /// The keep-alive of whoever is cut off runs out: both ends drop the session.
    pub(crate) fn keep_alive(&mut self, who: usize) {
        let cut_off = [true, false]
            .iter()
            .any(|way| self.partitioned.contains(&(who, *way)));
        if cut_off {
            self.cut(who, true, true, false);
        }
    }

    /// A node's process is gone, and its ends of all sessions with it.
    pub(crate) fn drop_ends(&mut self, node: Node, process: u64) {
        let of_it = |link: &Link| match node {
            Node::Coordinator => link.coordinator.is_some_and(|(id, _)| id == process),
            Node::Participant(_) => link.process == process && link.participant_open,
        };
        let sessions: Vec<SessionId> = self
            .links
            .iter()
            .filter(|(_, l)| of_it(l))
            .map(|(s, _)| *s)
            .collect();
        let (soon, late) = ((0, 50_000), (0, self.setup.timing.keep_alive_us));
        for session in sessions {
            let noticed_late =
                self.rng.u8(..) < 64 && self.setup.timing.network_us.0 != self.setup.timing.network_us.1;
            let delay = self.between(if noticed_late { late } else { soon });
            let Some(link) = self.links.get_mut(&session) else {
                continue;
            };
            match node {
                Node::Coordinator => {
                    link.coordinator_open = false;
                    if link.participant_open {
                        self.end_session(session, delay);
                    }
                }
                Node::Participant(_) => {
                    link.participant_open = false;
                    link.up_last = link.up_last.max(self.now + delay);
                    self.send_up(session, Up::Left);
                }
            }
        }
        // Nothing of theirs is on its way any more.
        let horizon = self.now.saturating_sub(10 * self.setup.timing.keep_alive_us);
        let held = |link: &Link| !link.held_up.is_empty() || !link.held_down.is_empty();
        self.links.retain(|_, link| {
            link.participant_open
                || link.coordinator_open
                || held(link)
                || link.up_last.max(link.down_last) > horizon
        });
    }
}
