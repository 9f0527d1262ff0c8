//! What the loop does with calls of callers and operators, and with messages of sessions.
//!
//! Each is one event of the machine, and brings along what the archive knows. Beside that the loop notices here what
//! the machine cannot: callers that went away, and archived outcomes that do not decode.

use covenant_fault::CrashPoint;
use covenant_rules::coordinator::{Event, Reply, RequestId, SessionId};
use covenant_rules::{Outcome, ToCoordinator, TransactionId};

use crate::Error;
use crate::archive::Found;
use crate::driver::Driver;
use crate::input::{Call, Caller, Figures, Refused};
use crate::listing;

impl Driver {
    pub(crate) async fn message(&mut self, session: SessionId, message: ToCoordinator) -> Result<(), Error> {
        let known = match self.machine.wants_archive(&message) {
            Some(xid) => {
                let found = self.archive.by_xid(xid)?;
                self.look_up(found).await?
            }
            None => None,
        };
        self.step(Event::Message {
            session,
            message,
            known,
        })
        .await
    }

    pub(crate) async fn call(&mut self, call: Call, draining: bool) -> Result<(), Error> {
        match call {
            Call::Execute { caller, .. } if draining => caller.answer(Err(Refused::Draining)),
            Call::Execute { caller, .. } if self.journal.is_backlogged() => {
                caller.answer(Err(Refused::Backlogged));
            }
            Call::Execute { execute, caller } => {
                self.crash.at(
                    CrashPoint::CExecuteReceived,
                    Some(execute.transaction_id.as_str()),
                );
                self.free_places(&execute.transaction_id).await?;
                let known = self.known(&execute.transaction_id).await?;
                let request = self.caller(caller);
                return self
                    .step(Event::Execute {
                        request,
                        execute,
                        known,
                    })
                    .await;
            }
            Call::Get {
                transaction_id,
                created,
                caller,
            } => {
                let known = self.known(&transaction_id).await?;
                let request = self.caller(caller);
                return self
                    .step(Event::Get {
                        request,
                        transaction_id,
                        created,
                        known,
                    })
                    .await;
            }
            Call::Abort {
                transaction_id,
                created,
                by,
                caller,
            } => {
                self.free_places(&transaction_id).await?;
                let known = self.known(&transaction_id).await?;
                let request = self.caller(caller);
                return self
                    .step(Event::Abort {
                        request,
                        transaction_id,
                        created,
                        by,
                        known,
                    })
                    .await;
            }
            Call::List { query, answer } => {
                let page = listing::transactions(&self.machine, &self.archive, &query);
                // A caller that went away wants no answer.
                let _ = answer.send(page);
            }
            Call::Participants { query, answer } => {
                let joined = |session| {
                    self.sessions
                        .get(&session)
                        .map(|slot| (slot.joined_at_ms, slot.version))
                };
                let _ = answer.send(Ok(listing::participants(&self.machine, &query, joined)));
            }
            Call::Figures { answer } => {
                let _ = answer.send(Ok(Figures {
                    log: self.journal.stats(),
                    messages_sent: self.messages_sent,
                    messages_received: self.messages_received,
                }));
            }
        }
        Ok(())
    }

    async fn known(&mut self, id: &TransactionId) -> Result<Option<Outcome>, Error> {
        let found = self.archive.by_id(id)?;
        self.look_up(found).await
    }

    /// What the machine is told of a look-up in the archive; of damage first (R3, Q5).
    async fn look_up(&mut self, found: Found) -> Result<Option<Outcome>, Error> {
        for damaged in found.damaged {
            self.archive.quarantine(&damaged)?;
            self.step(Event::Quarantined(damaged.shows)).await?;
        }
        Ok(found.outcome)
    }

    /// Whoever waits for this id and went away must not keep a place from a caller that is there.
    async fn free_places(&mut self, id: &TransactionId) -> Result<(), Error> {
        let gone = |request: &RequestId| self.callers.get(request).is_none_or(Caller::is_gone);
        let left: Vec<RequestId> = self.machine.attached_callers(id).filter(gone).collect();
        for request in left {
            self.callers.remove(&request);
            let transaction_id = id.clone();
            self.step(Event::CallerLeft {
                request,
                transaction_id,
            })
            .await?;
        }
        Ok(())
    }

    fn caller(&mut self, caller: Caller) -> RequestId {
        let request = self.next_request;
        self.next_request += 1;
        self.callers.insert(request, caller);
        request
    }

    pub(crate) fn answer(&mut self, request: RequestId, reply: Reply) {
        let Some(caller) = self.callers.remove(&request) else {
            return;
        };
        let result = match reply {
            Reply::Transaction(view) => Ok(*view),
            Reply::Refused(refusal) => Err(Refused::Machine(refusal)),
            // No call of this server asks for it.
            Reply::Forgotten => return,
        };
        caller.answer(result);
    }
}
