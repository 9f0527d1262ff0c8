//! What strace saw of one process: its calls in order, and the gRPC messages in what it wrote to its sockets.
//!
//! A call has two places in the trace, where it began and where it ended: with threads, strace may write them as two
//! lines. That A is before B means that A had ended when B began. Written for `strace -f -yy -xx -s BIG`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::frames;

/// How to trace a server; the file is the last but one of the words. The server stays the direct child (`-D`), so that
/// its end and its signals are its own.
#[must_use]
pub fn strace(into: &Path) -> Vec<String> {
    let calls = "trace=openat,open,flock,fcntl,unlink,unlinkat,rename,renameat2,fadvise64,preadv2,read,pread64,mmap,write,writev,\
                 pwrite64,pwritev,pwritev2,sendto,sendmsg,fsync,fdatasync,sync_file_range,ftruncate,fallocate,close";
    [
        "strace", "-D", "-f", "-yy", "-xx", "-s", "4194304", "-e", calls, "-o",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain([into.display().to_string(), "--".to_owned()])
    .collect()
}

/// Whether a trace is whole: it says how this process ended.
#[must_use]
pub fn has_ended(text: &str, process: u32) -> bool {
    let process = process.to_string();
    // It stands near the end; small numbers are padded.
    text.lines().rev().take(1_000).any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some(&process) && words.next() == Some("+++")
    })
}

/// One system call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// Its name.
    pub name: String,
    /// The file or socket of its first descriptor; else the path that it names; else empty.
    pub on: String,
    /// The bytes that it was given, as far as it took them; of a path nothing.
    pub data: Vec<u8>,
    /// All its arguments as strace writes them, for those that need more.
    pub arguments: String,
    /// What it returned; negative for an error.
    pub result: i64,
    /// Where it began.
    pub began: usize,
    /// Where it ended.
    pub ended: usize,
}

/// A gRPC message that left through a socket.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The socket.
    pub socket: String,
    /// The message.
    pub bytes: Vec<u8>,
    /// Where the call that wrote its last byte began.
    pub began: usize,
}

/// All calls, in the order in which they began.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// They.
    pub calls: Vec<Call>,
}

impl Trace {
    /// Reads what strace wrote. Lines about signals and exits are left out, and so are calls that never ended.
    ///
    /// # Errors
    /// If a call resumes that never began.
    pub fn parse(text: &str) -> Result<Self> {
        let mut begun: BTreeMap<&str, (usize, String)> = BTreeMap::new();
        let mut calls = Vec::new();
        for (place, line) in text.lines().enumerate() {
            let Some((thread, rest)) = line.split_once(char::is_whitespace) else {
                continue;
            };
            let rest = rest.trim_start();
            if let Some(part) = rest.strip_suffix("<unfinished ...>") {
                begun.insert(thread, (place, part.to_owned()));
            } else if let Some(resumed) = rest.strip_prefix("<... ") {
                let (_, part) = resumed.split_once("resumed>").context("a call resumes")?;
                let before = begun.remove(thread);
                let (began, head) = before.with_context(|| format!("line {place}: nothing to resume"))?;
                calls.extend(call(&format!("{head}{part}"), began, place));
            } else {
                calls.extend(call(rest, place, place));
            }
        }
        calls.sort_by_key(|call| call.began);
        Ok(Self { calls })
    }

    /// The same without the calls of these names, as if the program had left them out.
    #[must_use]
    pub fn without(&self, names: &[&str]) -> Self {
        let kept = self
            .calls
            .iter()
            .filter(|call| !names.contains(&call.name.as_str()));
        Self {
            calls: kept.cloned().collect(),
        }
    }

