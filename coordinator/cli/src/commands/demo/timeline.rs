//! What the demo tells: a timeline for people, a report for programs, and the verdict.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::holds::Span;
use super::world::Kept;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};

/// The pause between two looks at a condition, in milliseconds.
const POLL_MS: u64 = 10;

/// The signs that turn while something is awaited on a terminal.
const SPINNER: [char; 4] = ['|', '/', '-', '\\'];

/// What happened so far.
pub(super) struct Timeline {
    started: Instant,
    output: Output,
    /// Whether somebody watches stderr.
    has_spinner: bool,
    steps: Vec<Step>,
}

/// One letter of the story.
#[derive(Debug, Serialize)]
struct Step {
    step: &'static str,
    title: String,
    events: Vec<Event>,
}

#[derive(Debug, Serialize)]
struct Event {
    at_ms: u64,
    text: String,
    /// Whether the check held; null if it is no check.
    held: Option<bool>,
}

/// The report for programs.
#[derive(Serialize)]
struct Report<'a> {
    verdict: String,
    passed: bool,
    checks: usize,
    failed: usize,
    duration_ms: u64,
    steps: &'a [Step],
    holds: &'a [Span],
    /// Why the story ended early; null if it did not.
    error: Option<String>,
    /// The processes that were left running; null without --keep.
    kept: Option<&'a Kept>,
}

impl Timeline {
    pub(super) fn new(output: Output) -> Self {
        let has_spinner = io::stderr().is_terminal();
        Self {
            started: Instant::now(),
            output,
            has_spinner,
            steps: Vec::new(),
        }
    }

    /// Begins a step of the story.
    pub(super) fn step(&mut self, step: &'static str, title: &str) {
        self.line(&format!("\n({step}) {title}\n"));
        self.steps.push(Step {
            step,
            title: title.to_owned(),
            events: Vec::new(),
        });
    }

    /// Something happened.
    pub(super) fn tell(&mut self, text: &str) {
        self.event(text, None);
    }

    /// Something must be so.
    pub(super) fn check(&mut self, text: &str, held: bool) {
        self.event(text, Some(held));
    }

    /// Waits until `probe` finds what it looks for; `what` completes "waited for".
    pub(super) async fn until<T>(
        &mut self,
        what: &str,
        deadline_ms: u64,
        mut probe: impl AsyncFnMut() -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        let until = Instant::now() + Duration::from_millis(deadline_ms);
        for turn in 0.. {
            let last = match probe().await {
                Ok(Some(found)) => {
                    self.clear();
                    return Ok(found);
                }
                Ok(None) => String::new(),
                Err(failure) => format!("; the last look met: {}", failure.message),
            };
            if Instant::now() >= until {
                self.clear();
                let why = format!("waited {deadline_ms} ms for {what}, and it did not come{last}");
                return Err(Failure::internal("DEADLINE", why));
            }
            self.spin(turn, what);
            tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
        }
        unreachable!("the deadline ends the loop");
    }

    /// Talk that is no part of the timeline.
    pub(super) fn talk(&self, text: &str) {
        let _ = io::stderr().write_all(text.as_bytes());
    }

    /// Prints the holds, how to talk to what was kept, and the verdict.
    pub(super) fn end(self, told: Result<Vec<Span>, Failure>, kept: Option<Kept>) -> Result<Exit, Failure> {
        self.clear();
        let (holds, error) = match told {
            Ok(holds) => (holds, None),
            Err(failure) => (Vec::new(), Some(failure)),
        };
        let checks = self
            .steps
            .iter()
            .flat_map(|step| &step.events)
            .filter_map(|event| event.held);
        let (checks, failed) = checks.fold((0, 0), |(all, failed), held| {
            (all + 1, failed + usize::from(!held))
        });
        let passed = error.is_none() && failed == 0;
        let verdict = match &error {
            _ if passed => format!("Verdict: every check held ({checks} of {checks})."),
            Some(error) => format!("Verdict: FAILED: {}.", error.message),
            None => format!("Verdict: FAILED: {failed} of {checks} checks did not hold."),
        };
        let exit = match &error {
            _ if passed => Exit::Done,
            Some(error) => error.exit,
            None => Exit::Negative,
        };
        if !holds.is_empty() {
            self.line("\nHow long money was held, from PREPARED to its end:\n");
            holds.iter().for_each(|span| self.line(&format!("  {span}\n")));
        }
        if let Some(kept) = &kept {
            self.line(&kept.explanation());
        }
        if self.output.is_for_programs() {
            let report = Report {
                passed,
                checks,
                failed,
                duration_ms: self.elapsed_ms(),
                steps: &self.steps,
                holds: &holds,
                error: error.map(|error| error.message),
                kept: kept.as_ref(),
                verdict: verdict.clone(),
            };
            self.output.one(&report, |_| Vec::new())?;
        }
        self.line(&format!("\n{verdict}\n"));
        Ok(exit)
    }

    fn event(&mut self, text: &str, held: Option<bool>) {
        let at_ms = self.elapsed_ms();
        let sign = match held {
            None => "  ",
            Some(true) => "ok",
            Some(false) => "FAILED:",
        };
        self.line(&format!(
            "{:>8.3} s  {sign} {text}\n",
            Duration::from_millis(at_ms).as_secs_f64()
        ));
        if let Some(step) = self.steps.last_mut() {
            step.events.push(Event {
                at_ms,
                text: text.to_owned(),
                held,
            });
        }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The timeline is data for people and talk for programs.
    fn line(&self, text: &str) {
        self.clear();
        if self.output.is_for_programs() {
            self.talk(text);
        } else {
            // A reader that went away has seen enough; the verdict is in the exit code too.
            let _ = output::write(text);
        }
    }

    fn spin(&self, turn: usize, what: &str) {
        if self.has_spinner && turn.is_multiple_of(8) {
            self.talk(&format!("\r\x1b[K{} {what}", SPINNER[(turn / 8) % SPINNER.len()]));
        }
    }

    fn clear(&self) {
        if self.has_spinner {
            self.talk("\r\x1b[K");
        }
    }
}
