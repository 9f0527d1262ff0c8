//! As much of PostgreSQL's protocol, version 3, as the reference needs: one connection over a Unix socket, trusted.
//!
//! Statements are prepared by name and run in one round trip with whatever follows them. An error of the server is a failure,
//! and the connection is of no use after it.

use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::exit::Failure;

/// The protocol's version 3.0.
const VERSION: i32 = 196_608;

/// The user that initdb made.
const USER: &str = "postgres";

/// The longest message that is taken from the server, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// A connection to one database.
pub(super) struct Connection {
    stream: BufReader<UnixStream>,
    out: Vec<u8>,
    body: Vec<u8>,
}

impl Connection {
    /// Connects to a database of the server behind this socket.
    pub(super) async fn open(socket: &Path, database: &str) -> Result<Self, Failure> {
        let stream = UnixStream::connect(socket).await.map_err(failed)?;
        let mut connection = Self {
            stream: BufReader::new(stream),
            out: Vec::new(),
            body: Vec::new(),
        };
        let mut startup = VERSION.to_be_bytes().to_vec();
        for text in ["user", USER, "database", database, ""] {
            push_text(&mut startup, text);
        }
        // The length counts itself; this message alone has no kind.
        connection.out.extend((startup.len() as i32 + 4).to_be_bytes());
        connection.out.extend(startup);
        connection.round_trip().await?;
        Ok(connection)
    }

    /// Runs one statement; the first column of each row.
    pub(super) async fn query(&mut self, statement: &str) -> Result<Vec<String>, Failure> {
        self.message(b'Q', |body| push_text(body, statement));
        self.round_trip().await
    }

    /// Prepares statements under their names.
    pub(super) async fn prepare(&mut self, statements: &[(&str, &str)]) -> Result<(), Failure> {
        for (name, text) in statements {
            self.parse(name, text);
        }
        self.message(b'S', |_| ());
        self.round_trip().await.map(drop)
    }

    /// Runs prepared statements with their parameters, and then one that cannot be prepared, in one round trip.
    pub(super) async fn pipeline(&mut self, prepared: &[(&str, &[&str])], last: &str) -> Result<(), Failure> {
        for (name, parameters) in prepared {
            self.execute(name, parameters);
        }
        self.parse("", last);
        self.execute("", &[]);
        self.message(b'S', |_| ());
        self.round_trip().await.map(drop)
    }

    fn parse(&mut self, name: &str, text: &str) {
        self.message(b'P', |body| {
            push_text(body, name);
            push_text(body, text);
            body.extend(0_i16.to_be_bytes());
        });
    }

    fn execute(&mut self, name: &str, parameters: &[&str]) {
        self.message(b'B', |body| {
            push_text(body, "");
            push_text(body, name);
            // All parameters as text.
            body.extend(0_i16.to_be_bytes());
            body.extend((parameters.len() as i16).to_be_bytes());
            for parameter in parameters {
                body.extend((parameter.len() as i32).to_be_bytes());
                body.extend(parameter.as_bytes());
            }
            body.extend(0_i16.to_be_bytes());
        });
        self.message(b'E', |body| {
            push_text(body, "");
            body.extend(0_i32.to_be_bytes());
        });
    }

    fn message(&mut self, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(kind);
        let start = self.out.len();
        self.out.extend([0; 4]);
        write(&mut self.out);
        let length = (self.out.len() - start) as i32;
        self.out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// Sends what was put together, and reads up to ReadyForQuery: the first column of each row on the way.
    async fn round_trip(&mut self) -> Result<Vec<String>, Failure> {
        self.stream.write_all(&self.out).await.map_err(failed)?;
        self.out.clear();
        let (mut rows, mut refused) = (Vec::new(), None);
        loop {
            let kind = self.stream.read_u8().await.map_err(failed)?;
            let length = self.stream.read_i32().await.map_err(failed)?;
            let length = usize::try_from(length).unwrap_or_default().saturating_sub(4);
            if length > MAX_MESSAGE_BYTES {
                return Err(failed(format!(
                    "a message of {length} bytes, more than {MAX_MESSAGE_BYTES}"
                )));
            }
            self.body.resize(length, 0);
            self.stream.read_exact(&mut self.body).await.map_err(failed)?;
            match kind {
                b'Z' => return refused.map_or(Ok(rows), Err),
                b'D' => rows.push(first_column(&self.body)),
                b'E' => {
                    let why = String::from_utf8_lossy(&self.body).replace('\0', " ");
                    // A refused start is followed by nothing.
                    if why.contains("FATAL") {
                        return Err(failed(why));
                    }
                    refused.get_or_insert(failed(why));
                }
                b'R' if self.body != 0_i32.to_be_bytes() => {
                    return Err(failed(
                        "the server asks for a password; it should trust its socket",
                    ));
                }
                _ => {}
            }
        }
    }
}

fn push_text(body: &mut Vec<u8>, text: &str) {
    body.extend(text.as_bytes());
    body.push(0);
}

/// The first value of a DataRow: behind the number of values and its own length.
fn first_column(body: &[u8]) -> String {
    let length = body
        .get(2..6)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, i32::from_be_bytes);
    let end = 6 + usize::try_from(length).unwrap_or_default();
    String::from_utf8_lossy(body.get(6..end).unwrap_or_default()).into_owned()
}

fn failed(error: impl ToString) -> Failure {
    Failure::internal("POSTGRES", format!("PostgreSQL: {}", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_of_a_row_is_found_and_a_short_row_is_empty() {
        assert_eq!(first_column(&[0, 1, 0, 0, 0, 2, b'4', b'2']), "42");
        assert_eq!(first_column(&[0, 1, 0, 0, 0, 9, b'4']), "");
        assert_eq!(first_column(&[0]), "");
    }
}
