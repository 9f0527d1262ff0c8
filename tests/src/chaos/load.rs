//! The callers: each asks for one thing after the other, with the same id until it has a final answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use covenant_client::{Client, unix_now};
use tokio::time::{Instant, MissedTickBehavior};

use super::dice::Dice;
use super::history::{ACCOUNTS, Asked, Manner, Move, Said, When};

/// How long one call of a caller goes on before it is noted and made again.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most calls for one id while faults are injected; then it is left for the time when all is mended.
const MAX_CALLS: usize = 8;

/// More than any account ever has.
const TOO_MUCH: i64 = 1_000_000_000_000;

/// What the callers do, counted while they do it.
#[derive(Default)]
pub struct Counts {
    /// Ids that were sent.
    pub asked: AtomicU64,
    /// Ids that committed while faults were injected.
    pub committed: AtomicU64,
    /// Ids that aborted meanwhile.
    pub aborted: AtomicU64,
    /// Calls without a final answer.
    pub open: AtomicU64,
    /// Ids whose callers are through with them.
    over: AtomicU64,
}

impl Counts {
    /// How many ids their callers are through with, as the beginning of a time that [`Counts::under_way_since`] ends.
    #[must_use]
    pub fn over(&self) -> u64 {
        self.over.load(Ordering::Relaxed)
    }

    /// How many ids were under way at some time since then.
    #[must_use]
    pub fn under_way_since(&self, over: u64) -> u64 {
        self.asked.load(Ordering::Relaxed).saturating_sub(over)
    }
}

/// How much load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The seed.
    pub seed: u64,
    /// The callers.
    pub callers: usize,
    /// The ids per second, of all callers together, at most.
    pub rate: u64,
    /// The participants.
    pub participants: usize,
    /// Until when.
    pub until: Instant,
}

/// One caller's whole life.
pub async fn call(load: Load, caller: usize, client: Client, counts: Arc<Counts>) -> Vec<Asked> {
    let mut dice = Dice::new(load.seed, 1 + caller as u64);
    let pace = Duration::from_secs_f64(load.callers as f64 / load.rate as f64);
    let mut pace = tokio::time::interval(pace);
    pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut history = Vec::new();
    for number in 0_u64.. {
        pace.tick().await;
        if Instant::now() >= load.until {
            break;
        }
        let mut asked = next(&mut dice, &load, format!("c{caller}-{number}"));
        counts.asked.fetch_add(1, Ordering::Relaxed);
        ask(&client, &mut asked, &mut dice, &load, &counts).await;
        match asked.told() {
            Some(Said::Committed { .. }) => counts.committed.fetch_add(1, Ordering::Relaxed),
            Some(_) => counts.aborted.fetch_add(1, Ordering::Relaxed),
            None => 0,
        };
        counts.over.fetch_add(1, Ordering::Relaxed);
        history.push(asked);
    }
    history
}

/// What is asked for next.
fn next(dice: &mut Dice, load: &Load, id: String) -> Asked {
    let manner = match dice.below(100) {
        0..60 => Manner::Plain,
        60..68 => Manner::HangUp,
        68..76 => Manner::Again,
        76..86 => Manner::Abort,
        86..94 => Manner::OtherContent,
        _ => Manner::Overdraft,
    };
    let from = dice.below(load.participants);
    let to = (from + 1 + dice.below(load.participants - 1)) % load.participants;
    let amount = match manner {
        Manner::Overdraft => TOO_MUCH,
        Manner::Plain | Manner::HangUp | Manner::Again | Manner::Abort | Manner::OtherContent => {
            i64::try_from(dice.within(1, 500)).unwrap_or(1)
        }
    };
    let moved = |dice: &mut Dice, ledger, amount| Move {
        ledger,
        account: dice.below(ACCOUNTS),
        amount,
    };
    let moves = match dice.below(10) {
        // Only looks, unless it should ask for too much.
        0 if manner != Manner::Overdraft => Vec::new(),
        // To two accounts of which one may be at a third ledger.
        1 | 2 => {
            let third = (from + 1 + dice.below(load.participants - 1)) % load.participants;
            let mut moves = vec![moved(dice, from, -2 * amount), moved(dice, to, amount)];
            let last = moved(dice, third, amount);
            match moves
                .iter_mut()
                .find(|one| (one.ledger, one.account) == (last.ledger, last.account))
            {
                Some(same) => same.amount += amount,
                None => moves.push(last),
            }
            moves
        }
        _ => vec![moved(dice, from, -amount), moved(dice, to, amount)],
    };
    let free: Vec<usize> = (0..load.participants)
        .filter(|ledger| moves.iter().all(|one| one.ledger != *ledger))
        .collect();
    let looks_at =
        (!free.is_empty() && (moves.is_empty() || dice.chance(20))).then(|| free[dice.below(free.len())]);
    Asked {
        id,
        created: unix_now(),
        manner,
        moves,
        looks_at,
        answers: Vec::new(),
        to_other_content: Vec::new(),
    }
}

async fn ask(client: &Client, asked: &mut Asked, dice: &mut Dice, load: &Load, counts: &Counts) {
    match asked.manner {
        Manner::Plain | Manner::Overdraft => settle(client, asked, load, counts).await,
        Manner::HangUp => {
            let transaction = asked.transaction();
            let patience = Duration::from_millis(dice.within(0, 20));
            // Whatever it would have been told, it does not hear.
            let _ = tokio::time::timeout(patience, client.execute(&transaction, PATIENCE)).await;
            settle(client, asked, load, counts).await;
        }
        Manner::Again => {
            settle(client, asked, load, counts).await;
            let said = Said::of(&client.execute(&asked.transaction(), PATIENCE).await);
            asked.answered(When::Load, said);
        }
        Manner::Abort => {
            let (id, created) = (asked.id.clone(), asked.created);
            let pause = Duration::from_millis(dice.within(0, 15));
            let abort = async {
                tokio::time::sleep(pause).await;
                Said::of(&client.abort(&id, Some(created), PATIENCE).await)
            };
            let ((), said) = tokio::join!(settle(client, asked, load, counts), abort);
            asked.answered(When::Load, said);
        }
        Manner::OtherContent => {
            settle(client, asked, load, counts).await;
            if asked.told().is_some() {
                let said = Said::of(&client.execute(&asked.other_content(), PATIENCE).await);
                asked.to_other_content.push(super::history::Answer {
                    when: When::Load,
                    said,
                });
            }
        }
    }
}

/// Sends it until it has a final answer, or it is enough for now.
async fn settle(client: &Client, asked: &mut Asked, load: &Load, counts: &Counts) {
    let transaction = asked.transaction();
    for _ in 0..MAX_CALLS {
        let said = Said::of(&client.execute(&transaction, PATIENCE).await);
        let is_final = said.is_final();
        asked.answered(When::Load, said);
        if is_final {
            return;
        }
        counts.open.fetch_add(1, Ordering::Relaxed);
        if Instant::now() >= load.until {
            return;
        }
    }
}
