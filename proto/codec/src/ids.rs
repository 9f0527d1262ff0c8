//! Lineages, incarnations, attempts and floors between the rules and the wire.
//!
//! Each `x` gives the wire type and each `from_x` the plain one; none of them can fail, for every number is one.

use covenant_proto::v1;
use covenant_rules::{Floor, Incarnation, Lineage, Name, TransactionId, Xid};

use crate::Error;

/// The upper and lower 64 bits.
pub(crate) fn halves(value: u128) -> (u64, u64) {
    ((value >> 64) as u64, value as u64)
}

pub(crate) fn joined(high: u64, low: u64) -> u128 {
    (u128::from(high) << 64) | u128::from(low)
}

/// A lineage for the wire.
#[must_use]
pub fn lineage(lineage: Lineage) -> v1::Lineage {
    let (high, low) = halves(lineage.0);
    v1::Lineage { high, low }
}

/// A lineage from the wire.
#[must_use]
pub fn from_lineage(lineage: v1::Lineage) -> Lineage {
    Lineage(joined(lineage.high, lineage.low))
}

/// An incarnation for the wire.
#[must_use]
pub fn incarnation(incarnation: Incarnation) -> v1::Incarnation {
    v1::Incarnation {
        counter: incarnation.counter,
        bits: incarnation.bits,
    }
}

/// An incarnation from the wire.
#[must_use]
pub fn from_incarnation(incarnation: v1::Incarnation) -> Incarnation {
    Incarnation {
        counter: incarnation.counter,
        bits: incarnation.bits,
    }
}

/// An attempt for the wire.
#[must_use]
pub fn xid(xid: Xid) -> v1::Xid {
    let (lineage_high, lineage_low) = halves(xid.lineage.0);
    let Incarnation { counter, bits } = xid.incarnation;
    v1::Xid {
        lineage_high,
        lineage_low,
        counter,
        bits,
        seq: xid.seq,
    }
}

/// An attempt from the wire.
#[must_use]
pub fn from_xid(xid: v1::Xid) -> Xid {
    Xid {
        lineage: Lineage(joined(xid.lineage_high, xid.lineage_low)),
        incarnation: Incarnation {
            counter: xid.counter,
            bits: xid.bits,
        },
        seq: xid.seq,
    }
}

/// A participant floor for the wire (section 6).
#[must_use]
pub fn floor(floor: Floor) -> v1::Floor {
    v1::Floor {
        counter: floor.counter,
        seq: floor.seq,
    }
}

/// A participant floor from the wire (section 6).
#[must_use]
pub fn from_floor(floor: v1::Floor) -> Floor {
    Floor {
        counter: floor.counter,
        seq: floor.seq,
    }
}

pub(crate) fn name(field: &'static str, text: &str) -> Result<Name, Error> {
    Name::new(text).map_err(|source| Error::Id { field, source })
}

pub(crate) fn transaction_id(field: &'static str, text: &str) -> Result<TransactionId, Error> {
    TransactionId::new(text).map_err(|source| Error::Id { field, source })
}
