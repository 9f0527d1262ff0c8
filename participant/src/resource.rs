//! The contract of a resource: what takes part in transactions, and keeps its own log.
//!
//! The SDK has no log. For a ledger on a journal that journal is the log; for a database its prepared
//! transactions are. So everything that section 2 of PROTOCOL.md asks a participant to make durable is asked of
//! the [`Resource`], and a call that completed *is* the durable event. The driver decides when to call; the
//! rules ([`covenant_rules::Participant`]) decide what.

use std::future::Future;

use covenant_rules::participant::{Branch, Recovered};
use covenant_rules::{Decision, Floor, Lineage, Operator, TransactionId, Vote, Xid};

use crate::Error;

/// A prepared branch, as the resource holds it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InDoubt {
    /// The attempt.
    pub xid: Xid,
    /// The caller's id.
    pub transaction_id: TransactionId,
}

impl From<&Branch> for InDoubt {
    fn from(branch: &Branch) -> Self {
        Self {
            xid: branch.xid,
            transaction_id: branch.transaction_id.clone(),
        }
    }
}

/// Something that can prepare, commit and abort its share of a transaction.
///
/// The numbered contract (R1 to R7 are rules of section 7); [`suite`](crate::suite) tests what can be tested from
/// outside.
///
/// * **RC1, completion is durability.** `Ok(Vote::Yes)` from `prepare` means that PREPARED is durable; `Ok` from
///   `commit` that effect and COMMITTED are, from `resolve` that HEURISTIC_x and its effect are, from `forget` that
///   FORGOTTEN is. A result that a failed force leaves unknown is never `Ok`.
/// * **RC2, repeatable.** A call with the same xid may come again, after an `Err` or a restart, and answers the same
///   with no second effect and no second hold.
/// * **RC3, one at a time.** The driver has at most one call per branch under way; calls of different branches
///   overlap freely.
/// * **RC4, `Err` is "not known".** Never a vote, never an outcome. The driver calls again with back-off until it gets
///   an answer: what can never work (an operation that does not decode) is a NO.
/// * **RC5, holds survive.** What a prepared branch holds is back before `start` returns, and `in_doubt` lists exactly
///   the prepared branches.
/// * **RC6, record before release.** `abort` appends ABORTED before it releases. It is lazy: `Ok` does not wait for a
///   force. Of a branch that is not known it does nothing and is `Ok`. Nothing is kept of an aborted branch.
/// * **RC7, one atomic unit.** The effect, its entries and COMMITTED become durable together, and once.
/// * **RC8, effects are ordered.** Whatever a call decides in memory it does before it first waits: the driver polls
///   each call once before it makes the next one, so the order of calls is the order of appends and of changes
///   of state. A `prepare` after a `commit` may build on its effect; outsiders see the effect when it is durable.
/// * **RC9, once per transaction.** While it keeps an entry of an effect (by `commit` or `resolve`), `prepare` of
///   another xid with that transaction id is NO(`DUPLICATE_TRANSACTION`), also after `floor` and restarts (P2).
/// * **RC10, floors.** After `floor` COMMITTED and FORGOTTEN branches of that lineage below it may be dropped, once
///   the floor itself is durable; PREPARED and HEURISTIC_x ones never (section 6).
/// * **RC11, heuristics.** `resolve` is forced before holds or effects change, and who, when and why stand in its
///   record. `forget` keeps whether there was an effect.
/// * **RC12, no trace.** NO and READ_ONLY hold nothing and write nothing.
/// * **RC13, identity.** Each `start` forces an incarnation with a higher counter and new random bits; the lineage
///   stays. `prepare` stores `branch.position`, and `start` returns the highest of each coordinator lineage.
/// * **RC14, codes.** The code of a NO is a stable word in upper snake case, `[A-Z][A-Z0-9_]*`, of at most 64 bytes. A
///   NO with another is sent as NO(`INVALID_REASON_CODE`), with the code in its detail and an error in the log.
///
/// A resource whose log fails must end its process (section 2): it must not return.
pub trait Resource: Send + Sync + 'static {
    /// Does the start-up of section 2: replay, holds back (RC5), a new incarnation forced (RC13). Called once, first.
    ///
    /// # Errors
    /// The participant does not start.
    fn start(&self) -> impl Future<Output = Result<Recovered, Error>> + Send;

    /// Validates, holds, appends PREPARED, forces it; or says NO or READ_ONLY (P2, P4, P5, P6, RC14).
    ///
    /// # Errors
    /// RC4.
    fn prepare(&self, branch: Branch) -> impl Future<Output = Result<Vote, Error>> + Send;

    /// Applies a prepared branch; completes when effect and COMMITTED are durable (P12, P15).
    ///
    /// # Errors
    /// RC4.
    fn commit(&self, xid: Xid) -> impl Future<Output = Result<(), Error>> + Send;

    /// Appends ABORTED for a prepared branch, then releases what it holds (P10).
    ///
    /// # Errors
    /// RC4.
    fn abort(&self, xid: Xid) -> impl Future<Output = Result<(), Error>> + Send;

    /// Commits or aborts a prepared branch by hand (P14, RC11).
    ///
    /// # Errors
    /// RC4.
    fn resolve(
        &self,
        xid: Xid,
        what: Decision,
        by: Operator,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Forgets a heuristic (P19, RC11).
    ///
    /// # Errors
    /// RC4.
    fn forget(&self, xid: Xid) -> impl Future<Output = Result<(), Error>> + Send;

    /// Hears that a floor rose (RC10). It must not block: it notes the floor, and a lazy record follows when it suits.
    /// It is called for about every frame, so a record for each call would be too many.
    fn floor(&self, lineage: Lineage, floor: Floor);

    /// The prepared branches, in any order.
    ///
    /// # Errors
    /// They cannot be told now.
    fn in_doubt(&self) -> impl Future<Output = Result<Vec<InDoubt>, Error>> + Send;
}
