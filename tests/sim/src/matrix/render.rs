//! The trace as people read it: short stable names, no clock times, nothing that only repeats.
//!
//! Attempts get numbers in the order in which a script shows them: `T#1`, `T#2`. A participant that dials while there
//! is no coordinator is told with the time that passed.

use std::collections::{BTreeMap, BTreeSet};

use crate::node::Micros;

/// A pause shorter than this is not shown.
const SHOWN_PAUSE_US: Micros = 200_000;

/// Lines of a trace on their way to a page.
#[derive(Default)]
pub(crate) struct Rendering {
    names: BTreeMap<String, usize>,
    coordinator_is_down: bool,
    /// The death at a crash point is shown already.
    died_there: bool,
    dial_in_vain: BTreeSet<String>,
    replays: bool,
    last: Option<Micros>,
    lines: Vec<String>,
}

impl Rendering {
    /// The lines since the last call.
    pub(crate) fn take(&mut self, trace: &[String]) -> Vec<String> {
        for line in trace {
            self.line(line);
        }
        std::mem::take(&mut self.lines)
    }

    fn line(&mut self, line: &str) {
        let Some((at, node, text)) = parts(line) else {
            unreachable!("a trace line has a time, a node and a text: {line:?}");
        };
        if node == "c" {
            self.coordinator_is_down |= text.starts_with("dies");
            self.coordinator_is_down &= !text.starts_with("starts as");
        }
        if text.starts_with("-> c   HELLO") && self.coordinator_is_down {
            self.dial_in_vain.insert(node.to_owned());
            return;
        }
        // Said again when the start is through: it is shown only if a death comes first.
        if text == "replays its log" {
            self.replays = true;
            return;
        }
        let there = text.starts_with("crash point ");
        if std::mem::take(&mut self.replays) && there {
            self.lines.push(format!("{node:<3} replays its log"));
        }
        if std::mem::replace(&mut self.died_there, there) {
            return;
        }
        self.pause(at);
        let text = self.short(&reworded(text));
        self.lines.push(format!("{node:<3} {text}").trim_end().to_owned());
    }

    fn pause(&mut self, at: Micros) {
        let passed = at - self.last.unwrap_or(at);
        self.last = Some(at);
        let dial: Vec<String> = std::mem::take(&mut self.dial_in_vain).into_iter().collect();
        if passed < SHOWN_PAUSE_US {
            return;
        }
        let tenths = passed / 100_000;
        let vain = match dial.len() {
            0 => String::new(),
            1 => format!("; {} dials in vain", dial[0]),
            _ => format!("; {} dial in vain", dial.join(" and ")),
        };
        self.lines
            .push(format!("    ({}.{} s{vain})", tenths / 10, tenths % 10));
    }

    /// Attempts by number instead of start and sequence.
    fn short(&mut self, text: &str) -> String {
        let mut words = Vec::new();
        for word in text.split(' ') {
            let Some((id, number)) = word.split_once('#') else {
                words.push(word.to_owned());
                continue;
            };
            let digits = number.trim_end_matches(|c: char| !c.is_ascii_digit());
            let behind = &number[digits.len()..];
            let next = 1 + self
                .names
                .keys()
                .filter(|name| name.starts_with(&format!("{id}#")))
                .count();
            let named = *self.names.entry(format!("{id}#{digits}")).or_insert(next);
            words.push(format!("{id}#{named}{behind}"));
        }
        words.join(" ")
    }
}

/// Time, node and text.
fn parts(line: &str) -> Option<(Micros, &str, &str)> {
    let (time, rest) = line.trim_start().split_once(' ')?;
    let (ms, us) = time.split_once('.')?;
    let at = ms.parse::<Micros>().ok()? * 1_000 + us.parse::<Micros>().ok()?;
    let (node, text) = rest.split_once(' ')?;
    Some((at, node, text.trim_start()))
}

/// What stands in headings goes, and so do numbers that mean nothing to a reader.
fn reworded(text: &str) -> String {
    if text.starts_with("crash point ") {
        return "dies".to_owned();
    }
    if let Some(how) = text.strip_prefix("dies: ") {
        let power = how.starts_with("Power");
        return if power { "dies, and its power goes" } else { "dies" }.to_owned();
    }
    if let Some((head, _)) = text.split_once("HELLO, connection") {
        return format!("{head}HELLO");
    }
    if let Some((head, since)) = text.split_once("RETAINED ")
        && since.parse::<u64>().is_ok()
    {
        return format!("{head}RETAINED");
    }
    if let Some((_, why)) = text
        .strip_prefix("refuses session ")
        .and_then(|rest| rest.split_once(": "))
    {
        return format!("refuses a session: {why}");
    }
    if text == "tells the operator Ok(())" {
        return "tells the operator that it is done".to_owned();
    }
    if text.starts_with("session ") && text.ends_with(" is replaced") {
        return "replaces the session before it".to_owned();
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(lines: &[&str]) -> Vec<String> {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        Rendering::default().take(&lines)
    }

    #[test]
    fn attempts_are_numbered_in_the_order_in_which_they_are_shown() {
        let lines = rendered(&[
            "    115.000 c   -> p1  PREPARE T#3.7",
            "    115.000 c   ABORT T#3.7 (X)",
            "    116.000 p1  -> c   YES T#4.1",
        ]);
        assert_eq!(
            lines,
            [
                "c   -> p1  PREPARE T#1",
                "c   ABORT T#1 (X)",
                "p1  -> c   YES T#2"
            ]
        );
    }

    #[test]
    fn pauses_and_vain_dialling_are_one_line() {
        let lines = rendered(&[
            "    100.000 c   dies: Process",
            "    150.000 p1  -> c   HELLO, connection 2",
            "    150.000 p2  -> c   HELLO, connection 2",
            "   5100.000 c   starts as 2",
            "   5101.000 p1  -> c   HELLO, connection 9",
        ]);
        let expected = [
            "c   dies",
            "    (5.0 s; p1 and p2 dial in vain)",
            "c   starts as 2",
            "p1  -> c   HELLO",
        ];
        assert_eq!(lines, expected);
    }
}
