//! Connections that say nothing end by themselves; one that answers stays.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::played::{Coordinator, PATIENCE, Played, commit_one};

/// Connects, says this, and reads until the server ends the connection.
async fn silent_after(address: String, said: Vec<u8>) {
    let mut connection = TcpStream::connect(address.trim_start_matches("http://"))
        .await
        .unwrap();
    connection.write_all(&said).await.unwrap();
    let mut heard = Vec::new();
    // A reset is an end, too.
    let _ = connection.read_to_end(&mut heard).await;
}

#[tokio::test]
async fn a_connection_that_stays_silent_is_closed_and_one_that_answers_is_not() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const EMPTY_SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut a = Played::join(&coordinator.address, "a", 1).await;
    let said = [
        Vec::new(),
        PREFACE[..23].to_vec(),
        [PREFACE, EMPTY_SETTINGS].concat(),
    ];
    let silent = said.map(|said| tokio::spawn(silent_after(coordinator.address.clone(), said)));
    for connection in silent {
        let ended = tokio::time::timeout(PATIENCE, connection).await;
        ended.expect("it is never closed").unwrap();
    }
    commit_one(&coordinator, &mut a, "a", "T1").await;
    coordinator.stop().await;
}
