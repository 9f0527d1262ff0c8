//! What an outcome that is not final means, in words, and which commands are safe to run next as they stand.
//!
//! A command is proposed only if it can bring more than the last one did: nothing is sent again to an address that is no
//! coordinator, and nobody is asked again who said that he can never know.

use covenant_client::{Outcome, UnixMillis, Unknown, View, Why, from_timestamp};

use crate::args::EndpointArgs;
use crate::parse::{quoted, time_text};
use crate::server_kind::ServerKind;

/// Where to look when the coordinator cannot know any more.
const LOOK_IN_ENTRIES: &str = "Asking or sending again says the same, unless --created was wrong. Safe now: look for the id in the accounts' entries \
    (covenant entries --ledger URL --account ACCOUNT); if it stands there, it was committed. Do not take another id for \
    the same business before.";

/// What the caller knows of the transaction by itself.
pub(super) struct Known<'a> {
    pub(super) id: &'a str,
    pub(super) created: Option<UnixMillis>,
    pub(super) endpoint: &'a EndpointArgs,
    /// The command that sends the same again, of a caller that sends.
    pub(super) again: Option<&'a str>,
}

/// Lines for stderr, and commands, the safest first.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Advice {
    pub(super) lines: Vec<String>,
    pub(super) next: Vec<String>,
}

impl Advice {
    /// `elsewhere` is who answers at the address, if that is no coordinator.
    pub(super) fn of(outcome: &Outcome, known: &Known<'_>, elsewhere: Option<ServerKind>) -> Self {
        let id = quoted(known.id);
        match outcome {
            Outcome::Committed(_) | Outcome::Aborted(_) => Self::default(),
            Outcome::InProgress(_) => Self {
                lines: vec![format!("covenant: transaction {id} is not decided yet")],
                next: known.get_and_again(),
            },
            Outcome::NotFound(view) => Self {
                lines: vec![known.not_found(view)],
                next: Vec::new(),
            },
            Outcome::Expired(view) => Self {
                lines: vec![
                    format!(
                        "covenant: transaction {id} is EXPIRED: {}",
                        known.before_memory(view)
                    ),
                    LOOK_IN_ENTRIES.to_owned(),
                ],
                next: Vec::new(),
            },
            Outcome::Unknown(unknown) => known.unknown(unknown, elsewhere),
        }
    }
}

impl Known<'_> {
    fn get(&self) -> String {
        tx_command("get", self.id, self.created, self.endpoint)
    }

    fn get_and_again(&self) -> Vec<String> {
        let again = self.again.map(ToOwned::to_owned);
        [self.get()].into_iter().chain(again).collect()
    }

    fn unknown(&self, unknown: &Unknown, elsewhere: Option<ServerKind>) -> Advice {
        let id = quoted(self.id);
        let head = format!("covenant: the outcome of {id} is UNKNOWN:");
        if let Some(kind) = elsewhere {
            let coordinator = EndpointArgs {
                endpoint: "http://HOST:PORT".to_owned(),
            };
            let command = tx_command("get", self.id, self.created, &coordinator);
            let endpoint = &self.endpoint.endpoint;
            return Advice {
                lines: vec![
                    format!(
                        "{head} {endpoint} is the wrong address: {kind}. Only a coordinator may say what was run."
                    ),
                    format!("Safe now: ask at the coordinator's address: {command}"),
                ],
                next: Vec::new(),
            };
        }
        let forgotten = unknown.known.as_ref().filter(|view| self.is_before_memory(view));
        if let (Why::Said, Some(view)) = (&unknown.why, forgotten) {
            return Advice {
                lines: vec![
                    format!("{head} {}", self.before_memory(view)),
                    LOOK_IN_ENTRIES.to_owned(),
                ],
                next: Vec::new(),
            };
        }
        let next = match unknown.why {
            Why::Said => vec![self.get()],
            Why::Unanswered { .. } | Why::RefusedLater(_) | Why::NotUnderstood => self.get_and_again(),
        };
        let safe = unknown.safe_next_step();
        let lines = vec![
            format!("{head} {unknown}"),
            format!("It may have been committed or not. Safe now: {safe}."),
        ];
        Advice { lines, next }
    }

    fn is_before_memory(&self, view: &View) -> bool {
        let since = view.retained_since.as_ref().and_then(from_timestamp);
        matches!((self.created, since), (Some(created), Some(since)) if created < since)
    }

    fn before_memory(&self, view: &View) -> String {
        let created = self.created.map(time_text).unwrap_or_default();
        format!(
            "it was first sent {created}, and this coordinator remembers from {} on. It may have been committed or not; \
             this call ran nothing.",
            since(view)
        )
    }

    fn not_found(&self, view: &View) -> String {
        let (id, since) = (quoted(self.id), since(view));
        if self.created.is_none() {
            return format!(
                "covenant: transaction {id} has no record from {since} on. With --created, the time that the caller printed, more \
                 can be said."
            );
        }
        let abort = tx_command("abort", self.id, self.created, self.endpoint);
        format!(
            "covenant: transaction {id} is not committed as of now. A send that is still under way may yet commit it; this makes sure \
             that none does: {abort}"
        )
    }
}

fn since(view: &View) -> String {
    let since = view.retained_since.as_ref().and_then(from_timestamp);
    since.map_or_else(|| "an unknown time".to_owned(), time_text)
}

/// `covenant tx VERB` for an id; `get` asks for an outcome without any risk.
pub(crate) fn tx_command(
    verb: &str,
    id: &str,
    created: Option<UnixMillis>,
    endpoint: &EndpointArgs,
) -> String {
    let created = created
        .map(|created| format!(" --created {}", time_text(created)))
        .unwrap_or_default();
    // An id that begins with a dash would be read as an option.
    let dashes = if id.starts_with('-') { "-- " } else { "" };
    let endpoint = endpoint.to_option();
    format!("covenant tx {verb}{created}{endpoint} {dashes}{}", quoted(id))
}

#[cfg(test)]
mod tests;
