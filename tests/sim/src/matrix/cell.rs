//! One cell: the script that plays it, and what came of it.

use covenant_fault::CrashPoint;
use covenant_rules::coordinator::Reply;
use covenant_rules::{Limits, OutcomeKind, Xid};

use super::render::Rendering;
use super::{Dying, How, Mix, Plan, Return, Way};
use crate::calls::{Ask, Does, Transaction};
use crate::node::Node;
use crate::setup::{Death, Setup};
use crate::world::{Answer, World};

/// The opening balance of every account.
const OPENING: i64 = 1_000;
/// Longer than the deadline of 5 s, the keep-alive of 3 s and the alarm of 10 s.
const LATE_MS: u64 = 12_000;
/// Within this a script's next step must come about.
const PATIENCE_MS: u64 = 10_000;
/// By then whoever has restarted has joined, and said what it has to say.
const ACTS_WITHIN_MS: u64 = 500;
/// How long outcomes are retained in the scripts in which they expire, and how often that is looked at.
const RETENTION_MS: (u64, u64) = (3_000, 10_000);

/// What came of a cell, as a page shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Scene {
    /// Until the node died.
    pub(crate) before: Vec<String>,
    /// From then on.
    pub(crate) after: Vec<String>,
}

/// A world with the one transaction of a script.
pub(crate) struct Script {
    pub(crate) world: World,
    pub(crate) transaction: Transaction,
    rendering: Rendering,
    shown: usize,
}

/// Plays a cell.
///
/// # Errors
/// The point was not reached, nobody died, an invariant is broken, or answer and books differ.
pub(crate) fn play(point: CrashPoint, mix: Mix, way: Way, plan: &Plan) -> Result<Scene, String> {
    let mut script = Script::new(mix, plan.how == How::Expires);
    let death = match way.dying {
        Dying::Process | Dying::Again => Death::Process,
        Dying::Unsynced => Death::Power,
    };
    script.reach(point, plan, death)?;
    script.died(plan.node)?;
    // How it died stands in the heading, and what that took follows there.
    let before = script.lines_until_death();
    script.comes_back(plan.node, way)?;
    let mut after = script.settle()?;
    let odd = matches!(plan.how, How::ByHand(_) | How::Expires);
    after.push(script.end(!odd)?);
    Ok(Scene { before, after })
}

impl Script {
    pub(crate) fn new(mix: Mix, expires: bool) -> Self {
        let mut limits = Limits::DEFAULT;
        if expires {
            (limits.retention_ms, limits.retention_check_ms) = RETENTION_MS;
        }
        let mut world = World::new(Setup {
            limits,
            accounts: vec![OPENING, OPENING],
            trace: true,
            ..Setup::default()
        });
        // The lazy records of the first joining.
        world.run_for(100);
        world.trace.clear();
        let branches = match mix {
            Mix::Commit => [Does::Moves(0, -5), Does::Moves(0, 5)],
            Mix::Abort => [Does::Moves(0, -5 * OPENING), Does::Moves(0, 5 * OPENING)],
            Mix::ReadOnly => [Does::Looks(0, OPENING), Does::Shifts(0, 1, 5)],
        };
        let transaction = world.transaction("T", &[(0, branches[0]), (1, branches[1])]);
        Self {
            world,
            transaction,
            rendering: Rendering::default(),
            shown: 0,
        }
    }

    pub(crate) fn execute(&mut self) {
        self.world.ask(Ask::Execute(self.transaction.execute()));
    }

    /// The lines since the last call.
    fn lines(&mut self) -> Vec<String> {
        let all = self.world.trace.lines();
        let from = std::mem::replace(&mut self.shown, all.len());
        self.rendering.take(&all[from..])
    }

    fn lines_until_death(&mut self) -> Vec<String> {
        let all = self.world.trace.lines();
        let death = all.iter().rposition(|line| line.contains(" crash point "));
        let until = death.map_or(all.len(), |at| at + 1);
        let from = std::mem::replace(&mut self.shown, until);
        self.rendering.take(&all[from..until])
    }

