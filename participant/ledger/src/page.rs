//! Pages of lists: sizes and tokens, which come from outside and are checked.
//!
//! A token says where the next page begins and nothing else, so that it outlives a restart.

use std::fmt::Write as _;

use covenant_rules::Xid;

use crate::account::AccountName;
use crate::read::HoldPlace;

/// The items of a page whose size is not given.
pub(crate) const DEFAULT_PAGE_SIZE: usize = 100;
/// The most items of a page.
pub(crate) const MAX_PAGE_SIZE: usize = 1000;
/// The longest page token, in bytes.
pub(crate) const MAX_TOKEN_BYTES: usize = 256;

/// Why a page was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum PageError {
    #[error("page_size is {0}; the bound is {MAX_PAGE_SIZE}, and 0 stands for {DEFAULT_PAGE_SIZE}")]
    Size(u32),
    #[error("page_token {0:?} is none of this list; leave it empty for the first page")]
    Token(String),
    #[error("page_token has {0} bytes; the bound is {MAX_TOKEN_BYTES}; leave it empty for the first page")]
    TokenTooLong(usize),
}

/// How many items a page has at most.
pub(crate) fn size(asked: u32) -> Result<usize, PageError> {
    match usize::try_from(asked) {
        Ok(0) => Ok(DEFAULT_PAGE_SIZE),
        Ok(size) if size <= MAX_PAGE_SIZE => Ok(size),
        Ok(_) | Err(_) => Err(PageError::Size(asked)),
    }
}

/// Reads a token with `read`, unless it is empty.
pub(crate) fn place<T>(token: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, PageError> {
    if token.is_empty() {
        return Ok(None);
    }
    if token.len() > MAX_TOKEN_BYTES {
        return Err(PageError::TokenTooLong(token.len()));
    }
    read(token)
        .map(Some)
        .ok_or_else(|| PageError::Token(token.to_owned()))
}

/// Behind which account a page begins.
pub(crate) fn read_account(token: &str) -> Option<AccountName> {
    AccountName::any(token).ok()
}

/// At which entry a page begins.
pub(crate) fn read_entry(token: &str) -> Option<u64> {
    token.parse().ok()
}

/// Behind which hold a page begins: since, xid in hexadecimal, line.
pub(crate) fn read_hold(token: &str) -> Option<HoldPlace> {
    let mut parts = token.split('.');
    let (since, hex, line) = (parts.next()?, parts.next()?, parts.next()?);
    let mut bytes = [0; 40];
    if hex.len() != 2 * bytes.len() || parts.next().is_some() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(HoldPlace {
        since: since.parse().ok()?,
        xid: Xid::from_bytes(&bytes),
        line: line.parse().ok()?,
    })
}

/// The inverse of [`read_hold`].
pub(crate) fn write_hold(place: &HoldPlace) -> String {
    let mut token = format!("{}.", place.since);
    for byte in place.xid.to_bytes() {
        // Writing to a string does not fail.
        let _ = write!(token, "{byte:02x}");
    }
    let _ = write!(token, ".{}", place.line);
    token
}

#[cfg(test)]
mod tests {
    use covenant_rules::{Incarnation, Lineage};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_hold_token_comes_back(since: u64, lineage: u128, counter: u64, bits: u64, seq: u64, line: u32) {
            let xid = Xid { lineage: Lineage(lineage), incarnation: Incarnation { counter, bits }, seq };
            let place = HoldPlace { since, xid, line };
            let token = write_hold(&place);
            prop_assert!(token.len() <= MAX_TOKEN_BYTES);
            prop_assert_eq!(read_hold(&token), Some(place));
        }

        #[test]
        fn no_token_panics(token in ".{0,300}") {
            for read in [place(&token, read_hold).err(), place(&token, read_entry).err(), place(&token, read_account).err()] {
                prop_assert!(read.is_none_or(|error| !error.to_string().is_empty()));
            }
        }
    }

    #[test]
    fn a_page_size_is_bounded_and_has_a_default() {
        assert_eq!(size(0), Ok(DEFAULT_PAGE_SIZE));
        assert_eq!(size(1000), Ok(1000));
        assert_eq!(size(1001), Err(PageError::Size(1001)));
    }
}
