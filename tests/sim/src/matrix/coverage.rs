//! Whether every cell is covered: by a script on its page, or by a row with a reason in the table of what cannot occur.
//!
//! It reads the pages as text and asks no script, so that a page that was cut short is found, too. The cells come from
//! the lists of crash points, mixes, ways, messages, calls and anomalies; that those lists are whole is the compiler's
//! business (every message and call is mapped to its kind by a match without a wildcard).

use std::collections::BTreeMap;
use std::fmt;

use super::{Anomaly, Call, CallAnomaly, Message, Page, Way, stories, words};

/// The table of what cannot occur.
const TABLE: &str = "IMPOSSIBLE.md";

/// A cell, and where it has to be covered.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cell {
    /// The page's file.
    pub page: String,
    /// The headings of its script, outermost first.
    pub headings: Vec<String>,
    /// How its row in the table begins.
    pub row: String,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.page, self.headings.join(": "))
    }
}

/// Every cell of section 9, and every anomaly of every message and call.
#[must_use]
pub fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (point, mix) in stories() {
        for way in Way::all() {
            cells.push(Cell {
                page: format!("{point}.md"),
                headings: vec![mix.to_string(), way.to_string()],
                row: format!("| `{point}` | {mix} | "),
            });
        }
    }
    let anomaly = |name: &str, word: &str| Cell {
        page: format!("{name}.md"),
        headings: vec![word.to_owned()],
        row: format!("| `{name}` | {word} | "),
    };
    for one in Anomaly::ALL {
        let name = words::anomaly(one).0;
        cells.extend(Message::ALL.iter().map(|message| anomaly(name, message.word())));
    }
    for one in CallAnomaly::ALL {
        let name = words::call_anomaly(*one).0;
        cells.extend(Call::ALL.iter().map(|call| anomaly(name, call.word())));
    }
    cells
}

/// The cells that have neither a script nor a row with a reason, or both.
#[must_use]
pub fn gaps(pages: &[Page]) -> Vec<Cell> {
    let scripts: BTreeMap<&str, BTreeMap<Vec<String>, String>> = pages
        .iter()
        .map(|page| (page.name.as_str(), sections(&page.text)))
        .collect();
    let table = pages.iter().find(|page| page.name == TABLE);
    let rows: Vec<&str> = table.into_iter().flat_map(|page| page.text.lines()).collect();
    let covered = |cell: &Cell| {
        let sections = scripts.get(cell.page.as_str());
        let script = sections.is_some_and(|sections| is_script(sections, &cell.headings));
        let reason = |row: &str| {
            row.strip_prefix(&cell.row)
                .is_some_and(|why| why.len() > " |".len())
        };
        script != rows.iter().any(|row| reason(row))
    };
    cells().into_iter().filter(|cell| !covered(cell)).collect()
}

/// What stands under each heading, up to the next one.
fn sections(text: &str) -> BTreeMap<Vec<String>, String> {
    let mut found: BTreeMap<Vec<String>, String> = BTreeMap::new();
    let mut at: Vec<String> = Vec::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            at = vec![heading.to_owned()];
        } else if let Some(heading) = line.strip_prefix("### ") {
            at.truncate(1);
            at.push(heading.to_owned());
        }
        let body = found.entry(at.clone()).or_default();
        body.push_str(line);
        body.push('\n');
    }
    found
}

/// Whether a script stands there and ends in what a caller is told once all checks of section 10 hold, or whether it
/// is as one that does.
fn is_script(sections: &BTreeMap<Vec<String>, String>, headings: &[String]) -> bool {
    let Some(body) = sections.get(headings) else {
        return false;
    };
    if let Some(same) = body.lines().find_map(|line| line.strip_prefix("As *")) {
        let Some((last, outer)) = headings.split_last() else {
            return false;
        };
        let same = same.trim_end_matches("*.");
        let mut other = outer.to_vec();
        other.push(same.to_owned());
        return same != last && is_script(sections, &other);
    }
    let mut lines = body.lines().rev().skip_while(|line| line.is_empty());
    lines.next() == Some("```") && lines.next().is_some_and(|line| line.starts_with("=   "))
}
