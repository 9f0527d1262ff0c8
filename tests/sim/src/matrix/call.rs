//! Calls of callers and operators, what can become of one on its way there and back, and the script that does it.

use covenant_fault::CrashPoint;
use covenant_rules::Decision;

use super::Mix;
use super::anomaly::{AWAY_MS, OVER_MS, PATIENCE_MS};
use super::cell::Script;
use crate::calls::{Ask, Fate, Transaction};
use crate::faults::Fault;
use crate::node::{Node, name_of};
use crate::setup::Death;
use crate::world::Answer;

/// How long a call or an answer is late: a coordinator that restarts at once serves by then.
const LATE_MS: u64 = 100;
/// How long p2's force takes in stories that need a transaction under way.
const SLOW_FORCE_US: u64 = 1_000_000;

macro_rules! listed {
    ($(#[$of:meta])* $name:ident: $($(#[$doc:meta])* $one:ident,)*) => {
        $(#[$of])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum $name {
            $($(#[$doc])* $one,)*
        }

        impl $name {
            /// All, in the order of the pages.
            pub const ALL: &'static [Self] = &[$(Self::$one,)*];
        }
    };
}

listed! {
    /// A call.
    Call:
    /// Execute of the transfer.
    Execute,
    /// GetTransaction while p2 is slow to vote.
    Get,
    /// AbortTransaction while p2 is slow to vote.
    Abort,
    /// An operator's FORGET of damage at p2.
    Forget,
}

listed! {
    /// What becomes of a call.
    CallAnomaly:
    /// It arrives twice in a row, and once more when all is over.
    Duplicate,
    /// It is lost, and made again.
    Lost,
    /// It arrives when the coordinator has restarted.
    Late,
    /// The answer is lost, and the call made again.
    AnswerLost,
    /// The answer arrives when the coordinator has restarted, and has answered the same call again.
    AnswerLate,
    /// The same id comes with other content.
    OtherContent,
    /// It arrives at a coordinator whose log was made since.
    OtherLog,
}

impl CallAnomaly {
    /// Why it cannot become of this call, if it cannot.
    #[must_use]
    pub fn cannot(self, call: Call) -> Option<&'static str> {
        let cannot = self == Self::OtherContent && call != Call::Execute;
        cannot.then_some("the call has no content beside what names its transaction")
    }
}

impl Call {
    /// What a call is.
    #[must_use]
    pub fn of(ask: &Ask) -> Self {
        match ask {
            Ask::Execute(_) => Self::Execute,
            Ask::Get(..) => Self::Get,
            Ask::Abort(..) => Self::Abort,
            Ask::Forget(..) => Self::Forget,
        }
    }

    /// How headings write it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Execute => "Execute",
            Self::Get => "GetTransaction",
            Self::Abort => "AbortTransaction",
            Self::Forget => "FORGET by an operator",
        }
    }

    /// Plays its story until somebody makes it.
    fn begin(self, script: &mut Script) -> Result<(), String> {
        match self {
            Self::Execute => Ok(()),
            Self::Get | Self::Abort => {
                let slow = Fault::SlowForce(Node::Participant(1), SLOW_FORCE_US);
                script.world.fault(slow);
                script.execute();
                script.until(0, Node::Coordinator, "<- p1  YES")
            }
            Self::Forget => {
                script.execute();
                script.until(0, Node::Coordinator, "<- p1  YES")?;
                // COMMIT is on its way to the disk, so that the report is damage and not the decision (C7).
                let point = CrashPoint::CCommitForced;
                script
                    .world
                    .crash_at(Node::Coordinator, point, None, Death::Process);
                script.by_hand(Decision::Abort)?;
                if !script.world.run_until_crashed(PATIENCE_MS) {
                    return Err(format!("{point} is never reached"));
                }
                script.world.restart(Node::Coordinator);
                script.until(0, Node::Coordinator, "ALARM HEURISTIC_DAMAGE")
            }
        }
    }

    fn ask(self, script: &Script) -> Result<Ask, String> {
        let of = &script.transaction;
        let (id, created) = (of.transaction_id.clone(), Some(of.created));
        Ok(match self {
            Self::Execute => Ask::Execute(of.execute()),
            Self::Get => Ask::Get(id, created),
            Self::Abort => Ask::Abort(id, created),
            Self::Forget => Ask::Forget(script.attempt()?, name_of(1)),
        })
    }
}

