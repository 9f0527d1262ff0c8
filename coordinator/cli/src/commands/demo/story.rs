//! The story: six steps, each with what must be true after it.

use std::time::Duration;

use covenant_client::{
    Branch, Error, Outcome, Refusal, RefusalKind, Transaction, UnixMillis, Wait, from_timestamp, unix_now, v1,
};

use super::holds::{Hold, Span};
use super::money::Money;
use super::timeline::Timeline;
use super::world::{AFTER_VOTE, OPENING, Side, World};
use crate::commands::transfer;
use crate::exit::Failure;
use crate::parse::AccountPath;
use crate::view::millis;

/// What an ordinary transfer of the story moves: 1,000 baht, in minor units.
const AMOUNT: i64 = 100_000;

/// More than alice will ever have, in minor units.
const TOO_MUCH: i64 = 9_999_900;

/// The deadline of the story's transactions, in milliseconds.
const DEADLINE_MS: u64 = 3_000;

/// The patience of a caller who is not meant to be disappointed, in milliseconds.
const PATIENCE_MS: u64 = 10_000;

/// The patience of a caller whose coordinator dies, in milliseconds.
const SHORT_PATIENCE_MS: u64 = 800;

/// The longest wait for a condition, in milliseconds.
const WAIT_MS: u64 = 10_000;

/// Who tells it, to whom, and what was seen to be held.
pub(super) struct Story<'a> {
    world: &'a mut World,
    timeline: &'a mut Timeline,
    holds: Vec<Hold>,
}

impl<'a> Story<'a> {
    pub(super) fn new(world: &'a mut World, timeline: &'a mut Timeline) -> Self {
        Self {
            world,
            timeline,
            holds: Vec::new(),
        }
    }

    /// Tells all of it; how long each hold was held.
    pub(super) async fn tell(mut self) -> Result<Vec<Span>, Failure> {
        let (opening, nothing) = (Money(OPENING), Money(0));
        let beginning = format!(
            "alice has {opening} at ledger-a, bob has {nothing} at ledger-b; a coordinator and the two ledgers run as \
             three processes, each with its own forced log"
        );
        self.timeline.tell(&beginning);
        self.ordinary().await?;
        self.overdraft().await?;
        self.coordinator_dies_after_commit().await?;
        self.coordinator_dies_before_decision().await?;
        self.ledger_dies_after_yes().await?;
        self.adds_up().await?;
        self.add_committed_holds().await?;
        self.holds.sort_by_key(|hold| hold.from);
        Ok(self
            .holds
            .iter()
            .map(|hold| Span::new(hold, &self.world.outages))
            .collect())
    }

    async fn ordinary(&mut self) -> Result<(), Failure> {
        self.timeline.step(
            "a",
            &format!("An ordinary transfer: {} from alice to bob", Money(AMOUNT)),
        );
        let outcome = self.send("T1", unix_now(), AMOUNT, PATIENCE_MS).await?;
        let told = format!(
            "T1: both ledgers voted YES, and the caller is told {}",
            outcome.word()
        );
        self.timeline
            .check(&told, matches!(outcome, Outcome::Committed(_)));
        self.settled(OPENING - AMOUNT, AMOUNT).await
    }

    async fn overdraft(&mut self) -> Result<(), Failure> {
        self.timeline.step(
            "b",
            &format!("An overdraft: {} from alice to bob", Money(TOO_MUCH)),
        );
        let outcome = self.send("T2", unix_now(), TOO_MUCH, PATIENCE_MS).await?;
        let reason = outcome
            .view()
            .and_then(|view| view.reason.clone())
            .unwrap_or_default();
        let told = format!(
            "T2: {} ({} by {})",
            outcome.word(),
            reason.code,
            reason.participant
        );
        let expected = matches!(outcome, Outcome::Aborted(_)) && reason.code == "INSUFFICIENT_FUNDS";
        self.timeline.check(&told, expected);
        self.settled(OPENING - AMOUNT, AMOUNT).await
    }

