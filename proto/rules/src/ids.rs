//! Who and when: lineages, incarnations, transaction ids, names, and the units of time.
//!
//! All of them are plain values that somebody outside made; this crate only compares them.

use alloc::sync::Arc;
use core::fmt;

/// The longest transaction id or participant name, in bytes.
pub const MAX_ID_BYTES: usize = 128;

/// Milliseconds on a monotonic clock, counted from the start of the process.
pub type Millis = u64;

/// Milliseconds since the Unix epoch on the wall clock.
pub type UnixMillis = u64;

/// The number of a log record, from 1, without gaps. A *position* is the LSN of the last forced record.
pub type Lsn = u64;

/// A random UUID made with a data directory: two logs never share one (section 1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lineage(pub u128);

impl fmt::Display for Lineage {
    /// Writes the canonical 8-4-4-4-12 form of the UUID.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            v >> 96,
            (v >> 80) & 0xffff,
            (v >> 64) & 0xffff,
            (v >> 48) & 0xffff,
            v & 0xffff_ffff_ffff
        )
    }
}

impl fmt::Debug for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 >> 96)
    }
}

/// One start of a process on its log: a counter and 64 random bits.
///
/// Protocol order is the counter's alone: equal counters with other bits do not compare (section 1). The
/// derived `Ord` is for sorted containers only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation {
    /// Rises by one at every start of a lineage.
    pub counter: u64,
    /// Random; tells two copies of one directory apart.
    pub bits: u64,
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.counter)
    }
}

/// One attempt of a transaction, never reused (S12).
///
/// The derived order (lineage, counter, bits, seq) is minting order within one lineage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid {
    /// The coordinator log that minted it.
    pub lineage: Lineage,
    /// The coordinator start that minted it.
    pub incarnation: Incarnation,
    /// From 1 within one incarnation.
    pub seq: u64,
}

impl Xid {
    /// Whether the attempt lies below `floor` (section 6). Meaningful for the floor's own lineage only.
    #[must_use]
    pub fn is_below(&self, floor: Floor) -> bool {
        (self.incarnation.counter, self.seq) < (floor.counter, floor.seq)
    }

    /// The attempt as 40 bytes, big-endian: lineage, counter, bits, seq. What stored envelopes carry.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[..16].copy_from_slice(&self.lineage.0.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.incarnation.counter.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.incarnation.bits.to_be_bytes());
        bytes[32..].copy_from_slice(&self.seq.to_be_bytes());
        bytes
    }

    /// The inverse of [`Xid::to_bytes`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 40]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(word)
        };
        Self {
            lineage: Lineage((u128::from(word(0)) << 64) | u128::from(word(8))),
            incarnation: Incarnation {
                counter: word(16),
                bits: word(24),
            },
            seq: word(32),
        }
    }
}

impl fmt::Display for Xid {
    /// Writes `lineage/counter.bits/seq`, the form in which people and logs see an attempt.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Incarnation { counter, bits } = self.incarnation;
        write!(f, "{}/{counter}.{bits:016x}/{}", self.lineage, self.seq)
    }
}

impl fmt::Debug for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{:?}/{}", self.lineage, self.incarnation, self.seq)
    }
}

/// The participant floor: the lowest attempt for which a participant may still get a PREPARE or a COMMIT
/// that it has not acknowledged (section 6). One per participant and coordinator lineage; it only rises.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Floor {
    /// Incarnation counter of the attempt.
    pub counter: u64,
    /// Its number within the incarnation.
    pub seq: u64,
}

/// Why a transaction id or a name was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdError {
    /// It has no characters.
    Empty,
    /// It has this many bytes, more than [`MAX_ID_BYTES`].
    TooLong(usize),
    /// The byte at this offset is not allowed.
    BadByte(usize),
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(
                f,
                "it is empty; give 1 to {MAX_ID_BYTES} printable ASCII characters"
            ),
            Self::TooLong(len) => {
                write!(f, "it has {len} bytes; the bound MAX_ID_BYTES is {MAX_ID_BYTES}")
            }
            Self::BadByte(at) => write!(
                f,
                "the byte at offset {at} is not allowed; ids are printable ASCII, and names have no space and no '/'"
            ),
        }
    }
}

impl core::error::Error for IdError {}

fn check(text: &str, allowed: impl Fn(u8) -> bool) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > MAX_ID_BYTES {
        return Err(IdError::TooLong(text.len()));
    }
    match text.bytes().position(|byte| !allowed(byte)) {
        Some(at) => Err(IdError::BadByte(at)),
        None => Ok(()),
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $type:ident, $allowed:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            /// Takes the text if it is within the bounds of its kind.
            ///
            /// # Errors
            /// [`IdError`] names what is wrong and the bound.
            pub fn new(text: &str) -> Result<Self, IdError> {
                check(text, $allowed)?;
                Ok(Self(Arc::from(text)))
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

text_id!(
    /// What the caller calls its transaction: its idempotency key. 1 to 128 printable ASCII characters.
    TransactionId,
    |byte| (0x20..=0x7e).contains(&byte)
);
text_id!(
    /// The name under which a participant joins. 1 to 128 printable ASCII characters, no space, no `/`.
    Name,
    |byte| (0x21..=0x7e).contains(&byte) && byte != b'/'
);

impl Name {
    /// Sorts before every name that can be made: where a range over all names begins.
    pub(crate) fn lowest() -> Self {
        Self(Arc::from(""))
    }
}