/// Plays what becomes of a call; the lines.
///
/// # Errors
/// It did not come about, an invariant is broken, or answer and books differ.
pub(crate) fn play(anomaly: CallAnomaly, call: Call) -> Result<Vec<String>, String> {
    let mut script = Script::new(Mix::Commit, false);
    call.begin(&mut script)?;
    let ask = call.ask(&script)?;
    match anomaly {
        CallAnomaly::Duplicate => {
            script.world.call(ask.clone(), Fate::Arrives);
            script.world.call(ask.clone(), Fate::Arrives);
            script.world.run_for(OVER_MS);
            answered(&mut script, ask, Fate::Arrives)?;
        }
        CallAnomaly::Lost => {
            answered(&mut script, ask.clone(), Fate::Lost)?;
            answered(&mut script, ask, Fate::Arrives)?;
        }
        CallAnomaly::Late => {
            let made = script.world.call(ask, Fate::Late(LATE_MS));
            restarts(&mut script);
            waits(&mut script, made)?;
        }
        CallAnomaly::AnswerLost => {
            answered(&mut script, ask.clone(), Fate::AnswerLost)?;
            answered(&mut script, ask, Fate::Arrives)?;
        }
        CallAnomaly::AnswerLate => {
            let from = script.world.trace().lines().len();
            let first = script.world.call(ask.clone(), Fate::AnswerLate(LATE_MS));
            script.until(from, Node::Coordinator, "tells ")?;
            restarts(&mut script);
            answered(&mut script, ask, Fate::Arrives)?;
            waits(&mut script, first)?;
        }
        CallAnomaly::OtherContent => other_content(&mut script, ask)?,
        CallAnomaly::OtherLog => {
            if call == Call::Execute {
                answered(&mut script, ask.clone(), Fate::Arrives)?;
                script.world.run_for(OVER_MS);
            }
            script.world.kill(Node::Coordinator, Death::Process);
            script.world.run_for(AWAY_MS);
            script.world.wipe_coordinator();
            script.until(0, Node::Coordinator, "its disk is lost")?;
            let from = script.world.trace().lines().len();
            script.until(from, Node::Coordinator, "serves")?;
            answered(&mut script, ask, Fate::Arrives)?;
        }
    }
    script.world.run_for(OVER_MS);
    let mut lines = script.settle()?;
    let agree = anomaly != CallAnomaly::OtherLog;
    lines.push(script.end(agree)?);
    Ok(lines)
}

/// Another transfer under the id of the first, while that runs and when it is over.
fn other_content(script: &mut Script, ask: Ask) -> Result<(), String> {
    let other = Transaction {
        branches: script.transaction.branches.iter().copied().take(1).collect(),
        ..script.transaction.clone()
    };
    let other = Ask::Execute(other.execute());
    let first = script.world.call(ask, Fate::Arrives);
    answered(script, other.clone(), Fate::Arrives)?;
    waits(script, first)?;
    script.world.run_for(OVER_MS);
    answered(script, other, Fate::Arrives)
}

fn restarts(script: &mut Script) {
    script.world.kill(Node::Coordinator, Death::Process);
    script.world.restart(Node::Coordinator);
}

fn answered(script: &mut Script, ask: Ask, fate: Fate) -> Result<(), String> {
    let made = script.world.call(ask, fate);
    waits(script, made)?;
    match (fate, script.world.answer(made)) {
        (Fate::Lost | Fate::AnswerLost, Some(Answer::Broken))
        | (Fate::Arrives | Fate::Late(_) | Fate::AnswerLate(_), Some(Answer::Said(_))) => Ok(()),
        (fate, answer) => Err(format!("a call that is {fate:?} is answered {answer:?}")),
    }
}

fn waits(script: &mut Script, call: covenant_rules::coordinator::RequestId) -> Result<(), String> {
    if script
        .world
        .run_until(PATIENCE_MS, |world| world.answer(call).is_some())
    {
        Ok(())
    } else {
        Err("a call is never answered".to_owned())
    }
}