    async fn coordinator_dies_after_commit(&mut self) -> Result<(), Failure> {
        let title = "The coordinator dies: COMMIT of T100 is forced, ledger-a has heard it, ledger-b has not";
        self.timeline.step("c", title);
        let created = unix_now();
        let died = self.unanswered("T100", created).await?;
        let settled = Self::is(OPENING - 2 * AMOUNT, 0, 0);
        self.account_becomes(Side::A, "alice paid: ledger-a knows the decision", settled)
            .await?;
        let bob = self.world.account(Side::B).await?;
        let in_doubt = Self::is(AMOUNT, 0, AMOUNT)(&bob);
        self.timeline.check(
            "ledger-b is in doubt: it holds the credit and decides nothing alone",
            in_doubt,
        );
        self.coordinator_comes_back(died, true).await?;
        self.settled(OPENING - 2 * AMOUNT, 2 * AMOUNT).await?;
        let seen = self.get("T100", created).await?;
        self.timeline.check(
            &format!("tx get T100 says {}", seen.word()),
            matches!(seen, Outcome::Committed(_)),
        );
        let again = self.send("T100", created, AMOUNT, PATIENCE_MS).await?;
        let told = format!("T100 is sent again: {}, and nothing moves", again.word());
        self.timeline.check(&told, matches!(again, Outcome::Committed(_)));
        self.settled(OPENING - 2 * AMOUNT, 2 * AMOUNT).await?;
        let other = self.execute("T100", created, 2 * AMOUNT, PATIENCE_MS).await;
        let (told, refused) = match &other {
            Err(Error::Refused(refusal @ Refusal { kind, .. })) => {
                (refusal.reason.clone(), *kind == RefusalKind::AlreadyExists)
            }
            Err(error) => (error.to_string(), false),
            Ok(outcome) => (outcome.word().to_owned(), false),
        };
        self.timeline
            .check(&format!("T100 with another amount is refused ({told})"), refused);
        self.settled(OPENING - 2 * AMOUNT, 2 * AMOUNT).await
    }

