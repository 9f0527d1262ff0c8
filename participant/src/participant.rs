//! The start of a participant.

use std::collections::BTreeSet;
use std::sync::Arc;

use covenant_rules::participant::{Recovered, RecoveredBranch, RecoveredState};
use tokio::sync::{mpsc, watch};

use crate::config::MAX_WAITING_COMMANDS;
use crate::driver::Driver;
use crate::link::Link;
use crate::{Config, Error, Handle, InDoubt, JoinState, Resource};

/// A resource that takes part in transactions.
#[derive(Debug)]
pub struct Participant;

impl Participant {
    /// Starts the resource, puts its prepared branches back, and runs the driver in a task of the present tokio
    /// runtime. Returns before the first joining; [`Handle::joined`] tells about that.
    ///
    /// # Errors
    /// [`Error::Address`] for a coordinator address that is none, [`Error::Resource`] if the resource does not start,
    /// [`Error::Contract`] if it breaks RC5.
    pub async fn start<R: Resource>(config: Config, resource: Arc<R>) -> Result<Handle, Error> {
        let endpoint = config.endpoint()?;
        let recovered = resource.start().await?;
        check_holds(&recovered, resource.in_doubt().await?)?;
        let link = Link::new(endpoint, config.name.clone(), recovered.identity);
        let machine =
            covenant_rules::Participant::recover(config.limits.clone(), config.name.clone(), recovered);
        let (commands, requests) = mpsc::channel(MAX_WAITING_COMMANDS);
        let (state, joined) = watch::channel(JoinState::Away { reason: None });
        tokio::spawn(Driver::new(&config, link, machine, resource, requests, state).run());
        Ok(Handle { commands, joined })
    }
}

/// RC5: new work may come only when every prepared branch holds again.
fn check_holds(recovered: &Recovered, in_doubt: Vec<InDoubt>) -> Result<(), Error> {
    let prepared: BTreeSet<InDoubt> = recovered.branches.iter().filter_map(prepared).collect();
    let listed: BTreeSet<InDoubt> = in_doubt.into_iter().collect();
    if prepared == listed {
        return Ok(());
    }
    Err(Error::Contract {
        recovered: prepared.len(),
        listed: listed.len(),
    })
}

fn prepared(branch: &RecoveredBranch) -> Option<InDoubt> {
    match branch.state {
        RecoveredState::Prepared { .. } => Some(InDoubt {
            xid: branch.xid,
            transaction_id: branch.transaction_id.clone(),
        }),
        RecoveredState::Committed | RecoveredState::Heuristic(_) | RecoveredState::Forgotten { .. } => None,
    }
}
