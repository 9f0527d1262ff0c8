//! The checker has teeth: a good history passes, and each falsified one is found out by the claim that it breaks.

use covenant_client::View;
use covenant_proto::ledger::v1::{Account, Entry, Hold};
use covenant_proto::v1::Xid;

use super::checker::{Check, Verdict, check};
use super::history::{
    ACCOUNTS, Answer, Asked, Ends, LogSize, Manner, Move, OPENING, Said, When, account_name, ledger_name,
    xid_text,
};
use crate::world::{LedgerView, World};

const XID: Xid = Xid {
    lineage_high: 1,
    lineage_low: 2,
    counter: 1,
    bits: 3,
    seq: 4,
};

fn moved(ledger: usize, account: usize, amount: i64) -> Move {
    Move {
        ledger,
        account,
        amount,
    }
}

/// The last answer is told again when all is mended and when all was started again.
fn asked(id: &str, manner: Manner, said: &[Said]) -> Asked {
    let last = said.last().into_iter();
    let again = last.flat_map(|last| [(When::Mended, last), (When::Restarted, last)]);
    let answers = said
        .iter()
        .map(|said| (When::Load, said))
        .chain(again)
        .map(|(when, said)| Answer {
            when,
            said: said.clone(),
        });
    Asked {
        id: id.into(),
        created: 1,
        manner,
        moves: vec![moved(0, 0, -100), moved(1, 1, 100)],
        looks_at: None,
        answers: answers.collect(),
        to_other_content: Vec::new(),
    }
}

fn committed() -> Said {
    Said::Committed { xid: xid_text(XID) }
}

fn aborted(reason: &str) -> Said {
    Said::Aborted {
        reason: reason.into(),
    }
}

fn ledger(index: usize, account: usize, amount: i64) -> LedgerView {
    let with = |account: String, posted: i64| Account {
        account,
        posted,
        ..Account::default()
    };
    let opened = ACCOUNTS as i64 * OPENING;
    let mut accounts = vec![
        with("@clearing:THB".into(), -amount),
        with("@opening:THB".into(), -opened),
    ];
    accounts.extend((0..ACCOUNTS).map(|one| {
        let has = if one == account { OPENING + amount } else { OPENING };
        with(account_name(one), has)
    }));
    let entry = |account: &str, amount: i64| Entry {
        transaction_id: "T1".into(),
        xid: Some(XID),
        account: account.into(),
        amount,
        ..Entry::default()
    };
    LedgerView {
        name: ledger_name(index),
        accounts,
        entries: vec![
            entry(&account_name(account), amount),
            entry("@clearing:THB", -amount),
        ],
        holds: Vec::new(),
    }
}

/// T1 moved 100 from the first ledger to the second; T2 was aborted; T3 was an overdraft.
fn good() -> (Vec<Asked>, Ends) {
    let mut history = vec![
        asked(
            "T1",
            Manner::OtherContent,
            &[Said::Open("UNKNOWN"), committed(), committed()],
        ),
        asked(
            "T2",
            Manner::Abort,
            &[Said::Refused("NEVER_SENT".into()), aborted("ABORTED_BY_CALLER")],
        ),
        asked("T3", Manner::Overdraft, &[aborted("INSUFFICIENT_FUNDS")]),
    ];
    let refused = Said::Refused("OTHER_CONTENT".into());
    history[0].to_other_content.push(said(When::Load, refused));
    let log = |process: &str| LogSize {
        process: process.into(),
        bytes: 1_000_000,
        kept: 3,
        replayed: 500,
        starts: 2,
    };
    let ends = Ends {
        world: World {
            transactions: Vec::new(),
            ledgers: vec![ledger(0, 0, -100), ledger(1, 1, 100)],
        },
        processes: Vec::new(),
        leaked: Vec::new(),
        logs: vec![log("coordinator"), log("ledger-1"), log("ledger-2")],
        lives: 5,
    };
    (history, ends)
}

fn violated(history: &[Asked], ends: &Ends) -> Vec<&'static str> {
    judged(&check(history, 2, ends), Verdict::Violated)
}

