//! One state of the model: a coordinator, its participants, what is on its way between them, and what is true.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use covenant_rules::{
    AbortReason, Decision, Fingerprint, Floor, Incarnation, Lineage, Lsn, Millis, ToCoordinator,
    ToParticipant, UnixMillis, Wait, Xid,
    coordinator::{Effect, Event, Execute, Reply, State},
    participant,
};

use crate::bounds::{Bounds, Budget, HORIZON_MS, TIMEOUT_MS};
use crate::names::{name_of, transaction_id};
use crate::server::{Server, operator};
use crate::site::{Site, operation};
use crate::step::Step;
use crate::truth::Truth;

/// The coordinator's log.
pub(crate) const LOG: Lineage = Lineage(0xc0);

/// Every start's wall clock. It does not move: only `decided` and the marks of retention look at it.
pub(crate) const STARTED: UnixMillis = 1_000_000;

/// How many numbers the sessions of one participant take turns with.
const SESSIONS: u64 = 3;

/// One state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct World {
    pub(crate) content: String,
    pub(crate) server: Server,
    pub(crate) sites: Vec<Site>,
    /// The session of each participant, if it is joined.
    pub(crate) links: Vec<Option<Link>>,
    /// What each participant said in a session that was replaced, and arrives late, if at all.
    pub(crate) late: Vec<Late>,
    pub(crate) truth: Truth,
    pub(crate) left: Budget,
    /// Which ids were sent.
    pub(crate) sent: [bool; 2],
    /// Something of the budget was used.
    pub(crate) disturbed: bool,
    positions: bool,
}

/// One session: an ordered stream each way. It ends for both at once, with what is on its way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Link {
    pub(crate) id: u64,
    pub(crate) down: VecDeque<Down>,
    pub(crate) up: VecDeque<ToCoordinator>,
}

/// What is on its way from a participant in a session that was replaced, and must be dropped (section 8).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Late {
    id: u64,
    pub(crate) up: VecDeque<ToCoordinator>,
}

/// What goes to a participant.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Down {
    Welcome(Incarnation),
    /// The messages of one step of the coordinator, with the floor and the position that hold after them.
    Frame(Vec<ToParticipant>, Floor, Lsn),
}

impl World {
    /// Everybody is joined, and everything so far is durable.
    pub(crate) fn new(content: &str, bounds: &Bounds) -> Self {
        let mut truth = Truth::default();
        let mut world = Self {
            content: content.to_owned(),
            server: Server::new(&mut truth),
            sites: (0..content.len()).map(Site::new).collect(),
            links: vec![None; content.len()],
            late: vec![Late::default(); content.len()],
            truth,
            left: bounds.budget.clone(),
            sent: [false; 2],
            disturbed: false,
            positions: bounds.positions,
        };
        world.force_all();
        for place in 0..content.len() {
            world.dial(place);
            world.down(place, false);
        }
        world.force_all();
        world
    }

    fn force_all(&mut self) {
        while !self.server.log.pending().is_empty() {
            let effects = self.server.force(&mut self.truth);
            self.send(effects);
        }
    }

    /// The state after a step, or `None` if the step changes nothing.
    pub(crate) fn after(&self, step: &Step) -> Option<Self> {
        let mut next = self.clone();
        let taken = catch_unwind(AssertUnwindSafe(|| {
            let taken = next.take(step);
            next.callers_ask();
            next.disturbed |= next.left != self.left;
            taken
        }));
        match taken {
            Ok(true) => (next != *self).then_some(next),
            Ok(false) => None,
            Err(_) => {
                let mut broken = self.clone();
                broken.truth.asserted = true;
                Some(broken)
            }
        }
    }

