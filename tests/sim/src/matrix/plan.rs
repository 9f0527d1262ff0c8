//! How each crash point is reached, at which node, or why it cannot be.

use covenant_fault::CrashPoint;
use covenant_rules::Decision;

use super::Mix;
use crate::node::Node;

/// What a script does until the point is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// The transaction runs.
    Runs,
    /// The transaction runs, its caller aborts it when the READ_ONLY is in.
    CallerAborts,
    /// The process dies at this point first; its next start reaches the other one.
    Start(CrashPoint),
    /// A checkpoint begins when the node has done this, as the trace writes it.
    Checkpoint(&'static str),
    /// An operator decides p2's branch by hand as soon as it is prepared, and lets damage be forgotten.
    ByHand(Decision),
    /// The outcome gets older than outcomes are retained.
    Expires,
}

/// A way to a crash point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Who dies.
    pub node: Node,
    /// How the point is reached.
    pub how: How,
}

const READER: Node = Node::Participant(0);
const YES_VOTER: Node = Node::Participant(1);

const NO_COMMIT: &str =
    "p1 votes NO: the decision is ABORT, and no COMMIT is ever appended or sent for the attempt (C4)";
const NO_END: &str =
    "an abort owes no acknowledgements and has no END: it is finished when ABORT is durable (section 1)";
const NO_ABORT: &str = "both vote YES before the deadline and nobody aborts: the decision is COMMIT, and no ABORT is ever \
                        appended or sent for the attempt (C2, C6)";
const NOT_COMMITTED: &str =
    "the decision is ABORT: COMMIT, the only cause of COMMITTED and ACK, never arrives (P12, P15)";
const NOT_ABORTED: &str = "the decision is COMMIT: ABORT, the only cause of ABORTED, never arrives (P10)";

/// How the point is reached with this mix.
///
/// # Errors
/// Why it cannot be.
pub fn plan(point: CrashPoint, mix: Mix) -> Result<Plan, &'static str> {
    use CrashPoint as At;
    let coordinator = |how| {
        Ok(Plan {
            node: Node::Coordinator,
            how,
        })
    };
    let voter = |how| Ok(Plan { node: YES_VOTER, how });
    let aborts = if mix == Mix::ReadOnly {
        How::CallerAborts
    } else {
        How::Runs
    };
    match (point, mix) {
        (At::CVotesAll | At::CCommitAppended | At::CCommitForced | At::CCommitSentSome, Mix::Abort) => {
            Err(NO_COMMIT)
        }
        (At::CAcksAll | At::CEndAppended, Mix::Abort) => Err(NO_END),
        (At::CAbortAppended | At::CAbortSentSome | At::CAbortForced, Mix::Commit) => Err(NO_ABORT),
        (At::PCommittedAppended | At::PCommittedForced | At::PAckSent, Mix::Abort) => Err(NOT_COMMITTED),
        (At::PAbortedAppended, Mix::Commit) => Err(NOT_ABORTED),
        (
            At::CExecuteReceived
            | At::CPrepareSentSome
            | At::CVotesAll
            | At::CCommitAppended
            | At::CCommitForced
            | At::CCommitSentSome
            | At::CAcksAll
            | At::CEndAppended,
            _,
        ) => coordinator(How::Runs),
        (At::CAbortAppended | At::CAbortSentSome | At::CAbortForced, _) => coordinator(aborts),
        (At::CHeuristicForced | At::CForgetForced, _) => coordinator(How::ByHand(by_hand(mix))),
        (At::CRetainedForced, _) => coordinator(How::Expires),
        (At::CStartSynced | At::CReplayMid, Mix::Abort) => coordinator(How::Start(At::CAbortAppended)),
        (At::CStartSynced | At::CReplayMid, _) => coordinator(How::Start(At::CCommitAppended)),
        (At::CCheckpointMid, Mix::Abort) => coordinator(How::Checkpoint("appends ABORT")),
        (At::CCheckpointMid, _) => coordinator(How::Checkpoint("forced COMMIT")),
        (At::PPrepareReceived | At::PVoteSent, Mix::ReadOnly) => Ok(Plan {
            node: READER,
            how: How::Runs,
        }),
        (
            At::PPrepareReceived
            | At::PPreparedAppended
            | At::PPreparedForced
            | At::PVoteSent
            | At::PDecisionReceived
            | At::PCommittedAppended
            | At::PCommittedForced
            | At::PAckSent,
            _,
        ) => voter(How::Runs),
        (At::PAbortedAppended, _) => voter(aborts),
        (At::PHeuristicForced | At::PForgottenForced, _) => voter(How::ByHand(by_hand(mix))),
        (At::PStartSynced | At::PReplayMid, Mix::Commit) => voter(How::Start(At::PPreparedAppended)),
        (At::PStartSynced | At::PReplayMid, Mix::Abort) => voter(How::Start(At::PAbortedAppended)),
        (At::PStartSynced | At::PReplayMid, Mix::ReadOnly) => voter(How::Start(At::PCommittedAppended)),
        (At::PCheckpointMid, Mix::ReadOnly) => voter(How::Checkpoint("appends COMMITTED")),
        (At::PCheckpointMid, _) => voter(How::Checkpoint("forced PREPARED")),
    }
}

/// What the operator says: damage where the decision is COMMIT, none in the other two.
fn by_hand(mix: Mix) -> Decision {
    match mix {
        Mix::Commit | Mix::Abort => Decision::Abort,
        Mix::ReadOnly => Decision::Commit,
    }
}
