//! Starts that must be refused: a data directory that is something else, unreadable, locked, of a newer format or of
//! another role, a port in use, a wrong configuration, another data directory under a name that is joined. Each gives
//! one clear line with the value and the way out, and the right exit code; nothing is lost, and others are undisturbed.
//!
//! Damaged bytes of a log are the journal's own tests; here they only have to be told apart from these.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use covenant_tests::binary::{binary, scratch};
use covenant_tests::cluster::LEDGER_A;
use covenant_tests::process::covenant;
use covenant_tests::{Cluster, Launch, Ran, Transfer, Who, wait_until};

/// How long a start that is refused for another's sake may take to say so.
const SAY_TIMEOUT: Duration = Duration::from_secs(15);

/// A user without rights.
const NOBODY: u32 = 65_534;

/// Both servers refuse this data directory with this exit code, in one line that has these words in it.
async fn both_refuse(data_dir: &Path, exit: i32, words: &[&str]) -> Result<()> {
    let path = data_dir.to_str().context("a path is text")?;
    serve_refuses(path, exit, words).await?;
    let ledger = [
        "ledger",
        "--name",
        "x",
        "--data-dir",
        path,
        "--listen",
        "127.0.0.1:0",
        "--coordinator",
        "http://127.0.0.1:1",
    ];
    one_clear_line(&covenant(&ledger).await?.exits(exit)?, words)
}

async fn serve_refuses(path: &str, exit: i32, words: &[&str]) -> Result<()> {
    let serve = ["serve", "--data-dir", path, "--listen", "127.0.0.1:0"];
    one_clear_line(&covenant(&serve).await?.exits(exit)?, words)
}

fn one_clear_line(ran: &Ran, words: &[&str]) -> Result<()> {
    let said: Vec<&str> = ran
        .stderr
        .lines()
        .filter(|line| line.starts_with("covenant: "))
        .collect();
    ensure!(said.len() == 1, "`{}` said {:?}", ran.line, ran.stderr);
    for word in words {
        ensure!(
            said[0].contains(word),
            "`{}` does not say {word:?}: {}",
            ran.line,
            said[0]
        );
    }
    ensure!(
        ran.stdout.is_empty(),
        "`{}` said {:?} on stdout",
        ran.line,
        ran.stdout
    );
    Ok(())
}

#[tokio::test]
async fn a_data_directory_that_is_a_file_or_lies_in_one_is_refused_and_the_file_is_kept() -> Result<()> {
    let scratch = scratch()?;
    let file = scratch.path().join("file");
    fs::write(&file, "mine")?;
    both_refuse(&file, 2, &["file is not a directory", "name a directory"]).await?;
    both_refuse(&file.join("below"), 2, &["not a directory", "name a directory"]).await?;
    ensure!(fs::read(&file)? == b"mine", "the file was touched");
    Ok(())
}

#[tokio::test]
async fn a_directory_of_something_else_is_refused_and_nothing_is_written_into_it() -> Result<()> {
    let scratch = scratch()?;
    fs::write(scratch.path().join("letter.txt"), "mine")?;
    both_refuse(scratch.path(), 2, &["letter.txt", "name an empty directory"]).await?;
    let names: Vec<_> = fs::read_dir(scratch.path())?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<Result<_>>()?;
    ensure!(names == ["letter.txt"], "there are {names:?}");
    Ok(())
}

#[tokio::test]
async fn a_directory_in_memory_is_refused_as_usage() -> Result<()> {
    // Where there is no tmpfs, nothing can be tried.
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        return Ok(());
    };
    both_refuse(
        &memory.path().join("data"),
        2,
        &["tmpfs", "name a directory on a disk"],
    )
    .await
}

#[tokio::test]
async fn a_log_whose_place_nobody_chose_is_in_the_present_directory_and_that_is_said() -> Result<()> {
    let scratch = scratch()?;
    let mut command = Command::new(binary()?);
    command
        .current_dir(scratch.path())
        .args(["serve", "--listen", "127.0.0.1:0"]);
    let mut process = covenant_tests::Process::spawn("covenant serve", &mut command)?;
    process.first_line(covenant_tests::server::READY_TIMEOUT).await?;
    let place = scratch.path().join("covenant-data");
    ensure!(place.is_dir(), "{} is not there", place.display());
    let log = process.stderr().join("\n");
    for words in ["WARN", "--data-dir", place.to_str().context("a path is text")?] {
        ensure!(log.contains(words), "it does not say {words:?}: {log}");
    }
    process.terminate()?;
    let status = process.exited(covenant_tests::server::STOP_TIMEOUT).await?;
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}

