//! Calls of callers and operators on their way to the coordinator, and the answers on their way back.

use std::sync::Arc;

use covenant_fault::CrashPoint;
use covenant_ledger::{AccountName, Assertion, Currency, Direction, Leg, Operation, encode};
use covenant_rules::coordinator::{Event, Execute, RequestId};
use covenant_rules::{AbortReason, Name, TransactionId, UnixMillis, Wait, Xid};

use crate::node::{Micros, Node, name_of};
use crate::seen::Seen;
use crate::world::{Answer, Happening, World};

/// What a caller or an operator asks of the coordinator.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Execute.
    Execute(Execute),
    /// GetTransaction.
    Get(TransactionId, Option<UnixMillis>),
    /// AbortTransaction.
    Abort(TransactionId, Option<UnixMillis>),
    /// An operator's FORGET.
    Forget(Xid, Name),
}

/// What one branch does at its participant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Does {
    /// Adds so much to the account with this number; negative: takes. Other than 0.
    Moves(usize, i64),
    /// Looks whether the account has at least so much: changes nothing.
    Looks(usize, i64),
    /// Takes so much, at least 1, from the first account and adds it to the second one.
    Shifts(usize, usize, i64),
}

/// A transaction as callers ask for it.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// The caller's id.
    pub transaction_id: TransactionId,
    /// The caller's first time for it.
    pub created: UnixMillis,
    /// A participant's number, and what its branch does; sorted, each once.
    pub branches: Vec<(usize, Does)>,
    /// The deadline.
    pub timeout_ms: u64,
    /// When to answer.
    pub wait: Wait,
}

impl Transaction {
    /// The call that runs it.
    #[must_use]
    pub fn execute(&self) -> Execute {
        let branch = |(who, does): &(usize, Does)| (name_of(*who), operation(*does));
        let branches: Vec<(Name, Arc<[u8]>)> = self.branches.iter().map(branch).collect();
        let listed = branches.iter().map(|(name, operation)| (name, &**operation));
        Execute {
            transaction_id: self.transaction_id.clone(),
            created: self.created,
            fingerprint: covenant_codec::fingerprint(listed),
            branches,
            timeout_ms: self.timeout_ms,
            wait: self.wait,
        }
    }
}

/// The ledger's operation of one branch.
fn operation(does: Does) -> Arc<[u8]> {
    let mut operation = Operation::default();
    match does {
        Does::Moves(account, amount) => operation.legs.push(leg(account, amount)),
        Does::Shifts(from, to, amount) => {
            operation.legs.push(leg(from, -amount));
            operation.legs.push(leg(to, amount));
        }
        Does::Looks(account, at_least) => operation.assertions.push(Assertion {
            account: account_of(account),
            at_least,
            currency: currency(),
        }),
    }
    encode(&operation).into()
}

fn leg(account: usize, amount: i64) -> Leg {
    Leg {
        account: account_of(account),
        direction: if amount < 0 {
            Direction::Debit
        } else {
            Direction::Credit
        },
        amount: amount.abs(),
        currency: currency(),
    }
}

fn account_of(number: usize) -> AccountName {
    match AccountName::new(&format!("a{number}")) {
        Ok(name) => name,
        Err(error) => unreachable!("a and a number is an account: {error}"),
    }
}

fn currency() -> Currency {
    match "THB".parse() {
        Ok(currency) => currency,
        Err(error) => unreachable!("THB is a currency: {error}"),
    }
}

/// What becomes of a call that a script makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It arrives, and so does the answer.
    Arrives,
    /// It is lost.
    Lost,
    /// It is so many milliseconds longer under way.
    Late(u64),
    /// The answer is lost.
    AnswerLost,
    /// The answer is so many milliseconds longer under way, also when the coordinator dies meanwhile.
    AnswerLate(u64),
}

/// Who makes the calls of scripts, as the trace writes it.
const CALLER: &str = "k";

/// A call under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Under {
    /// The caller of the workload that made it.
    pub(crate) caller: Option<usize>,
    /// It is an operator's.
    operator: bool,
    /// It has reached the coordinator.
    pub(crate) arrived: bool,
    /// What becomes of it, if a script shows that.
    fate: Option<Fate>,
    /// The answer is on its way, whatever becomes of the coordinator.
    answered: bool,
}

impl World {
    /// Sends a call; its answer comes under this number.
    pub fn ask(&mut self, ask: Ask) -> RequestId {
        self.ask_as(None, ask)
    }

    pub(crate) fn ask_as(&mut self, caller: Option<usize>, ask: Ask) -> RequestId {
        let delay = self.between(self.setup.timing.network_us);
        let request = self.under_way(caller, &ask, None);
        self.after(delay, Happening::Asks(request, ask));
        request
    }

    fn under_way(&mut self, caller: Option<usize>, ask: &Ask, fate: Option<Fate>) -> RequestId {
        let request = self.next_request;
        self.next_request += 1;
        let under = Under {
            caller,
            operator: matches!(ask, Ask::Forget(..)),
            arrived: false,
            fate,
            answered: false,
        };
        self.calls.insert(request, under);
        request
    }

