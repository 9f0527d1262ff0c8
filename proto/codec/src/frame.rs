//! The messages of a session between the rules and the wire (section 8).
//!
//! `to_participant` and `from_coordinator` are the two ends of one direction, `to_coordinator` and
//! `from_participant` of the other. A frame is cut by the drivers, with [`to_participant_bytes`] and
//! [`to_coordinator_bytes`]: start at [`FRAME_OVERHEAD_BYTES`](crate::FRAME_OVERHEAD_BYTES), add each message's
//! bound, and begin the next frame before the sum passes [`MAX_FRAME_BYTES`](crate::MAX_FRAME_BYTES).

use std::sync::Arc;

use bytes::Bytes;
use covenant_proto::v1::{self, coordinator_message as coordinator, participant_message as participant};
use covenant_rules::{Hello, Heuristic, Incarnation, Lineage, ToCoordinator, ToParticipant, Vote};

use crate::error::required;
use crate::limits::{OPERATION, PROTOCOL_VERSIONS, SEEN_POSITIONS};
use crate::{
    Error, MAX_REASON_CODE_BYTES, MAX_REASON_DETAIL_BYTES, MAX_SEEN_POSITIONS, PROTOCOL_VERSION, ids, words,
};

/// The most bytes that a message without a text takes in a frame: its own tag and length, an xid (3 fixed and 2
/// variable numbers with their tags, 49 bytes, and its own tag and length), and the tags and lengths of a content.
const BARE_MESSAGE_BYTES: usize = 64;

/// Tags and lengths of the texts and payloads of one message, in bytes.
const TEXT_OVERHEAD_BYTES: usize = 16;

/// A message to a participant, for the wire.
///
/// The operation is copied; it was bounded by [`MAX_OPERATION_BYTES`](crate::MAX_OPERATION_BYTES) where it came in.
#[must_use]
pub fn to_participant(message: &ToParticipant) -> v1::CoordinatorMessage {
    use coordinator::Content;

    let (xid, content) = match message {
        ToParticipant::Prepare {
            xid,
            transaction_id,
            operation,
        } => {
            let prepare = v1::Prepare {
                transaction_id: transaction_id.as_str().to_owned(),
                operation: Bytes::copy_from_slice(operation),
            };
            (xid, Content::Prepare(prepare))
        }
        ToParticipant::Commit(xid) => (xid, Content::Commit(v1::Commit {})),
        ToParticipant::Abort(xid) => (xid, Content::Abort(v1::Abort {})),
        ToParticipant::Pending(xid) => (xid, Content::Pending(v1::Pending {})),
        ToParticipant::Unknown(xid) => (xid, Content::Unknown(v1::Unknown {})),
        ToParticipant::ReportRecorded(xid) => (xid, Content::ReportRecorded(v1::ReportRecorded {})),
        ToParticipant::Forget(xid) => (xid, Content::Forget(v1::Forget {})),
    };
    v1::CoordinatorMessage {
        xid: Some(ids::xid(*xid)),
        content: Some(content),
    }
}

/// What a coordinator sent, from the wire.
///
/// # Errors
/// A missing xid or content, a transaction id or an operation beyond its bounds.
pub fn from_coordinator(message: v1::CoordinatorMessage) -> Result<ToParticipant, Error> {
    use coordinator::Content;

    let xid = ids::from_xid(required("CoordinatorMessage.xid", message.xid)?);
    Ok(match required("CoordinatorMessage.content", message.content)? {
        Content::Prepare(prepare) => {
            OPERATION.check("Prepare.operation", prepare.operation.len())?;
            ToParticipant::Prepare {
                xid,
                transaction_id: ids::transaction_id("Prepare.transaction_id", &prepare.transaction_id)?,
                operation: Arc::from(&prepare.operation[..]),
            }
        }
        Content::Commit(v1::Commit {}) => ToParticipant::Commit(xid),
        Content::Abort(v1::Abort {}) => ToParticipant::Abort(xid),
        Content::Pending(v1::Pending {}) => ToParticipant::Pending(xid),
        Content::Unknown(v1::Unknown {}) => ToParticipant::Unknown(xid),
        Content::ReportRecorded(v1::ReportRecorded {}) => ToParticipant::ReportRecorded(xid),
        Content::Forget(v1::Forget {}) => ToParticipant::Forget(xid),
    })
}

