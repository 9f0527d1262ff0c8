//! What a reader should look at, a sentence for each page.

use covenant_fault::CrashPoint;

use super::{Anomaly, Call, CallAnomaly, Message, Mix};

/// What each side is asked to do with this mix.
pub(crate) fn story(mix: Mix) -> &'static str {
    match mix {
        Mix::Commit => "p1 takes 5 and p2 gets 5; both vote YES.",
        Mix::Abort => "p1 is to take more than it has and votes NO; p2 votes YES.",
        Mix::ReadOnly => {
            "p1 looks at an account and votes READ_ONLY; p2 moves 5 between two accounts and votes YES."
        }
    }
}

/// What to look at on the page of a crash point.
pub(crate) fn point(point: CrashPoint) -> &'static str {
    use CrashPoint as At;
    match point {
        At::CExecuteReceived => {
            "Nothing has left and nothing is written: the attempt never was, and the id is NOT_FOUND."
        }
        At::CPrepareSentSome => {
            "p1 has the PREPARE and p2 has not: whoever voted YES holds until it may inquire, and is told ABORT by \
             presumption (Q7), because the attempt is of an earlier start that left no record."
        }
        At::CVotesAll => {
            "Everybody voted, nothing is written: the decision was never taken, so the YES voters are told ABORT by \
             presumption."
        }
        At::CCommitAppended => {
            "The COMMIT record decides, and it is written but not forced: the next start commits if it finds the \
             record and aborts if it does not; nobody was told before. A restart forces what it found before it acts."
        }
        At::CCommitForced => {
            "The decision is durable and nobody knows: every next start says COMMIT, and never ABORT."
        }
        At::CCommitSentSome => "p1 may have committed already: the next start must say COMMIT to the others.",
        At::CAcksAll => {
            "Every branch is resolved and END is not written: COMMIT goes again, and is acknowledged without a second effect."
        }
        At::CEndAppended => {
            "END is lazy: lost, the COMMIT goes again and is acknowledged again; found, nothing is sent."
        }
        At::CAbortAppended => {
            "ABORT is written and not forced, and nothing was sent: found, the caller can be told ABORTED; lost, the id \
             is NOT_FOUND, and the branches abort by presumption all the same."
        }
        At::CAbortSentSome => {
            "ABORT messages wait for no force: p2 may hear of it before it is durable; callers may not. (Here the record is in \
             the page cache by then; a server lets the messages go first, so that a death of its process alone can lose it.)"
        }
        At::CAbortForced => "ABORT is durable and no caller was told: the id is ABORTED after the restart.",
        At::CHeuristicForced => {
            "An operator decided p2's branch by hand, and the coordinator has just made the report durable: it is \
             repeated until acknowledged, counted once, and judged against the decision; damage waits for an operator."
        }
        At::CForgetForced => {
            "FORGET is durable and not sent: the next start sends it until it is acknowledged (FORGET_DONE)."
        }
        At::CRetainedForced => {
            "The mark is durable before an outcome below it goes: afterwards the id is EXPIRED, and never NOT_FOUND. (Outcomes \
             are retained for 3 s here, and looked at every 10 s.)"
        }
        At::CStartSynced => {
            "A first death leaves a record in the page cache only; the start that finds it dies as soon as it has \
             synced the log, before it reads it."
        }
        At::CReplayMid => {
            "A first death leaves a record in the page cache only; the start that finds it dies while it replays."
        }
        At::CCheckpointMid => {
            "A checkpoint that is written in part counts for nothing: the log that it was to replace is still whole."
        }
        At::PPrepareReceived => {
            "The PREPARE is lost with the process: it goes again when the participant joins (C3), until the deadline."
        }
        At::PPreparedAppended => {
            "PREPARED is written, not forced, and no YES has left: whether the next start finds it or not, PREPARE goes \
             again unless the deadline has passed; a branch that is found is held, and inquires."
        }
        At::PPreparedForced => {
            "PREPARED is durable and no YES has left: the branch is held through the restart, inquires, and votes when it is \
             asked again, unless the deadline has passed."
        }
        At::PVoteSent => {
            "The vote has left: a YES voter is in doubt until it is told the decision, however late it comes back."
        }
        At::PDecisionReceived => {
            "The decision is lost with the process: the branch is still held, and COMMIT goes again, or an inquiry is answered."
        }
        At::PCommittedAppended => {
            "The effect is written and not forced, and no ACK has left: lost or found, it is applied once."
        }
        At::PCommittedForced => {
            "The effect is durable and no ACK has left: COMMIT comes again and is acknowledged without a second effect (P17)."
        }
        At::PAckSent => "The ACK has left: if it arrives nothing is owed any more; nothing is applied again.",
        At::PAbortedAppended => {
            "ABORTED is written and not forced: lost, the branch is held again, inquires, and is told ABORT."
        }
        At::PHeuristicForced => {
            "An operator's decision is durable at p2 and not reported: the next start reports it, and keeps to it."
        }
        At::PForgottenForced => {
            "FORGOTTEN is durable and not acknowledged: FORGET comes again and is acknowledged (P20)."
        }
        At::PStartSynced => {
            "A first death leaves a record in the page cache only; the start that finds it dies as soon as it has \
             synced the log, before it reads it."
        }
        At::PReplayMid => {
            "A first death leaves a record in the page cache only; the start that finds it dies while it replays."
        }
        At::PCheckpointMid => {
            "A checkpoint that is written in part counts for nothing: the log that it was to replace is still whole, and the \
             branch is put back from it, with what it holds or with its effect."
        }
    }
}

