//! PostgreSQL as both ledgers: two databases of one server, one branch in each.
//!
//! The server is one of its own, made by initdb in a directory beside the other logs, with fsync on. It is given every
//! advantage: no coordinator and no log of one, no look-up of earlier ids, both branches at once, and each branch in two round
//! trips of prepared statements: everything up to PREPARE TRANSACTION, and COMMIT PREPARED. No two clients move money on the
//! same account, so that none waits for another's row; two branches that wait for each other in two databases would wait for
//! ever.

mod connection;
mod server;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::super::pace::{self, Pace, Ran};
use super::super::report::Latency;
use super::super::tally::histogram;
use super::super::{Args, LoadArgs};
use super::view::Measured;
use crate::exit::Failure;
use connection::Connection;
pub(super) use server::Installed;
use server::Server;

/// The databases; each is one ledger.
const DATABASES: [&str; 2] = ["ledger_0", "ledger_1"];

/// The most clients that have an account of their own.
const MOST_CLIENTS: u32 = 1_000;

/// What a branch runs before it is prepared: statements by name, parameters are numbers.
const STATEMENTS: [(&str, &str); 3] = [
    ("begin", "BEGIN"),
    ("move", "UPDATE accounts SET balance = balance + $2 WHERE id = $1"),
    (
        "note",
        "INSERT INTO entries (transfer, account, amount) VALUES ($3, $1, $2)",
    ),
];

/// Runs the transfer with each number of clients.
pub(super) async fn measured(
    installed: &Installed,
    clients: &[usize],
    args: &Args,
) -> Result<Vec<Measured>, Failure> {
    let mut server = Server::start(installed).await?;
    let measured = measure(&server, clients, args).await;
    server.end().await;
    measured
}

async fn measure(server: &Server, clients: &[usize], args: &Args) -> Result<Vec<Measured>, Failure> {
    for database in DATABASES {
        prepare(server, database, args.load.accounts.max(MOST_CLIENTS)).await?;
    }
    let warm_up = LoadArgs {
        duration: args.warm_up,
        ..args.load.clone()
    };
    let mut all = Vec::new();
    for count in clients {
        run(server, *count, &warm_up).await?;
        all.push(run(server, *count, &args.load).await?);
    }
    let mut sum = 0;
    for database in DATABASES {
        let mut connection = Connection::open(&server.socket(), database).await?;
        let rows = connection
            .query("SELECT coalesce(sum(balance), 0)::bigint FROM accounts")
            .await?;
        let balance = rows.first().and_then(|row| row.parse::<i64>().ok());
        sum += balance.ok_or_else(|| Failure::internal("POSTGRES", format!("no sum in {rows:?}")))?;
    }
    if sum != 0 {
        let why = format!("the accounts of PostgreSQL add up to {sum}, not 0");
        return Err(Failure::internal("MONEY", why));
    }
    Ok(all)
}

async fn prepare(server: &Server, database: &str, accounts: u32) -> Result<(), Failure> {
    let mut first = Connection::open(&server.socket(), "postgres").await?;
    first.query(&format!("CREATE DATABASE {database}")).await?;
    let mut connection = Connection::open(&server.socket(), database).await?;
    for statement in [
        // Room on each page, so that an update need not touch the index.
        "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 50)",
        "CREATE TABLE entries (transfer bigint NOT NULL, account bigint NOT NULL, amount bigint NOT NULL)",
        &format!("INSERT INTO accounts SELECT id, 0 FROM generate_series(0, {accounts} - 1) AS id"),
        "VACUUM ANALYZE accounts",
    ] {
        connection.query(statement).await?;
    }
    Ok(())
}

/// One client: its number and its two connections.
struct Client {
    number: usize,
    ledgers: [Connection; 2],
}

async fn run(server: &Server, clients: usize, plan: &LoadArgs) -> Result<Measured, Failure> {
    let mut free = Vec::new();
    for number in 0..clients {
        let mut ledgers = [
            Connection::open(&server.socket(), DATABASES[0]).await?,
            Connection::open(&server.socket(), DATABASES[1]).await?,
        ];
        for connection in &mut ledgers {
            connection.prepare(&STATEMENTS).await?;
        }
        free.push(Client { number, ledgers });
    }
    let free = Arc::new(Mutex::new(free));
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    // Everybody has as many accounts, at least one.
    let each = (plan.accounts as usize / clients).max(1) as u64;
    let execute = move |number: u64| {
        let free = Arc::clone(&free);
        async move {
            let taken = lock(&free).pop();
            let mut client = taken.ok_or_else(|| Failure::internal("POSTGRES", "no connection is free"))?;
            let account = client.number as u64 * each + number % each;
            transfer(&mut client.ledgers, (run << 40) + number, account).await?;
            lock(&free).push(client);
            Ok(())
        }
    };
    let counted = Arc::new(Mutex::new((histogram(), None)));
    let into = Arc::clone(&counted);
    let record = move |ran: Ran<Result<(), Failure>>, latency: Duration| {
        let mut counted = lock(&into);
        match ran {
            Ran::Done(Ok(())) => {
                let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
                counted.0.saturating_record(micros);
            }
            // Later ones only follow from the first.
            Ran::Done(Err(failure)) => {
                counted.1.get_or_insert(failure);
            }
            Ran::NotStarted => {}
        }
    };
    let began = Instant::now();
    pace::run(Pace::Closed, clients, plan.duration, execute, record).await;
    let seconds = began.elapsed().as_secs_f64();
    let counted = lock(&counted);
    match &counted.1 {
        Some(failure) => Err(failure.clone()),
        None => Ok(Measured::new(
            clients,
            counted.0.len() as f64 / seconds,
            Latency::of(&counted.0),
        )),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Both branches at once, then both commits at once. A name of a prepared transaction is one of the whole server.
async fn transfer(pair: &mut [Connection; 2], number: u64, account: u64) -> Result<(), Failure> {
    let [from, to] = pair;
    let (account, number) = (account.to_string(), number.to_string());
    let branch = async |connection: &mut Connection, side: &str, amount: &str| {
        let parameters = [account.as_str(), amount, &number];
        let statements: [(&str, &[&str]); 3] =
            [("begin", &[]), ("move", &parameters[..2]), ("note", &parameters)];
        let prepare = format!("PREPARE TRANSACTION '{side}{number}'");
        connection.pipeline(&statements, &prepare).await
    };
    tokio::try_join!(branch(from, "from", "-1"), branch(to, "to", "1"))?;
    let commit = |side: &str| format!("COMMIT PREPARED '{side}{number}'");
    let (commit_from, commit_to) = (commit("from"), commit("to"));
    tokio::try_join!(from.pipeline(&[], &commit_from), to.pipeline(&[], &commit_to))?;
    Ok(())
}