/// An upper bound of what a message to a participant adds to a frame, in bytes; no more than 80 too high.
#[must_use]
pub fn to_participant_bytes(message: &ToParticipant) -> usize {
    match message {
        ToParticipant::Prepare {
            transaction_id,
            operation,
            ..
        } => BARE_MESSAGE_BYTES + TEXT_OVERHEAD_BYTES + transaction_id.as_str().len() + operation.len(),
        ToParticipant::Commit(_)
        | ToParticipant::Abort(_)
        | ToParticipant::Pending(_)
        | ToParticipant::Unknown(_)
        | ToParticipant::ReportRecorded(_)
        | ToParticipant::Forget(_) => BARE_MESSAGE_BYTES,
    }
}

/// A message to the coordinator, for the wire; the texts of a NO are cut to their bounds, and a code that is none is
/// not sent ([`words::INVALID_REASON_CODE`]).
#[must_use]
pub fn to_coordinator(message: &ToCoordinator) -> v1::ParticipantMessage {
    use participant::Content;

    let (xid, content) = match message {
        ToCoordinator::Vote(xid, vote) => (xid, Content::Vote(words::vote(vote))),
        ToCoordinator::Ack(xid) => (xid, Content::Ack(v1::Ack {})),
        ToCoordinator::LostState(xid) => (xid, Content::LostState(v1::LostState {})),
        ToCoordinator::Inquire(xid) => (xid, Content::Inquiry(v1::Inquiry {})),
        ToCoordinator::Report(xid, what) => {
            let what = words::heuristic(Some(*what)).into();
            (xid, Content::Report(v1::HeuristicReport { what }))
        }
        ToCoordinator::ForgetAck(xid) => (xid, Content::ForgetAck(v1::ForgetAck {})),
    };
    v1::ParticipantMessage {
        xid: Some(ids::xid(*xid)),
        content: Some(content),
    }
}

/// What a participant sent, from the wire.
///
/// # Errors
/// A missing xid or content, a vote that is none, a report of anything but COMMIT or ABORT, a reason beyond its
/// bounds or whose code is none.
pub fn from_participant(message: v1::ParticipantMessage) -> Result<ToCoordinator, Error> {
    use participant::Content;

    let xid = ids::from_xid(required("ParticipantMessage.xid", message.xid)?);
    Ok(match required("ParticipantMessage.content", message.content)? {
        Content::Vote(vote) => ToCoordinator::Vote(xid, words::from_vote(&vote)?),
        Content::Ack(v1::Ack {}) => ToCoordinator::Ack(xid),
        Content::LostState(v1::LostState {}) => ToCoordinator::LostState(xid),
        Content::Inquiry(v1::Inquiry {}) => ToCoordinator::Inquire(xid),
        Content::Report(v1::HeuristicReport { what }) => {
            match words::from_heuristic("HeuristicReport.what", what)? {
                Some(done @ (Heuristic::Commit | Heuristic::Abort)) => ToCoordinator::Report(xid, done),
                Some(Heuristic::Mixed | Heuristic::Hazard) | None => {
                    return Err(Error::Enumeration {
                        field: "HeuristicReport.what",
                        value: what,
                    });
                }
            }
        }
        Content::ForgetAck(v1::ForgetAck {}) => ToCoordinator::ForgetAck(xid),
    })
}

/// An upper bound of what a message to the coordinator adds to a frame, in bytes; no more than 80 too high.
#[must_use]
pub fn to_coordinator_bytes(message: &ToCoordinator) -> usize {
    match message {
        ToCoordinator::Vote(_, Vote::No(reason)) => {
            let reason = words::sendable(reason);
            BARE_MESSAGE_BYTES
                + TEXT_OVERHEAD_BYTES
                + reason.code.len().min(MAX_REASON_CODE_BYTES)
                + reason.detail.len().min(MAX_REASON_DETAIL_BYTES)
        }
        ToCoordinator::Vote(_, Vote::Yes | Vote::ReadOnly)
        | ToCoordinator::Ack(_)
        | ToCoordinator::LostState(_)
        | ToCoordinator::Inquire(_)
        | ToCoordinator::Report(..)
        | ToCoordinator::ForgetAck(_) => BARE_MESSAGE_BYTES,
    }
}

