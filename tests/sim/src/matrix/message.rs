//! Every message of a session, and the story in which a script gets at it.

use covenant_fault::CrashPoint;
use covenant_rules::{Decision, Heuristic, NoReason, ToCoordinator, ToParticipant, Vote, Xid};

use super::Mix;
use super::cell::Script;
use crate::calls::Transaction;
use crate::faults::Fault;
use crate::node::Node;
use crate::setup::Death;

/// A message of a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Message {
    /// PREPARE to p2.
    Prepare,
    /// YES of p2.
    Yes,
    /// NO of p1.
    No,
    /// READ_ONLY of p1.
    ReadOnly,
    /// COMMIT to p2.
    Commit,
    /// ACK of p2.
    Ack,
    /// ABORT to p2.
    Abort,
    /// LOST_STATE of p2, which was sent a COMMIT that it has no branch for.
    LostState,
    /// An inquiry of p1, which has restarted while p2 is slow to vote.
    Inquire,
    /// PENDING to the same.
    Pending,
    /// UNKNOWN to p2: the COMMIT record does not decode.
    Unknown,
    /// The report of p2, where an operator has committed by hand.
    Report,
    /// The acknowledgement of it.
    ReportRecorded,
    /// FORGET to p2.
    Forget,
    /// The acknowledgement of that.
    ForgetAck,
}

/// A message as a value.
pub(crate) enum Value {
    Up(ToCoordinator),
    Down(ToParticipant),
}

/// How long p2's force takes while p1 restarts.
const SLOW_FORCE_US: u64 = 2_000_000;

impl Message {
    /// In the order in which a transaction meets them.
    pub const ALL: [Self; 15] = [
        Self::Prepare,
        Self::Yes,
        Self::No,
        Self::ReadOnly,
        Self::Commit,
        Self::Ack,
        Self::Abort,
        Self::LostState,
        Self::Inquire,
        Self::Pending,
        Self::Unknown,
        Self::Report,
        Self::ReportRecorded,
        Self::Forget,
        Self::ForgetAck,
    ];

    /// How the trace writes it, up to what differs.
    #[must_use]
    pub fn begins(self) -> &'static str {
        match self {
            Self::Prepare => "PREPARE ",
            Self::Yes => "YES ",
            Self::No => "NO(",
            Self::ReadOnly => "READ_ONLY ",
            Self::Commit => "COMMIT ",
            Self::Ack => "ACK ",
            Self::Abort => "ABORT ",
            Self::LostState => "LOST_STATE ",
            Self::Inquire => "INQUIRE ",
            Self::Pending => "PENDING ",
            Self::Unknown => "UNKNOWN ",
            Self::Report => "REPORT ",
            Self::ReportRecorded => "REPORT RECORDED ",
            Self::Forget => "FORGET ",
            Self::ForgetAck => "FORGET ACK ",
        }
    }

    /// How headings write it.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.begins().trim_end_matches([' ', '('])
    }

    /// Whether it goes to the coordinator.
    #[must_use]
    pub fn is_up(self) -> bool {
        matches!(
            self,
            Self::Yes
                | Self::No
                | Self::ReadOnly
                | Self::Ack
                | Self::LostState
                | Self::Inquire
                | Self::Report
                | Self::ForgetAck
        )
    }

    /// The participant that sends or gets it.
    #[must_use]
    pub fn who(self) -> usize {
        match self {
            Self::No | Self::ReadOnly | Self::Inquire | Self::Pending => 0,
            _ => 1,
        }
    }

    pub(crate) fn sender(self) -> Node {
        if self.is_up() {
            Node::Participant(self.who())
        } else {
            Node::Coordinator
        }
    }

    pub(crate) fn receiver(self) -> Node {
        if self.is_up() {
            Node::Coordinator
        } else {
            Node::Participant(self.who())
        }
    }

    /// As a value about this attempt.
    pub(crate) fn value(self, xid: Xid, of: &Transaction) -> Value {
        use Value::{Down, Up};
        match self {
            Self::Prepare => {
                let execute = of.execute();
                let (_, operation) = &execute.branches[self.who()];
                Down(ToParticipant::Prepare {
                    xid,
                    transaction_id: of.transaction_id.clone(),
                    operation: operation.clone(),
                })
            }
            Self::Yes => Up(ToCoordinator::Vote(xid, Vote::Yes)),
            Self::No => Up(ToCoordinator::Vote(xid, Vote::No(NoReason::new("AGAIN", "")))),
            Self::ReadOnly => Up(ToCoordinator::Vote(xid, Vote::ReadOnly)),
            Self::Commit => Down(ToParticipant::Commit(xid)),
            Self::Ack => Up(ToCoordinator::Ack(xid)),
            Self::Abort => Down(ToParticipant::Abort(xid)),
            Self::LostState => Up(ToCoordinator::LostState(xid)),
            Self::Inquire => Up(ToCoordinator::Inquire(xid)),
            Self::Pending => Down(ToParticipant::Pending(xid)),
            Self::Unknown => Down(ToParticipant::Unknown(xid)),
            Self::Report => Up(ToCoordinator::Report(xid, Heuristic::Commit)),
            Self::ReportRecorded => Down(ToParticipant::ReportRecorded(xid)),
            Self::Forget => Down(ToParticipant::Forget(xid)),
            Self::ForgetAck => Up(ToCoordinator::ForgetAck(xid)),
        }
    }

    /// What the transaction of its story comes to.
    pub(crate) fn mix(self) -> Mix {
        match self {
            Self::No | Self::Abort => Mix::Abort,
            Self::ReadOnly => Mix::ReadOnly,
            _ => Mix::Commit,
        }
    }

    /// Plays its story until it is about to be sent, or a while before that.
    pub(crate) fn begin(self, script: &mut Script) -> Result<(), String> {
        match self {
            Self::Inquire | Self::Pending => {
                let (p1, p2) = (Node::Participant(0), Node::Participant(1));
                script.world.fault(Fault::SlowForce(p2, SLOW_FORCE_US));
                script.execute();
                script.until(0, Node::Coordinator, "<- p1  YES")?;
                script.world.kill(p1, Death::Process);
                script.world.restart(p1);
            }
            Self::Unknown => {
                let point = CrashPoint::CCommitForced;
                script
                    .world
                    .crash_at(Node::Coordinator, point, None, Death::Process);
                script.execute();
                if !script.world.run_until_crashed(1_000) {
                    return Err(format!("{point} is never reached"));
                }
                script.world.fault(Fault::Damage {
                    which: 0,
                    hidden: false,
                });
            }
            Self::LostState => {
                script.execute();
                script.until(0, Node::Coordinator, "forced END")?;
                let mut xid = script.attempt()?;
                xid.seq += 1;
                script.world.repeat(self.who(), ToParticipant::Commit(xid));
            }
            Self::Report | Self::ReportRecorded | Self::Forget | Self::ForgetAck => {
                script.execute();
                script.by_hand(Decision::Commit)?;
            }
            _ => script.execute(),
        }
        Ok(())
    }
}