    /// Performs a step. `false`: nothing happened that anybody could see.
    fn take(&mut self, step: &Step) -> bool {
        match step {
            Step::Execute(id) => self.execute(*id),
            Step::AbortCall(id) => self.abort_call(*id),
            Step::Force => {
                let effects = self.server.force(&mut self.truth);
                self.send(effects);
            }
            Step::ForceAt(place) => {
                let said = self.sites[*place].force(&mut self.truth);
                self.says(*place, said);
            }
            Step::Dial(place) => return self.dial(*place),
            Step::Down(place) => self.down(*place, false),
            Step::DownRefused(place) => {
                self.left.refusals -= 1;
                self.down(*place, true);
            }
            Step::Up(place) => self.up(*place),
            Step::Late(place) => self.arrives_late(*place),
            Step::Cut(place) => self.cut(*place),
            Step::Replace(place) => {
                self.left.cuts -= 1;
                self.replace(*place);
            }
            Step::Crash { kept } => self.crash(*kept),
            Step::CrashAt { place, kept, noticed } => self.crash_site(*place, *kept, *noticed),
            Step::Tick(at) => {
                self.left.coordinator_ticks -= 1;
                let effects = self.server.tick(*at, &mut self.truth);
                self.send(effects);
            }
            Step::TickAt(place, at) => {
                self.left.participant_ticks -= 1;
                let said = self.sites[*place].tick(*at, &mut self.truth);
                self.says(*place, said);
            }
            Step::ByHand(place, xid, what) => self.by_hand(*place, *xid, *what),
            Step::Forget => self.operator_forgets(),
        }
        true
    }

    fn tell(&mut self, event: Event) {
        let effects = self.server.step(event, &mut self.truth);
        self.send(effects);
    }

    /// What the coordinator says goes on its way, one frame a session.
    fn send(&mut self, effects: Vec<Effect>) {
        let process = self.server.process;
        let mut frames: Vec<Vec<ToParticipant>> = vec![Vec::new(); self.sites.len()];
        for effect in effects {
            if matches!(effect, Effect::Append { .. }) {
                continue;
            }
            let place = session(&effect).and_then(|session| self.place(session));
            self.truth.coordinator_does(&effect, place, process);
            let Some(place) = place else { continue };
            match effect {
                Effect::Send { message, .. } => frames[place].push(message),
                Effect::Welcome(_) => {
                    let incarnation = self.server.machine.incarnation();
                    self.put(place, Down::Welcome(incarnation));
                }
                Effect::RefuseJoin(..) => self.links[place] = None,
                _ => {}
            }
        }
        let position = if self.positions {
            self.server.machine.position()
        } else {
            0
        };
        for (place, messages) in frames.into_iter().enumerate() {
            if !messages.is_empty() {
                let floor = self.server.machine.floor(&name_of(place));
                self.put(place, Down::Frame(messages, floor, position));
            }
        }
    }

    /// Whose live session this is.
    fn place(&self, session: u64) -> Option<usize> {
        self.links
            .iter()
            .position(|link| link.as_ref().is_some_and(|link| link.id == session))
    }

    fn put(&mut self, place: usize, down: Down) {
        if let Some(link) = &mut self.links[place] {
            link.down.push_back(down);
        }
    }

    /// What a participant says goes on its way in its session.
    fn says(&mut self, place: usize, said: Vec<ToCoordinator>) {
        if let Some(link) = &mut self.links[place] {
            link.up.extend(said);
        }
    }

    /// Hello and the coordinator's answer to it, at once. `false`: refused.
    fn dial(&mut self, place: usize) -> bool {
        let Some(hello) = self.sites[place].dial() else {
            return false;
        };
        let old = self.links[place].take();
        let old_id = old.as_ref().map(|old| old.id);
        if let Some(Link { id, up, .. }) = old.filter(|old| !old.up.is_empty()) {
            self.late[place] = Late { id, up };
        }
        let session = self.free_session(place, old_id);
        self.links[place] = Some(Link {
            id: session,
            down: VecDeque::new(),
            up: VecDeque::new(),
        });
        self.tell(Event::Joined { session, hello });
        let refused = self.links[place].is_none();
        self.truth.locked_out |= refused && self.server.machine.is_serving();
        !refused || self.truth.locked_out
    }