#[tokio::test]
async fn an_unreadable_directory_is_refused() -> Result<()> {
    let holder = scratch()?;
    fs::create_dir(holder.path().join("lock"))?;
    both_refuse(holder.path(), 70, &["cannot open", "lock", "owner and mode"]).await?;
    fs::remove_dir(holder.path().join("lock"))?;
    fs::create_dir(holder.path().join("format"))?;
    both_refuse(holder.path(), 70, &["cannot read", "format", "owner and mode"]).await
}

#[tokio::test]
async fn a_directory_without_permission_is_refused_as_not_allowed() -> Result<()> {
    // Another user must be able to reach the binary and the directory, which the target directory may not allow.
    let open = tempfile::tempdir()?;
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755))?;
    let (program, closed) = (open.path().join("covenant"), open.path().join("closed"));
    fs::copy(binary()?, &program)?;
    fs::create_dir(&closed)?;
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000))?;
    let mut command = Command::new(&program);
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(&closed);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let ran = Ran::to_end("covenant serve as another user", &mut command)
        .await?
        .exits(5)?;
    one_clear_line(&ran, &["closed", "ermission denied", "owner and mode"])
}

#[tokio::test]
async fn a_directory_in_use_is_refused_and_its_holder_is_undisturbed() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    cluster.commits(&Transfer::new("before", 100)).await?;
    let holder = cluster.coordinator.process().id().to_string();
    let directory = cluster.coordinator.launch().data_dir().to_path_buf();
    let path = directory.to_str().context("a path is text")?;
    serve_refuses(path, 6, &["in use by process", &holder, "name another directory"]).await?;
    cluster.commits(&Transfer::new("after", 100)).await?;
    cluster.check(&[]).await?;
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn a_newer_format_another_role_and_a_damaged_format_are_refused_and_nothing_is_lost() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let before = cluster.commits(&Transfer::new("before", 100)).await?;
    cluster.check(std::slice::from_ref(&before)).await?;
    cluster.coordinator.stop_cleanly().await?;
    let directory = cluster.coordinator.launch().data_dir().to_path_buf();
    let path = directory.to_str().context("a path is text")?;
    let ledger = [
        "ledger",
        "--name",
        "x",
        "--data-dir",
        path,
        "--listen",
        "127.0.0.1:0",
    ];
    one_clear_line(
        &covenant(&ledger).await?.exits(2)?,
        &["belongs to a coordinator, not to a ledger", "another directory"],
    )?;

    let format = directory.join("format");
    let known = fs::read(&format)?;
    fs::write(
        &format,
        r#"{"format": 99, "role": "coordinator", "something": "new"}"#,
    )?;
    serve_refuses(path, 6, &["format 99", "up to 1", "newer version"]).await?;
    fs::write(&format, "{")?;
    serve_refuses(path, 70, &["format does not decode", "from a copy"]).await?;
    fs::write(&format, known)?;

    cluster.coordinator.restart().await?;
    cluster.wait_joined().await?;
    let after = cluster.commits(&Transfer::new("after", 100)).await?;
    cluster.check(&[before, after]).await?;
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn a_ledgers_directory_under_another_name_is_refused_and_its_books_are_kept() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let before = cluster.commits(&Transfer::new("before", 100)).await?;
    cluster.ledger_a.stop_cleanly().await?;
    let directory = cluster.ledger_a.launch().data_dir().to_path_buf();
    let path = directory.to_str().context("a path is text")?;
    let (listen, url) = ("127.0.0.1:0", cluster.coordinator.url());
    let other = [
        "ledger",
        "--name",
        "other",
        "--data-dir",
        path,
        "--listen",
        listen,
        "--coordinator",
        &url,
    ];
    let words = [LEDGER_A, "other", "name another directory"];
    one_clear_line(&covenant(&other).await?.exits(2)?, &words)?;
    cluster.ledger_a.restart().await?;
    cluster.wait_joined().await?;
    cluster.check(&[before]).await?;
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn a_ledger_whose_log_lost_its_newest_records_does_not_start() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    cluster.commits(&Transfer::new("before", 100)).await?;
    cluster.ledger_a.kill()?;
    let directory = cluster.ledger_a.launch().data_dir().to_path_buf();
    let log = directory.join("db");
    let older = fs::read(&log)?;
    cluster.ledger_a.restart().await?;
    cluster.wait_joined().await?;
    let after = cluster.commits(&Transfer::new("after", 100)).await?;
    cluster.ledger_a.kill()?;
    let newer = fs::read(&log)?;

    fs::write(&log, older)?;
    let path = directory.to_str().context("a path is text")?;
    let (listen, url) = ("127.0.0.1:0", cluster.coordinator.url());
    let ledger = [
        "ledger",
        "--name",
        LEDGER_A,
        "--data-dir",
        path,
        "--listen",
        listen,
        "--coordinator",
        &url,
    ];
    let words = ["the log ends at record", "are gone", "restore from a backup"];
    for _ in 0..2 {
        one_clear_line(&covenant(&ledger).await?.exits(70)?, &words)?;
    }

    fs::write(&log, newer)?;
    cluster.ledger_a.restart().await?;
    cluster.wait_joined().await?;
    cluster.check(&[after]).await?;
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn a_port_in_use_is_refused_with_the_way_out() -> Result<()> {
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let listen = taken.local_addr()?.to_string();
    let scratch = scratch()?;
    let path = scratch.path().to_str().context("a path is text")?;
    for command in [
        vec!["serve", "--data-dir", path, "--listen", &listen],
        vec!["ledger", "--name", "x", "--data-dir", path, "--listen", &listen],
    ] {
        one_clear_line(
            &covenant(&command).await?.exits(6)?,
            &[&listen, "another --listen"],
        )?;
    }
    Ok(())
}

