//! Page tokens: opaque to callers, one short text each.

use covenant_rules::{Name, Xid};

use crate::input::Refused;
use crate::listing::{Cursor, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE};

/// 0 asks for the default; more than the bound gets the bound (AIP-158).
pub(super) fn size(asked: u32) -> usize {
    match usize::try_from(asked).unwrap_or(usize::MAX) {
        0 => DEFAULT_PAGE_SIZE,
        asked => asked.min(MAX_PAGE_SIZE),
    }
}

pub(super) fn encode(cursor: Cursor) -> String {
    match cursor {
        Cursor::Running(after) => format!("r{}", after.map_or_else(String::new, hex)),
        Cursor::Open(after) => format!("o{}", after.map_or_else(String::new, hex)),
        Cursor::Archived(below) => format!("a{below}"),
    }
}

pub(super) fn decode(token: &str) -> Result<Cursor, Refused> {
    let bad = || Refused::BadPageToken;
    let Some(kind) = token.chars().next() else {
        return Ok(Cursor::Running(None));
    };
    let rest = token.get(kind.len_utf8()..).ok_or_else(bad)?;
    match kind {
        'r' => Ok(Cursor::Running(unhex(rest)?)),
        'o' => Ok(Cursor::Open(unhex(rest)?)),
        'a' => rest.parse().map(Cursor::Archived).map_err(|_| bad()),
        _ => Err(bad()),
    }
}

pub(super) fn decode_name(token: &str) -> Result<Option<Name>, Refused> {
    if token.is_empty() {
        return Ok(None);
    }
    Name::new(token).map(Some).map_err(|_| Refused::BadPageToken)
}

fn hex(xid: Xid) -> String {
    xid.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Result<Option<Xid>, Refused> {
    if text.is_empty() {
        return Ok(None);
    }
    let mut bytes = [0; 40];
    if text.len() != 2 * bytes.len() || !text.is_ascii() {
        return Err(Refused::BadPageToken);
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| Refused::BadPageToken)?;
    }
    Ok(Some(Xid::from_bytes(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use covenant_rules::{Incarnation, Lineage};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_cursor_comes_back(kind in 0..3, lineage: u128, counter: u64, bits: u64, seq: u64, below: u64) {
            let xid = Xid { lineage: Lineage(lineage), incarnation: Incarnation { counter, bits }, seq };
            let cursor = match kind {
                0 => Cursor::Running(Some(xid)),
                1 => Cursor::Open(Some(xid)),
                _ => Cursor::Archived(below),
            };
            let token = encode(cursor);
            prop_assert_eq!(decode(&token).unwrap(), cursor);
            prop_assert!(token.len() <= 256);
        }

        #[test]
        fn a_token_of_nonsense_is_refused_or_is_a_cursor(token in "[roax]?[0-9a-f]{0,90}|.{0,300}") {
            if let Ok(cursor) = decode(&token) {
                prop_assert_eq!(decode(&encode(cursor)).unwrap(), cursor);
            }
            if let Ok(Some(name)) = decode_name(&token) {
                prop_assert_eq!(name.as_str(), token);
            }
        }

        #[test]
        fn a_filter_or_a_size_of_nonsense_is_refused_or_bounded(given: i32, asked: u32) {
            let known = covenant_proto::v1::StateFilter::try_from(given).is_ok();
            prop_assert_eq!(super::super::convert::filter(given).is_ok(), known);
            prop_assert!((1..=MAX_PAGE_SIZE).contains(&size(asked)));
        }
    }

    #[test]
    fn a_token_gives_its_cursor_again() {
        let xid = Xid {
            lineage: Lineage(3),
            incarnation: Incarnation { counter: 1, bits: 9 },
            seq: 77,
        };
        for cursor in [
            Cursor::Running(None),
            Cursor::Running(Some(xid)),
            Cursor::Open(Some(xid)),
            Cursor::Archived(12_345),
        ] {
            assert_eq!(decode(&encode(cursor)).unwrap(), cursor);
        }
        assert_eq!(decode("").unwrap(), Cursor::Running(None));
    }

    #[test]
    fn foreign_tokens_are_refused() {
        for token in [
            "x",
            "a",
            "a-1",
            "r12",
            "é",
            "rzz",
            &format!("r{}", "é".repeat(40)),
        ] {
            assert!(matches!(decode(token), Err(Refused::BadPageToken)), "{token}");
        }
    }
}
