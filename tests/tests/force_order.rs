//! strace of each of the three processes during one transfer, and during a start on a log that is there: on every path
//! write, then fdatasync of the log, then the message that depends on it (S5), and the start in the order of section 2.
//!
//! Messages are found by what they say, not by when they were sent. It cannot show that the disk keeps what fdatasync
//! promised, and it looks at single transfers, not at load.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use covenant_client::Wait;
use covenant_proto::v1::{
    ExecuteManyResponse, ExecuteResponse, JoinRequest, JoinResponse, Outcome, Transaction, VoteKind,
    coordinator_message, numbered_answer, participant_message,
};
use covenant_tests::cluster::{LEDGER_A, LEDGER_B, Plan};
use covenant_tests::os_package::require;
use covenant_tests::trace::{FORCES, Sent, Trace, WRITES, has_ended, strace};
use covenant_tests::{Cluster, Launch, Transfer, Who, wait_until};
use prost::Message;

/// The transaction that is looked at.
const ID: &str = "the-one-transfer";

/// How long strace may take to write the rest of its trace after the process ended.
const TRACE_TIMEOUT: Duration = Duration::from_secs(10);

const ALL: [Who; 3] = [Who::Coordinator, Who::LedgerA, Who::LedgerB];

/// What a process said to another about the transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Prepare,
    Yes,
    Commit,
    Abort,
    Ack,
    Committed,
    Aborted,
}

/// What is in the messages of one process, with where each left.
fn said(sent: &[Sent], who: Who) -> Vec<(Said, usize)> {
    let mut all = Vec::new();
    for message in sent {
        let words = match who {
            Who::Coordinator => coordinator_words(&message.bytes),
            Who::LedgerA | Who::LedgerB => participant_words(&message.bytes),
        };
        all.extend(words.into_iter().map(|word| (word, message.began)));
    }
    all
}

/// What a message says to callers: one alone, or several on a stream.
fn answers(bytes: &[u8]) -> impl Iterator<Item = Transaction> {
    let alone = ExecuteResponse::decode(bytes).map(|answer| answer.transaction);
    let numbered = ExecuteManyResponse::decode(bytes).map(|frame| frame.answers);
    let numbered = numbered.unwrap_or_default().into_iter();
    let numbered = numbered.filter_map(|answer| match answer.answer? {
        numbered_answer::Answer::Transaction(transaction) => Some(transaction),
        numbered_answer::Answer::Error(_) => None,
    });
    alone.unwrap_or_default().into_iter().chain(numbered)
}

fn coordinator_words(bytes: &[u8]) -> Vec<Said> {
    // Callers and participants are answered on different connections; an answer to a caller names the transaction.
    if let Some(transaction) = answers(bytes).find(|transaction| transaction.transaction_id == ID) {
        return match transaction.outcome() {
            Outcome::Committed => vec![Said::Committed],
            Outcome::Aborted => vec![Said::Aborted],
            _ => Vec::new(),
        };
    }
    let Ok(frame) = JoinResponse::decode(bytes) else {
        return Vec::new();
    };
    let messages = frame
        .messages
        .into_iter()
        .filter_map(|message| match message.content? {
            coordinator_message::Content::Prepare(_) => Some(Said::Prepare),
            coordinator_message::Content::Commit(_) => Some(Said::Commit),
            coordinator_message::Content::Abort(_) => Some(Said::Abort),
            _ => None,
        });
    messages.collect()
}

fn participant_words(bytes: &[u8]) -> Vec<Said> {
    let Ok(frame) = JoinRequest::decode(bytes) else {
        return Vec::new();
    };
    let messages = frame
        .messages
        .into_iter()
        .filter_map(|message| match message.content? {
            participant_message::Content::Vote(vote) if vote.kind() == VoteKind::Yes => Some(Said::Yes),
            participant_message::Content::Ack(_) => Some(Said::Ack),
            _ => None,
        });
    messages.collect()
}

fn first(said: &[(Said, usize)], word: Said) -> Result<usize> {
    said.iter()
        .find(|(known, _)| *known == word)
        .map(|(_, at)| *at)
        .with_context(|| format!("no {word:?} left"))
}

/// S5 over one transfer that committed: nothing that depends on a record left before the record was written and forced.
fn check_commit(trace: &Trace, who: Who) -> Result<()> {
    let said = said(&trace.sent(), who);
    if who == Who::Coordinator {
        let prepare = first(&said, Said::Prepare)?;
        for word in [Said::Commit, Said::Committed] {
            trace
                .forced_between("/db", ID.as_bytes(), prepare, first(&said, word)?)
                .with_context(|| format!("{word:?}"))?;
        }
        let commits = said.iter().filter(|(word, _)| *word == Said::Commit).count();
        ensure!(
            commits >= 2,
            "COMMIT left {commits} times, and there are two YES voters"
        );
        return Ok(());
    }
    let yes = first(&said, Said::Yes)?;
    let prepared = trace
        .forced_between("/db", ID.as_bytes(), 0, yes)
        .context("YES")?;
    let acknowledged = first(&said, Said::Ack)?;
    let committed = trace
        .forced_between("/db", ID.as_bytes(), yes, acknowledged)
        .context("ACK")?;
    ensure!(prepared < committed, "PREPARED and COMMITTED are one write");
    Ok(())
}

