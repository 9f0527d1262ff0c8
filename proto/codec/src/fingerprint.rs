//! What a transaction id stands for (section 7, "Fingerprint").

use covenant_rules::{Fingerprint, Name};
use sha2::{Digest, Sha256};

/// The first 16 bytes of SHA-256 over the sorted list of (participant, operation).
///
/// The number of branches and every text go in behind their length as 8 big-endian bytes, so no two lists share
/// an input.
#[must_use]
pub fn fingerprint<'a>(branches: impl IntoIterator<Item = (&'a Name, &'a [u8])>) -> Fingerprint {
    let mut branches: Vec<_> = branches.into_iter().collect();
    branches.sort_unstable();

    let mut hash = Sha256::new();
    hash.update((branches.len() as u64).to_be_bytes());
    for (participant, operation) in branches {
        for part in [participant.as_str().as_bytes(), operation] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
    }
    let mut first = [0; 16];
    first.copy_from_slice(&hash.finalize()[..16]);
    Fingerprint(first)
}