    /// A number for a new session, other than that of the one it replaces and of the one whose messages are late.
    fn free_session(&self, place: usize, old: Option<u64>) -> u64 {
        let late = &self.late[place];
        let numbers = SESSIONS * place as u64..SESSIONS * (place as u64 + 1);
        let taken = |id: u64| old == Some(id) || (late.id == id && !late.up.is_empty());
        let mut free = numbers.filter(|id| !taken(*id));
        free.next().expect("at most two of three are taken")
    }

    /// The next message of a replaced session arrives.
    fn arrives_late(&mut self, place: usize) {
        let Late { id, up } = &mut self.late[place];
        let session = *id;
        let message = up.pop_front();
        if up.is_empty() {
            self.late[place] = Late::default();
        }
        if let Some(message) = message {
            let event = self.server.message(session, message);
            self.tell(event);
        }
    }

    /// The next thing on its way to a participant arrives.
    fn down(&mut self, place: usize, refuse: bool) {
        let Some(down) = self.links[place].as_mut().and_then(|link| link.down.pop_front()) else {
            return;
        };
        let event = match down {
            Down::Welcome(incarnation) => participant::Event::Welcomed {
                lineage: LOG,
                incarnation,
            },
            Down::Frame(messages, floor, position) => participant::Event::Frame {
                messages,
                floor: Some(floor),
                position,
            },
        };
        let said = self.sites[place].step(event, refuse, &mut self.truth);
        self.says(place, said);
    }

    /// The next message on its way to the coordinator arrives.
    fn up(&mut self, place: usize) {
        let Some(link) = &mut self.links[place] else {
            return;
        };
        let session = link.id;
        if let Some(message) = link.up.pop_front() {
            let event = self.server.message(session, message);
            self.tell(event);
        }
    }

    /// A session ends for both.
    fn cut(&mut self, place: usize) {
        self.left.cuts -= 1;
        if let Some(link) = self.links[place].take() {
            self.sites[place].step(participant::Event::SessionEnded, false, &mut self.truth);
            self.tell(Event::Left(link.id));
        }
    }

    /// A participant gives its session up and joins again before the coordinator knows.
    fn replace(&mut self, place: usize) {
        self.sites[place].step(participant::Event::SessionEnded, false, &mut self.truth);
        self.dial(place);
    }

    fn crash(&mut self, kept: usize) {
        self.left.coordinator_crashes -= 1;
        self.late.fill(Late::default());
        for place in 0..self.sites.len() {
            if self.links[place].take().is_some() {
                self.sites[place].step(participant::Event::SessionEnded, false, &mut self.truth);
            }
        }
        self.server.crash(kept, &mut self.truth);
    }

    /// A participant dies and starts again. If it was joined, the coordinator notices, or it joins first.
    fn crash_site(&mut self, place: usize, kept: usize, noticed: bool) {
        self.left.participant_crashes[place] -= 1;
        self.sites[place].crash(kept, &mut self.truth);
        if noticed {
            if let Some(link) = self.links[place].take() {
                self.tell(Event::Left(link.id));
            }
        } else if self.links[place].is_some() {
            self.dial(place);
        }
    }

    /// Execute, first or again. Again it uses the budget only if it begins another attempt.
    fn execute(&mut self, id: u8) {
        let again = std::mem::replace(&mut self.sent[usize::from(id)], true);
        let transaction_id = transaction_id(id);
        let known = self.server.known(&transaction_id);
        let branches = self.content.bytes().enumerate();
        let execute = Execute {
            transaction_id,
            created: STARTED,
            fingerprint: Fingerprint([id; 16]),
            branches: branches
                .map(|(at, letter)| (name_of(at), operation(letter)))
                .collect(),
            timeout_ms: TIMEOUT_MS,
            wait: if again { Wait::Completed } else { Wait::Decided },
        };
        let before = self.server.machine.in_progress();
        self.tell(Event::Execute {
            request: u64::from(id),
            execute,
            known,
        });
        if again && self.server.machine.in_progress() > before {
            self.left.retries -= 1;
        }
    }

