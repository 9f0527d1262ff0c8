//! The sizes that every coordinator refuses, checked before anything is sent.
//!
//! A request that is far too large would not be read to its end by the coordinator, and the connection's failure would
//! have to be called UNKNOWN. Here it is an error that surely ran nothing, with the bound's name. What an id or a name may
//! be made of, and that a participant stands there once, the coordinator says.

use crate::{Error, Transaction};

/// The longest transaction id, and the longest name of a participant, in bytes; the shortest is 1.
pub const MAX_ID_BYTES: usize = 128;
/// The most branches of one transaction; the fewest is 1.
pub const MAX_BRANCHES: usize = 128;
/// The longest operation of one branch, in bytes: 32 KiB.
pub const MAX_OPERATION_BYTES: usize = 32 * 1024;
/// The most bytes that the operations of one transaction have together: 1 MiB.
pub const MAX_EXECUTE_BYTES: usize = 1024 * 1024;

/// Checks all sizes of a transaction.
///
/// # Errors
/// [`Error::OutOfBounds`] for the first that is beyond its bound.
pub(crate) fn check(transaction: &Transaction) -> Result<(), Error> {
    check_id(&transaction.id)?;
    let branches = &transaction.branches;
    let count = branches.len();
    within(
        "the transaction",
        count,
        "branches",
        1,
        ("MAX_BRANCHES", MAX_BRANCHES),
    )?;
    for (index, branch) in branches.iter().enumerate() {
        let what = format!("the participant of branch {}", index + 1);
        let name = branch.participant.len();
        within(&what, name, "bytes", 1, ("MAX_ID_BYTES", MAX_ID_BYTES))?;
        let what = format!("the operation for {}", branch.participant);
        let operation = ("MAX_OPERATION_BYTES", MAX_OPERATION_BYTES);
        within(&what, branch.operation.len(), "bytes", 0, operation)?;
    }
    // 128 operations of 32 KiB fit every usize.
    let together = branches.iter().map(|branch| branch.operation.len()).sum();
    let execute = ("MAX_EXECUTE_BYTES", MAX_EXECUTE_BYTES);
    within("the list of all operations", together, "bytes", 0, execute)
}

/// Checks the length of a transaction id.
///
/// # Errors
/// [`Error::OutOfBounds`].
pub(crate) fn check_id(id: &str) -> Result<(), Error> {
    let bound = ("MAX_ID_BYTES", MAX_ID_BYTES);
    within("the transaction id", id.len(), "bytes", 1, bound)
}

fn within(
    what: &str,
    value: usize,
    unit: &'static str,
    least: usize,
    (name, bound): (&'static str, usize),
) -> Result<(), Error> {
    if (least..=bound).contains(&value) {
        return Ok(());
    }
    Err(Error::OutOfBounds {
        what: what.to_owned(),
        value,
        unit,
        least,
        name,
        bound,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Branch, Wait};

    fn with(id: &str, branches: Vec<Branch>) -> Transaction {
        Transaction {
            id: id.into(),
            created: 0,
            branches,
            timeout: None,
            wait: Wait::Decided,
        }
    }

    fn many(count: usize, bytes: usize) -> Vec<Branch> {
        (0..count)
            .map(|n| Branch::new(format!("p{n}"), vec![0; bytes]))
            .collect()
    }

    #[test]
    fn what_is_at_its_bound_is_taken() {
        let name = "x".repeat(MAX_ID_BYTES);
        for transaction in [
            with(
                &name,
                vec![Branch::new(name.clone(), vec![0; MAX_OPERATION_BYTES])],
            ),
            with("T", many(MAX_BRANCHES, MAX_EXECUTE_BYTES / MAX_BRANCHES)),
        ] {
            assert!(check(&transaction).is_ok());
        }
    }

    #[test]
    fn what_is_beyond_is_refused_with_value_bound_and_way_out() {
        let long = "x".repeat(129);
        for (transaction, words) in [
            (
                with("", many(1, 1)),
                "the transaction id has 0 bytes; give 1 to 128 (MAX_ID_BYTES)",
            ),
            (with(&long, many(1, 1)), "the transaction id has 129 bytes"),
            (
                with("T", vec![]),
                "the transaction has 0 branches; give 1 to 128 (MAX_BRANCHES)",
            ),
            (with("T", many(129, 1)), "the transaction has 129 branches"),
            (
                with("T", vec![Branch::new(long.clone(), vec![])]),
                "the participant of branch 1 has 129 bytes",
            ),
            (
                with("T", many(1, MAX_OPERATION_BYTES + 1)),
                "the operation for p0 has 32769 bytes; give 0 to 32768 (MAX_OPERATION_BYTES)",
            ),
            (
                with("T", many(33, MAX_OPERATION_BYTES)),
                "the list of all operations has 1081344 bytes; give 0 to 1048576 (MAX_EXECUTE_BYTES)",
            ),
        ] {
            let error = check(&transaction).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
