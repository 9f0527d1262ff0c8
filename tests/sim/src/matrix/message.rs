//! Every message of a session, and the story in which a script gets at it.

use covenant_fault::CrashPoint;
use covenant_rules::{Decision, Heuristic, NoReason, ToCoordinator, ToParticipant, Vote, Xid};

use super::Mix;
use super::cell::Script;
use crate::calls::Transaction;
use crate::faults::Fault;
use crate::node::Node;
use crate::setup::Death;

macro_rules! messages {
    ($($(#[$doc:meta])* $message:ident = $begins:literal,)*) => {
        /// A message of a session.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Message {
            $($(#[$doc])* $message,)*
        }

        impl Message {
            /// In the order in which a transaction meets them.
            pub const ALL: &'static [Self] = &[$(Self::$message,)*];

            /// How the trace writes it, up to what differs.
            #[must_use]
            pub fn begins(self) -> &'static str {
                match self {
                    $(Self::$message => $begins,)*
                }
            }
        }
    };
}

messages! {
    /// PREPARE to p2.
    Prepare = "PREPARE ",
    /// YES of p2.
    Yes = "YES ",
    /// NO of p1.
    No = "NO(",
    /// READ_ONLY of p1.
    ReadOnly = "READ_ONLY ",
    /// COMMIT to p2.
    Commit = "COMMIT ",
    /// ACK of p2.
    Ack = "ACK ",
    /// ABORT to p2.
    Abort = "ABORT ",
    /// LOST_STATE of p2, whose disk lost PREPARED behind its YES.
    LostState = "LOST_STATE ",
    /// An inquiry of p1, which has restarted while p2 is slow to vote.
    Inquire = "INQUIRE ",
    /// PENDING to the same.
    Pending = "PENDING ",
    /// UNKNOWN to p2: the COMMIT record does not decode.
    Unknown = "UNKNOWN ",
    /// The report of p2, where an operator has committed by hand.
    Report = "REPORT ",
    /// The acknowledgement of it.
    ReportRecorded = "REPORT RECORDED ",
    /// FORGET to p2.
    Forget = "FORGET ",
    /// The acknowledgement of that.
    ForgetAck = "FORGET ACK ",
    /// HELLO of p2, whose connection broke behind its YES.
    Hello = "HELLO",
    /// WELCOME to the same.
    Welcome = "WELCOME",
}

/// A message as a value.
pub(crate) enum Value {
    Up(ToCoordinator),
    Down(ToParticipant),
    /// The last HELLO of the participant.
    Hello,
    /// Comes in the first frame of its stream only.
    Welcome,
}

/// How long p2's force takes while p1 restarts.
const SLOW_FORCE_US: u64 = 2_000_000;

impl Message {
    /// What a message to the coordinator is.
    #[must_use]
    pub fn to_coordinator(message: &ToCoordinator) -> Self {
        match message {
            ToCoordinator::Vote(_, Vote::Yes) => Self::Yes,
            ToCoordinator::Vote(_, Vote::No(_)) => Self::No,
            ToCoordinator::Vote(_, Vote::ReadOnly) => Self::ReadOnly,
            ToCoordinator::Ack(_) => Self::Ack,
            ToCoordinator::LostState(_) => Self::LostState,
            ToCoordinator::Inquire(_) => Self::Inquire,
            ToCoordinator::Report(..) => Self::Report,
            ToCoordinator::ForgetAck(_) => Self::ForgetAck,
        }
    }

    /// What a message to a participant is.
    #[must_use]
    pub fn to_participant(message: &ToParticipant) -> Self {
        match message {
            ToParticipant::Prepare { .. } => Self::Prepare,
            ToParticipant::Commit(_) => Self::Commit,
            ToParticipant::Abort(_) => Self::Abort,
            ToParticipant::Pending(_) => Self::Pending,
            ToParticipant::Unknown(_) => Self::Unknown,
            ToParticipant::ReportRecorded(_) => Self::ReportRecorded,
            ToParticipant::Forget(_) => Self::Forget,
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
        match self {
            Self::Yes
            | Self::No
            | Self::ReadOnly
            | Self::Ack
            | Self::LostState
            | Self::Inquire
            | Self::Report
            | Self::ForgetAck
            | Self::Hello => true,
            Self::Prepare
            | Self::Commit
            | Self::Abort
            | Self::Pending
            | Self::Unknown
            | Self::ReportRecorded
            | Self::Forget
            | Self::Welcome => false,
        }
    }

    /// Whether it opens a session, and is about no attempt.
    #[must_use]
    pub fn is_of_joining(self) -> bool {
        matches!(self, Self::Hello | Self::Welcome)
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
            Self::No => Up(ToCoordinator::Vote(
                xid,
                Vote::No(NoReason::new("INSUFFICIENT_FUNDS", "")),
            )),
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
            Self::Hello => Value::Hello,
            Self::Welcome => Value::Welcome,
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
                script.until(0, Node::Coordinator, "<- p2  YES")?;
                script.world.lose_tail(self.who(), 1);
                script.world.restart(Node::Participant(self.who()));
            }
            Self::Hello | Self::Welcome => {
                script.execute();
                script.until(0, Node::Coordinator, "<- p2  YES")?;
                script.world.cut(self.who(), false, true, false);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Mix;

    #[test]
    fn every_message_is_the_kind_of_its_own_value() {
        let script = Script::new(Mix::Commit, false);
        let xid = Xid {
            lineage: covenant_rules::Lineage(1),
            incarnation: covenant_rules::Incarnation { counter: 1, bits: 1 },
            seq: 1,
        };
        for message in Message::ALL {
            let kind = match message.value(xid, &script.transaction) {
                Value::Up(value) => Message::to_coordinator(&value),
                Value::Down(value) => Message::to_participant(&value),
                Value::Hello => Message::Hello,
                Value::Welcome => Message::Welcome,
            };
            assert_eq!(kind, *message);
        }
    }
}