/// The first message of a session, for the wire, with the versions that this side speaks.
///
/// Of more than [`MAX_SEEN_POSITIONS`] positions the first ones are said.
#[must_use]
pub fn hello(hello: &Hello) -> v1::Hello {
    let positions = hello
        .positions
        .iter()
        .take(MAX_SEEN_POSITIONS)
        .map(|(lineage, position)| v1::SeenPosition {
            lineage: Some(ids::lineage(*lineage)),
            position: *position,
        });
    v1::Hello {
        protocol_versions: vec![PROTOCOL_VERSION],
        name: hello.name.as_str().to_owned(),
        lineage: Some(ids::lineage(hello.lineage)),
        incarnation: Some(ids::incarnation(hello.incarnation)),
        connection: hello.connection,
        positions: positions.collect(),
    }
}

/// The first message of a session, from the wire, and the version that both sides speak.
///
/// # Errors
/// [`Error::Version`] if there is none, which is looked at first, for all else may mean something else in another
/// version; then a missing lineage or incarnation, a name or a list beyond its bounds.
pub fn from_hello(hello: &v1::Hello) -> Result<(Hello, u32), Error> {
    PROTOCOL_VERSIONS.check("Hello.protocol_versions", hello.protocol_versions.len())?;
    if !hello.protocol_versions.contains(&PROTOCOL_VERSION) {
        return Err(Error::Version {
            offered: hello.protocol_versions.clone(),
        });
    }
    SEEN_POSITIONS.check("Hello.positions", hello.positions.len())?;
    let positions = hello.positions.iter().map(|seen| {
        Ok((
            ids::from_lineage(required("SeenPosition.lineage", seen.lineage)?),
            seen.position,
        ))
    });
    let plain = Hello {
        name: ids::name("Hello.name", &hello.name)?,
        lineage: ids::from_lineage(required("Hello.lineage", hello.lineage)?),
        incarnation: ids::from_incarnation(required("Hello.incarnation", hello.incarnation)?),
        connection: hello.connection,
        positions: positions.collect::<Result<_, Error>>()?,
    };
    Ok((plain, PROTOCOL_VERSION))
}

/// The answer to Hello, as a plain value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Welcome {
    /// The protocol version that both sides speak from here on.
    pub version: u32,
    /// The coordinator's lineage.
    pub lineage: Lineage,
    /// The coordinator's start.
    pub incarnation: Incarnation,
    /// The longest frame that the coordinator takes, in bytes.
    pub max_frame_bytes: u32,
}

/// The answer to Hello, for the wire.
#[must_use]
pub fn welcome(welcome: &Welcome) -> v1::Welcome {
    v1::Welcome {
        protocol_version: welcome.version,
        lineage: Some(ids::lineage(welcome.lineage)),
        incarnation: Some(ids::incarnation(welcome.incarnation)),
        max_frame_bytes: welcome.max_frame_bytes,
    }
}

/// The answer to Hello, from the wire.
///
/// # Errors
/// A version that was not offered, a missing lineage or incarnation.
pub fn from_welcome(welcome: &v1::Welcome) -> Result<Welcome, Error> {
    if welcome.protocol_version != PROTOCOL_VERSION {
        return Err(Error::Chosen {
            version: welcome.protocol_version,
        });
    }
    Ok(Welcome {
        version: welcome.protocol_version,
        lineage: ids::from_lineage(required("Welcome.lineage", welcome.lineage)?),
        incarnation: ids::from_incarnation(required("Welcome.incarnation", welcome.incarnation)?),
        max_frame_bytes: welcome.max_frame_bytes,
    })
}
