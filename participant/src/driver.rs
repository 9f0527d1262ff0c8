//! The one loop that owns the machine of a participant. Its inputs:
//!
//! 1. completions of resource calls,
//! 2. the link: a pause that ended, a dial that joined or failed, a frame, the end of a session,
//! 3. commands from [`Handle`](crate::Handle)s,
//! 4. the clock, at the machine's next deadline.
//!
//! The loop is one `poll` without an `await` in it: it never waits for a send or a force. It takes what is there, up
//! to [`MAX_INPUTS_PER_FRAME`] inputs, and then hands over one frame. Resource calls are polled once in the order in
//! which the machine asked for them, before anything else happens (RC8). A session that does not take its
//! frames is cut; joining again repeats what is due.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use covenant_fault::crash;
use covenant_rules::participant::{AlarmCode, Effect, Event, Refusal};
use covenant_rules::{Backoff, Floor, Lineage, Millis, Participant, RepeatedLines, ToCoordinator};
use futures_util::stream::{FuturesUnordered, Stream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, Sleep};

use crate::call::{self, Call, Running};
use crate::config::{Config, MAX_INPUTS_PER_FRAME, MAX_LISTED_IN_DOUBT, MAX_OUTGOING_MESSAGES};
use crate::handle::{Command, InDoubtBranch, InDoubtList, JoinState};
use crate::leave::Leave;
use crate::link::{Link, LinkInput};
use crate::points::Points;
use crate::session;
use crate::{Error, Resource};

/// The loop and all it owns.
pub(crate) struct Driver<R> {
    machine: Participant,
    resource: Arc<R>,
    backoff: Backoff,
    started: Instant,
    calls: FuturesUnordered<Running>,
    /// Completions of calls that were answered when they were first polled.
    completed: VecDeque<Event>,
    link: Link,
    outgoing: VecDeque<ToCoordinator>,
    floors: BTreeMap<Lineage, Floor>,
    commands: mpsc::Receiver<Command>,
    answers: BTreeMap<u64, oneshot::Sender<Result<(), Error>>>,
    next_request: u64,
    joined: watch::Sender<JoinState>,
    timer: Pin<Box<Sleep>>,
    /// When the timer rings; never later than the machine's next deadline.
    timer_at: Option<Millis>,
    leave: Option<Leave>,
    alarms: RepeatedLines<AlarmCode>,
    points: Points,
    /// At a `sent` crash point: nothing else happens any more.
    crashing: Option<Pin<Box<dyn Future<Output = Infallible> + Send>>>,
    /// The source that is asked first, so that none starves.
    turn: usize,
    /// Something changed after its source was polled: another round is due.
    again: bool,
}

impl<R: Resource> Driver<R> {
    pub(crate) fn new(
        config: &Config,
        link: Link,
        machine: Participant,
        resource: Arc<R>,
        commands: mpsc::Receiver<Command>,
        joined: watch::Sender<JoinState>,
    ) -> Self {
        let started = Instant::now();
        let recovered = machine.in_doubt().map(|doubt| (doubt.xid, doubt.transaction_id));
        let points = Points::new(config.crash.clone(), recovered);
        Self {
            machine,
            resource,
            backoff: Backoff {
                base_ms: config.limits.retry_base_ms,
                cap_ms: config.limits.retry_cap_ms,
            },
            started,
            calls: FuturesUnordered::new(),
            completed: VecDeque::new(),
            link,
            outgoing: VecDeque::new(),
            floors: BTreeMap::new(),
            commands,
            answers: BTreeMap::new(),
            next_request: 0,
            joined,
            timer: Box::pin(tokio::time::sleep_until(started)),
            timer_at: Some(0),
            leave: None,
            alarms: RepeatedLines::new(),
            points,
            crashing: None,
            turn: 0,
            again: false,
        }
    }

