//! Who waits for which LSN, in order, so that a force wakes exactly those it completes.
//!
//! After `freeze` nothing is ever completed: the result of a failed force is unknown. The number of waiters
//! is bounded by the callers: each is one call in flight.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

#[derive(Debug)]
struct State {
    durable: u64,
    frozen: bool,
    /// By LSN and order of arrival.
    waiting: BTreeMap<(u64, u64), oneshot::Sender<()>>,
    arrivals: u64,
}

/// The ordered queue of waiters.
#[derive(Debug)]
pub(crate) struct Waiters {
    state: Mutex<State>,
}

/// Waiters whose LSN is durable, to be told without any lock held.
#[derive(Debug)]
pub(crate) struct Woken(BTreeMap<(u64, u64), oneshot::Sender<()>>);

impl Woken {
    pub(crate) fn complete(self) {
        for waiter in self.0.into_values() {
            // A waiter that went away needs no answer.
            let _ = waiter.send(());
        }
    }
}

impl Waiters {
    pub(crate) fn new(durable: u64) -> Self {
        Self {
            state: Mutex::new(State {
                durable,
                frozen: false,
                waiting: BTreeMap::new(),
                arrivals: 0,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The position.
    pub(crate) fn durable(&self) -> u64 {
        self.state().durable
    }

    /// Completes when `lsn` is durable; never, once frozen.
    pub(crate) fn wait(&self, lsn: u64) -> impl Future<Output = ()> + Send + 'static + use<> {
        let receiver = {
            let mut state = self.state();
            if lsn <= state.durable {
                None
            } else {
                let (sender, receiver) = oneshot::channel();
                let arrival = state.arrivals;
                state.arrivals += 1;
                state.waiting.insert((lsn, arrival), sender);
                Some(receiver)
            }
        };
        async move {
            if let Some(receiver) = receiver
                && receiver.await.is_err()
            {
                // The journal is gone and never forced it: that is no completion.
                pending::<()>().await;
            }
        }
    }

    /// Takes out everybody who waits for `durable` or less; `None` once frozen.
    pub(crate) fn take(&self, durable: u64) -> Option<Woken> {
        let mut state = self.state();
        if state.frozen {
            return None;
        }
        assert!(
            durable > state.durable,
            "durable would fall from {} to {durable}",
            state.durable
        );
        state.durable = durable;
        let later = state.waiting.split_off(&(durable + 1, 0));
        Some(Woken(std::mem::replace(&mut state.waiting, later)))
    }

    /// From here on nobody is completed.
    pub(crate) fn freeze(&self) {
        self.state().frozen = true;
    }
}