    async fn coordinator_dies_before_decision(&mut self) -> Result<(), Failure> {
        self.timeline.step(
            "d",
            "The coordinator dies: all votes of T200 are in, and nothing is decided",
        );
        let created = unix_now();
        let died = self.unanswered("T200", created).await?;
        let held = self.held("T200").await?;
        self.timeline
            .check("both ledgers voted YES and hold", held.len() == 2);
        let mut is_still_held = true;
        let deadline = created + DEADLINE_MS;
        self.timeline
            .tell("the deadline of T200 passes, and nobody answers the ledgers' questions");
        while unix_now() < deadline {
            is_still_held &= self.held("T200").await?.len() == 2;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.timeline
            .check("both ledgers still hold: neither decides alone", is_still_held);
        self.coordinator_comes_back(died, false).await?;
        self.aborted_by_presumption("T200", &held).await?;
        self.settled(OPENING - 2 * AMOUNT, 2 * AMOUNT).await?;
        let seen = self.get("T200", created).await?;
        let told = format!("tx get T200 says {}: it left no record", seen.word());
        self.timeline.check(&told, matches!(seen, Outcome::NotFound(_)));
        let again = self.send("T200", created, AMOUNT, PATIENCE_MS).await?;
        let told = format!("T200 is sent again, the same id and content: {}", again.word());
        self.timeline.check(&told, matches!(again, Outcome::Committed(_)));
        self.settled(OPENING - 3 * AMOUNT, 3 * AMOUNT).await
    }

    async fn ledger_dies_after_yes(&mut self) -> Result<(), Failure> {
        let [first, others @ ..] = AFTER_VOTE;
        self.timeline
            .step("e", &format!("ledger-b dies after its YES to {first}"));
        let (mut id, mut outcome) = (first, self.decide(first, unix_now()).await?);
        for next in others {
            if !Self::is_overdue(&outcome) {
                break;
            }
            let lost =
                format!("the YES was lost with ledger-b's connection, and {id} aborted at its deadline");
            self.timeline.tell(&format!("{lost}: once more"));
            let (died, _) = self.world.ledger_b_died(self.timeline).await?;
            let _ready = self
                .world
                .restart_ledger_b(self.timeline, died, Some(next))
                .await?;
            self.settled(OPENING - 3 * AMOUNT, 3 * AMOUNT).await?;
            (id, outcome) = (next, self.decide(next, unix_now()).await?);
        }
        let told = format!(
            "{id}: ledger-b's YES had left, and the caller is told {}",
            outcome.word()
        );
        self.timeline
            .check(&told, matches!(outcome, Outcome::Committed(_)));
        let (died, aborted) = self.world.ledger_b_died(self.timeline).await?;
        self.timeline.check("ledger-b is dead", aborted);
        let paid = Self::is(OPENING - 4 * AMOUNT, 0, 0);
        self.account_becomes(Side::A, "alice paid; bob's side waits for ledger-b", paid)
            .await?;
        let ready = self.world.restart_ledger_b(self.timeline, died, None).await?;
        let in_doubt = ready["in_doubt"].as_u64() == Some(1);
        let back = format!("ledger-b is back from its journal, in doubt about {id}, with its hold");
        self.timeline.check(&back, in_doubt);
        self.settled(OPENING - 4 * AMOUNT, 4 * AMOUNT).await
    }

    /// Not all votes arrived. What a process sent just before it died may be lost with its connection, although it left.
    fn is_overdue(outcome: &Outcome) -> bool {
        let reason = outcome.view().and_then(|view| view.reason.as_ref());
        matches!(outcome, Outcome::Aborted(_))
            && reason.is_some_and(|reason| reason.code == "DEADLINE_EXCEEDED")
    }

    async fn adds_up(&mut self) -> Result<(), Failure> {
        self.timeline.step("f", "The money adds up");
        let (alice, bob) = (
            self.world.account(Side::A).await?,
            self.world.account(Side::B).await?,
        );
        let sum = alice.posted + bob.posted;
        let (left, right) = (Money(alice.posted), Money(bob.posted));
        let text = format!("alice has {left}, bob has {right}: together {}", Money(sum));
        self.timeline.check(&text, sum == OPENING);
        for side in Side::BOTH {
            let sum: i64 = self
                .world
                .accounts(side, true)
                .await?
                .iter()
                .map(|account| account.posted)
                .sum();
            let text = format!(
                "{}: all accounts, its own included, sum up to {sum}",
                side.ledger()
            );
            self.timeline.check(&text, sum == 0);
            let holds = self.world.holds(side).await?.len();
            self.timeline
                .check(&format!("{}: {holds} holds are left", side.ledger()), holds == 0);
        }
        let patience = Duration::from_millis(PATIENCE_MS);
        let open = self
            .world
            .client()?
            .list(v1::StateFilter::InDoubt, 0, "", patience)
            .await?;
        let count = open.transactions.len();
        self.timeline
            .check(&format!("{count} transactions are in doubt"), count == 0);
        Ok(())
    }

    /// Sends a transfer whose coordinator dies on it; when that was.
    async fn unanswered(&mut self, id: &str, created: UnixMillis) -> Result<UnixMillis, Failure> {
        self.timeline
            .tell(&format!("{id} is sent: alice pays bob {}", Money(AMOUNT)));
        let client = self.world.client()?;
        let transaction = Self::transaction(id, created, AMOUNT, Wait::Completed);
        let patience = Duration::from_millis(SHORT_PATIENCE_MS);
        let (told, death) = tokio::join!(
            client.execute(&transaction, patience),
            self.world.coordinator_died(self.timeline)
        );
        let (told, (died, aborted)) = (told?, death?);
        self.timeline.check("the coordinator is dead", aborted);
        let text = format!(
            "{id}: the caller is told {}, neither success nor failure",
            told.word()
        );
        self.timeline.check(&text, matches!(told, Outcome::Unknown(_)));
        Ok(died)
    }

    async fn coordinator_comes_back(&mut self, died: UnixMillis, dies_again: bool) -> Result<(), Failure> {
        let ready = self
            .world
            .restart_coordinator(self.timeline, died, dies_again)
            .await?;
        let (start, replayed) = (&ready["start_ms"], &ready["replayed"]);
        let text = format!(
            "the coordinator is back: it replayed {replayed} records, served after {start} ms, and both ledgers have \
             joined again"
        );
        self.timeline.tell(&text);
        Ok(())
    }

    /// Waits until the ledgers have let go, and notes how long they held.
    async fn aborted_by_presumption(&mut self, id: &str, held: &[(Side, UnixMillis)]) -> Result<(), Failure> {
        for (side, from) in held {
            let what = format!("{} to abort {id}", side.ledger());
            let world = &*self.world;
            let probe = async || Ok(world.holds(*side).await?.is_empty().then(unix_now));
            let to = self.timeline.until(&what, WAIT_MS, probe).await?;
            let (from, ledger) = (*from, side.ledger());
            let transaction_id = id.to_owned();
            self.holds.push(Hold {
                transaction_id,
                ledger,
                ended: "ABORTED",
                from,
                to,
            });
        }
        let text = "the ledgers asked, heard ABORT by presumption (no record: not committed), and let go";
        self.timeline.check(text, true);
        Ok(())
    }

    /// Who holds for this transaction, and since when.
    async fn held(&self, id: &str) -> Result<Vec<(Side, UnixMillis)>, Failure> {
        let mut held = Vec::new();
        for side in Side::BOTH {
            let holds = self.world.holds(side).await?;
            let own = holds.iter().find(|hold| {
                hold.transaction_id == id && hold.account == side.account() && hold.amount == AMOUNT
            });
            if let Some(since) = own.and_then(|hold| from_timestamp(hold.since.as_ref()?)) {
                held.push((side, since));
            }
        }
        Ok(held)
    }

    /// Waits until alice and bob have exactly this, and nothing is held.
    async fn settled(&mut self, alice: i64, bob: i64) -> Result<(), Failure> {
        for (side, posted) in [(Side::A, alice), (Side::B, bob)] {
            let text = format!("{} has {}, and nothing is held", side.account(), Money(posted));
            self.account_becomes(side, &text, Self::is(posted, 0, 0)).await?;
        }
        Ok(())
    }

    /// Waits until the story's account of one ledger is as it should be.
    async fn account_becomes(
        &mut self,
        side: Side,
        text: &str,
        is_so: impl Fn(&covenant_proto::ledger::v1::Account) -> bool,
    ) -> Result<(), Failure> {
        let world = &*self.world;
        let probe = async || Ok(is_so(&world.account(side).await?).then_some(()));
        self.timeline.until(text, WAIT_MS, probe).await?;
        self.timeline.check(text, true);
        Ok(())
    }

    fn is(posted: i64, debit: i64, credit: i64) -> impl Fn(&covenant_proto::ledger::v1::Account) -> bool {
        move |account| {
            (account.posted, account.pending_debit, account.pending_credit) == (posted, debit, credit)
        }
    }

    /// Sends a transfer from alice to bob and waits until both have done it.
    async fn send(
        &mut self,
        id: &str,
        created: UnixMillis,
        amount: i64,
        patience_ms: u64,
    ) -> Result<Outcome, Failure> {
        self.timeline
            .tell(&format!("{id} is sent: alice pays bob {}", Money(amount)));
        Ok(self.execute(id, created, amount, patience_ms).await?)
    }

    async fn execute(
        &self,
        id: &str,
        created: UnixMillis,
        amount: i64,
        patience_ms: u64,
    ) -> Result<Outcome, Error> {
        let transaction = Self::transaction(id, created, amount, Wait::Completed);
        let client = self.world.client().map_err(|failure| Error::Endpoint {
            endpoint: failure.code,
            why: failure.message,
        })?;
        client
            .execute(&transaction, Duration::from_millis(patience_ms))
            .await
    }

    /// Sends a transfer from alice to bob and waits for its decision only.
    async fn decide(&mut self, id: &str, created: UnixMillis) -> Result<Outcome, Failure> {
        self.timeline
            .tell(&format!("{id} is sent: alice pays bob {}", Money(AMOUNT)));
        let transaction = Self::transaction(id, created, AMOUNT, Wait::Decided);
        Ok(self
            .world
            .client()?
            .execute(&transaction, Duration::from_millis(PATIENCE_MS))
            .await?)
    }

    async fn get(&self, id: &str, created: UnixMillis) -> Result<Outcome, Failure> {
        Ok(self
            .world
            .client()?
            .get(id, Some(created), Duration::from_millis(PATIENCE_MS))
            .await?)
    }

    fn transaction(id: &str, created: UnixMillis, amount: i64, wait: Wait) -> Transaction {
        let path = |side: Side| AccountPath {
            participant: side.ledger().to_owned(),
            account: side.account().to_owned(),
        };
        let branches: Vec<Branch> = transfer::branches(&path(Side::A), &path(Side::B), amount, "THB");
        Transaction {
            id: id.to_owned(),
            created,
            branches,
            timeout: Some(Duration::from_millis(DEADLINE_MS)),
            wait,
        }
    }

    /// Adds the holds that ended in an entry.
    async fn add_committed_holds(&mut self) -> Result<(), Failure> {
        for side in Side::BOTH {
            for entry in self.world.entries(side).await? {
                let times = entry
                    .posted_at
                    .as_ref()
                    .and_then(from_timestamp)
                    .zip(entry.held_for.as_ref());
                let Some((to, held_for)) = times else { continue };
                let (from, ledger) = (to.saturating_sub(millis(held_for)), side.ledger());
                let transaction_id = entry.transaction_id;
                self.holds.push(Hold {
                    transaction_id,
                    ledger,
                    ended: "COMMITTED",
                    from,
                    to,
                });
            }
        }
        Ok(())
    }
}