    /// Whether a node's line since `from` contains this.
    pub(crate) fn says(world: &World, from: usize, node: Node, text: &str) -> bool {
        let of_node = format!(" {node:<3} ");
        let lines = &world.trace.lines()[from..];
        lines
            .iter()
            .any(|line| line.contains(&of_node) && line.contains(text))
    }

    /// Runs until a node's new line contains this.
    pub(crate) fn until(&mut self, from: usize, node: Node, text: &str) -> Result<(), String> {
        let said = |world: &World| Self::says(world, from, node, text);
        if self.world.run_until(PATIENCE_MS, said) {
            Ok(())
        } else {
            Err(format!("{node} never does {text:?}"))
        }
    }

    /// The attempt that was minted last.
    pub(crate) fn attempt(&self) -> Result<Xid, String> {
        let last = self.world.history.minted.keys().next_back();
        last.copied().ok_or_else(|| "there is no attempt".to_owned())
    }

    fn reach(&mut self, point: CrashPoint, plan: &Plan, death: Death) -> Result<(), String> {
        let node = plan.node;
        match plan.how {
            How::Runs | How::CallerAborts => {
                self.world.crash_at(node, point, None, death);
                self.execute();
                if plan.how == How::CallerAborts {
                    self.until(0, Node::Participant(0), "-> c   READ_ONLY")?;
                    let of = &self.transaction;
                    let ask = Ask::Abort(of.transaction_id.clone(), Some(of.created));
                    self.world.ask(ask);
                }
                self.world.run_until_crashed(PATIENCE_MS);
            }
            How::Start(first) => {
                self.world.crash_at(node, first, None, Death::Process);
                self.execute();
                self.world.run_until_crashed(PATIENCE_MS);
                self.crashed(first, node)?;
                self.world.crash_at(node, point, None, death);
                self.world.restart(node);
            }
            How::Checkpoint(when) => {
                self.execute();
                self.until(0, node, when)?;
                self.world.crash_at(node, point, None, death);
                self.world.checkpoint(node);
            }
            How::ByHand(what) => {
                self.world.crash_at(node, point, None, death);
                self.execute();
                self.by_hand(what)?;
                self.world.run_until(PATIENCE_MS, |world| {
                    world.crashed_at.is_some() || !world.unforgotten_damage().is_empty()
                });
                if self.world.crashed_at.is_none() {
                    self.world.operators_forget();
                    self.world.run_until_crashed(PATIENCE_MS);
                }
            }
            How::Expires => {
                self.execute();
                self.world.run_for(1_000);
                self.world.crash_at(node, point, None, death);
                self.world.run_until_crashed(2 * PATIENCE_MS);
            }
        }
        self.crashed(point, node)
    }

    /// An operator decides p2's branch as soon as it is prepared.
    pub(crate) fn by_hand(&mut self, what: covenant_rules::Decision) -> Result<(), String> {
        let in_doubt = |world: &World| {
            world
                .participant(1)
                .is_some_and(|machine| machine.in_doubt().next().is_some())
        };
        if !self.world.run_until(PATIENCE_MS, in_doubt) {
            return Err("p2 is never in doubt".to_owned());
        }
        let xid = self.attempt()?;
        self.world.resolve(1, xid, what);
        Ok(())
    }

    fn crashed(&self, point: CrashPoint, node: Node) -> Result<(), String> {
        match self.world.crashed_at {
            Some(at) if at == (point, node) => Ok(()),
            Some((other, who)) => Err(format!("{who} dies at {other}, and not {node} at {point}")),
            None => Err(format!("{point} is never reached at {node}")),
        }
    }

    fn died(&self, node: Node) -> Result<(), String> {
        match self.world.running(node) {
            None => Ok(()),
            Some(_) => Err(format!("{node} lives on")),
        }
    }

