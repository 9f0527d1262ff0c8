//! Callers with business ids: they ask, wait, and ask again with the same id until they know.

use covenant_rules::OutcomeKind;
use covenant_rules::coordinator::{Execute, Refusal, Reply};

use crate::calls::{Ask, Transaction};
use crate::node::Micros;
use crate::world::{Answer, Happening, World};

/// How often a caller asks before it waits for the faults to end.
const MAX_TRIES: u32 = 8;
/// How long a caller waits for an answer before it asks again.
const PATIENCE_US: Micros = 7_000_000;

/// One caller and its one transaction.
#[derive(Clone, Debug)]
pub struct Caller {
    /// What it wants.
    pub transaction: Transaction,
    /// It asks once to abort it, so long after it asked for it.
    pub aborts_after: Option<Micros>,
    /// It asks once with other content under the same id.
    pub other: Option<Execute>,
    /// Its first call gets lost, or it gives up waiting so soon and asks again.
    pub impatient_us: Option<Micros>,
    /// The final answer.
    pub told: Option<OutcomeKind>,
    /// An answer came after the faults had ended.
    pub heard_healed: bool,
    /// Calls made.
    pub tries: u32,
    /// A call is under way.
    pub(crate) waits: bool,
}

impl Caller {
    /// A caller that has not asked yet.
    #[must_use]
    pub fn new(transaction: Transaction) -> Self {
        Self {
            transaction,
            aborts_after: None,
            other: None,
            impatient_us: None,
            told: None,
            heard_healed: false,
            tries: 0,
            waits: false,
        }
    }

    /// Whether it knows the outcome for good.
    #[must_use]
    pub fn knows(&self) -> bool {
        self.told.is_some()
    }
}

impl World {
    /// The callers of the workload.
    #[must_use]
    pub fn callers(&self) -> &[Caller] {
        &self.callers
    }

    /// Adds a caller that asks first at this time.
    pub fn add_caller(&mut self, caller: Caller, at: Micros) {
        self.callers.push(caller);
        let number = self.callers.len() - 1;
        self.at(at, Happening::CallerActs(number));
    }

    pub(crate) fn caller_acts(&mut self, number: usize) {
        let healed = self.healed;
        let Some(caller) = self.callers.get_mut(number) else {
            return;
        };
        let done = if healed {
            caller.heard_healed
        } else {
            caller.knows() || caller.tries >= MAX_TRIES
        };
        if done {
            return;
        }
        caller.tries += 1;
        caller.waits = true;
        let (transaction, tries) = (caller.transaction.clone(), caller.tries);
        let patience = caller.impatient_us.take().unwrap_or(PATIENCE_US);
        let (aborts, other) = (caller.aborts_after.take(), caller.other.take());
        let (id, created) = (transaction.transaction_id.clone(), transaction.created);
        if let Some(other) = other {
            self.ask_as(None, Ask::Execute(other));
        }
        let ask = if tries > 1 && tries % 3 == 0 {
            Ask::Get(id.clone(), Some(created))
        } else {
            Ask::Execute(transaction.execute())
        };
        self.ask_as(Some(number), ask);
        if let Some(after) = aborts {
            self.after(after, Happening::CallerAborts(number));
        }
        self.after(patience, Happening::CallerImpatient(number, tries));
    }

    pub(crate) fn caller_impatient(&mut self, number: usize, tries: u32) {
        let waits = self
            .callers
            .get(number)
            .is_some_and(|caller| caller.waits && caller.tries == tries);
        if waits {
            self.caller_acts(number);
        }
    }

    pub(crate) fn caller_aborts(&mut self, number: usize) {
        let transaction = &self.callers[number].transaction;
        let ask = Ask::Abort(transaction.transaction_id.clone(), Some(transaction.created));
        self.ask_as(Some(number), ask);
    }

    pub(crate) fn caller_hears(&mut self, number: usize, answer: Answer) {
        let healed = self.healed;
        let pause = self.between((5_000, 400_000));
        let Some(caller) = self.callers.get_mut(number) else {
            return;
        };
        caller.waits = false;
        let again = match answer {
            Answer::Said(Reply::Transaction(view)) => match view.outcome {
                OutcomeKind::Committed | OutcomeKind::Aborted | OutcomeKind::Expired => {
                    caller.told.get_or_insert(view.outcome);
                    caller.heard_healed |= healed;
                    false
                }
                OutcomeKind::Unknown => {
                    caller.heard_healed |= healed;
                    !healed
                }
                OutcomeKind::InProgress | OutcomeKind::NotFound => true,
            },
            Answer::Said(Reply::Refused(Refusal::OtherContent)) => true,
            Answer::Said(Reply::Refused(_)) | Answer::Broken => true,
            Answer::Said(Reply::Forgotten) => false,
        };
        if again {
            self.after(pause, Happening::CallerActs(number));
        }
    }
}