#[tokio::test]
async fn a_wrong_configuration_is_refused_with_the_key_its_value_and_the_bound() -> Result<()> {
    let scratch = scratch()?;
    let file = scratch.path().join("covenant.toml");
    let (path, data) = (
        file.to_str().context("a path is text")?,
        scratch.path().join("data"),
    );
    let data = data.to_str().context("a path is text")?;
    for (text, words) in [
        (
            "[transactions]\nmax_in_progres = 5\n",
            vec!["max_in_progres", "line 2"],
        ),
        (
            "[transactions]\nmax_deadline_ms = 60001\n",
            vec!["transactions.max_deadline_ms", "60001", "1 to 60000"],
        ),
        (
            "[log]\ncheckpoint_records = \"many\"\n",
            vec!["covenant.toml", "line 2"],
        ),
        ("name = ", vec!["covenant.toml", "line 1"]),
    ] {
        fs::write(&file, text)?;
        let serve = [
            "serve",
            "--data-dir",
            data,
            "--listen",
            "127.0.0.1:0",
            "--config",
            path,
        ];
        one_clear_line(&covenant(&serve).await?.exits(2)?, &words).with_context(|| text.to_owned())?;
    }
    ensure!(!Path::new(data).exists(), "a refused start made a directory");
    for (arguments, words) in [
        (
            vec!["serve", "--data-dir", data, "--crash-at", "c.nowhere"],
            vec!["c.nowhere", "c.commit.forced"],
        ),
        (
            vec![
                "serve",
                "--data-dir",
                data,
                "--listen",
                "0.0.0.0:0",
                "--crash-at",
                "c.commit.forced",
            ],
            vec!["--crash-at", "loopback", "0.0.0.0:0"],
        ),
        (
            vec![
                "ledger",
                "--name",
                "x",
                "--data-dir",
                data,
                "--crash-at",
                "c.commit.forced",
            ],
            vec!["--crash-at", "c.commit.forced", "never reaches", "p.vote.sent"],
        ),
        (
            vec![
                "ledger",
                "--name",
                "x",
                "--data-dir",
                data,
                "--coordinator",
                "127.0.0.1:7400",
            ],
            vec!["--coordinator", "http://"],
        ),
    ] {
        one_clear_line(&covenant(&arguments).await?.exits(2)?, &words)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_ledger_with_a_wrong_coordinator_port_says_that_it_is_not_joined_and_why() -> Result<()> {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let scratch = scratch()?;
    let launch = Launch::ledger(
        "lonely",
        &scratch.path().join("data"),
        &format!("http://{nobody}"),
    )?;
    let mut ledger = launch.open("alice=5:THB").start().await?;
    ensure!(ledger.ready()["joined"] == false, "it says {}", ledger.ready());
    let log = ledger.process().stderr().join("\n");
    ensure!(
        log.contains("cannot be reached") && log.contains("refused"),
        "it says no reason: {log}"
    );
    let away = ledger.ready()["away"].as_str().unwrap_or_default();
    ensure!(away.matches("refused").count() == 1, "it says it twice: {away}");
    let url = ledger.url();
    let ran = covenant(&["accounts", "--ledger", &url, "-o", "json"])
        .await?
        .exits(0)?;
    ensure!(
        ran.json()?["accounts"][0]["posted"] == 5,
        "it does not serve: {}",
        ran.stdout
    );
    ledger.stop_cleanly().await
}

#[tokio::test]
async fn another_data_directory_under_a_joined_name_is_refused_while_the_first_lives() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.commits(&Transfer::new("before", 100)).await?;
    let launch = Launch::ledger(
        LEDGER_A,
        &cluster.directory().join("other"),
        &cluster.coordinator.url(),
    )?;
    let mut other = launch.open("alice=9:THB").start().await?;
    ensure!(other.ready()["joined"] == false, "it says {}", other.ready());
    wait_until("the reason", SAY_TIMEOUT, async || {
        let log = other.process().stderr().join("\n");
        ensure!(
            log.contains("OTHER_LINEAGE_JOINED") && log.contains("another name"),
            "it says {log}"
        );
        Ok(())
    })
    .await?;
    cluster.commits(&Transfer::new("after", 100)).await?;
    let alice = cluster.check(&[]).await?.account("alice")?.posted;
    ensure!(alice == 499_800, "alice has {alice}: the other ledger took part");
    other.stop_cleanly().await?;
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn port_0_is_honoured_and_a_server_says_one_line() -> Result<()> {
    let scratch = scratch()?;
    let path = scratch.path().join("data");
    let mut command = Command::new(binary()?);
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(&path);
    let mut process = covenant_tests::Process::spawn("a coordinator", &mut command)?;
    let line = process.first_line(covenant_tests::server::READY_TIMEOUT).await?;
    let ready: serde_json::Value = serde_json::from_str(&line)?;
    let listen = ready["listen"].as_str().context("it says where it listens")?;
    ensure!(
        ready["ready"] == true && !listen.ends_with(":0"),
        "it says {line}"
    );
    let ran = covenant(&["tx", "list", "--endpoint", &format!("http://{listen}")]).await?;
    ran.exits(0)?;
    process.terminate()?;
    let status = process.exited(covenant_tests::server::STOP_TIMEOUT).await?;
    ensure!(
        status.success() && process.stdout().len() == 1,
        "{status}, {:?}",
        process.stdout()
    );
    Ok(())
}

#[tokio::test]
async fn a_killed_ledger_is_back_on_another_port_and_finishes() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    cluster.ledger_b.kill()?;
    let (client, transfer) = (cluster.client().clone(), Transfer::new("T", 100));
    let sent = transfer.transaction();
    let caller = tokio::spawn(async move { client.execute(&sent, Duration::from_secs(20)).await });
    let old = cluster.ledger_b.launch().data_dir().to_path_buf();
    let mut moved = Launch::ledger(
        covenant_tests::cluster::LEDGER_B,
        &old,
        &cluster.coordinator.url(),
    )?
    .start()
    .await?;
    let outcome = caller.await??;
    ensure!(outcome.word() == "COMMITTED", "it is {outcome:?}");
    ensure!(
        cluster.ledger(Who::LedgerB).await.is_err(),
        "the old address answers"
    );
    moved.stop_cleanly().await
}