    fn comes_back(&mut self, node: Node, way: Way) -> Result<(), String> {
        if way.dying == Dying::Again {
            let from = self.world.trace.lines().len();
            self.world.restart(node);
            let acts = |world: &World| {
                let new = &world.trace.lines()[from..];
                let of_node = format!(" {node:<3} -> ");
                new.iter()
                    .any(|line| line.contains(&of_node) && line.contains(" T#"))
            };
            self.world.run_until(ACTS_WITHIN_MS, acts);
            if !Self::says(&self.world, from, node, "-> ") {
                return Err(format!("{node} restarts and says nothing"));
            }
            self.world.lose_power(node, 0);
            self.died(node)?;
        }
        if way.back == Return::Late {
            self.world.run_for(LATE_MS);
            self.died(node)?;
        }
        self.world.restart(node);
        Ok(())
    }

    /// Heals, waits for quiet and checks; the lines until then.
    pub(crate) fn settle(&mut self) -> Result<Vec<String>, String> {
        if self.world.settle() {
            return Ok(self.lines());
        }
        let violation = self.world.violation();
        let told = violation.map(|one| format!("{}: {}", one.invariant, one.detail));
        Err(told.unwrap_or_else(|| "it does not settle".to_owned()))
    }

    /// What a caller is told when all is over, and where the money is.
    pub(crate) fn end(&mut self, agree: bool) -> Result<String, String> {
        let of = &self.transaction;
        let ask = Ask::Get(of.transaction_id.clone(), Some(of.created));
        let call = self.world.ask(ask);
        self.world
            .run_until(PATIENCE_MS, |world| world.answer(call).is_some());
        let Some(Answer::Said(reply)) = self.world.answer(call) else {
            return Err("nobody says what became of T".to_owned());
        };
        let Reply::Transaction(view) = reply else {
            return Err(format!("GetTransaction is answered {reply:?}"));
        };
        let (outcome, told) = (view.outcome, crate::show::view(view));
        let moved = self.moved();
        // UNKNOWN stays with an id whose record does not decode.
        let agree = agree && outcome != OutcomeKind::Unknown;
        if agree && (outcome == OutcomeKind::Committed) == moved.is_empty() {
            return Err(format!("a caller is told {told}, and what moved is: {moved:?}"));
        }
        let money = if moved.is_empty() {
            "no money moved".to_owned()
        } else {
            moved.join(", ")
        };
        Ok(format!("=   {told}; {money}"))
    }

    /// Accounts that are not as they were opened.
    fn moved(&self) -> Vec<String> {
        let mut moved = Vec::new();
        for who in 0..self.world.participants() {
            let Some(ledger) = self.world.ledger(who) else {
                continue;
            };
            for account in ["a0", "a1"] {
                let posted = ledger.books().get(account).map_or(0, |account| account.posted);
                if posted != OPENING {
                    moved.push(format!("p{} {account} {:+}", who + 1, posted - OPENING));
                }
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Way = Way {
        dying: Dying::Process,
        back: Return::AtOnce,
    };

    #[test]
    fn a_script_whose_point_is_not_reached_fails_and_says_so() {
        let plan = Plan {
            node: Node::Coordinator,
            how: How::Runs,
        };
        let played = play(CrashPoint::CAbortForced, Mix::Commit, AT_ONCE, &plan);
        assert_eq!(played, Err("c.abort.forced is never reached at c".to_owned()));
    }

    #[test]
    fn a_script_whose_first_point_is_not_reached_fails_and_says_so() {
        let plan = Plan {
            node: Node::Coordinator,
            how: How::Start(CrashPoint::CAbortAppended),
        };
        let played = play(CrashPoint::CStartSynced, Mix::Commit, AT_ONCE, &plan);
        assert_eq!(played, Err("c.abort.appended is never reached at c".to_owned()));
    }

    #[test]
    fn a_script_in_which_nobody_dies_fails_and_says_so() {
        let script = Script::new(Mix::Commit, false);
        assert_eq!(script.died(Node::Participant(1)), Err("p2 lives on".to_owned()));
    }
}
