//! S13 force failure: after it, that process sends nothing.

use std::collections::BTreeSet;

use super::{Check, Verdict, fail};
use crate::history::History;
use crate::node::Node;
use crate::seen::Seen;

#[derive(Default)]
pub(super) struct ForceFailure {
    failed: BTreeSet<Node>,
}

impl Check for ForceFailure {
    fn invariant(&self) -> &'static str {
        "S13"
    }

    fn see(&mut self, _: &History, seen: &Seen<'_>) -> Verdict {
        let node = match seen {
            Seen::ForceFailed(node) => {
                self.failed.insert(*node);
                return Ok(());
            }
            Seen::CoordinatorStarted { .. } => {
                self.failed.remove(&Node::Coordinator);
                return Ok(());
            }
            Seen::Replayed { who, .. } => {
                self.failed.remove(&Node::Participant(*who));
                return Ok(());
            }
            Seen::Sent { .. } | Seen::Told(_) | Seen::Appended(..) => Node::Coordinator,
            Seen::Said { who, .. } | Seen::Wrote { who, .. } => Node::Participant(*who),
            _ => return Ok(()),
        };
        if self.failed.contains(&node) {
            return fail(format!("{node} goes on after a force failed"));
        }
        Ok(())
    }
}