fn judged(checks: &[Check], as_this: Verdict) -> Vec<&'static str> {
    checks
        .iter()
        .filter(|one| one.verdict() == as_this)
        .map(|one: &Check| {
            assert_eq!(one.told.is_empty(), one.violated == 0, "{one:?}");
            one.name
        })
        .collect()
}

#[test]
fn a_good_history_passes_every_claim() {
    let (history, ends) = good();
    let checks = check(&history, 2, &ends);
    assert_eq!(judged(&checks, Verdict::Holds).len(), checks.len(), "{checks:?}");
}

#[test]
fn nothing_to_look_at_is_not_met_and_no_violation() {
    let (_, mut ends) = good();
    ends.world.ledgers.clear();
    ends.logs.clear();
    ends.lives = 0;
    let names = judged(&check(&[], 2, &ends), Verdict::NotMet);
    assert_eq!(
        names,
        [
            "answers",
            "outcomes",
            "own content",
            "overdrafts",
            "other content",
            "effects",
            "quiet",
            "processes",
            "logs",
        ]
    );
}

#[test]
fn a_load_without_overdrafts_shows_nothing_about_them() {
    let (mut history, ends) = good();
    history.truncate(2);
    assert_eq!(
        judged(&check(&history, 2, &ends), Verdict::NotMet),
        ["overdrafts"]
    );
}

type Falsify = fn(&mut Vec<Asked>, &mut Ends);

fn falsified(cases: &[(&str, &[&str], Falsify)]) {
    for (what, names, falsify) in cases {
        let (mut history, mut ends) = good();
        falsify(&mut history, &mut ends);
        assert_eq!(violated(&history, &ends), *names, "{what}");
    }
}

fn said(when: When, said: Said) -> Answer {
    Answer { when, said }
}

/// Makes an answer another one.
fn instead(asked: &mut Asked, when: When, said: Said) {
    let answer = asked.answers.iter_mut().rfind(|answer| answer.when == when);
    answer.expect("it was asked then").said = said;
}

#[test]
fn answers_that_change_are_found() {
    falsified(&[
        ("COMMITTED, then ABORTED", &["answers"], |history, _| {
            instead(&mut history[0], When::Restarted, aborted("DEADLINE_EXCEEDED"));
        }),
        ("ABORTED, then COMMITTED", &["answers"], |history, _| {
            instead(&mut history[1], When::Mended, committed());
        }),
        ("COMMITTED, then forgotten", &["answers"], |history, _| {
            instead(&mut history[0], When::Mended, Said::Open("NOT_FOUND"));
        }),
        (
            "COMMITTED, then UNKNOWN when mended",
            &["answers"],
            |history, _| {
                instead(&mut history[0], When::Mended, Said::Open("UNKNOWN"));
            },
        ),
        (
            "COMMITTED, then UNKNOWN when restarted",
            &["answers", "outcomes"],
            |history, _| {
                instead(&mut history[0], When::Restarted, Said::Open("UNKNOWN"));
            },
        ),
        (
            "ABORTED, then refused when restarted",
            &["answers", "outcomes"],
            |history, _| {
                let refused = Said::Refused("SUSPECT".into());
                instead(&mut history[1], When::Restarted, refused);
            },
        ),
        (
            "COMMITTED, and not asked for when restarted",
            &["answers", "outcomes"],
            |history, _| {
                history[0].answers.pop();
            },
        ),
        ("COMMITTED as two attempts", &["answers"], |history, _| {
            let xid = xid_text(Xid { seq: 5, ..XID });
            instead(&mut history[0], When::Mended, Said::Committed { xid });
        }),
        ("ABORTED for two reasons", &["answers"], |history, _| {
            instead(&mut history[1], When::Mended, aborted("DEADLINE_EXCEEDED"));
        }),
        ("no outcome", &["outcomes"], |history, _| {
            history[1].answers.truncate(1);
        }),
        ("an overdraft commits", &["overdrafts"], |history, _| {
            history[2] = asked("T3", Manner::Overdraft, &[committed()]);
            history[2].moves.clear();
        }),
        ("other content is answered", &["other content"], |history, _| {
            history[0].to_other_content.push(said(When::Load, committed()));
        }),
        ("the own content is refused", &["own content"], |history, _| {
            let refused = Said::Refused("OTHER_CONTENT".into());
            history[1].answers.insert(0, said(When::Load, refused));
        }),
    ]);
}