    fn abort_call(&mut self, id: u8) {
        self.left.aborts -= 1;
        let transaction_id = transaction_id(id);
        let known = self.server.known(&transaction_id);
        self.tell(Event::Abort {
            request: 10 + u64::from(id),
            transaction_id,
            created: Some(STARTED),
            by: AbortReason::Caller,
            known,
        });
    }

    /// After every step a caller asks for every id: what it would be told is told. To ask changes nothing.
    fn callers_ask(&mut self) {
        if !self.server.machine.is_serving() {
            return;
        }
        for id in (0..2).filter(|id| self.sent[usize::from(*id)]) {
            for effect in self.server.asked(&transaction_id(id)) {
                if let Effect::Reply {
                    reply: Reply::Transaction(view),
                    ..
                } = effect
                {
                    self.truth.caller_hears(&view);
                }
            }
        }
    }

    fn by_hand(&mut self, place: usize, xid: Xid, what: Decision) {
        self.left.heuristics -= 1;
        let event = participant::Event::Resolve {
            request: 0,
            xid,
            what,
            by: operator(),
        };
        let said = self.sites[place].step(event, false, &mut self.truth);
        self.says(place, said);
    }

    fn operator_forgets(&mut self) {
        if let Some((xid, participant)) = self.server.damage() {
            self.tell(Event::Forget {
                request: 20,
                xid,
                participant,
                by: operator(),
            });
        }
    }

    /// Nothing is left to do but faults, calls and jumps of time: every frame arrived, every force returned,
    /// everybody is joined and knows it.
    pub(crate) fn is_quiet(&self) -> bool {
        let joined = |link: &Option<Link>| {
            link.as_ref()
                .is_some_and(|link| link.down.is_empty() && link.up.is_empty())
        };
        self.server.machine.is_serving()
            && self.server.log.pending().is_empty()
            && self.server.damage().is_none()
            && self.sites.iter().all(|site| !site.awaits_force())
            && self.links.iter().all(joined)
            && self.late.iter().all(|late| late.up.is_empty())
    }

    /// All that is on its way to participants, with its place.
    pub(crate) fn on_their_way(&self) -> impl Iterator<Item = (usize, &ToParticipant)> {
        let links = self.links.iter().enumerate();
        let downs = links.flat_map(|(place, link)| link.iter().map(move |link| (place, link)));
        downs.flat_map(|(place, link)| {
            link.down.iter().flat_map(move |down| {
                let messages = match down {
                    Down::Welcome(_) => &[][..],
                    Down::Frame(messages, ..) => messages,
                };
                messages.iter().map(move |message| (place, message))
            })
        })
    }

    /// The next deadline of the coordinator, of those that lie within the model's time.
    pub(crate) fn deadline(&self) -> Option<Millis> {
        self.server.machine.next_deadline().filter(|at| *at < HORIZON_MS)
    }

    /// The next deadline of a participant, likewise.
    pub(crate) fn deadline_at(&self, place: usize) -> Option<Millis> {
        let at = self.sites[place].machine.next_deadline();
        at.filter(|at| *at < HORIZON_MS)
    }

    /// Where the transaction of an id stands, if this process runs it or has not archived it.
    pub(crate) fn state_of(&self, id: u8) -> Option<State> {
        self.server
            .machine
            .find_view(&transaction_id(id))
            .and_then(|view| view.state)
    }
}

fn session(effect: &Effect) -> Option<u64> {
    match effect {
        Effect::Send { session, .. } | Effect::Welcome(session) | Effect::RefuseJoin(session, _) => {
            Some(*session)
        }
        _ => None,
    }
}
