//! The names of participants and of callers' ids, by their numbers.

use covenant_rules::{Name, TransactionId};

const NAMES: [&str; 3] = ["a", "b", "c"];
const IDS: [&str; 2] = ["T1", "T2"];

/// The name of the participant at a place.
pub(crate) fn name_of(place: usize) -> Name {
    Name::new(NAMES[place]).expect("a name within bounds")
}

/// The place of a name.
pub(crate) fn place_of(name: &Name) -> usize {
    let at = NAMES.iter().position(|known| *known == name.as_str());
    at.expect("a name of this model")
}

/// A caller's id by its number.
pub(crate) fn transaction_id(id: u8) -> TransactionId {
    TransactionId::new(IDS[usize::from(id)]).expect("an id within bounds")
}

/// The number of a caller's id.
pub(crate) fn id_of(id: &TransactionId) -> u8 {
    u8::from(id.as_str() == IDS[1])
}
