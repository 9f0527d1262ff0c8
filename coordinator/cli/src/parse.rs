//! What people write on a command line, read into plain values, and values written back so that a shell reads the same.

use std::time::Duration;

use covenant_client::UnixMillis;
use covenant_rules::{Name, TransactionId};
use jiff::{SignedDuration, Timestamp};

/// An account at a participant: `PARTICIPANT/ACCOUNT`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AccountPath {
    /// The name under which the ledger joined.
    pub(crate) participant: String,
    /// The account there; only the ledger knows whether it is a good one.
    pub(crate) account: String,
}

impl std::fmt::Display for AccountPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.participant, self.account)
    }
}

/// Reads `ledger-a/alice`.
pub(crate) fn account_path(text: &str) -> Result<AccountPath, String> {
    let (participant, account) = text
        .split_once('/')
        .ok_or("give PARTICIPANT/ACCOUNT, for example ledger-a/alice")?;
    Name::new(participant).map_err(|why| format!("the participant '{participant}': {why}"))?;
    if account.is_empty() {
        return Err("the account is empty; give PARTICIPANT/ACCOUNT, for example ledger-a/alice".to_owned());
    }
    Ok(AccountPath {
        participant: participant.to_owned(),
        account: account.to_owned(),
    })
}

/// Reads a transaction id.
pub(crate) fn transaction_id(text: &str) -> Result<String, String> {
    TransactionId::new(text)
        .map(|id| id.as_str().to_owned())
        .map_err(|why| why.to_string())
}

/// Reads an amount of money: a whole number of minor units above 0.
pub(crate) fn amount(text: &str) -> Result<i64, String> {
    let way = format!(
        "an amount is a whole number of minor units, 1 to {}: 1.50 THB is 150",
        i64::MAX
    );
    text.parse().ok().filter(|amount| *amount > 0).ok_or(way)
}

/// Reads `5s`, `500ms`, `1m 30s`; above 0.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let signed: SignedDuration = text
        .parse()
        .map_err(|_| "give a duration with its unit, for example 5s or 500ms".to_owned())?;
    match Duration::try_from(signed) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        Ok(_) | Err(_) => Err("it must be above 0".to_owned()),
    }
}

/// Reads an RFC 3339 time; parts finer than a millisecond are cut.
pub(crate) fn time(text: &str) -> Result<UnixMillis, String> {
    let why = "give an RFC 3339 time from 1970 on, for example 2026-11-30T12:00:00.000Z";
    let timestamp: Timestamp = text.parse().map_err(|_| why.to_owned())?;
    UnixMillis::try_from(timestamp.as_millisecond()).map_err(|_| why.to_owned())
}

/// Writes a time as [`time`] reads it, always with milliseconds.
pub(crate) fn time_text(millis: UnixMillis) -> String {
    let timestamp = i64::try_from(millis)
        .ok()
        .and_then(|millis| Timestamp::from_millisecond(millis).ok());
    timestamp.map_or_else(|| format!("{millis} ms"), |timestamp| format!("{timestamp:.3}"))
}

/// Writes a duration as [`duration`] reads it, in the largest unit that it is a whole number of.
pub(crate) fn duration_text(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    match (nanos % 1_000_000_000, nanos % 1_000_000) {
        (0, _) => format!("{}s", nanos / 1_000_000_000),
        (_, 0) => format!("{}ms", nanos / 1_000_000),
        _ => format!("{nanos}ns"),
    }
}

/// Writes an option with its value, so that a value that begins with a dash is not read as an option.
pub(crate) fn option(name: &str, value: &str) -> String {
    let separator = if value.starts_with('-') { '=' } else { ' ' };
    format!("{name}{separator}{}", quoted(value))
}

/// Quotes a word for a POSIX shell if it needs that.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_path_is_cut_at_the_first_slash() {
        let path = account_path("ledger-a/alice").unwrap();
        assert_eq!(
            (path.participant.as_str(), path.account.as_str()),
            ("ledger-a", "alice")
        );
        assert_eq!(account_path("a/b/c").unwrap().account, "b/c");
        for bad in ["alice", "/alice", "ledger-a/", "", "led ger/alice"] {
            assert!(account_path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_need_a_unit_and_are_above_0() {
        assert_eq!(duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        for bad in ["", "5", "0s", "-1s", "five"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_amount_is_a_whole_number_above_0_and_the_refusal_says_the_bound_and_the_way_out() {
        assert_eq!(
            (amount("1"), amount("9223372036854775807")),
            (Ok(1), Ok(i64::MAX))
        );
        for bad in ["0", "-5", "1.50", "", "1e3", "ten", "9223372036854775808"] {
            let why = amount(bad).unwrap_err();
            assert!(
                why.contains("1 to 9223372036854775807") && why.contains("minor units"),
                "{bad}: {why}"
            );
        }
    }

    #[test]
    fn a_duration_that_is_written_is_read_as_the_same() {
        for (span, text) in [
            (Duration::from_secs(90), "90s"),
            (Duration::from_millis(1_500), "1500ms"),
            (Duration::from_micros(1_500), "1500000ns"),
        ] {
            assert_eq!(duration_text(span), text);
            assert_eq!(duration(text), Ok(span));
        }
    }

    #[test]
    fn a_value_that_begins_with_a_dash_is_no_option() {
        assert_eq!(option("--from", "a/x y"), "--from 'a/x y'");
        assert_eq!(option("--from", "-a/x"), "--from=-a/x");
    }

    #[test]
    fn times_are_rfc_3339_with_milliseconds() {
        let text = "2026-11-30T22:31:34.120Z";
        let millis = time(text).unwrap();
        assert_eq!(time_text(millis), text);
        assert_eq!(time("2026-11-30T23:31:34.1209+01:00"), Ok(millis));
        assert_eq!(time_text(0), "1970-01-01T00:00:00.000Z");
        for bad in ["", "yesterday", "2026-11-30", "1969-12-31T23:59:59Z"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_are_bounded_with_the_bound_named() {
        assert_eq!(transaction_id("T 100"), Ok("T 100".to_owned()));
        assert!(transaction_id(&"x".repeat(129)).unwrap_err().contains("128"));
        assert!(transaction_id("é").is_err() && transaction_id("").is_err());
    }

    #[test]
    fn quoted_words_survive_a_shell() {
        assert_eq!(quoted("T100"), "T100");
        assert_eq!(quoted("2026-11-30T22:31:34.120Z"), "2026-11-30T22:31:34.120Z");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("$(x)"), "'$(x)'");
        assert_eq!(quoted(""), "''");
    }
}