    /// The successful calls of this name on a file or socket whose name ends so.
    pub fn on<'a>(&'a self, names: &'a [&str], end: &'a str) -> impl Iterator<Item = &'a Call> {
        self.calls.iter().filter(move |call| {
            names.contains(&call.name.as_str()) && call.on.ends_with(end) && call.result >= 0
        })
    }

    /// Makes sure that between two places of the trace a record was written and then forced: a write to the log with
    /// these bytes in it began after `after`, and an fdatasync of the log that began after that write ended, had
    /// itself ended when `before` began. Returns where the write began.
    ///
    /// # Errors
    /// What is missing.
    pub fn forced_between(&self, log: &str, bytes: &[u8], after: usize, before: usize) -> Result<usize> {
        let holds = |call: &&Call| {
            call.data
                .windows(bytes.len().max(1))
                .any(|window| window == bytes)
        };
        let in_time = |call: &&Call| call.began > after && call.ended < before;
        let written = self.on(WRITES, log).filter(in_time).find(holds);
        let written = written.with_context(|| {
            format!(
                "no write of {:?} to {log} between {after} and {before}",
                String::from_utf8_lossy(bytes)
            )
        })?;
        let forced = self
            .on(FORCES, log)
            .find(|call| call.began > written.ended && call.ended < before);
        ensure!(
            forced.is_some(),
            "the write to {log} at {} was not forced before {before}: no fdatasync of it in between",
            written.began
        );
        Ok(written.began)
    }

    /// Every gRPC message that left, in order.
    #[must_use]
    pub fn sent(&self) -> Vec<Sent> {
        // A descriptor that is closed may come again for another socket; its name has both ends, so it differs.
        let mut sockets: BTreeMap<&str, Written> = BTreeMap::new();
        for call in &self.calls {
            if SENDS.contains(&call.name.as_str()) && call.on.starts_with("TCP") && call.result > 0 {
                let written = sockets.entry(&call.on).or_default();
                written.bytes.extend_from_slice(&call.data);
                written.ends.push((written.bytes.len(), call.began));
            }
        }
        let mut sent = Vec::new();
        for (socket, Written { bytes, ends }) in sockets {
            for message in frames::messages(&bytes) {
                let at = ends.partition_point(|(end, _)| *end <= message.last);
                if let Some((_, began)) = ends.get(at) {
                    sent.push(Sent {
                        socket: socket.to_owned(),
                        bytes: message.bytes,
                        began: *began,
                    });
                }
            }
        }
        sent.sort_by_key(|sent| sent.began);
        sent
    }
}

/// What went into one socket.
#[derive(Default)]
struct Written {
    bytes: Vec<u8>,
    /// Of each call, how many bytes there were after it, and where it began.
    ends: Vec<(usize, usize)>,
}

/// Calls that write to a file.
pub const WRITES: &[&str] = &["write", "writev", "pwrite64", "pwritev", "pwritev2"];

/// Calls that force a file. `sync_file_range` is none of them: it does not cover the disk's cache and the file's length.
pub const FORCES: &[&str] = &["fsync", "fdatasync"];

/// Calls that write to a socket.
const SENDS: &[&str] = &["write", "writev", "sendto", "sendmsg"];

/// Reads `NAME(ARGUMENTS) = RESULT`; nothing for other lines.
fn call(text: &str, began: usize, ended: usize) -> Option<Call> {
    let (name, rest) = text.split_once('(')?;
    if name.is_empty()
        || !name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    {
        return None;
    }
    let (arguments, result) = rest.rsplit_once(") = ").or_else(|| {
        // strace aligns short calls.
        rest.rfind(" = ")
            .map(|at| (rest[..at].trim_end().trim_end_matches(')'), &rest[at + 3..]))
    })?;
    let result: i64 = result.split([' ', '<']).next()?.parse().ok()?;
    let on = descriptor(arguments);
    let mut strings = strings(arguments);
    let path = if on.is_none() && !strings.is_empty() {
        Some(strings.remove(0))
    } else {
        None
    };
    let mut data = strings.concat();
    if result >= 0 && usize::try_from(result).is_ok_and(|taken| taken < data.len()) {
        data.truncate(usize::try_from(result).unwrap_or_default());
    }
    let path = path.map(|path| String::from_utf8_lossy(&path).into_owned());
    Some(Call {
        name: name.to_owned(),
        on: on.or(path).unwrap_or_default(),
        data,
        arguments: arguments.to_owned(),
        result,
        began,
        ended,
    })
}

/// What stands between angle brackets behind the first argument, if that is a descriptor.
fn descriptor(arguments: &str) -> Option<String> {
    let digits = arguments.bytes().take_while(u8::is_ascii_digit).count();
    let rest = arguments[digits..].strip_prefix('<').filter(|_| digits > 0)?;
    // A socket's name has an arrow in it.
    let mut from = 0;
    loop {
        let end = from + rest[from..].find('>')?;
        if matches!(rest.as_bytes().get(end + 1), None | Some(b',' | b')' | b' ')) {
            return Some(String::from_utf8_lossy(&unescaped(&rest[..end])).into_owned());
        }
        from = end + 1;
    }
}