/// S5 over one transfer that was aborted: the caller is told after the force; the ledgers wait for none.
fn check_abort(trace: &Trace) -> Result<()> {
    let said = said(&trace.sent(), Who::Coordinator);
    let prepare = first(&said, Said::Prepare)?;
    first(&said, Said::Abort)?;
    trace.forced_between("/db", ID.as_bytes(), prepare, first(&said, Said::Aborted)?)?;
    Ok(())
}

/// A checker that takes everything shows nothing: without its forces the same trace must be refused, and with
/// `sync_file_range` alone too.
fn check_teeth(trace: &Trace, check: impl Fn(&Trace) -> Result<()>) -> Result<()> {
    let without = check(&trace.without(FORCES));
    ensure!(
        without.is_err_and(|error| format!("{error:#}").contains("was not forced")),
        "no force was missed"
    );
    ensure!(check(&trace.without(WRITES)).is_err(), "no write was missed");
    Ok(())
}

struct Traced {
    cluster: Cluster,
    directory: PathBuf,
}

fn file(directory: &Path, who: Who) -> PathBuf {
    directory.join(format!("{who:?}.trace"))
}

fn under_strace(launch: &Launch, into: &Path) -> Launch {
    let words = strace(into);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    launch.clone().under(&words)
}

async fn traced_cluster() -> Result<Traced> {
    require("strace")?;
    let mut plan = Plan::new()?;
    let directory = plan.directory().to_path_buf();
    for who in ALL {
        plan = plan.with(who, |launch| under_strace(&launch, &file(&directory, who)));
    }
    Ok(Traced {
        cluster: plan.start().await?,
        directory,
    })
}

/// Stops all three and reads what was seen of each.
async fn traces(mut traced: Traced) -> Result<Vec<(Who, Trace)>> {
    let mut traces = Vec::new();
    for who in [Who::LedgerA, Who::LedgerB, Who::Coordinator] {
        let process = traced.cluster.server(who);
        let id = process.process().id();
        process.stop_cleanly().await.with_context(|| format!("{who:?}"))?;
        let path = file(&traced.directory, who);
        let text = wait_until("the end of a trace", TRACE_TIMEOUT, async || {
            let text = fs::read_to_string(&path)?;
            ensure!(has_ended(&text, id), "it goes on");
            Ok(text)
        });
        traces.push((who, Trace::parse(&text.await?)?));
    }
    Ok(traces)
}

#[tokio::test]
async fn s5_a_commit_leaves_nobody_before_its_record_is_forced() -> Result<()> {
    let traced = traced_cluster().await?;
    let transfer = Transfer {
        wait: Wait::Completed,
        ..Transfer::new(ID, 100_000)
    };
    traced.cluster.commits(&transfer).await?;
    for (who, trace) in traces(traced).await? {
        check_commit(&trace, who).with_context(|| format!("{who:?}"))?;
        check_teeth(&trace, |trace| check_commit(trace, who)).with_context(|| format!("{who:?}"))?;
        let blobs = trace
            .calls
            .iter()
            .find(|call| call.on.contains("/blobs/") && WRITES.contains(&call.name.as_str()));
        ensure!(blobs.is_none(), "{who:?} wrote to {blobs:?}, which nothing syncs");
    }
    Ok(())
}

#[tokio::test]
async fn s5_an_abort_is_told_to_its_caller_after_it_is_forced() -> Result<()> {
    let traced = traced_cluster().await?;
    let outcome = traced.cluster.execute(&Transfer::new(ID, 10_000_000)).await?;
    ensure!(outcome.word() == "ABORTED", "it is {outcome:?}");
    traced.cluster.quiet(TRACE_TIMEOUT).await?;
    for (who, trace) in traces(traced).await? {
        if who == Who::Coordinator {
            check_abort(&trace)?;
            check_teeth(&trace, check_abort)?;
        }
    }
    Ok(())
}

fn directory(who: Who) -> &'static str {
    match who {
        Who::Coordinator => "/c1",
        Who::LedgerA => LEDGER_A,
        Who::LedgerB => LEDGER_B,
    }
}