/// A page's name and heading, and what to look at there.
pub(crate) fn anomaly(anomaly: Anomaly) -> (&'static str, &'static str, &'static str) {
    match anomaly {
        Anomaly::Duplicate => (
            "m.duplicate",
            "Messages that arrive twice",
            "Each message arrives, arrives again at once, and once more when all is over: the first one counts, and no \
             effect is applied again.",
        ),
        Anomaly::Lost => (
            "m.lost",
            "Messages that are lost with their session",
            "Each message is lost and its session breaks: what is owed goes again when the participant joins.",
        ),
        Anomaly::LateAtReceiver => (
            "m.late.receiver",
            "Messages that are late past a restart of their receiver",
            "Each message is on its way while its receiver restarts: its session died with the receiver, so nobody gets \
             it, and what is owed goes again.",
        ),
        Anomaly::LateFromSender => (
            "m.late.sender",
            "Messages that are late past a restart of their sender",
            "Each message arrives while its sender has restarted and not joined yet: it counts as if the sender had not \
             died, because its session is not replaced. A vote followed its force, and a decision that left is true.",
        ),
        Anomaly::Replaced => (
            "m.replaced",
            "Messages of a replaced session",
            "Each message is held back in a session that only its participant knows to be broken, and arrives when the \
             next one has replaced it: both sides drop it, and a HELLO of it is refused (section 8).",
        ),
        Anomaly::OlderIncarnation => (
            "m.older",
            "Messages of an older incarnation",
            "Each message arrives when a later start of its sender has joined: the session that it belongs to is \
             replaced, and it is dropped; its HELLO is refused.",
        ),
        Anomaly::ForeignLineage => (
            "m.foreign",
            "Messages about an attempt of a foreign lineage",
            "Behind each message comes the same about an attempt `?#1` of a coordinator log that nobody has: an inquiry \
             is answered UNKNOWN (Q2), and nothing that a coordinator says of it moves money.",
        ),
        Anomaly::OtherParticipant => (
            "m.lineage",
            "Messages of a participant with another lineage",
            "Behind each message its sender loses its disk and joins with another lineage, which then says the same: it \
             speaks for no branch of the former one. The accounts of the lost disk are opened anew.",
        ),
    }
}