/// The texts between quotation marks.
fn strings(arguments: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut rest = arguments;
    while let Some(start) = rest.find('"') {
        let text = &rest[start + 1..];
        let mut end = 0;
        while end < text.len() && text.as_bytes()[end] != b'"' {
            end += if text.as_bytes()[end] == b'\\' { 2 } else { 1 };
        }
        found.push(unescaped(&text[..end.min(text.len())]));
        rest = text.get(end + 1..).unwrap_or_default();
    }
    found
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let Some(kind) = rest.first().copied() else { break };
        if kind == b'x' {
            let digits = rest.get(1..3).and_then(|digits| std::str::from_utf8(digits).ok());
            bytes.push(
                digits
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok())
                    .unwrap_or_default(),
            );
            rest = rest.get(3..).unwrap_or_default();
            continue;
        }
        let octal = rest
            .iter()
            .take(3)
            .take_while(|byte| (b'0'..=b'7').contains(byte))
            .count();
        if octal > 0 {
            bytes.push(
                rest[..octal]
                    .iter()
                    .fold(0, |byte: u8, digit| byte.wrapping_mul(8) + (digit - b'0')),
            );
            rest = &rest[octal..];
            continue;
        }
        bytes.push(match kind {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'v' => 0x0b,
            b'f' => 0x0c,
            other => other,
        });
        rest = &rest[1..];
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
7 openat(AT_FDCWD</tmp>, \"\\x2f\\x64\\x62\", O_RDWR|O_CLOEXEC) = 5</d/db>
7 pwrite64(5</d/db>, \"\\x00T1\\x22)\\n = 3\", 10, 4096) = 9
8 fdatasync(5</d/db> <unfinished ...>
7 sendto(9<TCP:[127.0.0.1:1->127.0.0.1:2]>, \"\\x00\\x00\\x06\\x00\\x00\\x00\\x00\\x00\\x01\", 9, MSG_NOSIGNAL, NULL, 0) = 9
8 <... fdatasync resumed>)         = 0
7 writev(9<TCP:[127.0.0.1:1->127.0.0.1:2]>, [{iov_base=\"\\x00\\x00\\x00\\x00\\x01\", iov_len=5}, {iov_base=\"v\", iov_len=1}], 2) = 6
7 write(1<pipe:[3]>, \"x\", 1)       = -1 EPIPE (Broken pipe)
7 --- SIGPIPE {si_signo=SIGPIPE} ---
7 +++ exited with 0 +++
";

    #[test]
    fn a_trace_is_read_into_calls_with_both_their_places() {
        let trace = Trace::parse(TRACE).unwrap();
        let read: Vec<_> = (trace.calls.iter())
            .map(|call| {
                (
                    call.name.as_str(),
                    call.on.as_str(),
                    call.result,
                    call.began,
                    call.ended,
                )
            })
            .collect();
        let socket = "TCP:[127.0.0.1:1->127.0.0.1:2]";
        let expected = [
            ("openat", "/db", 5, 0, 0),
            ("pwrite64", "/d/db", 9, 1, 1),
            ("fdatasync", "/d/db", 0, 2, 4),
            ("sendto", socket, 9, 3, 3),
            ("writev", socket, 6, 5, 5),
            ("write", "pipe:[3]", -1, 6, 6),
        ];
        assert_eq!(read, expected);
        assert_eq!(trace.calls[1].data, b"\0T1\")\n = ");
    }

    #[test]
    fn a_trace_is_whole_when_its_process_ended() {
        assert!(has_ended(TRACE, 7) && !has_ended(TRACE, 8));
        assert!(has_ended("7     +++ killed by SIGABRT +++", 7) && !has_ended("7 exit(0) = ?", 7));
    }

    #[test]
    fn a_message_left_with_the_call_that_wrote_its_last_byte() {
        let sent = Trace::parse(TRACE).unwrap().sent();
        assert_eq!(sent.len(), 1);
        assert_eq!((sent[0].bytes.as_slice(), sent[0].began), (b"v".as_slice(), 5));
    }

    #[test]
    fn a_force_counts_only_if_it_began_after_the_write_and_ended_before_the_message() {
        let trace = Trace::parse(TRACE).unwrap();
        assert_eq!(trace.forced_between("/db", b"T1", 0, 5).unwrap(), 1);
        assert!(
            trace.forced_between("/db", b"T1", 0, 4).is_err(),
            "it had not ended"
        );
        assert!(
            trace.forced_between("/db", b"T1", 1, 5).is_err(),
            "the write is older"
        );
        assert!(
            trace.forced_between("/db", b"T2", 0, 5).is_err(),
            "another record"
        );
        let without = trace.without(FORCES);
        let error = without
            .forced_between("/db", b"T1", 0, 5)
            .unwrap_err()
            .to_string();
        assert!(error.contains("was not forced"), "{error}");
        assert!(
            trace
                .without(&["pwrite64"])
                .forced_between("/db", b"T1", 0, 5)
                .is_err()
        );
    }
}