    /// Runs until the participant has left.
    pub(crate) async fn run(mut self) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
        let (calls, in_doubt) = (
            self.calls.len() + self.completed.len(),
            self.machine.in_doubt().count(),
        );
        tracing::info!(calls, in_doubt, "the participant has left");
        if let Some(leave) = self.leave.take() {
            leave.done(calls, self.outgoing.len());
        }
    }

    /// One round: what is there comes in, one frame goes out.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(crashing) = &mut self.crashing {
            let Poll::Pending = crashing.as_mut().poll(cx);
            return Poll::Pending;
        }
        self.again = false;
        let mut inputs = 0;
        while inputs < MAX_INPUTS_PER_FRAME && self.poll_input(cx) {
            inputs += 1;
        }
        self.again |= inputs == MAX_INPUTS_PER_FRAME;
        for (lineage, floor) in std::mem::take(&mut self.floors) {
            self.resource.floor(lineage, floor);
        }
        self.send_frames(cx);
        self.arm_timer(cx);
        let work = self.calls.len() + self.completed.len() + self.outgoing.len();
        if let Some(leave) = &mut self.leave
            && leave.poll(cx, self.link.session(), work).is_ready()
        {
            return Poll::Ready(());
        }
        if self.again || self.crashing.is_some() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Takes one input from the first source that has one.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> bool {
        const SOURCES: usize = 4;
        for offset in 0..SOURCES {
            let source = (self.turn + offset) % SOURCES;
            let taken = match source {
                0 => self.poll_completion(cx),
                1 => self.poll_link(cx),
                2 => self.poll_command(cx),
                _ => self.poll_clock(cx),
            };
            if taken.is_ready() {
                self.turn = source + 1;
                return true;
            }
        }
        false
    }

    fn poll_completion(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let event = match self.completed.pop_front() {
            Some(event) => event,
            None => match Pin::new(&mut self.calls).poll_next(cx) {
                Poll::Ready(Some(event)) => event,
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            },
        };
        self.step(cx, event);
        Poll::Ready(())
    }

    fn poll_link(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let reading = self.leave.is_none();
        match ready!(self.link.poll(cx, reading)) {
            LinkInput::Dial => self.step(cx, Event::Dialed),
            LinkInput::Joined { lineage, incarnation } => {
                tracing::info!(%lineage, incarnation = incarnation.counter, "joined");
                self.joined
                    .send_replace(JoinState::Joined { lineage, incarnation });
                self.step(cx, Event::Welcomed { lineage, incarnation });
            }
            LinkInput::Frame(frame) => match session::event(frame) {
                Ok(event) => {
                    self.points.received(&event);
                    self.step(cx, event);
                }
                Err(error) => self.away(cx, &error),
            },
            LinkInput::Lost(error) => self.away(cx, &error),
        }
        Poll::Ready(())
    }

    fn poll_command(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.leave.is_some() {
            return Poll::Pending;
        }
        match ready!(self.commands.poll_recv(cx)) {
            Some(Command::InDoubt(reply)) => {
                // A caller that is gone does not want to know; so below.
                let _ = reply.send(self.in_doubt());
            }
            Some(Command::Resolve { xid, what, by, reply }) => {
                let request = self.next_request;
                self.next_request += 1;
                self.answers.insert(request, reply);
                self.step(
                    cx,
                    Event::Resolve {
                        request,
                        xid,
                        what,
                        by,
                    },
                );
            }
            Some(Command::Shutdown { deadline, reply }) => self.start_leaving(cx, deadline, Some(reply)),
            None => {
                let deadline = Duration::from_millis(crate::config::DEFAULT_LEAVE_MS);
                self.start_leaving(cx, deadline, None);
            }
        }
        Poll::Ready(())
    }

    fn poll_clock(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Who leaves inquires no more: its side of the session may be closed already.
        if self.timer_at.is_none() || self.leave.is_some() {
            return Poll::Pending;
        }
        ready!(self.timer.as_mut().poll(cx));
        self.timer_at = None;
        self.step(cx, Event::Tick);
        Poll::Ready(())
    }

    /// Takes the session down, if one is up, and plans the next dial.
    fn away(&mut self, cx: &mut Context<'_>, error: &Error) {
        let unsent = self.outgoing.len();
        self.outgoing.clear();
        let news = self.link.lost(error);
        if let Some(leave) = &mut self.leave {
            leave.lost(unsent);
            self.link.close();
        }
        if let Some(reason) = news {
            tracing::warn!(%reason, "away from the coordinator; dialling until it takes us");
            self.joined.send_replace(JoinState::Away { reason: Some(reason) });
        }
        self.again = true;
        self.step(cx, Event::SessionEnded);
    }

    fn start_leaving(
        &mut self,
        cx: &mut Context<'_>,
        deadline: Duration,
        reply: Option<oneshot::Sender<Result<(), Error>>>,
    ) {
        tracing::info!(
            calls = self.calls.len(),
            "leaving: no new work, what is under way completes"
        );
        self.leave = Some(Leave::new(deadline, reply));
        self.again = true;
        if self.link.session().is_none() {
            self.link.close();
            self.step(cx, Event::SessionEnded);
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, event: Event) {
        for effect in self.machine.step(self.now(), event) {
            self.perform(cx, effect);
        }
    }

    fn now(&self) -> Millis {
        Millis::try_from(self.started.elapsed().as_millis()).unwrap_or(Millis::MAX)
    }

    fn perform(&mut self, cx: &mut Context<'_>, effect: Effect) {
        match effect {
            Effect::Hello(hello) => self.link.dial(hello),
            Effect::Send(message) => self.outgoing.push_back(message),
            Effect::Prepare(branch) => self.call(cx, Call::Prepare(branch)),
            Effect::Commit(xid) => self.call(cx, Call::Commit(xid)),
            Effect::Abort(xid) => self.call(cx, Call::Abort(xid)),
            Effect::Resolve { xid, what, by } => self.call(cx, Call::Resolve { xid, what, by }),
            Effect::Forget(xid) => self.call(cx, Call::Forget(xid)),
            Effect::Floor { lineage, floor } => {
                self.floors.insert(lineage, floor);
            }
            Effect::Answer { request, result } => self.answer(request, result),
            Effect::Alarm(alarm) => {
                if let Some(held_back) = self.alarms.count(self.now(), alarm.code) {
                    let xid = alarm.xid.map(|xid| xid.to_string()).unwrap_or_default();
                    tracing::error!(code = alarm.code.as_str(), xid, held_back, "{}", alarm.detail);
                }
            }
        }
    }

    /// Makes a call and polls it once, at once: the order of calls is the order of appends (RC8).
    fn call(&mut self, cx: &mut Context<'_>, call: Call) {
        let mut running = call::run(Arc::clone(&self.resource), call, self.backoff);
        match running.as_mut().poll(cx) {
            Poll::Ready(event) => self.completed.push_back(event),
            Poll::Pending => self.calls.push(running),
        }
    }

    fn answer(&mut self, request: u64, result: Result<(), Refusal>) {
        let reply = self.answers.remove(&request);
        if let Some(reply) = reply {
            let _ = reply.send(result.map_err(Error::Refused));
        }
    }

    /// Hands over what waits, as far as the connection has room for it now.
    fn send_frames(&mut self, cx: &mut Context<'_>) {
        while !self.outgoing.is_empty() && self.crashing.is_none() {
            let session = self
                .link
                .session()
                .expect("the machine sends while a session is up, and not else");
            match session.outbound.poll_reserve(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return self.away(cx, &Error::Ended),
                Poll::Pending if self.outgoing.len() > MAX_OUTGOING_MESSAGES + self.machine.branches() => {
                    return self.away(cx, &Error::NotDraining(MAX_OUTGOING_MESSAGES));
                }
                Poll::Pending => return,
            }
            let mut point = None;
            let (frame, _) = session.cut(&mut self.outgoing, |message| {
                point = self.points.sent(message);
                point.is_some()
            });
            if session.send(frame).is_err() {
                return self.away(cx, &Error::Ended);
            }
            if let Some(point) = point {
                let left = session.left_the_socket();
                self.crashing = Some(Box::pin(async move {
                    left.await;
                    crash(point)
                }));
            }
        }
    }

    /// Sets the timer if the machine's next deadline is earlier; a ring that is too early does no harm.
    fn arm_timer(&mut self, cx: &mut Context<'_>) {
        let Some(at) = self.machine.next_deadline() else {
            return;
        };
        if self.timer_at.is_none_or(|armed| at < armed) {
            self.timer
                .as_mut()
                .reset(self.started + Duration::from_millis(at));
            self.timer_at = Some(at);
            self.again |= self.timer.as_mut().poll(cx).is_ready();
        }
    }

    fn in_doubt(&self) -> InDoubtList {
        let now = self.started.elapsed();
        let branch = |doubt: covenant_rules::participant::Doubt| InDoubtBranch {
            xid: doubt.xid,
            transaction_id: doubt.transaction_id,
            age: now.saturating_sub(Duration::from_millis(doubt.since)),
        };
        InDoubtList {
            total: self.machine.in_doubt().count(),
            branches: self
                .machine
                .in_doubt()
                .take(MAX_LISTED_IN_DOUBT)
                .map(branch)
                .collect(),
        }
    }
}