/// The steps of a start on a log that is there (section 2), each with where it was seen.
fn check_start(trace: &Trace, who: Who) -> Result<()> {
    let place = |what: &str, found: Option<usize>| found.with_context(|| format!("the start has no {what}"));
    let locks = trace
        .on(&["flock", "fcntl"], "/lock")
        .map(|call| call.ended)
        .next();
    let removed = trace
        .on(&["unlink", "unlinkat"], "snap.0000000000000001")
        .map(|call| call.ended)
        .next();
    // The start's own snapshot has its name for sure before the others go and sled opens the log where it can clear it.
    let named = trace
        .on(&["rename", "renameat2"], "")
        .find(|call| call.on.contains("/start/snap."))
        .map(|call| call.ended);
    let named = place("name of its own snapshot", named)?;
    let durable = trace
        .on(FORCES, "")
        .find(|call| call.began > named && call.on.ends_with(directory(who)));
    let durable = durable.map(|call| call.began);
    let synced = trace.on(FORCES, "/db").map(|call| call.began).next();
    let dropped = (trace.on(&["fadvise64"], "/db"))
        .find(|call| call.arguments.contains("POSIX_FADV_DONTNEED"))
        .map(|call| call.began);
    let steps = [
        ("lock", place("lock", locks)?),
        ("sync of what is there", place("sync", synced)?),
        (
            "drop from the page cache",
            place("drop from the page cache", dropped)?,
        ),
        (
            "first read",
            place(
                "read",
                trace
                    .on(&["read", "pread64", "mmap"], "/db")
                    .map(|call| call.began)
                    .next(),
            )?,
        ),
        ("name of its own snapshot", named),
        ("sync of that name", place("sync of that name", durable)?),
        // Only what is read then tells whether the log needs one (PROTOCOL.md section 11).
        ("removal of snapshots", place("removal of snapshots", removed)?),
    ];
    for pair in steps.windows(2) {
        ensure!(
            pair[0].1 < pair[1].1,
            "{} at {} is not before {} at {}",
            pair[0].0,
            pair[0].1,
            pair[1].0,
            pair[1].1
        );
    }
    // Whether a page is still there is asked of the kernel, which reports an error for those that are gone.
    let asked = trace
        .calls
        .iter()
        .find(|call| call.name == "preadv2" && call.on.ends_with("/db"));
    ensure!(asked.is_some(), "nobody asked whether the pages are gone");
    let (introduced, incarnation) = introduction(trace, who)?;
    let read = steps[steps.len() - 1].1;
    for (what, at) in [
        ("its first word to the other side", introduced),
        ("its line of readiness", ready(trace)?),
    ] {
        trace
            .forced_between("/db", &incarnation, read, at)
            .with_context(|| format!("INCARNATION before {what}"))?;
    }
    Ok(())
}

/// The trace of a start that forces what it found and nothing of its own.
fn without_the_last_force(trace: &Trace) -> Trace {
    let first = trace.on(FORCES, "/db").map(|call| call.began).next();
    let calls = trace
        .calls
        .iter()
        .filter(|call| !FORCES.contains(&call.name.as_str()) || Some(call.began) == first);
    Trace {
        calls: calls.cloned().collect(),
    }
}

/// Where a process said for the first time who it is, and the random bits of its incarnation as its log has them too.
fn introduction(trace: &Trace, who: Who) -> Result<(usize, [u8; 8])> {
    let said = trace.sent().into_iter().find_map(|message| {
        let bytes = message.bytes.as_slice();
        let incarnation = match who {
            Who::Coordinator => JoinResponse::decode(bytes).ok()?.welcome?.incarnation?,
            Who::LedgerA | Who::LedgerB => JoinRequest::decode(bytes).ok()?.hello?.incarnation?,
        };
        Some((message.began, incarnation.bits.to_le_bytes()))
    });
    said.context("it said nobody who it is")
}

fn ready(trace: &Trace) -> Result<usize> {
    let line = |data: &[u8]| data.windows(7).any(|window| window == b"\"ready\"");
    let written = trace
        .calls
        .iter()
        .find(|call| call.name == "write" && call.on.starts_with("pipe") && line(&call.data));
    written
        .map(|call| call.began)
        .context("no line of readiness was written")
}

#[tokio::test]
async fn a_start_syncs_drops_and_replays_before_it_forces_its_incarnation_and_says_anything() -> Result<()> {
    require("strace")?;
    let mut cluster = Cluster::start().await?;
    let directory = cluster.directory().to_path_buf();
    cluster
        .commits(&Transfer {
            wait: Wait::Completed,
            ..Transfer::new("before", 100)
        })
        .await?;
    for who in ALL {
        let server = cluster.server(who);
        server.kill()?;
        // Such a file, newer than the log, makes sled hang.
        fs::write(server.launch().data_dir().join("snap.0000000000000001"), b"half")?;
        let traced = under_strace(&server.launch().clone(), &file(&directory, who));
        server.respawn_as(&traced)?;
    }
    for who in ALL {
        cluster.server(who).wait_ready().await?;
    }
    cluster.wait_joined().await?;
    cluster.commits(&Transfer::new(ID, 100)).await?;
    for (who, trace) in traces(Traced { cluster, directory }).await? {
        check_start(&trace, who).with_context(|| format!("{who:?}"))?;
        ensure!(
            check_start(&without_the_last_force(&trace), who).is_err(),
            "{who:?}: no force was missed"
        );
        for step in [
            &["fadvise64"][..],
            &["unlink", "unlinkat"],
            &["flock", "fcntl"],
            &["fsync"],
        ] {
            ensure!(
                check_start(&trace.without(step), who).is_err(),
                "{who:?}: {step:?} was not missed"
            );
        }
    }
    Ok(())
}