/// The story in which a script gets at the message.
pub(crate) fn message(anomaly: Anomaly, message: Message) -> &'static str {
    if anomaly == Anomaly::ForeignLineage && message.is_of_joining() {
        return "The coordinator's disk is lost behind the votes, and it comes back with another log. HELLO knows a position of \
                the former one, which says nothing of this one; WELCOME is of a log that nobody voted for, so both \
                branches stay in doubt (Q2) until an operator decides them, and the id is UNKNOWN (R4).";
    }
    match message {
        Message::Prepare | Message::Yes | Message::Commit | Message::Ack => story(Mix::Commit),
        Message::No | Message::Abort => story(Mix::Abort),
        Message::ReadOnly => story(Mix::ReadOnly),
        Message::LostState => {
            "Behind its YES the disk of p2 is replaced by an older copy, without PREPARED: p2 says LOST_STATE to the COMMIT \
             (P8), and that is a HAZARD until an operator lets it be forgotten (C12). (The ledger's journal refuses to \
             start on such a disk; other resources cannot know.)"
        }
        Message::Hello | Message::Welcome => {
            "The connection of p2 breaks behind its YES, and it joins again."
        }
        Message::Inquire | Message::Pending => {
            "p1 restarts after its YES, while p2 is slow to force: p1 inquires."
        }
        Message::Unknown => {
            "The COMMIT record does not decode after a restart: inquiries are answered UNKNOWN until an operator decides (Q5)."
        }
        Message::Report | Message::ReportRecorded | Message::Forget | Message::ForgetAck => {
            "An operator commits p2's branch by hand before the decision, which is COMMIT too: no damage."
        }
    }
}

/// A page's name and heading, and what to look at there.
pub(crate) fn call_anomaly(anomaly: CallAnomaly) -> (&'static str, &'static str, &'static str) {
    match anomaly {
        CallAnomaly::Duplicate => (
            "k.duplicate",
            "Calls that arrive twice",
            "Each call arrives twice, and once more when all is over: the second attaches to the first (R1), nothing is run \
             twice, and a final answer stays.",
        ),
        CallAnomaly::Lost => (
            "k.lost",
            "Calls that are lost",
            "Each call is lost and made again: whoever hears nothing knows nothing, and asks with the same id.",
        ),
        CallAnomaly::Late => (
            "k.late",
            "Calls that are late past a restart of the coordinator",
            "Each call is on its way while the coordinator restarts, and finds what that start knows. An attempt of the \
             former start that was not decided is gone, and its branches abort by presumption (Q7).",
        ),
        CallAnomaly::AnswerLost => (
            "k.answer.lost",
            "Answers that are lost",
            "Each answer is lost, as it is for a caller that restarts; the call is made again and answered the same.",
        ),
        CallAnomaly::AnswerLate => (
            "k.answer.late",
            "Answers that are late past a restart of the coordinator",
            "Each answer is still on its way when the coordinator has restarted and answered the same call again: what is \
             final is the same in both.",
        ),
        CallAnomaly::OtherContent => (
            "k.content",
            "An id that comes again with other content",
            "The fingerprint differs: ALREADY_EXISTS, while the first runs and when it is over, and nothing is run.",
        ),
        CallAnomaly::OtherLog => (
            "k.log",
            "Calls at a coordinator whose log was made since",
            "The coordinator's disk is lost, and it comes back with another log. What was created before its birth is \
             UNKNOWN, and nothing is run (R4).",
        ),
    }
}

/// The story in which somebody makes the call.
pub(crate) fn call(call: Call) -> &'static str {
    match call {
        Call::Execute => "p1 takes 5 and p2 gets 5.",
        Call::Get => {
            "p2 is slow to force PREPARED, so that the transaction is under way; somebody asks what became of it."
        }
        Call::Abort => {
            "p2 is slow to force PREPARED, so that the transaction is under way; its caller aborts it."
        }
        Call::Forget => {
            "An operator has aborted p2's branch by hand, and the decision is COMMIT: damage, which an operator lets be \
             forgotten."
        }
    }
}