    /// Sends a call of which this becomes, and shows the caller's side of it in the trace.
    pub fn call(&mut self, ask: Ask, fate: Fate) -> RequestId {
        let request = self.under_way(None, &ask, Some(fate));
        self.trace.line(CALLER, &|| {
            format!("-> c   {}", crate::show::ask(&ask, &self.history))
        });
        let delay = self.between(self.setup.timing.network_us);
        match fate {
            Fate::Lost => self.after(delay, Happening::Answers(request, Answer::Broken)),
            Fate::Late(ms) => self.after(delay + ms * 1_000, Happening::Asks(request, ask)),
            Fate::Arrives | Fate::AnswerLost | Fate::AnswerLate(_) => {
                self.after(delay, Happening::Asks(request, ask));
            }
        }
        request
    }

    /// Who waits for the answer, as the trace writes it.
    pub(crate) fn whom(&self, request: RequestId) -> &'static str {
        match self.calls.get(&request) {
            Some(under) if under.operator => "the operator",
            Some(_) | None => "a caller",
        }
    }

    /// How much longer an answer takes than its way; the coordinator has sent it.
    pub(crate) fn answer_delay(&mut self, request: RequestId) -> Micros {
        let Some(under) = self.calls.get_mut(&request) else {
            return 0;
        };
        let Some(Fate::AnswerLate(ms)) = under.fate else {
            return 0;
        };
        under.answered = true;
        ms * 1_000
    }

    /// What a caller whose call a script shows gets.
    fn shown_answer(&mut self, fate: Fate, answer: Answer) -> Answer {
        let answer = match fate {
            Fate::Lost | Fate::AnswerLost => Answer::Broken,
            Fate::Arrives | Fate::Late(_) | Fate::AnswerLate(_) => answer,
        };
        self.trace.line(CALLER, &|| match &answer {
            Answer::Said(reply) => format!("<- c   {}", crate::show::reply(reply)),
            Answer::Broken => match fate {
                Fate::Lost => "hears nothing: its call is lost".to_owned(),
                Fate::AnswerLost => "hears nothing: the answer is lost".to_owned(),
                Fate::Arrives | Fate::Late(_) | Fate::AnswerLate(_) => "hears nothing".to_owned(),
            },
        });
        answer
    }

    /// The answer to a call, if it has come.
    #[must_use]
    pub fn answer(&self, request: RequestId) -> Option<&Answer> {
        self.answers.get(&request)
    }

    pub(crate) fn ask_arrives(&mut self, request: RequestId, ask: Ask) {
        let Some(under) = self.calls.get_mut(&request) else {
            return;
        };
        under.arrived = true;
        let Some(process) = &self.coordinator.process else {
            let delay = self.between(self.setup.timing.network_us);
            self.after(delay, Happening::Answers(request, Answer::Broken));
            return;
        };
        let archive = &process.archive;
        let event = match ask {
            Ask::Execute(execute) => {
                let id = execute.transaction_id.clone();
                self.trace
                    .line(Node::Coordinator, &|| format!("is asked to run {id}"));
                if self.reach(Node::Coordinator, CrashPoint::CExecuteReceived, Some(&id)) {
                    return;
                }
                let timeout_us = execute.timeout_ms * 1_000;
                self.see(&Seen::Asked(&id, timeout_us));
                let known = self
                    .coordinator
                    .process
                    .as_ref()
                    .and_then(|p| p.archive.by_id(&id));
                Event::Execute {
                    request,
                    execute,
                    known,
                }
            }
            Ask::Get(transaction_id, created) => {
                let known = archive.by_id(&transaction_id);
                self.trace.line(Node::Coordinator, &|| {
                    format!("is asked what became of {transaction_id}")
                });
                Event::Get {
                    request,
                    known,
                    transaction_id,
                    created,
                }
            }
            Ask::Abort(transaction_id, created) => {
                let known = archive.by_id(&transaction_id);
                self.trace.line(Node::Coordinator, &|| {
                    format!("is asked to abort {transaction_id}")
                });
                self.see(&Seen::AbortAsked(&transaction_id));
                Event::Abort {
                    request,
                    transaction_id,
                    created,
                    by: AbortReason::Caller,
                    known,
                }
            }
            Ask::Forget(xid, participant) => {
                self.trace.line(Node::Coordinator, &|| {
                    format!("an operator lets {participant} be forgotten")
                });
                Event::Forget {
                    request,
                    xid,
                    participant,
                    by: crate::faults::operator(),
                }
            }
        };
        self.coordinator_step(event);
    }

    pub(crate) fn answer_arrives(&mut self, request: RequestId, answer: Answer) {
        let Some(under) = self.calls.remove(&request) else {
            return;
        };
        let answer = match under.fate {
            Some(fate) => self.shown_answer(fate, answer),
            None => answer,
        };
        match under.caller {
            Some(caller) => self.caller_hears(caller, answer),
            None => {
                self.answers.insert(request, answer);
            }
        }
    }

    /// The coordinator's process is gone: whoever was attached hears that the connection broke.
    pub(crate) fn break_calls(&mut self) {
        let broken: Vec<RequestId> = self
            .calls
            .iter()
            .filter(|(_, u)| u.arrived && !u.answered)
            .map(|(r, _)| *r)
            .collect();
        for request in broken {
            let whom = self.whom(request);
            self.trace
                .line(Node::Coordinator, &|| format!("leaves {whom} without an answer"));
            let delay = self.between(self.setup.timing.network_us);
            self.after(delay, Happening::Answers(request, Answer::Broken));
        }
    }
}
