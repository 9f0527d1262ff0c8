//! Where a process can be made to end: the list of section 9, with what holds at each point.

use std::fmt;
use std::io::Write;
use std::str::FromStr;

use crate::Error;

macro_rules! crash_points {
    ($($(#[$doc:meta])* $point:ident = $name:literal,)*) => {
        /// A point of section 9 at which a process can be made to end; `C` of a coordinator, `P` of a participant.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum CrashPoint {
            $($(#[$doc])* $point,)*
        }

        impl CrashPoint {
            /// Every point, in the order of section 9.
            pub const ALL: &'static [Self] = &[$(Self::$point,)*];

            /// The name in section 9, e.g. `c.commit.forced`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$point => $name,)*
                }
            }
        }
    };
}

crash_points! {
    /// An Execute has come in; nothing of it has left.
    CExecuteReceived = "c.execute.received",
    /// A PREPARE has left to one participant; later messages have not.
    CPrepareSentSome = "c.prepare.sent_some",
    /// All votes are in and the decision is COMMIT; COMMIT is not appended.
    CVotesAll = "c.votes.all",
    /// COMMIT is written and not forced.
    CCommitAppended = "c.commit.appended",
    /// COMMIT is forced and nobody was told.
    CCommitForced = "c.commit.forced",
    /// A COMMIT has left to one participant; later messages have not.
    CCommitSentSome = "c.commit.sent_some",
    /// All acknowledgements are in; END is not appended.
    CAcksAll = "c.acks.all",
    /// END is written and not forced.
    CEndAppended = "c.end.appended",
    /// ABORT is written and not forced.
    CAbortAppended = "c.abort.appended",
    /// An ABORT has left to one participant; later messages have not.
    CAbortSentSome = "c.abort.sent_some",
    /// ABORT is forced and no caller was told.
    CAbortForced = "c.abort.forced",
    /// HEURISTIC is forced and not acted on.
    CHeuristicForced = "c.heuristic.forced",
    /// FORGET is forced and not sent.
    CForgetForced = "c.forget.forced",
    /// RETAINED is forced and no outcome below it is gone.
    CRetainedForced = "c.retained.forced",
    /// The log that was found is synced and not opened.
    CStartSynced = "c.start.synced",
    /// Some records are replayed, others not.
    CReplayMid = "c.replay.mid",
    /// A checkpoint is written in part.
    CCheckpointMid = "c.checkpoint.mid",
    /// A PREPARE has come in; nothing of it is written.
    PPrepareReceived = "p.prepare.received",
    /// PREPARED is written and not forced.
    PPreparedAppended = "p.prepared.appended",
    /// PREPARED is forced and YES has not left.
    PPreparedForced = "p.prepared.forced",
    /// A vote has left; later messages have not.
    PVoteSent = "p.vote.sent",
    /// A decision has come in; nothing of it is written.
    PDecisionReceived = "p.decision.received",
    /// COMMITTED and the effect are written and not forced.
    PCommittedAppended = "p.committed.appended",
    /// COMMITTED and the effect are forced and ACK has not left.
    PCommittedForced = "p.committed.forced",
    /// An ACK has left; later messages have not.
    PAckSent = "p.ack.sent",
    /// ABORTED is written and not forced.
    PAbortedAppended = "p.aborted.appended",
    /// A heuristic record is forced; holds and effects are as before.
    PHeuristicForced = "p.heuristic.forced",
    /// FORGOTTEN is forced and not acknowledged.
    PForgottenForced = "p.forgotten.forced",
    /// The log that was found is synced and not opened.
    PStartSynced = "p.start.synced",
    /// Some records are replayed, others not.
    PReplayMid = "p.replay.mid",
    /// A checkpoint is written in part.
    PCheckpointMid = "p.checkpoint.mid",
}

/// Whose process a point ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// The coordinator's: the points whose names begin with `c.`.
    Coordinator,
    /// A participant's: the points whose names begin with `p.`.
    Participant,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Coordinator => "coordinator",
            Self::Participant => "participant",
        })
    }
}

impl CrashPoint {
    /// Whose process the point ends.
    #[must_use]
    pub fn side(self) -> Side {
        if self.name().starts_with("c.") {
            Side::Coordinator
        } else {
            Side::Participant
        }
    }

    /// The names of one side, or all, for messages to people.
    pub(crate) fn names(of: Option<Side>) -> String {
        let asked = Self::ALL
            .iter()
            .filter(|point| of.is_none_or(|side| point.side() == side));
        asked.map(|point| point.name()).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for CrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for CrashPoint {
    type Err = Error;

    /// Takes a name of section 9; the error lists them all.
    fn from_str(name: &str) -> Result<Self, Error> {
        let known = Self::ALL.iter().copied().find(|point| point.name() == name);
        known.ok_or_else(|| Error::UnknownName {
            name: name.to_owned(),
        })
    }
}

/// Writes `crash point NAME reached` to stderr and ends the process by `abort`: nothing unwinds, nothing is flushed.
pub fn crash(point: CrashPoint) -> ! {
    // A stderr that is closed must not turn the crash into a panic, which would unwind.
    let _ = writeln!(std::io::stderr(), "crash point {point} reached");
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn points_are_those_of_the_specification() {
        let specification = include_str!("../../PROTOCOL.md");
        let section = specification
            .split("## 9. Crash points")
            .nth(1)
            .unwrap()
            .split("Every point x")
            .next()
            .unwrap();
        // Names stand between backticks.
        let names: Vec<_> = section.split('`').skip(1).step_by(2).collect();
        let points: Vec<_> = CrashPoint::ALL.iter().map(|point| point.name()).collect();
        assert_eq!(points, names);
    }

    #[test]
    fn name_names_its_point() {
        for point in CrashPoint::ALL {
            assert_eq!(point.name().parse(), Ok(*point));
        }
    }

    /// Runs itself once more, as a process of its own, with the point in the environment.
    #[test]
    fn crash_says_where_and_ends_by_abort() {
        const POINT: &str = "COVENANT_FAULT_TEST_POINT";
        if let Ok(point) = std::env::var(POINT) {
            crash(point.parse().unwrap());
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "--nocapture",
                "crash_point::tests::crash_says_where_and_ends_by_abort",
            ])
            .env(POINT, "c.commit.forced")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            stderr.lines().last(),
            Some("crash point c.commit.forced reached"),
            "{stderr}"
        );
        #[cfg(unix)]
        {
            use std::os::unix::process::ExitStatusExt;
            const SIGABRT: i32 = 6;
            assert_eq!(output.status.signal(), Some(SIGABRT));
        }
    }
}
