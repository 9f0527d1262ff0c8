//! What may be said of a transaction. UNKNOWN is a value of its own, so that nobody can take it for a failure.

use std::fmt;

use covenant_proto::v1;
use tonic::Status;

use crate::error::{describe, is_wrong_server};
use crate::{Refusal, View};

/// What a caller is told (section 1, "outcome"). COMMITTED and ABORTED are final.
#[derive(Debug)]
pub enum Outcome {
    /// Final: COMMIT is durable.
    Committed(Box<View>),
    /// Final: ABORT is durable; the view has the reason.
    Aborted(Box<View>),
    /// Not decided, or the decision is not durable yet.
    InProgress(Box<View>),
    /// Nobody may say yet. Neither success nor failure.
    Unknown(Box<Unknown>),
    /// Not committed there as of now; the view says since when the coordinator would know.
    NotFound(Box<View>),
    /// Older than what the coordinator retains: it may have been either.
    Expired(Box<View>),
}

impl Outcome {
    /// The word of section 1, in upper case.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Committed(_) => "COMMITTED",
            Self::Aborted(_) => "ABORTED",
            Self::InProgress(_) => "IN_PROGRESS",
            Self::Unknown(_) => "UNKNOWN",
            Self::NotFound(_) => "NOT_FOUND",
            Self::Expired(_) => "EXPIRED",
        }
    }

    /// Whether no later answer for this id can differ, until it is EXPIRED.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Committed(_) | Self::Aborted(_))
    }

    /// What the coordinator said of the transaction, if it said anything.
    #[must_use]
    pub fn view(&self) -> Option<&View> {
        match self {
            Self::Committed(view)
            | Self::Aborted(view)
            | Self::InProgress(view)
            | Self::NotFound(view)
            | Self::Expired(view) => Some(view),
            Self::Unknown(unknown) => unknown.known.as_ref(),
        }
    }

    /// Reads an answer. An answer that says no outcome, or one that this client does not know, is UNKNOWN.
    pub(crate) fn from_answer(view: Option<View>) -> Self {
        let Some(view) = view else {
            return Self::unknown(Why::NotUnderstood, None);
        };
        let boxed = |view| Box::new(view);
        match v1::Outcome::try_from(view.outcome) {
            Ok(v1::Outcome::Committed) => Self::Committed(boxed(view)),
            Ok(v1::Outcome::Aborted) => Self::Aborted(boxed(view)),
            Ok(v1::Outcome::InProgress) => Self::InProgress(boxed(view)),
            Ok(v1::Outcome::NotFound) => Self::NotFound(boxed(view)),
            Ok(v1::Outcome::Expired) => Self::Expired(boxed(view)),
            Ok(v1::Outcome::Unknown) => Self::unknown(Why::Said, Some(view)),
            Ok(v1::Outcome::Unspecified) | Err(_) => Self::unknown(Why::NotUnderstood, Some(view)),
        }
    }

    pub(crate) fn unknown(why: Why, known: Option<View>) -> Self {
        Self::Unknown(Box::new(Unknown { why, known }))
    }
}

/// Why nobody may say, and what is known all the same.
#[derive(Debug)]
pub struct Unknown {
    /// Why.
    pub why: Why,
    /// What the coordinator said, if it answered.
    pub known: Option<View>,
}

/// Why an outcome is UNKNOWN.
#[derive(Debug)]
pub enum Why {
    /// The coordinator itself says UNKNOWN: its memory of this id is damaged or too young (R3, R4), or another attempt
    /// of the id took effect at a participant (C8).
    Said,
    /// A send may have arrived and got no answer.
    Unanswered {
        /// How many sends went out, those to a coordinator that was away included.
        sends: u32,
        /// What the last one met.
        last: Box<Status>,
    },
    /// A send may have arrived and got no answer; a later one was refused. That says nothing of the earlier one.
    RefusedLater(Refusal),
    /// The answer says no outcome, or one that this client does not know.
    NotUnderstood,
}

impl Unknown {
    /// Whether the last send met a server that does not have the call: the address is another kind of server's. It is
    /// UNKNOWN all the same, because only an answer of Covenant's says that nothing was run (section 7).
    #[must_use]
    pub fn is_wrong_server(&self) -> bool {
        matches!(&self.why, Why::Unanswered { last, .. } if is_wrong_server(last))
    }

    /// What the caller can do without any risk of running the transaction twice.
    #[must_use]
    pub fn safe_next_step(&self) -> &'static str {
        match self.why {
            Why::Said => {
                "ask again for the outcome of the same id; if it stays UNKNOWN, ask the coordinator's operator and look \
                 for the id in the participants' entries. Do not take another id for the same business"
            }
            Why::Unanswered { .. } | Why::RefusedLater(_) | Why::NotUnderstood => {
                "ask for the outcome of the same id, or send the same id again with the same created and the same \
                 branches. Do not take another id for the same business"
            }
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::Said => match self.known.as_ref().and_then(|view| view.reason.as_ref()) {
                Some(reason) => write!(
                    f,
                    "the coordinator says UNKNOWN ({}: {})",
                    reason.code, reason.detail
                ),
                None => match self.known.as_ref().map(|view| view.detail.as_str()) {
                    Some(detail) if !detail.is_empty() => {
                        write!(f, "the coordinator says UNKNOWN: {detail}")
                    }
                    Some(_) | None => write!(f, "the coordinator says UNKNOWN"),
                },
            },
            Why::Unanswered { sends, last } => {
                write!(f, "no answer to {sends} send(s), the last met {}", describe(last))
            }
            Why::RefusedLater(refusal) => {
                write!(
                    f,
                    "an earlier send got no answer, and a later one was refused ({refusal})"
                )
            }
            Why::NotUnderstood => write!(f, "the answer says no outcome that this client knows"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_says_why_the_coordinator_cannot_know() {
        let view = View {
            outcome: v1::Outcome::Unknown.into(),
            detail: "a record is damaged".to_owned(),
            ..View::default()
        };
        let Outcome::Unknown(unknown) = Outcome::from_answer(Some(view)) else {
            panic!("UNKNOWN is UNKNOWN");
        };
        assert!(
            unknown.to_string().ends_with(": a record is damaged"),
            "{unknown}"
        );
    }

    #[test]
    fn every_word_of_the_wire_has_its_own_value_and_nonsense_is_unknown() {
        let of = |outcome: i32| {
            let view = View {
                outcome,
                ..View::default()
            };
            Outcome::from_answer(Some(view)).word()
        };
        for (outcome, word) in [
            (v1::Outcome::Committed, "COMMITTED"),
            (v1::Outcome::Aborted, "ABORTED"),
            (v1::Outcome::InProgress, "IN_PROGRESS"),
            (v1::Outcome::Unknown, "UNKNOWN"),
            (v1::Outcome::NotFound, "NOT_FOUND"),
            (v1::Outcome::Expired, "EXPIRED"),
            (v1::Outcome::Unspecified, "UNKNOWN"),
        ] {
            assert_eq!(of(outcome.into()), word);
        }
        assert_eq!(of(77), "UNKNOWN");
        assert_eq!(Outcome::from_answer(None).word(), "UNKNOWN");
    }
}