#[test]
fn money_that_moved_otherwise_is_found() {
    falsified(&[
        ("a lost credit", &["effects", "balances", "money"], |_, ends| {
            let ledger = &mut ends.world.ledgers[1];
            ledger.entries.clear();
            ledger.accounts[0].posted += 100;
            ledger.accounts[3].posted -= 100;
        }),
        (
            "an entry without its balance",
            &["balances", "money"],
            |_, ends| {
                ends.world.ledgers[1].accounts[3].posted -= 100;
            },
        ),
        ("a doubled effect", &["effects"], |_, ends| {
            let again = ends.world.ledgers[0].entries[0].clone();
            ends.world.ledgers[0].entries.push(again);
        }),
        ("an effect of another attempt", &["effects"], |_, ends| {
            for entry in &mut ends.world.ledgers[0].entries {
                entry.xid = Some(Xid { seq: 9, ..XID });
            }
        }),
        ("an effect of an aborted id", &["effects"], |_, ends| {
            let mut entry = ends.world.ledgers[0].entries[0].clone();
            entry.transaction_id = "T2".into();
            ends.world.ledgers[0].entries.push(entry);
        }),
        ("an effect of nobody", &["effects"], |_, ends| {
            let mut entry = ends.world.ledgers[0].entries[0].clone();
            entry.transaction_id = "T9".into();
            ends.world.ledgers[0].entries.push(entry);
        }),
        ("money out of nothing", &["balances", "money"], |_, ends| {
            ends.world.ledgers[0].accounts[2].posted += 1;
        }),
    ]);
}

#[test]
fn what_is_left_behind_is_found() {
    falsified(&[
        ("a hold", &["quiet"], |_, ends| {
            ends.world.ledgers[0].holds.push(Hold::default())
        }),
        ("a pending credit", &["quiet"], |_, ends| {
            ends.world.ledgers[1].accounts[3].pending_credit = 5;
        }),
        ("a transaction in progress", &["quiet"], |_, ends| {
            ends.world.transactions.push(View::default())
        }),
        ("a panic", &["processes"], |_, ends| {
            ends.processes.push("ledger-1 panicked".into())
        }),
        ("a process", &["leaks"], |_, ends| ends.leaked.push("4711".into())),
        ("a directory without a bound", &["logs"], |_, ends| {
            ends.logs[0].bytes = 1 << 30
        }),
        (
            "a coordinator's log that nothing shortens",
            &["logs"],
            |_, ends| {
                let unbounded = (2_098_704, 2_016, 3_749, 3);
                ends.logs[0] = measured("coordinator", unbounded);
            },
        ),
        ("a ledger's log that nothing shortens", &["logs"], |_, ends| {
            let unbounded = (1_049_644, 2_232, 2_453, 3);
            ends.logs[1] = measured("ledger-1", unbounded);
        }),
    ]);
}

/// The bytes, what is kept, the records of one more start and the starts, as runs had them at their end.
fn measured(process: &str, (bytes, kept, replayed, starts): (u64, u64, u64, u64)) -> LogSize {
    LogSize {
        process: process.into(),
        bytes,
        kept,
        replayed,
        starts,
    }
}

#[test]
fn the_logs_of_good_runs_are_within_the_bounds() {
    let (history, mut ends) = good();
    ends.logs = vec![
        measured("coordinator", (2_622_290, 2_003, 182, 3)),
        measured("ledger-1", (1_573_656, 2_227, 606, 3)),
        measured("coordinator of 30 min", (53_500_000, 174_372, 182, 300)),
        measured("ledger of 30 min", (21_000_000, 194_744, 606, 300)),
    ];
    assert_eq!(violated(&history, &ends), [""; 0]);
}
