//! The bounds of what is sent and stored, each with its name, and how texts and lists meet them.

use crate::Error;

/// The protocol version that this code speaks (section 8).
pub const PROTOCOL_VERSION: u32 = 1;

/// The longest frame of a session, in encoded bytes: 1 MiB.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

/// What a frame may take besides its messages, in bytes: the floor, the position, and room to spare.
pub const FRAME_OVERHEAD_BYTES: usize = 64;

/// The longest operation of one branch, in bytes: 32 KiB.
pub const MAX_OPERATION_BYTES: usize = 32 << 10;

/// The most bytes that the operations of one Execute have together: 1 MiB.
pub const MAX_EXECUTE_BYTES: usize = 1 << 20;

/// The longest code of a reason, in bytes.
pub const MAX_REASON_CODE_BYTES: usize = 64;

/// The longest detail of a reason, in bytes.
pub const MAX_REASON_DETAIL_BYTES: usize = 512;

/// The longest identity of an operator, in bytes.
pub const MAX_OPERATOR_WHO_BYTES: usize = 256;

/// The longest reason that an operator gives, in bytes.
pub const MAX_OPERATOR_WHY_BYTES: usize = 1024;

/// The most protocol versions that one Hello offers.
pub const MAX_PROTOCOL_VERSIONS: usize = 16;

/// The most coordinator lineages of which one Hello says a position.
pub const MAX_SEEN_POSITIONS: usize = 1024;

/// The most branches of one stored outcome.
pub const MAX_BRANCHES: usize = 128;

/// The most former lineages that one log continues.
pub const MAX_FORMER_LINEAGES: usize = 1024;

/// A bound together with what an error says about it.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) name: &'static str,
    pub(crate) value: usize,
    pub(crate) unit: &'static str,
}

macro_rules! bounds {
    ($($bound:ident = $constant:ident $unit:literal;)*) => {
        $(pub(crate) const $bound: Bound =
            Bound { name: stringify!($constant), value: $constant, unit: $unit };)*
    };
}

bounds! {
    OPERATION = MAX_OPERATION_BYTES "bytes";
    REASON_CODE = MAX_REASON_CODE_BYTES "bytes";
    REASON_DETAIL = MAX_REASON_DETAIL_BYTES "bytes";
    OPERATOR_WHO = MAX_OPERATOR_WHO_BYTES "bytes";
    OPERATOR_WHY = MAX_OPERATOR_WHY_BYTES "bytes";
    PROTOCOL_VERSIONS = MAX_PROTOCOL_VERSIONS "versions";
    SEEN_POSITIONS = MAX_SEEN_POSITIONS "positions";
    BRANCHES = MAX_BRANCHES "branches";
    FORMER_LINEAGES = MAX_FORMER_LINEAGES "lineages";
}

impl Bound {
    /// Refuses what others wrote beyond the bound.
    pub(crate) fn check(self, field: &'static str, found: usize) -> Result<(), Error> {
        let Self {
            name: bound,
            value,
            unit,
        } = self;
        if found <= value {
            Ok(())
        } else {
            Err(Error::Beyond {
                field,
                found,
                unit,
                bound,
                value,
            })
        }
    }

    /// Cuts a text of our own to the bound, at a character.
    pub(crate) fn cut(self, text: &str) -> String {
        text[..text.floor_char_boundary(self.value)].to_owned()
    }
}
